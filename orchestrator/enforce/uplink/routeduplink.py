"""The intended state of a routed uplink: routes, a neighbour, and an nftables table.

Routes are to what the switch delivers.

input      by the port                   dropped: endpoints reach no service of the host
           by the port of its services   names to resolve are permitted (`orchestrator/enforce/services`)
           by a segment                  neighbour discovery is permitted: the kernel answers for endpoints there
           in an endpoint's name         dropped, whichever interface it comes by
forward    the port <-> the fabric       permitted
           among the fabric and others   permitted
           all else                      dropped
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from orchestrator.compile.filters.legs import check_interface
from orchestrator.compile.pipelines.host import GATEWAY_IPV4, GATEWAY_IPV6, SERVICES_PORT
from orchestrator.enforce.drivers.filters.command import Run, run
from orchestrator.enforce.guardtable import GuardTable, set_of_names
from orchestrator.enforce.services.hostservices import RESOLVER
from orchestrator.errors import BadInput
from orchestrator.policy.addresses import Family, Prefix, aggregate

GUARD_TABLE = "aclflow_uplink"
"""The table of nftables' family `inet` that is the uplink's own."""
ROUTE_PROTOCOL = 172
"""The number by which the kernel's routes of ours are told, for routing daemons as for us.

FRR takes 186 to 198 for its own, and ignores or removes routes that bear them."""
NEXT_HOPS = {Family.IPV4: GATEWAY_IPV4, Family.IPV6: GATEWAY_IPV6}
"""The gateway as the kernel's routes name it; nobody else may have these addresses at the port."""


def check_ranges(ranges: Collection[Prefix]) -> None:
    """Raise BadInput where endpoints could have no address, or every one."""
    if not ranges:
        raise BadInput("name the addresses that endpoints may have, as in 198.51.100.0/24", place="--range")
    wide = [prefix for prefix in ranges if not prefix.length]
    if wide:
        raise BadInput(f"{wide[0]} would be every address there is", place="--range")


def drop_senders(ranges: Collection[Prefix]) -> Iterator[str]:
    """Yield lines of nftables that drop what is sent in an endpoint's name."""
    for family, word in ((Family.IPV4, "ip"), (Family.IPV6, "ip6")):
        prefixes = aggregate(tuple(prefix for prefix in ranges if prefix.family is family))
        if prefixes:  # none inside another: nftables refuses elements that overlap
            yield f"{word} saddr {{ {', '.join(map(str, prefixes))} }} drop"


@dataclass(frozen=True, slots=True)
class RoutedUplink:
    """A host's uplink as an operator declares it. Raises BadInput, naming the option.

    `fabric` are the interfaces towards routers, `beside` others that the machine forwards packets among, `ranges` the
    addresses that tenants' endpoints may have. `segments` lead to routers as well: on these the kernel answers for
    endpoints, which have addresses of the network there.
    """

    fabric: tuple[str, ...]
    ranges: tuple[Prefix, ...]
    beside: tuple[str, ...] = ()
    port: str = "up0"
    segments: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        named = [("--port", self.port), *(("--fabric", name) for name in self.fabric)]
        named += [("--segment", name) for name in self.segments]
        for place, name in [*named, *(("--beside", name) for name in self.beside)]:
            check_interface(name, place)
        if not self.outer:
            raise BadInput("name the interface towards the operator's router", place="--fabric")
        if self.port in (*self.outer, *self.beside):
            raise BadInput(f"'{self.port}' is the switch's own port", place="--fabric")
        check_ranges(self.ranges)

    @property
    def outer(self) -> tuple[str, ...]:
        """The interfaces by which packets come from outside and leave."""
        return tuple(dict.fromkeys((*self.fabric, *self.segments)))

    def holds(self, prefix: Prefix) -> bool:
        """Whether endpoints may have a prefix."""
        return any(each.contains(prefix) for each in self.ranges)

    def guard(self, run: Run = run) -> GuardTable:
        """The table of nftables around the port."""
        return GuardTable(GUARD_TABLE, tuple(self._write_chains()), run)

    def _write_chains(self) -> Iterator[str]:
        port, fabric = f'"{self.port}"', set_of_names(self.outer)
        others = set_of_names((*self.outer, *self.beside))
        yield from (
            "chain here {",
            "type filter hook input priority -10; policy accept;",
            f"iifname {port} drop",
        )
        for word, address in (("ip", RESOLVER[Family.IPV4]), ("ip6", RESOLVER[Family.IPV6])):
            yield f'iifname "{SERVICES_PORT}" {word} daddr {address} meta l4proto {{ tcp, udp }} th dport 53 accept'
        if self.segments:  # a router asks by an address of the network that endpoints are in, too
            discovery = "icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert }"
            yield f"iifname {set_of_names(self.segments)} {discovery} accept"
        yield from drop_senders(self.ranges)
        yield from (
            "}",
            "chain across {",
            "type filter hook forward priority -10; policy drop;",
            f"iifname {port} oifname {fabric} accept",
            f"iifname {fabric} oifname {port} accept",
            f"iifname {port} drop",
            f"oifname {port} drop",
            f"iifname {others} oifname {others} accept",
            "}",
        )
