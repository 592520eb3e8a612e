"""Everything known of a VNF now: from its cloud, its agent, and its switch."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from orchestrator.cloud.base import Pace, Vnf, VnfState
from orchestrator.scaling.lifecycle import CARRYING, Health, MemberState, Patience, Seen, Sight, Trial, look_again
from orchestrator.store.firewalls.fleetrecords import Member, MemberLook, Place
from orchestrator.wire.points import PointState

_SIGHTS = {
    VnfState.COMING: Sight.COMING,
    VnfState.RUNNING: Sight.RUNNING,
    VnfState.FAILED: Sight.FAILED,
    VnfState.LEAVING: Sight.LEAVING,
}
_THERE = (VnfState.COMING, VnfState.RUNNING)
_NOT_WELL = frozenset({PointState.REFUSED, PointState.DISCONNECTED})
_SETTLES_S = 1.0
"""For so long a VNF without traffic must say that it has none: a report may be of the time before."""
_BACKGROUND_PPS = 2
"""The packets a second on an idle link: of neighbours and listeners."""
WATCHED = frozenset({MemberState.PROVEN, *CARRYING})
"""States in which it matters whether a VNF is well."""


@dataclass(frozen=True, slots=True)
class Sky:
    """The cloud's answer: its VNFs by fleet and name, or None without one."""

    vnfs: dict[tuple[str, str], Vnf] | None

    def of(self, member: Member) -> tuple[Sight, Vnf | None]:
        """How far the cloud is with a member."""
        if self.vnfs is None:
            return Sight.UNKNOWN, None
        vnf = self.vnfs.get((member.domain, member.name))
        return (Sight.ABSENT, None) if vnf is None else (_SIGHTS[vnf.state], vnf)

    def autonomous(self, domain: str) -> frozenset[str]:
        """Return VNFs that a cloud made for a domain by itself and keeps."""
        vnfs = (self.vnfs or {}).values()
        return frozenset(
            vnf.name
            for vnf in vnfs
            if vnf.fleet == domain and vnf.autonomous and vnf.instance_id and vnf.state in _THERE
        )


def health_of(
    look: MemberLook, now: dt.datetime, listens_since: dt.datetime | None, patience: Patience
) -> tuple[Health, str]:
    """Return a member's health after this look, and its trouble, if any.

    Nobody is silent for longer than he is listened to: while the service was away no agent could tell anything.
    """
    since = max(look.reported or look.member.since, listens_since or look.member.since)
    silent_s = (now - since).total_seconds()
    trouble = ""
    if silent_s > patience.silent_s:
        trouble = f"it was not heard of for {silent_s:.1f} s"
    elif look.point in _NOT_WELL:
        trouble = look.error or f"it is {look.point.value}"
    steady = {"steady_s": patience.steady_s, "window_s": patience.relapse_window_s}
    return look_again(look.member.health, not trouble, now.timestamp(), **steady), trouble


@dataclass(frozen=True, slots=True)
class Around:
    """Other facts about a member.

    Whether the switch holds the shares that are to be, whether nobody else serves and is well though somebody is to,
    whether connections are tracked, and whether the cloud makes its fleet's VNFs by itself.
    """

    is_spread: bool
    is_last: bool
    stateful: bool
    autonomous: bool


def seen(
    look: MemberLook, sky: Sky, health: Health, trouble: str, trial: Trial, around: Around, now: dt.datetime
) -> Seen:
    """Return the inputs of a member's next step."""
    sight, vnf = sky.of(look.member)
    return Seen(
        sight,
        enrolled=look.enrolled,
        holds=look.point is PointState.ENFORCED and (look.holds or 0) >= look.member.generation,
        trial=trial,
        spread=around.is_spread,
        is_last=around.is_last,
        autonomous=around.autonomous,
        quiet=_is_quiet(look, around.stateful),
        sick_s=health.sick_for_s(now.timestamp()),
        relapses=len(health.fell_sick_s),
        words=vnf.progress if vnf is not None else look.member.progress,
        trouble=trouble or look.error or (look.load.trouble if look.load is not None else None) or "",
    )


def _is_quiet(look: MemberLook, stateful: bool) -> bool:
    """Return whether a draining member carries nothing, by its own later report."""
    drained = look.member.drained
    if drained is None or look.load is None or look.reported is None:
        return False
    settled = (look.reported - drained).total_seconds() >= _SETTLES_S
    idle = look.load.packets_pps <= _BACKGROUND_PPS and not (stateful and look.load.connections)
    return settled and idle


def place_of(member: Member, vnf: Vnf) -> Place:
    """Return a VNF's location in the cloud; unknown parts stay as they were."""
    known = member.place
    return replace(
        known,
        left=vnf.left or known.left,
        right=vnf.right or known.right,
        address=vnf.addresses[0] if vnf.addresses else known.address,
        capped=vnf.capped,
    )


_SLOWER = 1.5

Wait = tuple[str, str, MemberState]
"""A VNF, by fleet and name, and the state whose end the cloud has a say in."""


class Lookout:
    """Decides when to look at a cloud next, by its own pace.

    A namespace is there in a moment, a machine in minutes, and whoever asks an OpenStack many times a second takes its
    time from others. `ticks` is a clock that never goes back, in seconds.

        something new is waited for, or has come about      at once it is still waited for
        `first_s` later, then half as long again each time nothing moved nothing is waited for
        every `most_s`, for what happens behind our back
    """

    def __init__(self, pace: Pace, ticks: Callable[[], float]) -> None:
        self._pace = pace
        self._ticks = ticks
        self._pause_s = pace.first_s
        self._looked_s = self._due_s = -math.inf
        self._seen: Sky | None = None
        self._waited: frozenset[Wait] = frozenset()

    def is_due(self) -> bool:
        """Whether it is time for a look."""
        return self._ticks() >= self._due_s

    def note_look(self, sky: Sky) -> None:
        """Note what a look at the cloud saw."""
        moved = sky != self._seen
        self._pause_s = self._pace.first_s if moved else min(self._pause_s * _SLOWER, self._pace.most_s)
        self._seen, self._looked_s = sky, self._ticks()
        self._due_s = self._looked_s + self._pause_s

    def waits_for(self, waited: frozenset[Wait], *, hurry: bool) -> None:
        """Set what is waited for now.

        `hurry`: something has come about, so that there may be more to see.
        """
        if hurry or waited - self._waited:
            self._pause_s, self._due_s = self._pace.first_s, -math.inf
        elif not waited:
            self._due_s = self._looked_s + self._pace.most_s
        self._waited = waited
