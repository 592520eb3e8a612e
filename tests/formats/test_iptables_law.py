"""iptables import against an independent walk of the same chains, at the corners of the rules."""

from __future__ import annotations

from dataclasses import replace

import pytest
from formats.iptables_texts import LONGEST_TEXT, is_established, packets_at, permits, rulesets, seeds, some_corners
from formats.iptables_walk import Ruleset, World
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from law_examples import examples
from strategies import FAR_POOL, acls

from orchestrator.policy.addresses import ANY, Addresses, Family
from orchestrator.policy.formats.registry import read, write
from orchestrator.policy.formats.results import Options
from orchestrator.policy.model import Acl, Action, Direction, ReturnTraffic, Rule, RuleId
from orchestrator.policy.oracle import ask

slow = settings(max_examples=examples(80), deadline=None, suppress_health_check=list(HealthCheck))


@slow
@given(rulesets(), seeds)
def test_what_can_be_seen_is_read_exactly(text: str, seed: int) -> None:
    imported = read(text, "iptables")
    walked = Ruleset.of(text)
    for packet in packets_at(imported, Family.IPV4, seed):
        ours, theirs = permits(imported, packet), walked.permits("FORWARD", packet, World())
        assert ours == theirs if imported.exact else ours <= theirs, (packet, imported.losses)


@slow
@given(rulesets(unseen=True, states=True), seeds, st.data())
def test_the_approximation_never_permits_what_the_original_denies(text: str, seed: int, data: st.DataObject) -> None:
    imported = read(text, "iptables")
    walked = Ruleset.of(text)
    state = data.draw(st.sampled_from(("NEW", "ESTABLISHED", "RELATED", "INVALID", "UNTRACKED")))
    world = World(state, frozenset(data.draw(st.sets(st.sampled_from(walked.numbers())))))
    for packet in packets_at(imported, Family.IPV4, seed):
        ours, theirs = permits(imported, packet), walked.permits("FORWARD", packet, world)
        assert ours == theirs if imported.exact else ours <= theirs, (packet, world)


@slow
@given(rulesets(family=Family.IPV6, unseen=True), seeds, st.data())
def test_ip6tables_and_the_fragments_that_hide_their_protocol(text: str, seed: int, data: st.DataObject) -> None:
    imported = read(text, "ip6tables")
    walked = Ruleset.of(text)
    holds = frozenset(data.draw(st.sets(st.sampled_from(walked.numbers()))))
    world = World(holds=holds, hidden_protocol=data.draw(st.sampled_from((6, 17, 58, 50, 47))))
    for packet in packets_at(imported, Family.IPV6, seed):
        ours, theirs = permits(imported, packet), walked.permits("FORWARD", packet, world)
        exact = imported.exact and not packet.later_fragment
        assert ours == theirs if exact else ours <= theirs, (packet, world)


@slow
@given(rulesets(states=True), seeds)
def test_stateless_holds_where_states_follow_the_flags(text: str, seed: int) -> None:
    """With the option, and no loss left, the list is exact in the world where ACK and RST tell established packets."""
    imported = read(text, "iptables", options=Options(stateless=True))
    walked = Ruleset.of(text)
    for packet in packets_at(imported, Family.IPV4, seed):
        world = World("ESTABLISHED" if is_established(packet) else "NEW")
        ours, theirs = permits(imported, packet), walked.permits("FORWARD", packet, world)
        assert ours == theirs if imported.exact else ours <= theirs, (packet, imported.notes)


@slow
@given(rulesets(unseen=True, states=True), st.booleans())
def test_import_export_import_is_a_fixed_point(text: str, stateless: bool) -> None:
    imported = read(text, "iptables", options=Options(stateless=stateless))
    for name in ("iptables", "cisco", "native"):
        exported = write(imported.acl, name)
        if len(exported.text) > LONGEST_TEXT:
            continue
        again = read(exported.text, name)
        if exported.exact:
            assert again.exact, again.losses
            assert again.acl == imported.acl


@slow
@given(rulesets(), seeds, st.sampled_from(("iptables", "cisco")))
def test_what_is_written_says_what_the_list_says(text: str, seed: int, name: str) -> None:
    imported = read(text, "iptables")
    exported = write(imported.acl, name)
    assume(len(exported.text) < LONGEST_TEXT)
    again = read(exported.text, name)
    for packet in packets_at(imported, Family.IPV4, seed):
        ours, theirs = permits(imported, packet), permits(again, packet)
        assert ours == theirs if exported.exact else theirs <= ours, packet


@pytest.mark.parametrize("name", ["iptables", "ip6tables"])
@slow
@given(acls(max_rules=4))
def test_what_is_written_decides_as_the_list_does(name: str, acl: Acl) -> None:
    """On the walk, whatever protocol a later fragment hides, and whether a whole packet is one or a first fragment."""
    check_written(name, acl)


PLAIN_RULES = st.builds(
    Rule,
    st.just(RuleId("r")),
    st.sampled_from(Action),
    st.just(Direction.INGRESS),
    st.sampled_from((None, 6, 47, 58)),
    st.sampled_from((ANY, Addresses((FAR_POOL[-1],)))),
)


@pytest.mark.parametrize("name", ["iptables", "ip6tables"])
@slow
@given(st.lists(PLAIN_RULES, min_size=1, max_size=3))
def test_what_is_written_of_protocols_decides_as_the_list_does(name: str, rules: list[Rule]) -> None:
    """Where rules name little but protocols, the fragments of a packet are what is easily got wrong."""
    check_written(name, Acl(tuple(replace(rule, id=RuleId(f"r{index}")) for index, rule in enumerate(rules))))


def check_written(name: str, acl: Acl) -> None:
    family = Family.IPV4 if name == "iptables" else Family.IPV6
    exported = write(acl, name)
    walked = Ruleset.of(exported.text)
    protocols = {rule.protocol for rule in acl.rules if rule.protocol is not None} | {6}
    worlds = [World(hidden_protocol=number, first_fragment=first) for number in protocols for first in (False, True)]
    for packet in some_corners(acl):
        if packet.family is not family:
            continue
        for direction, chain in ((Direction.INGRESS, "FORWARD"), (Direction.EGRESS, "OUTPUT")):
            ours = ask(acl, packet, direction, ReturnTraffic.EXPLICIT).action is Action.PERMIT
            theirs = {walked.permits(chain, packet, world) for world in worlds}
            assert theirs == {ours} if exported.exact else max(theirs) <= ours, (packet, direction)
