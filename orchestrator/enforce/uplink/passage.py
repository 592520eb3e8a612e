"""The passage of a spreading switch: the machine's kernel leads packets into it on either side.

    router ── outside ┐                       ┌ inside ── hosts
              (kernel)└ sp-out ─ switch ─ sp-in ┘(kernel)
                                 │ │
                              firewalls

    came in by        goes to
    outside           ranges: sp-out            all else: the machine itself, or nowhere
    sp-in             by the machine's routes, to an inside interface alone
    inside            sp-in, whatever it is for: endpoints of two hosts meet the firewalls, too
    sp-out            by the machine's routes, to an outside interface alone

Routes that lead into the switch stand in tables of their own, which end in *unreachable*: while a port of the switch is
not there nothing passes by another way. The guard's table permits these four ways and no other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.compile.filters.legs import check_interface
from orchestrator.compile.pipelines.spread import INSIDE_PORT, OUTSIDE_PORT
from orchestrator.enforce.drivers.filters.command import Run, run
from orchestrator.enforce.guardtable import GuardTable, set_of_names
from orchestrator.enforce.uplink.routeduplink import check_ranges, drop_senders
from orchestrator.errors import BadInput
from orchestrator.policy.addresses import Family, Prefix, aggregate

PASSAGE_GUARD = "aclflow_passage"
"""The table of nftables' family `inet` around the switch's ports."""
TABLES = (17201, 17202)
"""Numbers of the kernel's routing tables that lead into the switch, from outside and from inside."""


@dataclass(frozen=True, slots=True)
class Way:
    """Where a packet that came in by some interfaces is led: to a port of the switch, if it is for some prefixes."""

    table: int
    came_by: tuple[str, ...]
    port: str
    prefixes: tuple[Prefix, ...]


@dataclass(frozen=True, slots=True)
class Passage:
    """A spreading switch's surroundings as an operator declares them. Raises BadInput, naming the option.

    `outside` are interfaces towards routers, `inside` those towards hosts, `ranges` the addresses that endpoints may
    have.
    """

    outside: tuple[str, ...]
    inside: tuple[str, ...]
    ranges: tuple[Prefix, ...]
    outside_port: str = OUTSIDE_PORT
    inside_port: str = INSIDE_PORT

    def __post_init__(self) -> None:
        sides = (("--outside", self.outside), ("--inside", self.inside))
        for place, names in sides:
            if not names:
                raise BadInput("name the interface on this side of the firewalls", place=place)
            for name in names:
                check_interface(name, place)
                if name in self.ports:
                    raise BadInput(f"'{name}' is the switch's own port", place=place)
        both = sorted(set(self.outside) & set(self.inside))
        if both:
            raise BadInput(f"'{both[0]}' is named for both sides of the firewalls", place="--inside")
        if self.outside_port == self.inside_port:
            raise BadInput(f"'{self.inside_port}' is named for both sides of the switch", place="--inside-port")
        check_ranges(self.ranges)

    @property
    def ports(self) -> tuple[str, str]:
        """The switch's ports that the kernel routes to."""
        return self.outside_port, self.inside_port

    @property
    def ways(self) -> tuple[Way, Way]:
        """What is led into the switch, by a table each."""
        everything = tuple(Prefix(family, 0, 0) for family in Family)
        ranges = tuple(
            each for family in Family for each in aggregate(tuple(one for one in self.ranges if one.family is family))
        )
        return (
            Way(TABLES[0], self.outside, self.outside_port, ranges),
            Way(TABLES[1], self.inside, self.inside_port, everything),
        )

    def guard(self, run: Run = run) -> GuardTable:
        """The table of nftables around the ports."""
        return GuardTable(PASSAGE_GUARD, tuple(self._write_chains()), run)

    def _write_chains(self) -> Iterator[str]:
        outside, inside = set_of_names(self.outside), set_of_names(self.inside)
        spoken = tuple(drop_senders(self.ranges))
        yield from (
            "chain here {",
            "type filter hook input priority -10; policy accept;",
            f"iifname {set_of_names(self.ports)} drop",
            *spoken,
            "}",
            "chain across {",
            "type filter hook forward priority -10; policy drop;",
            *(f"iifname {outside} {line}" for line in spoken),
            f'iifname {outside} oifname "{self.outside_port}" accept',
            f'iifname "{self.outside_port}" oifname {outside} accept',
            f'iifname {inside} oifname "{self.inside_port}" accept',
            f'iifname "{self.inside_port}" oifname {inside} accept',
            "}",
        )
