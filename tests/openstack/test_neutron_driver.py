"""Neutron's ports become endpoints: a real Neutron with our driver, a real service, real tables of a real switch."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from ipaddress import IPv4Address
from typing import Any

import openstack.exceptions
import pytest
from allinone.contents import FLAVOR, IMAGE
from allinone.stack import AllInOne
from neutronworld import DOMAIN, NeutronWorld, interface
from patience import until
from realbench import PATIENCE_S, REAL

from orchestrator.policy.addresses import Family
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.model import Packet

pytestmark = REAL


@pytest.fixture(scope="module")
def world(all_in_one: AllInOne, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NeutronWorld]:
    made = NeutronWorld(all_in_one, tmp_path_factory.mktemp("neutron"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def blue(world: NeutronWorld) -> Any:
    """A network of the project that the administrator works in."""
    return world.add_network(world.admin.session.get_project_id())


@pytest.fixture
def port(world: NeutronWorld, blue: Any) -> Iterator[Any]:
    """A port whose interface is on its host, active."""
    made = world.add_port(blue)
    world.plug(made)
    world.await_status(made, "ACTIVE")
    yield made
    world.admin.network.delete_port(made.id)
    world.unplug(made)


def test_a_port_is_active_when_its_rows_were_read_back_and_not_before(world: NeutronWorld, blue: Any) -> None:
    made = world.add_port(blue)
    assert (made.binding_vif_type, made.status) == ("ovs", "DOWN")
    details = made.binding_vif_details
    assert (details["bridge_name"], details["connectivity"], details["datapath_type"]) == ("br-aclflow", "l3", "netdev")
    until(lambda: made.id in world.endpoints(), what=world.neutron_log)
    found = world.endpoints()[made.id]
    address = made.fixed_ips[0]["ip_address"]
    assert (found.tenant, found.port) == (blue.project_id, interface(made))
    assert list(map(str, found.prefixes)) == [f"{address}/32"]
    assert world.client.tenants.read(blue.project_id).prefixes == ("10.77.1.0/24",)
    generation = world.client.domains.read(DOMAIN).generation
    assert world.client.domains.wait_until_enforced(DOMAIN, generation).done, (
        "every host was read back, but no interface is there"
    )
    for _ in range(2):  # so the driver has looked at ports that wait, after all hosts were read back
        other = world.add_port(blue)
        until(partial(_has, world, other))
        world.admin.network.delete_port(other.id)
    assert world.port(made).status == "DOWN"
    assert not world.has_rows(made)
    world.plug(made)
    world.await_status(made, "ACTIVE")
    assert world.has_rows(made)
    world.admin.network.delete_port(made.id)
    until(lambda: made.id not in world.endpoints() and not world.has_rows(made), what=world.neutron_log)
    world.unplug(made)


def _has(world: NeutronWorld, port: Any) -> bool:
    return port.id in world.endpoints()


def test_what_happens_while_the_service_is_away_is_made_up_for(world: NeutronWorld, blue: Any, port: Any) -> None:
    gone = world.add_port(blue)
    until(lambda: gone.id in world.endpoints())
    world.stop_service()
    world.admin.network.delete_port(gone.id)
    made, short = world.add_port(blue), world.add_port(blue)
    world.plug(made)
    world.admin.network.delete_port(short.id)
    world.stack.stop("neutron")
    world.start_service()
    world.stack.start("neutron")
    world.stack.wait("neutron")
    world.await_status(made, "ACTIVE")
    until(lambda: set(world.endpoints()) == {port.id, made.id}, what=lambda: (world.endpoints(), world.neutron_log()))
    world.admin.network.delete_port(made.id)
    world.unplug(made)


def test_rows_of_the_journal_that_are_doubled_or_lost_change_nothing(world: NeutronWorld, blue: Any, port: Any) -> None:
    before = world.endpoints()[port.id]
    generation = world.client.domains.read(DOMAIN).generation
    values = ", ".join([f"('port', '{port.id}', 0, utc_timestamp())"] * 3)
    world.sql(f"insert into aclflow_journal (kind, resource, attempts, due) values {values}")
    other = world.add_port(blue)
    until(lambda: other.id in world.endpoints())
    assert world.endpoints()[port.id] == before
    assert world.client.domains.read(DOMAIN).generation == generation + 1, "only the other port changed something"
    world.stop_service()
    world.admin.network.delete_port(other.id)
    world.sql("delete from aclflow_journal")
    world.start_service()
    until(lambda: set(world.endpoints()) == {port.id}, what=world.neutron_log)


def test_a_port_that_goes_to_another_host_waits_for_that_one(world: NeutronWorld, port: Any) -> None:
    world.admin.network.update_port(port.id, binding_host_id="two")
    until(lambda: world.port(port).status == "DOWN")
    until(lambda: world.port(port).binding_vif_type == "ovs")
    world.unplug(port)
    until(lambda: not world.has_rows(port))
    assert world.port(port).status == "DOWN"
    world.plug(port, "two")
    world.await_status(port, "ACTIVE")
    assert world.has_rows(port, "two")


def test_another_address_is_told(world: NeutronWorld, port: Any) -> None:
    subnet = port.fixed_ips[0]["subnet_id"]
    both = [*port.fixed_ips, {"subnet_id": subnet, "ip_address": "10.77.1.200"}]
    world.admin.network.update_port(port.id, fixed_ips=both)
    until(lambda: len(world.endpoints()[port.id].prefixes) == 2, what=world.neutron_log)
    assert "10.77.1.200/32" in map(str, world.endpoints()[port.id].prefixes)


def test_a_shared_allowed_address_belongs_to_one_and_then_to_the_next(world: NeutronWorld, blue: Any) -> None:
    pairs = [{"ip_address": "10.77.1.250"}]
    first, second = (world.add_port(blue, allowed_address_pairs=pairs) for _ in range(2))

    def has_it(port: Any) -> bool:
        found = world.endpoints().get(port.id)
        return found is not None and "10.77.1.250/32" in map(str, found.prefixes)

    until(lambda: has_it(first) and second.id in world.endpoints(), what=world.neutron_log)
    assert not has_it(second)
    world.admin.network.delete_port(first.id)
    until(lambda: has_it(second), what=world.neutron_log)
    world.admin.network.delete_port(second.id)


def test_what_these_networks_cannot_do_is_refused_with_the_reason(world: NeutronWorld, blue: Any, port: Any) -> None:
    network = world.admin.network
    subnet = port.fixed_ips[0]["subnet_id"]
    router = network.create_router(name="r")
    world.made.append(("router", router.id))
    with pytest.raises(openstack.exceptions.HttpException, match="routed by the hosts"):
        network.add_interface_to_router(router, subnet_id=subnet)
    with pytest.raises(openstack.exceptions.HttpException, match=r"10\.77\.1\.128/25 overlaps 10\.77\.1\.0/24"):
        world.add_network(blue.project_id, "10.77.1.128/25")
    pair = {"ip_address": "10.77.1.9", "mac_address": "02:00:00:00:00:01"}
    with pytest.raises(openstack.exceptions.HttpException, match="another MAC address"):
        network.update_port(port.id, allowed_address_pairs=[pair])
    with pytest.raises(openstack.exceptions.HttpException, match="of no subnet"):
        network.update_port(port.id, allowed_address_pairs=[{"ip_address": "192.0.2.1"}])
    elsewhere = world.add_port(blue, host="nowhere")
    assert elsewhere.binding_vif_type == "binding_failed"
    assert "'nowhere' is no host of aclflow's domain 'cloud'" in world.neutron_log()
    network.delete_port(elsewhere.id)


def test_packets_pass_between_two_projects_as_both_lists_permit(world: NeutronWorld, blue: Any, port: Any) -> None:
    project = world.admin.identity.create_project(name="red", domain_id="default")
    try:
        red = world.add_network(project.id)
        server = world.add_port(red)
        world.plug(server)
        world.await_status(server, "ACTIVE")
        to_web = {"id": "web", "action": "permit", "protocol": "tcp", "destination_ports": 80}
        for tenant, direction in ((blue.project_id, "egress"), (project.id, "ingress")):
            written = world.client.acls.put(tenant, acl_from_json({"rules": [to_web | {"direction": direction}]}))
            assert world.client.domains.wait_until_enforced(DOMAIN, written.generation).done

        def packet(destination_port: int, source: str = port.fixed_ips[0]["ip_address"]) -> Packet:
            ends = (int(IPv4Address(each)) for each in (source, server.fixed_ips[0]["ip_address"]))
            return Packet(Family.IPV4, *ends, 6, 40000, destination_port, tcp_flags=2)

        world.send(port, packet(81), b"another port")
        world.send(port, packet(80, "10.77.1.251"), b"an address of nobody")
        world.send(port, packet(80), b"a MAC address of nobody", mac="02:00:00:00:00:99")
        world.send(port, packet(80), b"what both permit")
        until(lambda: world.came_to(server, b"what both permit"))
        for mark in (b"another port", b"an address of nobody", b"a MAC address of nobody"):
            assert not world.came_to(server, mark), mark
        world.admin.network.delete_port(server.id)
        until(lambda: server.id not in world.endpoints() and not world.has_rows(server))
        world.client.acls.put(project.id, acl_from_json({"rules": []}))
    finally:
        world.admin.identity.delete_project(project)


def test_an_instance_that_nova_boots_and_moves_is_one_endpoint(world: NeutronWorld, blue: Any) -> None:
    compute, network = world.admin.compute, world.admin.network
    world.stack.add_host("two")
    until(lambda: len(list(compute.hypervisors())) == 2, PATIENCE_S)
    chosen = {
        "image_id": world.admin.image.find_image(IMAGE).id,
        "flavor_id": compute.find_flavor(FLAVOR).id,
        "networks": [{"uuid": blue.id}],
    }
    server = compute.create_server(name="web", **chosen)
    until(lambda: compute.get_server(server.id).status == "ACTIVE", PATIENCE_S)
    [port] = network.ports(device_id=server.id)
    assert (port.binding_vif_type, port.status) == ("ovs", "DOWN")
    first = port.binding_host_id
    world.plug(port, first)
    world.await_status(port, "ACTIVE")
    generation = world.client.domains.read(DOMAIN).generation
    other = "two" if first == "one" else "one"
    compute.live_migrate_server(server.id, host=None, block_migration="auto")
    until(lambda: world.port(port).binding_host_id == other, PATIENCE_S)
    until(lambda: compute.get_server(server.id).status == "ACTIVE", PATIENCE_S)
    assert world.port(port).status == "DOWN", ("nothing is plugged there yet", first, world.neutron_log())
    world.unplug(port)
    world.plug(port, other)
    world.await_status(port, "ACTIVE")
    assert world.client.domains.read(DOMAIN).generation == generation, "the program says nothing of hosts"
    compute.delete_server(server.id)
    until(lambda: port.id not in world.endpoints(), PATIENCE_S, what=world.neutron_log)
    world.unplug(port)
