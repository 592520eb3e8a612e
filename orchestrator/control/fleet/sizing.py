"""Decide each fleet's size from its load, its capacity, and recent changes.

`grounds` reads the store, `decide_size` is pure: the same ground gives the same decision. A record of the future is
from before a clock was set back, nobody knows when: it is passed over, so that it holds nothing up until then.

`predict_load` compares VNFs' processor use with the capacity model's prediction. It is pure, too.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from orchestrator.scaling.capacity import CapacityModel
from orchestrator.scaling.decide import Candidate, Decision, Fleet, History, Load, Sample, decide, storm, victims
from orchestrator.scaling.lifecycle import CARRYING, COMING, ENDING, MemberState
from orchestrator.store.firewalls.fleetrecords import FleetLook, FleetTimes, MemberLook
from orchestrator.store.unit import Unit
from orchestrator.wire.firewalls import FleetSample, Plane, Prediction
from orchestrator.wire.firewalls import Load as MemberLoad

_USUAL_PACKET_BYTES = 512.0
"""How long packets are taken to be while there are none."""
KEEP_SAMPLES_S = 3600.0
"""For so long it is kept what a fleet carried, to be looked at and replayed."""
HELD = "storm breaker"
"""How the reason begins where the breaker is open."""
_FORGOTTEN_S = 5.0
"""A load that was told longer ago counts as none."""
BY_THE_CLOUD = "the cloud's alarms decide how many there are"
UNMEASURED = "nobody has measured what one VNF with {} carries: `aclflow bench fw-vnf`, then `aclflow fleet capacity`"


@dataclass(frozen=True, slots=True)
class Ground:
    """The inputs of one fleet's decision; the last of `samples` is of now."""

    look: FleetLook
    samples: tuple[FleetSample, ...]
    times: FleetTimes
    model: CapacityModel | None
    now: dt.datetime

    @property
    def fleet(self) -> Fleet:
        states = [each.member.state for each in self.look.members]
        leaving = sum(state in ENDING or state is MemberState.DRAINING for state in states)
        return Fleet(sum(map(self._serves, self.look.members)), sum(state in COMING for state in states), leaving)

    def _serves(self, look: MemberLook) -> bool:
        """Return whether a VNF counts.

        One that has not been well for long is to be replaced.
        """
        patience = self.look.record.settings.patience
        sick_s = look.member.health.sick_for_s(self.now.timestamp())
        return look.member.state is MemberState.SERVING and sick_s < patience.sick_s


def is_due(look: FleetLook, now: dt.datetime) -> bool:
    """Whether it is time to decide on a fleet."""
    record = look.record
    return record.looked is None or not 0 <= (now - record.looked).total_seconds() < record.settings.decide_every_s


def grounds(unit: Unit, looks: Sequence[FleetLook]) -> tuple[Ground, ...]:
    """Read the inputs of fleets' decisions at once."""
    rules = unit.fleets.rules([look.record.domain for look in looks])
    models: Mapping[Plane, CapacityModel] = unit.capacities.current()
    found = []
    for look in looks:
        record, limits = look.record, look.record.settings.limits
        since = unit.now - dt.timedelta(seconds=limits.peak_s)
        sample = sample_of(look, rules[record.domain], unit.now)
        times = unit.fleets.times(record.domain, max(limits.storm_window_s, limits.cooldown_down_s))
        earlier = (each for each in unit.fleets.samples(record.domain, since) if each.at <= unit.now)
        samples = (*earlier, sample)
        found.append(Ground(look, samples, times, models.get(record.settings.plane), unit.now))
    return tuple(found)


def sample_of(look: FleetLook, rules: int, now: dt.datetime) -> FleetSample:
    """Return a fleet's present load, as its VNFs report it."""
    heard = [
        each.load
        for each in look.members
        if each.member.state in CARRYING and each.load is not None and each.reported is not None
        if (now - each.reported).total_seconds() <= _FORGOTTEN_S
    ]
    return FleetSample(
        now,
        sum(load.packets_pps for load in heard),
        sum(load.bits_bps for load in heard),
        sum(load.connections for load in heard),
        sum(each.member.state is MemberState.SERVING for each in look.members),
        max((load.packets_pps for load in heard), default=0),
        rules,
    )


def decide_size(ground: Ground) -> Decision:
    """How many there should be, and why."""
    settings, fleet, newest = ground.look.record.settings, ground.fleet, ground.samples[-1]
    if settings.alarms:
        return Decision(fleet.size, BY_THE_CLOUD)
    history = _make_history(ground.times, ground.now)
    if settings.size is not None:
        held = storm(history, settings.limits, ground.now.timestamp()) if settings.size > fleet.size else None
        return Decision(fleet.size, held) if held else Decision(settings.size, f"{settings.size} by the operator")
    if ground.model is None:
        fewest = max(fleet.size, settings.limits.fewest)
        return Decision(min(fewest, settings.limits.most), UNMEASURED.format(settings.plane.value))
    packet_bytes = newest.bits_bps / 8 / newest.packets_pps if newest.packets_pps else _USUAL_PACKET_BYTES
    samples = tuple(Sample(each.at.timestamp(), each.packets_pps) for each in ground.samples)
    load = Load(samples, packet_bytes, newest.rules)
    return decide(load, fleet, ground.model, settings.limits, history, ground.now.timestamp())


def leaving(look: FleetLook, count: int) -> tuple[str, ...]:
    """Choose the VNFs that leave when a fleet shrinks."""
    return victims([_make_candidate(each) for each in look.members], count)


def _make_candidate(look: MemberLook) -> Candidate:
    member, load = look.member, look.load
    connections, packets = (0, 0) if load is None else (load.connections, load.packets_pps)
    return Candidate(member.name, member.number, member.state, member.health.is_well, connections, packets)


def _make_history(times: FleetTimes, now: dt.datetime) -> History:
    columns = (times.asked, times.drained, times.failed)
    return History(*(tuple(time.timestamp() for time in column if time <= now) for column in columns))


_LEAST_BUSY = 0.05
"""Below that processors are busy with other things than packets."""


def busy(look: FleetLook) -> float | None:
    """Return the mean processor use of serving VNFs; None if none reported."""
    loads = _list_loads(look)
    return fmean(load.cpu_permille / 1000 for load in loads) if loads else None


def predict_load(look: FleetLook, rules: int, model: CapacityModel | None) -> Prediction | None:
    """Return a model's prediction for a fleet's load.

    None without a model, or a VNF that serves.
    """
    in_use = busy(look)
    if in_use is None or model is None:
        return None
    needed = fmean(_needed(load, rules, model) for load in _list_loads(look))
    return Prediction(in_use, needed, needed / in_use - 1.0 if in_use >= _LEAST_BUSY else None)


def _list_loads(look: FleetLook) -> list[MemberLoad]:
    serving = (each for each in look.members if each.member.state is MemberState.SERVING)
    return [each.load for each in serving if each.load is not None]


def _needed(load: MemberLoad, rules: int, model: CapacityModel) -> float:
    """How busy the model says that a VNF is with what it carries."""
    if not load.packets_pps:
        return 0.0
    return model.busy(load.packets_pps, rules, load.bits_bps / 8 / load.packets_pps)
