"""The cost of a cloud's edge: false matches, WAN, servers, latency, processors. Pure arithmetic.

Two readings stand side by side. The *paper's* (Scalable Firewalls, section 5): one line's rate by the usual formula,
with VMs packed densely into chunks. *Ours*: whole chunks for every tenant, lines that hold whole numbers of them, and
the probability that **any** line matches, which is what an attacker who sweeps addresses meets (`rates`).

`Popularity` says how much traffic few rules decide: what heavy-hitter entries are worth. Measured popularity comes as
points (rules, share of the packets that this many of the heaviest decide); the paper gives one, 25 rules and 90 %.
Between points, and beyond the last, what is left undecided is a straight line over one plus the rules where both axes
are logarithmic, as measured traffic is (Zipf's law).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp, inf, log

from orchestrator.edge.occupancy import best_k, formula, functions, one_line, spread, union_of
from orchestrator.errors import BadInput


@dataclass(frozen=True, slots=True)
class Popularity:
    """Points of the curve: both numbers ascend, all shares lie between 0 and 1."""

    points: tuple[tuple[float, float], ...] = ((25.0, 0.9),)

    def __post_init__(self) -> None:
        if not self.points:
            raise BadInput("a popularity curve needs a point: RULES and the share they decide", place="popularity")
        before = (0.0, 0.0)
        for rules, share in self.points:
            if not (before[0] < rules < inf and before[1] < share < 1.0):
                raise BadInput(
                    f"{rules:g} rules, {share:g} of the packets: both must grow from point to point, shares below 1",
                    place="popularity",
                )
            before = rules, share

    def decided_share(self, rules: float) -> float:
        """The share of packets decided by the `rules` heaviest rules; `rules` may be a fraction."""
        corners = [(0.0, 0.0), *((log(1.0 + count), log(1.0 - share)) for count, share in self.points)]
        at = log(1.0 + max(rules, 0.0))
        index = next((i for i, (place, _) in enumerate(corners[1:], 1) if at <= place), len(corners) - 1)
        (low, high_left), (high, low_left) = corners[index - 1], corners[index]
        return 1.0 - exp(high_left + (low_left - high_left) * (at - low) / (high - low))

    @classmethod
    def of_counts(cls, packets: Sequence[float]) -> Popularity:
        """Build the curve of measured counts, one per rule.

        The last rule with packets gets no point.

        Raises BadInput for counts of fewer than two rules that decided packets.
        """
        heaviest = sorted((count for count in packets if count > 0), reverse=True)
        if len(heaviest) < 2:
            raise BadInput("a curve takes counts of at least two rules that decided packets", place="popularity")
        total, so_far, points = float(sum(heaviest)), 0.0, []
        for index, count in enumerate(heaviest[:-1], 1):
            so_far += count
            points.append((float(index), so_far / total))
        return cls(tuple(points))


IPV4_ADDRESSES = 1 << 32
IPV6_ADDRESSES = 1 << 128
MOST = 1e12
"""Beyond any entry, rate, memory or time that a planner is asked about; infinity and what is no number are, too."""
WIDEST = 4096
"""Bits an entry, and functions: what is summed over grows with both."""
_MOST_REGIONS = 10_000
_GB = 1e9


@dataclass(frozen=True, slots=True)
class Topology:
    """A tenant's network without the edge: regions, VPCs, gateways. Defaults: the paper's example, Aviatrix."""

    regions: int = 2
    domains_a_region: int = 3
    vpcs_a_domain: int = 2
    gateways_a_vpc: float = 4 / 3

    def __post_init__(self) -> None:
        _check_within(1, _MOST_REGIONS, regions=self.regions)

    @property
    def vpcs(self) -> int:
        return self.regions * self.domains_a_region * self.vpcs_a_domain

    @property
    def gateways(self) -> int:
        return round(self.vpcs * self.gateways_a_vpc)

    @property
    def peerings(self) -> int:
        """Between regions, pairwise and in each direction."""
        return self.regions * (self.regions - 1)


@dataclass(frozen=True, slots=True)
class Cloud:
    """The cloud behind the edge. A tenant's addresses lie in `blocks_a_tenant` contiguous blocks."""

    vms: int = 10**12
    tenants: int = 1_000_000
    blocks_a_tenant: int = 1
    pairs_a_vm: float = 1.0
    topology: Topology = field(default_factory=Topology)

    def __post_init__(self) -> None:
        _check_within(1, IPV6_ADDRESSES, vms=self.vms, tenants=self.tenants, blocks_a_tenant=self.blocks_a_tenant)
        _check_within(0, MOST, pairs_a_vm=self.pairs_a_vm)
        if self.vms < self.tenants * self.blocks_a_tenant:
            raise BadInput(f"{self.vms} VMs are fewer than one for each block of each tenant", place="vms")

    def chunks(self, size: int) -> int:
        """Count the whole chunks of `size` addresses that all tenants take."""
        blocks = self.tenants * self.blocks_a_tenant
        return blocks * -(-self.vms // (blocks * size))


@dataclass(frozen=True, slots=True)
class Tcam:
    """The edge router's TCAM: entries of `width` bits, shares for forwarding and heavy hitters.

    The share of heavy hitters is of the rest.
    """

    entries: int = 7_000_000
    width: int = 288
    forwarding_share: float = 900_000 / 7_000_000
    heavy_share: float = 0.1
    most_functions: int = 288

    def __post_init__(self) -> None:
        _check_within(1, IPV6_ADDRESSES, entries=self.entries)
        _check_within(1, WIDEST, width=self.width, most_functions=self.most_functions)
        for place in ("forwarding_share", "heavy_share"):
            if not 0.0 <= getattr(self, place) < 1.0:
                raise BadInput(f"{getattr(self, place):g} is no share: 0 up to, not including, 1", place=place)

    @property
    def free(self) -> int:
        """Entries that forwarding leaves."""
        return self.entries - round(self.entries * self.forwarding_share)

    @property
    def heavy(self) -> int:
        """Entries for heavy hitters."""
        return round(self.free * self.heavy_share)

    @property
    def lines(self) -> int:
        """Entries for ternary Bloom lines."""
        return self.free - self.heavy


@dataclass(frozen=True, slots=True)
class Load:
    """Traffic at the PoP in Gb/s, and its distribution over rules.

    `shared`: one curve for all tenants.
    """

    permitted_gbps: float = 500.0
    attack_gbps: float = 100.0
    wan_gbps: float = 1_000.0
    popularity: Popularity = field(default_factory=Popularity)
    shared: bool = False

    def __post_init__(self) -> None:
        _check_within(0, MOST, permitted_gbps=self.permitted_gbps, attack_gbps=self.attack_gbps, wan_gbps=self.wan_gbps)
        if not self.wan_gbps:
            raise BadInput("a WAN without capacity carries nothing", place="wan_gbps")


@dataclass(frozen=True, slots=True)
class Machines:
    """Firewall servers and the gateways they replace.

    Memory as measured here, processors as in the paper.
    """

    memory_gb: float = 1_024.0
    octets_a_pair: float = 96.0
    octets_a_tenant: float = 4_800.0
    server_gbps: float = 5.0
    server_cores: float = 0.25
    gateway_cores: float = 0.5
    hop_ms: float = 10.0

    def __post_init__(self) -> None:
        _check_within(0, MOST, memory_gb=self.memory_gb, server_gbps=self.server_gbps, hop_ms=self.hop_ms)
        _check_within(0, MOST, octets_a_pair=self.octets_a_pair, octets_a_tenant=self.octets_a_tenant)
        _check_within(0, MOST, server_cores=self.server_cores, gateway_cores=self.gateway_cores)
        for place in ("memory_gb", "server_gbps"):
            if not getattr(self, place):
                raise BadInput("a server without memory or speed serves nobody", place=place)


@dataclass(frozen=True, slots=True)
class Filters:
    """Lines and how often they match what nobody has.

    `contested` is how many chunks some line of others matches too: as many as the order of lines and exact entries have
    to keep apart. `unrepaired` is the share of packets for tenants that would reach a wrong server, were the order of
    lines left to chance. `exact_fits`: there are entries for every chunk, so that an exact table does without filters.
    """

    chunks: int
    lines: int
    chunks_a_line: float
    functions: int
    one_line_rate: float
    union_rate: float
    contested: float
    unrepaired: float
    exact_fits: bool
    fits_ipv4: bool


@dataclass(frozen=True, slots=True)
class AsInThePaper:
    """The paper's numbers for the same cloud."""

    chunks_a_line: float
    functions: int
    one_line_rate: float
    wan_use: float


@dataclass(frozen=True, slots=True)
class Wan:
    """Shares of the WAN's capacity by misdirect mode: permitted traffic, without and with an attack."""

    permitted: float
    leaked_gbps: float
    use_wan: float
    use_rehome: float
    use_drop: float


@dataclass(frozen=True, slots=True)
class Servers:
    """How many firewall servers, what asks for so many, and what all of them do."""

    count: int
    because: str
    pairs: float
    memory_gb: float
    load_gbps: float
    cores: float
    gateway_cores: float


@dataclass(frozen=True, slots=True)
class Relief:
    """Devices that one tenant no longer manages."""

    vpcs: int
    gateways: int
    peerings: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The result of `plan`.

    `bypass` is the share of permitted traffic that heavy hitters forward directly.
    """

    chunk_size: int
    heavy_entries: int
    filters: Filters
    paper: AsInThePaper
    bypass: float
    added_ms: float
    wan: Wan
    servers: Servers
    relief: Relief


def plan(
    cloud: Cloud, chunk_size: int, tcam: Tcam | None = None, load: Load | None = None, machines: Machines | None = None
) -> Plan:
    """Plan one cloud with chunks of `chunk_size` addresses. Raises BadInput for what cannot be."""
    tcam, load, machines = tcam or Tcam(), load or Load(), machines or Machines()
    filters, paper_rate = filters_of(cloud, chunk_size, tcam), paper(cloud, chunk_size, tcam)
    rules = tcam.heavy if load.shared else tcam.heavy / cloud.tenants
    bypass = load.popularity.decided_share(rules)
    leaked = load.attack_gbps * filters.union_rate
    permitted = load.permitted_gbps / load.wan_gbps
    n, k, rate = paper_rate
    return Plan(
        chunk_size,
        tcam.heavy,
        filters,
        AsInThePaper(n, k, rate, permitted + load.attack_gbps * rate / load.wan_gbps),
        bypass,
        2 * machines.hop_ms * (1.0 - bypass),
        Wan(permitted, leaked, permitted + leaked / load.wan_gbps, permitted, permitted),
        _plan_servers(cloud, machines, load.permitted_gbps * (1.0 - bypass) + leaked),
        Relief(cloud.topology.vpcs, cloud.topology.gateways, cloud.topology.peerings),
    )


def filters_of(cloud: Cloud, chunk_size: int, tcam: Tcam) -> Filters:
    """Return lines for a cloud's chunks with their rates.

    Raises BadInput for a size that is no power of two.
    """
    if chunk_size < 1 or chunk_size & (chunk_size - 1):
        raise BadInput(f"{chunk_size} addresses share no prefix of their own: take a power of two", place="chunk_size")
    chunks = cloud.chunks(chunk_size)
    held = spread(chunks, tcam.lines)
    lines = sum(held.values())
    k = functions(tcam.width, held, tcam.most_functions)
    rate, union = one_line(tcam.width, k, held), union_of(tcam.width, k, held)
    return Filters(
        chunks, lines, chunks / lines, k, rate, union, chunks * union, _lost_to_others(rate * (lines - 1)),
        chunks <= tcam.lines, chunks * chunk_size <= IPV4_ADDRESSES,
    )  # fmt: skip


def paper(cloud: Cloud, chunk_size: int, tcam: Tcam) -> tuple[float, int, float]:
    """Compute chunks a line, hash functions and one line's rate as section 5.1.

    VMs are packed and lines are equal.
    """
    n = cloud.vms / chunk_size / tcam.lines
    k = min(best_k(tcam.width, n), tcam.width)
    return n, k, formula(tcam.width, k, n)


def _lost_to_others(others: float) -> float:
    """Return the share that a packet's line loses at a random place among others.

    The number of others is Poisson, with the mean `others`.
    """
    return 1.0 + math.expm1(-others) / others if others > 1e-9 else others / 2


def _plan_servers(cloud: Cloud, machines: Machines, load_gbps: float) -> Servers:
    pairs = cloud.vms * cloud.pairs_a_vm
    memory = (pairs * machines.octets_a_pair + cloud.tenants * machines.octets_a_tenant) / _GB
    needs = {
        "memory": math.ceil(memory / machines.memory_gb),
        "traffic": math.ceil(load_gbps / machines.server_gbps),
    }
    because = max(needs, key=lambda need: needs[need])
    count = max(1, needs[because])
    return Servers(
        count, because, pairs, memory, load_gbps, count * machines.server_cores, cloud.tenants * machines.gateway_cores
    )


def _check_within(least: float, most: float, **values: float) -> None:
    for place, value in values.items():
        if not least <= value <= most:
            raise BadInput(f"{value:g} is not between {least:g} and {most:g}", place=place)
