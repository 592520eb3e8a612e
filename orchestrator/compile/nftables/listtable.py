"""The common part of our nftables tables: chains of lists, and header checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from orchestrator.compile.filters import filtertracking
from orchestrator.compile.filters.filterlists import FilterList, Part, Stage, World
from orchestrator.compile.filters.legs import INSIDE, OUTSIDE
from orchestrator.compile.filters.limits import Limits, limit_text, messages_measure, reports_measure
from orchestrator.compile.nftables.plan import Plan
from orchestrator.compile.nftables.space import Space
from orchestrator.compile.nftables.words import ICMP_NAME, IP, spell_owned
from orchestrator.compile.nftables.write import Declarations, PlanWriter
from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Action

LATER = {Family.IPV4: "ip frag-off & 0x1fff != 0", Family.IPV6: "frag frag-off != 0"}
"""Whether a packet is a later fragment."""

_HEADER_OCTETS = {"tcp": 20, "udp": 8, "sctp": 12}
_ICMP_OCTETS = 4

Planned = Callable[[Space], Plan]
"""How a packet finds its rule in a list."""

Objects = Mapping[str, tuple[str, ...]]
"""The declarations of a table: the lines of each set, map and chain by its kind and name (``chain senders``), in an
order in which nft takes them."""


class ListTable:
    """One IP version's table under way.

    `first`: whether lists are asked about the packet that opened the connection.
    """

    def __init__(
        self, family: Family, lists: Sequence[FilterList], planned: Planned, limits: Limits, *, first: bool = False
    ) -> None:
        self.first = first
        self.family = family
        self.limits = limits
        self.planned = planned
        self.operator = [each for each in lists if each.stage is Stage.OPERATOR]
        self.tenants = [each for each in lists if each.stage is not Stage.OPERATOR and self.prefixes(each)]
        self.declared = Declarations()

    def headers(self) -> None:
        """Declare a chain per protocol that returns if the whole header is present.

        Its last byte is read.
        """
        headers = {**_HEADER_OCTETS, ICMP_NAME[self.family]: _ICMP_OCTETS}
        for name, size in headers.items():
            self.declared.chain(f"{name}_header", [f"@th,{8 * size - 8},8 >= 0 return", "drop"])
        self.declared.map("headers", ["meta l4proto"], [f"{name} : jump {name}_header" for name in headers])

    def list_chain(self, each: FilterList, world: World, suffix: str = "", first: Sequence[str] = ()) -> None:
        """The chain of a list, behind some rules."""
        space = Space.of(tuple(each.rows(world).lines()), world.family)
        name = world_name(each.name + suffix, world)
        if not suffix and any(line.log for line in space.lines):
            log = self.limits.log
            self.declared.limit(reports_measure(each.tenant), limit_text(log.rate, log.burst))
        if any(line.limited for line in space.lines):
            rate = self.limits.path_mtu_rate
            self.declared.limit(messages_measure(each.tenant), limit_text(rate, rate))
        writer = PlanWriter(self.declared, name, space, each.tenant, counted=not suffix, first=self.first)
        rules = [*first, *writer.rules(self.planned(space))]
        if each.default is not None:
            verdict = "accept" if each.default is Action.PERMIT else "drop"
            rules.append(f'counter {verdict} comment "{each.default_comment}"')
        self.declared.chain(name, rules)

    def operators(self, world: World, suffix: str = "") -> list[str]:
        """Return the jump to the operator's rules, if any.

        With a suffix, the rules do not count.
        """
        jumps = []
        for each in self.operator:
            if len(each.rows(world).rules):
                self.list_chain(each, world, suffix)
                jumps.append(f"jump {world_name(each.name + suffix, world)}")
        return jumps

    def declare_owned(self) -> None:
        """Declare the set of all tenants' addresses."""
        senders = [each for each in self.tenants if each.stage is Stage.EGRESS]
        ours = [prefix for each in senders for prefix in self.prefixes(each)]
        self.declared.set("ours", [f"{IP[self.family]} saddr"], ours)

    def tracking(self, part: Part = Part.WHOLE) -> None:
        """Declare the chains that sort out packets of no connection."""
        senders = [each for each in self.tenants if each.stage is Stage.EGRESS]
        if Part.FRAME in part:
            for name, rules in filtertracking.nftables_chains(self.family):
                self.declared.chain(name, rules)
        if Part.LISTS in part:
            for each in senders:
                rules = filtertracking.nftables_errors(IP[self.family], self.prefixes(each))
                self.declared.chain(filtertracking.errors_name(each.tenant), rules)
        if Part.FRAME in part:
            self._map_errors(senders)

    def _map_errors(self, senders: Sequence[FilterList]) -> None:
        jumps = [
            f"{prefix} : jump {filtertracking.errors_name(each.tenant)}"
            for each in senders
            for prefix in self.prefixes(each)
        ]
        self.declared.map(filtertracking.ERRORS, [f"{IP[self.family]} saddr"], jumps, "flags interval")

    def by_leg(self) -> list[str]:
        """Return rules that drop source addresses which the packet's leg does not have.

        None where one tenant owns every address.
        """
        source = f"{IP[self.family]} saddr"
        every = [prefix for each in self.tenants for prefix in each.prefixes if prefix.family is self.family]
        if any(not prefix.length for prefix in every):
            return []
        return [f'iifname "{OUTSIDE}" {source} @ours drop', f'iifname "{INSIDE}" {source} != @ours drop']

    def prefixes(self, each: FilterList) -> list[str]:
        """A list's prefixes of this IP version."""
        return [spell_owned(prefix) for prefix in each.prefixes if prefix.family is self.family]


def world_name(name: str, world: World) -> str:
    """A chain's or map's name in a world."""
    return f"{name}_late" if world.later else name
