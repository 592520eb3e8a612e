"""The tables, as SQLAlchemy metadata: `core.py`, and a module for each family of tables."""
