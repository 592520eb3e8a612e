"""Trial packets of a new VNF: one permitted and one refused, where they exist.

They are sent by the VNF's own agent through its own kernel, filter and all (`enforce/trial.py`), but it is not told
which of them are to come through: what came is judged here, by the oracle. A policy that has changed meanwhile is no
reason to fail: where the packets' fate under the new one is another, they are chosen anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

from orchestrator.policy.addresses import Family, Prefix
from orchestrator.policy.corners import policy_packets
from orchestrator.policy.model import Action, Packet, Policy, Rule, Tenant
from orchestrator.policy.oracle import decide
from orchestrator.policy.protocols import ICMP, ICMPV6, TCP, UDP
from orchestrator.scaling.lifecycle import Trial
from orchestrator.store.firewalls.fleetrecords import TrialSheet

_MOST_TRIES = 400
_TENANTS, _RULES = 3, 6
_SYN = 0x02
_ECHO = {ICMP: 8, ICMPV6: 128}
_OUTSIDE = {Family.IPV4: Prefix.parse("192.0.2.77/32").network, Family.IPV6: Prefix.parse("2001:db8:ffff::77").network}
_NOT_ROUTED = tuple(
    map(Prefix.parse, ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3", "::/8", "fe80::/9", "ff00::/8"))
)
"""Nobody's, one's own, one link's, or many at once: what a router does not forward, whatever its filter says."""


def choose(policy: Policy, generation: int) -> TrialSheet:
    """Choose a permitted and a refused packet; fewer where none was found."""
    found: dict[bool, Packet] = {}
    for packet in islice(_candidates(policy), _MOST_TRIES):
        found.setdefault(decide(policy, packet).permitted, packet)
        if len(found) == 2:
            break
    packets = tuple(found[permitted] for permitted in (True, False) if permitted in found)
    return TrialSheet(generation, packets, tuple(decide(policy, packet).permitted for packet in packets))


def judge_trial(sheet: TrialSheet, policy: Policy) -> tuple[Trial, str]:
    """Judge a trial by the present policy; WAITING without a useful answer."""
    if sheet.answer is None or is_outdated(sheet, policy):
        return Trial.WAITING, ""
    for packet, expected, came in zip(sheet.packets, sheet.expected, sheet.answer, strict=True):
        if expected != came:
            fate = "was dropped, and the policy permits it" if expected else "came through, and the policy refuses it"
            return Trial.FAILED, f"{_describe_packet(packet)} {fate}"
    return Trial.PASSED, ""


def is_outdated(sheet: TrialSheet, policy: Policy) -> bool:
    """Whether a packet's fate is another by the policy of now."""
    return any(
        decide(policy, packet).permitted != expected
        for packet, expected in zip(sheet.packets, sheet.expected, strict=True)
    )


def _candidates(policy: Policy) -> Iterator[Packet]:
    """Yield packets at the corners of some lists that any router forwards, simple ones first."""
    few = policy.tenants[:_TENANTS]
    seen: set[Packet] = set()
    reduced = replace(policy, tenants=tuple(map(_short, few)), endpoints=())
    for packet in (*_across(few), *policy_packets(reduced)):
        plain = _plain(packet)
        if plain is not None and plain not in seen:
            seen.add(plain)
            yield plain


def _short(tenant: Tenant) -> Tenant:
    """A tenant with some of its rules."""
    rules = [*_take_some(tenant.acl.rules, Action.PERMIT), *_take_some(tenant.acl.rules, Action.DENY)]
    return replace(tenant, acl=replace(tenant.acl, rules=tuple(rules)))


def _take_some(rules: Iterable[Rule], action: Action) -> Iterator[Rule]:
    return islice((rule for rule in rules if rule.action is action), _RULES)


def _across(tenants: Iterable[Tenant]) -> Iterator[Packet]:
    """Yield packets between outside and each tenant, on a port few lists name."""
    for tenant in tenants:
        for prefix in tenant.prefixes:
            ends = _OUTSIDE[prefix.family], prefix.network + (1 if prefix.length < prefix.family.bits else 0)
            for source, destination in (ends, ends[::-1]):
                yield Packet(prefix.family, source, destination, TCP, 40000, 9, tcp_flags=_SYN)


def _plain(packet: Packet) -> Packet | None:
    """Return a similar packet that only a filter would stop, or None."""
    if packet.later_fragment or packet.source == packet.destination:
        return None
    ends = packet.source, packet.destination
    if any(each.family is packet.family and each.holds(end) for each in _NOT_ROUTED for end in ends):
        return None
    if packet.protocol in (TCP, UDP):
        flags = _SYN if packet.protocol == TCP else 0
        ports = packet.source_port or 40000, packet.destination_port or 9
        return replace(packet, source_port=ports[0], destination_port=ports[1], tcp_flags=flags)
    if packet.protocol in _ECHO:
        return replace(packet, icmp_type=_ECHO[packet.protocol], icmp_code=0)
    return None


def _describe_packet(packet: Packet) -> str:
    from_, to = (Prefix(packet.family, end, packet.family.bits) for end in (packet.source, packet.destination))
    ports = f" port {packet.destination_port}" if packet.destination_port else ""
    return f"a packet of protocol {packet.protocol} from {from_} to {to}{ports}"
