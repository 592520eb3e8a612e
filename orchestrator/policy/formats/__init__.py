"""Foreign ways to write access lists, read and written: see registry.py for the table of formats."""
