"""The flow rows by which a host serves its endpoints, behind a switch port.

The services are DHCP, router advertisements and DNS.

    endpoint ── question ──▶ admission ── (services) ──▶ svc0 ┆ the host answers
    endpoint ◀── answer ──── by the port in the MAC address ─── svc0 ┆

* A question is marked with the number of the port that it came by, in its destination MAC address, and bears its
  sender's own MAC address. The answer bears the mark as its source. So nobody can ask in another's name, an answer
  reaches the one who asked whatever stands in it, and two endpoints with one MAC address are two.
* A question for an address gets the endpoint's own as its destination: the host offers what the row says, and needs
  no list of endpoints that could be older than the rows.
* All these rows name the port of the services, so a switch without it has none of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.openflow import oxm
from orchestrator.compile.openflow.instructions import (
    DROP,
    copy_field,
    instructions,
    output,
    output_register,
    set_field,
)
from orchestrator.compile.openflow.oxm import IPV4, IPV6, Field, Term
from orchestrator.compile.openflow.symbols import SERVICES_SYMBOL
from orchestrator.compile.pipelines import host as pipeline
from orchestrator.compile.pipelines.host import (
    CALLER_MAC,
    CALLER_MASK,
    GATEWAY_MAC,
    MISS_PRIORITY,
    SERVICES_IPV4,
    SERVICES_IPV6,
    SERVICES_MAC,
    Table,
)
from orchestrator.policy.addresses import Family, Prefix, aggregate
from orchestrator.policy.model import Endpoint
from orchestrator.policy.protocols import ICMPV6, TCP, UDP
from orchestrator.program.flows import Flow
from orchestrator.program.program import Tier

SOLICITATION = 133
"""ICMPv6: where is a router?"""
DNS = 53
_CLIENT, _SERVER = {IPV4: 68, IPV6: 546}, {IPV4: 67, IPV6: 547}
"""The UDP ports of DHCP and DHCPv6."""
_BROADCAST, _ALL_SERVERS = 0xFFFFFFFFFFFF, 0x333300010002
_SERVED, _ANSWERS, _ROGUE = 50, 45, 42
"""Priorities on admission: above what drops frames to several and admits, below what drops tagged and short ones."""
_ADDRESSES: dict[int, int] = {IPV4: SERVICES_IPV4, IPV6: SERVICES_IPV6}
_SOURCE: dict[int, Field] = {IPV4: oxm.IPV4_SRC, IPV6: oxm.IPV6_SRC}
_DESTINATION: dict[int, Field] = {IPV4: oxm.IPV4_DST, IPV6: oxm.IPV6_DST}
_STRUCTURE = Cookie(Tier.HOST, Kind.STRUCTURE).pack()


def service_rows() -> list[Flow]:
    """The rows that no endpoint makes."""
    return [*_answers(), *_rogues(), *_make_question_flows()]


def served_rows(endpoint: Endpoint, tenant: int, symbol: int) -> list[Flow]:
    """The questions of one endpoint, whose port is `symbol`.

    An address is offered where the endpoint has one of that family and no more: of several, or of a wider prefix,
    nobody here knows which it is to have.
    """
    rows: list[Flow] = []
    for family, version in ((Family.IPV4, IPV4), (Family.IPV6, IPV6)):
        held = tuple(prefix for prefix in endpoint.prefixes if prefix.family is family)
        sender = [Term(oxm.IN_PORT, symbol), Term(oxm.ETH_SRC, endpoint.mac)]
        if len(held) == 1 and held[0].length == family.bits:
            asks = instructions(
                [*_write_port(symbol), set_field(_DESTINATION[version], held[0].network), output(SERVICES_SYMBOL)]
            )
            rows += (
                _make_flow(Table.ADMISSION, _SERVED, [*sender, *terms], asks, tenant) for terms in _asking(version)
            )
        calls = instructions(
            [*_write_port(symbol), set_field(pipeline.OUTPUT_PORT.field, SERVICES_SYMBOL)], goto=Table.SERVICES
        )
        rows += (
            _make_flow(Table.ADMISSION, _SERVED, [*sender, *_calling(version, prefix)], calls, tenant)
            for prefix in aggregate(held)
        )
    return rows


def _asking(version: int) -> Iterator[list[Term]]:
    """Yield the matches of questions for an address: broadcast DHCP, and router solicitations.

    The latter are of IPv6.
    """
    everybody = Term(oxm.ETH_DST, _BROADCAST if version == IPV4 else _ALL_SERVERS)
    yield [everybody, *_match_dhcp(version, _CLIENT[version], _SERVER[version])]
    if version == IPV6:
        yield [Term(oxm.ETH_TYPE, IPV6), Term(oxm.IP_PROTO, ICMPV6), Term(oxm.ICMPV6_TYPE, SOLICITATION)]


def _calling(version: int, source: Prefix) -> list[Term]:
    """Packets of the endpoint's own to the address of the services."""
    own = Term(_SOURCE[version], source.network, source.mask)
    return [Term(oxm.ETH_TYPE, version), own, Term(_DESTINATION[version], _ADDRESSES[version])]


def _write_port(symbol: int) -> tuple[bytes, ...]:
    """Write the endpoint's port into the frame's destination."""
    port = pipeline.OUTPUT_PORT.field
    return set_field(port, symbol), set_field(oxm.ETH_DST, CALLER_MAC), copy_field(port, oxm.ETH_DST, bits=32)


def _answers() -> Iterator[Flow]:
    """Yield the rows that send the host's answers to the endpoints that asked.

    Marked frames go to the port that the mark names; packets of the host's kernel from its resolver's address go past
    all lists.
    """
    came = Term(oxm.IN_PORT, SERVICES_SYMBOL)
    to_caller = (
        copy_field(oxm.ETH_SRC, pipeline.OUTPUT_PORT.field, bits=32),
        set_field(oxm.ETH_SRC, GATEWAY_MAC),
        output_register(pipeline.OUTPUT_PORT.field),
    )
    marked = [came, Term(oxm.ETH_SRC, CALLER_MAC, CALLER_MASK)]
    yield _make_flow(Table.ADMISSION, _ANSWERS, marked, instructions(to_caller))
    let_in = (set_field(pipeline.FROM_UPLINK.field, 1), set_field(pipeline.OPERATOR_PERMIT.field, 1))
    for version, address in _ADDRESSES.items():
        sender = [Term(oxm.ETH_SRC, SERVICES_MAC), Term(oxm.ETH_DST, GATEWAY_MAC)]
        terms = [came, *sender, Term(oxm.ETH_TYPE, version), Term(_SOURCE[version], address)]
        yield _make_flow(Table.ADMISSION, _ANSWERS, terms, instructions(let_in, goto=Table.LOCAL))


def _rogues() -> Iterator[Flow]:
    """Yield the rows that drop DHCP answers from any other port.

    The services' port is written down, so that the row needs it.
    """
    end = instructions([set_field(pipeline.OUTPUT_PORT.field, SERVICES_SYMBOL)])
    for version in _ADDRESSES:
        yield _make_flow(Table.ADMISSION, _ROGUE, _match_dhcp(version, _SERVER[version], _CLIENT[version]), end)


def _make_question_flows() -> Iterator[Flow]:
    to_port = output_register(pipeline.OUTPUT_PORT.field)
    resolve = instructions([set_field(oxm.ETH_DST, SERVICES_MAC), to_port])
    for version in _ADDRESSES:
        for protocol, port in ((UDP, oxm.UDP_DST), (TCP, oxm.TCP_DST)):
            terms = [Term(oxm.ETH_TYPE, version), Term(oxm.IP_PROTO, protocol), Term(port, DNS)]
            yield _make_flow(Table.SERVICES, 10, terms, resolve)
    renews = [Term(oxm.ETH_TYPE, IPV4), Term(oxm.IP_PROTO, UDP), Term(oxm.UDP_DST, _SERVER[IPV4])]
    yield _make_flow(Table.SERVICES, 10, renews, instructions([to_port]))
    yield _make_flow(Table.SERVICES, MISS_PRIORITY, [])


def _match_dhcp(version: int, source: int, destination: int) -> list[Term]:
    ports = [Term(oxm.UDP_SRC, source), Term(oxm.UDP_DST, destination)]
    return [Term(oxm.ETH_TYPE, version), Term(oxm.IP_PROTO, UDP), *ports]


def _make_flow(table: Table, priority: int, terms: Iterable[Term], what: bytes = DROP, tenant: int = 0) -> Flow:
    return Flow(table, priority, oxm.pack(terms), what, _STRUCTURE, tenant)
