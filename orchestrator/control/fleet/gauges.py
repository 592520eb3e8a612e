"""Prometheus metrics of fleets: VNFs by state, wanted size, load, and predicted load.

They are read at each scrape.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from orchestrator.compile.filters.rows import Plane
from orchestrator.control.fleet import prediction
from orchestrator.control.fleet.deciding import sample_of
from orchestrator.control.timekeeper import Units
from orchestrator.errors import TryAgain
from orchestrator.scaling.capacity import CapacityModel
from orchestrator.scaling.lifecycle import MemberState
from orchestrator.store.firewalls.records import FleetLook
from orchestrator.store.unit import Unit
from orchestrator.wire.fleet import FleetSample


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
        looks, models = self._known()
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
            in_use = prediction.busy(look)
            if in_use is not None:
                busy.add_metric([domain], in_use)
            by_model = prediction.predict_load(look, sample.rules, models.get(look.record.settings.plane))
            if by_model is not None:
                predicted.add_metric([domain], by_model.predicted)
        yield from (vnfs, wanted, sick, packets, bits, busy, predicted, error)

    def _known(self) -> tuple[list[tuple[FleetLook, FleetSample]], Mapping[Plane, CapacityModel]]:
        def work(unit: Unit) -> tuple[list[tuple[FleetLook, FleetSample]], Mapping[Plane, CapacityModel]]:
            looks = unit.fleets.looks()
            rules = unit.fleets.rules([look.record.domain for look in looks])
            samples = [(look, sample_of(look, rules[look.record.domain], unit.now)) for look in looks]
            return samples, unit.capacities.current()

        try:
            return self._units.read(work)
        except TryAgain:
            return [], {}
