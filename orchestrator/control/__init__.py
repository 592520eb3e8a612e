"""The loops between the store and the enforcement points: compile, publish, gather, expire.

control.py      Control: units of work that compile before they commit, and the loop that catches up
compiler.py     policy snapshots into programs, with each domain's cache
publisher.py    every domain's current program and recent deltas, and who waits for a newer one
enforcement.py  what enforcement points read back, and who waits for that
signals.py      waking coroutines from threads
workbench.py    pure work that may take long, in a process of its own
metrics.py      what Prometheus is told
"""
