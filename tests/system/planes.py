"""Every data plane behind one face: enforce a policy, send packets, read what each rule has counted.

Open vSwitch runs as in production, endpoints on one side and the world on the other. The packet filters run in a
router, which decides by addresses alone: every packet comes from the same side.
"""

from __future__ import annotations

import abc
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from system.direct import Direct

from orchestrator.compile.cookies import Kind
from orchestrator.compile.filters.filterrows import read_comment
from orchestrator.compile.filters.iptables import iptables_texts
from orchestrator.compile.nftables import nftables_script
from orchestrator.lab import pop
from orchestrator.lab.expect import holder
from orchestrator.lab.layout import Layout
from orchestrator.lab.pop import Lab
from orchestrator.lab.router import Router
from orchestrator.lab.spec import PopSpec
from orchestrator.lab.wire import Wire, shot
from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Packet, Policy

_COMMENT = re.compile(r'counter packets (\d+) bytes \d+ (?:(?:accept|drop|goto \S+) )?comment "([^"]+)"')
_LINE = re.compile(r'^\[(\d+):\d+\] .*--comment "([^"]+)"', re.MULTILINE)


class Plane(abc.ABC):
    """A data plane that runs."""

    @abc.abstractmethod
    def enforce(self, policy: Policy) -> None:
        """Returns once the plane holds the policy, counters at zero."""

    @abc.abstractmethod
    def fire(self, packets: Sequence[Packet]) -> list[bool]:
        """Which of some packets reach where they are addressed to."""

    @abc.abstractmethod
    def packets_by_rule(self) -> dict[int, int]:
        """What tenants' rules have counted, by rule number; rules that counted nothing left out."""


class OpenVSwitch(Plane):
    """A host's switch."""

    def __init__(self, lab: Lab, direct: Direct, wire: Wire) -> None:
        self._lab = lab
        self._direct = direct
        self._wire = wire

    def enforce(self, policy: Policy) -> None:
        self._direct.enforce(Policy())
        self._direct.enforce(policy)

    def fire(self, packets: Sequence[Packet]) -> list[bool]:
        shots = [shot(self._lab, self._sender(packet), packet) for packet in packets]
        return [bool(landed.nodes) for landed in self._wire.fire(shots)]

    def _sender(self, packet: Packet) -> str:
        """The client for what an endpoint is to get, the endpoint for what leaves."""
        (client,), (endpoint,) = self._lab.spec.clients, self._lab.spec.endpoints
        inwards = holder(self._lab.spec, packet.family, packet.destination) is endpoint
        return client.name if inwards else endpoint.name

    def packets_by_rule(self) -> dict[int, int]:
        return self._direct.packets_by_rule(self._lab.spec.hosts[0].name)


class Filter(Plane):
    """A packet filter in a router."""

    def __init__(self, router: Router) -> None:
        self.router = router

    def fire(self, packets: Sequence[Packet]) -> list[bool]:
        return self.router.fire(packets)

    def packets_by_rule(self) -> dict[int, int]:
        counted: Counter[int] = Counter()
        for packets, text in self._counters():
            kind, number = read_comment(text) or (None, 0)
            if kind is Kind.RULE and int(packets):
                counted[number] += int(packets)
        return dict(counted)

    @abc.abstractmethod
    def _counters(self) -> list[tuple[str, str]]:
        """Packets and comment of every counter."""


class Nftables(Filter):
    def enforce(self, policy: Policy) -> None:
        self.router.run("nft", "-f", "-", text=nftables_script(policy))

    def _counters(self) -> list[tuple[str, str]]:
        return _COMMENT.findall(self.router.run("nft", "list", "ruleset"))


class Iptables(Filter):
    """`variant`: the kernel's own tables (legacy), or the same through nftables (nft)."""

    def __init__(self, router: Router, variant: str) -> None:
        super().__init__(router)
        self._names = {Family.IPV4: f"iptables-{variant}", Family.IPV6: f"ip6tables-{variant}"}

    def enforce(self, policy: Policy) -> None:
        for family, text in iptables_texts(policy).items():
            self.router.run(f"{self._names[family]}-restore", text=text)

    def _counters(self) -> list[tuple[str, str]]:
        return [
            found for name in self._names.values() for found in _LINE.findall(self.router.run(f"{name}-save", "-c"))
        ]


PLANES = ("ovs", "iptables-legacy", "iptables-nft", "nftables")
FILTERS = PLANES[1:]


@contextmanager
def plane(name: str, layout: Layout, spec: PopSpec) -> Iterator[Plane]:
    """A plane by name; `spec` is the point of presence that Open vSwitch stands in."""
    if name == "ovs":
        lab = pop.up(layout, spec)
        try:
            with Direct(lab) as direct, Wire(lab) as wire:
                yield OpenVSwitch(lab, direct, wire)
        finally:
            pop.down(layout)
        return
    with Router(layout.prefix) as router:
        yield Nftables(router) if name == "nftables" else Iptables(router, name.removeprefix("iptables-"))
