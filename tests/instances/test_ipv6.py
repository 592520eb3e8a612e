"""Instances have an IPv6 address as well: by DHCPv6 from their host, reached and shut out as their lists say."""

from __future__ import annotations

import socket

from instances.looking import answers, ask, fetches, hears, is_shut_out, typed
from patience import until
from twohosts import example
from twohosts.addresses import OUTSIDE, OUTSIDE_ADDRESS6, ROUTER_OUTSIDE6, leg_of
from twohosts.cloud import Cloud
from twohosts.example import Instance
from twohosts.projects import RESOLVERS, gateways_of

from orchestrator.compile.pipelines.host import GATEWAY_IPV6
from orchestrator.lab import namespaces


def test_an_instance_has_an_ipv6_address_from_its_host_and_a_router_hears_of_it(
    cloud: Cloud, shop: Instance, base: Instance
) -> None:
    for each in (shop, base):
        until(lambda each=each: cloud.announced().get(each.address6) == each.host, what=cloud.announced)
        assert f"inet6 {each.address6}/128" in typed(cloud, each, "ip -6 address show dev eth0")
        until(lambda each=each: "default via fe80::1" in typed(cloud, each, "ip -6 route show"))


def test_ipv6_packets_pass_as_lists_permit(cloud: Cloud, shop: Instance, base: Instance) -> None:
    until(lambda: fetches(cloud, shop.address6))
    assert cloud.run_in(OUTSIDE, "ping", "-6", "-c", "2", "-W", "5", shop.address6).returncode == 0
    for instance, port in ((shop, 81), (base, 80), (base, 81)):
        hears(cloud, instance, "page", "::1", port)
        assert not fetches(cloud, instance.address6, port), (instance.name, port)
    assert cloud.run_in(OUTSIDE, "ping", "-6", "-c", "2", "-W", "1", base.address6).returncode
    hears(cloud, shop, "page", base.address6)
    assert is_shut_out(cloud, shop, base.address6, 81), "blue sends to no port 81"
    assert is_shut_out(cloud, base, shop.address6), "blue admits the outside alone"


def test_instances_reach_no_host_no_gateway_and_no_router_by_ipv6(cloud: Cloud, shop: Instance, base: Instance) -> None:
    """Its list is open to all: what keeps it away are hosts and router."""
    example.put_list(cloud, shop.project, [{"id": "all", "action": "permit"}])
    try:
        until(lambda: "refused" in ask(cloud, shop, OUTSIDE_ADDRESS6, 99))
        legs = [address for host in cloud.hosts for address in (leg_of(host).host[1], leg_of(host).router[1])]
        gateways = gateways_of(shop.project, base.project, version=6)
        assert ", 0 packets received" in typed(cloud, shop, f"ping6 -c 1 -W 1 -I eth0 {GATEWAY_IPV6}")
        for each in (ROUTER_OUTSIDE6, RESOLVERS[6], *legs, *gateways):
            assert "1 packets received" not in typed(cloud, shop, f"ping6 -c 1 -W 1 {each}"), each
            assert not answers(cloud, shop, each, 22), each
    finally:
        example.put_list(cloud, shop.project, example.LISTS["blue"])


def test_a_false_ipv6_address_leaves_no_port(cloud: Cloud, shop: Instance, base: Instance) -> None:
    """Its list is open to all, and yet it lets out what bears the instance's own address alone."""
    falses = (base.address6, "2001:db8:79:1::ffff", "2001:db8:1::7")
    example.put_list(cloud, shop.project, [{"id": "all", "action": "permit"}])
    try:
        typed(cloud, shop, "echo 0 >/proc/sys/net/ipv6/conf/eth0/dad_transmits")
        with namespaces.inside(cloud.prefix + OUTSIDE, _listen) as heard:
            for false in falses:
                typed(cloud, shop, f"ip address add {false}/128 dev eth0")
                typed(cloud, shop, f"ping6 -c 2 -W 1 -I {false} {OUTSIDE_ADDRESS6}")
                typed(cloud, shop, f"ip address delete {false}/128 dev eth0")
            typed(cloud, shop, f"ping6 -c 2 -W 1 -I {shop.address6} {OUTSIDE_ADDRESS6}")
            senders = set()
            while shop.address6 not in senders:
                senders.add(heard.recvfrom(2048)[1][0])
        assert not senders & set(falses), senders
    finally:
        example.put_list(cloud, shop.project, example.LISTS["blue"])


def _listen() -> socket.socket:
    opened = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
    opened.settimeout(60.0)
    return opened
