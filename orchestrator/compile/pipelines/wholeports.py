"""Rows that keep a list from splitting the switch's cache by both ports.

An entry of Open vSwitch's cache holds as few bits of each address and port as tell a packet from the rules that it did
not meet: of a field up to 17 lengths for ports and 33 for IPv4 addresses. A list that asks for addresses, source and
destination ports can so be made to need their product, 9,537 masks, by as many packets, and each packet that no entry
knows is held against one mask after the other (tuple-space explosion, Csikor et al., 2018). Masks that multiply are
what costs, not entries.

So where a list asks for both ports, the destination port of its packets is read whole before the list is asked: it is
copied into a register, which is emptied again. An entry then holds all of its bits, in one mask in place of 17.

    a list asks for                    masks    entries
    addresses, a port                    561    as few as tell packets apart
    addresses, both ports              9,537    the same
    the same, with these rows            561    one a destination port, beside

What it costs: packets that would have shared an entry whatever their destination port need one a port. So lists that
ask for one of the ports, as nearly all do, have no such rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat
from operator import attrgetter, is_not
from typing import NamedTuple

from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.openflow import oxm
from orchestrator.compile.openflow.instructions import copy_field, instructions, set_field
from orchestrator.compile.openflow.oxm import IPV4, IPV6, Field, Term
from orchestrator.compile.pipelines.host import (
    DESTINATION_TENANT,
    MISS_PRIORITY,
    SCRATCH,
    SOURCE_TENANT,
    Table,
)
from orchestrator.policy.model import Acl, Direction, ReturnTraffic, Rule, Tenant
from orchestrator.policy.ports import EVERY_PORT
from orchestrator.policy.protocols import SCTP, TCP, UDP
from orchestrator.program.flows import Flow
from orchestrator.program.program import Tier

_STRUCTURE = Cookie(Tier.HOST, Kind.STRUCTURE).pack()
_PORT: dict[int, Field] = {TCP: oxm.TCP_DST, UDP: oxm.UDP_DST, SCTP: oxm.SCTP_DST}
_PRIORITY = 10
_SOURCE_PORTS = attrgetter("source_ports")


class _Way(NamedTuple):
    """A direction's table of reading, the register of its tenants, and the next table."""

    table: Table
    tenant: Field
    goes_to: Table


_WAYS = {
    Direction.EGRESS: _Way(Table.SENDER_PORTS, SOURCE_TENANT.field, Table.LIFTED),
    Direction.INGRESS: _Way(Table.RECEIVER_PORTS, DESTINATION_TENANT.field, Table.INGRESS),
}


def find_split_ways(acl: Acl) -> tuple[Direction, ...]:
    """Return the directions in which a list asks for source and for destination ports."""
    ways = frozenset[Direction]().union(*acl.listed.facts(_find_source_ways))
    if ways:
        ways &= frozenset[Direction]().union(*acl.listed.facts(_find_destination_ways))
    return tuple(way for way in Direction if way in ways)


def _find_source_ways(rules: tuple[Rule, ...]) -> frozenset[Direction]:
    """The directions in which some rule asks for source ports."""
    if not any(map(is_not, map(_SOURCE_PORTS, rules), repeat(EVERY_PORT))):  # of each rule of a new list, so in C
        return frozenset()
    return frozenset(rule.direction for rule in rules if rule.source_ports != EVERY_PORT)


def _find_destination_ways(rules: tuple[Rule, ...]) -> frozenset[Direction]:
    """The directions in which some rule asks for destination ports."""
    return frozenset(rule.direction for rule in rules if rule.destination_ports != EVERY_PORT)


def find_whole_ways(tenant: Tenant, returns: ReturnTraffic) -> tuple[Direction, ...]:
    """Return the directions in which a list's destination ports are read whole.

    Fields of connections, which are asked for where these are tracked, are read whole in any case.
    """
    is_tracked = returns is ReturnTraffic.TRACKED and not tenant.acl.has_stateless
    return () if is_tracked else find_split_ways(tenant.acl)


def whole_port_rows(tenant: Tenant, ways: Iterable[Direction]) -> Iterator[Flow]:
    """Yield the rows that read destination ports of a tenant's packets whole."""
    for direction in ways:
        table, register, goes_to = _WAYS[direction]
        for version in (IPV4, IPV6):
            for protocol, port in _PORT.items():
                terms = [
                    Term(register, tenant.number),
                    Term(oxm.ETH_TYPE, version),
                    Term(oxm.IP_FRAG, 0, oxm.NOT_LATER_MASK),
                    Term(oxm.IP_PROTO, protocol),
                ]
                read = (copy_field(port, SCRATCH.field), set_field(SCRATCH.field, 0))
                yield Flow(
                    table, _PRIORITY, oxm.pack(terms), instructions(read, goto=goes_to), _STRUCTURE, tenant.number
                )


def passing_rows() -> Iterator[Flow]:
    """Yield the rows that send on all other packets."""
    for table, _, goes_to in _WAYS.values():
        yield Flow(table, MISS_PRIORITY, oxm.pack([]), instructions(goto=goes_to), _STRUCTURE, 0)
