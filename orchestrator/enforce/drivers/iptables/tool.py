"""Reading and writing the kernel's filter table for forwarded packets, as `iptables-save` and `iptables-restore` do.

Ours are the chain FORWARD with its policy, the chains that FORWARD leads to, and the chain that carries the stamp;
INPUT, OUTPUT and whoever else has chains there stay as they are. One restore for each IP version replaces all of ours
at once, whatever changed: an iptables table is one value in the kernel anyhow. Between the two restores the IPv6 table
may still be the old one; since a packet is of one IP version, the old program or the new one decides it, wholly. The
second text is tried before the first is written, and the stamp counts only where both carry it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from orchestrator.compile.filters.filterrows import CLOSED, FILTERS
from orchestrator.compile.filters.iptables import FORWARD
from orchestrator.compile.filters.legs import NO_LEGS, Legs
from orchestrator.enforce.driver import Stamp
from orchestrator.enforce.drivers.filters.command import Run, run
from orchestrator.enforce.drivers.filters.driver import (
    TRACKING_CHAINS,
    Count,
    FilterDriver,
    Holding,
    Key,
    Objects,
    packets_without_room,
    read_stamp,
    stamp_words,
)
from orchestrator.enforce.drivers.iptables.listing import SavedRule, SavedTable, normal_rule, read_saved
from orchestrator.errors import Refused
from orchestrator.policy.addresses import Family
from orchestrator.wire.firewalls import Plane

STAMP_CHAIN = "aclflow"
_OURS = re.compile(r"(?:whole|later|opens|ours|errors(?:_\d+)?|(?:egress|ingress)_\d+(?:_later)?)\Z")
_NAMES = {Family.IPV4: "iptables", Family.IPV6: "ip6tables"}
_LOCK_WAIT_S = "10"


class IptablesTool:
    """Reads and writes iptables.

    `variant` chooses among the programs of a machine that has several: ``legacy``, ``nft``; empty: its default.
    """

    filters = frozenset(FILTERS[Plane.IPTABLES].values())

    def __init__(self, variant: str = "", run: Run = run) -> None:
        self._run = run
        suffix = f"-{variant}" if variant else ""
        self._programs = {family: f"{name}{suffix}" for family, name in _NAMES.items()}

    def read(self) -> Holding:
        """The chains of both IP versions that are ours."""
        objects: dict[Key, str] = {}
        counts: list[Count] = []
        stamps: set[Stamp | None] = set()
        for family, program in self._programs.items():
            table = read_saved(self._run((f"{program}-save", "-c", "-t", "filter"), ""))
            written = _read_stamp(table)
            stamps.add(written)
            for name, text in _ours(table):
                objects[Key(FILTERS[Plane.IPTABLES][family], name)] = text
                counts += _counts(f"{program} {written} {name}", table.chains[name])
        tracks = any(key.name in TRACKING_CHAINS for key in objects)
        lost = packets_without_room(self._run) if tracks else None
        return Holding(objects, stamps.pop() if len(stamps) == 1 else None, tuple(counts), lost)

    def write(self, before: Objects, after: Objects, stamp: Stamp) -> None:
        """Replace both. Refused, with nothing changed, for a text that iptables does not take."""
        texts = {family: _restoring(family, before, after, stamp) for family in self._programs}
        _, *later = texts
        for family in later:
            self._run_restore(family, texts[family], "--test")
        for family, text in texts.items():
            self._run_restore(family, text)

    def _run_restore(self, family: Family, text: str, *options: str) -> None:
        self._run((f"{self._programs[family]}-restore", "--noflush", "-w", _LOCK_WAIT_S, *options), text)

    def normal(self, name: str, text: str) -> str:  # noqa: ARG002  # all objects are chains
        """A chain's rules in the words of iptables-save."""
        return "\n".join(line if line == CLOSED else normal_rule(line)[0] for line in text.splitlines())


def iptables_driver(variant: str = "", run: Run = run, legs: Legs = NO_LEGS) -> FilterDriver:
    """The driver of this network namespace's iptables."""
    return FilterDriver(IptablesTool(variant, run), legs)


def _ours(table: SavedTable) -> Iterator[tuple[str, str]]:
    """Yield our chains as objects.

    FORWARD is none while there is nothing but its policy to drop.
    """
    for name, rules in table.chains.items():
        text = [rule.words for rule in rules]
        if name == FORWARD and (text or table.policies[name] != "DROP"):
            yield name, "\n".join((f"policy {table.policies[name]}", *text))
        elif _OURS.match(name):
            yield name, "\n".join(text)


def _counts(where: str, rules: Sequence[SavedRule]) -> Iterator[Count]:
    """Every write begins all counters anew, so the stamp is part of their names."""
    for place, rule in enumerate(rules):
        if rule.comment:
            yield Count(f"{where} {place}", rule.comment, rule.packets, rule.bytes)


def _read_stamp(table: SavedTable) -> Stamp | None:
    rules = table.chains.get(STAMP_CHAIN, [])
    return read_stamp(rules[0].comment) if len(rules) == 1 else None


def _restoring(family: Family, before: Objects, after: Objects, stamp: Stamp) -> str:
    """Return the restore text for one IP version's chains.

    FORWARD's policy is to drop, whatever they are.
    """
    mine = FILTERS[Plane.IPTABLES][family]
    chains: Mapping[str, list[str]] = {key.name: text.splitlines() for key, text in after.items() if key.filter is mine}
    _check(chains)
    forward = chains.get(FORWARD, [CLOSED])[1:]
    own = {name: rules for name, rules in chains.items() if name != FORWARD}
    gone = [key.name for key in before if key.filter is mine and key.name not in chains and key.name != FORWARD]
    return "\n".join(
        [
            "*filter",
            f":{FORWARD} DROP [0:0]",
            *(f":{name} - [0:0]" for name in (*own, *gone, STAMP_CHAIN)),
            f"-F {FORWARD}",
            *(f"-X {name}" for name in gone),
            *(f"-A {name} {rule}" for name, rules in own.items() for rule in rules),
            f'-A {STAMP_CHAIN} -m comment --comment "{stamp_words(stamp)}"',
            *(f"-A {FORWARD} {rule}" for rule in forward),
            "COMMIT",
            "",
        ]
    )


def _check(chains: Mapping[str, list[str]]) -> None:
    """Refuse foreign chains, and a FORWARD that does not end by dropping."""
    for name, lines in chains.items():
        if name == FORWARD and lines[:1] != [CLOSED]:
            raise Refused(f"the program's {FORWARD} does not begin with '{CLOSED}'")
        if name != FORWARD and not _OURS.match(name):
            raise Refused(f"the program has a chain '{name[:40]}', which is not one of ours")
