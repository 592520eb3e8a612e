"""The loop of a routed uplink: let the kernel route to what the switch delivers.

It reads the switch back, and no other route stays.

monitors ──poke──▶ step:  guard ▶ rows of the switch ▶ ranges ▶ kernel ▶ segments
                            │       │                    │        │        on which it answers for endpoints
                            │       │                    │        port, settings, neighbours, routes
                            │       │                    └ outside: no route, and said so
                            │       └ unreadable: routes stay for a while, then go
                            └ cannot be written: no route stays
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import structlog

from orchestrator.enforce.chores import Chore
from orchestrator.enforce.guardtable import GuardTable
from orchestrator.enforce.stopsignal import Stopping
from orchestrator.enforce.uplink.monitors import KernelMonitor, RowMonitor, SwitchRows
from orchestrator.enforce.uplink.routeduplink import RoutedUplink
from orchestrator.enforce.uplink.segment import Announcements, KernelSegments, SegmentChange
from orchestrator.enforce.uplink.uplinkkernel import Arrivals, KernelChange, Rank, UplinkKernel
from orchestrator.errors import AclflowError
from orchestrator.policy.addresses import Prefix

log = structlog.get_logger()

LOOK_EVERY_S = 5.0
"""How often everything is read back although nothing was heard."""
_SETTLE_S = 0.003
_LISTEN_EVERY_S = 0.1
NOTHING: Mapping[Prefix, Rank] = {}


class Rows(Protocol):
    """Where the delivered prefixes are read."""

    def read(self) -> Mapping[Prefix, int]:
        """Read them back, each with its port.

        Raises an error of ours while that cannot be done.
        """
        ...

    def count_received(self) -> Mapping[int, int]:
        """Count the frames that came in by each port.

        Raises an error of ours while that cannot be done.
        """
        ...


class Kernel(Protocol):
    """The kernel that holds the routes."""

    def follow(self, ranked: Mapping[Prefix, Rank]) -> KernelChange:
        """Hold routes to exactly these prefixes, of these ranks; return what was not so."""
        ...


class Segments(Protocol):
    """The networks on which the kernel answers for endpoints."""

    def follow(self, prefixes: Collection[Prefix]) -> SegmentChange:
        """Answer for exactly these; return what was not so."""
        ...

    def tell(self, addresses: Iterable[Prefix]) -> None:
        """Tell everybody there where these are."""
        ...


@dataclass(frozen=True, slots=True)
class Step:
    """The result of one look. `trouble` says in words what keeps prefixes from being announced."""

    announced: frozenset[Prefix]
    change: KernelChange
    on_segments: SegmentChange
    trouble: tuple[str, ...] = ()


@dataclass(slots=True)
class UplinkKeeper:
    """Keeps one uplink. Steps are taken one at a time.

    `silent_s` is how long routes outlive a switch that does not answer: packets to them are lost meanwhile, so that a
    restart of the daemon moves no route of the whole fabric.
    """

    uplink: RoutedUplink
    rows: Rows
    kernel: Kernel
    segments: Segments
    guard: GuardTable
    silent_s: float = 10.0
    clock: Callable[[], float] = time.monotonic
    _announcements: Announcements = field(default_factory=Announcements, init=False)
    _arrivals: Arrivals = field(default_factory=Arrivals, init=False)
    _read: Mapping[Prefix, int] = field(default_factory=dict, init=False)
    _read_at: float | None = field(default=None, init=False)

    def step(self) -> Step:
        """Look at everything and set right what differs.

        Raises what writing the guard raises, after every route was taken away; Unreachable while there is no port.
        """
        try:
            guarded = self.guard.look()
        except AclflowError:
            self._withdraw()
            raise
        delivered, trouble = self._read_delivered()
        prefixes = frozenset(delivered)
        outside = sorted(prefix for prefix in prefixes if not self.uplink.holds(prefix))
        if outside:
            said = ", ".join(map(str, outside[:5])) + (" and others" if len(outside) > 5 else "")
            trouble += (f"{said}: outside of the ranges that endpoints may have, so not announced (--range)",)
        announced = prefixes.difference(outside)
        ranks = self._rank_ports(frozenset(delivered.values()))
        ranked = {prefix: ranks[delivered[prefix]] for prefix in announced}
        try:
            change = self.kernel.follow(ranked)
        except AclflowError:
            self._follow_on_segments(NOTHING)
            raise
        if guarded:
            change = KernelChange(change.added, change.removed, ("the guard's table", *change.repaired))
        answered = self._follow_on_segments(ranked)
        return Step(announced, change, answered, trouble + answered.trouble)

    def tell_of_arrivals(self) -> None:
        """Tell segments of endpoints that have come. To be asked often."""
        self.segments.tell(self._announcements.take(self.clock()))

    def _withdraw(self) -> None:
        """Route to no endpoint, and answer for none."""
        try:
            self.kernel.follow(NOTHING)
        finally:
            self._follow_on_segments(NOTHING)

    def _follow_on_segments(self, ranked: Mapping[Prefix, Rank]) -> SegmentChange:
        """Answer for endpoints that have sent a frame: others may still run on another host."""
        change = self.segments.follow([prefix for prefix, rank in ranked.items() if rank is not Rank.UNHEARD])
        self._announcements.note(change, self.clock())
        return change

    def hears_an_arrival(self) -> bool:
        """Tell whether an endpoint sent its first frame. To be asked often."""
        return self._arrivals.is_time(self.clock()) and self._arrivals.hears_one(self._count_received())

    def _rank_ports(self, ports: frozenset[int]) -> Mapping[int, Rank]:
        received = self._count_received() if self._arrivals.asks(ports) else {}
        return self._arrivals.rank(ports, received, self.clock())

    def _count_received(self) -> Mapping[int, int]:
        try:
            return self.rows.count_received()
        except AclflowError:  # the rows say what is wrong
            return {}

    def _read_delivered(self) -> tuple[Mapping[Prefix, int], tuple[str, ...]]:
        """Return the delivered prefixes, with their ports, and faults in reading them."""
        try:
            self._read, self._read_at = self.rows.read(), self.clock()
        except AclflowError as error:  # whatever the reason: what was not read back is not known
            if self._read_at is None:
                return {}, (f"{error}; nothing was read since this process began, so nothing is announced",)
            silent_s = self.clock() - self._read_at
            if silent_s >= self.silent_s:
                return {}, (f"{error}; silent for {silent_s:.0f} s, so nothing is announced",)
            return self._read, (f"{error}; routes are kept for {self.silent_s:.0f} s",)
        return self._read, ()


@dataclass(slots=True)
class _Journal:
    """Logs steps: what changed, and troubles once each."""

    keeper: UplinkKeeper
    _said: tuple[str, ...] = field(default=(), init=False)

    def step(self) -> None:
        """Bring routes up to date once, and log what changed or failed."""
        try:
            step = self.keeper.step()
        except AclflowError as error:
            self._log_trouble((str(error),))
            return
        self._log_trouble(step.trouble)
        if step.change or step.on_segments:
            log.info(
                "uplink.changed",
                announced=len(step.announced),
                added=sorted(map(str, step.change.added)),
                removed=sorted(map(str, step.change.removed)),
                answered=sorted(map(str, step.on_segments.answered)),
                silenced=sorted(map(str, step.on_segments.silenced)),
                repaired=[*step.change.repaired, *step.on_segments.repaired],
            )

    def _log_trouble(self, trouble: tuple[str, ...]) -> None:
        if trouble != self._said:
            for text in trouble:
                log.warning("uplink.trouble", trouble=text)
            if not trouble:
                log.info("uplink.well")
        self._said = trouble


def keep_uplink(uplink: RoutedUplink, rows: SwitchRows, stopping: Stopping, *, silent_s: float = 10.0) -> None:
    """Keep an uplink until asked to stop; routes stay then, as the switch's flows do.

    Raises Missing where a program or a right lacks.
    """
    kernel, segments = UplinkKernel(uplink.port), KernelSegments(uplink.segments)
    if not uplink.segments:
        segments.close()  # whom an uplink that had some answered for
    keeper = UplinkKeeper(uplink, rows, kernel, segments, uplink.guard(), silent_s)
    chore = Chore("uplink", _Journal(keeper).step, LOOK_EVERY_S, settle_s=_SETTLE_S)
    listener = Chore("arrivals", partial(_attend_arrivals, keeper, chore), _LISTEN_EVERY_S)
    monitors = (KernelMonitor(uplink.port, chore.poke), RowMonitor(rows, chore.poke))
    for monitor in monitors:
        monitor.start()
    chore.start()
    listener.start()
    try:
        stopping.wait()
    finally:
        listener.stop()
        chore.stop()
        for each in monitors:
            each.stop()


def _attend_arrivals(keeper: UplinkKeeper, chore: Chore) -> None:
    """Listen for endpoints that come, and tell segments of those that have."""
    if keeper.hears_an_arrival():
        chore.poke()
    keeper.tell_of_arrivals()


def remove_uplink(kernel: UplinkKernel, guard: GuardTable) -> None:
    """Withdraw everything: answers, routes and neighbours first, the guard last."""
    KernelSegments().close()
    kernel.close()
    guard.close()
