"""Slow, plain implementations of what the extensions do: the laws compare both."""
