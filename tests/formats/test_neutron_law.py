"""OpenStack and Kubernetes: the readers and the writers against a second reading of the documents."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from formats.neutron_walks import firewall_permits, group_permits, policies_permit
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from law_examples import examples
from strategies import OWN_POOL, acls, corner_packets_of

from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.express import NO_PACKETS
from orchestrator.policy.formats.registry import read, write
from orchestrator.policy.formats.results import Imported, Options
from orchestrator.policy.model import Acl, Action, Direction, Packet, ReturnTraffic
from orchestrator.policy.oracle import ask

BUDGET = examples(400, fixed=40)
slow = settings(max_examples=BUDGET, deadline=None, suppress_health_check=list(HealthCheck))
IPV4 = ("10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/32", "0.0.0.0/0")
IPV6 = ("2001:db8::/32", "2001:db8:1::/48", "::/0")
KNOWN = {"cache": ["10.1.2.0/24", "2001:db8:1::/64"]}
ADDRESSES = {"cache": tuple(map(Prefix.parse, KNOWN["cache"]))}
SERVICES = (
    {"protocol": "tcp", "destination_ports": [22, "80-90"]},
    {"protocol": "udp", "destination_ports": 53},
    {"protocol": 112},
    {"protocol": "sctp", "destination_ports": "80-90"},
)
PINGS = {"protocol": "icmp", "icmp_type": 8, "icmp_code": 0}, {"protocol": "icmpv6", "icmp_type": 128, "icmp_code": 0}
RULES = [
    {"id": f"r{place}-{index}", "action": "permit", **service, "source": block, "destination": block}
    for index, block in enumerate((*IPV4, *IPV6, *KNOWN["cache"]))
    for place, service in enumerate((*SERVICES, PINGS[":" in block]))
]
PACKETS = read(json.dumps({"rules": RULES}), "native").acl


def whole(acl: Acl) -> list[Packet]:
    found = [packet for packet in corner_packets_of(acl) if not packet.later_fragment]
    found = [packet for packet in found if packet.protocol not in NO_PACKETS[packet.family]]
    return found[:: len(found) // 150 + 1]


def decision(acl: Acl, packet: Packet, direction: Direction) -> bool:
    return ask(acl, packet, direction, ReturnTraffic.EXPLICIT).action is Action.PERMIT


EDGES = whole(PACKETS)


def agrees(imported: Imported, theirs: Any, *, exact: bool = True) -> None:
    for packet in EDGES:
        for direction in Direction:
            ours = decision(imported.acl, packet, direction)
            real = theirs(direction, packet)
            assert ours == real if exact else ours <= real, (packet, direction)


@st.composite
def group_rules(draw: st.DrawFn) -> dict[str, Any]:
    family = draw(st.sampled_from(("IPv4", "IPv6")))
    protocol = draw(st.sampled_from((None, "any", "tcp", "udp", "sctp", "icmp", "vrrp", "6", "47")))
    low, high = None, None
    if protocol in ("tcp", "udp", "sctp", "6"):
        low, high = draw(st.sampled_from(((None, None), (22, 22), (80, 90), (0, 65535), (53, 53))))
    elif protocol == "icmp":
        low, high = draw(st.sampled_from(((None, None), (8, None), (8, 0), (128, 0))))
    remote = draw(st.sampled_from((None, None, None, "cache", "nobody")))
    prefix = draw(st.sampled_from((None, *(IPV4 if family == "IPv4" else IPV6)))) if remote is None else None
    return {
        "direction": draw(st.sampled_from(("ingress", "egress"))), "ethertype": family, "protocol": protocol,
        "port_range_min": low, "port_range_max": high, "remote_ip_prefix": prefix, "remote_group_id": remote,
    }  # fmt: skip


@slow
@given(st.lists(group_rules(), max_size=5))
def test_a_security_group_is_read_as_it_is(rules: list[dict[str, Any]]) -> None:
    group = {"id": "g", "name": "web", "security_group_rules": rules}
    imported = read(json.dumps({"security_groups": [group]}), options=Options(addresses=ADDRESSES))
    agrees(imported, lambda direction, packet: group_permits(group, direction, packet, KNOWN))
    nobody = [rule for rule in rules if rule["remote_group_id"] == "nobody"]
    assert bool(imported.losses) == bool(nobody)


@slow
@given(st.lists(st.lists(group_rules(), max_size=3), min_size=2, max_size=3))
def test_groups_that_are_named_together_permit_what_each_of_them_does(groups: list[list[dict[str, Any]]]) -> None:
    bodies = [{"id": f"g{index}", "name": "same", "security_group_rules": rules} for index, rules in enumerate(groups)]
    names = ("same", *(f"g{index}" for index in range(1, len(bodies))))
    imported = read(json.dumps(bodies), "openstack-sg", options=Options(addresses=ADDRESSES, lists=names))
    agrees(
        imported,
        lambda direction, packet: any(group_permits(body, direction, packet, KNOWN) for body in bodies),
    )


@st.composite
def firewall_rules(draw: st.DrawFn, identity: str) -> dict[str, Any]:
    version = draw(st.sampled_from((4, 6)))
    protocol = draw(st.sampled_from((None, "tcp", "udp", "icmp")))
    ports = st.sampled_from((None, "22", "80:90", "0:65535", "53"))
    address = st.sampled_from((None, *(IPV4 if version == 4 else IPV6)))
    return {
        "id": identity, "name": "n", "action": draw(st.sampled_from(("allow", "allow", "deny", "reject"))),
        "enabled": draw(st.sampled_from((True, True, True, False))), "ip_version": version, "protocol": protocol,
        "source_ip_address": draw(address), "destination_ip_address": draw(address),
        "source_port": draw(ports) if protocol in ("tcp", "udp") else None,
        "destination_port": draw(ports) if protocol in ("tcp", "udp") else None,
    }  # fmt: skip


@slow
@given(st.data())
def test_firewall_policies_are_read_as_they_are(data: st.DataObject) -> None:
    rules = [data.draw(firewall_rules(f"r{index}")) for index in range(data.draw(st.integers(1, 5)))]
    ids = [rule["id"] for rule in rules]
    split = data.draw(st.integers(0, len(ids)))
    document = {
        "firewall_groups": [{"ingress_firewall_policy_id": "ingress", "egress_firewall_policy_id": "egress"}],
        "firewall_policies": [
            {"id": "ingress", "name": "a", "firewall_rules": ids[:split]},
            {"id": "egress", "name": "b", "firewall_rules": ids[split:]},
        ],
        "firewall_rules": rules,
    }
    imported = read(json.dumps(document))
    assert imported.exact
    agrees(imported, lambda direction, packet: firewall_permits(document, direction, packet))


@st.composite
def policy_rules(draw: st.DrawFn, key: str) -> dict[str, Any]:
    blocks = [{"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}, {"cidr": "2001:db8::/32"}, {"cidr": "0.0.0.0/0"}]
    peers = [{"ipBlock": block} for block in blocks]
    peers += [{"podSelector": {"matchLabels": {"app": name}}} for name in ("cache", "nobody")]
    ports = [{"port": 22}, {"protocol": "TCP", "port": 80, "endPort": 90}, {"protocol": "UDP"}]
    ports += [{"protocol": "SCTP", "port": 80}, {"protocol": "TCP", "port": "http"}]
    rule: dict[str, Any] = {}
    if draw(st.booleans()):
        rule[key] = draw(st.lists(st.sampled_from(peers), max_size=3))
    if draw(st.booleans()):
        rule["ports"] = draw(st.lists(st.sampled_from(ports), max_size=3))
    return rule


@slow
@given(st.data())
def test_network_policies_are_read_as_they_are(data: st.DataObject) -> None:
    documents = []
    for index in range(data.draw(st.integers(1, 2))):
        types = data.draw(st.sampled_from((["Ingress"], ["Egress"], ["Ingress", "Egress"])))
        spec: dict[str, Any] = {"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": types}
        for name, key in (("ingress", "from"), ("egress", "to")):
            if data.draw(st.booleans()):
                spec[name] = data.draw(st.lists(policy_rules(key), max_size=3))
        body = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy"}
        documents.append({**body, "metadata": {"name": f"p{index}", "namespace": "shop"}, "spec": spec})
    text = yaml.dump_all(documents, Dumper=Plain)
    imported = read(text, "kubernetes", options=Options(addresses={"shop/pods[app=cache]": ADDRESSES["cache"]}))
    agrees(imported, lambda direction, packet: policies_permit(text, direction, packet, KNOWN))


class Plain(yaml.SafeDumper):
    """Writes what stands in two places twice: the reader takes no anchors."""

    def ignore_aliases(self, data: object) -> bool:
        return True


WALKS = {
    "openstack-sg": lambda text: (
        lambda direction, packet: group_permits(json.loads(text)["security_groups"][0], direction, packet)
    ),
    "openstack-fwaas": lambda text: lambda direction, packet: firewall_permits(json.loads(text), direction, packet),
    "kubernetes": lambda text: lambda direction, packet: policies_permit(text, direction, packet, {}),
}


@pytest.mark.parametrize("name", WALKS)
@slow
@given(acls(max_rules=4, own=OWN_POOL[:4]))
def test_what_is_written_decides_as_the_list_does(name: str, acl: Acl) -> None:
    exported = write(acl, name)
    walk = WALKS[name](exported.text)
    for packet in whole(acl):
        for direction in Direction:
            ours, theirs = decision(acl, packet, direction), walk(direction, packet)
            assert theirs == ours if exported.exact else theirs <= ours, (packet, direction, exported.text)
