"""The SQL store: tenants, lists with history, domains, enforcers, tokens, hits, events.

    store = open_store("sqlite:////var/lib/aclflow/aclflow.db")       # or postgresql+psycopg://...
    with store.write() as unit:                                       # one transaction: all of it or none
        change = unit.acls.replace("blue", acl, expected_version=3, author="alice")
    with store.read() as unit:                                        # one snapshot
        record = unit.acls.current("blue")

Read in this order:
  records.py       what comes out: frozen records; each family below has records of its own
  schema/          the tables, core.py with a drawing; migrations/ builds them step by step, migrate.py runs the steps
  engine.py        open_store, Store, how a unit of work begins and ends
  unit.py          the repositories of one transaction:
    tenants.py domains.py sites.py placements.py tokens.py packetlog.py events.py replies.py, and of families
    acls/          lists and groups with their history: rows.py temporal rows, replace.py touches only what differs,
                   steps.py what every change does first and last, cache.py lists in memory
    hits/          counts on their way in, sums, history, summaries
    points/        enforcement points: how they enrol, what they report; machines on their way into a domain
    firewalls/     firewall VNFs, fleets of them, what one carries, whose traffic each gets
    pops/          points of presence, in memory too, and where packets went
  transaction.py   what they share: the connection, the time, numbers to draw, generations that moved
  intersections.py what a change that takes two steps holds back; hostrows.py switches that come and go
  policycache.py   whole policies in memory; tokens.py who bears which token
  prefixrows.py    prefixes that must not overlap
  sql/             connections, and who writes when (database.py); what a database says, as errors of ours (faults.py);
                   waking those who wait, here and elsewhere (notices.py); order keys, prefixes, times (keys.py)
  backups/         one file with everything, and back; a database put back is brought above what its hosts hold

There is one writer at a time of each domain, and on SQLite of all of them. Generations are committed in their order
within a domain, ids of events and of audit entries in theirs. Invariants (exclusive prefixes, unique
ports, one use of an enrolment token) is held by the database as well.
"""

from __future__ import annotations

from orchestrator.store.engine import Store, open_store
from orchestrator.store.transaction import StoreSettings

__all__ = ["Store", "StoreSettings", "open_store"]
