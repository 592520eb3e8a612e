"""Prove rows that decide ahead of the lists against those lists.

The claim
    A packet that a row of table `lifted` decides would have been decided by the line that the row's cookie names, of
    the list that the packet would have met: the operator's rules, then the tenant's in one direction, then its end.
    And what the row does is what that line does. So the row changes nothing, and counts for whom it should.

For every row r that claims line c, of one list:

    place     the row asks for packets from the uplink to endpoints of one tenant, or for those of one tenant's
              endpoints; it does what c's verdict is, and stands above every list
    inside    r holds no packet that c does not hold
    order     of the lines before c, what r holds of their packets is decided by rows above r (which claim something
              themselves); and no row of r's priority that claims another line meets it

How the rows were found is not looked at: neither the parts of lines, nor the compiler's order. Nothing here says that a
row must be there, for without it the packets go on to the lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from orchestrator.compile.cookies import Cookie
from orchestrator.compile.equivalence.chain import SET_REG3, TABLE_OF, apply_actions, goto, limit_action, report_action
from orchestrator.compile.equivalence.lines import Line, Lines
from orchestrator.compile.equivalence.rowdecoder import FAMILY, FRAGMENTS, PROTOCOL, TABLE, Items, decode
from orchestrator.compile.openflow.instructions import output
from orchestrator.compile.pipelines.edge import EdgeTable
from orchestrator.compile.pipelines.host import LIFTED_PRIORITY, STATIC_PRIORITY, Table
from orchestrator.errors import NotEquivalent
from orchestrator.policy import spans
from orchestrator.policy.addresses import Family
from orchestrator.policy.fields import OWN_ICMP, WORD, MatchField
from orchestrator.policy.model import Direction, Policy, Rule, Tenant
from orchestrator.policy.protocols import WITH_PORTS
from orchestrator.policy.space import ALL_BYTES, ALL_PORTS, LATER, WHOLE, Box, everything, find_uncovered
from orchestrator.policy.spans import Span, Spans
from orchestrator.program.flows import SYMBOL_BASE, Flow, FlowTable
from orchestrator.program.program import Tier

_ALL_32 = 0xFFFFFFFF
_PLACE = "lifted"


Met = Callable[[str, Items], Sequence[Rule]]
"""The rules of a tenant's list, in order, that share a packet with one of some items."""


class Row(NamedTuple):
    """A row as read: the list that it precedes, and its packets."""

    flow: Flow
    tenant: str
    direction: Direction
    box: Box


@dataclass(frozen=True, slots=True)
class Ahead:
    """A place ahead of the lists: the reader of its rows, and lines' instructions.

    Cookies are those of the host tier.
    """

    read: Callable[[Policy, FlowTable], Iterator[Row]]
    does: Callable[[Line, Direction], bytes]


@dataclass(frozen=True, slots=True, eq=False)
class LiftedProof:
    """The rows of table `lifted` that rules made, shown to change nothing.

    `lines` are the lists that they claim, and those that rows claimed before, as long as these are what they were: a
    rule that comes down often goes up again.
    """

    rows: Mapping[tuple[str, Direction], tuple[Row, ...]]
    lines: Mapping[tuple[str, Direction], Lines]
    ahead: Ahead

    @classmethod
    def of(
        cls, policy: Policy, flows: FlowTable, ahead: Ahead | None = None, *, met_by: Met | None = None
    ) -> LiftedProof:
        """Prove all rows from scratch, of hosts by default.

        For `met_by` see `after`.

        Raises NotEquivalent.
        """
        return cls({}, {}, ahead or ON_HOSTS).after(policy, FlowTable.of(()), flows, met_by)

    def after(self, policy: Policy, removed: FlowTable, added: FlowTable, met_by: Met | None = None) -> LiftedProof:
        """Prove the next policy with the rows `removed` and `added`.

        Raises NotEquivalent.

        A list is looked at again if its rows changed, or if something of it did that meets them. `met_by` tells which
        rules of a tenant's list items meet, where the lists are proven.
        """
        if not self.rows and not len(added):
            return self
        gone = set(removed.keys())
        kept = [row for rows in self.rows.values() for row in rows if row.flow.key not in gone]
        listed: dict[tuple[str, Direction], list[Row]] = {}
        for row in (*kept, *self.ahead.read(policy, added)):
            listed.setdefault((row.tenant, row.direction), []).append(row)
        tenants = {str(tenant.id): tenant for tenant in policy.tenants}
        lines = {key: each for key, each in self.lines.items() if _is_unchanged(each, tenants.get(key[0]))}
        for key, rows in listed.items():
            if key[0] not in tenants:
                raise _refuse_flow(rows[0].flow, "is ahead of the list of a tenant that is no more")
            lines[key] = self._shown(key, policy, tenants[key[0]], rows, met_by)
        return LiftedProof({key: tuple(rows) for key, rows in listed.items()}, lines, self.ahead)

    def _shown(
        self, key: tuple[str, Direction], policy: Policy, tenant: Tenant, rows: Sequence[Row], met_by: Met | None
    ) -> Lines:
        """Hold the rows of one list to it, unless nothing of either changed. Raises NotEquivalent."""
        known, before = self.lines.get(key), self.rows.get(key, ())
        boxes = tuple(row.box for row in rows)
        followed = known.after(policy, tenant) if known is not None and known.asked == boxes else None
        if followed is not None and len(rows) == len(before) and all(map(_is_same_row, rows, before)):
            return followed
        near = None if followed is not None or met_by is None else met_by(key[0], _in_list(rows, key[1]))
        lines = followed or Lines.of(policy, tenant, key[1], boxes, near)
        _check_home(policy, tenant, rows)
        for row in rows:
            others = [rows[place] for place in lines.boxes.of(row.box) if rows[place] is not row]
            _check(row, lines, others, self.ahead)
        return lines


def _in_list(rows: Sequence[Row], direction: Direction) -> Items:
    """Return the items of rows as if in the table of one direction's rules."""
    items = decode(FlowTable.of(row.flow for row in rows)).items
    items["small_low"][:, TABLE] = items["small_high"][:, TABLE] = TABLE_OF[direction]
    return items


def _is_unchanged(lines: Lines, tenant: Tenant | None) -> bool:
    return tenant is not None and tenant.acl is lines.tenant.acl


def _is_same_row(one: Row, other: Row) -> bool:
    return one is other


# ------------------------------------------------------------------------------------------------------- what is shown


def _check(row: Row, lines: Lines, others: Sequence[Row], ahead: Ahead) -> None:
    """Check one row against its line; `others` share packets with it.

    Raises NotEquivalent.
    """
    met = lines.meeting(row.box)
    place = next((place for place, line in enumerate(met) if line.cookie == row.flow.cookie), None)
    if place is None:
        raise _refuse_flow(row.flow, "claims a line that none of its packets meets")
    claimed = met[place]
    if row.flow.instructions != ahead.does(claimed, row.direction):
        raise _refuse_flow(row.flow, f"does not do what '{claimed.name}' says")
    if not claimed.box.contains(row.box):
        raise _refuse_flow(row.flow, f"holds packets that '{claimed.name}' does not")
    for other in others:
        if other.flow.priority == row.flow.priority and other.flow.cookie != row.flow.cookie:
            raise _refuse_flow(row.flow, f"shares packets and priority with a row of cookie {other.flow.cookie:#x}")
    above = [other.box for other in others if other.flow.priority > row.flow.priority]
    for line in met[:place]:
        share = line.box.intersect(row.box)
        if share is not None and find_uncovered(share, above) is not None:
            raise _refuse_flow(row.flow, f"decides packets of '{line.name}', which comes before '{claimed.name}'")


def _does(line: Line, direction: Direction) -> bytes:
    """Return a line's instructions ahead of the lists.

    Egress lets a packet go on to the receiver's list, the operator and ingress let it arrive.
    """
    report = (report_action(line.reports),) if line.reports is not None else ()
    if not line.permits:
        return apply_actions(*report)
    arrives = line.is_operators or direction is Direction.INGRESS
    limit = (limit_action(line.limits),) if line.limits is not None else ()
    return apply_actions(*report, *limit, SET_REG3 if arrives else b"") + goto(Table.LOCAL)


def _check_home(policy: Policy, tenant: Tenant, rows: Sequence[Row]) -> None:
    """Rows from the uplink speak of the addresses of one tenant's endpoints. Raises NotEquivalent."""
    arriving = [row for row in rows if row.direction is Direction.INGRESS]
    if not arriving:
        return
    prefixes = [(end.tenant == tenant.id, each) for end in policy.endpoints for each in end.prefixes]
    for (family, wanted), row in {(row.box.family, row.box.destination): row for row in arriving}.items():
        homes = [(own, (Span(each.network, each.last),)) for own, each in prefixes if each.family is family]
        mine = spans.union(home[0] for own, home in homes if own)
        if spans.minus(wanted, mine) or any(spans.meet(wanted, home) for own, home in homes if not own):
            raise _refuse_flow(row.flow, f"is for addresses that are not of {tenant.id}'s endpoints")


# ------------------------------------------------------------------------------------------------------- how they read


def _read(policy: Policy, flows: FlowTable) -> Iterator[Row]:
    """Rows read from their bytes. Raises NotEquivalent for one that is not in its place."""
    decoded = decode(flows)
    by_number = {tenant.number: str(tenant.id) for tenant in policy.tenants}
    for place, flow in enumerate(flows.rows()):
        box = packets_of(flow, decoded.items[place])
        asked = decoded.registers[place]
        found = {
            number: int(asked["value"][number]) for number in np.flatnonzero(asked["mask"]).tolist()
            if int(asked["mask"][number]) == _ALL_32
        }  # fmt: skip
        if len(found) != np.count_nonzero(asked["mask"]):
            raise _refuse_flow(flow, "asks for a part of a register")
        match found:
            case {0: number, **others} if not others and number in by_number:
                yield Row(flow, by_number[number], Direction.EGRESS, box)
            case {2: 1, **others} if not others:
                yield Row(flow, receiver(policy, box, flow), Direction.INGRESS, box)
            case _:
                raise _refuse_flow(flow, "asks neither for packets from the uplink nor for those of a tenant")


def packets_of(flow: Flow, item: Any) -> Box:
    """The packets of a row that stands ahead of lists. Raises NotEquivalent."""
    if flow.tenant or not STATIC_PRIORITY < flow.priority <= LIFTED_PRIORITY:
        raise _refuse_flow(flow, "is not where lifted rules are")
    box = _box(item)
    if box is None:
        raise _refuse_flow(flow, "matches no packet of one IP version")
    return box


def receiver(policy: Policy, box: Box, flow: Flow) -> str:
    """Return the tenant with the first destination address.

    Raises NotEquivalent.
    """
    first = box.destination[0].low
    for endpoint in policy.endpoints:
        if any(each.family is box.family and each.holds(first) for each in endpoint.prefixes):
            return str(endpoint.tenant)
    raise _refuse_flow(flow, "is for addresses that no endpoint has")


def _box(item: Any) -> Box | None:
    """Return the packets of a row; None if of several IP versions, or none."""
    low, high = (int(item[end][FAMILY]) for end in ("small_low", "small_high"))
    if low != high:
        return None
    family = Family(low)
    source, destination = (_read_addresses(item, side, family) for side in (0, 1))
    protocol = int(item["small_low"][PROTOCOL]), int(item["small_high"][PROTOCOL])
    past = [Span(int(item["port_low"][side]), int(item["port_high"][side])) for side in (0, 1)]
    ported = protocol[0] == protocol[1] and protocol[0] in WITH_PORTS
    pinged = protocol == (OWN_ICMP[family],) * 2
    kinds = (WHOLE if int(item["small_low"][FRAGMENTS]) == 0 else 0) | (LATER if item["small_high"][FRAGMENTS] else 0)
    value, mask = map(int, item["word"])
    return Box(
        family,
        fragments=kinds,
        protocols=_bytes(*protocol),
        icmp_types=_bytes(past[0].low, min(past[0].high, 255)) if pinged else ALL_BYTES,
        icmp_codes=_bytes(past[1].low, min(past[1].high, 255)) if pinged else ALL_BYTES,
        **{field.axis: _members(value, mask, field) for field in WORD},
        source=source,
        destination=destination,
        source_ports=(past[0],) if ported else ALL_PORTS,
        destination_ports=(past[1],) if ported else ALL_PORTS,
    ).intersect(everything(family))


@lru_cache(maxsize=1024)
def _members(word: int, mask: int, field: MatchField) -> int:
    """The set of a field's values that a word under a mask holds."""
    end, shift = 1 << field.bits[Family.IPV4], field.shift or 0
    wanted, looked_at = ((each >> shift) % end for each in (word, mask))
    return sum(1 << value for value in range(end) if value & looked_at == wanted)


def _read_addresses(item: Any, side: int, family: Family) -> Spans:
    low, high = (int(item[end][side][0]) | int(item[end][side][1]) << 64 for end in ("low", "high"))
    return (Span(low >> 128 - family.bits, high >> 128 - family.bits),)


def _bytes(low: int, high: int) -> int:
    """The set of the bytes `low`..`high`."""
    return (1 << high + 1) - (1 << low)


def _refuse_flow(flow: Flow, what: str) -> NotEquivalent:
    text = f"priority {flow.priority}, cookie {flow.cookie:#x}, match {flow.match.hex()}"
    return NotEquivalent(f"the lifted flow entry of {text} {what}", place=_PLACE)


ON_HOSTS = Ahead(_read, _does)
"""In table `lifted` of a host's switch."""


_WAN = output(SYMBOL_BASE)
_TO_WAN, _PASSED_ON = apply_actions(_WAN), goto(EdgeTable.EXCEPTIONS)
"""The instructions of a row whose line permits, and of one whose line denies."""


def _decide_at_edge(line: Line, _: Direction) -> bytes:
    return _TO_WAN if line.permits else _PASSED_ON


def _read_heavy(policy: Policy, flows: FlowTable) -> Iterator[Row]:
    """Yield rows of table `heavy` read from their bytes.

    Raises NotEquivalent for one that is not in its place.
    """
    decoded = decode(flows)
    for place, flow in enumerate(flows.rows()):
        cookie = Cookie.unpack(flow.cookie)
        if cookie is None or cookie.tier is not Tier.EDGE or np.count_nonzero(decoded.registers[place]["mask"]):
            raise NotEquivalent(f"the entry of cookie {flow.cookie:#x} is not a heavy hitter's", place="heavy")
        box = packets_of(flow, decoded.items[place])
        claimed = replace(flow, cookie=replace(cookie, tier=Tier.HOST).pack())
        yield Row(claimed, receiver(policy, box, flow), Direction.INGRESS, box)


AT_THE_EDGE = Ahead(_read_heavy, _decide_at_edge)


class EdgeProof:
    """The proven heavy hitters of an edge, so that only changes are proven again.

    A row of the program sends packets to the WAN only in table `heavy`, and a row there does so only with packets that
    a line of the receiver's composed list decides, and permits. Other rows of the table hold packets of lines that
    deny, and pass them on. So whatever goes past the firewall servers is what they would have let pass.

    That is what rows ahead of lists are held to on hosts, in another place. Packets that come from outside with a
    tenant's address are dropped before; without that, the sender's egress list would have had a say.

    For one thread at a time.
    """

    def __init__(self) -> None:
        self._proof: LiftedProof | None = None
        self._shown = FlowTable.of(())

    def check(self, policy: Policy, heavy: FlowTable, program: FlowTable | None) -> None:
        """Prove a program whose heavy hitters have the rows `heavy`. Raises NotEquivalent.

        None: the program that was proven last, for another policy.
        """
        if program is not None:
            _check_ways(heavy, program)
        if self._proof is None:
            self._proof = LiftedProof.of(policy, heavy, AT_THE_EDGE)
        else:
            before, after = self._shown.rows(), heavy.rows()
            removed, added = set(before) - set(after), set(after) - set(before)
            self._proof = self._proof.after(policy, FlowTable.of(removed), FlowTable.of(added))
        self._shown = heavy


def _check_ways(heavy: FlowTable, program: FlowTable) -> None:
    """Check that only heavy hitters lead to the WAN. Raises NotEquivalent."""
    leading = [number for number, what in enumerate(program.instruction_set) if _WAN in what]
    to_wan = program.take(np.isin(program.instructions, leading))
    known = set(heavy.keys())
    for flow in to_wan.rows():
        if flow.table != EdgeTable.HEAVY or flow.key not in known:
            raise NotEquivalent(f"the entry of cookie {flow.cookie:#x} leads past the firewall servers", place="edge")
