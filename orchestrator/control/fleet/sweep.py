"""Remove what a cloud has of ours without an owner, and report it.

An orphan comes of an answer that was lost and of a row that was given up meanwhile, of a database that was put back, of
somebody who changed a group of VNFs by hand. The cloud's list is read before the rows are, and a row is written before
the cloud is asked: so what is in the list and has no row is wanted by nobody. It must be seen so for a while all the
same, for removing what carries traffic is not mended by seeing better a moment later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

import structlog

from orchestrator.cloud.base import VnfState
from orchestrator.control.fleet.effects import CloudHand
from orchestrator.control.fleet.sights import Sky
from orchestrator.control.timekeeper import Units
from orchestrator.store.unit import Unit

log = structlog.get_logger()

Key = tuple[str, str]


class Sweep:
    """Remembers since when each orphan was seen."""

    def __init__(self, hand: CloudHand, after_s: float, ticks: Callable[[], float]) -> None:
        self._hand = hand
        self._after_s = after_s
        self._ticks = ticks
        self._since: dict[Key, float] = {}
        self._told: set[Key] = set()

    def swept(self, units: Units, sky: Sky) -> None:
        """Have removed what was an orphan for long enough."""
        if sky.vnfs is None:
            return
        owned = units.read(lambda unit: unit.fleets.names())
        ours = {key: vnf for key, vnf in sky.vnfs.items() if not vnf.autonomous}
        orphans = {key for key, vnf in ours.items() if key not in owned and vnf.state is not VnfState.LEAVING}
        now_s = self._ticks()
        self._since = {key: self._since.get(key, now_s) for key in orphans}
        self._told &= orphans
        due = sorted(key for key, since_s in self._since.items() if now_s - since_s >= self._after_s)
        for fleet, keys in groupby(due, key=lambda key: key[0]):
            self._remove(units, fleet, list(keys))

    def _remove(self, units: Units, fleet: str, keys: Sequence[Key]) -> None:
        new = [name for key in keys if key not in self._told for name in key[1:]]
        if new:
            units.write(lambda unit: _say(unit, fleet, new))
            log.warning("vnf.orphan", fleet=fleet, names=new)
        self._told.update(keys)
        self._hand.delete(fleet, [name for _, name in keys])


def _say(unit: Unit, fleet: str, names: Sequence[str]) -> None:
    unit.events.append("vnf.orphan", fleet, {"names": list(names)})
