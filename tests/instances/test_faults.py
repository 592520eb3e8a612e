"""Programs of the cloud are killed while instances run: packets go on as lists permit, and everything heals."""

from __future__ import annotations

import os
import signal
import uuid
from dataclasses import replace

from allinone.running import NotStartedError
from instances.looking import LONG_S, endpoints, fetches, typed
from patience import until
from twohosts import example
from twohosts.addresses import DOMAIN, HOSTS, OUTSIDE_ADDRESS
from twohosts.cloud import NAME, NAMED, Cloud
from twohosts.example import Instance
from twohosts.hosts import ComputeHost
from twohosts.projects import heartbeats

from orchestrator.policy.addresses import Prefix

_LISTENERS = ("nova-conductor", "nova-scheduler", "nova-compute-one")
"""Of Nova: what it says to one of them before that one listens again is lost."""
_RECONNECTED = b"Reconnected to AMQP server"


def test_packets_pass_while_everything_around_the_switch_is_dead(cloud: Cloud, shop: Instance) -> None:
    until(lambda: fetches(cloud, shop.address))
    of_hosts = ("uplink", "services", "bird", "nova-compute", "libvirtd")
    cloud.kill("service", "controller", "neutron", *(f"{name}-{host}" for name in of_hosts for host in HOSTS))
    before = heartbeats(cloud.place)
    try:
        assert fetches(cloud, shop.address, patience_s=60.0)
        assert not fetches(cloud, shop.address, 81)
    finally:
        cloud.control.start_service()
        cloud.control.start_controller()
        cloud.stack.start("neutron")
        for host in cloud.hosts.values():
            host.start_routing()
            host.start_compute()
        cloud.stack.wait("neutron")
    until(lambda: all(now != before[host] for host, now in heartbeats(cloud.place).items()), LONG_S)
    after = example.boot(cloud, shop.project, "after", "two")
    until(lambda: fetches(cloud, after.address), LONG_S)
    assert fetches(cloud, shop.address, patience_s=60.0)
    shop.project.cloud.compute.delete_server(after.server)
    until(lambda: after.address not in cloud.announced(), LONG_S)


def test_a_switch_that_was_killed_serves_its_instances_again(cloud: Cloud, shop: Instance) -> None:
    until(lambda: fetches(cloud, shop.address))
    cloud.kill("vswitchd-one")
    try:
        assert not fetches(cloud, shop.address)
    finally:
        cloud.hosts["one"].start_switch()
    until(lambda: fetches(cloud, shop.address), LONG_S)
    assert not fetches(cloud, shop.address, 81)


def test_an_instance_that_is_booted_while_everything_is_dead_comes_up_when_it_is_back(
    cloud: Cloud, shop: Instance
) -> None:
    cloud.kill("service", "controller", "uplink-one", "services-one", "bird-one")
    try:
        server = shop.project.boot("meanwhile", "one")
        until(lambda: shop.project.port(server) is not None, LONG_S)
    finally:
        cloud.control.start_service()
        cloud.control.start_controller()
        cloud.hosts["one"].start_routing()
    booted = example.wait_until_up(shop.project, server, "one")
    until(lambda: fetches(cloud, booted.address), LONG_S)
    shop.project.cloud.compute.delete_server(server)
    until(lambda: booted.address not in cloud.announced(), LONG_S)


def test_what_keeps_a_host_s_routes_is_killed_and_routes_stay_and_wait(cloud: Cloud, shop: Instance) -> None:
    until(lambda: fetches(cloud, shop.address))
    cloud.kill("uplink-one")
    try:
        assert fetches(cloud, shop.address, patience_s=60.0)
        assert not fetches(cloud, shop.address, 81)
        booted = example.boot(cloud, shop.project, "unrouted", "one")
        assert booted.address not in cloud.announced(), "nobody is there to make its route"
    finally:
        cloud.hosts["one"].start_routing()
    until(lambda: fetches(cloud, booted.address), LONG_S)
    shop.project.cloud.compute.delete_server(booted.server)
    until(lambda: booted.address not in cloud.announced(), LONG_S)
    assert fetches(cloud, shop.address, patience_s=60.0)


def test_a_resolver_that_was_killed_is_started_again(cloud: Cloud, shop: Instance) -> None:
    host = cloud.hosts["one"]
    before = host.processes("dnsmasq")
    assert len(before) == 1
    os.kill(before[0], signal.SIGKILL)
    until(lambda: host.processes("dnsmasq") not in ([], before))
    until(lambda: NAMED in typed(cloud, shop, f"nslookup {NAME}"))
    assert f"lease of {shop.address} obtained" in typed(cloud, shop, "udhcpc -n -q -i eth0 -s /etc/address")


def test_a_routing_daemon_that_is_killed_takes_no_route_along(cloud: Cloud, shop: Instance) -> None:
    until(lambda: fetches(cloud, shop.address))
    cloud.kill("bird-one")
    try:
        assert fetches(cloud, shop.address, patience_s=60.0)
    finally:
        cloud.hosts["one"].start_routing()
    until(lambda: _has_session(cloud.hosts["one"]))
    until(lambda: cloud.announced().get(shop.address) == "one", what=cloud.announced)
    until(lambda: fetches(cloud, shop.address))


def _has_session(host: ComputeHost) -> bool:
    """Whether the router hears a host's routing daemon; not while that starts."""
    try:
        return "Established" in host.run("birdc", "-s", "/run/bird/bird.ctl", "show", "protocols")
    except NotStartedError:
        return False


def test_what_answers_a_host_s_instances_is_killed_and_they_keep_what_they_have(cloud: Cloud, shop: Instance) -> None:
    host = cloud.hosts["one"]
    cloud.kill("services-one")
    try:
        until(lambda: not host.processes("dnsmasq"))
        assert fetches(cloud, shop.address, patience_s=60.0)
        assert "1 packets received" in typed(cloud, shop, f"ping -c 1 -W 10 {OUTSIDE_ADDRESS}")
        assert "obtained" not in typed(cloud, shop, "udhcpc -n -q -t 2 -T 1 -i eth0 -s /etc/address")
    finally:
        host.start_routing()
    until(lambda: NAMED in typed(cloud, shop, f"nslookup {NAME}"))
    assert f"lease of {shop.address} obtained" in typed(cloud, shop, "udhcpc -n -q -i eth0 -s /etc/address")


def test_a_port_that_is_made_while_the_broker_is_dead_gets_its_instance(cloud: Cloud, shop: Instance) -> None:
    network = shop.project.cloud.network
    logs = [cloud.place.root / "log" / f"{name}.log" for name in _LISTENERS]
    before = {log: log.stat().st_size for log in logs}
    cloud.kill("rabbit")
    try:
        made = network.create_port(network_id=network.find_network(shop.project.name).id, binding_host_id="one")
        until(lambda: made.id in endpoints(cloud))
        assert fetches(cloud, shop.address, patience_s=60.0)
    finally:
        cloud.stack.start("rabbit")
        cloud.stack.wait("rabbit")
    until(lambda: all(_RECONNECTED in log.read_bytes()[before[log] :] for log in logs), LONG_S)
    server = shop.project.boot("brokered", "one", plug={"port": made.id})
    booted = example.wait_until_up(shop.project, server, "one")
    until(lambda: fetches(cloud, booted.address), LONG_S)
    shop.project.cloud.compute.delete_server(server)
    network.delete_port(made.id)
    until(lambda: booted.address not in cloud.announced(), LONG_S)


def test_an_endpoint_that_is_lost_comes_back_and_one_too_many_goes(cloud: Cloud, shop: Instance) -> None:
    """As if of two messages of Neutron's driver one was lost and the other one came long after its time."""
    port, gone = shop.project.port(shop.server).id, str(uuid.uuid4())
    lost = endpoints(cloud)[port]
    stale = replace(lost, name=gone, port=f"tap{gone}"[:14], prefixes=(Prefix.parse("198.51.100.61/32"),))
    with cloud.control.client() as client:
        client.domains.put_endpoint(DOMAIN, stale)
        client.domains.remove_endpoint(DOMAIN, port)
    until(lambda: endpoints(cloud).get(port) == lost, LONG_S, what=lambda: endpoints(cloud))
    until(lambda: gone not in endpoints(cloud), LONG_S, what=lambda: endpoints(cloud))
    until(lambda: fetches(cloud, shop.address), LONG_S)
    assert not fetches(cloud, shop.address, 81)
