"""The program of a domain's firewall VNFs: filter objects as rows, key and text.

    key     table        which filter                      `Filter`
            match        the object's name, as the device calls it: ``chain ingress_7``, ``map senders``, ``FORWARD``,
                         ``ingress_7 rule 17``
    value   instructions the object's text: what stands inside its braces, or a chain's rules, one a line
            cookie       finds the object's row when it is read back; says nothing of what counts there

So it is a program like every other: its digest, its deltas, the way to an enforcement point, the copy on its disk and
the loop that compares and repairs are those of switches. A program holds the rows of every plane that some firewall of
the domain has; a driver takes those of its own filters.

A line's comment says which rule it counts for. A flow entry says it in its cookie (`cookies.py`); iptables and nftables
keep a comment beside every counter instead, in words that a reader of a dump understands: ``rule 17``,
``ingress-default 3``. The same rule may stand in several places; its hits are the sum over all of them.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from hashlib import blake2b

from orchestrator.compile.cookies import HIGHEST_NUMBER, Cookie, Kind
from orchestrator.policy.addresses import Family
from orchestrator.program.flows import Flow
from orchestrator.program.program import Tier
from orchestrator.wire.firewalls import Plane


class Filter(enum.IntEnum):
    """Which filter a row is of: the `table` of its key."""

    NFT_IPV4 = 1
    NFT_IPV6 = 2
    IPTABLES = 3
    IP6TABLES = 4
    QUEUE_IPV4 = 12
    QUEUE_IPV6 = 13


FILTERS: Mapping[Plane, Mapping[Family, Filter]] = {
    Plane.NFTABLES: {Family.IPV4: Filter.NFT_IPV4, Family.IPV6: Filter.NFT_IPV6},
    Plane.IPTABLES: {Family.IPV4: Filter.IPTABLES, Family.IPV6: Filter.IP6TABLES},
    Plane.QUEUE: {Family.IPV4: Filter.QUEUE_IPV4, Family.IPV6: Filter.QUEUE_IPV6},
}

CLOSED = "policy DROP"
"""The first line of the kernel's own chain: what gets to its end is dropped."""

_COOKIE_BITS = 20
"""Names share cookies rarely, and blocks of a program (cookies with the same upper bits) hold several names."""
_OF_A_TENANT = re.compile(r"(?:(?:chain|map) )?(?:alone_|raw_)?(?:egress|ingress)_(\d+)(?:_| |\Z)")


def filter_row(of: Filter, name: str, text: str) -> Flow:
    """An object as a row."""
    tenant = _OF_A_TENANT.match(name)
    return named_row(of, name, text, int(tenant[1]) if tenant else 0)


def named_row(table: int, name: str, text: str, tenant: int = 0) -> Flow:
    """Return a row of a table of texts; its cookie follows from the name."""
    number = int.from_bytes(blake2b(f"{table:d} {name}".encode(), digest_size=8).digest(), "big") >> (64 - _COOKIE_BITS)
    cookie = Cookie(Tier.SERVER, Kind.STRUCTURE, number).pack()
    return Flow(table, 0, name.encode(), text.encode(), cookie, tenant)


_COUNTED = (
    Kind.RULE, Kind.OPERATOR_RULE, Kind.INGRESS_DEFAULT, Kind.EGRESS_DEFAULT, Kind.INGRESS_RETURN, Kind.EGRESS_RETURN,
)  # fmt: skip
_WORDS: dict[Kind, str] = {kind: kind.name.lower().replace("_", "-") for kind in _COUNTED}
_KINDS = {word: kind for kind, word in _WORDS.items()}


def comment(kind: Kind, number: int) -> str:
    """The comment of a rule's, a default's or return traffic's counter."""
    return f"{_WORDS[kind]} {number}"


def read_comment(text: str) -> tuple[Kind, int] | None:
    """Take a comment apart; None if it is not one of ours."""
    word, _, digits = text.partition(" ")
    if word not in _KINDS or not (digits.isascii() and digits.isdigit() and len(digits) <= len(str(HIGHEST_NUMBER))):
        return None
    number = int(digits)
    return (_KINDS[word], number) if number <= HIGHEST_NUMBER and comment(_KINDS[word], number) == text else None
