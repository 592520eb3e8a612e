"""The queue compiler: a policy as rows for a classifier in user space.

    ingress_7 rule 17     the list and whom the row counts for: the object's name
    order 4 permit log 10 20
                          which of two rows decides, and what; whether packets are reported: so many a second, and after
                          a silence, of the list's tenant together. `limit 100` in its place: so many a second pass,
                          and as many after a silence. Then the sets of the fields that it looks at
    source 10.0.0.0-10.255.255.255,192.0.2.1
    protocols 6
    destination_ports 22,8000-8999
    fragments whole

A packet is put to the operator's rows, then to those of senders' and of receivers' lists: at most one row of each
decides. Rows of tenants hold packets of their own addresses alone, so the lists of all tenants are searched as one. The
order is the rule's level (`compile/lists/levels.py`): a rule that is put in or taken out changes rows that overlap it,
and no others. Return traffic comes behind all rules, the default last.

The object FORWARD is the kernel's half: its policy is to drop, and its last rule has the target QUEUE, as in the paper.
Rules before it drop names that a packet's leg does not bear (`legs.py`).
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NoReturn

from orchestrator.compile.cookies import Kind
from orchestrator.compile.filters.filterlists import Part, Stage
from orchestrator.compile.filters.filterrows import comment, read_comment
from orchestrator.compile.filters.iptables import FORWARD
from orchestrator.compile.filters.legs import INSIDE, OUTSIDE
from orchestrator.compile.lists.atoms import atoms
from orchestrator.compile.lists.levels import levels
from orchestrator.errors import AclflowError, BadInput
from orchestrator.policy.addresses import Family, format_address
from orchestrator.policy.fields import FIELDS, MatchField
from orchestrator.policy.fields import Kind as FieldKind
from orchestrator.policy.loglimit import LogLimit
from orchestrator.policy.model import HIGHEST_PATH_MTU_RATE, Action, AddressGroup, Direction, Policy, Rule, Tenant
from orchestrator.policy.oracle import PATH_MTU_RULES
from orchestrator.policy.rulelist import Row, rule_rows
from orchestrator.policy.space import LATER, WHOLE, Box, boxes_of, full_set
from orchestrator.policy.spans import Span, Spans

QUEUE = "-j QUEUE"
"""The last rule of FORWARD. Which queues it means is the machine's business."""

PATH_MTU_ORDER, RETURN_ORDER, DEFAULT_ORDER = (1 << 30) - 1, 1 << 30, (1 << 30) + 1
"""Behind every level."""

_SECOND = " path-mtu"
"""Behind the name of return traffic's other row of an IP version."""

_STAGES = {Direction.EGRESS: Stage.EGRESS, Direction.INGRESS: Stage.INGRESS}
_RETURNS = {Direction.EGRESS: Kind.EGRESS_RETURN, Direction.INGRESS: Kind.INGRESS_RETURN}
_DEFAULTS = {Direction.EGRESS: Kind.EGRESS_DEFAULT, Direction.INGRESS: Kind.INGRESS_DEFAULT}
_FRAGMENTS = {WHOLE: "whole", LATER: "later"}


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A classifier row: when it is asked, its matches, verdict and counted rule.

    `tenant` is the number of the list's tenant, 0 for the operator's; `log` the measure of reports of a row that logs,
    `limit` how many packets a second a row permits that is limited.
    """

    stage: Stage
    tenant: int
    order: int
    permit: bool
    box: Box
    comment: str
    log: LogLimit | None = None
    limit: int | None = None

    @property
    def name(self) -> str:
        """The name of its object."""
        owner = f"_{self.tenant}" if self.tenant else ""
        second = _SECOND if self.order == PATH_MTU_ORDER else ""
        return f"{self.stage.value}{owner} {self.comment}{second}"


def queue_objects(policy: Policy, part: Part = Part.WHOLE) -> Mapping[Family, Mapping[str, tuple[str, ...]]]:
    """The rows of each IP version, by name, and FORWARD; or a part of these.

    Raises TooLarge where a list cannot be expanded, BadPolicy where a rule has no number, both with their place.
    """
    objects: dict[Family, dict[str, tuple[str, ...]]] = {family: {} for family in Family}
    if Part.FRAME in part:
        objects = {family: {FORWARD: (*_by_leg(policy, family), QUEUE)} for family in Family}
    for row in _rows(policy, part):
        objects[row.box.family][row.name] = write_row(row)
    return objects


def _by_leg(policy: Policy, family: Family) -> Iterator[str]:
    """Yield rows that drop source addresses which the packet's leg does not have.

    None where one tenant owns every address.
    """
    owned = [prefix for tenant in policy.tenants for prefix in tenant.prefixes if prefix.family is family]
    if any(not prefix.length for prefix in owned):
        return
    for prefix in owned:
        yield f"-s {prefix} -i {OUTSIDE} -j DROP"
        yield f"-s {prefix} -i {INSIDE} {QUEUE}"
    yield f"-i {INSIDE} -j DROP"


def _rows(policy: Policy, part: Part) -> Iterator[QueueRow]:
    """Every row of a part."""
    if Part.FRAME in part:
        yield from _make_operator_rows(policy)
    for tenant in policy.tenants if Part.LISTS in part else ():
        try:
            yield from _make_tenant_rows(tenant, policy)
        except AclflowError as error:
            raise error.within(f"tenants[{tenant.id}].acl") from None


def _make_operator_rows(policy: Policy) -> Iterator[QueueRow]:
    try:
        order = _orders(policy.operator, {}, 0, policy.operator_numbers, in_one_list=True)
    except AclflowError as error:
        raise error.within("operator") from None
    for rule in policy.operator:
        number = policy.operator_numbers[rule.id]
        for box in boxes_of(rule, {}):
            said, log = comment(Kind.OPERATOR_RULE, number), policy.log_limit if rule.log else None
            yield QueueRow(Stage.OPERATOR, 0, order[number], rule.action is Action.PERMIT, box, said, log)


def _make_tenant_rows(tenant: Tenant, policy: Policy) -> Iterator[QueueRow]:
    acl = tenant.acl
    order = _orders(acl.rules, acl.groups, tenant.number, tenant.rule_numbers)
    for direction, stage in _STAGES.items():
        for rows in rule_rows(acl, direction, own=tenant.prefixes, returns=policy.return_traffic).values():
            for row in rows:
                level, said = _place(row, direction, tenant, order)
                log = policy.log_limit if row.rule is not None and row.rule.log else None
                limit = policy.path_mtu_rate if level == PATH_MTU_ORDER else None
                yield QueueRow(stage, tenant.number, level, row.permit, row.box, said, log, limit)


def _place(row: Row, direction: Direction, tenant: Tenant, order: Mapping[int, int]) -> tuple[int, str]:
    """The order of a tenant's row, and whom it counts for."""
    if row.rule is None:
        return DEFAULT_ORDER, comment(_DEFAULTS[direction], tenant.number)
    number = tenant.rule_numbers.get(row.rule.id)
    if number is None:
        is_second = row.rule in PATH_MTU_RULES
        return PATH_MTU_ORDER if is_second else RETURN_ORDER, comment(_RETURNS[direction], tenant.number)
    return order[number], comment(Kind.RULE, number)


def _orders(
    rules: Sequence[Rule],
    groups: Mapping[str, AddressGroup],
    tenant: int,
    numbers: Mapping[str, int],
    *,
    in_one_list: bool = False,
) -> dict[int, int]:
    """The level of each rule, by number."""
    table = atoms(rules, groups, tenant=tenant, numbers=numbers)
    table = table.in_one_list() if in_one_list else table
    return dict(zip(table.number.tolist(), levels(table).tolist(), strict=True))


# ------------------------------------------------------------------------------------------------------- rows as text


def write_row(row: QueueRow) -> tuple[str, ...]:
    """Write a row as lines: order and verdict, then each field that it matches."""
    log = f" log {row.log.rate} {row.log.burst}" if row.log else ""
    limit = f" limit {row.limit}" if row.limit else ""
    return (f"order {row.order} {'permit' if row.permit else 'deny'}{log}{limit}", *_write_box(row.box))


def read_row(family: Family, name: str, lines: Sequence[str]) -> QueueRow:
    """The row of an object's name and lines.

    Raises BadInput for what `write_row` does not write.
    """
    listed = read_name(name)
    head = _HEAD.match(lines[0]) if lines else None
    if listed is None:
        raise BadInput("this names no list and whom a row of it counts for", place=name)
    if head is None or int(head[1]) > DEFAULT_ORDER:
        raise BadInput("a row begins with its order, and whether it permits or denies", place=name)
    limit = int(head[5]) if head[5] else None
    if limit is not None and not 1 <= limit <= HIGHEST_PATH_MTU_RATE:
        raise BadInput(f"a row permits 1..{HIGHEST_PATH_MTU_RATE} packets a second, not {limit}", place=name)
    try:
        box = _box(family, tuple(lines[1:]))
        log = LogLimit(int(head[3]), int(head[4])) if head[3] else None
    except BadInput as error:
        raise error.within(name) from None
    except (ValueError, OSError):
        raise BadInput("a row's fields cannot be read", place=name) from None
    stage, tenant, said = listed
    return QueueRow(stage, tenant, int(head[1]), head[2] == "permit", box, said, log, limit)


def read_name(name: str) -> tuple[Stage, int, str] | None:
    """Return stage, tenant and counted rule of a row's name, or None."""
    found = _NAME.match(name)
    if found is None or read_comment(found[3]) is None:
        return None
    return Stage(found[1]), int(found[2] or 0), found[3]


_NAME = re.compile(rf"(operator|egress|ingress)(?:_(\d{{1,19}}))? ([a-z-]+ \d{{1,19}})(?:{_SECOND})?\Z")
_HEAD = re.compile(r"order (\d{1,10}) (permit|deny)(?: log (\d{1,5}) (\d{1,5}))?(?: limit (\d{1,5}))?\Z")
_FIELDS = {field.axis: field for field in FIELDS}


def _write_box(box: Box) -> Iterator[str]:
    for field, members in zip(FIELDS, box.sets, strict=True):
        if members != full_set(field, box.family):
            yield f"{field.axis} {_write_members(field, box.family, members)}"


def _write_members(field: MatchField, family: Family, members: int | Spans) -> str:
    if isinstance(members, int):
        return _FRAGMENTS[members] if field.kind is FieldKind.LATER else ",".join(map(_write_span, _spans_of(members)))
    if field.kind is not FieldKind.PREFIXES:
        return ",".join(map(_write_span, members))
    return ",".join("-".join(format_address(family, end) for end in dict.fromkeys(span)) for span in members)


def _write_span(span: Span) -> str:
    return str(span.low) if span.low == span.high else f"{span.low}-{span.high}"


def _spans_of(bits: int) -> Iterator[Span]:
    """The runs of ones in a set of bits."""
    low = 0
    while bits >> low:
        low += (bits >> low & -(bits >> low)).bit_length() - 1
        length = (~(bits >> low) & (bits >> low) + 1).bit_length() - 1
        yield Span(low, low + length - 1)
        low += length


@lru_cache(maxsize=1 << 14)
def _box(family: Family, lines: tuple[str, ...]) -> Box:
    """The packets that some lines say. Raises ValueError and OSError."""
    sets = {field.axis: full_set(field, family) for field in FIELDS}
    for line in lines:
        axis, _, text = line.partition(" ")
        if axis not in _FIELDS:
            raise ValueError(axis)
        sets[axis] = _read_members(_FIELDS[axis], family, text)
    return Box._make((family, *sets.values()))


def _read_members(field: MatchField, family: Family, text: str) -> int | Spans:
    if field.kind is FieldKind.LATER:
        return {word: bits for bits, word in _FRAGMENTS.items()}.get(text) or _refuse_text(text)
    spans = tuple(_read_span(field, family, part) for part in text.split(","))
    if any(span.low > span.high for span in spans) or spans[-1].high >> field.bits[family]:
        _refuse_text(text)
    if any(one.high + 1 >= other.low for one, other in pairwise(spans)):
        _refuse_text(text)
    return spans if field.is_spans else sum((1 << span.high + 1) - (1 << span.low) for span in spans)


def _read_span(field: MatchField, family: Family, text: str) -> Span:
    low, _, high = text.partition("-")
    if field.kind is not FieldKind.PREFIXES:
        return Span(_read_number(low), _read_number(high or low))
    version = socket.AF_INET if family is Family.IPV4 else socket.AF_INET6
    ends = (int.from_bytes(socket.inet_pton(version, end), "big") for end in (low, high or low))
    return Span(*ends)


def _read_number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _LONGEST else _refuse_text(text)


_LONGEST = 5
"""Digits of a port."""


def _refuse_text(text: str) -> NoReturn:
    raise ValueError(text)
