"""Firewall VNFs: hosts of a domain that filter packets with iptables or nftables.

They share the hosts' names, so what they report (points, counters) is kept, waited for and listed like every host's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, bindparam, delete, insert, literal_column, select

from orchestrator.errors import Conflict, NotFound
from orchestrator.store.events import Events
from orchestrator.store.records import FirewallRecord, FirewallSeen
from orchestrator.store.schema.core import enforcers, firewall_loads, hosts
from orchestrator.store.schema.firewalls import EDGE
from orchestrator.store.sql.keys import from_micros
from orchestrator.store.sql.prepared import Prepared
from orchestrator.store.transaction import Transaction
from orchestrator.wire.firewalls import Load, Plane

_LONGEST_TROUBLE = 1024

_FILTERS = hosts.c.plane.is_not(None) & (hosts.c.plane != literal_column(f"'{EDGE}'"))
_OF_DOMAIN = (hosts.c.domain == bindparam("of_domain")) & _FILTERS
_PLANES = Prepared(select(hosts.c.plane).where(_OF_DOMAIN).distinct())
_NAMES = Prepared(select(hosts.c.name).where(_OF_DOMAIN))
_NAMED = Prepared(select(hosts.c.name).where(_OF_DOMAIN, hosts.c.name == bindparam("named")))
_PLANE_OF = Prepared(select(hosts.c.name, hosts.c.plane).where(_OF_DOMAIN))


class Firewalls:
    """The firewalls' repository."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def list(self, domain: str, *, limit: int | None = None, marker: str = "") -> tuple[FirewallSeen, ...]:
        """A domain's firewalls by name, those after `marker`, at most `limit`. Raises NotFound."""
        self._tx.domain(domain)
        mine = _select_seen(domain).where(hosts.c.name > marker).order_by(hosts.c.name).limit(limit)
        return tuple(map(_read_firewall, self._tx.read(mine)))

    def get(self, domain: str, name: str) -> FirewallSeen:
        """Return one of a domain's firewalls. Raises NotFound."""
        self._tx.domain(domain)
        row = self._tx.read(_select_seen(domain).where(hosts.c.name == name)).one_or_none()
        if row is None:
            raise NotFound(f"the domain has no firewall '{name}'")
        return _read_firewall(row)

    def planes(self, domain: str) -> frozenset[Plane]:
        """Return the planes of the domain's firewalls; empty where it has none."""
        return frozenset(Plane(row.plane) for row in self._tx.rows(_PLANES, of_domain=domain))

    def plane_of(self, domain: str) -> Mapping[str, Plane]:
        """Return the plane of each of the domain's firewalls, by name."""
        return {row.name: Plane(row.plane) for row in self._tx.rows(_PLANE_OF, of_domain=domain)}

    def names(self, domain: str) -> frozenset[str]:
        """The names of the domain's firewalls."""
        return frozenset(row.name for row in self._tx.rows(_NAMES, of_domain=domain))

    def add(self, domain: str, firewall: FirewallRecord) -> int:
        """Onboard a firewall; returns the generation it must reach, a new one. Raises NotFound, Conflict."""
        self._insert_firewall(domain, firewall)
        return self._tx.bump_for_hosts(domain)

    def join(self, domain: str, firewall: FirewallRecord) -> int:
        """Add one of many firewalls, and return the generation.

        The generation moves only where the domain's policy was not compiled for this plane, for its program is that of
        all others.
        """
        is_known = firewall.plane in self.planes(domain)
        self._insert_firewall(domain, firewall)
        return int(self._tx.domain(domain).generation) if is_known else self._tx.bump_for_hosts(domain)

    def leave(self, domain: str, name: str) -> None:
        """Remove one of many firewalls, if it is there.

        The generation moves only with the last of its kind.
        """
        before = self.planes(domain)
        self._tx.write(delete(hosts).where(_match_firewall(domain, name)))
        if self.planes(domain) != before:
            self._tx.bump_for_hosts(domain)

    def _insert_firewall(self, domain: str, firewall: FirewallRecord) -> None:
        self._tx.domain(domain)
        same_name = select(hosts.c.name).where(hosts.c.domain == domain, hosts.c.name == firewall.name)
        if self._tx.read(same_name).first() is not None:
            raise Conflict(f"the domain already has a host or firewall '{firewall.name}'", place="name")
        self._tx.write(
            insert(hosts).values(
                domain=domain,
                name=firewall.name,
                datapath_id=f"{domain}/{firewall.name}",
                uplink="",
                plane=firewall.plane.value,
            )
        )

    def remove(self, domain: str, name: str) -> int:
        """Returns the new generation. Raises NotFound."""
        self._tx.domain(domain)
        if not self._tx.write(delete(hosts).where(_match_firewall(domain, name))).rowcount:
            raise NotFound(f"the domain has no firewall '{name}'")
        return self._tx.bump_for_hosts(domain)

    def report_load(self, enforcer: int, load: Load) -> None:
        """Keep what an agent says of the firewall that bears its name. Raises NotFound."""
        row = self._tx.read(select(enforcers.c.domain, enforcers.c.name).where(enforcers.c.id == enforcer)).one()
        if not self._tx.rows(_NAMED, of_domain=row.domain, named=row.name):
            raise NotFound(f"the domain has no firewall '{row.name}'")
        columns = firewall_loads.c
        mine = (columns.domain == row.domain) & (columns.host == row.name)
        before = self._tx.read(select(columns.trouble).where(mine)).scalar_one_or_none()
        if load.trouble and load.trouble[:_LONGEST_TROUBLE] != before:
            said = {"firewall": row.name, "trouble": load.trouble[:_LONGEST_TROUBLE]}
            Events(self._tx).append("firewall.trouble", row.domain, said)
        self._tx.write(delete(firewall_loads).where(mine))
        self._tx.write(
            insert(firewall_loads).values(
                domain=row.domain,
                host=row.name,
                reported=self._tx.micros,
                packets_pps=load.packets_pps,
                bits_bps=load.bits_bps,
                cpu_permille=load.cpu_permille,
                connections=load.connections,
                trouble=load.trouble and load.trouble[:_LONGEST_TROUBLE],
            )
        )


def _select_seen(domain: str) -> Select[Any]:
    """Select a domain's firewalls with the latest word of their load."""
    with_load = hosts.outerjoin(
        firewall_loads, (firewall_loads.c.domain == hosts.c.domain) & (firewall_loads.c.host == hosts.c.name)
    )
    columns = [column for column in firewall_loads.c if column.name != "domain"]
    seen = select(hosts.c.name, hosts.c.plane, *columns).select_from(with_load)
    return seen.where(hosts.c.domain == domain, _FILTERS)


def _match_firewall(domain: str, name: str) -> ColumnElement[bool]:
    return (hosts.c.domain == domain) & (hosts.c.name == name) & _FILTERS


def _read_firewall(row: Row[Any]) -> FirewallSeen:
    firewall = FirewallRecord(row.name, Plane(row.plane))
    if row.reported is None:
        return FirewallSeen(firewall, None, None)
    load = Load(row.packets_pps, row.bits_bps, row.cpu_permille, row.connections, row.trouble)
    return FirewallSeen(firewall, load, from_micros(row.reported))
