"""ML2/OVS and its firewall on the same host and switch: both networks carry packets, and neither touches the other's.

How long rules take from their call to the first packet that they let through is printed for both, in turn. Packets
come from namespaces that are plugged as os-vif plugs an instance.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from instances.looking import LONG_S, endpoints, fetches, typed
from instances.plugged import plug_namespace
from patience import until
from twohosts import example
from twohosts.beside import ovs_network
from twohosts.cloud import Cloud
from twohosts.example import Instance
from twohosts.projects import Project, gateways_of

from orchestrator.bench.cloud.plugs import PORT, Stream, streaming
from orchestrator.policy.formats.native import acl_from_json

_ROUNDS, _CHANGES, _BOOTS, _MANY = 5, 10, 3, 999
"""How often is measured, and how many rules come before the one that lets packets through."""
_Record = Callable[[str, object], None]


@dataclass(frozen=True, slots=True)
class Theirs:
    """A stream between two ports of ML2/OVS, and the security group that both are in."""

    stream: Stream
    api: Any
    group: str

    def permit(self, others: int = 0) -> list[str]:
        """Let the stream in, after some other rules; return the names of all."""
        rules = [_their_rule(self.group, f"10.0.{each >> 8}.{each & 255}/32") for each in range(others)]
        return [each.id for each in self.api.create_security_group_rules([*rules, _their_rule(self.group)])]

    def remove(self, rules: list[str]) -> None:
        """Take rules away again."""
        for each in rules:
            self.api.delete_security_group_rule(each)


@dataclass(frozen=True, slots=True)
class Ours:
    """A stream between two ports of a project of aclflow's."""

    stream: Stream
    cloud: Cloud
    project: Project

    def permit(self, others: int = 0) -> None:
        """Let the stream in, after some other rules."""
        self._put([*(_our_rule(f"other{each}", f"10.0.{each >> 8}.{each & 255}") for each in range(others)),
                   _our_rule("probe")])  # fmt: skip

    def remove(self) -> None:
        """Put the project's list as it was."""
        self._put([])

    def _put(self, rules: list[dict[str, object]]) -> None:
        with self.cloud.control.client() as client:
            client.acls.put(self.project.id, acl_from_json({"rules": [*rules, *example.LISTS[self.project.name]]}))


def _their_rule(group: str, source: str | None = None) -> dict[str, object]:
    return {
        "security_group_id": group, "direction": "ingress", "ethertype": "IPv4", "protocol": "udp",
        "port_range_min": PORT, "port_range_max": PORT, **({} if source is None else {"remote_ip_prefix": source}),
    }  # fmt: skip


def _our_rule(name: str, source: str | None = None) -> dict[str, object]:
    more = {} if source is None else {"source": source}
    return {"id": name, "action": "permit", "protocol": "udp", "destination_ports": PORT, **more}


@pytest.fixture(scope="module")
def network(cloud: Cloud, shop: Instance) -> Iterator[Any]:
    """A network of ML2/OVS, whose agent runs on `one`."""
    with ovs_network(cloud, shop.project) as made:
        yield made


@pytest.fixture(scope="module")
def theirs(cloud: Cloud, shop: Instance, network: Any) -> Iterator[Theirs]:
    api = shop.project.cloud.network
    api.update_quota(shop.project.id, security_group_rules=2 * _MANY)
    group = api.create_security_group(name="probe")
    ports = [
        api.create_port(network_id=network.id, binding_host_id="one", security_group_ids=[group.id]) for _ in range(2)
    ]
    try:
        assert {each.binding_vif_type for each in ports} == {"ovs"}
        assert {each.binding_vif_details["bridge_name"] for each in ports} == {"br-int"}
        with (
            plug_namespace(cloud, "one", "br-int", ports[0]) as sender,
            plug_namespace(cloud, "one", "br-int", ports[1]) as receiver,
            streaming(sender, receiver) as stream,
        ):
            until(lambda: all(api.get_port(each.id).status == "ACTIVE" for each in ports), LONG_S)
            yield Theirs(stream, api, group.id)
    finally:
        for each in ports:
            api.delete_port(each.id)
        api.delete_security_group(group.id)


@pytest.fixture(scope="module")
def ours(cloud: Cloud, shop: Instance) -> Iterator[Ours]:
    api, gateway = shop.project.cloud.network, gateways_of(shop.project, version=4)[0]
    network = api.find_network(shop.project.name)
    subnet = next(iter(api.subnets(network_id=network.id, ip_version=4)))
    ports = [
        api.create_port(network_id=network.id, binding_host_id="one", fixed_ips=[{"subnet_id": subnet.id}])
        for _ in range(2)
    ]
    try:
        with (
            plug_namespace(cloud, "one", "br-aclflow", ports[0], gateway) as sender,
            plug_namespace(cloud, "one", "br-aclflow", ports[1], gateway) as receiver,
            streaming(sender, receiver) as stream,
        ):
            until(lambda: all(api.get_port(each.id).status == "ACTIVE" for each in ports), LONG_S)
            found = Ours(stream, cloud, shop.project)
            yield found
            found.remove()
    finally:
        for each in ports:
            api.delete_port(each.id)


def test_both_open_and_close_their_own_ports_by_one_rule(
    cloud: Cloud, shop: Instance, theirs: Theirs, ours: Ours, record_property: _Record
) -> None:
    assert fetches(cloud, shop.address, patience_s=60.0)
    taken: dict[str, list[float]] = {"neutron_ovs": [], "rest": []}
    for _ in range(_ROUNDS):
        rules: list[str] = []
        taken["neutron_ovs"].append(theirs.stream.measure_opening_s(lambda rules=rules: rules.extend(theirs.permit())))
        assert not ours.stream.is_open(), "their rule is not ours"
        taken["rest"].append(ours.stream.measure_opening_s(ours.permit))
        theirs.remove(rules)
        until(lambda: not theirs.stream.is_open())
        until(ours.stream.is_open, what=lambda: "what closed theirs closed ours")
        ours.remove()
        until(lambda: not ours.stream.is_open())
    _tell(record_property, "one_rule", {name: statistics.median(each) for name, each in taken.items()})
    assert fetches(cloud, shop.address, patience_s=60.0)
    assert not fetches(cloud, shop.address, 81)


def test_a_live_change_loses_no_packet(theirs: Theirs, ours: Ours, record_property: _Record) -> None:
    ours.permit()
    kept = theirs.permit()
    lost = {"rest": 0, "neutron_ovs": 0}
    for number in range(_CHANGES):
        more: list[str] = []
        lost["rest"] += ours.stream.count_lost(lambda number=number: ours.permit(number + 1))
        lost["neutron_ovs"] += theirs.stream.count_lost(
            lambda number=number, more=more: more.append(_other(theirs, number))
        )
        theirs.remove(more)
    record_property("packets_lost", lost)
    print("packets lost in", _CHANGES, "changes:", lost, flush=True)
    ours.remove()
    theirs.remove(kept)
    assert lost["rest"] == 0


def test_the_agent_takes_no_port_of_aclflow_s(cloud: Cloud, shop: Instance, network: Any) -> None:
    booted = example.boot(cloud, shop.project, "beside", "one")
    port = booted.project.port(booted.server)
    assert port.binding_vif_details["bridge_name"] == "br-aclflow"
    assert port.id in endpoints(cloud)
    until(lambda: fetches(cloud, booted.address), LONG_S)
    assert not fetches(cloud, booted.address, 81)
    shop.project.cloud.compute.delete_server(booted.server)
    until(lambda: booted.address not in cloud.announced(), LONG_S)


def test_a_running_instance_goes_over_to_aclflow_and_back_by_one_port_after_the_other(
    cloud: Cloud, shop: Instance, network: Any
) -> None:
    project, api, compute = shop.project, shop.project.cloud.network, shop.project.cloud.compute
    server = project.boot("changer", "one", plug={"uuid": network.id})
    until(lambda: project.server(server).status == "ACTIVE", LONG_S, what=lambda: project.server(server))
    until(lambda: "terminal ready" in project.log(server), LONG_S)
    changer = Instance("changer", project, "one", project.server(server), "", "")
    before = project.port(server)

    port = _plug_in(project, server, api.find_network(project.name).id)
    address = next(each["ip_address"] for each in port.fixed_ips if ":" not in each["ip_address"])
    until(lambda: "eth1" in typed(cloud, changer, "ls /sys/class/net"))
    typed(cloud, changer, "ip link set eth1 up; udhcpc -n -q -t 60 -T 1 -i eth1 -s /etc/address")
    until(lambda: fetches(cloud, address), LONG_S)
    assert not fetches(cloud, address, 81)
    compute.delete_server_interface(before.id, server)
    until(lambda: "eth0" not in typed(cloud, changer, "ls /sys/class/net"), LONG_S)
    assert fetches(cloud, address, patience_s=60.0)

    _plug_in(project, server, network.id)
    compute.delete_server_interface(port.id, server)
    until(lambda: port.id not in endpoints(cloud), LONG_S)
    until(lambda: address not in cloud.announced(), LONG_S)
    assert not fetches(cloud, address)
    compute.delete_server(server)
    until(lambda: project.port(server) is None, LONG_S)


def _plug_in(project: Project, server: Any, network: str) -> Any:
    """Have Nova plug an instance into one more network; return the port when it is active."""
    made = project.cloud.compute.create_server_interface(server, net_id=network)
    port = project.cloud.network.get_port
    until(lambda: port(made.port_id).status == "ACTIVE", LONG_S, what=lambda: port(made.port_id))
    return port(made.port_id)


def test_instances_of_both_become_active(shop: Instance, network: Any, record_property: _Record) -> None:
    """From the call to the moment when Nova has plugged the instance, Neutron's word has come, and it runs."""
    project = shop.project
    taken: dict[str, list[float]] = {"neutron_ovs": [], "rest": []}
    for number in range(_BOOTS):
        for name, plug in (("neutron_ovs", {"uuid": network.id}), ("rest", None)):
            begun = time.monotonic()
            server = project.boot(f"{name}{number}", "one", plug=plug)
            until(lambda server=server: project.server(server).status != "BUILD", LONG_S)
            assert project.server(server).status == "ACTIVE"
            taken[name].append(time.monotonic() - begun)
            assert project.port(server).status == "ACTIVE"
            project.cloud.compute.delete_server(server)
            until(lambda server=server: project.port(server) is None, LONG_S)
    _tell(record_property, "boot", {name: statistics.median(each) for name, each in taken.items()})


def test_both_open_by_a_thousand_rules(theirs: Theirs, ours: Ours, record_property: _Record) -> None:
    taken = {"rest": ours.stream.measure_opening_s(lambda: ours.permit(_MANY))}
    taken["neutron_ovs"] = theirs.stream.measure_opening_s(lambda: theirs.permit(_MANY))
    _tell(record_property, "thousand_rules", taken)
    ours.remove()


def _other(theirs: Theirs, number: int) -> str:
    """Add a rule that no packet of the stream meets; return its name."""
    (made,) = theirs.api.create_security_group_rules([_their_rule(theirs.group, f"10.1.0.{number}/32")])
    return str(made.id)


def _tell(record_property: _Record, name: str, taken: dict[str, float]) -> None:
    """Print and record two times and their ratio."""
    ratio = taken["neutron_ovs"] / taken["rest"]
    record_property(name, {**{each: round(1000 * value, 1) for each, value in taken.items()}, "ratio": round(ratio, 1)})
    print(name, {each: f"{1000 * value:.1f} ms" for each, value in taken.items()}, f"{ratio:.1f}", flush=True)
