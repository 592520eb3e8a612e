"""The commands as data, a module for each family of nouns; `tree.py` joins them."""
