"""Rules decided ahead of their lists: the form, its rows, and its savings."""
