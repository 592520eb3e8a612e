"""A packet filter that tracks connections, its kernel's part included, and what it must do with traces of packets.

The law: it lets through a part of what the oracle permits (`policy/connections.py`), and what it counted is what the
oracle names.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol

from compiled_filter import carried, counted_under

from orchestrator.compile.filters.iptables import iptables_texts
from orchestrator.compile.nftables import nftables_script
from orchestrator.enforce.drivers.filters.fakeconnections import NOTHING_SEEN, FakeConnections, Seen
from orchestrator.enforce.drivers.iptables.fake import table_of as iptables_table
from orchestrator.enforce.drivers.nftables.fake import ruleset as nft_ruleset
from orchestrator.policy.connections import NONE, decide_tracked, ends_of, opening
from orchestrator.policy.corners import policy_packets
from orchestrator.policy.model import Direction, Packet, Policy
from orchestrator.policy.oracle import Decision, first_match, matches, owner
from orchestrator.policy.protocols import TCP


class Walk(Protocol):
    accepted: bool
    comments: list[str]


class TrackedFilter:
    """A filter that tracks connections, between two networks. The policy may change; what it remembers stays."""

    def __init__(self, plane: str, policy: Policy) -> None:
        self._plane = plane
        self.connections = FakeConnections()
        self.known = NONE
        self.load(policy)

    def load(self, policy: Policy) -> None:
        self.policy = policy
        if self._plane == "nftables":
            self._rules = nft_ruleset(nftables_script(policy))
        else:
            self._tables = {family: iptables_table(text) for family, text in iptables_texts(policy).items()}

    def untracks(self, packet: Packet) -> bool:
        """Whether the kernel looks up no connection for a packet."""
        return self._plane == "nftables" and self._rules.untracks(packet)

    def send(self, packet: Packet, quoted: Packet | None = None) -> Walk:
        seen = NOTHING_SEEN if self.untracks(packet) else self.connections.look_up(packet, quoted)
        walk = self.walk(packet, seen)
        walk.accepted = walk.accepted and self.connections.remember(packet, seen)
        return walk

    def walk(self, packet: Packet, seen: Seen) -> Walk:
        """Send a packet through the rules alone, with what was looked up of its connection."""
        if self._plane == "nftables":
            return self._rules.send(packet, seen=seen)
        return self._tables[packet.family].send(packet, seen=seen)

    def meet(self, packet: Packet, quoted: Packet | None = None, *, fully: bool = False) -> bool:
        """Send a packet and hold what became of it to the oracle; `fully`: nothing less than that may pass."""
        verdict = decide_tracked(self.policy, packet, self.known, quoted)
        walk = self.send(packet, quoted)
        decision = verdict.decision
        if walk.accepted or fully:
            assert walk.accepted is decision.permitted, f"{packet}: {decision}, {walk}"
        if walk.accepted:
            if quoted is None:
                counted = [decision] if fully else [decision, *self._decisions_by_one_opener(packet)]
                wanted = [sorted(set(counted_under(self.policy, each))) for each in counted]
                assert sorted(walk.comments) in wanted, f"{packet}: {walk}"
            self.known = verdict.connections
        return walk.accepted

    def _decisions_by_one_opener(self, packet: Packet) -> Iterator[Decision]:
        """Yield what is decided where only one packet that opened the packet's connection is known at each end.

        The kernel knows one: of a connection that was closed and opened anew by the other end, the newer.
        """
        names = [(ends_of(packet), address) for address in (packet.source, packet.destination)]
        openers = [self.known.get(name, ()) or (None,) for name in names]
        for chosen in itertools.product(*openers):
            one = {name: (first,) for name, first in zip(names, chosen, strict=True) if first is not None}
            verdict = decide_tracked(self.policy, packet, one)
            if verdict.decision.permitted:
                yield verdict.decision


def decides_alone(policy: Policy, packet: Packet) -> bool:
    """Whether the first rule that matches a packet itself is stateless at each of its ends."""
    operator = next((rule for rule in policy.operator if matches(rule, packet, {})), None)
    found = []
    for address, direction in ((packet.source, Direction.EGRESS), (packet.destination, Direction.INGRESS)):
        tenant = owner(policy, packet.family, address)
        if tenant is not None:
            rule = operator or first_match(tenant.acl.rules, packet, direction, tenant.acl.groups)
            found.append(rule is not None and rule.stateless)
    return bool(found) and all(found)


def firsts(policy: Policy, rng: random.Random, most: int) -> list[Packet]:
    """Packets at the corners of a policy that may open connections, each between other ends, in an order of chance."""
    packets = [replace(packet, tcp_flags=0x02 if packet.protocol == TCP else 0) for packet in policy_packets(policy)]
    found = [
        each for each in dict.fromkeys(packets) if carried(each) and opening(each) and each.source != each.destination
    ]
    rng.shuffle(found)
    return list({ends_of(packet): packet for packet in found}.values())[:most]
