"""iptables-save and ip6tables-save, read and written.

Read in the order words, matches (one line), parse (the file), chains (jumps followed), read (the whole); write stands
alone.
"""
