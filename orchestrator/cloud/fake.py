"""A cloud in memory with the real one's semantics.

It takes time, loses answers, has quotas, and never does half.

Time is counted in calls of `list`: a VNF that was asked for is COMING in the next `slow` of them, then RUNNING; one
that was told to go is LEAVING as often, then absent. `booted` and `ended` are called as that happens, so that a test
can let something live there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from orchestrator.cloud.base import Pace, Vnf, VnfOrder, VnfState
from orchestrator.compile.spreadprogram import Side
from orchestrator.errors import AclflowError, TooLarge

_MACS = 0x0AAC1F040000


def _nobody(*_: object) -> None:
    """Do nothing: nobody lives there."""


@dataclass(slots=True)
class _Machine:
    vnf: Vnf
    order: VnfOrder | None
    left: int


@dataclass
class FakeCloud:
    """See the module. `quota`: as many VNFs at most, those that are leaving too.

    `before` and `after` hold what the next calls of ``create``, ``delete`` and ``list`` raise, in order: before
    anything is done, or after it was. `unbuildable` are names of VNFs that the cloud fails to build.
    """

    slow: int = 1
    quota: int = 100
    booted: Callable[[VnfOrder], None] = _nobody
    ended: Callable[[str, str], None] = _nobody
    before: dict[str, list[AclflowError]] = field(default_factory=dict)
    after: dict[str, list[AclflowError]] = field(default_factory=dict)
    unbuildable: set[str] = field(default_factory=set)
    created: list[str] = field(default_factory=list)
    """Every VNF that was ever built, by name: each at most once, if all is well."""
    pace: Pace = field(default_factory=Pace)

    kind = "fake"

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self.machines: dict[tuple[str, str], _Machine] = {}

    def create(self, orders: Sequence[VnfOrder]) -> None:
        """See `Cloud`."""
        _raise_next(self.before, "create")
        with self._lock:
            new = [each for each in orders if (each.fleet, each.name) not in self.machines]
            if len(self.machines) + len(new) > self.quota:
                raise TooLarge(
                    f"over the quota of {self.quota} VNFs, {len(self.machines)} are there: ask for a larger one"
                )
            for order in new:
                vnf = Vnf(order.fleet, order.name, VnfState.COMING, "is built", f"id-{order.name}")
                self.machines[order.fleet, order.name] = _Machine(_plug_in(vnf, order.number), order, self.slow)
                self.created.append(order.name)
        _raise_next(self.after, "create")

    def list(self, fleet: str | None = None) -> tuple[Vnf, ...]:
        """See `Cloud`."""
        _raise_next(self.before, "list")
        with self._lock:
            booted, ended = self._passes()
            found = sorted((each.vnf for each in self.machines.values()), key=lambda vnf: (vnf.fleet, vnf.name))
        for order in booted:
            self.booted(order)
        for name in ended:
            self.ended(*name)
        return tuple(vnf for vnf in found if fleet in (None, vnf.fleet))

    def delete(self, fleet: str, names: Sequence[str]) -> None:
        """See `Cloud`."""
        _raise_next(self.before, "delete")
        with self._lock:
            for name in names:
                machine = self.machines.get((fleet, name))
                if machine is not None and machine.vnf.state is not VnfState.LEAVING:
                    machine.vnf = replace(machine.vnf, state=VnfState.LEAVING, progress="is removed")
                    machine.left = self.slow
        _raise_next(self.after, "delete")

    def close(self) -> None:
        """See `Cloud`."""

    def put(self, vnf: Vnf) -> None:
        """Add or change a VNF behind the caller's back."""
        with self._lock:
            self.machines[vnf.fleet, vnf.name] = _Machine(vnf, None, 0)

    def lose(self, fleet: str, name: str) -> None:
        """Have a VNF vanish that nobody asked to remove."""
        with self._lock:
            self.machines.pop((fleet, name))
        self.ended(fleet, name)

    def _passes(self) -> tuple[Sequence[VnfOrder], Sequence[tuple[str, str]]]:
        """A moment goes by; who boots in it, and who ends."""
        booted, ended = [], []
        for key, machine in list(self.machines.items()):
            machine.left -= 1
            if machine.left >= 0:
                continue
            if machine.vnf.state is VnfState.LEAVING:
                del self.machines[key]
                ended.append(key)
            elif machine.vnf.state is VnfState.COMING and machine.vnf.name in self.unbuildable:
                machine.vnf = replace(machine.vnf, state=VnfState.FAILED, progress="no valid host was found")
            elif machine.vnf.state is VnfState.COMING:
                machine.vnf = replace(machine.vnf, state=VnfState.RUNNING, progress="runs")
                if machine.order is not None:
                    booted.append(machine.order)
        return booted, ended


def _plug_in(vnf: Vnf, number: int) -> Vnf:
    macs = _MACS + 2 * number
    return replace(vnf, left=Side(f"fl-{vnf.name}", macs), right=Side(f"fr-{vnf.name}", macs + 1))


def _raise_next(prepared: dict[str, list[AclflowError]], call: str) -> None:
    if prepared.get(call):
        raise prepared[call].pop(0)
