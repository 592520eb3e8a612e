"""Prometheus metrics of counts, enforcement points, memory, fleets and edges; read at each scrape.

Everybody who reaches the service may read them, so they name no tenant, no rule and no host, and enforcers are numbers:
REST tells these to members, and `aclflow domain show` to operators. So the series stay few, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from orchestrator.control.fleet import sizing
from orchestrator.control.fleet.sizing import sample_of
from orchestrator.control.pops.edges import EdgeReport
from orchestrator.control.units import Units
from orchestrator.errors import TryAgain
from orchestrator.policy.model import Policy
from orchestrator.program.program import Program
from orchestrator.scaling.capacity import CapacityModel
from orchestrator.scaling.lifecycle import MemberState
from orchestrator.store.firewalls.fleetrecords import FleetLook
from orchestrator.store.hits.rules import HitSum
from orchestrator.store.points.pointrecords import Heard
from orchestrator.store.records import PolicySnapshot
from orchestrator.store.unit import Unit
from orchestrator.wire.firewalls import FleetSample, Plane

_COUNT_LABELS = ("domain", "tier", "by")
_COUNTED = {
    "packets": "Packets decided",
    "octets": "Bytes of the packets decided",
    "resets": "Counters of switches that began anew without having been read just before",
}
_Sums = dict[str, tuple[tuple[HitSum, ...], int]]
_Series = tuple[str, str, str, str]


class HitMetrics(Collector):
    """Collects counts from the store.

    `units` are where the store is read.

    A tenant's counts go with it when it is deleted; that a sum falls then is not shown, for whoever takes rates
    of a counter would read it as a beginning anew.
    """

    def __init__(self, units: Units) -> None:
        self._units = units
        self._shown: dict[_Series, tuple[int, int]] = {}
        """Of each series: the sum when it was last read, and what is added to it."""

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """Yield every domain's sums and lifted rules; nothing while the store is away."""
        found = self._read_sums()
        for name, says in _COUNTED.items():
            family = CounterMetricFamily(f"aclflow_counted_{name}", says, labels=_COUNT_LABELS)
            for domain, (sums, _) in found.items():
                for each in sums:
                    labels = (domain, each.tier.value, each.decider.value)
                    family.add_metric(labels, self._keep_growing((name, *labels), getattr(each, name)))
            yield family
        lifted = GaugeMetricFamily("aclflow_lifted_rules", "Rules decided ahead of their lists", labels=["domain"])
        for domain, (_, rules) in found.items():
            lifted.add_metric([domain], rules)
        yield lifted

    def _keep_growing(self, series: _Series, value: int) -> int:
        before, added = self._shown.get(series, (value, 0))
        added += max(before - value, 0)
        self._shown[series] = value, added
        return value + added

    def _read_sums(self) -> _Sums:
        def read_in_unit(unit: Unit) -> _Sums:
            return {
                domain: (unit.hits.sums(domain), unit.placements.how_many_lifted(domain))
                for domain, _ in unit.placements.every_domain()
            }

        try:
            return self._units.read(read_in_unit)
        except TryAgain:
            return {}


class PointMetrics(Collector):
    """Collects hosts' state from the store.

    `units` are where the store is read. Hosts that nobody ever spoke for have no time at which they were heard.
    """

    def __init__(self, units: Units) -> None:
        self._units = units

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Every domain's hosts; none while the store does not answer."""
        found = self._read_heard()
        behind = GaugeMetricFamily(
            "aclflow_hosts_behind", "Hosts that do not hold the newest generation", labels=["domain"]
        )
        hosts = Counter[str]()
        for each in found:
            hosts[each.domain] += each.is_behind
        for domain, number in hosts.items():
            behind.add_metric([domain], number)
        yield behind
        heard = GaugeMetricFamily(
            "aclflow_points_heard_timestamp_seconds",
            "When an enforcer that speaks for hosts was last heard, by its number",
            labels=["domain", "enforcer"],
        )
        times = {(each.domain, each.enforcer): each.heard.timestamp() for each in found if each.heard is not None}
        for (domain, enforcer), time in times.items():
            heard.add_metric([domain, str(enforcer)], time)
        yield heard

    def _read_heard(self) -> tuple[Heard, ...]:
        try:
            return self._units.read(lambda unit: unit.enforcers.heard())
        except TryAgain:
            return ()


_TENANT_BYTES = 33_000
_RULE_BYTES = 480
_MEMBER_BYTES = 150
_ROW_BYTES = 300
"""What a tenant, a rule, a member of an address group and a flow entry take in memory (decision 753)."""


def estimate_bytes(policy: Policy | None, rows: int) -> int:
    """Estimate the memory of a domain's policy and of its programs' flow entries.

    Counts alone are looked at: a few numbers of each tenant.
    """
    if policy is None:
        return rows * _ROW_BYTES
    rules, members = len(policy.operator), 0
    for tenant in policy.tenants:
        rules += len(tenant.rule_numbers)
        members += sum([len(group.prefixes) for group in tenant.acl.groups.values()])
    known = len(policy.tenants) * _TENANT_BYTES + rules * _RULE_BYTES + members * _MEMBER_BYTES
    return known + rows * _ROW_BYTES


class MemoryMetrics(Collector):
    """Estimates the memory that each domain takes in this service.

    `policies` are those in memory by domain, `programs` the current ones of every tier.
    """

    def __init__(
        self, policies: Callable[[], Mapping[str, PolicySnapshot]], programs: Callable[[], Iterable[Program]]
    ) -> None:
        self._policies = policies
        self._programs = programs

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield an estimate for each domain of which there is something in memory."""
        gauge = GaugeMetricFamily(
            "aclflow_domain_memory_bytes",
            "Memory that a domain takes here, estimated from its rules, members of groups and flow entries",
            labels=["domain"],
        )
        rows = Counter[str]()
        for program in self._programs():
            rows[program.domain] += len(program.blocks)
        policies = self._policies()
        for domain in sorted({*policies, *rows}):
            snapshot = policies.get(domain)
            gauge.add_metric([domain], estimate_bytes(None if snapshot is None else snapshot.policy, rows[domain]))
        yield gauge


_EDGE_COUNTS = {
    "chunks": "Chunks that are somebody's",
    "lines": "Lines that stand",
    "exceptions": "Chunks with an entry of their own",
    "stale": "Chunks that lines hold and that are nobody's any more",
    "misdirected": "Chunks that reach a wrong firewall server",
    "draw": "How often lines were built anew",
}


class EdgeMetrics(Collector):
    """The edges of a service as they were compiled last, whenever somebody looks."""

    def __init__(self, reports: Callable[[], Mapping[str, EdgeReport]]) -> None:
        self._reports = reports

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield gauges by domain and IP version, and heavy hitters' entries."""
        reports = self._reports()
        for name, says in _EDGE_COUNTS.items():
            gauge = GaugeMetricFamily(f"aclflow_edge_{name}", says, labels=["domain", "family"])
            for domain, report in reports.items():
                for family, lines in report.lines.items():
                    gauge.add_metric([domain, f"ipv{family.value}"], getattr(lines, name))
            yield gauge
        heavy = GaugeMetricFamily("aclflow_edge_heavy_entries", "Entries of heavy hitters", labels=["domain"])
        for domain, report in reports.items():
            heavy.add_metric([domain], len(report.heavy.rows))
        yield heavy


class FleetGauges(Collector):
    """`units` are where the store is read."""

    def __init__(self, units: Units) -> None:
        self._units = units

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Every fleet's gauges; none while the store does not answer."""
        vnfs = GaugeMetricFamily("aclflow_fleet_vnfs", "Firewall VNFs of a fleet", labels=["domain", "state"])
        wanted = GaugeMetricFamily("aclflow_fleet_wanted", "VNFs there should be, as decided last", labels=["domain"])
        sick = GaugeMetricFamily("aclflow_fleet_sick", "VNFs that serve and are not well", labels=["domain"])
        packets = GaugeMetricFamily("aclflow_fleet_packets_per_second", "Packets carried", labels=["domain"])
        bits = GaugeMetricFamily("aclflow_fleet_bits_per_second", "Bits carried", labels=["domain"])
        busy = GaugeMetricFamily("aclflow_fleet_busy", "Share of a VNF's processors in use, mean", labels=["domain"])
        predicted = GaugeMetricFamily(
            "aclflow_fleet_busy_predicted", "The same by the capacity model, from what is carried", labels=["domain"]
        )
        error = GaugeMetricFamily(
            "aclflow_capacity_error", "Relative error of the capacity model, 90th percentile", labels=["plane"]
        )
        looks, models = self._read_fleets()
        for plane, model in models.items():
            if model.error is not None:
                error.add_metric([plane.value], model.error)
        for look, sample in looks:
            domain = look.record.domain
            states = Counter(each.member.state for each in look.members)
            for state in MemberState:
                if state is not MemberState.GONE:
                    vnfs.add_metric([domain, state.value], states[state])
            if look.record.size is not None:
                wanted.add_metric([domain], look.record.size)
            serving = [each.member for each in look.members if each.member.state is MemberState.SERVING]
            sick.add_metric([domain], sum(not member.health.is_well for member in serving))
            packets.add_metric([domain], sample.packets_pps)
            bits.add_metric([domain], sample.bits_bps)
            in_use = sizing.busy(look)
            if in_use is not None:
                busy.add_metric([domain], in_use)
            by_model = sizing.predict_load(look, sample.rules, models.get(look.record.settings.plane))
            if by_model is not None:
                predicted.add_metric([domain], by_model.predicted)
        yield from (vnfs, wanted, sick, packets, bits, busy, predicted, error)

    def _read_fleets(self) -> tuple[list[tuple[FleetLook, FleetSample]], Mapping[Plane, CapacityModel]]:
        def read_in_unit(unit: Unit) -> tuple[list[tuple[FleetLook, FleetSample]], Mapping[Plane, CapacityModel]]:
            looks = unit.fleets.looks()
            rules = unit.fleets.rules([look.record.domain for look in looks])
            samples = [(look, sample_of(look, rules[look.record.domain], unit.now)) for look in looks]
            return samples, unit.capacities.current()

        try:
            return self._units.read(read_in_unit)
        except TryAgain:
            return [], {}
