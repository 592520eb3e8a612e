"""The ledger of a chaos run: which arrivals are right. And marks, worlds, steps."""

from __future__ import annotations

import importlib
import struct

from orchestrator.enforce.drivers.openflow import frames
from orchestrator.lab.chaos import faults
from orchestrator.lab.chaos.ledger import Arrival, Ledger
from orchestrator.lab.chaos.prober import mark, read_mark
from orchestrator.lab.chaos.steps import STEPS
from orchestrator.lab.chaos.world import FIRST, TENANTS, World
from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Packet
from orchestrator.policy.protocols import UDP

OLD, NEW, OTHER = 1 << 0, 1 << 1, 1 << 2
RECEIVERS = {0: "web", 1: "web", 2: "web"}


def wrong(ledger: Ledger, kind: int, sent: int, seen: int, node: str = "web") -> bool:
    return bool(ledger.wrong({Arrival(kind, node, sent, seen): 1}, RECEIVERS))


def test_only_a_version_that_may_be_in_force_explains_an_arrival() -> None:
    ledger = Ledger(OLD, generation=1)
    before = ledger.moment
    new = ledger.begin(NEW)
    begun = ledger.moment
    assert not wrong(ledger, 0, before, before)
    assert wrong(ledger, 1, begun, begun), "a write whose fate is unknown explains nothing"
    ledger.commit(new, generation=2)
    assert not wrong(ledger, 1, begun, begun)
    assert not wrong(ledger, 1, before, begun), "it may have met the new version on its way"
    assert wrong(ledger, 1, before, before), "it arrived before the write began"
    ledger.enforce(2)
    after = ledger.moment
    assert wrong(ledger, 0, after, after), "all hosts hold the new version"
    assert not wrong(ledger, 0, begun, after), "it was sent before"
    assert wrong(ledger, 1, begun, begun, node="db"), "it came to another node"


def test_a_write_that_was_never_committed_explains_nothing() -> None:
    ledger = Ledger(OLD, generation=1)
    never, then = ledger.begin(OTHER), ledger.begin(NEW)
    ledger.refuse(never)
    ledger.commit(then, generation=2)
    assert wrong(ledger, 2, ledger.moment, ledger.moment)
    assert not wrong(ledger, 1, ledger.moment, ledger.moment)


def test_a_version_that_is_known_late_is_over_at_once_where_all_hosts_hold_a_later_one() -> None:
    ledger = Ledger(OLD, generation=1)
    first, second = ledger.begin(NEW), ledger.begin(OTHER)
    ledger.commit(second, generation=3)
    ledger.enforce(3)
    ledger.commit(first, generation=2)
    assert wrong(ledger, 1, ledger.moment, ledger.moment)
    assert ledger.newest.permits == OTHER


def test_a_mark_keeps_the_checksum_of_zeros() -> None:
    zeros = bytes(len(mark(0, 0, 0)))
    for said in ((0, 0, 0), (103, 70_000, 12), (5, 2**32 - 1, 2**32 - 1)):
        marked = mark(*said)
        words = sum(struct.unpack(f"!{len(marked) // 2}H", marked))
        assert words % 0xFFFF == 0
        plain = frames.frame(Packet(Family.IPV4, 1, 2, UDP, 3, 4), src_mac=1, dst_mac=2, payload=zeros)
        assert read_mark(plain[: -len(zeros)] + marked) == said
        assert read_mark(plain) is None


def test_every_list_permits_what_it_must_and_the_seed_decides_the_rest() -> None:
    worlds = [World(seed) for seed in (1, 1, 2)]
    stories = []
    for world in worlds:
        lists = dict.fromkeys(TENANTS, FIRST)
        story = []
        for _ in range(20):
            tenant = world.draw.choice(TENANTS)
            lists[tenant] = world.acl(lists[tenant])
            story.append(world.permits(lists))
        stories.append(story)
        always = sum(1 << kind.number for kind in world.kinds if kind.is_always)
        forged = sum(1 << kind.number for kind in world.kinds if kind.is_forged)
        assert all(permits & always == always and not permits & forged for permits in story)
    assert stories[0] == stories[1] != stories[2]
    assert len(set(stories[0])) > 10, "lists differ in what they permit"


def test_every_step_is_a_function_of_the_program() -> None:
    for command, steps in STEPS.items():
        for place in steps.values():
            module, _, path = place.partition(":")
            owner, _, name = path.rpartition(".")
            assert callable(getattr(getattr(importlib.import_module(module), owner), name)), (command, place)


def test_every_process_is_killed_and_every_way_of_messages_broken() -> None:
    names = [fault.name for fault in faults.matrix()]
    assert len(set(names)) == len(names)
    for part in ("service", "controller", "ovs-vswitchd", "ovsdb-server", "agent-fw1"):
        assert f"killed: {part}" in names
    for part in ("service", "controller", "agent-fw1"):
        assert f"paused: {part}" in names
    for way in ("writer to service", "enforcers to service", "switches to controller"):
        for what in ("cut", "late", "twice", "lose answers"):
            assert f"{what}: {way}" in names
    assert {"the database is gone", "the service's disk is full"} <= set(names)
