"""Programs of the cloud are killed while instances run: packets go on as lists permit, and everything heals."""

from __future__ import annotations

from instances.looking import LONG_S, fetches
from patience import until
from twohosts import example
from twohosts.addresses import HOSTS
from twohosts.cloud import Cloud
from twohosts.example import Instance
from twohosts.projects import heartbeats


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
