"""Cisco IOS access lists, read and written.

Read in the order config (the lines of each list), groups (object groups), entry (one line), read (the whole); write
stands alone.
"""
