"""The loops between the store and the enforcement points: compile, publish, gather, expire.

control.py      Control: units of work that compile before they commit
maker.py        what is published next; controlloop.py the loop that publishes what nobody here has compiled
compiler.py     policy snapshots into programs, with each domain's cache; each is proven before it leaves
staging.py      intersection first: what may be published now on the way to the newest policy
publisher.py    every domain's current program and recent deltas, and who waits for a newer one
enforcement.py  what enforcement points read back, and who waits for that
feed.py         the log of events as it grows, for those who follow it
quota.py        what tenants' lists cost, held to their quotas before a commit
promote.py      rounds of choosing which rules are lifted, and what became of them
timekeeper.py   what time brings: expiry and its announcement, enforcement points that fell silent
signals.py      waking coroutines from threads
dryruns.py      questions about a list, answered in the workbench; what it remembers of lists it judged
precompiling.py long lists in a process with a deadline, before their turn
workbench.py    pure work that may take long, in processes of its own
metrics.py      what Prometheus is told
pops/           the edge's programs and heavy hitters, the manager of firewall servers
packets/        packets that rules with `log` decided, on their way to those who ask
fleet/          firewall VNFs that come and go
"""
