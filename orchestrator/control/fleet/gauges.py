"""What Prometheus is told of fleets, read when it asks: VNFs by state, how many are wanted, what they carry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from orchestrator.control.fleet.deciding import sample_of
from orchestrator.control.timekeeper import Units
from orchestrator.errors import TryAgain
from orchestrator.scaling.lifecycle import MemberState
from orchestrator.store.fleetrecords import FleetLook, FleetSample
from orchestrator.store.unit import Unit


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
        for look, sample in self._looks():
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
        yield from (vnfs, wanted, sick, packets, bits)

    def _looks(self) -> list[tuple[FleetLook, FleetSample]]:
        def work(unit: Unit) -> list[tuple[FleetLook, FleetSample]]:
            return [(look, sample_of(look, 0, unit.now)) for look in unit.fleets.looks()]

        try:
            return self._units.read(work)
        except TryAgain:
            return []
