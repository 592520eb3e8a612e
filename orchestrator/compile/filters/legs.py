"""Legs of a firewall VNF: interfaces towards the outside, and interfaces towards tenants' hosts.

A program is the same for all firewalls of a domain, and each calls its interfaces as it likes. So filter texts name
legs by symbol, as flows name ports: a line with a symbol is written once for each interface of that leg, and left out
where the agent was told of none. Neither symbol is the name of an interface that exists; an agent that does not know
symbols writes lines that no packet meets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.errors import BadInput

OUTSIDE, INSIDE = "aclflow-outside", "aclflow-inside"
GUARD_TABLE = "aclflow_legs"
"""The agent's own table, of nftables' family `inet`, that keeps legs to packets between them."""
_NAME = re.compile(r"[A-Za-z0-9_.@:-]{1,15}\Z")


@dataclass(frozen=True, slots=True)
class Legs:
    """The interfaces of each leg, by name.

    Raises BadInput for what is no name, for one that is in both, and for one leg without the other.
    """

    outside: tuple[str, ...] = ()
    inside: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for place, names in (("--outside", self.outside), ("--inside", self.inside)):
            for name in names:
                check_interface(name, place)
        both = sorted({*self.outside} & {*self.inside})
        if both:
            raise BadInput(f"'{both[0]}' is an outside leg as well", place="--inside")
        if bool(self.outside) is not bool(self.inside):
            raise BadInput(
                "name both legs: a packet's source is believed by the leg that it comes in by",
                place="--inside" if self.outside else "--outside",
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The interfaces of both legs."""
        return (*self.outside, *self.inside)

    def resolve_legs(self, text: str) -> str:
        """A filter's text with this machine's interfaces for symbols."""
        if OUTSIDE not in text and INSIDE not in text:
            return text
        return "\n".join(found for line in text.splitlines() for found in self._write_lines(line))

    def _write_lines(self, line: str) -> Iterator[str]:
        for symbol, names in ((OUTSIDE, self.outside), (INSIDE, self.inside)):
            if symbol in line:
                yield from (line.replace(symbol, name) for name in names)
                return
        yield line


def check_interface(name: str, place: str) -> None:
    """Raises BadInput for what filter texts cannot name as an interface."""
    if not _NAME.match(name):
        raise BadInput(f"'{name}' cannot be an interface's name", place=place)


NO_LEGS = Legs()
"""Of a firewall that was told of none: the source address alone says whose a packet is."""
