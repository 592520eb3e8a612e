"""How often enforcement points tell what they see, unless they are told otherwise."""

READ_EVERY_S = 5.0
"""Their counters are read so often, and what is new is told."""
