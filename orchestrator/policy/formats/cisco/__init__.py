"""Read access lists of IOS, IOS-XR, NX-OS, Arista EOS and ASA; write IOS and ASA.

Read in the order accesslist (lists and groups as they stand), config (a configuration's lines into them), groups and
entry (routers and switches), asa_groups and asa_entry (firewalls), read (the whole); write writes both, with the words
of writing.
"""
