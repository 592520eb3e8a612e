"""A spreading switch's health checks (BFD) of the firewalls behind its ports. Pure.

    switch ──every 10 ms──▶ port ──▶ firewall ──▶ back        40 ms without an answer: the switch gives the port up

A bucket of a synchronised spread *watches* its owner's port, and passes to the next owner where that is given up. Where
a port has no health check, it is given up only when its link goes down: a firewall that dies behind another switch, or
stands still, keeps its traffic. Open vSwitch holds the settings in the column `bfd` of its interfaces, and what it
finds in `bfd_status`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

BFD: Mapping[str, str] = MappingProxyType({"enable": "true", "min_tx": "10", "min_rx": "10", "mult": "4"})
"""The switch asks every 10 ms, and gives a firewall up that answers nothing for 40 ms."""
_WATCHED = re.compile(r"\bwatch_port:(\d+)")
_NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class PortCheck:
    """A port's health check as it is: its settings, and what the switch finds."""

    port: str
    settings: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    status: Mapping[str, str] = field(default_factory=lambda: _NOTHING)

    @property
    def is_asked(self) -> bool:
        """Whether the firewall behind it is asked as often as it must be."""
        return all(self.settings.get(key) == value for key, value in BFD.items())

    @property
    def is_up(self) -> bool:
        """Whether the switch finds the firewall well."""
        return self.status.get("state") == "up"

    def commands(self) -> tuple[tuple[str, ...], ...]:
        """Return the words of `ovs-vsctl` that set the check; none where it is set."""
        return () if self.is_asked else (set_check(self.port),)


def set_check(port: str) -> tuple[str, ...]:
    """Return the words of `ovs-vsctl` that have a port's firewall asked.

    Other settings of BFD stay.
    """
    return ("set", "interface", port, *(f"bfd:{key}={value}" for key, value in BFD.items()))


def watched_ports(groups: Iterable[str]) -> frozenset[int]:
    """Return the numbers of ports that buckets watch, of groups as `ovs-ofctl dump-groups` prints them."""
    return frozenset(int(number) for line in groups for number in _WATCHED.findall(line))
