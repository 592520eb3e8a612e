"""The atoms and matches of a few rules, one by one.

A column of one value costs NumPy as much as one of a thousand, so for the rules of a small change `atoms.py` and
`openflow/encoder.py` come here. Law: what is found here is what they find by column.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np

from orchestrator.compile.openflow import oxm
from orchestrator.compile.openflow.oxm import Field
from orchestrator.policy.addresses import Addresses, Family, Prefix, aggregate, everything
from orchestrator.policy.maskedword import code_points_under, count_rows, split_word, words_of_rule
from orchestrator.policy.model import Action, AddressGroup, Direction, Rule, resolve
from orchestrator.policy.ports import HIGHEST_PORT, PortRange, masks
from orchestrator.policy.protocols import ICMP, ICMPV6, SCTP, TCP, UDP, only_family
from orchestrator.program.rules import (
    ANY_BYTE,
    COLUMNS,
    DENY,
    EGRESS,
    FRAG_ANY,
    FRAG_LATER,
    FRAG_NOT_LATER,
    INGRESS,
    PERMIT,
    RuleTable,
)

FEW = 16
"""So many rules, or atoms, are looked at one by one at most."""

PORT_FIELDS = {
    TCP: (oxm.TCP_SRC, oxm.TCP_DST),
    UDP: (oxm.UDP_SRC, oxm.UDP_DST),
    SCTP: (oxm.SCTP_SRC, oxm.SCTP_DST),
}
ICMP_FIELDS = {ICMP: (oxm.ICMP_TYPE, oxm.ICMP_CODE), ICMPV6: (oxm.ICMPV6_TYPE, oxm.ICMPV6_CODE)}

_HALF = (1 << 64) - 1
DIRECTIONS = {Direction.INGRESS: INGRESS, Direction.EGRESS: EGRESS}
ACTIONS = {Action.PERMIT: PERMIT, Action.DENY: DENY}
_EVERYTHING = {family: (everything(family),) for family in Family}


class Atom(NamedTuple):
    """A row of a `RuleTable` as a value."""

    order: int
    number: int
    tenant: int
    direction: int
    action: int
    family: int
    protocol: int
    src_hi: int
    src_lo: int
    src_len: int
    dst_hi: int
    dst_lo: int
    dst_len: int
    sp_lo: int
    sp_hi: int
    dp_lo: int
    dp_hi: int
    icmp_type: int
    icmp_code: int
    word_value: int
    word_mask: int
    frag: int
    log: int


def few_atoms(
    rules: Sequence[Rule], groups: Mapping[str, AddressGroup], tenant: int, numbers: Sequence[int]
) -> list[Atom] | None:
    """Return numbered rules' atoms in the order of `atoms`; None if too many."""
    if len(rules) > FEW:
        return None
    rows: list[Atom] = []
    for order, (rule, number) in enumerate(zip(rules, numbers, strict=True)):
        if rule.source.groups or rule.destination.groups:
            return None
        head = order, number, tenant, DIRECTIONS[rule.direction], ACTIONS[rule.action]
        for family in Family:
            if only_family(rule.protocol) in (None, family):
                found = _of_family(rule, family, groups)
                if len(rows) + len(found) > FEW:
                    return None
                rows += [Atom(*head, *each) for each in found]
    return rows


def table_of(rows: Sequence[Atom]) -> RuleTable:
    """Make columns of some atoms."""
    columns = zip(*rows, strict=True) if rows else [()] * len(COLUMNS)
    return RuleTable(*[np.array(column, kind) for column, kind in zip(columns, COLUMNS.values(), strict=True)])


def _of_family(rule: Rule, family: Family, groups: Mapping[str, AddressGroup]) -> list[tuple[int, ...]]:
    """Return a rule's atoms in one IP version: columns from `family`.

    Of too many there is one more than are few.
    """
    sides = _words(rule.source, family, groups), _words(rule.destination, family, groups)
    ports = rule.source_ports, rule.destination_ports
    words = words_of_rule(rule)
    if len(sides[0]) * len(sides[1]) * len(ports[0]) * len(ports[1]) * len(words) > FEW:
        return [()] * (FEW + 1)
    exact = [ANY_BYTE if each is None else each for each in (rule.protocol, rule.icmp_type, rule.icmp_code)]
    return [
        (family, exact[0], *source, *destination, low.low, low.high, high.low, high.high, exact[1], exact[2],
         *asked, _number_fragments(rule, low, high), rule.log)
        for source, destination, low, high, asked in product(sides[0], sides[1], ports[0], ports[1], words)
    ]  # fmt: skip


def _number_fragments(rule: Rule, source: PortRange, destination: PortRange) -> int:
    if any(each.low > 0 or each.high < HIGHEST_PORT for each in (source, destination)):
        return FRAG_NOT_LATER
    if rule.fragments:
        return FRAG_LATER
    return FRAG_NOT_LATER if rule.flag_matches or rule.icmp_type is not None else FRAG_ANY


def _words(side: Addresses, family: Family, groups: Mapping[str, AddressGroup]) -> list[tuple[int, int, int]]:
    """Return a side in one IP version: halves of each network, left-aligned, and length."""
    if side.is_any:
        prefixes: Sequence[Prefix] = _EVERYTHING[family]
    elif len(side.prefixes) == 1:
        prefixes = side.prefixes if side.prefixes[0].family is family else ()
    else:
        prefixes = aggregate(resolve(side, groups, family))
    if family is Family.IPV4:
        return [(each.network << 32, 0, each.length) for each in prefixes]
    return [(each.network >> 64, each.network & _HALF, each.length) for each in prefixes]


# ------------------------------------------------------------------------------------------------------------ matches


def few_matches(rules: RuleTable, register: Field | None) -> tuple[list[int], list[bytes]]:
    """Return the matches of atoms in the order of `rule_flows`, with their atoms' rows."""
    of_each = [matches_of(Atom(*row), register) for row in _list_rows(rules)]
    rows = [row for row, matches in enumerate(of_each) for _ in matches]
    return rows, [match for matches in of_each for match in matches]


def few_counts(rules: RuleTable) -> list[int]:
    """How many flow entries each of some atoms becomes."""
    columns = (rules.sp_lo, rules.sp_hi, rules.dp_lo, rules.dp_hi, rules.word_mask)
    return [
        len(_make_covers(*row[:2])) * len(_make_covers(*row[2:4])) * count_rows(row[4])
        for row in zip(*[column.tolist() for column in columns], strict=True)
    ]


def matches_of(atom: Atom, register: Field | None) -> list[bytes]:
    """The matches of an atom's flow entries, in order."""
    points = code_points_under(atom.word_value, atom.word_mask)
    heads, tail = _around_ports(atom, points, register)
    sources, destinations = _make_covers(atom.sp_lo, atom.sp_hi), _make_covers(atom.dp_lo, atom.dp_hi)
    fields = PORT_FIELDS.get(atom.protocol)
    if fields is None:
        return [head + tail for head in heads for _ in range(len(sources) * len(destinations))]
    from_port, to_port = fields
    return [
        head + _masked_field(from_port, *source) + _masked_field(to_port, *destination) + tail
        for head in heads
        for source in sources
        for destination in destinations
    ]


def _list_rows(rules: RuleTable) -> Iterable[tuple[int, ...]]:
    return zip(*[getattr(rules, name).tolist() for name in COLUMNS], strict=True)


@lru_cache(maxsize=1024)
def _make_covers(low: int, high: int) -> tuple[tuple[int, int], ...]:
    return masks(PortRange(low, high))


def _around_ports(atom: Atom, points: Sequence[int], register: Field | None) -> tuple[list[bytes], bytes]:
    """Return a match's fields before the ports, by code point, and those behind.

    They are in canonical order.
    """
    six = atom.family == Family.IPV6
    head = [exact_term(oxm.ETH_TYPE, oxm.IPV6 if six else oxm.IPV4)]
    fields = (oxm.IPV6_SRC, oxm.IPV6_DST) if six else (oxm.IPV4_SRC, oxm.IPV4_DST)
    sides = (atom.src_hi, atom.src_lo, atom.src_len), (atom.dst_hi, atom.dst_lo, atom.dst_len)
    for field, (upper, lower, length) in zip(fields, sides, strict=True):
        bits = 8 * field.size
        value = (upper << 64 | lower) >> (128 - bits)
        head.append(_masked_field(field, value, (1 << bits) - (1 << bits - length)))
    if atom.frag == FRAG_NOT_LATER:
        head.append(_masked_field(oxm.IP_FRAG, 0, oxm.NOT_LATER_MASK))
    elif atom.frag == FRAG_LATER:
        head.append(exact_term(oxm.IP_FRAG, oxm.FRAGMENT_LATER))
    protocol = exact_term(oxm.IP_PROTO, atom.protocol) if atom.protocol >= 0 else b""
    heads = [b"".join([*head, exact_term(oxm.IP_DSCP, point), protocol]) for point in points]
    flags, _ = split_word(atom.word_value, atom.word_mask)
    tail = [_masked_field(oxm.TCP_FLAGS, *flags)] if atom.protocol in PORT_FIELDS else []
    icmp = zip(ICMP_FIELDS.get(atom.protocol, ()), (atom.icmp_type, atom.icmp_code), strict=False)
    tail += [exact_term(field, value) for field, value in icmp if value >= 0]
    if register is not None:
        pair, lower = divmod(register.number, 2)
        shift = 0 if lower else 32
        tail.append(_masked_field(oxm.PACKET_REGISTERS[pair], atom.tenant << shift, 0xFFFFFFFF << shift))
    return heads or [b"".join([*head, protocol])], b"".join(tail)


def _masked_field(field: Field, value: int, mask: int) -> bytes:
    """A field under a mask; nothing where no bit is looked at."""
    if mask == 0:
        return b""
    headers, ones = _headers(field)
    if mask == ones:
        return headers[0] + value.to_bytes(field.size, "big")
    return headers[1] + value.to_bytes(field.size, "big") + mask.to_bytes(field.size, "big")


def exact_term(field: Field, value: int) -> bytes:
    """Return the match term of a field without a mask."""
    return _headers(field)[0][0] + value.to_bytes(field.size, "big")


@cache
def _headers(field: Field) -> tuple[tuple[bytes, bytes], int]:
    """Return a field's headers without and with a mask, and its full mask."""
    return (field.header.to_bytes(4, "big"), field.masked_header.to_bytes(4, "big")), field.ones
