"""A point of presence is read from YAML once; what could not be built is refused with the place of the fault."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples

from orchestrator.errors import AclflowError, BadInput, BadPolicy, Missing, NotFound
from orchestrator.lab import spec, specfile
from orchestrator.lab.layout import Layout
from orchestrator.lab.spec import ClientSpec, EndpointSpec, HostSpec, PopSpec, TenantSpec
from orchestrator.policy.addresses import Family, Prefix, format_mac
from orchestrator.policy.model import TenantId

SMALL = """
hosts: [{name: host1}]
clients: [{name: alice, addresses: [192.0.2.1]}]
tenants:
  - {id: shop, prefixes: [198.51.100.0/25, "2001:db8:100::/48"]}
endpoints:
  - {name: web, tenant: shop, host: host1, addresses: [198.51.100.1]}
"""


def changed(path: str, value: object) -> str:
    """SMALL with one field set, as in ``endpoints.0.host``; `None` removes it."""
    document = yaml.safe_load(SMALL)
    *way, last = [int(word) if word.isdigit() else word for word in path.split(".")]
    inner = document
    for word in way:
        inner = inner[word]
    if value is None:
        del inner[last]
    else:
        inner[last] = value
    return yaml.safe_dump(document)


def test_the_shipped_description_is_right_and_as_the_documents_say() -> None:
    pop = specfile.load()
    assert [(tenant.id, [str(prefix) for prefix in tenant.prefixes]) for tenant in pop.tenants] == [
        ("shop", ["198.51.100.0/25", "2001:db8:100::/48"]),
        ("bank", ["203.0.113.0/25", "2001:db8:200::/48"]),
    ]
    assert {endpoint.name: endpoint.host for endpoint in pop.endpoints} == {
        "web1": "host1", "db1": "host2", "bank1": "host1", "bank2": "host2",
    }  # fmt: skip
    internet = (Prefix.parse("192.0.2.0/24"), Prefix.parse("2001:db8:ffff::/64"))
    assert all(any(block.contains(p) for block in internet) for c in pop.clients for p in c.addresses)


def test_what_is_left_out_is_numbered_and_named() -> None:
    pop = specfile.parse(SMALL)
    web = pop.endpoint("web")
    assert (web.port, format_mac(web.mac)) == ("web", "0a:ac:1f:01:00:01")
    assert pop.host("host1") == HostSpec("host1", "0000ac1f00000101")
    assert (pop.clients[0].port, pop.hosts[0].uplink, pop.hosts[0].edge_port) == ("cl-alice", "up-host1", "to-host1")
    assert [node.name for node in pop.nodes] == ["alice", "web"]


@pytest.mark.parametrize(
    ("path", "value", "place", "kind"),
    [
        ("endpoints.0.host", "host9", "endpoints[0].host", BadInput),
        ("endpoints.0.tenant", "bank", "endpoints[0].tenant", BadInput),
        ("endpoints.0.addresses.0", "203.0.113.1", "endpoints[0].addresses[0]", BadPolicy),
        ("endpoints.0.addresses.0", "198.51.100.300", "endpoints[0].addresses[0]", BadInput),
        ("endpoints.0.addresses.0", 7, "endpoints[0].addresses[0]", BadInput),
        ("endpoints.0.addresses", [], "endpoints[0].addresses", BadInput),
        ("endpoints.0.name", "alice", "endpoints[0].name", BadInput),
        ("endpoints.0.name", "ovs", "endpoints[0].name", BadInput),
        ("endpoints.0.name", "a-name-too-long-for-a-link", "endpoints[0].name", BadInput),
        ("endpoints.0.port", "up-host1", "endpoints[0].port", BadInput),
        ("endpoints.0.port", "cl-alice", "endpoints[0].port", BadInput),
        ("endpoints.0.port", "host1", "endpoints[0].port", BadInput),
        ("endpoints.0.mac", "0a:ac", "endpoints[0].mac", BadInput),
        ("endpoints.0.silent", "yes", "endpoints[0].silent", BadInput),
        ("endpoints.0.colour", "red", "endpoints[0].colour", BadInput),
        ("endpoints.0.name", None, "endpoints[0].name", BadInput),
        ("hosts", [], "hosts", BadInput),
        ("hosts.0", "host1", "hosts[0]", BadInput),
        ("hosts.0.datapath_id", "1", "hosts[0].datapath_id", BadInput),
        ("clients.0.addresses.0", "192.0.2.1/31", "clients[0].addresses[0]", BadInput),
        ("clients.0.addresses", ["192.0.2.1", "192.0.2.1/32"], "clients[0].addresses[1]", BadInput),
        ("tenants.0.prefixes", ["198.51.100.0/25", "198.51.100.0/26"], "tenants[0].prefixes[1]", BadPolicy),
        ("tenants.0.id", 5, "tenants[0].id", BadInput),
        ("clients", {"name": "alice"}, "clients", BadInput),
        ("colour", "red", "colour", BadInput),
        ("routed", "yes", "routed", BadInput),
    ],
)
def test_a_wrong_description_is_refused_at_its_place(
    path: str, value: object, place: str, kind: type[AclflowError]
) -> None:
    with pytest.raises(kind) as refused:
        specfile.parse(changed(path, value))
    assert refused.value.place == place


def test_hosts_with_routed_uplinks_have_what_a_router_can_know() -> None:
    routed = changed("routed", True)
    pop = specfile.parse(routed)
    assert pop.routed
    assert not specfile.parse(SMALL).routed
    assert (pop.hosts[0].uplink, pop.inner_ports) == ("up0", ("to-router",))
    assert specfile.parse(specfile.dump(pop)) == pop
    for path, value, place in (
        ("tenants.0.prefixes", ["198.51.100.0/25", "2001:db8:100::/48", "0.0.0.0/0"], "tenants[0].prefixes[0]"),
        ("clients.0.name", "router", "clients[0].name"),
        ("endpoints.0.port", "up0", "endpoints[0].port"),
    ):
        document = yaml.safe_load(changed(path, value))
        with pytest.raises(AclflowError) as refused:
            specfile.parse(yaml.safe_dump({**document, "routed": True}))
        assert refused.value.place is not None
        assert refused.value.place.split(".")[0] == place.split(".")[0]
    with pytest.raises(BadInput, match="all hosts"):
        replace(pop, hosts=(*pop.hosts, HostSpec("host2", "0000ac1f00000102")))


def test_two_tenants_cannot_own_the_same_addresses() -> None:
    document = yaml.safe_load(SMALL)
    document["tenants"].append({"id": "bank", "prefixes": ["198.51.0.0/16"]})
    with pytest.raises(BadPolicy, match=r"198\.51\.0\.0/16 overlaps 198\.51\.100\.0/25 of shop") as refused:
        specfile.parse(yaml.safe_dump(document))
    assert refused.value.place == "tenants[1].prefixes[0]"


def test_what_is_not_yaml_or_not_there_says_where(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="line 2, column"):
        specfile.parse("hosts: [\n")
    with pytest.raises(BadInput, match="expected fields with names"):
        specfile.parse("- a\n- b\n")
    with pytest.raises(Missing, match=r"nowhere\.yaml"):
        specfile.load(tmp_path / "nowhere.yaml")
    broken = tmp_path / "broken.yaml"
    broken.write_text(changed("endpoints.0.host", "host9"))
    with pytest.raises(BadInput, match=r"broken\.yaml\.endpoints\[0\]\.host: no host is called 'host9'"):
        specfile.load(broken)
    broken.write_bytes(b"\xff\xfe")
    with pytest.raises(BadInput, match="UTF-8"):
        specfile.load(broken)


def test_looking_for_what_is_not_there() -> None:
    pop = specfile.parse(SMALL)
    for look in (pop.host, pop.endpoint, pop.node):
        with pytest.raises(NotFound, match="'nobody'"):
            look("nobody")


ADDRESSES = st.one_of(
    st.builds(lambda n: Prefix(Family.IPV4, n, 32), st.integers(0x0A000000, 0x0AFFFFFF)),
    st.builds(lambda n: Prefix(Family.IPV6, n, 128), st.integers(0xFD << 120, (0xFE << 120) - 1)),
)


@given(addresses=st.lists(ADDRESSES, min_size=2, max_size=6, unique=True), hosts=st.integers(1, 3))
@settings(max_examples=examples(50), deadline=None)
def test_a_description_survives_being_written_and_read(addresses: list[Prefix], hosts: int) -> None:
    first, *rest = addresses
    pop = PopSpec(
        domain="here",
        clients=(ClientSpec("alice", spec.CLIENT_MACS + 1, (first,)),),
        hosts=tuple(HostSpec(f"h{n}", f"{n + 7:016x}") for n in range(hosts)),
        tenants=(TenantSpec(TenantId("t"), (Prefix.parse("0.0.0.0/0"), Prefix.parse("::/0"))),),
        endpoints=tuple(
            EndpointSpec(
                f"e{n}", TenantId("t"), f"h{n % hosts}", f"port{n}", 0x020000000000 + n, (address,), n % 2 == 1
            )
            for n, address in enumerate(rest)
        ),
    )
    assert specfile.parse(specfile.dump(pop)) == pop


def test_a_prefix_of_names_cannot_begin_another_labs() -> None:
    layout = Layout("lab7-")
    assert (layout.ovs_namespace, layout.namespace("web"), layout.management_link) == (
        "lab7-ovs",
        "lab7-web",
        "lab7-mgmt",
    )
    assert len(Layout("a" * 10 + "-").management_link) <= 15
    for wrong in ("lab", "lab-x-", "-", "", "LAB-", "a" * 11 + "-", "../x-", "7lab-", "lab-\n"):
        with pytest.raises(BadInput):
            Layout(wrong)
