"""The iptables driver, and the fake that forwards packets as iptables would.

listing.py   what `iptables-save -c` prints, as chains with their rules and counters; rules in its own words
tool.py      reading and writing: one `iptables-restore` for each IP version
fake/        the same programs in plain Python
"""
