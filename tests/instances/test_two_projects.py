"""Two projects boot an instance each through Nova: what they get, what they reach, and who reaches them."""

from __future__ import annotations

import json

from instances.looking import LONG_S, answers, ask, endpoints, fetches, hears, is_shut_out, open_for_pings, typed
from patience import until
from twohosts import example
from twohosts.addresses import (
    HOSTS,
    MANAGEMENT,
    OUTSIDE,
    OUTSIDE_ADDRESS,
    ROUTER_OUTSIDE,
    leg_of,
    management_of,
)
from twohosts.cloud import NAME, NAMED, Cloud
from twohosts.example import Instance
from twohosts.projects import Project, gateways_of

from orchestrator.compile.pipelines.host import GATEWAY_IPV4
from orchestrator.lab import namespaces


def test_an_instance_has_its_address_from_its_host_and_a_router_hears_of_it(
    cloud: Cloud, shop: Instance, base: Instance
) -> None:
    for each in (shop, base):
        port = each.project.port(each.server)
        assert (port.status, port.binding_host_id) == ("ACTIVE", each.host)
        assert port.binding_vif_details["bridge_name"] == "br-aclflow"
        until(lambda each=each: cloud.announced().get(each.address) == each.host, what=cloud.announced)
        assert f"inet {each.address}/26" in typed(cloud, each, "ip address show dev eth0")
        assert NAMED in typed(cloud, each, f"nslookup {NAME}")


def test_a_config_drive_says_who_an_instance_is(cloud: Cloud, shop: Instance, base: Instance) -> None:
    file = "/config/openstack/latest/meta_data.json"
    until(lambda: typed(cloud, shop, f"ls {file}") == file)
    found = typed(cloud, shop, f"cat {file}")
    assert (json.loads(found)["name"], json.loads(found)["uuid"]) == ("shop", shop.server.id)
    assert typed(cloud, base, "ls /config") == "", "it was booted without one"


def test_from_outside_comes_what_the_list_permits(cloud: Cloud, shop: Instance, base: Instance) -> None:
    until(lambda: fetches(cloud, shop.address))
    assert cloud.run_in(OUTSIDE, "ping", "-c", "2", "-W", "5", shop.address).returncode == 0
    for instance, port in ((shop, 81), (base, 80), (base, 81)):
        hears(cloud, instance, "page", "127.0.0.1", port)
        assert not fetches(cloud, instance.address, port), (instance.name, port)
    assert cloud.run_in(OUTSIDE, "ping", "-c", "2", "-W", "1", base.address).returncode


def test_an_instance_reaches_what_both_lists_permit(cloud: Cloud, shop: Instance, base: Instance) -> None:
    hears(cloud, shop, "outside", OUTSIDE_ADDRESS)
    hears(cloud, base, "outside", OUTSIDE_ADDRESS, 81)
    assert is_shut_out(cloud, shop, OUTSIDE_ADDRESS, 81), "blue sends to no port 81"
    hears(cloud, shop, "page", base.address)
    assert is_shut_out(cloud, shop, base.address, 81)
    assert is_shut_out(cloud, base, shop.address), "blue admits the outside alone"


def test_a_changed_list_holds_for_the_next_packet(cloud: Cloud, shop: Instance) -> None:
    rules = [rule for rule in example.LISTS["blue"] if rule["id"] != "web"]
    example.put_list(cloud, shop.project, rules)
    assert not fetches(cloud, shop.address)
    example.put_list(cloud, shop.project, example.LISTS["blue"])
    assert fetches(cloud, shop.address, patience_s=60.0)


def test_instances_reach_no_host_no_gateway_and_none_of_the_cloud_s_services(
    cloud: Cloud, shop: Instance, base: Instance
) -> None:
    """Its list is open to all: what keeps it away are hosts and router."""
    example.put_list(cloud, shop.project, [{"id": "all", "action": "permit"}])
    try:
        hears(cloud, shop, "outside", OUTSIDE_ADDRESS)
        assert "refused" in ask(cloud, shop, OUTSIDE_ADDRESS, 99), "an open list lets refusals in"
        ports = cloud.place.ports
        for name in ("keystone", "rabbit", "aclflow"):
            address = (MANAGEMENT, ports[name])
            for host in cloud.hosts.values():  # they are there, for hosts
                host.run("/usr/bin/python3", "-c", f"import socket; socket.create_connection({address!r})")
            assert is_shut_out(cloud, shop, *address), name
        own = [each for host in HOSTS for each in (management_of(host), leg_of(host).host[0], leg_of(host).router[0])]
        for each in (MANAGEMENT, ROUTER_OUTSIDE, *own):
            assert ", 0 packets received" in typed(cloud, shop, f"ping -c 2 -W 1 {each}"), each
            assert is_shut_out(cloud, shop, each, 22), each
        for each in (GATEWAY_IPV4, *gateways_of(shop.project, base.project, version=4)):
            assert ", 0 packets received" in typed(cloud, shop, f"ping -c 2 -W 1 {each}"), each
            assert not answers(cloud, shop, each, 22), each
    finally:
        example.put_list(cloud, shop.project, example.LISTS["blue"])


def test_a_false_address_leaves_no_port(cloud: Cloud, shop: Instance, base: Instance) -> None:
    with namespaces.inside(cloud.prefix + OUTSIDE, open_for_pings) as heard:
        for false in (base.address, "198.51.100.50", "192.0.2.7"):
            typed(cloud, shop, f"ip address add {false}/32 dev eth0")
            typed(cloud, shop, f"ping -c 3 -W 1 -I {false} {OUTSIDE_ADDRESS}")
            typed(cloud, shop, f"ip address delete {false}/32 dev eth0")
        typed(cloud, shop, f"ping -c 3 -W 1 -I {shop.address} {OUTSIDE_ADDRESS}")
        senders = set()
        while shop.address not in senders:
            senders.add(heard.recvfrom(2048)[1][0])
    assert senders == {shop.address}


def test_a_port_is_active_when_its_rows_were_read_back_and_nova_waits_for_that(cloud: Cloud, shop: Instance) -> None:
    project = shop.project
    cloud.control.stop("controller")
    try:
        server = project.boot("late", "one")
        until(
            lambda: project.server(server).status in ("BUILD", "ERROR") and _is_plugged(cloud, project, server), LONG_S
        )
        until(lambda: project.port(server).id in endpoints(cloud), LONG_S)
        _look_of_driver(cloud, project)
        assert (project.server(server).status, project.port(server).status) == ("BUILD", "DOWN")
        assert not set(project.addresses(server)) & cloud.announced().keys()
    finally:
        cloud.control.start_controller()
    late = example.wait_until_up(project, server, "one")
    until(lambda: project.port(server).status == "ACTIVE", LONG_S)
    until(lambda: late.address in cloud.announced())
    until(lambda: fetches(cloud, late.address), LONG_S)

    project.cloud.compute.delete_server(server)
    until(lambda: late.address not in cloud.announced(), LONG_S)
    until(lambda: project.port(server) is None, LONG_S)
    assert not fetches(cloud, late.address)
    assert fetches(cloud, shop.address, patience_s=60.0), "the others go on"


def _is_plugged(cloud: Cloud, project: Project, server: object) -> bool:
    """Whether the interface of an instance is in its host's bridge."""
    port = project.port(server)
    return port is not None and f"tap{port.id}"[:14] in cloud.hosts["one"].run("ovs-vsctl", "list-ports", "br-aclflow")


def _look_of_driver(cloud: Cloud, project: Project) -> None:
    """Return when Neutron's driver has worked off what came after this call, twice."""
    network = project.cloud.network.find_network(project.name)
    for _ in range(2):
        port = project.cloud.network.create_port(network_id=network.id, binding_host_id="one")
        until(lambda port=port: port.id in endpoints(cloud))
        project.cloud.network.delete_port(port)
