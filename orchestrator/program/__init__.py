"""A program is the value that an enforcement point must hold: its flows, its digest, the delta to the next one.

Pure columns and bytes: the same program has the same digest wherever it is computed, and two programs differ by a delta
that turns one into the other.
"""
