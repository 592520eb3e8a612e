"""The pipelines of switches, declared as data, and the rows that make them pipelines."""
