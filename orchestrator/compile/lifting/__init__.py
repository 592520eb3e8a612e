"""Rules decided ahead of their lists: whether there is a form, its rows, and what it would save."""
