"""Packets that rules with `log` decided, on their way to those who ask for them."""
