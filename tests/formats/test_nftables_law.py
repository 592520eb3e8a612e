"""nftables: the reader against a walk of the ruleset, the writer against both, for random rulesets and packets."""

from __future__ import annotations

import json
import random

from formats.iptables_texts import LONGEST_TEXT, packets_at, permits, seeds, some_corners
from formats.iptables_walk import World
from formats.nftables_texts import rulesets
from formats.nftables_walk import Walk
from hypothesis import HealthCheck, assume, given, settings
from law_examples import examples
from strategies import acls

from orchestrator.policy.addresses import Family
from orchestrator.policy.formats.registry import read, write
from orchestrator.policy.formats.results import Options
from orchestrator.policy.model import Acl, Action, Direction, ReturnTraffic
from orchestrator.policy.oracle import ask

BUDGET = examples(300, fixed=40)
slow = settings(max_examples=BUDGET, deadline=None, suppress_health_check=list(HealthCheck))
HOOKS = ((Direction.INGRESS, "forward"), (Direction.EGRESS, "output"))


def both_versions(imported, seed):
    return [packet for family in Family for packet in packets_at(imported, family, seed, least=25)]


@slow
@given(rulesets(), seeds)
def test_a_ruleset_without_the_unseen_is_read_exactly(text: str, seed: int) -> None:
    imported = read(text, "nftables")
    walk = Walk.of(text)
    for packet in both_versions(imported, seed):
        theirs = {walk.permits("forward", packet, World(hidden_protocol=number)) for number in (6, 17, 58, 47)}
        ours = permits(imported, packet)
        assert ours <= min(theirs) if packet.later_fragment or not imported.exact else {ours} == theirs, packet


@slow
@given(rulesets(with_unseen=True, with_states=True), seeds)
def test_nothing_is_permitted_that_the_ruleset_denies(text: str, seed: int) -> None:
    """In any world: whichever unseen matches hold, in whatever state the connection is."""
    imported = read(text, "nftables")
    walk = Walk.of(text)
    dice = random.Random(seed)
    numbers = walk.numbers()
    for packet in both_versions(imported, seed):
        state = dice.choice(("NEW", "ESTABLISHED", "RELATED", "INVALID"))
        world = World(state, frozenset(dice.sample(numbers, len(numbers) // 2)), dice.choice((6, 17, 58, 47)))
        assert permits(imported, packet) <= walk.permits("forward", packet, world), (packet, world)


@slow
@given(rulesets(with_unseen=True, with_states=True))
def test_import_export_import_is_a_fixed_point(text: str) -> None:
    once = read(text, "nftables", options=Options(stateless=True))
    exported = write(once.acl, "nftables")
    assume(len(exported.text) < LONGEST_TEXT)
    again = read(exported.text, "nftables")
    if exported.exact:
        assert (again.losses, again.acl) == ((), once.acl)


@slow
@given(acls(max_rules=5))
def test_what_is_written_decides_as_the_list_does(acl: Acl) -> None:
    exported = write(acl, "nftables")
    walk = Walk.of(exported.text)
    for packet in some_corners(acl):
        for direction, hook in HOOKS:
            ours = ask(acl, packet, direction, ReturnTraffic.EXPLICIT).action is Action.PERMIT
            theirs = {walk.permits(hook, packet, World(hidden_protocol=number)) for number in (6, 17, 58, 47)}
            assert theirs == {ours} if exported.exact else max(theirs) <= ours, (packet, direction)


def test_the_text_replaces_one_table_with_an_object_a_line() -> None:
    lines = write(Acl(), "nftables").text.splitlines()
    objects = [json.loads(line.rstrip(",")) for line in lines[1:-1]]
    assert (lines[0], lines[-1]) == ('{"nftables": [', "]}")
    assert [next(iter(one)) for one in objects] == ["metainfo", "add", "delete", "add", "add"]
    assert objects[-1]["add"]["chain"]["policy"] == "drop"
