"""How the store speaks SQL: connections, transactions' faults, columns that sort alike, notices between processes."""
