"""Compare VNFs' processor use with the capacity model's prediction. Pure."""

from __future__ import annotations

from statistics import fmean

from orchestrator.scaling.capacity import CapacityModel
from orchestrator.scaling.lifecycle import MemberState
from orchestrator.store.firewalls.fleetrecords import FleetLook
from orchestrator.wire.firewalls import Load
from orchestrator.wire.fleet import Prediction

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


def _list_loads(look: FleetLook) -> list[Load]:
    serving = (each for each in look.members if each.member.state is MemberState.SERVING)
    return [each.load for each in serving if each.load is not None]


def _needed(load: Load, rules: int, model: CapacityModel) -> float:
    """How busy the model says that a VNF is with what it carries."""
    if not load.packets_pps:
        return 0.0
    return model.busy(load.packets_pps, rules, load.bits_bps / 8 / load.packets_pps)
