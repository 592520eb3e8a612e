"""Access lists as ordered rows: atoms, levels, pieces, and edits between versions."""
