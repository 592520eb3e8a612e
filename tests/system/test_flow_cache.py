"""A flow cache before a packet filter, real packets: verdicts and counters, while policies change, and after kills."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from compiled_filter import counted_under
from system.cached_filter import STEPS, Cached, policy_at
from system.test_same_verdicts import MIXED, MIXED_POP, TENANT, between, routable

from orchestrator.bench.rulesets import synthetic
from orchestrator.compile.filters.flowcache import MOST_ROWS
from orchestrator.enforce.drivers.bpf.kernel import KernelCache
from orchestrator.enforce.drivers.openflow import frames
from orchestrator.lab.aims import aims
from orchestrator.lab.expect import policy_of
from orchestrator.lab.layout import Layout
from orchestrator.lab.router import LEFT, RIGHT, ROUTER, Router, ethernet
from orchestrator.placement.lifting import LiftedRule
from orchestrator.policy.addresses import EVERY_IPV4, EVERY_IPV6, Family
from orchestrator.policy.model import Packet, Policy, ReturnTraffic, Tenant, TenantId
from orchestrator.policy.oracle import decide
from orchestrator.policy.protocols import UDP
from orchestrator.wire.firewalls import Plane

RULES, CHOSEN = 2000, 60


@pytest.fixture
def router(layout: Layout) -> Iterator[Router]:
    with Router(layout.prefix) as router:
        yield router


def cached(layout: Layout, plane: Plane = Plane.IPTABLES) -> Cached:
    return Cached(f"{layout.prefix}{ROUTER}", plane)


def check(router: Router, running: Cached, policy: Policy, packets: list[Packet]) -> None:
    """Verdicts and counters against the oracle, all counters at zero before."""
    decisions = [decide(policy, packet) for packet in packets]
    seen = router.fire(packets)
    wrong = [each for each in zip(packets, decisions, seen, strict=True) if each[1].permitted != each[2]]
    assert wrong == []
    wanted = Counter(name for decision in decisions for name in counted_under(policy, decision))
    assert running.packets() == wanted


@pytest.mark.parametrize("plane", [Plane.NFTABLES, Plane.IPTABLES])
def test_a_mixed_list_with_fragments_and_both_versions(layout: Layout, router: Router, plane: Plane) -> None:
    policy = policy_of(MIXED_POP, {TENANT: MIXED})
    packets = [packet for packet in routable(policy) if between(policy, packet)]
    running = cached(layout, plane)
    running.enforce(running.program(policy, 1))
    check(router, running, policy, packets)
    by_cache = running.cached_packets()
    assert 100 < sum(by_cache.values()) < len(packets)
    assert {packet.family for packet in packets} == set(Family)
    assert any(packet.later_fragment for packet in packets)


@pytest.mark.parametrize("plane", [Plane.NFTABLES, Plane.IPTABLES])
def test_two_thousand_rules_with_denies_above_permits(layout: Layout, router: Router, plane: Plane) -> None:
    acl = synthetic(RULES)
    numbers: dict[str, int] = {rule.id: number for number, rule in enumerate(acl.rules, 1)}
    policy = Policy((Tenant(TenantId("lab"), 1, (EVERY_IPV4, EVERY_IPV6), acl, numbers),))
    packets = [aim.packet for aim in aims(acl, ReturnTraffic.ESTABLISHED, 120)]
    popular = [
        LiftedRule(TenantId("lab"), aim.rule) for aim in aims(acl, ReturnTraffic.ESTABLISHED, CHOSEN) if aim.rule
    ]
    running = cached(layout, plane)
    program = running.program(policy, 1, popular)
    running.enforce(program)
    check(router, running, policy, packets)
    assert sum(running.cached_packets().values()) > CHOSEN / 2
    held = running.inside(running.kernel.read)
    assert held is not None
    assert len(held.rows) <= 2 * MOST_ROWS
    assert {row.verdict.name for row in held.rows} >= {"PERMIT", "DENY"}


FROM = {"low": 0xC0000201, "high": 0xC00002C8}
TO = 0xC6336401


def packet(source: str, port: int) -> Packet:
    return Packet(Family.IPV4, FROM[source], TO, UDP, 4000, port)


LOW, HIGH, ALWAYS, NEVER = packet("low", 80), packet("high", 80), packet("low", 443), packet("high", 81)


def test_policies_change_under_traffic(layout: Layout, router: Router) -> None:
    """What both policies permit is never lost, what neither permits never passes, and what was enforced holds."""
    running = cached(layout)
    running.enforce(running.program(policy_at(1), 1))
    trouble: list[BaseException] = []

    def change() -> None:
        try:
            for generation in range(2, 22):
                running.enforce(running.program(policy_at(generation), generation))
        except BaseException as error:  # noqa: BLE001
            trouble.append(error)

    changing = threading.Thread(target=change)
    changing.start()
    shots = 0
    while changing.is_alive():
        seen = router.fire([ALWAYS, NEVER, LOW, HIGH] * 400)
        shots += 1
        assert all(seen[0::4])
        assert not any(seen[1::4])
    changing.join()
    assert trouble == []
    assert shots > 3
    assert running.cached_packets()["rule 3"] > 400
    for generation in range(22, 30):
        running.enforce(running.program(policy_at(generation), generation))
        assert router.fire([ALWAYS, NEVER, LOW, HIGH]) == [True, False, bool(generation % 2), not generation % 2]


@pytest.mark.parametrize("step", STEPS)
def test_killed_in_the_middle_of_a_change(layout: Layout, router: Router, step: str) -> None:
    """The cache is closed, or of the policy that the filter holds; whoever comes next goes on and counts on."""
    running = cached(layout)
    running.enforce(running.program(policy_at(1), 1))
    router.fire([ALWAYS] * 5)
    before = running.cached_packets()
    assert before["rule 3"] == 5
    kill_at(step, f"{layout.prefix}{ROUTER}", generation=2)
    after = Cached.__new__(Cached)
    after.__dict__.update(running.__dict__, kernel=KernelCache((LEFT, RIGHT)))
    filters, caches = after.stamps()
    assert filters is not None
    assert caches in (None, filters)
    assert caches is None or step in ("closing", "opened", "read back")
    now = filters.generation
    assert now == (1 if step in ("closing", "closed") else 2)
    wanted = [True, False, bool(now % 2), not now % 2]
    assert router.fire([ALWAYS, NEVER, LOW, HIGH]) == wanted
    next_one = cached(layout)
    assert next_one.stamps()[1] is None
    next_one.enforce(next_one.program(policy_at(3), 3))
    assert router.fire([ALWAYS, NEVER, LOW, HIGH]) == [True, False, True, False]
    found = next_one.cached_packets()
    assert all(found[name] >= count for name, count in before.items())
    assert found["rule 3"] > before["rule 3"]


def kill_at(step: str, namespace: str, generation: int) -> None:
    """A process of its own begins to enforce a policy and is killed at a step."""
    root = Path(__file__).parents[1]
    command = [sys.executable, "-m", "system.cached_filter", namespace, step, str(generation)]
    environment = {**os.environ, "PYTHONPATH": f"{root.parent}:{root}"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=root) as child:
        assert child.stdout is not None
        assert child.stdout.readline().strip() == step
        child.kill()


def test_a_table_that_it_would_pass_by_keeps_it_closed(layout: Layout, router: Router) -> None:
    running = cached(layout)
    program = running.program(policy_at(1), 1)
    running.enforce(program)
    assert running.stamps()[1] is not None
    router.run("nft", "add", "table", "ip", "nat")
    assert running.inside(running.device.observe).stamp is not None
    running.enforce(running.program(policy_at(3), 3))
    assert running.stamps()[1] is None
    router.run("nft", "delete", "table", "ip", "nat")
    running.enforce(program)
    assert running.stamps()[1] is not None


def udp(marker: bytes, port: int = 80) -> bytes:
    return frames.udp(4000, port, marker, frames.pseudo_v4(FROM["low"], TO))


def v4(body: bytes, **more: object) -> bytes:
    return ethernet(frames.IPV4, frames.ipv4(FROM["low"], TO, UDP, body, **more))  # type: ignore[arg-type]


ODD: dict[str, tuple[Callable[[bytes], bytes], bool]] = {
    "plain": (lambda m: v4(udp(m)), True),
    "another port": (lambda m: v4(udp(m, 81)), False),
    "options": (lambda m: v4(udp(m), options=b"\x01\x01\x01\x00"), True),
    "the first fragment": (lambda m: v4(udp(m), fragment=0x2000), True),
    "the first fragment to another port": (lambda m: v4(udp(m, 81), fragment=0x2000), False),
    "a later fragment": (lambda m: v4(udp(m), fragment=185), False),
    "a header in a later fragment": (lambda m: v4(udp(m), fragment=1), False),
    "a header cut short": (lambda m: v4(udp(m)[:6], fragment=0x2000) + m, False),
    "octets behind": (lambda m: v4(udp(m)) + bytes(40), True),
    "a tag": (lambda m: frames.vlan(7, v4(udp(m))), False),
    "another's MAC": (lambda m: b"\x02\0\0\0\0\x77" + v4(udp(m))[6:], False),
}
"""Frames, and whether a router with the policy lets them pass."""


def test_odd_frames_have_the_fate_that_they_have_without_a_cache(layout: Layout, router: Router) -> None:
    running = cached(layout)
    running.enforce(running.program(policy_at(1), 1, []))
    without = router.fire_frames([craft for craft, _ in ODD.values()])
    assert dict(zip(ODD, without, strict=True)) == {name: passes for name, (_, passes) in ODD.items()}
    assert running.cached_packets() == {}
    running.enforce(running.program(policy_at(1), 2))
    assert router.fire_frames([craft for craft, _ in ODD.values()]) == without
    assert running.cached_packets() == {"rule 2": 1, "rule 4": 1}


def test_at_other_interfaces_than_before_nothing_is_left(layout: Layout, router: Router) -> None:
    """An agent that is started anew, for other interfaces or without a cache, leaves no old one behind."""
    running = cached(layout)
    running.enforce(running.program(policy_at(1), 1))
    elsewhere = KernelCache(("lo",))
    held = running.inside(running.kernel.read)
    running.inside(elsewhere.close)
    assert running.inside(running.kernel.read) is None
    running.inside(lambda: running.kernel.open(held))
    running.inside(lambda: elsewhere.open(held))
    assert running.inside(running.kernel.read) is None
    assert running.inside(elsewhere.read) == held
    running.inside(KernelCache(()).detach)
    assert running.inside(KernelCache(("lo",)).read) is None
    assert "bpf" not in router.run("tc", "filter", "show", "dev", "lo", "ingress")
    assert router.fire([ALWAYS, NEVER]) == [True, False]
