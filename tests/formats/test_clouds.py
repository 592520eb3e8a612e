"""AWS and Azure: what the fixtures come to, names that others explain, losses, faults and what cannot be written."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import BadInput, TooLarge
from orchestrator.policy.addresses import Addresses, Prefix
from orchestrator.policy.formats.registry import guess, read, read_all, write
from orchestrator.policy.formats.results import Effect, Imported, Options
from orchestrator.policy.model import Acl, Action, Direction, Rule, RuleId

FIXTURES = Path(__file__).parent / "fixtures"
GROUP, NACL, NSG = ((FIXTURES / f"web.{name}").read_text() for name in ("aws-sg", "aws-nacl", "azure-nsg"))
LOAD_BALANCER = Options(
    addresses={name: (Prefix.parse("192.0.2.7/32"),) for name in ("AzureLoadBalancer", "VirtualNetwork", "Internet")}
)


def said(imported: Imported, direction: Direction = Direction.INGRESS) -> list[str]:
    """The rules of a direction in short."""
    return [
        f"{rule.id}: {rule.action.value} {rule.protocol} {rule.source} > {rule.destination} "
        f"{','.join(map(str, rule.destination_ports))}"
        for rule in imported.acl.rules
        if rule.direction is direction
    ]


def changed(text: str, path: list[str | int], value: object) -> str:
    """A JSON text with one value replaced."""
    document: Any = json.loads(text)
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return json.dumps(document)


def test_the_formats_are_told_by_sight() -> None:
    assert [guess(text, "x.json").name for text in (GROUP, NACL, NSG)] == ["aws-sg", "aws-nacl", "azure-nsg"]


def test_a_security_group() -> None:
    imported = read(GROUP)
    assert imported.exact
    found = said(imported)
    assert found[:2] == ["web: permit 6 0.0.0.0/0 > any 443", "web.2: permit 6 ::/0 > any 443"]
    assert found[2].endswith("permit 6 203.0.113.192/26 > any 22")
    assert found[3] == "jump: permit 6 203.0.113.7/32 > any 22"
    assert (imported.acl.rules[4].icmp_type, imported.acl.rules[4].icmp_code) == (3, 4)
    assert len(said(imported, Direction.EGRESS)) == 2


def test_several_groups_of_one_interface_permit_together() -> None:
    document = json.loads(GROUP)
    other = copy.deepcopy(document["SecurityGroups"][0])
    other |= {"GroupId": "sg-other", "IpPermissions": [other["IpPermissions"][1]]}
    document["SecurityGroups"].append(other)
    text = json.dumps(document)
    with pytest.raises(BadInput, match="name those to read"):
        read(text)
    assert len(said(read_all(text)["sg-other"])) == 2
    both = read(text, options=Options(lists=("sg-0a1b2c3d4e5f60718", "sg-other=ingress")))
    assert len(said(both)) == 5 + 2


@pytest.mark.parametrize(
    ("key", "peer", "name"),
    [
        ("UserIdGroupPairs", {"GroupId": "sg-1", "UserId": "123456789012"}, "sg-1"),
        ("PrefixListIds", {"PrefixListId": "pl-1"}, "pl-1"),
    ],
)
def test_other_groups_and_prefix_lists_are_names(key: str, peer: dict[str, str], name: str) -> None:
    text = changed(GROUP, ["SecurityGroups", 0, "IpPermissions", 1, key], [peer])
    imported = read(text)
    assert [loss.effect for loss in imported.losses] == [Effect.NARROWER]
    assert f"'{name}'" in imported.losses[0].reason
    assert imported.losses[0].text.startswith(f"SecurityGroups[0].IpPermissions[1].{key}[0]")
    told = read(text, options=Options(addresses={name: (Prefix.parse("10.0.0.0/8"),)}))
    assert told.exact
    assert any("permit 6 10.0.0.0/8 > any 22" in line for line in said(told))


def test_what_is_not_known_in_a_permission_leaves_it_out() -> None:
    for path in ([2], [2, "IpRanges", 0]):
        text = changed(GROUP, ["SecurityGroups", 0, "IpPermissions", *path, "OnlyOnMondays"], True)
        (loss,) = read(text).losses
        assert (loss.effect, loss.reason) == (Effect.NARROWER, "'OnlyOnMondays' is not known here")


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["FromPort"], "x", "FromPort: 'x' is not a whole number"),
        (["FromPort"], 444, "IpPermissions[0]: its ports are missing or out of order"),
        (["IpProtocol"], "tcpx", "IpProtocol: 'tcpx' is not a protocol"),
        (["IpRanges", 0, "CidrIp"], "10.0.0.0/33", "IpRanges[0].CidrIp: '10.0.0.0/33' is not a prefix"),
        (["IpRanges"], 5, "IpRanges: 5 is not a list"),
    ],
)
def test_faults_name_the_place(path: list[str | int], value: object, message: str) -> None:
    text = changed(GROUP, ["SecurityGroups", 0, "IpPermissions", 0, *path], value)
    with pytest.raises(BadInput) as caught:
        read(text, name="sg.json")
    assert str(caught.value).startswith("sg.json, SecurityGroups[0].IpPermissions[0]")
    assert message in str(caught.value)


@pytest.mark.parametrize(("key", "other"), [("IpPermissions", "egress"), ("IpPermissionsEgress", "ingress")])
def test_a_group_that_does_not_tell_its_permissions_is_not_read_as_if_it_had_none(key: str, other: str) -> None:
    document = json.loads(GROUP)
    (group,) = document["SecurityGroups"]
    del group[key]
    with pytest.raises(BadInput, match=rf"SecurityGroups\[0\]: {key} is missing"):
        read(json.dumps(document))
    found = read(json.dumps(document), options=Options(lists=(f"{group['GroupId']}={other}",)))
    assert {rule.direction.value for rule in found.acl.rules} == {other}


def icmp_groups(protocol: str, **ends: int) -> str:
    """A group that permits ICMP messages from everywhere."""
    ranges = {"IpRanges": [{"CidrIp": "0.0.0.0/0"}], "Ipv6Ranges": [{"CidrIpv6": "::/0"}]}
    permission = {"IpProtocol": protocol, **ends, **ranges}
    return json.dumps({"GroupId": "sg-1", "IpPermissions": [permission], "IpPermissionsEgress": []})


def test_only_icmpv6_does_without_a_type_and_a_code() -> None:
    (every,) = read(icmp_groups("icmpv6")).acl.rules
    assert (every.protocol, every.icmp_type) == (58, None)
    message = r"IpPermissions\[0\]: its ICMP type or code is missing"
    for text in (icmp_groups("icmp"), icmp_groups("icmp", FromPort=8), icmp_groups("58", FromPort=128)):
        with pytest.raises(BadInput, match=message):
            read(text)
    for changes in (["IcmpTypeCode"], ["IcmpTypeCode", "Code"]):
        with pytest.raises(BadInput, match=r"Entries\[5\]: its ICMP type or code is missing"):
            read(changed(NACL, ["NetworkAcls", 0, "Entries", 5, *changes], None))


def test_a_security_group_only_permits() -> None:
    deny = Rule(RuleId("no"), Action.DENY, source=Addresses((Prefix.parse("10.0.0.0/9"),)))
    permit = Rule(RuleId("yes"), Action.PERMIT, protocol=6, source=Addresses((Prefix.parse("10.0.0.0/8"),)))
    exported = write(Acl((deny, permit)), "aws-sg")
    assert exported.exact
    assert said(read(exported.text)) == ["yes: permit 6 10.128.0.0/9 > any 0-65535"]


def test_a_network_acl_is_read_by_number() -> None:
    imported = read(NACL)
    assert imported.exact
    assert [line.partition(": ")[2] for line in said(imported)] == [
        "deny None 192.0.2.128/25 > any 0-65535",
        "permit 6 0.0.0.0/0 > any 443",
        "permit 6 ::/0 > any 443",
        "permit 1 0.0.0.0/0 > any 0-65535",
        "permit 6 0.0.0.0/0 > any 1024-65535",
    ]
    with pytest.raises(BadInput, match=r"Entries\[3\]: another entry of this direction has the number 200 already"):
        read(changed(NACL, ["NetworkAcls", 0, "Entries", 3, "RuleNumber"], 200))


def test_a_network_acl_has_numbers_for_so_many_entries() -> None:
    rules = [
        Rule(RuleId(f"r{number}"), Action.PERMIT, source=Addresses((Prefix.parse(f"10.0.{number}.0/32"),)))
        for number in range(3)
    ]
    numbers = [
        entry["RuleNumber"]
        for entry in json.loads(write(Acl(tuple(rules)), "aws-nacl").text)["NetworkAcls"][0]["Entries"]
    ]
    assert numbers[:3] == [100, 200, 300]
    many = tuple(Prefix.parse(f"10.{high}.{low}.0/24") for high in range(256) for low in range(0, 256, 2))
    with pytest.raises(TooLarge, match="it takes 32768 entries for ingress"):
        write(Acl((Rule(RuleId("r"), Action.PERMIT, source=Addresses(many)),)), "aws-nacl")


def test_a_network_security_group() -> None:
    imported = read(NSG, options=LOAD_BALANCER)
    assert imported.exact, imported.losses
    assert said(imported)[:3] == [
        "no-abuse: deny None 192.0.2.128/25 > any 0-65535",
        "web: permit 6 any > 198.51.100.16/28,198.51.100.64/28 80,443,8000-8099",
        "probes: permit 6 192.0.2.7/32 > any 443",
    ]


def test_service_tags_are_names_and_azures_own_rules_come_last() -> None:
    imported = read(NSG)
    assert [(loss.effect, loss.text) for loss in imported.losses] == [
        (Effect.NARROWER, "properties.securityRules[2]"),
        (Effect.NARROWER, "default rules.AllowVnetOutBound"),
        (Effect.NARROWER, "default rules.AllowInternetOutBound"),
    ]
    assert "--address NAME=PREFIX" in imported.losses[0].reason
    group = {"id": "/subscriptions/x/providers/Microsoft.Network/applicationSecurityGroups/front"}
    text = changed(
        NSG, ["properties", "securityRules", 1, "properties", "destinationApplicationSecurityGroups"], [group]
    )
    assert "'front'" in read(text, options=LOAD_BALANCER).losses[0].reason


def test_a_deny_with_ports_of_any_protocol_may_take_all_of_it() -> None:
    text = changed(NSG, ["properties", "securityRules", 0, "properties", "destinationPortRange"], "22")
    (loss,) = read(text, options=LOAD_BALANCER).losses
    assert (loss.effect, loss.text) == (Effect.WIDER, "properties.securityRules[0]")


@pytest.mark.parametrize("protocol", ["Icmp", "Esp", "Ah"])
@pytest.mark.parametrize(("access", "effect"), [("Allow", Effect.NARROWER), ("Deny", Effect.WIDER)])
def test_ports_of_a_protocol_without_ports_are_a_loss(protocol: str, access: str, effect: Effect) -> None:
    """Azure is known to compare those of ICMP with its type, and does not say so."""
    everything = {f"{side}{what}": "*" for side in ("source", "destination") for what in ("AddressPrefix", "PortRange")}
    rule = {"name": "one", "priority": 10, "direction": "Inbound", **everything, "protocol": protocol, "access": access}
    rest = {**rule, "name": "rest", "priority": 20, "protocol": "*", "access": "Allow"}
    narrowed = json.dumps({"securityRules": [{**rule, "destinationPortRange": "8"}, rest]})
    found = read(narrowed, options=LOAD_BALANCER)
    assert [(loss.effect, loss.text) for loss in found.losses] == [(effect, "securityRules[0]")]
    assert any(rule.id == "one" for rule in found.acl.rules) is (access == "Deny")
    for every in ("*", "0-65535"):
        whole = json.dumps({"securityRules": [{**rule, "destinationPortRange": every}, rest]})
        assert read(whole, options=LOAD_BALANCER).exact


def test_a_doubtful_rule_is_told_where_another_one_has_its_id() -> None:
    first, second = json.loads(NSG)["properties"]["securityRules"][:2]
    body = {**first["properties"], "description": "[no] abuse", "destinationPortRange": "22"}
    group = {"name": "a", "properties": {"securityRules": [
        {"name": "tcp", "properties": {**body, "priority": 10, "protocol": "Tcp"}},
        {"name": "any", "properties": {**body, "priority": 20, "protocol": "*"}},
        {**second, "properties": {**second["properties"], "priority": 30}},
    ]}}  # fmt: skip
    losses = read(json.dumps(group), options=LOAD_BALANCER).losses
    assert [(loss.effect, loss.text) for loss in losses] == [(Effect.WIDER, "properties.securityRules[1]")]


def test_groups_of_one_name_are_told_apart_by_their_ids() -> None:
    first, second = ({**json.loads(NSG), "id": f"/subscriptions/x/resourceGroups/{one}/nsg"} for one in "ab")
    found = read_all(json.dumps([first, second]), options=LOAD_BALANCER)
    assert list(found) == [first["name"], second["id"]]
    with pytest.raises(BadInput, match=r"\[1\]: the group '.*' stands in the text twice"):
        read(json.dumps([json.loads(NSG)] * 2), "azure-nsg")


@pytest.mark.parametrize("wrapped", [lambda rule: rule, lambda rule: [rule], lambda rule: {"value": [rule]}])
def test_rules_without_their_group_are_not_read_as_a_group_without_rules(wrapped: Any) -> None:
    rule = json.loads(NSG)["properties"]["securityRules"][0]
    with pytest.raises(BadInput, match="securityRules is missing"):
        read(json.dumps(wrapped(rule)), "azure-nsg")
    empty = {"resources": [{"type": "Microsoft.Network/networkSecurityGroups", "name": "a"}]}
    assert [rule.action for rule in read(json.dumps(empty), "azure-nsg", options=LOAD_BALANCER).acl.rules]


def test_templates_hold_groups_among_other_resources() -> None:
    template = {"resources": [{"type": "Microsoft.Network/virtualNetworks", "name": "net"}, json.loads(NSG)]}
    assert read(json.dumps(template), options=LOAD_BALANCER).acl == read(NSG, options=LOAD_BALANCER).acl


def test_templates_hold_groups_in_the_templates_that_they_deploy() -> None:
    inner = {"template": {"resources": [json.loads(NSG)]}}
    deployment = {"type": "Microsoft.Resources/deployments", "name": "net", "properties": inner}
    linked = {"type": "Microsoft.Resources/deployments", "name": "far", "properties": {"templateLink": {"uri": "x"}}}
    template = json.dumps({"resources": [linked, deployment]})
    assert read(template, options=LOAD_BALANCER).acl == read(NSG, options=LOAD_BALANCER).acl
    inner["template"]["resources"].append({"type": "Microsoft.Network/networkSecurityGroups/securityRules"})
    with pytest.raises(BadInput, match=r"resources\[0\].properties.template.resources\[1\]: a rule stands apart"):
        read(json.dumps({"resources": [deployment]}), options=LOAD_BALANCER)


def test_what_else_hangs_on_a_group_of_a_template_is_no_rule() -> None:
    group = json.loads(NSG)
    group["resources"] = [{"type": "providers/diagnosticSettings", "name": "Microsoft.Insights/flows"}]
    lock = {"type": f"{group['type']}/providers/locks", "name": "nsg/Microsoft.Authorization/keep"}
    template = json.dumps({"resources": [group, lock]})
    assert read(template, options=LOAD_BALANCER).acl == read(NSG, options=LOAD_BALANCER).acl


def test_rules_of_a_template_that_stand_elsewhere_are_refused() -> None:
    group = json.loads(NSG)
    kind = group["type"]
    looped = {**group, "properties": {**group["properties"], "copy": [{"name": "securityRules", "count": 3}]}}
    for resources, message in (
        ([group, {"type": f"{kind}/securityRules", "name": "nsg/no"}], r"resources\[1\]: a rule stands apart"),
        (
            [{**group, "resources": [{"type": "securityRules"}]}],
            r"resources\[0\]: rules stand in resources of the group",
        ),
        ([looped], r"resources\[0\]: its rules come of a loop"),
    ):
        with pytest.raises(BadInput, match=message):
            read(json.dumps({"resources": resources}), options=LOAD_BALANCER)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("priority", 100, r"securityRules\[1\]: another rule of this direction has the priority 100 already"),
        ("access", "Maybe", r"access: 'Maybe' is not one of allow, deny"),
        ("destinationPortRanges", ["80-"], r"destinationPortRanges\[0\]: '80-' is not a port"),
        ("sourceAddressPrefix", "[parameters('net')]", "is not a prefix, nor the name of a service tag"),
        ("sourceAddressPrefix", "", "sourceAddressPrefix is missing"),
    ],
)
def test_faults_of_rules_name_the_place(key: str, value: object, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        read(changed(NSG, ["properties", "securityRules", 1, "properties", key], value), options=LOAD_BALANCER)


def test_what_azure_cannot_say() -> None:
    ping = Rule(RuleId("ping"), Action.PERMIT, protocol=1, icmp_type=8)
    gre = Rule(RuleId("gre"), Action.DENY, protocol=47)
    exported = write(Acl((ping, gre)), "azure-nsg")
    assert [(loss.text, loss.effect) for loss in exported.losses] == [("ping", Effect.NARROWER), ("gre", Effect.WIDER)]
