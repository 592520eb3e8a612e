"""The table of nftables that keeps a firewall's legs to what they are for: packets between them.

    input     by a leg     dropped, but for neighbour discovery (the machine's own services are reached by other ways)
    forward   by or to a leg, from or to what is none   dropped

It is the agent's own and says nothing of tenants, so it needs no program: it stands before forwarding is switched on,
beside whatever filters here. It is looked at again now and then, and written anew where somebody changed it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from orchestrator.compile.filters.legs import GUARD_TABLE, Legs
from orchestrator.enforce.drivers.filters.command import Run, run
from orchestrator.errors import Refused

_LIST = ("nft", "-nn", "list", "table", "inet", GUARD_TABLE)
_WRITE = ("nft", "-f", "-")
_NO_TABLE = "No such file or directory"


def guard_text(legs: Legs, beside: Iterable[str] = ()) -> str:
    """The script that puts the table in the place of any other; only the removal where there are no legs.

    `beside` are interfaces that packets are forwarded to and from as well.
    """
    there = f"table inet {GUARD_TABLE}"
    lines = [there, f"delete {there}", *(_declared(there, legs, (*legs.names, *beside)) if legs.names else ())]
    return "\n".join([*lines, ""])


def _declared(there: str, legs: Legs, among: tuple[str, ...]) -> Iterator[str]:
    own, all_ways = _names(legs.names), _names(among)
    yield from (
        f"{there} {{",
        "chain here {",
        "type filter hook input priority -10; policy accept;",
        f"iifname {own} icmpv6 type {{ nd-neighbor-solicit, nd-neighbor-advert }} accept",
        f"iifname {own} drop",
        "}",
        "chain across {",
        "type filter hook forward priority -10; policy accept;",
        f"iifname {own} oifname != {all_ways} drop",
        f"oifname {own} iifname != {all_ways} drop",
        "}",
        "}",
    )


def _names(names: Iterable[str]) -> str:
    quoted = ", ".join(f'"{name}"' for name in names)
    return f"{{ {quoted} }}"


@dataclass(slots=True)
class LegGuard:
    """The table of one network namespace."""

    legs: Legs
    beside: tuple[str, ...] = ()
    run: Run = run
    _listed: str = field(default="", init=False)
    """The table as nft listed it when it was written."""

    def close(self) -> None:
        """Write it, or take away one that is not wanted any more. Raises as a filter's tool does."""
        if self.legs.names or self._read():
            self.run(_WRITE, guard_text(self.legs, self.beside))
        self._listed = self._read()

    def look(self) -> bool:
        """Look at it, and write it anew where it is not as it was written; return whether that was so."""
        if self._read() == self._listed:
            return False
        self.close()
        return True

    def _read(self) -> str:
        """The table as nft lists it; nothing where there is none."""
        try:
            return self.run(_LIST, "")
        except Refused as error:
            if _NO_TABLE not in str(error):
                raise
            return ""
