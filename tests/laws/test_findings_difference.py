"""A difference is exactly the packets whose fate changes, each in one box, with the rules that decide it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from law_examples import examples
from strategies import OWNED, acls, corner_packets_of, packet_kinds

from orchestrator.errors import TooLarge
from orchestrator.policy import difference as difference_module
from orchestrator.policy import oracle
from orchestrator.policy.addresses import Addresses, Prefix
from orchestrator.policy.cover import Limits
from orchestrator.policy.difference import Change, Difference, difference, operator_difference
from orchestrator.policy.model import Acl, Action, Direction, Packet, ReturnTraffic, Rule, RuleId
from orchestrator.policy.ports import EVERY_PORT, PortRange
from orchestrator.policy.protocols import TCP, UDP
from orchestrator.policy.rulelist import DEFAULT_ID

MOST_KINDS = 8_000


@st.composite
def edits(draw: DrawFn, max_rules: int) -> tuple[Acl, Acl]:
    """A list and another that shares most of it: rules taken out, moved, turned round or added; or defaults changed."""
    before = draw(acls(max_rules, min_rules=1, with_groups=False, marked=True))
    rules = list(before.rules)
    for _ in range(draw(st.integers(0, 3))):
        what = draw(st.sampled_from(("remove", "swap", "turn", "add", "mark", "defaults")))
        place = draw(st.integers(0, max(len(rules) - 1, 0)))
        if what == "add":
            more = draw(acls(1, min_rules=1, with_groups=False)).rules
            rules[place:place] = [replace(rule, id=RuleId(f"new{len(rules)}")) for rule in more]
        elif what == "defaults":
            before = replace(before, ingress_default=Action.PERMIT, egress_default=Action.DENY)
        elif rules and what == "remove":
            del rules[place]
        elif rules and what == "swap":
            rules.append(rules.pop(place))
        elif rules and what == "mark":
            rules[place] = replace(rules[place], stateless=not rules[place].stateless)
        elif rules:
            turned = Action.DENY if rules[place].action is Action.PERMIT else Action.PERMIT
            rules[place] = replace(rules[place], action=turned)
    changed = [rule for index, rule in enumerate(rules) if rule.id not in {other.id for other in rules[:index]}]
    return before, Acl(tuple(changed), {}, draw(st.sampled_from(list(Action))), before.egress_default)


def in_world(packet: Packet, direction: Direction, own: tuple[Prefix, ...]) -> bool:
    ours = packet.destination if direction is Direction.INGRESS else packet.source
    return not own or any(prefix.family is packet.family and prefix.holds(ours) for prefix in own)


def judge(before: Acl, after: Acl, kinds: list[Packet], own: tuple[Prefix, ...], returns: ReturnTraffic) -> None:
    found = difference(before, after, own=own, returns=returns)
    for direction in Direction:
        permitted = [change for change in found.permitted if change.direction is direction]
        denied = [change for change in found.denied if change.direction is direction]
        marked = [
            [change for change in changes if change.direction is direction]
            for changes in (found.stateless, found.tracked)
        ]
        deciders: dict[int, tuple[set[RuleId], set[RuleId]]] = {}
        for packet in kinds:
            old = oracle.ask(before, packet, direction, returns)
            new = oracle.ask(after, packet, direction, returns)
            now_in = [change for change in permitted if says(change, packet, before, after, returns)]
            now_out = [change for change in denied if says(change, packet, before, after, returns)]
            changes = old.action is not new.action and in_world(packet, direction, own)
            assert len(now_in) == (changes and new.action is Action.PERMIT)
            assert len(now_out) == (changes and new.action is Action.DENY)
            were, are = (
                returns is ReturnTraffic.TRACKED and is_stateless(*each) for each in ((before, old), (after, new))
            )
            remarked = [[each for each in some if says(each, packet, before, after, returns)] for some in marked]
            expected = were is not are and not changes and in_world(packet, direction, own)
            assert [len(some) for some in remarked] == [expected and are, expected and were]
            for change in now_in + now_out + remarked[0] + remarked[1]:
                sides = deciders.setdefault(id(change), (set(), set()))
                sides[0].add(old.rule or DEFAULT_ID)
                sides[1].add(new.rule or DEFAULT_ID)
        for change in (*permitted, *denied, *marked[0], *marked[1]):
            assert says(change, change.witness, before, after, returns)
            assert_deciders(change, deciders.get(id(change)), whole=len(kinds) > 500)


def is_stateless(acl: Acl, step: oracle.Step) -> bool:
    return any(rule.id == step.rule and rule.stateless for rule in acl.rules)


def says(change: Change, packet: Packet, before: Acl, after: Acl, returns: ReturnTraffic) -> bool:
    """Whether a change speaks of a packet."""
    less = ((before, change.less_before), (after, change.less_after))
    return change.box.holds(packet) and not any(
        oracle.matches(rule, packet, acl.groups)
        for acl, names in less
        for rule in (*acl.rules, *oracle.return_rules(returns))
        if rule.id in names
    )


@pytest.fixture(params=["cut", "told as pairs"])
def told(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways of telling: as boxes, and, where that would be too many, as pairs of rules."""
    if request.param != "cut":
        monkeypatch.setattr(difference_module, "MOST_CUTS", 0)


def assert_deciders(change: Change, seen: tuple[set[RuleId], set[RuleId]] | None, *, whole: bool) -> None:
    """The rules a change names are those that decided its packets: all of them where every kind was tried."""
    if seen is None:
        return
    assert seen[0] <= set(change.before)
    assert seen[1] <= set(change.after)
    if whole:
        assert seen == (set(change.before), set(change.after))


worlds = st.sampled_from(((), (), OWNED))
return_traffic = st.sampled_from(list(ReturnTraffic))


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edits(3), worlds, return_traffic)
@pytest.mark.usefixtures("told")
def test_a_difference_is_exact_on_every_kind_of_packet(
    two: tuple[Acl, Acl], own: tuple[Prefix, ...], returns: ReturnTraffic
) -> None:
    kinds = packet_kinds(*two, prefixes_too=own)
    assume(500 < len(kinds) <= MOST_KINDS)
    judge(*two, kinds, own, returns)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edits(9), return_traffic)
@pytest.mark.usefixtures("told")
def test_a_difference_of_longer_lists_is_exact_at_their_corners(two: tuple[Acl, Acl], returns: ReturnTraffic) -> None:
    judge(*two, list(corner_packets_of(*two))[:500], (), returns)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edits(5), return_traffic)
@pytest.mark.usefixtures("told")
def test_what_operators_decide_otherwise_is_exact(two: tuple[Acl, Acl], returns: ReturnTraffic) -> None:
    """Each packet is told once for what decides it from now on, and once for what decides it no more."""
    before, after = (Acl(acl.rules) for acl in two)
    found = operator_difference(before, after, returns)
    for direction in Direction:
        for packet in list(corner_packets_of(before, after))[:500]:
            was, now = (oracle.first_match(acl.rules, packet, direction, {}) for acl in (before, after))
            remarked = was and now and was.stateless is not now.stateless and returns is ReturnTraffic.TRACKED
            stays = was and now and was.action is now.action
            expected = {
                "decided": None
                if not now
                else now.action.value
                if not stays
                else _MARKS[now.stateless]
                if remarked
                else None,
                "left": was.action.value if was and not stays else None,
            }
            told = {
                "decided": _fates(found.decided, packet, direction, before, after),
                "left": [_UNDONE[fate] for fate in _fates(found.left, packet, direction, before, after)],
            }
            assert told == {which: [fate] if fate else [] for which, fate in expected.items()}


def test_an_operators_mark_counts_between_rules_and_not_at_a_default() -> None:
    tracked = ReturnTraffic.TRACKED
    for action in Action:
        plain = rule("one", action, UDP)
        marked = replace(plain, stateless=True)
        found = operator_difference(Acl((plain,)), Acl((marked,)), tracked)
        assert [len(changes) for _, changes in found.decided.by_fate] == [0, 0, 1, 0]
        assert not found.left
        assert not operator_difference(Acl((plain,)), Acl((marked,)), ReturnTraffic.ESTABLISHED).decided
        gone = operator_difference(Acl((marked,)), Acl(()), tracked)
        assert not gone.decided
        assert sum(len(changes) for _, changes in gone.left.by_fate) == 1


_MARKS = {True: "stateless", False: "tracked"}
_UNDONE = {"permit": "deny", "deny": "permit"}


def _fates(found: Difference, packet: Packet, direction: Direction, before: Acl, after: Acl) -> list[str]:
    return [
        fate
        for fate, changes in found.by_fate
        for change in changes
        if change.direction is direction and says(change, packet, before, after, ReturnTraffic.EXPLICIT)
    ]


@settings(max_examples=examples(30), deadline=None)
@given(acls(9))
def test_a_list_does_not_differ_from_itself(acl: Acl) -> None:
    assert not difference(acl, acl)


@settings(max_examples=examples(60), deadline=None)
@given(edits(6))
def test_forth_and_back_are_mirror_images(two: tuple[Acl, Acl]) -> None:
    forth, back = difference(*two), difference(*reversed(two))
    assert [change.box for change in forth.permitted] == [change.box for change in back.denied] or {
        packet for packet in corner_packets_of(*two) if any(c.box.holds(packet) for c in forth.permitted)
    } == {packet for packet in corner_packets_of(*two) if any(c.box.holds(packet) for c in back.denied)}


PERMIT, DENY = Action.PERMIT, Action.DENY
INNER = Addresses((Prefix.parse("172.16.1.0/24"),))


def rule(name: str, action: Action, protocol: int | None = None, *ports: PortRange) -> Rule:
    return Rule(RuleId(name), action, protocol=protocol, destination=INNER, destination_ports=ports or EVERY_PORT)


def test_a_widened_rule_shows_only_what_it_gained() -> None:
    before = Acl((rule("web", PERMIT, TCP, PortRange(80, 80)),))
    after = Acl((rule("web", PERMIT, TCP, PortRange(80, 443)), rule("dns", PERMIT, UDP, PortRange(53, 53))))
    found = difference(before, after)
    assert found.denied == ()
    assert [(change.before, change.after) for change in found.permitted] == [
        ((DEFAULT_ID,), ("web",)),
        ((DEFAULT_ID,), ("dns",)),
    ]
    assert found.permitted[0].box.destination_ports == ((81, 443),)


def test_two_halves_of_one_rule_are_no_difference() -> None:
    whole = Acl((rule("all", PERMIT, TCP, PortRange(0, 100)),))
    halves = Acl((rule("a", PERMIT, TCP, PortRange(0, 49)), rule("b", PERMIT, TCP, PortRange(50, 100))))
    assert not difference(whole, halves)


def test_a_rule_moved_past_another_shows_their_overlap() -> None:
    yes, no = rule("yes", PERMIT, TCP, PortRange(0, 90)), rule("no", DENY, TCP, PortRange(80, 100))
    others = [rule(f"o{port}", PERMIT, UDP, PortRange(port, port)) for port in range(1, 9, 2)]
    before, after = Acl((yes, *others, no)), Acl((*others, no, yes))
    found = difference(before, after)
    assert [change.box.destination_ports for change in found.denied] == [((80, 90),)]
    assert (found.denied[0].before, found.denied[0].after) == (("yes",), ("no",))
    assert found.permitted == ()


def test_a_change_that_opens_everything_is_one_box_in_each_ip_version() -> None:
    found = difference(Acl(), Acl((Rule(RuleId("any"), PERMIT),)))
    assert len(found.permitted) == 2
    assert all(change.before == (DEFAULT_ID,) and change.after == ("any",) for change in found.permitted)


def test_a_rule_that_gets_its_mark_is_told_where_connections_are_tracked() -> None:
    plain = Acl((rule("web", PERMIT, TCP, PortRange(80, 80)),))
    marked = Acl((replace(plain.rules[0], stateless=True),))
    found = difference(plain, marked, returns=ReturnTraffic.TRACKED)
    assert [(change.before, change.after) for change in found.stateless] == [(("web",), ("web",))]
    assert (found.permitted, found.denied, found.tracked) == ((), (), ())
    back = difference(marked, plain, returns=ReturnTraffic.TRACKED)
    assert (back.tracked, back.stateless) == (found.stateless, ())
    assert not difference(plain, marked), "where nothing is tracked the mark has no effect"


def test_lists_with_nothing_in_common_are_refused_instead_of_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(difference_module, "MOST_CHANGES", 3)
    many = Acl(tuple(rule(f"p{port}", PERMIT, TCP, PortRange(port, port)) for port in range(0, 20, 2)))
    with pytest.raises(TooLarge, match="separate regions"):
        difference(Acl(), many)


def test_what_a_limit_leaves_open_is_refused_and_not_guessed() -> None:
    before, after = Acl((rule("a", PERMIT, TCP),)), Acl((rule("a", DENY, TCP),))
    assert difference(before, after)
    with pytest.raises(TooLarge, match="separate regions"):
        difference(before, after, limits=Limits(question=0, total=0))


def test_a_region_with_many_holes_is_one_change_that_names_what_makes_them() -> None:
    """Every second port is denied before: the rest, no short list of boxes together with other fields, is told less."""
    holes = [
        replace(
            rule(f"h{port}", DENY, TCP, PortRange(port, port)), source=Addresses((Prefix.parse(f"10.{port}.0.0/16"),))
        )
        for port in range(1, 99, 2)
    ]
    web = rule("web", PERMIT, TCP)
    found = difference(Acl((*holes, web)), Acl((*holes, replace(web, action=DENY))))
    (change,) = found.denied
    assert found.permitted == ()
    assert (change.before, change.after) == (("web",), ("web",))
    assert change.less_before == change.less_after == tuple(hole.id for hole in holes)


def test_rules_with_the_packets_of_an_earlier_one_take_no_work_and_are_not_told() -> None:
    yes, no = (
        Acl(tuple(rule(f"r{place}", action, TCP, PortRange(80, 80)) for place in range(500))) for action in Action
    )
    found = difference(yes, no, limits=Limits(question=20, total=100))
    assert [(change.before, change.after) for change in found.denied] == [(("r0",), ("r0",))]
    assert found.permitted == ()
