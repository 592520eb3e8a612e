"""OpenStack and Kubernetes, case by case: which lists are read, what is lost, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import AclflowError, BadInput
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.registry import guess, read, read_all, write
from orchestrator.policy.formats.results import Effect, Options
from orchestrator.policy.model import Action, Direction

FIXTURES = Path(__file__).parent / "fixtures"
GROUPS = (FIXTURES / "web.openstack-sg").read_text()
FIREWALL = (FIXTURES / "web.openstack-fwaas").read_text()
FIREWALL_RULES = json.loads(FIREWALL)["firewall_rules"]
POLICIES = (FIXTURES / "web.kubernetes").read_text()
CACHE = (Prefix.parse("10.9.0.0/16"), Prefix.parse("2001:db8:9::/48"))
RULE = {"direction": "ingress", "ethertype": "IPv4", "protocol": "tcp", "port_range_min": 22, "port_range_max": 22}


def group(name: str, *rules: dict[str, Any]) -> dict[str, Any]:
    return {"id": f"id-{name}", "name": name, "security_group_rules": list(rules)}


def test_what_a_remote_group_stands_for_can_be_told() -> None:
    assert [loss.effect for loss in read(GROUPS).losses] == [Effect.NARROWER]
    found = read(GROUPS, options=Options(addresses={"0e2b": CACHE}))
    assert found.exact
    assert any("10.9.0.0/16" in str(rule.source) for rule in found.acl.rules)


def test_address_groups_of_the_text_are_known() -> None:
    rule = next(rule for rule in read(GROUPS).acl.rules if rule.protocol == 112)
    assert str(rule.source) == "192.0.2.1/32,192.0.2.2/32"


@pytest.mark.parametrize(
    "document",
    [
        {"security_groups": [group("a", RULE)]},
        {"security_group": group("a", RULE)},
        [group("a", RULE)],
        group("a", RULE),
        {"security_group_rules": [RULE]},
        [RULE],
        [{**RULE, "ethertype": None, "ether_type": "IPv4", "tags": [], "location": {"cloud": "x"}}],
    ],
)
def test_groups_come_in_many_wrappings(document: Any) -> None:
    text = json.dumps(document)
    assert guess(text, "x").name == "openstack-sg"
    (rule,) = read(text).acl.rules
    assert (rule.protocol, [str(ports) for ports in rule.destination_ports]) == (6, ["22"])


def test_a_group_as_the_command_line_tool_shows_it() -> None:
    text = json.dumps({"name": "a", "project_id": "5c0f", "rules": [RULE], "stateful": True})
    assert guess(text, "x").name == "openstack-sg"
    assert [rule.protocol for rule in read(text).acl.rules] == [6]


@pytest.mark.parametrize("key", ["stateful", "is_stateful"])
def test_a_group_that_is_stateless_is_told(key: str) -> None:
    stateless = {**group("a", RULE), key: False}
    assert "a is stateless: Neutron lets replies pass by rules of their own only" in read(json.dumps(stateless)).notes
    assert not any("tracks connections" in note for note in read(json.dumps(stateless)).notes)
    both = read(json.dumps([stateless, group("b", RULE)]), options=Options(lists=("a", "b")))
    assert any("tracks connections" in note for note in both.notes)
    with pytest.raises(BadInput, match="stateful: 'no' is not true or false"):
        read(json.dumps({**stateless, key: "no"}))


def test_ports_of_other_protocols_are_a_loss() -> None:
    imported = read(json.dumps([group("a", {**RULE, "protocol": "dccp"}, RULE)]))
    assert [(loss.effect, loss.line) for loss in imported.losses] == [(Effect.NARROWER, 1)]
    assert [rule.protocol for rule in imported.acl.rules] == [6]


def test_of_several_groups_those_named_are_read() -> None:
    text = json.dumps(
        [group("a", RULE), group("b", {**RULE, "protocol": "udp"}), group("b", {**RULE, "protocol": "sctp"})]
    )
    with pytest.raises(BadInput, match=r"it holds more than a security group: name those to read .* among a, b, id-b"):
        read(text)
    protocols = {
        names: {rule.protocol for rule in read(text, options=Options(lists=names)).acl.rules}
        for names in (("a",), ("b",), ("id-b",), ("a", "id-b"), ("a=egress",))
    }
    assert protocols == {("a",): {6}, ("b",): {17}, ("id-b",): {132}, ("a", "id-b"): {6, 132}, ("a=egress",): set()}
    assert list(read_all(text)) == ["a", "b", "id-b"]
    with pytest.raises(BadInput, match=r"security_groups\[0\]: security_group_rules are missing"):
        read(json.dumps({"security_groups": [{"id": "1", "name": "a"}]}))
    with pytest.raises(BadInput, match="c is not a security group of it; there are a, b, id-b"):
        read(text, options=Options(lists=("c",)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"direction": "sideways"}, "a direction is ingress or egress"),
        ({"ethertype": "IPX"}, "its ethertype is neither IPv4 nor IPv6"),
        ({"remote_ip_prefix": "2001:db8::/32"}, "a prefix of the other IP version"),
        ({"remote_ip_prefix": "10.0.0.0/33"}, "'10.0.0.0/33' is not a prefix"),
        ({"remote_ip_prefix": "10.0.0.300/8"}, "'10.0.0.300/8' is not a prefix"),
        ({"direction": True}, "true is not a string"),
        ({"port_range_max": None}, "its range of ports has one end only"),
        ({"port_range_min": 80}, "or ends before it begins"),
        ({"port_range_min": "x"}, "'x' is not a whole number"),
        ({"protocol": None}, "ports without a protocol"),
        (
            {"remote_ip_prefix": "10.0.0.0/8", "remote_group_id": "5c0f"},
            "only one of remote_ip_prefix, remote_group_id",
        ),
        ({"protocol": "gre"}, "only tcp, udp and sctp have ports"),
        ({"protocol": "icmp", "port_range_min": 300}, "an ICMP type or code is 0 to 255"),
        ({"protocol": "icmp", "port_range_min": None}, "an ICMP code means nothing"),
        ({"protocol": "nonsense"}, "'nonsense' is not a protocol"),
        ({"protocol": 6.5}, "6.5 is not a string"),
    ],
)
def test_faults_of_groups_name_their_place(change: dict[str, Any], message: str) -> None:
    with pytest.raises(AclflowError) as caught:
        read(json.dumps({"security_groups": [group("a", RULE, {**RULE, **change})]}), name="f")
    assert str(caught.value).startswith("f, security_groups[0].security_group_rules[1]")
    assert message in str(caught.value)


def test_a_word_that_is_not_known_is_a_loss() -> None:
    found = read(json.dumps([group("a", {**RULE, "local_ip_prefix": "10.0.0.1/32"})]))
    assert found.acl.rules == ()
    assert [loss.reason for loss in found.losses] == ["'local_ip_prefix' is not known here"]


def test_denies_are_taken_out_of_the_permits_of_a_group() -> None:
    native = {"rules": [{"id": "no", "action": "deny", "source": "10.1.0.0/16"},
                        {"id": "web", "action": "permit", "protocol": "tcp", "source": "10.0.0.0/15",
                         "destination_ports": 80}], "egress_default": "deny"}  # fmt: skip
    exported = write(read(json.dumps(native), "native").acl, "openstack-sg")
    rules = json.loads(exported.text)["security_groups"][0]["security_group_rules"]
    assert [(rule["remote_ip_prefix"], rule["description"]) for rule in rules] == [("10.0.0.0/16", "[web]")]
    assert "it only permits" in exported.notes[0].text


@pytest.mark.parametrize(
    ("ports", "written"), [(["0-9", 22], [(1, 9), (22, 22)]), ([0], []), (["0-65535"], [(None, None)])]
)
def test_neutron_takes_no_port_0(ports: list[Any], written: list[Any]) -> None:
    rule = {"id": "r", "action": "permit", "protocol": "tcp", "source": "10.0.0.0/8", "destination_ports": ports}
    acl = read(json.dumps({"rules": [rule], "egress_default": "deny"}), "native").acl
    exported = write(acl, "openstack-sg")
    rules = json.loads(exported.text)["security_groups"][0]["security_group_rules"]
    assert [(one["port_range_min"], one["port_range_max"]) for one in rules] == written
    reasons = [loss.reason for loss in exported.losses]
    assert reasons == ([] if ports == ["0-65535"] else ["port 0 cannot be named in openstack-sg"])


def test_a_protocol_that_no_packet_has_is_not_written() -> None:
    """Number 1 under IPv6 is nobody's; as `icmp` it would be read as ICMPv6, which is denied here."""
    native = {"rules": [{"id": "no", "action": "deny", "protocol": "icmpv6"}, {"id": "rest", "action": "permit"}]}
    exported = write(read(json.dumps(native), "native").acl, "openstack-sg")
    rules = json.loads(exported.text)["security_groups"][0]["security_group_rules"]
    assert not [rule for rule in rules if rule["protocol"] in ("icmp", "1", "58") and rule["ethertype"] == "IPv6"
                and rule["direction"] == "ingress"]  # fmt: skip


def test_protocol_0_is_not_taken_for_one_protocol() -> None:
    """To Neutron's interface and to iptables 0 is every protocol, to Open vSwitch it is 0."""
    imported = read(json.dumps([group("a", {**RULE, "protocol": "0", "port_range_min": None, "port_range_max": None})]))
    assert [loss.effect for loss in imported.losses] == [Effect.NARROWER]
    assert not imported.acl.rules
    document = {"action": "deny", "ip_version": 4, "protocol": 0, "source_ip_address": "10.0.0.0/8"}
    refused = read(json.dumps([document, {"action": "allow", "ip_version": 4}]), "openstack-fwaas")
    assert [loss.effect for loss in refused.losses] == [Effect.WIDER]
    assert refused.acl.rules[0].protocol is None


def test_what_is_left_of_every_protocol_is_not_written_as_every_protocol() -> None:
    native = {"rules": [{"id": "no-tcp", "action": "deny", "protocol": "tcp"}, {"id": "rest", "action": "permit"}],
              "egress_default": "deny"}  # fmt: skip
    exported = write(read(json.dumps(native), "native").acl, "openstack-sg")
    rules = json.loads(exported.text)["security_groups"][0]["security_group_rules"]
    assert not {rule["protocol"] for rule in rules} & {None, "0", "tcp", "6"}
    assert [(loss.text, loss.effect) for loss in exported.losses] == [("rest", Effect.NARROWER)]


def test_a_firewall_group_names_its_policies() -> None:
    found = read(FIREWALL)
    assert "ingress is the policy in" in found.notes
    assert "egress is the policy out" in found.notes
    assert found.acl.egress_default is Action.DENY
    only = read(FIREWALL, options=Options(lists=("in=egress",)))
    assert {rule.direction for rule in only.acl.rules} == {Direction.EGRESS}
    with pytest.raises(BadInput, match="both in and out are for ingress"):
        read(FIREWALL, options=Options(lists=("in", "out=ingress")))


def test_a_group_without_an_egress_policy_lets_nothing_out() -> None:
    document = json.loads(FIREWALL)
    document["firewall_groups"][0]["egress_firewall_policy_id"] = None
    found = read(json.dumps(document), options=Options(lists=("in",)))
    assert found.acl.egress_default is Action.DENY
    loose = read(json.dumps(document["firewall_rules"]), "openstack-fwaas")
    assert loose.acl.egress_default is Action.PERMIT


def test_a_rule_by_group_is_a_loss_where_it_matters() -> None:
    document = json.loads(FIREWALL)
    document["firewall_rules"][4]["action"] = "allow"
    assert [loss.effect for loss in read(json.dumps(document)).losses] == [Effect.NARROWER]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"action": "perhaps"}, "an action is allow, deny or reject"),
        ({"ip_version": 5}, "an IP version is 4 or 6"),
        ({"enabled": "yes"}, "'yes' is not true or false"),
        ({"destination_port": "80-90"}, "'80-90' is not a port or a range such as 80:443"),
        ({"destination_port": "90:80"}, "'90:80' is not a range of ports"),
        ({"protocol": None}, "only tcp, udp and sctp have ports"),
    ],
)
def test_faults_of_firewalls_name_their_place(change: dict[str, Any], message: str) -> None:
    document = json.loads(FIREWALL)
    document["firewall_rules"][0].update(change)
    with pytest.raises(AclflowError) as caught:
        read(json.dumps(document), name="f")
    assert str(caught.value).startswith("f, firewall_rules[0]")
    assert message in str(caught.value)


def test_rules_by_themselves_must_stand_in_order() -> None:
    first, second = ({**rule, "position": place} for place, rule in enumerate(FIREWALL_RULES[:2], 1))
    assert len(read(json.dumps({"firewall_rules": [first, second]}), "openstack-fwaas").acl.rules) > 1
    for document in ({"firewall_rules": [second, first]}, [second, first]):
        with pytest.raises(BadInput, match=r"\[1\].position: rules without their policy must stand in the order"):
            read(json.dumps(document), "openstack-fwaas")


def test_rules_as_openstacksdk_gives_them() -> None:
    more = {"summary": "TCP, source: any, destination: any, allow", "location": {"cloud": "x"}, "is_shared": False}
    rules = [{**rule, **more} for rule in FIREWALL_RULES]
    assert (
        read(json.dumps(rules), "openstack-fwaas").losses == read(json.dumps(FIREWALL_RULES), "openstack-fwaas").losses
    )


@pytest.mark.parametrize("document", [{"firewall_rule": FIREWALL_RULES[0]}, {"firewall_policy": {"name": "in"}}, {}])
def test_a_text_without_policies_is_not_read_as_a_list_without_rules(document: Any) -> None:
    with pytest.raises(BadInput, match="there is no firewall policy in it, and no list of firewall_rules"):
        read(json.dumps(document), "openstack-fwaas")


def test_a_policy_or_a_rule_that_is_not_in_the_text_is_named() -> None:
    document = json.loads(FIREWALL)
    del document["firewall_policies"][1]
    groups = {"firewall_groups": document["firewall_groups"]}
    for text, policy in ((document, "egress_firewall_policy_id: the policy 'p2'"), (groups, "the policy 'p1'")):
        with pytest.raises(BadInput, match=rf"firewall_groups\[0\]..*{policy} is not in the text"):
            read(json.dumps(text), "openstack-fwaas")
    del document["firewall_policies"][0]["firewall_rules"]
    with pytest.raises(BadInput, match=r"firewall_policies\[0\]: firewall_rules is missing"):
        read(json.dumps({**document, "firewall_groups": []}))
    with pytest.raises(BadInput, match=r"firewall_rules\[0\]: the rule 'r1' is not in the text"):
        read(json.dumps({"id": "p1", "name": "in", "firewall_rules": ["r1"]}), "openstack-fwaas")


def test_a_group_that_is_down_is_not_read_as_if_it_were_up() -> None:
    document = json.loads(FIREWALL)
    document["firewall_groups"][0]["admin_state_up"] = True
    assert read(json.dumps(document)).acl == read(FIREWALL).acl
    document["firewall_groups"][0]["admin_state_up"] = False
    with pytest.raises(
        BadInput, match=r"firewall_groups\[0\].admin_state_up: Neutron lets nothing pass a group that is"
    ):
        read(json.dumps(document))


def test_policies_of_the_same_pods_are_read_together() -> None:
    found = read(POLICIES, name="f")
    assert "read is what these policies permit together: shop/web, shop/web-more" in found.notes
    other = POLICIES.replace("{name: web-more, namespace: shop}", "{name: web-more, namespace: office}")
    with pytest.raises(BadInput, match=r"name those to read .* among shop/web, office/web-more"):
        read(other)
    assert list(read_all(other)) == ["shop/web", "office/web-more"]


def test_peers_by_label_can_be_told() -> None:
    addresses = {"shop/pods[app=cache]": CACHE, "namespaces[team in (a,b)]/pods[]": CACHE[:1]}
    found = read(POLICIES, options=Options(addresses=addresses))
    assert {loss.reason.split(" is")[0] for loss in found.losses} == {"which port"}
    assert any("10.9.0.0/16" in str(rule.source) for rule in found.acl.rules)


def test_a_direction_that_no_policy_is_about_is_open() -> None:
    head = POLICIES.split("---")[1]
    found = read(head, "kubernetes")
    assert (found.acl.ingress_default, found.acl.egress_default) == (Action.DENY, Action.PERMIT)
    closed = read(head.replace("  ingress:\n  - {}\n", "  policyTypes: [Egress]\n"), "kubernetes")
    assert (closed.acl.ingress_default, closed.acl.egress_default) == (Action.PERMIT, Action.DENY)
    assert closed.acl.rules == ()


def test_egress_without_rules_is_open_unless_the_types_name_it() -> None:
    head = POLICIES.split("---")[1].replace("  ingress:\n  - {}\n", "  egress: []\n")
    assert read(head, "kubernetes").acl.egress_default is Action.PERMIT
    named = read(head.replace("  egress: []\n", "  policyTypes: [Egress]\n  egress: []\n"), "kubernetes")
    assert named.acl.egress_default is Action.DENY


def test_a_block_with_a_word_that_is_not_known_is_a_loss() -> None:
    losses = read(POLICIES.replace("except:", "excepts:", 1), "kubernetes").losses
    assert [loss.effect for loss in losses if "'excepts' is not known here" in loss.reason] == [Effect.NARROWER]


def test_json_and_lists_of_policies_are_read() -> None:
    import_of = json.loads(json.dumps({"apiVersion": "v1", "kind": "List", "items": []}))
    body = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "a"},
            "spec": {"podSelector": {}, "ingress": [{"ports": [{"port": 80}]}]}}  # fmt: skip
    import_of["items"] = [body, {"apiVersion": "v1", "kind": "Pod"}]
    found = read(json.dumps(import_of))
    assert [rule.protocol for rule in found.acl.rules] == [6, 6]
    assert "Pod is no network policy and is left out" in found.notes


@pytest.mark.parametrize("kind", ["AdminNetworkPolicy", "ClusterNetworkPolicy", "CiliumNetworkPolicy"])
def test_policies_of_other_kinds_are_not_passed_over(kind: str) -> None:
    other = f"---\napiVersion: policy.networking.k8s.io/v1alpha1\nkind: {kind}\nmetadata: {{name: no}}\n"
    with pytest.raises(BadInput, match=f"a {kind} may decide before network policies do, and is not read"):
        read(f"{POLICIES}\n{other}", "kubernetes", name="f")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("port: 80}", "port: 99999}", "f, line 18, spec.ingress[0].ports[0].port: 99999 is not in 0..65535"),
        ("endPort: 8080", "endPort: 80", "f, line 21, spec.ingress[0].ports[1].endPort: 80 is not in 8000..65535"),
        ("cidr: 0.0.0.0/0", "cidr: 0.0.0.0/x", "f, line 14, spec.ingress[0].from[0].ipBlock.cidr: '0.0.0.0/x'"),
        ("[Ingress, Egress]", "[Ingress, Out]", "f, line 10, spec.policyTypes[1]: a policy type is Ingress or Egress"),
        ("networking.k8s.io/v1", "extensions/v1beta1", "f, line 2, apiVersion: only networking.k8s.io/v1 is read"),
        ("protocol: UDP, port: 53", "protocol: ICMP", "f, line 33, spec.egress[0].ports[0]: a protocol is TCP, UDP or"),
        ("  policyTypes:", "  policyKinds:", "f, line 7, spec: 'policyKinds' is not known here"),
        ("{app: web}", "{app: 1}", "f, line 9, spec.podSelector.matchLabels.app: 1 is not a string"),
        (
            "matchLabels: {app: cache}",
            "labels: {app: x}",
            "f, line 23, spec.ingress[1].from[0].podSelector: 'labels' is",
        ),
        ("operator: In", "operator: In, value: x", "f, line 26, spec.ingress[1].from[1].namespaceSelector.matchExp"),
        ("operator: In", "operator: Is", "f, line 26, spec.ingress[1].from[1].namespaceSelector.matchExp"),
    ],
)
def test_faults_of_policies_name_their_line(old: str, new: str, message: str) -> None:
    with pytest.raises(AclflowError) as caught:
        read(POLICIES.replace(old, new, 1), "kubernetes", name="f")
    assert str(caught.value).startswith(message)


def test_what_a_policy_cannot_say_is_told() -> None:
    native = {"rules": [{"id": "ping", "action": "permit", "protocol": "icmp"},
                        {"id": "no-tcp", "action": "deny", "protocol": "tcp", "destination_ports": 25},
                        {"id": "rest", "action": "permit"}]}  # fmt: skip
    exported = write(read(json.dumps(native), "native").acl, "kubernetes")
    assert [(loss.text, loss.reason, loss.effect) for loss in exported.losses] == [
        ("ping", "Kubernetes knows tcp, udp and sctp", Effect.NARROWER),
        ("rest", "port 0 cannot be named in kubernetes", Effect.NARROWER),
        ("rest", "Kubernetes knows tcp, udp and sctp", Effect.NARROWER),
    ]
