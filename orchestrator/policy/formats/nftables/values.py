"""The right side of a match: values, ranges, prefixes and sets as spans of numbers.

Unreadable values raise BadInput, which costs the match and not the file (it becomes a doubt of the line).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.errors import BadInput, TooLarge
from orchestrator.policy import spans
from orchestrator.policy.addresses import Family, parse_address
from orchestrator.policy.dscp import HIGHEST_CODE_POINT, NAMES
from orchestrator.policy.formats.assemble import shown
from orchestrator.policy.formats.json_text import quote_value
from orchestrator.policy.formats.nftables.document import RawSet, TableKey
from orchestrator.policy.formats.portnames import port_number
from orchestrator.policy.ports import HIGHEST_PORT
from orchestrator.policy.protocols import parse_protocol
from orchestrator.policy.spans import Span, Spans

Number = Callable[[object], int]
"""Reads one value as a number."""

_ICMP_TYPES = {
    "echo-reply": 0, "destination-unreachable": 3, "source-quench": 4, "redirect": 5, "echo-request": 8,
    "router-advertisement": 9, "router-solicitation": 10, "time-exceeded": 11, "parameter-problem": 12,
    "timestamp-request": 13, "timestamp-reply": 14, "info-request": 15, "info-reply": 16, "address-mask-request": 17,
    "address-mask-reply": 18,
}  # fmt: skip
_ICMP_CODES = {
    "net-unreachable": 0, "host-unreachable": 1, "prot-unreachable": 2, "port-unreachable": 3, "frag-needed": 4,
    "net-prohibited": 9, "host-prohibited": 10, "admin-prohibited": 13,
}  # fmt: skip
_CODE_POINTS = {**NAMES, "df": 0, "lephb": 1}
_ICMPV6_TYPES = {
    "destination-unreachable": 1, "packet-too-big": 2, "time-exceeded": 3, "parameter-problem": 4, "echo-request": 128,
    "echo-reply": 129, "mld-listener-query": 130, "mld-listener-report": 131, "mld-listener-done": 132,
    "mld-listener-reduction": 132, "nd-router-solicit": 133, "nd-router-advert": 134, "nd-neighbor-solicit": 135,
    "nd-neighbor-advert": 136, "nd-redirect": 137, "router-renumbering": 138, "ind-neighbor-solicit": 141,
    "ind-neighbor-advert": 142, "mld2-listener-report": 143,
}  # fmt: skip
_ICMPV6_CODES = {
    "no-route": 0, "admin-prohibited": 1, "addr-unreachable": 3, "port-unreachable": 4, "policy-fail": 5,
    "reject-route": 6,
}  # fmt: skip
_VERSIONS = {"ipv4": 4, "ip": 4, "ipv6": 6, "ip6": 6}
TCP_FLAGS: Mapping[str, int] = {
    "fin": 0x01, "syn": 0x02, "rst": 0x04, "psh": 0x08, "ack": 0x10, "urg": 0x20, "ecn": 0x40, "ece": 0x40, "cwr": 0x80,
}  # fmt: skip


MOST_ELEMENTS = 5_000_000
"""So many elements of sets are looked at in one file, each as often as rules ask for it."""

_BESIDE_VALUES = frozenset({"val", "comment", "counter", "last"})
"""Members that an element may have without its match depending on more than its value."""


@dataclass(slots=True)
class Scope:
    """Looks up a rule's sets by name and counts the elements that were read."""

    table: TableKey
    sets: Mapping[tuple[TableKey, str], RawSet]
    changes_dscp: bool = False
    """Whether a rule of the file changes DSCP: what looks at it then sees another one than the packet came with."""
    looked_at: int = 0
    known: dict[tuple[str, Number], Spans] = field(default_factory=dict)

    def elements(self, value: object) -> Sequence[object] | None:
        """Return the elements of a set, literal or named; None for other values.

        Raises BadInput or TooLarge.
        """
        found: Sequence[object]
        if isinstance(value, dict) and isinstance(value.get("set"), list):
            found = value["set"]
        elif isinstance(value, str) and value.startswith("@"):
            found = self._find_set(value).elements
        else:
            return None
        self.looked_at += len(found)
        if self.looked_at > MOST_ELEMENTS:
            raise TooLarge(f"its rules look at more than {MOST_ELEMENTS} elements of sets")
        return found

    def spans(self, value: object, number: Number) -> Spans:
        """A value, a range, a prefix or a set of these. Raises BadInput or TooLarge."""
        elements = self.elements(value)
        if elements is None:
            return (_read_span(value, number),)
        if not isinstance(value, str):
            return spans.union(_read_span(value_of(element), number) for element in elements)
        key = (value, number)
        if key not in self.known:
            self.known[key] = spans.union(_read_span(value_of(element), number) for element in elements)
        return self.known[key]

    def _find_set(self, name: str) -> RawSet:
        found = self.sets.get((self.table, name[1:]))
        if found is None:
            raise BadInput(f"the set {shown(name, 80)} is not in the file")
        if found.changes:
            raise BadInput(f"what is in the set {shown(name, 80)} changes with time")
        return found


def value_of(element: object) -> object:
    """An element of a set, without what is kept beside its value.

    Raises BadInput for one that goes with time, or that matches at a rate only.
    """
    if isinstance(element, dict) and isinstance(element.get("elem"), dict):
        held = element["elem"]
        if "timeout" in held or "expires" in held:
            raise BadInput("an element of the set goes with time")
        if not held.keys() <= _BESIDE_VALUES:
            raise BadInput("an element of the set has more beside it than a comment and a counter")
        return held.get("val")
    return element


def _read_span(value: object, number: Number) -> Span:
    if isinstance(value, dict) and len(value) == 1:
        kind, body = next(iter(value.items()))
        if kind == "range" and isinstance(body, list) and len(body) == 2:
            low, high = number(body[0]), number(body[1])
            if low > high:
                raise BadInput("a range ends before it begins")
            return Span(low, high)
        if kind == "prefix" and isinstance(body, dict):
            return _read_prefix(body, number)
    low = number(value)
    return Span(low, low)


def _read_prefix(body: Mapping[str, object], number: Number) -> Span:
    address = number(body.get("addr"))
    bits = (Family.IPV6 if ":" in str(body.get("addr")) else Family.IPV4).bits
    length = body.get("len")
    if isinstance(length, bool) or not isinstance(length, int) or not 0 <= length <= bits:
        raise BadInput(f"{quote_value(length)} is not the length of a prefix")
    size = 1 << (bits - length)
    low = address & ~(size - 1)
    return Span(low, low + size - 1)


def address_in(family: Family) -> Number:
    """Make a reader of addresses of one IP version."""

    def read(value: object) -> int:
        found, address = parse_address(value[:80]) if isinstance(value, str) else (None, 0)
        if found is not family:
            raise BadInput(f"{quote_value(value)} is not an IPv{family.value} address")
        return address

    return read


def port(value: object) -> int:
    """Read a port."""
    if isinstance(value, str) and len(value) <= 40:
        return port_number(value, 6)
    return _read_number(value, HIGHEST_PORT, "a port")


def protocol(value: object) -> int:
    """Read a protocol."""
    return (
        parse_protocol(value) if isinstance(value, str) and len(value) <= 40 else _read_number(value, 255, "a protocol")
    )


def flag_byte(value: object) -> int:
    """Read TCP flags: a name, a number, or names of which all are meant."""
    flags = 0
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict) and isinstance(one.get("|"), list):
            one = one["|"]
        if isinstance(one, list):
            waiting += one
        else:
            flags |= _read_flag(one)
    return flags


def _read_flag(value: object) -> int:
    found = TCP_FLAGS.get(value) if isinstance(value, str) else None
    return _read_number(value, 255, "a TCP flag") if found is None else found


def _make_byte_reader(names: Mapping[str, int], what: str) -> Number:
    def read(value: object) -> int:
        found = names.get(value) if isinstance(value, str) else None
        return _read_number(value, 255, what) if found is None else found

    return read


icmp_type = _make_byte_reader(_ICMP_TYPES, "an ICMP type")
icmp_code = _make_byte_reader(_ICMP_CODES, "an ICMP code")
icmpv6_type = _make_byte_reader(_ICMPV6_TYPES, "an ICMPv6 type")
icmpv6_code = _make_byte_reader(_ICMPV6_CODES, "an ICMPv6 code")


def code_point(value: object) -> int:
    """Read a DSCP."""
    found = _CODE_POINTS.get(value) if isinstance(value, str) else None
    return _read_number(value, HIGHEST_CODE_POINT, "a DSCP") if found is None else found


def version(value: object) -> int:
    """Read an IP version by its name.

    Its numbers differ between `nfproto` and `protocol`.
    """
    found = _VERSIONS.get(value) if isinstance(value, str) else None
    if found is None:
        raise BadInput(f"{quote_value(value)} is not an IP version that is known here")
    return found


def _read_number(value: object, highest: int, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= highest:
        raise BadInput(f"{quote_value(value)} is not {what} that is known here")
    return value
