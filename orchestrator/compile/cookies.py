"""The cookie of a flow entry: its writer, its purpose, and its rule.

Packets of the entry are counted for that rule.

     63      56 55  52 51  48 47      40 39                                    0
    ┌──────────┬──────┬──────┬──────────┬───────────────────────────────────────┐
    │   0xAC   │ tier │ kind │   part   │                number                 │
    └──────────┴──────┴──────┴──────────┴───────────────────────────────────────┘

The first byte tells our flows from everybody else's. `number` is a rule number, a tenant's number or a generation,
as `Kind` says. Rule numbers are never reused while anything may still hold them, so a counter read from a switch
always belongs to the rule that its cookie names. `part` tells rules apart that count as one (those of return traffic);
counts are added up without it (`PART_BITS`). A rule's part tells rows by which it decides from those by which it leaves
packets to connections, and which count nothing (`LEAVES`).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from orchestrator.errors import BadInput
from orchestrator.program.program import Tier

MARK = 0xAC
"""The first byte of every cookie of ours."""

NUMBER_BITS = 40
HIGHEST_NUMBER = (1 << NUMBER_BITS) - 1

PART_BITS = 0xFF << NUMBER_BITS
"""Where a cookie has its part."""

COOKIE_MASK = MARK << 56
"""A flow is ours when ``cookie & (0xFF << 56) == COOKIE_MASK``."""

_TIERS = {Tier.HOST: 1, Tier.SERVER: 2, Tier.EDGE: 3, Tier.SPREAD: 4}
_TIER_OF = {number: tier for tier, number in _TIERS.items()}


class Kind(enum.IntEnum):
    """The purpose of a flow, which decides the meaning of the cookie's number."""

    STRUCTURE = 0
    """Part of the pipeline itself; number 0. Number 1 drops what would open a connection for which there is no room."""
    RULE = 1
    """A tenant's rule; the rule's number."""
    INGRESS_DEFAULT = 2
    """The end of a tenant's ingress list; the tenant's number."""
    EGRESS_DEFAULT = 3
    """The end of a tenant's egress list; the tenant's number."""
    OPERATOR_RULE = 4
    """An operator rule; the rule's number."""
    INGRESS_RETURN = 5
    """Return traffic in a tenant's ingress list; the tenant's number."""
    EGRESS_RETURN = 6
    """Return traffic in a tenant's egress list; the tenant's number."""
    CLAUSE = 7
    """A clause of conjunctive matches, which decides and counts nothing; a hash of its priority and match."""
    EXCEPTION = 8
    """A chunk with an entry of its own at the edge; the number of its firewall server."""
    LINE = 9
    """A line of the edge; the number of its firewall server."""
    NOBODY = 10
    """Packets that the edge drops because no line knows their destination; number 0."""
    SPOOFED = 11
    """Packets that the edge drops because they come from outside with a tenant's address; number 0."""
    GROUP = 12
    """A group of buckets; its number."""
    BUCKET = 13
    """The owner of a bucket of the traffic; the bucket's number."""
    MEMBER = 14
    """A firewall that traffic is spread over; its number."""
    STAMP = 15
    """The flow that says what the switch holds; the low 40 bits of the generation."""


@dataclass(frozen=True, slots=True)
class Cookie:
    """A cookie taken apart."""

    tier: Tier
    kind: Kind
    number: int = 0
    part: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.number <= HIGHEST_NUMBER:
            raise BadInput(f"{self.number} is not in 0..2^{NUMBER_BITS}-1", place="number")
        if not 0 <= self.part <= _PARTS.get(self.kind, 0):
            raise BadInput(f"{self.part} is no part of a {self.kind.name}", place="part")

    def pack(self) -> int:
        """Return the 64 bits.

        Adding a number to the cookie with number 0 gives the cookie with that number.
        """
        return MARK << 56 | _TIERS[self.tier] << 52 | self.kind << 48 | self.part << NUMBER_BITS | self.number

    @classmethod
    def unpack(cls, cookie: int) -> Cookie | None:
        """Take 64 bits apart; None if they are not a cookie of ours."""
        tier = _TIER_OF.get(cookie >> 52 & 0xF)
        kind = cookie >> 48 & 0xF
        part = cookie >> NUMBER_BITS & 0xFF
        if cookie >> 56 != MARK or tier is None or kind not in _KINDS or part > _PARTS.get(kind, 0):
            return None
        return cls(tier, Kind(kind), cookie & HIGHEST_NUMBER, part)


_KINDS = frozenset(Kind)
_PARTS: dict[int, int] = {
    Kind.INGRESS_RETURN: 0xFF, Kind.EGRESS_RETURN: 0xFF, Kind.RULE: 1, Kind.OPERATOR_RULE: 1
}  # fmt: skip
"""The highest part of each kind that has parts."""

LEAVES = 1 << NUMBER_BITS
"""The part of the cookie of a rule's rows that leave packets to be asked about by their connections."""

NO_ROOM = {tier: Cookie(tier, Kind.STRUCTURE, 1).pack() for tier in (Tier.HOST, Tier.SERVER)}
"""The cookies of packets that were dropped, for there was no room for the connections that they would have opened."""
