"""One match statement, put on a draft of its rule.

    {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": {"set": [22, {"range": [8, 9]}]}}

Whatever a match says that cannot be carried over raises BadInput; what it surely asks of a packet all the same (the
header it looks into) has been put on the draft by then.
"""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.errors import BadInput
from orchestrator.policy import spans
from orchestrator.policy.addresses import Family
from orchestrator.policy.dscp import HIGHEST_CODE_POINT, match_code_points
from orchestrator.policy.fields import DSCP
from orchestrator.policy.formats.draft import Draft
from orchestrator.policy.formats.json_text import quote_value
from orchestrator.policy.formats.lineboxes import Axes
from orchestrator.policy.formats.nftables.document import TableKey, single
from orchestrator.policy.formats.nftables.matchfields import (
    TRANSPORT,
    VERSION,
    Field,
    field_of,
    members_of,
    narrow_field,
    narrow_flags,
    narrow_to,
    universe_of,
)
from orchestrator.policy.formats.nftables.values import Scope, flag_byte, value_of
from orchestrator.policy.formats.portnames import masked_addresses
from orchestrator.policy.space import LATER, WHOLE
from orchestrator.policy.spans import Span, Spans

STATES = frozenset({"INVALID", "NEW", "ESTABLISHED", "RELATED", "UNTRACKED"})
_OFFSET_BITS = 0x1FFF
OFFSET_IPV4 = {"&": [{"payload": {"protocol": "ip", "field": "frag-off"}}, _OFFSET_BITS]}
OFFSET_IPV6 = {"exthdr": {"name": "frag", "field": "frag-off"}}
"""The fragment offset: zero in whole packets and first fragments."""

TRANSPORT_HEADER = {"payload": {"base": "th", "offset": 0, "len": 24}}
"""Three bytes behind the IP header: `>= 0` holds for all packets but later fragments.

Loads of one, two or four bytes take a faster way through the kernel (seen in 6.18), which does not look at the fragment
offset: there `tcp dport 80` holds for a later fragment that happens to have these bytes. Three bytes go the slow way.
"""

_INTERFACES = ("iifname", "iif", "oifname", "oif")
_ORDERS = ("<", "<=", ">", ">=")
_NO_SETS = Scope(TableKey("inet", ""), {})


def read_match(draft: Draft, body: object, scope: Scope) -> None:
    """Put a match on the draft. Raises BadInput for what cannot be carried over."""
    if not isinstance(body, dict) or not {"op", "left", "right"} <= body.keys():
        raise BadInput("a match has `op`, `left` and `right`")
    op, left, right = body["op"], body["left"], body["right"]
    kind, inner = single(left, "left")
    if left == TRANSPORT_HEADER and op == ">=" and right == 0:
        narrow_to(TRANSPORT, draft)
    elif left in (OFFSET_IPV4, OFFSET_IPV6):
        _fragments(draft, left == OFFSET_IPV4, op, right)
    elif is_state(left):
        _narrow_to_states(draft, op, right, scope)
    elif (way := interface_of(left)) is not None:
        _interface(draft, way, op, right, scope)
    elif kind == "concat":
        if op not in ("==", "in"):
            raise BadInput("what is in none of several combinations cannot be said here")
        elements = scope.elements(right)
        draft.either.append(tuple(combinations(draft, inner, elements if elements is not None else [right])))
    elif kind == "&":
        _masked_match(draft, inner, op, right)
    else:
        _narrow_field(draft, field_of(left, draft), op, right, scope)


def is_state(left: object) -> bool:
    """Whether an expression is the state of a connection."""
    return left == {"ct": {"key": "state"}}


def interface_of(left: object) -> str | None:
    """Which interface of the packet's way an expression is, if it is one."""
    return next((key for key in _INTERFACES if left == {"meta": {"key": key}}), None)


def combinations(draft: Draft, fields: object, elements: Sequence[object]) -> list[Axes]:
    """Return elements of several values each as axes.

    Raises BadInput for fields that are not supported.
    """
    if not isinstance(fields, list):
        raise BadInput("the fields of a combination are a list")
    found = [field_of(left, draft) for left in fields]
    if any(one.axis == VERSION for one in found):
        raise BadInput("the IP version cannot be looked at in a combination")
    return [_read_combination(found, value_of(element)) for element in elements]


def _read_combination(fields: Sequence[Field], value: object) -> Axes:
    parts = value.get("concat") if isinstance(value, dict) else None
    if not isinstance(parts, list) or len(parts) != len(fields):
        raise BadInput("a combination has one value for each field")
    axes = Draft(Family.IPV4)  # only its axes count
    for one, part in zip(fields, parts, strict=True):
        span = _NO_SETS.spans(part, one.number)
        axes.narrow(one.axis, members_of(one.axis, span))
    return axes.axes


def _narrow_field(draft: Draft, found: Field, op: object, right: object, scope: Scope) -> None:
    if found.axis == "tcp_flags" and scope.elements(right) is None:
        narrow_flags(draft, str(op)[:10], right)
        return
    universe = (Span(0, 255),) if found.axis == VERSION else universe_of(found.axis, draft.family)
    if op in _ORDERS:
        wanted = _make_ordered_spans(str(op), found.number(right), universe)
    elif op in ("==", "!="):
        named = scope.spans(right, found.number)
        wanted = spans.intersect(universe, named) if op == "==" else spans.minus(universe, named)
    else:
        raise BadInput(f"the test {quote_value(op)} is not known here")
    narrow_field(draft, found, wanted)


def _make_ordered_spans(op: str, bound: int, universe: Spans) -> Spans:
    low, high = universe[0]
    if op[0] == "<":
        high = min(high, bound - (op == "<"))
    else:
        low = max(low, bound + (op == ">"))
    return (Span(low, high),) if low <= high else ()


def _masked_match(draft: Draft, inner: object, op: object, right: object) -> None:
    """`tcp flags & (syn | ack) == syn`, `ip saddr & 255.255.0.255 == 10.0.0.5`."""
    if not isinstance(inner, list) or len(inner) != 2:
        raise BadInput("a mask is put on one field")
    found = field_of(inner[0], draft)
    if found.axis == "tcp_flags":
        narrow_flags(draft, str(op)[:10], right, flag_byte(inner[1]))
    elif found.header.family is Family.IPV4 and found.axis in ("source", "destination") and op in ("==", "!="):
        mask, wanted = found.number(inner[1]), found.number(right)
        blocks = masked_addresses(wanted, mask) if wanted & ~mask == 0 else ()
        whole = universe_of(found.axis, Family.IPV4)
        narrow_field(draft, found, blocks if op == "==" else spans.minus(whole, blocks))
    elif found.axis == DSCP.axis and op in ("==", "!="):
        mask, wanted = found.number(inner[1]), found.number(right)
        equal = match_code_points(wanted, mask)
        points = equal if op == "==" else [each for each in range(HIGHEST_CODE_POINT + 1) if each not in equal]
        narrow_field(draft, found, spans.union(Span(point, point) for point in points))
    else:
        raise BadInput("single bits of this field cannot be looked at here")


def _fragments(draft: Draft, is_ipv4: bool, op: object, right: object) -> None:
    """Match the fragment offset, zero or not.

    An IPv6 packet has one only if it is a fragment.
    """
    family = Family.IPV4 if is_ipv4 else Family.IPV6
    if draft.family is not family:
        draft.narrow("source", ())
    if isinstance(right, bool) or right != 0 or op not in ("==", "!="):
        raise BadInput("of fragments only whether they are later ones can be seen here")
    if op == "==" and not is_ipv4:
        draft.narrow("fragments", WHOLE)
        raise BadInput("first fragments cannot be told from whole packets here")
    draft.narrow("fragments", LATER if op == "!=" else WHOLE)


def _interface(draft: Draft, key: str, op: object, right: object, scope: Scope) -> None:
    """`iifname "eth0"`, `oifname != { "eth1", "tun*" }`."""
    elements = scope.elements(right)
    names = [value_of(each) for each in (elements if elements is not None else [right])]
    if op not in ("==", "in", "!=") or not all(isinstance(name, str) for name in names):
        raise BadInput(f"this test of meta {key} is not known here")
    known = draft.interfaces.arrives if key.startswith("i") else draft.interfaces.leaves
    draft.narrow_interface(known, map(str, names), "*", negated=op == "!=")


def _narrow_to_states(draft: Draft, op: object, right: object, scope: Scope) -> None:
    elements = scope.elements(right)
    words = elements if elements is not None else right if isinstance(right, list) else [right]
    named = frozenset(word.upper() if isinstance(word, str) else "" for word in map(value_of, words))
    if not named <= STATES:
        raise BadInput("these connection states are not known here")
    if op not in ("==", "in", "!=", "!") or (isinstance(right, list) and op in ("==", "!=") and len(right) != 1):
        raise BadInput(f"the test {quote_value(op)} of connection states is not known here")
    narrow_states(draft, named if op in ("==", "in") else STATES - named)


def narrow_states(draft: Draft, asked: frozenset[str]) -> None:
    """Narrow a draft to connections in some states."""
    draft.states = asked if draft.states is None else draft.states & asked
