"""iptables-save and ip6tables-save, read and written.

Read in the order quoting, ruleline (one line), read (the file; jumps are followed by `formats/chains`); write stands
alone.
"""
