"""The edge bridge's flows: plain forwarding, as `ovs-ofctl` text made of the description.

    priority   what
    3000       from a client, with a tenant's address as its source: dropped, for only the edge can tell
    2000       ARP requests and neighbour solicitations of clients: answered, whatever address they ask for
    1500 + n   from a client to an endpoint's prefix (n bits), and from a host: to the firewall VNF, if there is one,
               or to the switch that spreads traffic over several
               Where there is an edge switch: from a client to an endpoint's prefix to that
    1000 + n   to the gateway's MAC address: by longest prefix (n bits), to the client, or to the endpoint's host; where
               hosts' uplinks are routed, to the router that knows which host that is
    500        from a client to an address that is nobody's, where there is an edge switch: to that
    0          the rest: dropped

What else a frame may be is the hosts' business.
"""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.compile.pipelines.host import GATEWAY_MAC
from orchestrator.lab.bridges import CLIENTS_TO_POP, CLIENTS_TO_SPREAD, HOSTS_TO_SPREAD
from orchestrator.lab.spec import ROUTER_MAC, ClientSpec, EndpointSpec, FirewallSpec, PopSpec
from orchestrator.policy.addresses import Family, Prefix, format_mac

_ADVERTISE = 1
_ELSEWHERE_PRIORITY = 500
_PREFIX_PRIORITY = 1000
_FIREWALL_PRIORITY = 1500
_NEIGHBOUR_PRIORITY = 2000
_SPOOFED_PRIORITY = 3000


def flows(spec: PopSpec) -> str:
    """The whole table of the edge bridge, one flow a line."""
    steered = [flow for firewall in spec.firewalls for flow in _through(spec, firewall)]
    steered += _spread(spec) if spec.spread else ()
    steered += _to_edge_switch(spec) if spec.servers else ()
    spoofed = () if spec.servers else _spoofing_flows(spec)  # which an edge switch does by itself
    lines = [
        *spoofed,
        *_make_neighbour_flows(spec),
        *steered,
        *_make_destination_flows(spec),
        "priority=0,actions=drop",
    ]
    return "\n".join(lines) + "\n"


def _spoofing_flows(spec: PopSpec) -> Iterator[str]:
    """Yield flows against spoofing from outside.

    A tenant that owns its client's addresses too has no outside to guard against.
    """
    for client in spec.clients:
        for prefix in (prefix for tenant in spec.tenants for prefix in tenant.prefixes):
            if not any(prefix.overlaps(own) for own in client.addresses):
                match = f"ip,nw_src={prefix}" if prefix.family is Family.IPV4 else f"ipv6,ipv6_src={prefix}"
                yield f'priority={_SPOOFED_PRIORITY},in_port="{client.port}",{match},actions=drop'


def _make_neighbour_flows(spec: PopSpec) -> Iterator[str]:
    gateway = format_mac(GATEWAY_MAC)
    for client in spec.clients:
        port = f'in_port="{client.port}"'
        yield (
            f"priority={_NEIGHBOUR_PRIORITY},{port},arp,arp_op=1,actions="
            f"move:arp_tpa->reg0,move:arp_spa->arp_tpa,move:reg0->arp_spa,"
            f"move:arp_sha->arp_tha,set_field:{gateway}->arp_sha,set_field:2->arp_op,"
            f"move:eth_src->eth_dst,set_field:{gateway}->eth_src,in_port"
        )
        yield (
            f"priority={_NEIGHBOUR_PRIORITY},{port},icmp6,icmp_type=135,icmp_code=0,actions="
            f"set_field:136->icmpv6_type,resubmit(,{_ADVERTISE})"
        )
    yield (  # a table of its own: only where the match says "advertisement" may its fields be written
        f"table={_ADVERTISE},icmp6,icmp_type=136,icmp_code=0,actions="
        f"set_field:0xe0000000->nd_reserved,set_field:2->nd_options_type,set_field:{gateway}->nd_tll,"
        f"move:ipv6_src->ipv6_dst,move:nd_target->ipv6_src,"
        f"move:eth_src->eth_dst,set_field:{gateway}->eth_src,in_port"
    )


def _through(spec: PopSpec, firewall: FirewallSpec) -> Iterator[str]:
    """Yield flows that send packets through the firewall first, then on by destination."""
    left, right = firewall.ports
    for client in spec.clients:
        for prefix in (prefix for endpoint in spec.endpoints for prefix in endpoint.addresses):
            yield _make_entry_flow(left, client.port, _match_prefix(prefix), _FIREWALL_PRIORITY + prefix.length)
    for port in spec.inner_ports:
        for family in ("ip", "ipv6"):
            yield _make_entry_flow(right, port, family, _FIREWALL_PRIORITY)


def _spread(spec: PopSpec) -> Iterator[str]:
    """Yield flows that send packets to the spread switch first."""
    addressed = f"eth_dst={format_mac(GATEWAY_MAC)}"
    for client in spec.clients:
        for prefix in (prefix for endpoint in spec.endpoints for prefix in endpoint.addresses):
            priority, way = _FIREWALL_PRIORITY + prefix.length, f'output:"{CLIENTS_TO_SPREAD}"'
            yield f'priority={priority},in_port="{client.port}",{_match_prefix(prefix)},{addressed},actions={way}'
    for port in spec.inner_ports:
        for family in ("ip", "ipv6"):
            match = f'in_port="{port}",{family},{addressed}'
            yield f'priority={_FIREWALL_PRIORITY},{match},actions=output:"{HOSTS_TO_SPREAD}"'


def _to_edge_switch(spec: PopSpec) -> Iterator[str]:
    """Yield flows that send clients' packets to the edge switch, and permitted ones on."""
    for client in spec.clients:
        sent = f'in_port="{client.port}",eth_dst={format_mac(GATEWAY_MAC)}'
        for family in ("ip", "ipv6"):
            yield f'priority={_ELSEWHERE_PRIORITY},{sent},{family},actions=output:"{CLIENTS_TO_POP}"'
        for prefix in (prefix for endpoint in spec.endpoints for prefix in endpoint.addresses):
            priority = _FIREWALL_PRIORITY + prefix.length
            yield f'priority={priority},{sent},{_match_prefix(prefix)},actions=output:"{CLIENTS_TO_POP}"'


def _make_entry_flow(side: tuple[str, str, int], from_port: str, match: str, priority: int) -> str:
    port, _, mac = side
    gateway = format_mac(GATEWAY_MAC)
    return (
        f'priority={priority},in_port="{from_port}",{match},eth_dst={gateway},actions='
        f'set_field:{gateway}->eth_src,set_field:{format_mac(mac)}->eth_dst,output:"{port}"'
    )


def _match_prefix(prefix: Prefix) -> str:
    return f"ip,nw_dst={prefix}" if prefix.family is Family.IPV4 else f"ipv6,ipv6_dst={prefix}"


def _make_destination_flows(spec: PopSpec) -> Iterator[str]:
    for node in spec.nodes:
        for prefix in node.addresses:
            yield _make_destination_flow(spec, node, prefix)


def _make_destination_flow(spec: PopSpec, node: ClientSpec | EndpointSpec, prefix: Prefix) -> str:
    if isinstance(node, ClientSpec):
        port, mac = node.port, node.mac
    else:
        port, mac = spec.host(node.host).edge_port, ROUTER_MAC if spec.routed else GATEWAY_MAC
    return (
        f"priority={_PREFIX_PRIORITY + prefix.length},{_match_prefix(prefix)},eth_dst={format_mac(GATEWAY_MAC)},"
        f"actions=set_field:{format_mac(GATEWAY_MAC)}->eth_src,set_field:{format_mac(mac)}->eth_dst,"
        f'output:"{port}"'
    )
