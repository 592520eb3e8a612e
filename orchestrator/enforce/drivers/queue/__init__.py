"""A firewall in user space: NFQUEUE batches, classified on the processor or a GPU.

    kernel ── NFQUEUE ──▶ machine.py: batches ──▶ engine.py: workers ──▶ lists.py: verdicts ──▶ kernel
                                                      ▲
                          tool.py: the program's rows ┘

machine.py   the kernel's queues over netlink; `fake/` stands in for them
lists.py     the rows of all lists, and their answer for a batch
engine.py    workers, rows that change between two batches, a device that fails, packets of rules that log
tool.py      what the driver of packet filters reads and writes

docs/queue-firewall.md says what is guaranteed and what it costs.
"""
