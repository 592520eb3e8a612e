"""Find a list's rules near some packets, by columns of bounds kept between versions.

Bounds are the upper 64 bits of addresses, the first and the last that a side speaks of, both IP versions apart; the
protocol; the first and the last destination port. Rules that they let through may not meet the packets after all; what
meets them is always let through.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from orchestrator.compile.lists.atoms import distinct, prefix_words
from orchestrator.compile.lists.edits import Hunk
from orchestrator.policy.addresses import Addresses, Family
from orchestrator.policy.model import Direction, Rule
from orchestrator.policy.space import Box

U64 = npt.NDArray[np.uint64]

_LAST = np.uint64(0xFFFFFFFFFFFFFFFF)
_FAMILIES, _DIRECTION = (0, 1), 2
_WORDS, _PROTOCOL, _SIDES, _PORTS = 10, 7, (slice(3, 5), slice(5, 7)), slice(8, 10)
_EVERY_PROTOCOL = 256
"""A row a rule: the IP versions that its sides may be of (source, destination: 4, 6 or 0 for both), its direction, the
first and the last address of both sides, its protocol, its first and its last destination port."""


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """The bounds of a list's rules, a row a rule.

    Columns are contiguous, for each is scanned alone.
    """

    rows: U64

    @classmethod
    def of(cls, rules: Sequence[Rule]) -> Bounds:
        """Build bounds from rules.

        A side with groups, or several prefixes, counts as every address.
        """
        rows = np.zeros((len(rules), _WORDS), np.uint64)
        directions, which = distinct(rules, "direction")
        numbers = np.array([each is Direction.EGRESS for each in directions], np.uint64)
        rows[:, _DIRECTION] = numbers[which] if len(rules) else 0
        for side, name in enumerate(("source", "destination")):
            sides, which = distinct(rules, name)
            rows[:, [side, 3 + 2 * side, 4 + 2 * side]] = _sides(sides)[which]
        protocols, which = distinct(rules, "protocol")
        rows[:, _PROTOCOL] = np.array([_EVERY_PROTOCOL if each is None else each for each in protocols], np.uint64)[
            which
        ]
        ports, which = distinct(rules, "destination_ports")
        ends = np.array([(each[0].low, each[-1].high) for each in ports], np.uint64).reshape(-1, 2)
        rows[:, _PORTS] = ends[which]
        return cls(np.asfortranarray(rows))

    def after(self, rules: Sequence[Rule], hunks: Sequence[Hunk]) -> Bounds:
        """Return the bounds of the list that `hunks` make of this one."""
        parts, start = [], 0
        for hunk in hunks:
            parts += [self.rows[start : hunk.first], Bounds.of(rules[hunk.place : hunk.place + hunk.come]).rows]
            start = hunk.first + hunk.gone
        return Bounds(np.concatenate([each.T for each in (*parts, self.rows[start:])], axis=1).T)

    def near(self, box: Box, direction: Direction) -> list[int]:
        """The places, ascending, of the direction's rules that may meet a box."""
        shift = 64 if box.family is Family.IPV6 else 0
        up = 0 if box.family is Family.IPV6 else 32
        ends = [(side[0].low >> shift << up, side[-1].high >> shift << up) for side in (box.source, box.destination)]
        asked = sorted(zip(_SIDES, ends, strict=True), key=lambda side: side[1][1] - side[1][0])
        asked.append((_PORTS, (box.destination_ports[0].low, box.destination_ports[-1].high)))
        near = np.flatnonzero(_meets(self.rows, *asked[0]))
        rows = self.rows[near]
        found = rows[:, _DIRECTION] == np.uint64(direction is Direction.EGRESS)
        for family in (rows[:, side] for side in _FAMILIES):
            found &= (family == 0) | (family == np.uint64(box.family))
        for columns, between in asked[1:]:
            found &= _meets(rows, columns, between)
        found &= _among(box.protocols)[rows[:, _PROTOCOL].astype(np.intp)]
        places: list[int] = near[found].tolist()
        return places


def _meets(rows: U64, columns: slice, between: tuple[int, int]) -> npt.NDArray[np.bool_]:
    """Return the rows that overlap an interval.

    `columns` are those of a first and a last member.
    """
    first, last = map(np.uint64, between)
    found: npt.NDArray[np.bool_] = (rows[:, columns.start] <= last) & (rows[:, columns.stop - 1] >= first)
    return found


def _among(protocols: int) -> npt.NDArray[np.bool_]:
    """Which protocols are in a set, by number; every protocol at once is."""
    members = np.frombuffer(protocols.to_bytes(_EVERY_PROTOCOL // 8, "little"), np.uint8)
    return np.append(np.unpackbits(members, bitorder="little"), np.uint8(1)).astype(np.bool_)


def _sides(sides: Sequence[Addresses]) -> U64:
    """Sides as rows: IP version, first and last address."""
    found = np.zeros((len(sides), 3), np.uint64)
    found[:, 2] = _LAST
    lists, list_of = distinct(sides, "prefixes")
    named, named_of = distinct(sides, "groups")
    single = (np.fromiter(map(len, lists), np.intp, len(lists)) == 1)[list_of]
    single &= (np.fromiter(map(len, named), np.intp, len(named)) == 0)[named_of]
    if single.any():
        words = prefix_words([lists[place][0] for place in list_of[single].tolist()])
        length = np.minimum(words[:, 3], np.uint64(64))
        behind = np.where(length == 0, _LAST, np.right_shift(_LAST, np.minimum(length, np.uint64(63))))
        behind = np.where(length == 64, np.uint64(0), behind)
        found[single] = np.stack((words[:, 0], words[:, 1], words[:, 1] | behind), axis=1)
    return found
