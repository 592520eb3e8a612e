"""Access lists as ordered rows: atoms, levels, pieces, and the way from one version of a list to the next."""
