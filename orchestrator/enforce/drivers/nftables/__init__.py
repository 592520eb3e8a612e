"""The nftables driver, and the fake that forwards packets as nftables would.

words.py     rules, maps and sets in one normal form, whoever wrote them down
listing.py   what `nft list table` prints, as objects with their counters
scripts.py   scripts that bring a table from some objects to others: whole, or only what changed
tool.py      reading and writing
fake/        the same in plain Python
"""
