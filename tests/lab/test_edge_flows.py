"""The edge's flows, as text, for the shipped description: one golden look and the law of the longest prefix."""

from __future__ import annotations

import re
from dataclasses import replace

from orchestrator.lab import edge, specfile
from orchestrator.lab.spec import ROUTER_MAC
from orchestrator.policy.addresses import format_mac


def test_every_address_is_sent_to_where_it_lives() -> None:
    pop = specfile.load().with_uplinks(routed=False)
    table = edge.flows(pop)
    for endpoint in pop.endpoints:
        for prefix in endpoint.addresses:
            line = next(line for line in table.splitlines() if f"dst={prefix}," in line)
            assert line.endswith(f'output:"to-{endpoint.host}"')
            assert "set_field:0a:ac:1f:00:00:01->eth_dst" in line
    for client in pop.clients:
        for prefix in client.addresses:
            line = next(line for line in table.splitlines() if f"dst={prefix}," in line)
            assert line.endswith(f'output:"{client.port}"')
            assert f"set_field:{format_mac(client.mac)}->eth_dst" in line


def test_routed_hosts_are_the_routers_business() -> None:
    pop = specfile.load()
    routed = replace(pop, spread=True)
    table = edge.flows(routed).splitlines()
    for prefix in (prefix for endpoint in routed.endpoints for prefix in endpoint.addresses):
        line = next(line for line in table if f"dst={prefix}," in line and "set_field" in line)
        assert line.endswith(f'set_field:{format_mac(ROUTER_MAC)}->eth_dst,output:"to-router"')
    steered = [line for line in table if 'in_port="to-router"' in line]
    assert [line.endswith('output:"spread-in"') for line in steered] == [True, True]
    assert not any("host1" in line for line in table)


def test_longer_prefixes_come_first_and_the_rest_is_dropped() -> None:
    table = edge.flows(
        specfile.parse(
            """
            hosts: [{name: h}]
            clients: [{name: world, addresses: [0.0.0.0/0, "::/0"]}]
            tenants: [{id: t, prefixes: [10.0.0.0/8]}]
            endpoints: [{name: e, tenant: t, host: h, addresses: [10.0.0.0/8, 10.1.0.0/16, 10.1.1.1]}]
            """
        )
    )
    priorities = dict(re.findall(r"priority=(\d+),ip,nw_dst=([^,]+)", table))
    assert [destination for _, destination in sorted(priorities.items(), key=lambda item: -int(item[0]))] == [
        "10.1.1.1/32", "10.1.0.0/16", "10.0.0.0/8", "0.0.0.0/0",
    ]  # fmt: skip
    assert table.endswith("priority=0,actions=drop\n")


def test_only_clients_are_answered_and_only_frames_for_the_gateway_are_forwarded() -> None:
    lines = edge.flows(specfile.load()).splitlines()
    asked = [line for line in lines if ",arp," in line or "icmp_type=135" in line]
    assert len(asked) == 4
    assert all('in_port="cl-' in line for line in asked)
    forwarding = [line for line in lines if "output:" in line]
    assert len(forwarding) == 12
    assert all("eth_dst=0a:ac:1f:00:00:01,actions" in line for line in forwarding)
