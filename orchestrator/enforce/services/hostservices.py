"""The services of a host as declared, and the nftables tables around their port."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.compile.pipelines.host import SERVICES_IPV4, SERVICES_IPV6, SERVICES_PORT
from orchestrator.enforce.drivers.filters.command import Run, run
from orchestrator.enforce.guardtable import GuardTable
from orchestrator.errors import BadInput
from orchestrator.policy.addresses import Family, Prefix, format_address, parse_address

GUARD_TABLE = "aclflow_services"
"""The tables of nftables' families `inet` and `netdev` that are the services' own."""
ROUTER_IPV6 = 0xFE80 << 112 | 1
"""The router as advertisements name it; every switch answers for its link-layer address."""
RESOLVER = {
    Family.IPV4: format_address(Family.IPV4, SERVICES_IPV4), Family.IPV6: format_address(Family.IPV6, SERVICES_IPV6)
}  # fmt: skip
_MARKED = "ether daddr & ff:ff:00:00:00:00 == 0a:ad:00:00:00:00"
QUESTIONS_A_SECOND, NAMES_A_SECOND, CONNECTIONS_A_SECOND = 20, 100, 1
"""How many questions for addresses one endpoint may ask, packets it may send the resolver, connections open to it."""


@dataclass(frozen=True, slots=True)
class Subnet:
    """Addresses of endpoints, and the router that they are told. Raises BadInput."""

    prefix: Prefix
    router: int

    @classmethod
    def parse(cls, text: str) -> Subnet:
        """Read ``198.51.100.0/24``, whose router is its first address, or ``198.51.100.0/24=198.51.100.254``."""
        written, _, router = text.partition("=")
        prefix = Prefix.parse(written)
        if not router:
            return cls(prefix, min(prefix.network + 1, prefix.last))
        family, address = parse_address(router)
        if family is not prefix.family or not prefix.holds(address):
            raise BadInput(f"the router {router} is not in {prefix}")
        return cls(prefix, address)

    def router_of(self, address: int) -> int:
        """The router that an endpoint is told: another address where it has the router's itself."""
        if address != self.router:
            return self.router
        return max(self.prefix.last - 1, self.prefix.network) if self.prefix.last - 1 != address else self.prefix.last


@dataclass(frozen=True, slots=True)
class HostServices:
    """The services of a host. Raises BadInput, naming the option.

    `servers` are resolvers that names are asked of; without any, those of /etc/resolv.conf.
    """

    subnets: tuple[Subnet, ...]
    servers: tuple[str, ...] = ()
    mtu: int = 1500
    lease_s: int = 86400
    port: str = SERVICES_PORT

    def __post_init__(self) -> None:
        if not 1280 <= self.mtu <= 9216:
            raise BadInput(f"{self.mtu} is not within 1280 and 9216", place="--mtu")
        if not 120 <= self.lease_s <= 0x7FFFFFFF:
            raise BadInput(f"a lease of {self.lease_s} s is shorter than 120 s, or longer than time", place="--lease")
        for server in self.servers:
            try:
                parse_address(server)
            except BadInput as error:
                raise BadInput(str(error), place="--dns") from None

    def subnet_of(self, address: int) -> Subnet:
        """The longest IPv4 subnet that holds an address; outside of all, the address alone."""
        holding = [
            each for each in self.subnets if each.prefix.family is Family.IPV4 and each.prefix.holds(address)
        ]  # fmt: skip
        alone = Subnet(Prefix(Family.IPV4, address, 32), SERVICES_IPV4)
        return max(holding, key=lambda each: each.prefix.length, default=alone)

    def guards(self, run: Run = run) -> tuple[GuardTable, ...]:
        """The tables of nftables around the port."""
        return (
            GuardTable(GUARD_TABLE, tuple(self._chains()), run),
            GuardTable(GUARD_TABLE, tuple(self._limits()), run, family="netdev", is_counting=True),
        )

    def _chains(self) -> Iterator[str]:
        """Yield the chains that let the port reach the resolver, and nothing else.

        Nobody else asks the resolver, or passes packets on to it.
        """
        port = f'"{self.port}"'
        yield from (
            "chain here {",
            "type filter hook input priority -20; policy accept;",
            f"iifname {port} ip daddr {RESOLVER[Family.IPV4]} meta l4proto {{ tcp, udp }} th dport 53 accept",
            f"iifname {port} ip6 daddr {RESOLVER[Family.IPV6]} meta l4proto {{ tcp, udp }} th dport 53 accept",
            f"iifname {port} drop",
            f'iifname != "lo" ip daddr {RESOLVER[Family.IPV4]} drop',
            f'iifname != "lo" ip6 daddr {RESOLVER[Family.IPV6]} drop',
            "}",
            "chain across {",
            "type filter hook forward priority -20; policy accept;",
            f"iifname {port} drop",
            f"oifname {port} drop",
            "}",
        )

    def _limits(self) -> Iterator[str]:
        """Yield the chain that limits an endpoint's questions a second.

        They are counted before anything of the host looks at the packet.
        """
        for name in ("askers", "opening", "resolving"):
            yield f"set {name} {{ type ether_addr . ether_addr; size 65535; flags dynamic, timeout; timeout 1m; }}"
        yield from (
            "chain limits {",
            f'type filter hook ingress device "{self.port}" priority 0; policy accept;',
            f"{_MARKED} update @askers {{ ether saddr . ether daddr limit rate "
            f"over {QUESTIONS_A_SECOND}/second burst {2 * QUESTIONS_A_SECOND} packets }} drop",
            f"{_MARKED} accept",
            "tcp flags & (syn | ack) == syn update @opening { ether saddr . ether daddr limit rate "
            f"over {CONNECTIONS_A_SECOND}/second burst {10 * CONNECTIONS_A_SECOND} packets }} drop",
            "update @resolving { ether saddr . ether daddr limit rate "
            f"over {NAMES_A_SECOND}/second burst {2 * NAMES_A_SECOND} packets }} drop",
            "}",
        )
