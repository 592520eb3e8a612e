"""A firewall's legs: whose name a packet bears must be of the leg that it comes in by."""

from __future__ import annotations

from dataclasses import replace

import pytest
from compiled_filter import carried
from hypothesis import HealthCheck, given, settings
from law_examples import examples
from lifted_shop import policy
from strategies import policies

from orchestrator.compile.filters.iptables import iptables_texts
from orchestrator.compile.filters.legs import NO_LEGS, Legs
from orchestrator.compile.nftables import nftables_script
from orchestrator.enforce.drivers.iptables.fake import table_of
from orchestrator.enforce.drivers.nftables.fake import ruleset
from orchestrator.errors import BadInput, NotExpressible
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.corners import policy_packets
from orchestrator.policy.model import Packet, Policy
from orchestrator.policy.oracle import decide

LEGS = Legs(outside=("wan0", "wan1"), inside=("lan0", "lan1"))
EVERY_WAY = (*LEGS.names, "spare0", "")


def is_ours(policy: Policy, packet: Packet) -> bool:
    """Whether some tenant owns a packet's source."""
    owned = (prefix for tenant in policy.tenants for prefix in tenant.prefixes)
    return any(prefix.family is packet.family and prefix.holds(packet.source) for prefix in owned)


def believed(policy: Policy, packet: Packet, way: str) -> bool:
    """What legs mean, in a line: a tenant's name comes by an inside leg, all others by an outside one."""
    families = {prefix.family for tenant in policy.tenants for prefix in tenant.prefixes if not prefix.length}
    if way not in LEGS.names or packet.family in families:
        return True
    return is_ours(policy, packet) is (way in LEGS.inside)


@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(policies(max_tenants=3, max_rules=4))
def test_a_packet_passes_if_it_is_permitted_and_its_leg_bears_its_name(policy: Policy) -> None:
    held = ruleset(LEGS.resolve_legs(nftables_script(policy)))
    try:
        tables = {family: table_of(LEGS.resolve_legs(text)) for family, text in iptables_texts(policy).items()}
    except NotExpressible:
        tables = {}
    for packet in filter(carried, policy_packets(policy)):
        permitted = decide(policy, packet).permitted
        for way in EVERY_WAY:
            wanted = permitted and believed(policy, packet, way)
            assert held.send(packet, came_by=way).accepted is wanted, (way, packet)
            if packet.family in tables:
                assert tables[packet.family].send(packet, came_by=way).accepted is wanted, (way, packet)


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(policies(max_tenants=2, max_rules=3))
def test_without_legs_no_line_asks_for_an_interface(policy: Policy) -> None:
    assert "iifname" not in NO_LEGS.resolve_legs(nftables_script(policy))


def test_an_agent_that_knows_no_symbols_writes_lines_that_no_packet_meets() -> None:
    """Symbols are names that the kernel takes: at most 15 characters."""
    text = nftables_script(Policy())
    assert text.count('iifname "aclflow-outside"') == text.count('iifname "aclflow-inside"') == 2
    assert all(len(name) <= 15 for name in ("aclflow-outside", "aclflow-inside"))


@pytest.mark.parametrize(
    ("outside", "inside", "place"),
    [
        (("left",), (), "--inside"),
        ((), ("right",), "--outside"),
        (("left",), ("right", "left"), "--inside"),
        (('le"ft',), ("right",), "--outside"),
        (("left",), ("a b",), "--inside"),
        (("left",), ("sixteenletters16",), "--inside"),
    ],
)
def test_legs_that_mean_nothing_are_refused(outside: tuple[str, ...], inside: tuple[str, ...], place: str) -> None:
    with pytest.raises(BadInput) as caught:
        Legs(outside, inside)
    assert caught.value.place == place


def test_one_who_owns_everything_has_no_outside() -> None:
    shop = policy()
    everywhere = replace(shop, tenants=(replace(shop.tenants[0], prefixes=(Prefix.parse("0.0.0.0/0"),)),))
    lines = nftables_script(everywhere).split("table ip6 aclflow")
    assert "iifname" not in lines[0]
    assert "iifname" in "".join(lines[1:])
