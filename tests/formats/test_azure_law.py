"""Azure import and export against an independent reading of the JSON, at the corners of the rules."""

from __future__ import annotations

import json

from formats import cloud_walks
from formats.iptables_texts import packets_at, seeds, some_corners
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from law_examples import examples
from strategies import acls

from orchestrator.policy.addresses import Family, Prefix
from orchestrator.policy.formats.registry import read, write
from orchestrator.policy.formats.results import Options
from orchestrator.policy.model import Acl, Action, Direction, ReturnTraffic
from orchestrator.policy.oracle import ask

TAGS = {
    "VirtualNetwork": ["10.0.0.0/8", "2001:db8::/32"],
    "AzureLoadBalancer": ["192.0.2.7/32"],
    "Internet": ["128.0.0.0/1"],
    "web": ["10.1.2.3/32"],
}
KNOWN = Options(addresses={name: tuple(map(Prefix.parse, prefixes)) for name, prefixes in TAGS.items()})
SIDES = ("*", "*", "10.0.0.0/8", "10.1.0.0/16", "10.1.2.3", "2001:db8:1::/48", "VirtualNetwork", "AzureLoadBalancer")
PORTS = ("*", "*", "22", "80-90", "1024-65535", "53")
PROTOCOLS = ("*", "*", "Tcp", "Tcp", "TCP", "Udp", "Icmp", "Esp")


@st.composite
def rules(draw) -> dict[str, object]:
    rule: dict[str, object] = {
        "access": draw(st.sampled_from(("Allow", "Allow", "Deny"))),
        "direction": draw(st.sampled_from(("Inbound", "Inbound", "Outbound"))),
        "protocol": draw(st.sampled_from(PROTOCOLS)),
    }
    for side in ("source", "destination"):
        prefixes = draw(st.lists(st.sampled_from(SIDES), min_size=1, max_size=2))
        ports = draw(st.lists(st.sampled_from(PORTS), min_size=1, max_size=2)) if draw(st.booleans()) else ["*"]
        for key, several, found in (("AddressPrefix", "AddressPrefixes", prefixes), ("PortRange", "PortRanges", ports)):
            rule |= {side + key: found[0]} if len(found) == 1 else {side + several: found}
    if rule["protocol"] in ("Icmp", "Esp") or (rule["protocol"], rule["access"]) == ("*", "Deny"):
        rule |= {
            "sourcePortRange": "*",
            "destinationPortRange": "*",
            "sourcePortRanges": [],
            "destinationPortRanges": [],
        }
    return rule


@st.composite
def groups(draw) -> str:
    found = draw(st.lists(rules(), min_size=1, max_size=6))
    priorities = draw(st.permutations(range(100, 100 + len(found))))
    nested = draw(st.booleans())
    named = [
        {
            "name": f"r{place}",
            **({"properties": {**rule, "priority": place}} if nested else {**rule, "priority": place}),
        }
        for place, rule in zip(priorities, found, strict=True)
    ]
    last = [
        {"name": f"last{direction}", "priority": 4096, "direction": direction, "access": "Deny", "protocol": "*"}
        | {
            "sourceAddressPrefix": "*",
            "destinationAddressPrefix": "*",
            "sourcePortRange": "*",
            "destinationPortRange": "*",
        }
        for direction in ("Inbound", "Outbound")
    ]
    return json.dumps({"name": "nsg", "securityRules": [*last, *named]})


slow = settings(max_examples=examples(80), deadline=None, suppress_health_check=list(HealthCheck))


@slow
@given(groups(), seeds)
def test_groups_are_read_exactly(text: str, seed: int) -> None:
    imported = read(text, options=KNOWN)
    assert imported.exact, imported.losses
    for family in Family:
        for packet in packets_at(imported, family, seed):
            for direction in Direction:
                if not packet.later_fragment:
                    ours = ask(imported.acl, packet, direction, ReturnTraffic.EXPLICIT).action is Action.PERMIT
                    assert ours is cloud_walks.azure(text, direction, packet, TAGS), (direction, packet)


@slow
@given(groups(), seeds)
def test_what_nobody_explains_never_permits_more(text: str, seed: int) -> None:
    imported = read(text)
    for packet in packets_at(imported, Family.IPV4, seed):
        for direction in Direction:
            if not packet.later_fragment:
                ours = ask(imported.acl, packet, direction, ReturnTraffic.EXPLICIT).action is Action.PERMIT
                assert ours <= cloud_walks.azure(text, direction, packet, TAGS), (direction, packet)


@slow
@given(groups())
def test_reading_writing_and_reading_gives_the_same_list(text: str) -> None:
    once = read(text, options=KNOWN)
    exported = write(once.acl, "azure-nsg")
    again = read(exported.text)
    assert (exported.losses, again.losses) == ((), ())
    assert again.acl == once.acl


@slow
@given(acls(max_rules=4))
def test_what_is_written_decides_as_the_list_does(acl: Acl) -> None:
    exported = write(acl, "azure-nsg")
    again = read(exported.text)
    assert again.exact, again.losses
    for packet in some_corners(acl):
        for direction in Direction:
            ours, theirs = (
                ask(one, packet, direction, ReturnTraffic.EXPLICIT).action is Action.PERMIT for one in (acl, again.acl)
            )
            if not packet.later_fragment:
                assert cloud_walks.azure(exported.text, direction, packet, {}) is theirs, (packet, direction)
                assert theirs is ours if exported.exact else theirs <= ours, (packet, direction)
