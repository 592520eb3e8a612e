"""Decide many packets at once by one list, with the deciding lines.

It equals `oracle.decide`.

With the tenant's prefixes, a packet from them is put to the egress list, one to them to the ingress list, and one
between two of them must pass both; what is neither is nobody's. Without them every packet is put to one direction.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt

from orchestrator.classify.overlay import NONE, MakeSearch, Overlaid, Placed
from orchestrator.classify.packets import FRAGMENT, NOT_SAID, Packets
from orchestrator.classify.search import Search
from orchestrator.policy.addresses import Family, Prefix
from orchestrator.policy.fields import WORD
from orchestrator.policy.model import Acl, Action, Direction, ReturnTraffic, RuleId
from orchestrator.policy.oracle import return_rules
from orchestrator.policy.rulelist import DEFAULT_ID, rule_rows, world

I32 = npt.NDArray[np.int32]

NOBODY = NONE
"""Instead of a decider: the packet is neither from the tenant nor to it."""

ORDER = (Direction.EGRESS, Direction.INGRESS)
"""A packet that meets both directions leaves before it arrives."""


@dataclass(frozen=True, slots=True)
class Decider:
    """A deciding line of a list: a rule, the domain's return-traffic rule, or a default."""

    direction: Direction
    id: RuleId
    action: Action

    @property
    def is_default(self) -> bool:
        return self.id == DEFAULT_ID


@dataclass(frozen=True, slots=True, eq=False)
class Verdicts:
    """The fate of packets. Numbers are those of `Deciding.deciders`."""

    decider: I32
    """The decider that had the last word for each packet; NOBODY where nobody was asked."""
    let_out: I32
    """The decider that let it leave before the ingress list was asked; NOBODY where there was none."""


class Deciding:
    """A list that is ready to be asked, from any thread."""

    def __init__(
        self,
        acl: Acl,
        *,
        own: Sequence[Prefix] = (),
        way: Direction = Direction.INGRESS,
        returns: ReturnTraffic = ReturnTraffic.EXPLICIT,
        searching: MakeSearch = Search,
    ) -> None:
        """Prepare a list's rows.

        `own`: the tenant's prefixes; without them `way` is the direction that every packet is asked in. `searching`
        makes the list's rows ready; which packets are the tenant's is always looked up in C.
        """
        self._ways = ORDER if own else (way,)
        self._worlds = {direction: _worlds(direction, own) for direction in self._ways} if own else {}
        deciders: list[Decider] = []
        sets: dict[str, set[int]] = {field.name: set() for field in WORD}
        self._searches: dict[tuple[Direction, Family], Overlaid] = {}
        for direction in self._ways:
            begin = len(deciders)
            rows = rule_rows(acl, direction, returns=returns)
            deciders += _deciders(acl, direction, returns)
            for family, listed in rows.items():
                for field in WORD:
                    sets[field.name] |= {getattr(row.box, field.axis) for row in listed}
                placed = [Placed(row.position, begin + row.position, row.box) for row in listed]
                self._searches[direction, family] = Overlaid.of(family, placed, searching)
        self._different = {
            field.name: _find_different(sets[field.name], 1 << field.bits[Family.IPV4]) for field in WORD
        }
        self.deciders = tuple(deciders)
        """Of each direction that may be asked, in the order of the list, with its default at the end."""
        self.permits = np.array([each.action is Action.PERMIT for each in deciders], np.bool_)

    @property
    def one_way(self) -> bool:
        """Whether all packets are asked in the same direction."""
        return len(self._ways) == 1

    def verdicts(self, packets: Packets) -> Verdicts:
        """The fate of packets that were read."""
        asked = {direction: self._asked_packets(packets, direction) for direction in self._ways}
        decider = np.full(len(packets), NOBODY, np.int32)
        let_out = decider.copy()
        for direction in self._ways:
            left = np.flatnonzero(asked[direction] & ((decider == NOBODY) | self.permits[decider]))
            let_out[left] = decider[left]
            decider[left] = self._find_first(packets.take(left), direction)
        return Verdicts(decider, let_out)

    def knows(self, packets: Packets) -> npt.NDArray[np.bool_]:
        """Return for which packets the same rules decide, whatever their unread fields are."""
        missing = packets["unread"]
        known = np.ones(len(packets), np.bool_)
        first: Verdicts | None = None
        for later, *values in product((False, True), *self._different.values()):
            tried = packets.copy()
            for name, value in zip(self._different, values, strict=True):
                tried[name] = np.where(missing & NOT_SAID[name], value, packets[name])
            tried["later"] = packets["later"] | (later & (missing & FRAGMENT != 0))
            tried["tcp_flags"][tried["later"] != 0] = 0
            found = self.verdicts(tried)
            first = first or found
            known &= (found.decider == first.decider) & (found.let_out == first.let_out)
        return known

    def _asked_packets(self, packets: Packets, direction: Direction) -> npt.NDArray[np.bool_]:
        """Return which packets a direction decides."""
        if not self._worlds:
            return np.ones(len(packets), np.bool_)
        asked = np.zeros(len(packets), np.bool_)
        for family, search in self._worlds[direction].items():
            mine = np.flatnonzero(packets["family"] == family.value)
            asked[mine] = search.first(packets.take(mine)) >= 0
        return asked

    def _find_first(self, packets: Packets, direction: Direction) -> I32:
        found = np.full(len(packets), NOBODY, np.int32)
        for family in Family:
            mine = np.flatnonzero(packets["family"] == family.value)
            if len(mine):
                found[mine] = self._searches[direction, family].first(packets.take(mine))
        return found


def _find_different(sets: Collection[int], end: int) -> tuple[int, ...]:
    """Return one number below `end` of each kind that sets of numbers tell apart."""
    kinds: dict[tuple[int, ...], int] = {}
    for number in range(end):
        kinds.setdefault(tuple(each >> number & 1 for each in sets), number)
    return tuple(kinds.values())


def _worlds(direction: Direction, own: Sequence[Prefix]) -> dict[Family, Search]:
    """Return a search per IP version with one row: all packets of the tenant."""
    worlds = {family: world(family, direction, own) for family in Family}
    return {family: Search(family, [whole]) for family, whole in worlds.items() if whole is not None}


def _deciders(acl: Acl, direction: Direction, returns: ReturnTraffic) -> list[Decider]:
    """The lines of a direction at the places that rows have."""
    rules = [*acl.rules, *return_rules(returns)]
    found = [Decider(direction, rule.id, rule.action) for rule in rules if rule.direction is direction]
    return [*found, Decider(direction, DEFAULT_ID, acl.default(direction))]
