"""The store: tenants, their access lists with history, domains, enforcers, tokens, hits and events, in SQL.

    store = open_store("sqlite:////var/lib/aclflow/aclflow.db")       # or postgresql+psycopg://...
    with store.write() as unit:                                       # one transaction: all of it or none
        change = unit.acls.replace("blue", acl, expected_version=3, author="alice")
    with store.read() as unit:                                        # one snapshot
        record = unit.acls.current("blue")

Read in this order:
  records.py       what comes out: frozen records
  schema.py        the tables, with a drawing; migrations/ builds them step by step, migrate.py runs the steps
  engine.py        open_store, Store, how a unit of work begins and ends
  unit.py          the repositories of one transaction:
    tenants.py domains.py sites.py acls.py groups.py enforcers.py reports.py tokens.py hits.py events.py replies.py
  transaction.py   what they share: the connection, the time, numbers to draw, generations that moved
  aclsteps.py      what every change of a list does first and last
  grouprows.py     the temporal rows of address groups and their members
  aclrows.py       the temporal rows of access lists; aclreplace.py replaces a list, touching only what differs
  aclcache.py      access lists in memory, mended by the rows that changed; policycache.py: whole policies
  principals.py    who bears which token, in memory
  generations.py   a database put back from a backup is brought above what its hosts hold
  prefixrows.py    prefixes that must not overlap
  database.py      connections, and who writes when; faults.py: what a database says, as errors of ours
  notices.py       waking those who wait for changes, in this process and others
  keys.py          order keys with gaps, prefixes as byte ranges, digests of secrets, times as numbers
  clock.py         time that never goes back; bulk.py: many objects at once

There is one writer at a time on either database, so numbers, generations and event ids are committed in the order in
which they were drawn. What must never be broken (exclusive prefixes, unique ports, one use of an enrolment token) is
held by the database as well.
"""

from __future__ import annotations

from orchestrator.store.engine import Store, open_store
from orchestrator.store.transaction import StoreSettings

__all__ = ["Store", "StoreSettings", "open_store"]
