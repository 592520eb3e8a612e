"""A table of nftables that an enforcement point keeps unchanged beside a data plane."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from orchestrator.compile.filters.legs import GUARD_TABLE, Legs
from orchestrator.enforce.drivers.filters.command import Run, run
from orchestrator.errors import Refused

_WRITE = ("nft", "-f", "-")
_NO_TABLE = "No such file or directory"


def set_of_names(names: Iterable[str]) -> str:
    """Write interfaces as an anonymous set of nftables, each once."""
    return f"{{ {', '.join(f'{chr(34)}{name}{chr(34)}' for name in dict.fromkeys(names))} }}"


@dataclass(slots=True)
class GuardTable:
    """One table of nftables in this network namespace, of the family `inet` or another.

    `chains` are the lines between its braces; without any there is to be no table.
    """

    name: str
    chains: Sequence[str]
    run: Run = run
    family: str = "inet"
    is_counting: bool = False
    """Whether packets write into its sets, which are then no part of what it must be."""
    _listed: str | None = field(default=None, init=False)
    """The table as nft listed it when it was written; None: it was not written yet."""

    @property
    def script(self) -> str:
        """The text that puts the table in the place of any other, in one transaction."""
        there = f"table {self.family} {self.name}"
        declared = (f"{there} {{", *self.chains, "}") if self.chains else ()
        return "\n".join([there, f"delete {there}", *declared, ""])

    def close(self) -> None:
        """Write it, or take away one that is not wanted any more.

        Raises as a filter's tool does.
        """
        if self.chains or self._read():
            self.run(_WRITE, self.script)
        self._listed = self._read()

    def look(self) -> bool:
        """Check the table and rewrite it if it changed; return whether it had."""
        if self._read() == self._listed:
            return False
        self.close()
        return True

    def _read(self) -> str:
        """The table as nft lists it; nothing where there is none."""
        try:
            terse = ("-t",) if self.is_counting else ()
            return self.run(("nft", "-nn", *terse, "list", "table", self.family, self.name), "")
        except Refused as error:
            if _NO_TABLE not in str(error):
                raise
            return ""


def leg_guard(legs: Legs, beside: Iterable[str] = (), *, run: Run = run) -> GuardTable:
    """Return the table that keeps a firewall's legs to their use: packets between them.

    It is of one network namespace; none where there are no legs. `beside` are interfaces that packets are forwarded to
    and from as well.

        input     by a leg     dropped, but for neighbour discovery (the machine's own services are reached by other
        ways) forward   by or to a leg, from or to what is none   dropped

    It is the agent's own and says nothing of tenants, so it needs no program: it stands before forwarding is switched
    on, beside whatever filters here. It is looked at again now and then, and written anew where somebody changed it.
    """
    chains = tuple(_write_chains(legs, (*legs.names, *beside))) if legs.names else ()
    return GuardTable(GUARD_TABLE, chains, run)


def _write_chains(legs: Legs, among: tuple[str, ...]) -> Iterator[str]:
    own, all_ways = set_of_names(legs.names), set_of_names(among)
    yield from (
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
    )
