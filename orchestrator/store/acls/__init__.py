"""Access lists and address groups with history: temporal rows, cache, and changes."""
