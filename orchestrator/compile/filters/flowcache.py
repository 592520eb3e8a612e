"""Popular rules for the flow cache before a firewall, composed of all lists, and proven.

A firewall VNF asks the operator's rules, then the egress list of the tenant that owns the source, then the ingress list
of the tenant that owns the destination. A cache decides in one step, so an entry of it is some packets that all of them
treat alike, with whom the packet filter would have counted them for:

    rule ── hoist ──▶ its own packets ─┐
         └─ replies ─▶ the other way ──┴─▶ operator's rules that meet them        deny  (operator-rule 3)
                                           sender's rows x receiver's rows        permit (egress-default 7, rule 12)
                                           sender's rows alone, or receiver's     permit (rule 12)

The entries of one rule are a block: they decide every packet that the block holds, so blocks may stand in any order.
Where lists would meet in too many ways, their packets are deferred: an entry takes them out of the cache's hands. So it
does with packets that a rule with `log` decides, which the packet filter reports, with messages about path MTU that
return traffic permits, which the packet filter limits, and with what a rule matches apart from fields at which a row
does not look.

`prove` goes the other way: it takes what each entry really decides and asks every list for its deciders.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.filters.cacherows import UNSEEN, CacheRow, Verdict, rows_of, widen
from orchestrator.placement.hoist import Form, NotTheSame, Stays, hoist, parts, reply_box
from orchestrator.placement.lifting import LiftedRule
from orchestrator.policy import spans
from orchestrator.policy.addresses import Family
from orchestrator.policy.model import RETURN_RULE_ID, Action, Direction, Policy, Tenant, TenantId
from orchestrator.policy.oracle import PATH_MTU_RULES
from orchestrator.policy.protocols import SCTP, TCP, UDP
from orchestrator.policy.rulelist import Row, RuleList, rule_lists, world
from orchestrator.policy.space import WHOLE, Box, boxes_of, everything, remaining
from orchestrator.policy.spans import Span
from orchestrator.program.program import Tier

MOST_ROWS = 256
"""Rows that a cache has room for, in each IP version."""

MOST_PARTS = 32
"""More parts of a rule, rows of a list that meet its packets, or tenants on a side are left to the packet filter."""

_FEW_SPANS = 8


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """Packets of one verdict.

    `counts` are the cookies of the rules, defaults and return traffic that decide it.
    """

    box: Box
    verdict: Verdict
    counts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class FlowCache:
    """Entries in order, first match; and the rules without a place, with reasons."""

    entries: tuple[CacheEntry, ...]
    stays: tuple[tuple[LiftedRule, str], ...]

    @property
    def rows(self) -> tuple[CacheRow, ...]:
        """The entries as rows of a cache, those of IPv4 first."""
        found = [row for entry in self.entries for row in entry_rows(entry)]
        return tuple(sorted(found, key=lambda row: row.family))


def entry_rows(entry: CacheEntry) -> Iterator[CacheRow]:
    """The rows of an entry."""
    return rows_of(entry.box, entry.verdict, entry.counts)


def flow_cache(policy: Policy, chosen: Sequence[LiftedRule]) -> FlowCache:
    """Return the cache of some rules, in order of worth, with replies to their permits.

    A rule that has no form above its list, or for which there is no room, is left out with the reason. Raises
    NotTheSame if an entry were not what the policy decides.
    """
    lists = _Lists(policy)
    entries: list[CacheEntry] = []
    stays = []
    room = dict.fromkeys(Family, MOST_ROWS)
    for name in dict.fromkeys(chosen):
        block, because = lists.block(name)
        needed = dict.fromkeys(Family, 0)
        for entry in block:
            needed[entry.box.family] += sum(1 for _ in entry_rows(entry))
        if any(needed[family] > room[family] for family in Family):
            because = f"it takes {max(needed.values())} rows, and {min(room.values())} are left"
        elif block:
            entries += block
            room = {family: room[family] - needed[family] for family in Family}
        if because:
            stays.append((name, because))
    _prove_entries(lists, entries)
    return FlowCache(tuple(entries), tuple(stays))


def prove(policy: Policy, entries: Sequence[CacheEntry]) -> None:
    """Prove that the policy decides and counts every entry's packets the same.

    Raises NotTheSame.
    """
    _prove_entries(_Lists(policy), entries)


class _Lists:
    """The lists of a policy as rows of packet space, made at first use."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._tenants = {tenant.id: tenant for tenant in policy.tenants}
        self._known: dict[tuple[str, Direction], Mapping[Family, RuleList]] = {}
        self.operator = {family: _operator_list(policy, family) for family in Family}
        self._reporting = _reporting(policy)
        self._owned = {family: _owned_addresses(policy, family) for family in Family}

    def of(self, tenant: Tenant, direction: Direction, family: Family) -> RuleList:
        """One list of a tenant that owns addresses of the family."""
        key = tenant.id, direction
        if key not in self._known:
            own, returns = tenant.prefixes, self._policy.return_traffic
            self._known[key] = rule_lists(tenant.acl, direction, own=own, returns=returns)
        return self._known[key][family]

    def owners(self, family: Family, addresses: spans.Spans) -> tuple[Tenant | None, ...]:
        """Return the owners of some addresses, nobody (None) last."""
        shared = {name: spans.intersect(addresses, own) for name, own in self._owned[family].items()}
        met = [self._tenants[name] for name, common in shared.items() if common]
        covered = spans.union(span for common in shared.values() for span in common)
        return (*met, *(() if covered == addresses else (None,)))

    def _shared_addresses(self, addresses: spans.Spans, tenant: Tenant | None, family: Family) -> spans.Spans:
        return addresses if tenant is None else spans.intersect(addresses, self._owned[family][tenant.id])

    def block(self, name: LiftedRule) -> tuple[list[CacheEntry], str]:
        """Return the visible entries of a rule and its replies; or the reason for none."""
        tenant = self._tenants.get(name.tenant)
        rule = next((each for each in tenant.acl.rules if each.id == name.rule), None) if tenant else None
        if tenant is None or rule is None:
            return [], "there is no such rule"
        if rule.log:
            return [], "it logs, and what it decides the packet filter reports"
        unseen = [field.label for field in UNSEEN if getattr(rule, field.attribute) != field.every]
        if unseen:
            return [], f"it looks at {unseen[0]}, at which a flow cache does not look"
        boxes: list[Box] = []
        reasons: list[str] = []
        for family in Family:
            if tenant.id not in self._owned[family]:
                continue
            found = _hoist_rule(self.of(tenant, rule.direction, family), name)
            if isinstance(found, Stays):
                reasons.append(found.because)
            else:
                boxes += found
        replies = [_turn_box(box) for box in boxes if rule.action is Action.PERMIT]
        entries: list[CacheEntry] = []
        for box in (*boxes, *(turned for each in replies for turned in each)):
            for entry in map(self._defer_others, self.compose_entries(box)):
                if not any(before.box.contains(entry.box) for before in entries):
                    entries.append(entry)
        if all(entry.verdict is Verdict.DEFER for entry in entries):
            return [], "; ".join(dict.fromkeys(reasons)) or "too many rules meet its packets"
        return entries, ""

    def is_reported(self, entry: CacheEntry) -> bool:
        """Whether a rule that logs decides an entry's packets."""
        return not self._reporting.isdisjoint(entry.counts)

    def _defer_others(self, entry: CacheEntry) -> CacheEntry:
        """Leave reports, and what no row looks at, to the packet filter."""
        seen = widen(entry.box)
        return CacheEntry(seen, Verdict.DEFER) if seen != entry.box or self.is_reported(entry) else entry

    def compose_entries(self, box: Box) -> Iterator[CacheEntry]:
        """Yield the lists' decisions for a box's whole packets, in order of evaluation."""
        whole = box.intersect(everything(box.family)._replace(fragments=WHOLE))
        if whole is None:
            return
        operator = self.operator[box.family]
        shares = parts(operator, whole, most_entries=MOST_PARTS)
        if shares is None:
            yield CacheEntry(whole, Verdict.DEFER)
            return
        for share in shares:
            row = operator.rows[share.row]
            if row.rule is not None:
                yield CacheEntry(share.box, _decide_row(row), (self.cookie(None, None, row),))
            else:
                yield from self._of_tenants(share.box)

    def _of_tenants(self, box: Box) -> Iterator[CacheEntry]:
        """Yield the decisions of tenants' lists.

        Owners come before nobody, so that nobody's part needs no cutting.
        """
        senders = self.owners(box.family, box.source)
        receivers = self.owners(box.family, box.destination)
        if len(senders) > MOST_PARTS:
            yield CacheEntry(box._replace(source=self._crowd(box.source, box.family)), Verdict.DEFER)
            senders = tuple(each for each in senders if each is None)
        if len(receivers) > MOST_PARTS:
            yield CacheEntry(box._replace(destination=self._crowd(box.destination, box.family)), Verdict.DEFER)
            receivers = tuple(each for each in receivers if each is None)
        for sender in senders:
            sent = box._replace(source=self._shared_addresses(box.source, sender, box.family))
            for receiver in receivers:
                within = sent._replace(destination=self._shared_addresses(box.destination, receiver, box.family))
                yield from self.between(sender, receiver, within)

    def _crowd(self, addresses: spans.Spans, family: Family) -> spans.Spans:
        """Cover shared addresses by few spans, which may hold others between them."""
        owned = spans.union(span for own in self._owned[family].values() for span in spans.intersect(addresses, own))
        return spans.intersect(addresses, _coarse(owned))

    def between(self, sender: Tenant | None, receiver: Tenant | None, box: Box) -> list[CacheEntry]:
        """The sender's rows, each with the receiver's rows that meet what it permits."""
        deferred = [CacheEntry(box, Verdict.DEFER)]
        if sender is None:
            return deferred if receiver is None else self._receiver_rows(receiver, box, ()) or deferred
        found: list[CacheEntry] = []
        rows = self.of(sender, Direction.EGRESS, box.family)
        shares = parts(rows, box, most_entries=MOST_PARTS)
        for share in shares or ():
            row = rows.rows[share.row]
            counts = (self.cookie(sender, Direction.EGRESS, row),)
            if receiver is None or not row.permit:
                found.append(CacheEntry(share.box, _decide_row(row), counts))
            else:
                found += self._receiver_rows(receiver, share.box, counts) or [CacheEntry(share.box, Verdict.DEFER)]
        return found if shares is not None and len(found) <= MOST_PARTS else deferred

    def _receiver_rows(self, receiver: Tenant, box: Box, counts: tuple[int, ...]) -> list[CacheEntry]:
        """Return the receiver's rows, cut to the sent packets; none if there are too many."""
        rows = self.of(receiver, Direction.INGRESS, box.family)
        shares = parts(rows, box, most_entries=MOST_PARTS) or ()
        return [
            CacheEntry(share.box, Verdict.DEFER)
            if _is_limited(row := rows.rows[share.row])
            else CacheEntry(share.box, _decide_row(row), (*counts, self.cookie(receiver, Direction.INGRESS, row)))
            for share in shares
        ]

    def cookie(self, tenant: Tenant | None, direction: Direction | None, row: Row) -> int:
        """The cookie under which a row's packets count."""
        ingress = direction is Direction.INGRESS
        if tenant is None:
            assert row.rule is not None
            kind, number = Kind.OPERATOR_RULE, self._policy.operator_numbers[row.rule.id]
        elif row.rule is None:
            kind, number = Kind.INGRESS_DEFAULT if ingress else Kind.EGRESS_DEFAULT, tenant.number
        elif row.rule.id == RETURN_RULE_ID:
            kind, number = Kind.INGRESS_RETURN if ingress else Kind.EGRESS_RETURN, tenant.number
        else:
            kind, number = Kind.RULE, tenant.rule_numbers[row.rule.id]
        return Cookie(Tier.SERVER, kind, number).pack()


def _hoist_rule(rows: RuleList, name: LiftedRule) -> list[Box] | Stays:
    """Return the packets of a rule that may stand above its list.

    With `together` all of its box, for what must stay above it comes along when the box is composed.
    """
    place = next((number for number, row in enumerate(rows.rows) if row.id == name.rule), None)
    if place is None:
        return []
    found = hoist(rows, place, most_entries=MOST_PARTS)
    if isinstance(found, Stays):
        return found
    own = [entry.box for entry in found.entries if entry.row == place]
    assert found.form is not Form.TOGETHER or own == [rows.rows[place].box]
    return own


def _turn_box(box: Box) -> Iterator[Box]:
    """Yield the replies to a box's packets: established TCP segments, all of UDP and SCTP."""
    for protocol in (TCP, UDP, SCTP):
        if box.protocols >> protocol & 1 and box.fragments & WHOLE:
            yield reply_box(box, protocol)


def _prove_entries(lists: _Lists, entries: Sequence[CacheEntry]) -> None:
    for place, entry in enumerate(entries):
        if entry.verdict is Verdict.DEFER:
            continue
        before = [each.box for each in entries[:place] if each.box.overlaps(entry.box)]
        for decided in remaining((entry.box,), before):
            found = _decide_box(lists, decided)
            if found != (entry.verdict, entry.counts) or lists.is_reported(entry):
                raise NotTheSame(f"entry {place} of the flow cache would decide packets that are decided otherwise")


def _decide_box(lists: _Lists, box: Box) -> tuple[Verdict, tuple[int, ...]] | None:
    """Return the one verdict of a box's packets.

    None where they have several, one that nobody decides, or one that depends on how many there are.
    """
    operator = _find_only_row(lists.operator[box.family], box)
    if operator is None:
        return None
    if operator.rule is not None:
        return _decide_row(operator), (lists.cookie(None, None, operator),)
    ends = lists.owners(box.family, box.source), lists.owners(box.family, box.destination)
    if max(map(len, ends)) > 1 or ends == ((None,), (None,)):
        return None
    counts: tuple[int, ...] = ()
    verdict = Verdict.DENY
    for (tenant,), direction in zip(ends, (Direction.EGRESS, Direction.INGRESS), strict=True):
        if tenant is not None:
            row = _find_only_row(lists.of(tenant, direction, box.family), box)
            if row is None or _is_limited(row):
                return None
            counts, verdict = (*counts, lists.cookie(tenant, direction, row)), _decide_row(row)
            if verdict is Verdict.DENY:
                break
    return verdict, counts


def _is_limited(row: Row) -> bool:
    """Whether a row permits so many packets a second."""
    return row.rule in PATH_MTU_RULES


def _find_only_row(rows: RuleList, box: Box) -> Row | None:
    deciders = rows.deciders(box)
    return rows.rows[deciders[0]] if len(deciders) == 1 else None


def _operator_list(policy: Policy, family: Family) -> RuleList:
    """Return the operator's rules; the last row holds packets that no rule matches."""
    boxes = [
        (box, rule, position)
        for position, rule in enumerate(policy.operator)
        for box in boxes_of(rule, {})
        if box.family is family
    ]
    rows = [Row(box, rule.action is Action.PERMIT, rule, position) for box, rule, position in boxes]
    return RuleList([*rows, Row(everything(family), False, None, len(policy.operator))])


def _reporting(policy: Policy) -> frozenset[int]:
    """The cookies of the rules that log."""
    found = [(Kind.OPERATOR_RULE, policy.operator_numbers[rule.id]) for rule in policy.operator if rule.log]
    for tenant in policy.tenants:
        found += [(Kind.RULE, tenant.rule_numbers[rule.id]) for rule in tenant.acl.rules if rule.log]
    return frozenset(Cookie(Tier.SERVER, *each).pack() for each in found)


def _owned_addresses(policy: Policy, family: Family) -> Mapping[TenantId, spans.Spans]:
    """The addresses of each tenant that has some."""
    worlds = {
        tenant.id: world(family, Direction.INGRESS, tenant.prefixes) for tenant in policy.tenants if tenant.prefixes
    }
    return {name: box.destination for name, box in worlds.items() if box is not None}


def _coarse(exact: spans.Spans) -> spans.Spans:
    """A few spans that hold all of some spans: the widest gaps stay open."""
    gaps = sorted(range(1, len(exact)), key=lambda place: exact[place - 1].high - exact[place].low)
    starts = [0, *sorted(gaps[: _FEW_SPANS - 1])]
    ends = [*(place - 1 for place in starts[1:]), len(exact) - 1]
    return tuple(Span(exact[start].low, exact[end].high) for start, end in zip(starts, ends, strict=True))


def _decide_row(row: Row) -> Verdict:
    return Verdict.PERMIT if row.permit else Verdict.DENY
