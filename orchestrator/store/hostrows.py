"""Switches as rows of a domain, with unique names and datapath ids.

Hosts' and edges' come and go alike.

A switch keeps what it holds when it is taken out of its domain, and until it is reached nobody knows what that is. So
it is noted since which generation it may hold the domain's programs: what it was last read back at, if it was. Where
the store was put back to an earlier state, one that is not known may have been there in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Row, delete, insert, select
from sqlalchemy.sql import Insert

from orchestrator.errors import Conflict
from orchestrator.store.points.pointrecords import PointReport
from orchestrator.store.records import HostRecord
from orchestrator.store.schema.core import domains, former_hosts, host_ports, hosts, points
from orchestrator.store.sql.prepared import Insertion, Prepared
from orchestrator.store.transaction import Transaction


def _make_ports_upsert(insertion: Insertion) -> Insert:
    new = insertion(host_ports)
    return new.on_conflict_do_update(index_elements=("domain", "host"), set_={"ports": new.excluded.ports})


_KEEP_PORTS = Prepared(_make_ports_upsert)


def switch_rows(tx: Transaction, domain: str, plane: str | None, name: str | None = None) -> tuple[HostRecord, ...]:
    """The switches of a domain on a plane (None: the hosts'), by name.

    With a `name`, that one alone.
    """
    mine = _match_hosts(domain, plane)
    mine = mine if name is None else mine & (hosts.c.name == name)
    rows = tx.read(select(hosts).where(mine).order_by(hosts.c.name))
    return tuple(HostRecord(row.name, int(row.datapath_id, 16), row.uplink) for row in rows)


def add_switch(tx: Transaction, domain: str, host: HostRecord, plane: str | None) -> int:
    """Put a switch in; the generation it must reach. Raises NotFound, Conflict (name, datapath id).

    The generation is a new one: it tells controllers at once that there is a switch, also one of a name that they
    knew before.
    """
    tx.domain(domain)
    datapath = f"{host.datapath_id:016x}"
    same_name = (hosts.c.domain == domain) & (hosts.c.name == host.name)
    taken = tx.read(select(hosts).where(same_name | (hosts.c.datapath_id == datapath)).limit(1)).one_or_none()
    if taken is not None and taken.datapath_id == datapath:
        raise Conflict(f"a switch with datapath id {datapath} is onboarded already", place="datapath_id")
    if taken is not None:
        raise Conflict(f"the domain already has a host '{host.name}'", place="name")
    generation = tx.bump_for_hosts(domain)
    before = tx.write(
        delete(former_hosts).where(_match_former_host(domain, datapath)).returning(former_hosts.c.since)
    ).first()
    since = _since_when(tx, domain, generation) if before is None else before.since
    row = {"domain": domain, "name": host.name, "datapath_id": datapath, "uplink": host.uplink, "plane": plane}
    tx.write(insert(hosts).values(since=since, **row))
    return generation


def take_out_switch(tx: Transaction, domain: str, name: str, plane: str | None) -> bool:
    """Remove a switch, and note since when it may hold its program.

    Returns whether there was one.
    """
    reported = (points.c.domain == domain) & (points.c.host == name)
    generation = tx.read(select(points.c.generation).where(reported)).scalar_one_or_none()
    mine = _match_hosts(domain, plane) & (hosts.c.name == name)
    gone: Sequence[Row[Any]] = tx.write(delete(hosts).where(mine).returning(hosts.c.datapath_id, hosts.c.since)).all()
    for row in gone:
        noted = {"since": max(row.since, generation or 0)}
        former = tx.upsert(former_hosts).values(domain=domain, datapath_id=row.datapath_id, **noted)
        tx.write(former.on_conflict_do_update(index_elements=["domain", "datapath_id"], set_=noted))
    return bool(gone)


def keep_ports(tx: Transaction, domain: str, reports: Iterable[PointReport]) -> None:
    """Keep the interfaces of hosts' switches that reports name."""
    for report in reports:
        if report.ports is not None:
            tx.rows(_KEEP_PORTS, domain=domain, host=report.host, ports="\n".join(sorted(report.ports)))


def _since_when(tx: Transaction, domain: str, generation: int) -> int:
    """Return since which generation a switch may hold unknown programs of the domain."""
    behind = tx.read(select(domains.c.behind).where(domains.c.id == domain)).scalar_one()
    return 0 if behind else generation


def _match_hosts(domain: str, plane: str | None) -> ColumnElement[bool]:
    return (hosts.c.domain == domain) & (hosts.c.plane.is_(None) if plane is None else hosts.c.plane == plane)


def _match_former_host(domain: str, datapath: str) -> ColumnElement[bool]:
    """Select a switch that was taken out of a domain, by its datapath id."""
    return (former_hosts.c.domain == domain) & (former_hosts.c.datapath_id == datapath)
