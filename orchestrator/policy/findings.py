"""What is wrong with an access list, found exactly: every finding holds, and none is missed.

    kind        said of a rule r                                              rules
    never       no packet can match it (an empty group, a contradiction)      r
    duplicate   an earlier rule has the same packets and the same action      r, the first such rule
    shadowed    earlier rules together take all its packets                   r, every rule that takes some
    redundant   it decides packets, but without it they would fare the same   r, later rules that suffice for that
    conflict    an earlier rule with the other action overlaps it in part,    the earlier, the later
                and for some packet the order of these two decides
    wide        it permits a large part of the world a large part of ports    r
    expired     its time is over                                              r

A rule is at most one of never, duplicate, shadowed and redundant, in this order. Redundancy and conflicts are judged on
the list without its never, duplicate and shadowed rules, which decide nothing. *Redundant* is said of each rule alone:
when two rules make each other redundant, both are reported, and only one may go; so remove one and check again.

Each finding but `never` carries a witness: a packet to try it with. For a shadowed or duplicate rule it is one that the
rule would have matched; else one that it decides.

The kinds follow Al-Shaer and Hamed, "Discovery of Policy Anomalies in Distributed Firewalls" (INFOCOM 2004), but are
decided on unions of rules and not on pairs, as Liu and Gouda do in "Complete Redundancy Detection in Firewalls" (DBSec
2005): there by decision diagrams, here by searching packet space for a witness (`rulelist.Finder.uncovered`).
"""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from orchestrator.policy import spans
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.model import Acl, Action, Direction, Packet, ReturnTraffic, Rule, RuleId
from orchestrator.policy.protocols import TCP, UDP
from orchestrator.policy.rulelist import DEFAULT_ID, Row, RowNumbers, RuleList, rule_lists
from orchestrator.policy.space import WHOLE, Box, boxes_of


class Kind(enum.Enum):
    """What is said; the table above tells when."""

    NEVER = "never"
    DUPLICATE = "duplicate"
    SHADOWED = "shadowed"
    REDUNDANT = "redundant"
    CONFLICT = "conflict"
    WIDE = "wide"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to look at. `rules` names the rule it is said of first (for a conflict: the earlier one)."""

    kind: Kind
    rules: tuple[RuleId, ...]
    witness: Packet | None
    explanation: str


@dataclass(frozen=True, slots=True)
class Wide:
    """When a permit is called too wide: its far side has at least this share of all addresses, as a prefix length, and
    it admits at least so many destination ports of TCP or UDP."""

    prefix_length: int = 8
    ports: int = 1024


@dataclass(frozen=True, slots=True)
class Checks:
    """What a check needs to know beside the list.

    `own`: the tenant's prefixes, if known; then `any` on its own side means these. `returns`: the domain's return
    traffic; EXPLICIT judges the list by itself. `now`: for expiry; None checks none.
    """

    own: tuple[Prefix, ...] = ()
    returns: ReturnTraffic = ReturnTraffic.EXPLICIT
    now: dt.datetime | None = None
    wide: Wide | None = field(default_factory=Wide)


def check(acl: Acl, checks: Checks = Checks()) -> tuple[Finding, ...]:
    """Every finding on a list, in the order of its rules (of each finding's last-placed rule for conflicts)."""
    order = {rule.id: index for index, rule in enumerate(acl.rules)}
    found: list[tuple[int, Finding]] = []
    for direction in Direction:
        for finding in _Direction(acl, direction, checks).findings():
            said_of = finding.rules[1] if finding.kind is Kind.CONFLICT else finding.rules[0]
            found.append((order[said_of], finding))
    return tuple(finding for _, finding in sorted(found, key=lambda item: item[0]))


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a rule stands in the list of one IP version, and the rows near it: those whose bounds meet its own.

    `decided` is a packet that the rule decides; None if earlier rows together hold all its packets.
    """

    rows: RuleList
    row: int
    earlier: RowNumbers
    later: RowNumbers
    decided: Packet | None

    @classmethod
    def of(cls, rows: RuleList, row: int) -> _Place:
        box = rows.rows[row].box
        near = rows.near(box)
        earlier, later = near[near < row], near[near > row]
        covered = rows.first_container(box, earlier) is not None
        return cls(rows, row, earlier, later, None if covered else rows.finder(earlier).uncovered(box))

    @property
    def box(self) -> Box:
        return self.rows.rows[self.row].box

    @property
    def permit(self) -> bool:
        return self.rows.rows[self.row].permit


_Places = dict[RuleId, list[_Place]]


class _Direction:
    """The check of one direction."""

    def __init__(self, acl: Acl, direction: Direction, checks: Checks) -> None:
        self._acl = acl
        self._direction = direction
        self._checks = checks
        self._rules = [rule for rule in acl.rules if rule.direction is direction]
        self._lists = rule_lists(acl, direction, own=checks.own, returns=checks.returns)
        self._places: _Places = {}
        for rows in self._lists.values():
            for number, row in enumerate(rows.rows):
                self._places.setdefault(row.id, []).append(_Place.of(rows, number))

    def findings(self) -> Iterator[Finding]:
        dead: set[RuleId] = set()
        for finding in self._dead():
            dead.add(finding.rules[0])
            yield finding
        places = self._alive(dead)
        for rule in self._rules:
            if rule.id in places:
                yield from _redundant(rule, places[rule.id])
                yield from _conflicts(rule, places)
        yield from self._on_their_own()

    def _dead(self) -> Iterator[Finding]:
        """Rules that decide nothing."""
        first_like: dict[tuple[object, ...], RuleId] = {}
        for rule in self._rules:
            here = self._places.get(rule.id, ())
            if not here:
                yield Finding(Kind.NEVER, (rule.id,), None, self._why_never(rule))
                continue
            same = first_like.setdefault((rule.action, *(place.box for place in here)), rule.id)
            if same != rule.id:
                text = f"'{rule.id}' says the same as '{same}' before it"
                yield Finding(Kind.DUPLICATE, (rule.id, same), here[0].box.witness(), text)
            elif not any(place.decided for place in here):
                yield _shadowed(rule, here)

    def _alive(self, dead: set[RuleId]) -> _Places:
        """The places of the other rules, with the rows of dead rules left out of what is near them."""
        alive = {
            family: np.array([row.id not in dead for row in rows.rows], np.bool_)
            for family, rows in self._lists.items()
        }

        def thinned(place: _Place) -> _Place:
            keep = alive[place.box.family]
            return replace(place, earlier=place.earlier[keep[place.earlier]], later=place.later[keep[place.later]])

        return {name: [*map(thinned, here)] for name, here in self._places.items() if name not in dead}

    def _why_never(self, rule: Rule) -> str:
        empty = [
            name for name in (*rule.source.groups, *rule.destination.groups) if not self._acl.groups[name].prefixes
        ]
        if empty:
            return f"'{rule.id}' can match nothing: the group '{empty[0]}' is empty"
        if boxes_of(rule, self._acl.groups):
            return f"'{rule.id}' can match nothing: none of its addresses are the tenant's"
        if rule.fragments:
            return f"'{rule.id}' can match nothing: an IPv6 later fragment does not show its protocol"
        return f"'{rule.id}' can match nothing: its source and its destination are of different IP versions"

    def _on_their_own(self) -> Iterator[Finding]:
        """What is said of a rule without looking at others."""
        now, wide = self._checks.now, self._checks.wide
        for rule in self._rules:
            here = self._places.get(rule.id, [])
            packet = here[0].box.witness() if here else None
            if now is not None and rule.expires is not None and rule.expires <= now:
                text = f"'{rule.id}' expired on {rule.expires.isoformat()}"
                yield Finding(Kind.EXPIRED, (rule.id,), packet, text)
            if wide is None or rule.action is Action.DENY or self._acl.default(self._direction) is Action.PERMIT:
                continue
            broad = next((place.box for place in here if _is_wide(place.box, self._direction, wide)), None)
            if broad is not None:
                yield Finding(Kind.WIDE, (rule.id,), broad.witness(), _wide_text(rule, broad, self._direction))


def _shadowed(rule: Rule, here: Sequence[_Place]) -> Finding:
    """What is said of a rule whose packets earlier rules take."""
    named = _in_order(
        place.rows.rows[row] for place in here for row in place.rows.deciders(place.box) if row < place.row
    )
    text = f"'{rule.id}' never decides a packet: {_listed(named)} before it {'take' if len(named) > 1 else 'takes'} all"
    return Finding(Kind.SHADOWED, (rule.id, *named), here[0].box.witness(), text)


def _redundant(rule: Rule, here: Sequence[_Place]) -> Iterator[Finding]:
    takers: list[Row] = []
    for place in here:
        outcome = _same_without(place)
        if outcome is None:
            return
        takers += [place.rows.rows[row] for row in outcome]
    named = _in_order(takers)
    by_rules = tuple(name for name in named if name != DEFAULT_ID)
    does = "permitted" if rule.action is Action.PERMIT else "denied"
    text = f"without '{rule.id}' its packets are {does} all the same, by {_listed(named)}"
    decided = next(place.decided for place in here if place.decided)
    yield Finding(Kind.REDUNDANT, (rule.id, *by_rules), decided, text)


def _same_without(place: _Place) -> list[int] | None:
    """Later rows that give the answer of a row for all packets it decides; None if some packet would fare otherwise.

    What is searched for is a packet of the row that no earlier row holds and that meets the other answer first among
    the later rows. A packet that meets the same answer first, at row n, clears n's whole share of the piece except
    where a later row with the other answer comes before n.
    """
    if place.decided is None:
        return []
    rows, answer = place.rows.rows, place.permit
    container = place.rows.first_container(place.box, place.later)
    later = place.later if container is None else place.later[place.later <= container]
    against = later[place.rows.permits[later] != answer].tolist()
    if not against:
        return [int(later[-1])]
    earlier_rows, later_rows = place.rows.finder(place.earlier), place.rows.finder(later)
    takers: set[int] = set()

    def ruled_out(packet: Packet) -> list[Box] | None:
        """Which box needs no more search for a packet's sake, and which parts of it need it all the same."""
        before = earlier_rows.first(packet)
        if before is not None:
            return [rows[before].box]
        after = later_rows.first(packet)
        if after is None or rows[after].permit is not answer:
            return None
        takers.add(after)
        return [rows[after].box, *(rows[row].box for row in against if row < after)]

    pieces = [place.box]
    while pieces:
        piece = pieces.pop()
        found = ruled_out(place.decided if piece is place.box else piece.witness())
        if found is None:
            return None
        cleared, *all_the_same = found
        pieces += reversed(piece.minus(cleared))
        share = piece.intersect(cleared)
        pieces += [part for box in all_the_same if share is not None and (part := share.intersect(box)) is not None]
    return sorted(takers)


def _conflicts(rule: Rule, places: _Places) -> Iterator[Finding]:
    seen: set[RuleId] = set()
    for place in places[rule.id]:
        against = place.earlier[place.rows.permits[place.earlier] != place.permit]
        finder = place.rows.finder(place.earlier)
        for number in against.tolist():
            earlier = place.rows.rows[number]
            common = earlier.box.intersect(place.box)
            if common is None or earlier.rule is None or earlier.id in seen:
                continue
            if _inside(places[earlier.id], places[rule.id]) or _inside(places[rule.id], places[earlier.id]):
                continue
            packet = finder.uncovered(common, besides=number)
            if packet is not None:
                seen.add(earlier.id)
                yield Finding(Kind.CONFLICT, (earlier.id, rule.id), packet, _conflict_text(earlier.rule, rule))


def _in_order(rows: Iterable[Row]) -> tuple[RuleId, ...]:
    """The ids of rows of both IP versions, each once, in the order of the list."""
    return tuple(dict.fromkeys(row.id for row in sorted(rows, key=lambda row: row.position)))


def _inside(inner: Sequence[_Place], outer: Sequence[_Place]) -> bool:
    return all(any(big.box.contains(small.box) for big in outer) for small in inner)


def _is_wide(box: Box, direction: Direction, wide: Wide) -> bool:
    """Whether a box that is permitted lets a large part of the world open connections to many ports."""
    far = box.source if direction is Direction.INGRESS else box.destination
    share = 1 << (box.family.bits - wide.prefix_length)
    opens = box.tcp_flags >> 0x02 & 1 if box.protocols == 1 << TCP else box.protocols & (1 << TCP | 1 << UDP)
    many = spans.size(box.destination_ports) >= wide.ports
    return bool(box.fragments & WHOLE and opens) and many and spans.size(far) >= share


def _wide_text(rule: Rule, box: Box, direction: Direction) -> str:
    far = box.source if direction is Direction.INGRESS else box.destination
    part = spans.size(far) / (1 << box.family.bits)
    where = "from" if direction is Direction.INGRESS else "to"
    ports = spans.size(box.destination_ports)
    return f"'{rule.id}' permits {ports} ports {where} {part:.3g} of all IPv{box.family.value} addresses"


def _conflict_text(earlier: Rule, later: Rule) -> str:
    verb = {Action.PERMIT: "permits", Action.DENY: "denies"}
    return (
        f"'{earlier.id}' {verb[earlier.action]} and '{later.id}' {verb[later.action]} some packets in common, and "
        f"neither contains the other: their order decides"
    )


def _listed(names: Sequence[RuleId]) -> str:
    """A few rule ids for reading; more than five are counted."""
    words = ["the default" if name == DEFAULT_ID else f"'{name}'" for name in names]
    if len(words) > 5:
        words = [*words[:4], f"{len(words) - 4} more"]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
