"""The rows that make the pipeline a pipeline: everything but the rules.

Rows that belong to no one (`fixed_rows`) are the same in every program. An endpoint adds rows that name its port by
symbol (`endpoint_rows`), so they exist only on the switch that has the port: who may send, whom to answer, and where
packets to it go. A tenant adds the ends of its two lists (`default_rows`).

Rows of equal priority in one table are disjoint, or say the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.openflow import oxm
from orchestrator.compile.openflow.instructions import (
    DROP,
    IN_PORT,
    copy_field,
    instructions,
    output,
    output_register,
    set_field,
)
from orchestrator.compile.openflow.oxm import ARP, IPV4, IPV6, Field, Term
from orchestrator.compile.pipelines import host as pipeline
from orchestrator.compile.pipelines.host import DEFAULT_PRIORITY, GATEWAY_MAC, MISS_PRIORITY, STATIC_PRIORITY, Table
from orchestrator.compile.pipelines.services import served_rows, service_rows
from orchestrator.compile.pipelines.tracked import Tracking, tracking_rows
from orchestrator.compile.pipelines.wholeports import passing_rows
from orchestrator.policy.addresses import Family, Prefix, aggregate
from orchestrator.policy.legs import matched_prefixes
from orchestrator.policy.model import Action, Endpoint, Tenant
from orchestrator.policy.protocols import ICMPV6, SCTP, TCP, UDP
from orchestrator.program.flows import Flow
from orchestrator.program.program import UPLINK, Tier

SOLICITATION, ADVERTISEMENT = 135, 136
_DISCOVERY_TYPES = range(133, 138)
"""ICMPv6 types of neighbour discovery: they live on one link and are never forwarded."""

_LINK_LOCAL = Prefix.parse("fe80::/10")
_MULTICAST_BIT = 1 << 40
_ARP_REQUEST, _ARP_REPLY = 1, 2
_TARGET_ADDRESS_OPTION = 2
_ROUTER_SOLICITED_OVERRIDE = 0xE0000000

_STRUCTURE = Cookie(Tier.HOST, Kind.STRUCTURE).pack()


class _Order:
    """Priorities on admission, the first to be asked at the top."""

    TAGGED, SHORT, OWN_ADDRESS, ANSWERED, DISCOVERY, MULTICAST, ADMITTED = range(70, 0, -10)
    SAME_LEG = ADMITTED + 5


def _prefix_priority(prefix: Prefix) -> int:
    """Return a prefix's priority: the longest decides on `sources` and `local`.

    One below is left free for the row that says that the same prefix is elsewhere.
    """
    return 1001 + 2 * prefix.length


def fixed_rows(symbols: Mapping[str, int], tracks: Tracking | None = None) -> list[Flow]:
    """The rows that no tenant and no endpoint makes.

    `tracks`: how connections are tracked, if they are.
    """
    uplink = symbols[UPLINK]
    tracking = [] if tracks is None else tracking_rows(tracks, _sends(uplink))
    return [
        *_make_admission_flows(uplink),
        *_responder(),
        *service_rows(),
        *thoroughfares(),
        *passing_rows(),
        *_sends(uplink),
        *tracking,
    ]


def endpoint_rows(endpoint: Endpoint, tenant: int, symbol: int) -> list[Flow]:
    """The rows of one endpoint, whose port is `symbol`.

    Behind a shared leg, endpoints reach each other without us and what they need to come up is there already: what one
    sends us for another is dropped before any list counts it, and the host's services do not answer.
    """
    prefixes = matched_prefixes(endpoint)
    v4 = tuple(prefix for prefix in prefixes if prefix.family is Family.IPV4)
    v6 = tuple(prefix for prefix in prefixes if prefix.family is Family.IPV6)
    solicitors = aggregate((*v6, _LINK_LOCAL)) if v6 else ()
    return [
        *(_own_address_row(prefix, tenant, symbol) for prefix in prefixes if prefix.length == prefix.family.bits),
        *(_request_row(endpoint, prefix, tenant, symbol) for prefix in v4),
        *(_solicitation_row(endpoint, prefix, tenant, symbol) for prefix in solicitors),
        *(_sender_row(endpoint, prefix, tenant, symbol) for prefix in prefixes),
        *(_impostor_row(prefix, tenant, symbol) for prefix in prefixes if prefix.length),
        *(_receiver_row(endpoint, prefix, tenant, symbol) for prefix in prefixes),
        *(
            (_same_leg_row(prefix, tenant, symbol) for prefix in prefixes)
            if endpoint.shared
            else served_rows(endpoint, tenant, symbol)
        ),
    ]


def elsewhere_rows(endpoints: Iterable[Endpoint], tenant: int) -> list[Flow]:
    """Return rows for prefixes of endpoints that lie inside another endpoint's prefix.

    On switches that lack the inner endpoint, such addresses do not belong to the outer one.

    There its packets leave by the uplink, and those that bear its address come in by it.

    Prefixes belong to one tenant, so only the endpoints of one tenant can lie inside each other.
    """
    owners = {prefix: endpoint.name for endpoint in endpoints for prefix in matched_prefixes(endpoint)}
    around: list[Prefix] = []
    rows: list[Flow] = []
    for prefix in sorted(owners):
        while around and not around[-1].contains(prefix):
            around.pop()
        if around:
            version, source, destination = _ip(prefix)
            terms, priority = [version, destination], _prefix_priority(prefix) - 1
            rows.append(
                _make_flow(Table.SOURCES, priority, [version, source], instructions(goto=Table.LIFTED), tenant=tenant)
            )
            leaves = [*terms, Term(pipeline.FROM_UPLINK.field, 0)]
            arrived = [*terms, Term(pipeline.FROM_UPLINK.field, 1)]
            rows.append(_make_flow(Table.LOCAL, priority, leaves, instructions(goto=Table.OUTPUT), tenant=tenant))
            rows.append(_make_flow(Table.LOCAL, priority, arrived, tenant=tenant))
        around.append(prefix)
    return rows


def default_rows(tenant: Tenant) -> list[Flow]:
    """The ends of a tenant's two lists."""
    ends = (
        (Table.INGRESS, pipeline.DESTINATION_TENANT, Kind.INGRESS_DEFAULT, tenant.acl.ingress_default, Table.OUTPUT),
        (Table.EGRESS, pipeline.SOURCE_TENANT, Kind.EGRESS_DEFAULT, tenant.acl.egress_default, Table.LOCAL),
    )
    return [
        Flow(
            table,
            DEFAULT_PRIORITY,
            oxm.pack([Term(register.field, tenant.number)]),
            instructions(goto=goto) if action is Action.PERMIT else DROP,
            Cookie(Tier.HOST, kind, tenant.number).pack(),
            tenant.number,
        )
        for table, register, kind, action, goto in ends
    ]


def _make_flow(table: Table, priority: int, terms: Iterable[Term], what: bytes = DROP, *, tenant: int = 0) -> Flow:
    return Flow(table, priority, oxm.pack(terms), what, _STRUCTURE, tenant)


def _make_admission_flows(uplink: int) -> list[Flow]:
    table = Table.ADMISSION
    present = Term(oxm.VLAN_VID, oxm.VLAN_PRESENT, oxm.VLAN_PRESENT)
    several = Term(oxm.ETH_DST, _MULTICAST_BIT, _MULTICAST_BIT)
    let_in = instructions([set_field(pipeline.FROM_UPLINK.field, 1)], goto=Table.SOURCES)
    arrives = [Term(oxm.IN_PORT, uplink), Term(oxm.ETH_DST, GATEWAY_MAC)]
    return [
        _make_flow(table, _Order.TAGGED, [present]),
        *(_make_flow(table, _Order.SHORT, terms) for terms in _short_first_fragments()),
        *(_make_flow(table, _Order.DISCOVERY, _match_icmpv6(number)) for number in _DISCOVERY_TYPES),
        _make_flow(table, _Order.MULTICAST, [several]),
        *(
            _make_flow(table, _Order.ADMITTED, [*arrives, Term(oxm.ETH_TYPE, version)], let_in)
            for version in (IPV4, IPV6)
        ),
        _make_flow(table, MISS_PRIORITY, []),
    ]


def _short_first_fragments() -> Iterable[list[Term]]:
    """Match first fragments that end before their ports: Open vSwitch shows both as 0."""
    for version in (IPV4, IPV6):
        for protocol, source, destination in (
            (TCP, oxm.TCP_SRC, oxm.TCP_DST),
            (UDP, oxm.UDP_SRC, oxm.UDP_DST),
            (SCTP, oxm.SCTP_SRC, oxm.SCTP_DST),
        ):
            yield [
                Term(oxm.ETH_TYPE, version),
                Term(oxm.IP_FRAG, oxm.FRAGMENT_FIRST),
                Term(oxm.IP_PROTO, protocol),
                Term(source, 0),
                Term(destination, 0),
            ]


def _match_icmpv6(number: int) -> list[Term]:
    return [Term(oxm.ETH_TYPE, IPV6), Term(oxm.IP_PROTO, ICMPV6), Term(oxm.ICMPV6_TYPE, number)]


def _responder() -> list[Flow]:
    """An ARP request and a neighbour solicitation, each turned into its answer."""
    arp_reply = (
        copy_field(oxm.ETH_SRC, oxm.ETH_DST),
        set_field(oxm.ETH_SRC, GATEWAY_MAC),
        set_field(oxm.ARP_OP, _ARP_REPLY),
        copy_field(oxm.ARP_SHA, oxm.ARP_THA),
        set_field(oxm.ARP_SHA, GATEWAY_MAC),
        copy_field(oxm.ARP_TPA, pipeline.SCRATCH.field),
        copy_field(oxm.ARP_SPA, oxm.ARP_TPA),
        copy_field(pipeline.SCRATCH.field, oxm.ARP_SPA),
        output(IN_PORT),
    )
    advertisement = (
        copy_field(oxm.ETH_SRC, oxm.ETH_DST),
        set_field(oxm.ETH_SRC, GATEWAY_MAC),
        copy_field(oxm.IPV6_SRC, oxm.IPV6_DST),
        copy_field(oxm.ND_TARGET, oxm.IPV6_SRC),
        set_field(oxm.ICMPV6_TYPE, ADVERTISEMENT),
        set_field(oxm.ND_OPTIONS_TYPE, _TARGET_ADDRESS_OPTION),
        set_field(oxm.ND_RESERVED, _ROUTER_SOLICITED_OVERRIDE),
    )
    request = [Term(oxm.ETH_TYPE, ARP), Term(oxm.ARP_OP, _ARP_REQUEST)]
    send_back = instructions([set_field(oxm.ND_TLL, GATEWAY_MAC), output(IN_PORT)])
    return [
        _make_flow(Table.RESPONDER, 10, request, instructions(arp_reply)),
        _make_flow(
            Table.RESPONDER, 10, _match_icmpv6(SOLICITATION), instructions(advertisement, goto=Table.ADVERTISER)
        ),
        _make_flow(Table.RESPONDER, MISS_PRIORITY, []),
        _make_flow(Table.ADVERTISER, 10, _match_icmpv6(ADVERTISEMENT), send_back),
        _make_flow(Table.ADVERTISER, MISS_PRIORITY, []),
    ]


def thoroughfares() -> list[Flow]:
    """The ways from table to table."""
    return [
        _make_flow(Table.SOURCES, MISS_PRIORITY, [], instructions(goto=Table.LIFTED)),
        _make_flow(Table.LIFTED, MISS_PRIORITY, [], instructions(goto=Table.OPERATOR)),
        _make_flow(Table.OPERATOR, MISS_PRIORITY, [], instructions(goto=Table.EGRESS)),
        _make_flow(
            Table.EGRESS, STATIC_PRIORITY, [Term(pipeline.SOURCE_TENANT.field, 0)], instructions(goto=Table.LOCAL)
        ),
        _make_flow(Table.EGRESS, MISS_PRIORITY, []),
        _make_flow(Table.LOCAL, 10, [Term(pipeline.FROM_UPLINK.field, 0)], instructions(goto=Table.OUTPUT)),
        _make_flow(Table.LOCAL, MISS_PRIORITY, []),
        _make_flow(
            Table.INGRESS, STATIC_PRIORITY, [Term(pipeline.OPERATOR_PERMIT.field, 1)], instructions(goto=Table.OUTPUT)
        ),
        _make_flow(Table.INGRESS, MISS_PRIORITY, []),
    ]


def _sends(uplink: int) -> tuple[Flow, Flow]:
    """Return the rows that send packets out: to the gateway, or to an endpoint."""
    to_gateway = (set_field(oxm.ETH_SRC, GATEWAY_MAC), set_field(oxm.ETH_DST, GATEWAY_MAC), output(uplink))
    to_endpoint = (output_register(pipeline.OUTPUT_PORT.field),)
    return (
        _make_flow(Table.OUTPUT, 10, [Term(pipeline.OUTPUT_PORT.field, 0)], instructions(to_gateway)),
        _make_flow(Table.OUTPUT, MISS_PRIORITY, [], instructions(to_endpoint)),
    )


def _own_address_row(prefix: Prefix, tenant: int, symbol: int) -> Flow:
    """A question about the endpoint's own single address (an announcement, a probe) is not answered.

    Of a wider prefix we do not know which addresses the endpoint has, and its router's may lie inside.
    """
    if prefix.family is Family.IPV6:
        asks = [*_match_icmpv6(SOLICITATION), Term(oxm.ND_TARGET, prefix.network)]
    else:
        asks = [Term(oxm.ETH_TYPE, ARP), Term(oxm.ARP_TPA, prefix.network)]
    return _make_flow(Table.ADMISSION, _Order.OWN_ADDRESS, [Term(oxm.IN_PORT, symbol), *asks], tenant=tenant)


def _request_row(endpoint: Endpoint, source: Prefix, tenant: int, symbol: int) -> Flow:
    """An ARP request whose every part says that the endpoint sent it."""
    terms = [
        Term(oxm.IN_PORT, symbol),
        Term(oxm.ETH_SRC, endpoint.mac),
        Term(oxm.ETH_TYPE, ARP),
        Term(oxm.ARP_OP, _ARP_REQUEST),
        Term(oxm.ARP_SHA, endpoint.mac),
        Term(oxm.ARP_SPA, source.network, source.mask),
    ]
    return _make_flow(Table.ADMISSION, _Order.ANSWERED, terms, instructions(goto=Table.RESPONDER), tenant=tenant)


def _solicitation_row(endpoint: Endpoint, source: Prefix, tenant: int, symbol: int) -> Flow:
    """A solicitation that names its sender. One without (duplicate address detection) must not be answered."""
    terms = [
        Term(oxm.IN_PORT, symbol),
        Term(oxm.ETH_SRC, endpoint.mac),
        *_match_icmpv6(SOLICITATION),
        Term(oxm.ICMPV6_CODE, 0),
        Term(oxm.IPV6_SRC, source.network, source.mask),
        Term(oxm.ND_SLL, endpoint.mac),
    ]
    return _make_flow(Table.ADMISSION, _Order.ANSWERED, terms, instructions(goto=Table.RESPONDER), tenant=tenant)


def _sender_row(endpoint: Endpoint, prefix: Prefix, tenant: int, symbol: int) -> Flow:
    """Packets from the endpoint's own addresses come in as its tenant's.

    On a shared leg only those for the gateway: its bridge may show us frames for others.
    """
    version, source, _ = _ip(prefix)
    to_gateway = [Term(oxm.ETH_DST, GATEWAY_MAC)] if endpoint.shared else []
    terms = [Term(oxm.IN_PORT, symbol), Term(oxm.ETH_SRC, endpoint.mac), *to_gateway, version, source]
    let_in = instructions([set_field(pipeline.SOURCE_TENANT.field, tenant)], goto=Table.SENDER_PORTS)
    return _make_flow(Table.ADMISSION, _Order.ADMITTED, terms, let_in, tenant=tenant)


def _same_leg_row(prefix: Prefix, tenant: int, symbol: int) -> Flow:
    """Drop what comes by a shared leg for an endpoint behind it."""
    version, _, destination = _ip(prefix)
    terms = [Term(oxm.IN_PORT, symbol), version, destination]
    return _make_flow(Table.ADMISSION, _Order.SAME_LEG, terms, tenant=tenant)


def _impostor_row(prefix: Prefix, tenant: int, symbol: int) -> Flow:
    """Drop packets from the uplink with the endpoint's source address.

    The endpoint's port is written down, so that the row needs it.

    The prefix of all addresses is nobody's name: whoever has it (a router) hears from everybody by the uplink.
    """
    version, source, _ = _ip(prefix)
    end = instructions([set_field(pipeline.OUTPUT_PORT.field, symbol)])
    return _make_flow(Table.SOURCES, _prefix_priority(prefix), [version, source], end, tenant=tenant)


def _receiver_row(endpoint: Endpoint, prefix: Prefix, tenant: int, symbol: int) -> Flow:
    """Packets to the endpoint's addresses are its tenant's to judge and leave by its port."""
    version, _, destination = _ip(prefix)
    actions = (
        set_field(pipeline.DESTINATION_TENANT.field, tenant),
        set_field(pipeline.OUTPUT_PORT.field, symbol),
        set_field(oxm.ETH_SRC, GATEWAY_MAC),
        set_field(oxm.ETH_DST, endpoint.mac),
    )
    arrives = instructions(actions, goto=Table.RECEIVER_PORTS)
    return _make_flow(Table.LOCAL, _prefix_priority(prefix), [version, destination], arrives, tenant=tenant)


def _ip(prefix: Prefix) -> tuple[Term, Term, Term]:
    """The version of a prefix, and the prefix as source and as destination."""
    fields: tuple[int, Field, Field] = (
        (IPV4, oxm.IPV4_SRC, oxm.IPV4_DST) if prefix.family is Family.IPV4 else (IPV6, oxm.IPV6_SRC, oxm.IPV6_DST)
    )
    version, source, destination = fields
    return (
        Term(oxm.ETH_TYPE, version),
        Term(source, prefix.network, prefix.mask),
        Term(destination, prefix.network, prefix.mask),
    )
