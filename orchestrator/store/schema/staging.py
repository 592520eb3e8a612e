"""The tables of changes in two steps: contents of switches, and what is held back.

`intersections` has what the last change that took two steps holds back until switches hold less, with the generation of
its target; or that it is open what must be held back of a generation: the first service that publishes it decides.
`former_hosts` has since which generation a switch that was taken out of a domain may hold the domain's programs.
"""

from __future__ import annotations

from sqlalchemy import Column, ForeignKey, Table, Text

from orchestrator.store.schema.core import COUNT, NAME, metadata

intersections = Table(
    "intersections",
    metadata,
    Column("domain", NAME, ForeignKey("domains.id", ondelete="CASCADE"), primary_key=True),
    Column("generation", COUNT, nullable=False),
    Column("withheld", Text, nullable=False),
    sqlite_with_rowid=False,
)

former_hosts = Table(
    "former_hosts",
    metadata,
    Column("domain", NAME, ForeignKey("domains.id", ondelete="CASCADE"), primary_key=True),
    Column("datapath_id", Text, primary_key=True),
    Column("since", COUNT, nullable=False),
    sqlite_with_rowid=False,
)
