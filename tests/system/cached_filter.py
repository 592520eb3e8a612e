"""A packet filter with a flow cache in front, as the agent drives them, in the router of a lab."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from compiled_cache import every_rule, in_words

from orchestrator.compile.filters.filterprogram import filter_program
from orchestrator.enforce import gap
from orchestrator.enforce.driver import Stamp
from orchestrator.enforce.drivers.bpf.cachefront import NO_STAMP, BpfFront
from orchestrator.enforce.drivers.bpf.kernel import KernelCache
from orchestrator.enforce.drivers.filters.driver import FilterDriver
from orchestrator.enforce.drivers.filters.front import Fronted
from orchestrator.enforce.drivers.iptables.tool import IptablesTool
from orchestrator.enforce.drivers.nftables.tool import NftTool
from orchestrator.lab import namespaces
from orchestrator.lab.router import LEFT, RIGHT
from orchestrator.placement.lifting import LiftedRule
from orchestrator.policy.addresses import Addresses, Prefix
from orchestrator.policy.model import Acl, Action, Policy, Rule, RuleId, Tenant, TenantId
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import UDP
from orchestrator.program.flows import FlowTable
from orchestrator.program.program import Program
from orchestrator.wire.firewalls import Plane

STEPS = ("closing", "closed", "filter written", "read back", "opening", "opened")
"""Where a change of policy can be interrupted."""


class Paused(BpfFront):
    """A front that tells of every step that it takes."""

    told: Callable[[str], None]

    def close(self) -> None:
        self.told("closing")
        super().close()
        self.told("closed")

    def open(self, rows: FlowTable, stamp: Stamp = NO_STAMP) -> None:
        self.told("opening")
        super().open(rows, stamp)
        self.told("opened")


class Cached:
    """Everything that is called runs in a namespace."""

    def __init__(self, namespace: str, plane: Plane = Plane.IPTABLES, told: Callable[[str], None] = lambda _: None):
        self._namespace = namespace
        self._plane = plane
        self.told = told
        self.kernel = KernelCache((LEFT, RIGHT))
        tool = IptablesTool("legacy") if plane is Plane.IPTABLES else NftTool()
        self.filter = FilterDriver(tool)
        self.device = self.inside(self._made)

    def _made(self) -> Fronted:
        front = Paused((LEFT, RIGHT), self._plane, self.kernel)
        front.told = lambda _: None
        device = Fronted(self.filter, front)
        front.told = self.told
        return device

    def inside(self, call: Callable[[], Any]) -> Any:
        return namespaces.inside(self._namespace, call)

    def program(self, policy: Policy, generation: int, chosen: Sequence[LiftedRule] | None = None) -> Program:
        """With every rule in the cache, unless some are named."""
        names = every_rule(policy) if chosen is None else chosen
        return filter_program(policy, (self._plane,), domain="pop", generation=generation, lifted=names)

    def enforce(self, program: Program) -> None:
        """What the loop does with a new goal."""
        stamp = gap.stamp_of(program)
        change = gap.correction(self.inside(self.device.observe), program, self.device.resolve)
        self.inside(lambda: self.device.apply(change, stamp))
        self.told("filter written")
        observed = self.inside(self.device.observe)
        self.told("read back")
        wanted = self.inside(lambda: gap.expected_rows(program, np.unique(program.flows.cookie), self.device.resolve))
        assert gap.mismatch(observed, wanted, stamp) is None

    def stamps(self) -> tuple[Stamp | None, Stamp | None]:
        """Of the filter, and of the cache (None: closed)."""
        held = self.inside(self.kernel.read)
        return self.inside(self.filter.observe).stamp, None if held is None else held.stamp

    def packets(self) -> dict[str, int]:
        """What everybody counted, in words; zeros left out."""
        found = self.inside(self.device.hits)
        return _in_words(found.cookie.tolist(), found.packets.tolist())

    def cached_packets(self) -> dict[str, int]:
        """What the cache counted of that."""
        found = self.inside(self.kernel.read_counters)
        return _in_words(found.cookie.tolist(), found.packets.tolist())


def policy_at(generation: int) -> Policy:
    """Two policies that take turns: one half of a network may pass, then the other; port 443 always, port 81 never."""
    mine, theirs = ("192.0.2.0/25", "192.0.2.128/25") if generation % 2 else ("192.0.2.128/25", "192.0.2.0/25")
    rules = (
        web("no", Action.DENY, theirs, 80),
        web("yes", Action.PERMIT, "192.0.2.0/24", 80),
        web("always", Action.PERMIT, "192.0.2.0/24", 443),
        web("never", Action.DENY, mine, 81),
    )
    numbers: dict[str, int] = {rule.id: number for number, rule in enumerate(rules, 1)}
    own = (Prefix.parse("198.51.100.0/24"), Prefix.parse("2001:db8:100::/48"))
    return Policy((Tenant(TenantId("shop"), 1, own, Acl(rules), numbers),))


def web(name: str, action: Action, source: str, port: int) -> Rule:
    return Rule(RuleId(name), action, protocol=UDP, source=Addresses((Prefix.parse(source),)),
                destination_ports=(PortRange(port, port),))  # fmt: skip


def _in_words(cookies: list[int], counts: list[int]) -> dict[str, int]:
    total: dict[str, int] = {}
    for cookie, count in zip(cookies, counts, strict=True):
        total[in_words(cookie)] = total.get(in_words(cookie), 0) + count
    return {name: count for name, count in total.items() if count}


def main() -> None:
    """Enforce a policy in a namespace, and stop for good at a step, which is said: to be killed there."""
    namespace, step, generation = sys.argv[1:]

    def told(word: str) -> None:
        if word == step:
            print(word, flush=True)
            time.sleep(3600)

    cached = Cached(namespace, told=told)
    cached.enforce(cached.program(policy_at(int(generation)), int(generation)))


if __name__ == "__main__":
    main()
