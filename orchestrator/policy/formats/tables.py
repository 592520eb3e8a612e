"""The chains of a packet filter as data: what iptables and nftables have in common.

Targets are in the words of iptables, whatever the file says: ACCEPT, DROP, REJECT, RETURN, the name of a chain, one of
PASSING, or nothing. Any other decides in a way that is not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.errors import BadInput
from orchestrator.policy.formats.assemble import Doubt
from orchestrator.policy.model import Action
from orchestrator.policy.space import Box

ACTIONS: Mapping[str, Action] = {"ACCEPT": Action.PERMIT, "DROP": Action.DENY, "REJECT": Action.DENY}

PASSING = frozenset(
    {
        "LOG", "ULOG", "NFLOG", "MARK", "CONNMARK", "CONNSECMARK", "SECMARK", "TCPMSS", "CLASSIFY", "SET", "TRACE",
        "DSCP", "TOS", "TTL", "HL", "CHECKSUM", "AUDIT", "CT",
    }
)  # fmt: skip
"""Targets that do something to a packet and let it go on to the next line."""

LOGGING = frozenset({"LOG", "ULOG", "NFLOG"})

UNCLEAR = "(not clear)"
"""The target of a line that may have one among what is not known of it: no chain can be called so."""

_MAY_DROP = frozenset({"DROP", "REJECT", "vmap", UNCLEAR})

NOT_GIVEN = "(not given)"
"""The policy of a chain of the kernel's own that the text does not give: ACCEPT or DROP."""


@dataclass(frozen=True, slots=True)
class Match:
    """The packets a line matches: any of `boxes`, perhaps of `hidden`.

    They match in any of `states`, if all `doubts` are true.
    """

    boxes: tuple[Box, ...]
    hidden: tuple[Box, ...]
    states: frozenset[str] | None
    doubts: tuple[Doubt, ...]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chain.

    `target` is empty for a line that only counts; `goto` means no return.
    """

    number: int
    text: str
    match: Match
    target: str = ""
    goto: bool = False
    marker: str | None = None
    description: str = ""


@dataclass(frozen=True, slots=True)
class Chain:
    """A chain: its lines in order, and its policy if it is a base chain.

    `name` is what jumps call it; the ids of its rules start with `label`.
    """

    name: str
    label: str
    number: int
    policy: str | None
    lines: tuple[Line, ...]


def decides(chains: Mapping[str, Chain], base: Chain) -> bool:
    """Whether some line that can be reached from a chain decides about packets."""
    return any(
        line.target and line.target not in PASSING and line.target != "RETURN" and line.target not in chains
        for chain in _find_reachable(chains, base)
        for line in chain.lines
    )


def drops(chains: Mapping[str, Chain], base: Chain) -> bool:
    """Return whether a line reachable from a chain may drop packets."""
    return any(line.target in _MAY_DROP for chain in _find_reachable(chains, base) for line in chain.lines)


def _find_reachable(chains: Mapping[str, Chain], base: Chain) -> list[Chain]:
    found = {base.name: base}
    waiting = [base]
    while waiting:
        for line in waiting.pop().lines:
            target = chains.get(line.target)
            if target is not None and target.name not in found:
                found[target.name] = target
                waiting.append(target)
    return list(found.values())


def refuse_circles(chains: Mapping[str, Chain], base: Chain) -> None:
    """Refuse jumps that return to a chain on the way.

    Depth first, with an explicit stack.
    """
    finished: set[str] = set()
    on_the_way: dict[str, int] = {base.name: base.number}
    stack = [(base.name, iter(base.lines))]
    while stack:
        name, lines = stack[-1]
        line = next((line for line in lines if line.target in chains and line.target not in finished), None)
        if line is None:
            stack.pop()
            finished.add(name)
            del on_the_way[name]
        elif line.target in on_the_way:
            circle = " -> ".join([*list(on_the_way)[list(on_the_way).index(line.target) :], line.target])
            raise BadInput(f"the chains jump in a circle: {circle[:200]}", place=f"line {line.number}")
        else:
            on_the_way[line.target] = line.number
            stack.append((line.target, iter(chains[line.target].lines)))
