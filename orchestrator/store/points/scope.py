"""The devices that an enforcement point may speak for.

    kind                  speaks for
    openflow              the switches of its domain (hosts', edges', the spreading one); only those that its enrolment
                          token names, where it names any
    nftables, iptables, queue    the one firewall of its own name that filters with just that

Kind, name and hosts are fixed when the enforcement point enrols. They are checked wherever it says something of a
device: reports, claims and reports of counts, packet logs, loads, trials, and the spreading switch; and where it
follows a program.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row

from orchestrator.errors import Forbidden
from orchestrator.identity.names import OPENFLOW, SPREADING_SWITCH
from orchestrator.program.program import Tier
from orchestrator.store.schema.firewalls import EDGE

_SWITCHES = (None, EDGE)
"""The planes of hosts that switches connect from."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The hosts that one enforcement point speaks for.

    `hosts` is None where its token named none.
    """

    name: str
    kind: str
    hosts: frozenset[str] | None = None

    @classmethod
    def of(cls, row: Row[Any]) -> Scope:
        """The scope of a row of `enforcers`."""
        return cls(row.name, row.kind, hosts_of(row.hosts))

    def covers(self, host: str, plane: str | None) -> bool:
        """Whether it speaks for a host of a plane (`hosts.plane`)."""
        if plane in _SWITCHES:
            return self.kind == OPENFLOW and (self.hosts is None or host in self.hosts)
        return self.kind == plane and self.name == host

    def check(self, host: str, plane: str | None, *, place: str) -> None:
        """Raises Forbidden for a device that somebody else speaks for."""
        if not self.covers(host, plane):
            raise Forbidden(f"enforcer '{self.name}' ({self.kind}) does not speak for '{host}'", place=place)

    def check_spread(self) -> None:
        """Raises Forbidden for an enforcement point that does not control the spreading switch."""
        self.check(SPREADING_SWITCH, None, place="enforcer")

    def check_program(self, tier: Tier, server: str | None) -> None:
        """Refuse a program that other enforcement points follow. Raises Forbidden.

        It is the program of a tier, or of one firewall server.
        """
        if server is not None:
            if self.kind == OPENFLOW or self.name != server:
                raise Forbidden(
                    f"enforcer '{self.name}' ({self.kind}) is not the server '{server}'", place="query.server"
                )
        elif (tier is Tier.SERVER) is (self.kind == OPENFLOW):
            raise Forbidden(f"enforcer '{self.name}' ({self.kind}) does not follow '{tier.value}'", place="query.tier")


def hosts_of(text: str | None) -> frozenset[str] | None:
    """The hosts that a row names; None: it names none."""
    return None if text is None else frozenset(json.loads(text))


def hosts_text(named: Iterable[str]) -> str | None:
    """Hosts as a row names them."""
    found = sorted(set(named))
    return json.dumps(found) if found else None
