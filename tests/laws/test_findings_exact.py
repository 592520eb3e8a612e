"""Findings are exact: each is judged against the oracle on every kind of packet the list can tell apart.

The judge below knows only `oracle.matches` and counts packets; it shares nothing with the search it judges.
"""

from __future__ import annotations

import datetime as dt
import itertools
from dataclasses import dataclass, replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from law_examples import examples
from public_data import DATA
from strategies import OWNED, acls, packet_kinds

from orchestrator.policy import cover, oracle
from orchestrator.policy.addresses import ANY, Addresses, Prefix
from orchestrator.policy.cover import Limits
from orchestrator.policy.findings import Checks, Finding, Kind, Severity, check
from orchestrator.policy.formats.registry import read
from orchestrator.policy.formats.results import Options
from orchestrator.policy.model import (
    RETURN_RULE_ID,
    Acl,
    Action,
    AddressGroup,
    Direction,
    GroupName,
    Packet,
    ReturnTraffic,
    Rule,
    RuleId,
)
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import ICMP, ICMPV6, TCP, UDP
from orchestrator.policy.rulelist import DEFAULT_ID
from orchestrator.policy.suspects import Wide
from orchestrator.policy.tcpflags import FlagMatch

MOST_KINDS = 8_000
NOW = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
TOMORROW = NOW + dt.timedelta(days=1)
STRUCTURAL = (Kind.NEVER, Kind.DUPLICATE, Kind.SHADOWED, Kind.REDUNDANT)


@dataclass(frozen=True)
class Line:
    """A rule (or return rule, or default) and the packets it matches, one bit for each kind of packet."""

    id: RuleId
    action: Action
    packets: int
    stateless: bool = False

    @property
    def does(self) -> tuple[Action, bool]:
        return self.action, self.stateless


class Judge:
    """One direction of a list, as sets of packets."""

    def __init__(self, acl: Acl, direction: Direction, checks: Checks) -> None:
        kinds = packet_kinds(acl, prefixes_too=checks.own)
        assume(len(kinds) <= MOST_KINDS)
        self.kinds = [packet for packet in kinds if not checks.own or is_own(packet, direction, checks)]
        listed = [rule for rule in acl.rules if rule.direction is direction]
        marks = checks.returns is ReturnTraffic.TRACKED
        self.lines = [Line(rule.id, rule.action, self.matched(rule, acl), marks and rule.stateless) for rule in listed]
        self.ends = [Line(DEFAULT_ID, acl.default(direction), (1 << len(self.kinds)) - 1)]
        returns = [rule for rule in oracle.return_rules(checks.returns) if rule.direction is direction]
        self.ends[:0] = [Line(RETURN_RULE_ID, rule.action, self.matched(rule, acl)) for rule in returns]

    def matched(self, rule: Rule, acl: Acl) -> int:
        return sum(1 << i for i, packet in enumerate(self.kinds) if oracle.matches(rule, packet, acl.groups))

    def suffice(self, named: tuple[RuleId, ...], dead: set[RuleId]) -> bool:
        """Whether the first rule's packets fare the same without it and without all later rules of its action but those
        named."""
        alive = [line for line in self.lines if line.id not in dead]
        place = next(index for index, line in enumerate(alive) if line.id == named[0])
        later = alive[place + 1 :] + self.ends[:-1]
        kept = [line for line in later if line.id in named or line.does != alive[place].does]
        decides = dict(shares(alive))[named[0]]
        fewer = fates(alive[:place] + kept + self.ends[-1:])
        return not any((one ^ other) & decides for one, other in zip(fates(alive + self.ends), fewer, strict=True))

    def expected(self) -> set[tuple[Kind, tuple[RuleId, ...]]]:
        found: set[tuple[Kind, tuple[RuleId, ...]]] = set()
        alive: list[Line] = []
        seen = 0
        for index, line in enumerate(self.lines):
            like = [o for o in self.lines[:index] if (o.packets, o.does) == (line.packets, line.does)]
            if not line.packets:
                found.add((Kind.NEVER, (line.id,)))
            elif like:
                found.add((Kind.DUPLICATE, (line.id, like[0].id)))
            elif not line.packets & ~seen:
                takers = tuple(name for name, share in shares(self.lines[:index]) if share & line.packets)
                found.add((Kind.SHADOWED, (line.id, *takers)))
            else:
                alive.append(line)
            seen |= line.packets
        for line in alive:
            if all(
                fates([*lines, *self.ends]) == fates([*(other for other in lines if other is not line), *self.ends])
                for lines in (alive, self.lines)
            ):
                found.add((Kind.REDUNDANT, (line.id,)))
        for (i, first), (j, second) in itertools.combinations(enumerate(alive), 2):
            both = first.packets & second.packets
            partial = both not in (0, first.packets, second.packets)
            others = union(line.packets for index, line in enumerate(alive[:j]) if index != i)
            if first.action is not second.action and partial and both & ~others:
                found.add((Kind.CONFLICT, (first.id, second.id)))
        return found


def is_own(packet: Packet, direction: Direction, checks: Checks) -> bool:
    ours = packet.destination if direction is Direction.INGRESS else packet.source
    return any(prefix.family is packet.family and prefix.holds(ours) for prefix in checks.own)


def union(sets: object) -> int:
    together = 0
    for packets in sets:  # type: ignore[attr-defined]
        together |= packets
    return together


def shares(lines: list[Line]) -> list[tuple[RuleId, int]]:
    """What each line decides, by first match."""
    found, seen = [], 0
    for line in lines:
        found.append((line.id, line.packets & ~seen))
        seen |= line.packets
    return found


def fates(lines: list[Line]) -> tuple[int, int]:
    """The packets that pass, and those that stateless rules decide."""
    by_id = {line.id: line for line in lines}
    decided = [(by_id[name], share) for name, share in shares(lines)]
    permitted = union(share for line, share in decided if line.action is Action.PERMIT)
    return permitted, union(share for line, share in decided if line.stateless)


def comparable(finding: Finding) -> tuple[Kind, tuple[RuleId, ...]]:
    """Of a redundant rule's takers any sufficient choice is right: they are judged apart."""
    return finding.kind, finding.rules[:1] if finding.kind is Kind.REDUNDANT else finding.rules


check_settings = st.builds(
    Checks,
    own=st.sampled_from(((), (), OWNED)),
    returns=st.sampled_from(list(ReturnTraffic)),
    wide=st.none(),
)


@settings(max_examples=examples(100), deadline=None)
@given(acls(4, min_rules=2, marked=True), check_settings)
def test_findings_are_the_oracles(acl: Acl, checks: Checks) -> None:
    found = [finding for finding in check(acl, checks) if finding.kind is not Kind.GROUP]
    judges = {direction: Judge(acl, direction, checks) for direction in Direction}
    expected = set().union(*(judge.expected() for judge in judges.values()))
    assert {comparable(finding) for finding in found} == expected
    assert len(found) == len(expected)
    dead = {finding.rules[0] for finding in found if finding.kind in STRUCTURAL[:3]}
    for finding in found:
        if finding.kind is Kind.REDUNDANT:
            direction = next(rule.direction for rule in acl.rules if rule.id == finding.rules[0])
            assert judges[direction].suffice(finding.rules, dead)


@settings(max_examples=examples(60), deadline=None)
@given(acls(7, min_rules=3, with_groups=False), st.integers(0, 12), st.integers(0, 60))
def test_what_limits_leave_open_is_said_and_nothing_else_changes(acl: Acl, question: int, total: int) -> None:
    """A finding under limits is one without, or says that it is undecided; and what is missing is undecided."""
    limited = check(acl, Checks(wide=None, limits=Limits(question, total)))
    exact = check(acl, Checks(wide=None))
    open_questions = [finding.rules for finding in limited if finding.kind is Kind.UNDECIDED]
    about = {name for names in open_questions for name in names}
    kinds = {(finding.kind, finding.rules[0]) for finding in exact}
    for finding in limited:
        if finding.kind in (Kind.NEVER, Kind.DUPLICATE, Kind.SHADOWED):
            assert (finding.kind, finding.rules[0]) in kinds
    if not any(finding.kind is Kind.SHADOWED for finding in exact):  # nothing that is left in the list but is dead
        missing = {comparable(finding) for finding in exact} - {comparable(finding) for finding in limited}
        assert all(about & {*names} for _, names in missing)


def test_of_too_many_conflicts_the_rest_is_undecided_and_nothing_else_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every deny crosses every permit before it; the last permit is redundant all the same."""
    monkeypatch.setattr(cover, "_STRIDE", 2)
    crowd = [
        replace(tcp(f"{action.value}{place}", action, place, 60000 - place), source=prefix(f"10.{place}.0.0/16"))
        if action is PERMIT
        else tcp(f"{action.value}{place}", action, place, place + 9, f"172.16.{place}.0/24")
        for place in range(1, 10)
        for action in (PERMIT, DENY)
    ]
    acl = Acl((*crowd, tcp("last", DENY, 0, 65535)))
    exact, limited = check(acl), check(acl, Checks(limits=Limits(crossings=20)))
    conflicts, told = ([*found.of([Kind.CONFLICT])] for found in (exact, limited))
    assert 20 <= len(told) < len(conflicts)
    assert told == conflicts[: len(told)]
    unsure = [finding.rules[0] for finding in limited.of([Kind.UNDECIDED])]
    assert unsure == [rule.id for rule in acl.rules[-len(unsure) :]]
    assert {finding.rules[1] for finding in conflicts[len(told) :]} <= {*unsure}
    others = [kind for kind in Kind if kind not in (Kind.CONFLICT, Kind.UNDECIDED)]
    assert limited.of(others) == exact.of(others)
    assert "conflicts with rules before it" in limited.of([Kind.UNDECIDED])[0].explanation


def test_rules_that_say_the_same_take_no_work() -> None:
    acl = Acl(tuple(tcp(f"r{place}", PERMIT, 80, 80) for place in range(500)))
    assert check(acl, Checks(limits=Limits(question=20, total=100))).counts == {Kind.DUPLICATE: 499}


@settings(max_examples=examples(80), deadline=None)
@given(acls(7, min_rules=4, with_groups=False, marked=True), check_settings)
def test_every_witness_witnesses(acl: Acl, checks: Checks) -> None:
    by_id = {rule.id: rule for rule in acl.rules}
    found = check(acl, checks)
    dead = {finding.rules[0] for finding in found if finding.kind in STRUCTURAL[:3]}
    alive = [rule for rule in acl.rules if rule.id not in dead]
    for finding in found:
        if finding.witness is None:
            assert finding.kind is Kind.NEVER
            continue
        subject = by_id[finding.rules[0]]
        assert not checks.own or is_own(finding.witness, subject.direction, checks)
        hits = [rule.id for rule in alive if rule.direction is subject.direction and matches(rule, finding.witness)]
        if finding.kind in (Kind.SHADOWED, Kind.DUPLICATE):
            assert matches(subject, finding.witness)
        elif finding.kind is Kind.REDUNDANT:
            assert hits[0] == subject.id
            assert set(finding.rules[1:]) <= {rule.id for rule in alive} | {RETURN_RULE_ID}
        elif finding.kind is Kind.CONFLICT:
            assert tuple(hits[:2]) == finding.rules


def matches(rule: Rule, packet: Packet) -> bool:
    return oracle.matches(rule, packet, {})


def prefix(text: str) -> Addresses:
    return Addresses((Prefix.parse(text),))


def tcp(name: str, action: Action, low: int, high: int, destination: str = "172.16.0.0/16") -> Rule:
    ports = (PortRange(low, high),)
    return Rule(RuleId(name), action, protocol=TCP, destination=prefix(destination), destination_ports=ports)


PERMIT, DENY = Action.PERMIT, Action.DENY


def kinds_of(*rules: Rule, **groups: tuple[str, ...]) -> list[tuple[str, tuple[str, ...]]]:
    named = {
        name: AddressGroup(GroupName(name), tuple(Prefix.parse(text) for text in texts))
        for name, texts in groups.items()
    }
    return [(finding.kind.value, finding.rules) for finding in check(Acl(rules, named))]


def test_a_rule_shadowed_by_a_union_names_every_rule_that_takes_some_of_it() -> None:
    assert kinds_of(
        tcp("low", PERMIT, 0, 100),
        tcp("else", PERMIT, 50000, 50001),
        tcp("high", PERMIT, 101, 200),
        tcp("in", DENY, 50, 150),
    ) == [("shadowed", ("in", "low", "high"))]


def test_a_rule_that_only_repeats_the_default_is_redundant_and_names_no_rule() -> None:
    (finding,) = check(Acl((tcp("no", DENY, 23, 23),)))
    assert (finding.kind, finding.rules) == (Kind.REDUNDANT, ("no",))
    assert "the default" in finding.explanation


def test_a_redundant_rule_names_the_rule_that_contains_it_and_not_one_that_shares_a_part() -> None:
    part, all_ports = tcp("part", PERMIT, 85, 100), tcp("all", PERMIT, 0, 65535)
    redundant = [f for f in kinds_of(tcp("r", PERMIT, 80, 90), part, all_ports) if f[0] == "redundant"]
    assert redundant == [("redundant", ("r", "all")), ("redundant", ("part", "all"))]


def test_a_rule_that_is_covered_in_one_ip_version_only_is_not_shadowed() -> None:
    ipv4 = Rule(RuleId("v4"), DENY, protocol=TCP, source=prefix("0.0.0.0/0"))
    both = Rule(RuleId("both"), PERMIT, protocol=TCP, destination_ports=(PortRange(80, 80),))
    assert kinds_of(ipv4, both) == [("conflict", ("v4", "both"))]


def test_rules_are_named_in_the_order_of_the_list_whatever_their_ip_version() -> None:
    both_versions = Rule(RuleId("both"), PERMIT, protocol=UDP)
    ipv6 = Rule(RuleId("v6"), PERMIT, source=prefix("2001:db8::/32"))
    assert ("shadowed", ("both", "v6", "all")) in kinds_of(ipv6, Rule(RuleId("all"), PERMIT), both_versions)


@pytest.mark.parametrize(
    ("earlier", "later", "kind", "severity"),
    [
        (None, None, "duplicate", Severity.WARNING),
        (None, TOMORROW, "duplicate", Severity.WARNING),
        (TOMORROW, TOMORROW, "duplicate", Severity.WARNING),
        (TOMORROW, None, "shadowed", Severity.NOTE),
        (TOMORROW, TOMORROW + dt.timedelta(days=1), "shadowed", Severity.NOTE),
    ],
)
def test_a_rule_is_a_duplicate_of_one_that_does_not_end_before_it(
    earlier: dt.datetime | None, later: dt.datetime | None, kind: str, severity: Severity
) -> None:
    web = tcp("web", PERMIT, 80, 80)
    rules = replace(web, expires=earlier), replace(web, id=RuleId("again"), expires=later)
    (found,) = check(Acl(rules), Checks(now=NOW))
    assert (found.kind.value, found.rules, found.severity) == (kind, ("again", "web"), severity)
    assert ("until 'web' ends on 2026-01-02 12:00 UTC" in found.explanation) is (severity is Severity.NOTE)


def test_of_several_equal_rules_the_first_that_lasts_is_named() -> None:
    web = tcp("web", PERMIT, 80, 80)
    others = [replace(web, id=RuleId(name), expires=end) for name, end in (("b", None), ("c", TOMORROW), ("d", None))]
    found = check(Acl((replace(web, expires=TOMORROW), *others)))
    assert [(each.kind.value, each.rules) for each in found] == [
        ("shadowed", ("b", "web")),
        ("duplicate", ("c", "web")),
        ("duplicate", ("d", "b")),
    ]


def test_what_ends_before_a_rule_shadows_it_or_spares_it_until_then() -> None:
    closed = replace(tcp("closed", DENY, 0, 65535), expires=TOMORROW)
    (shadowed,) = check(Acl((closed, tcp("web", PERMIT, 80, 80)))).of([Kind.SHADOWED])
    assert (shadowed.severity, "decides no packet" in shadowed.explanation) == (Severity.NOTE, True)
    opened = replace(tcp("all", PERMIT, 0, 1000), expires=TOMORROW)
    (redundant,) = check(Acl((tcp("web", PERMIT, 80, 80), opened))).of([Kind.REDUNDANT])
    assert redundant.explanation.endswith(", by 'all', until 'all' ends on 2026-01-02 12:00 UTC")


def test_packets_that_earlier_rules_decide_do_not_keep_a_rule_from_being_redundant() -> None:
    """Port 81 would fare otherwise without r, but it never comes to r."""
    found = kinds_of(
        tcp("earlier", DENY, 81, 81, "172.16.1.0/24"),
        tcp("r", PERMIT, 70, 90, "172.16.1.0/24"),
        tcp("later", DENY, 81, 81),
        tcp("all", PERMIT, 0, 65535),
    )
    assert ("redundant", ("r", "all")) in found


def test_a_rule_that_holds_down_a_shadowed_one_with_the_other_answer_is_not_redundant() -> None:
    """Without it the shadowed rule would deny port 80; when that is gone, it may go too."""
    web, shadowed, all_ports = tcp("web", PERMIT, 80, 80), tcp("no-web", DENY, 80, 80), tcp("all", PERMIT, 1, 1000)
    assert kinds_of(web, shadowed, all_ports) == [("shadowed", ("no-web", "web"))]
    assert kinds_of(web, all_ports) == [("redundant", ("web", "all"))]
    assert kinds_of(web, replace(shadowed, action=PERMIT), all_ports) == [
        ("redundant", ("web", "all")),
        ("duplicate", ("no-web", "web")),
    ]


def test_an_explicit_last_deny_is_not_redundant_where_return_traffic_would_pass() -> None:
    acl = Acl((Rule(RuleId("no"), DENY, protocol=TCP),))
    assert [finding.kind for finding in check(acl)] == [Kind.REDUNDANT]
    assert not check(acl, Checks(returns=ReturnTraffic.ESTABLISHED))


def test_a_stateless_rule_does_not_say_the_same_as_one_that_is_not_where_connections_are_tracked() -> None:
    stateless = replace(tcp("alone", PERMIT, 80, 80), stateless=True)
    acl, again = (Acl((rule, stateless)) for rule in (tcp("web", PERMIT, 80, 80), replace(stateless, id="web")))
    (finding,) = check(acl, Checks(returns=ReturnTraffic.TRACKED))
    assert (finding.kind, finding.severity) == (Kind.SHADOWED, Severity.ERROR)
    assert finding.weight.reason.endswith("rules before it are stateless, or only it is")
    for same in (check(acl), check(again, Checks(returns=ReturnTraffic.TRACKED))):
        assert [each.kind for each in same] == [Kind.DUPLICATE]


def test_a_stateless_deny_before_a_default_that_denies_is_not_redundant_where_connections_are_tracked() -> None:
    acl = Acl((replace(tcp("no", DENY, 23, 23), stateless=True),))
    assert [each.kind for each in check(acl)] == [Kind.REDUNDANT]
    assert not check(acl, Checks(returns=ReturnTraffic.TRACKED))


def test_an_exception_before_a_general_rule_is_no_conflict_but_a_partial_overlap_is() -> None:
    assert kinds_of(tcp("not", DENY, 80, 80), tcp("web", PERMIT, 1, 100)) == []
    assert kinds_of(tcp("not", DENY, 80, 120), tcp("web", PERMIT, 1, 100)) == [("conflict", ("not", "web"))]


def test_an_overlap_that_earlier_rules_have_decided_already_is_no_conflict() -> None:
    first = tcp("first", DENY, 70, 110)
    assert ("conflict", ("not", "web")) not in kinds_of(first, tcp("not", DENY, 80, 120), tcp("web", PERMIT, 1, 100))


def test_a_rule_over_an_empty_group_can_never_match() -> None:
    rule = Rule(RuleId("nobody"), PERMIT, source=Addresses((), ("gone",)))
    assert kinds_of(rule, gone=()) == [("never", ("nobody",))]


def test_why_a_rule_matches_nothing_is_told_as_it_is() -> None:
    def why(rule: Rule, own: str = "::/0") -> str:
        named = {"none": (), "v4": ("10.0.0.0/8",), "v6": ("2001:db8::/32",)}
        groups = {name: AddressGroup(GroupName(name), (*map(Prefix.parse, texts),)) for name, texts in named.items()}
        found = check(Acl((rule,), groups), Checks(own=(Prefix.parse(own), Prefix.parse("172.16.0.0/16"))))
        (told,) = [finding.explanation for finding in found if finding.kind is Kind.NEVER]
        return told.removeprefix("'r' can match nothing: ")

    def of(*groups: str, protocol: int | None = None, to: Addresses = ANY, fragments: bool = False) -> Rule:
        source = Addresses((), groups)
        return Rule(RuleId("r"), PERMIT, protocol=protocol, source=source, destination=to, fragments=fragments)

    assert why(of("none")) == "the group 'none' is empty"
    assert why(of("none", "v4", to=prefix("::/0"))) == "its source and its destination are of different IP versions"
    assert why(of("v6", protocol=ICMP)) == "icmp belongs to the other IP version than its addresses"
    assert why(of("v4", protocol=ICMPV6)) == "icmpv6 belongs to the other IP version than its addresses"
    assert why(of("v6", protocol=TCP, fragments=True)) == "an IPv6 later fragment does not show its protocol"
    assert why(of("v6", "none", to=Addresses((), ("v6",))), own="fc00::/7") == "none of its addresses are the tenant's"


def test_wide_looks_at_addresses_ports_and_who_may_open() -> None:
    def wide(*rules: Rule, **settings: int) -> list[RuleId]:
        found = check(Acl(rules), Checks(wide=Wide(**settings)))
        return [finding.rules[0] for finding in found if finding.kind is Kind.WIDE]

    everything = Rule(RuleId("all"), PERMIT)
    assert wide(everything) == ["all"]
    assert wide(tcp("web", PERMIT, 80, 443)) == []
    assert wide(tcp("web", PERMIT, 80, 443), ports=100) == ["web"]
    assert wide(Rule(RuleId("part"), PERMIT, protocol=UDP, source=prefix("192.0.2.0/24"))) == []
    assert wide(Rule(RuleId("part"), PERMIT, protocol=UDP, source=prefix("192.0.2.0/24")), prefix_length=24) == ["part"]
    assert wide(Rule(RuleId("replies"), PERMIT, protocol=TCP, established=True)) == []
    assert wide(Rule(RuleId("no-syn"), PERMIT, protocol=TCP, tcp_flags=FlagMatch(0, 2))) == []
    assert wide(Rule(RuleId("out"), PERMIT, Direction.EGRESS)) == [], "egress is permitted by default"
    assert wide(Rule(RuleId("deny"), DENY)) == []


def test_expiry_is_judged_at_the_time_given() -> None:
    end = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
    acl = Acl((Rule(RuleId("r"), PERMIT, protocol=47, expires=end),))
    assert [f.kind for f in check(acl, Checks(now=end))] == [Kind.EXPIRED]
    assert not check(acl, Checks(now=end - dt.timedelta(seconds=1)))
    assert not check(acl)


@pytest.mark.parametrize("count", [400])
def test_a_long_list_is_checked_with_columns_as_a_short_one_by_hand(count: int) -> None:
    """Enough rows that look-ups go through columns; the answer is known by construction."""
    hosts = [tcp(f"h{i}", PERMIT, i, i, f"172.16.{i // 250}.{i % 250}/32") for i in range(count)]
    covered = tcp("covered", DENY, 7, 7, "172.16.0.7/32")
    last = tcp("last", DENY, 0, 65535)
    found = check(Acl((*hosts, covered, last)), Checks(wide=None))
    assert [(f.kind, f.rules) for f in found] == [(Kind.SHADOWED, ("covered", "h7")), (Kind.REDUNDANT, ("last",))]


def test_a_thousand_rules_are_checked_in_two_seconds() -> None:
    ruleset = DATA / "classbench" / "fw1_1k.rules"
    if not ruleset.exists():
        pytest.skip(f"there is no {ruleset}: ACLFLOW_DATA names a folder with ClassBench sets")
    acl = read(ruleset.read_bytes(), "classbench", options=Options(classbench_action=None)).acl
    assert len(acl.rules) > 800
    found = check(acl)
    assert len([finding for finding in found if finding.kind is Kind.CONFLICT]) > 1000
