"""Access lists and address groups with their history: temporal rows, their memory, and every way to change them."""
