"""The life of a firewall VNF as a state machine, and its health. Pure.

    requested ─▶ building ─▶ enrolled ─▶ loaded ─▶ proven ─▶ serving ─▶ draining ─▶ leaving ─▶ gone
        │            │           │          │         │          │          │           ▲        ▲
        │            │           │          │         │          │          │           │        │
        ├────────────┴───────────┴──────────┴─────────┴──(not needed any more)──────────┘        │
        └────────────┴───────────┴──────────┴─────────┴──────────┴──────────┴──▶ failed ─────────┘

    requested   a row says that it is wanted; the cloud may have been asked        wait for: the cloud has it
    building    the cloud has it                                                   its agent enrols
    enrolled    its agent knows the service                                        its program is read back
    loaded      it filters as the domain's lists say, as far as it can tell        packets that are sent through it
    proven      one that may pass came through, one that may not did not           the switch gives it traffic
    serving     it carries its share
    draining    it gets no new traffic                                             it is quiet
    leaving     the cloud is told to remove it                                     the cloud has it no more
    failed      something went wrong: it gets nothing, and the cloud is told to remove it      the same
    gone        only the row is left, for the record

A state never comes twice, so a life ends. The action that brings the next state about is repeated until it is seen to
have happened (the cloud asked, the program published, the buckets given): a service that was killed between any two
steps goes on from what its rows and the world say. Of what cannot be seen nothing is concluded: a cloud that does not
answer has lost nothing.

Its health is sick at once, and well only after a while:

    well ──looks bad──▶ sick ──looks good for `steady_s`──▶ well
                          ▲  └──looks bad meanwhile: the while begins anew
                          └── each time it falls sick counts as a relapse

So a VNF whose health flaps does not get its traffic back and lose it again at every turn, and one that does so too
often is told from one that fell sick once.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType

from orchestrator.errors import BadInput


@dataclass(frozen=True, slots=True)
class Health:
    """Times of a VNF's health: sick since, looking well since, and recent failures.

    Sick since is None while it is well.
    """

    sick_since_s: float | None = None
    looks_well_since_s: float | None = None
    fell_sick_s: tuple[float, ...] = ()

    @property
    def is_well(self) -> bool:
        return self.sick_since_s is None

    def sick_for_s(self, now_s: float) -> float:
        """Return how long it was sick, without the present time of looking well."""
        if self.sick_since_s is None:
            return 0.0
        until_s = now_s if self.looks_well_since_s is None else self.looks_well_since_s
        return max(until_s - self.sick_since_s, 1e-6)


def look_again(health: Health, looks_well: bool, now_s: float, *, steady_s: float, window_s: float) -> Health:
    """How a VNF is after another look at it."""
    lately = tuple(time for time in health.fell_sick_s if now_s - time <= window_s)
    if health.sick_since_s is None:
        return Health(None, None, lately) if looks_well else Health(now_s, None, (*lately, now_s))
    if not looks_well:
        return Health(health.sick_since_s, None, lately)
    since_s = now_s if health.looks_well_since_s is None else health.looks_well_since_s
    if now_s - since_s >= steady_s:
        return Health(None, None, lately)
    return Health(health.sick_since_s, since_s, lately)


class MemberState(enum.Enum):
    """Where a VNF is in its life."""

    REQUESTED = "requested"
    BUILDING = "building"
    ENROLLED = "enrolled"
    LOADED = "loaded"
    PROVEN = "proven"
    SERVING = "serving"
    DRAINING = "draining"
    LEAVING = "leaving"
    FAILED = "failed"
    GONE = "gone"


_S = MemberState
COMING = (_S.REQUESTED, _S.BUILDING, _S.ENROLLED, _S.LOADED, _S.PROVEN)
"""In this order; what serves next has been all of them."""
TRIED = (_S.ENROLLED, _S.LOADED)
"""When packets are chosen for it and it may say what became of them: as soon as it holds its program, whoever has seen
that."""
CARRYING = (_S.SERVING, _S.DRAINING)
ENDING = (_S.LEAVING, _S.FAILED)

NEXT: Mapping[MemberState, frozenset[MemberState]] = MappingProxyType(
    {
        _S.REQUESTED: frozenset({_S.BUILDING, _S.LEAVING, _S.FAILED}),
        _S.BUILDING: frozenset({_S.ENROLLED, _S.LEAVING, _S.FAILED}),
        _S.ENROLLED: frozenset({_S.LOADED, _S.LEAVING, _S.FAILED}),
        _S.LOADED: frozenset({_S.PROVEN, _S.LEAVING, _S.FAILED}),
        _S.PROVEN: frozenset({_S.SERVING, _S.LEAVING, _S.FAILED}),
        _S.SERVING: frozenset({_S.DRAINING, _S.FAILED}),
        _S.DRAINING: frozenset({_S.LEAVING, _S.FAILED}),
        _S.LEAVING: frozenset({_S.GONE}),
        _S.FAILED: frozenset({_S.GONE}),
        _S.GONE: frozenset(),
    }
)


class Sight(enum.Enum):
    """The cloud's answer about a VNF."""

    UNKNOWN = "unknown"
    """It did not answer."""
    ABSENT = "absent"
    COMING = "coming"
    RUNNING = "running"
    FAILED = "failed"
    LEAVING = "leaving"


class Trial(enum.Enum):
    """The outcome of the packets that were to be sent through a VNF."""

    WAITING = "waiting"
    PASSED = "passed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Seen:
    """All observations of a VNF at one moment.

    `holds`: it was read back to hold the domain's program, of the generation at which it was asked for or a later one.
    `spread`: the switch in front was read back with the shares that are to be now. `quiet`: it carries nothing.
    `sick_s`: for how long it has not been well, 0 while it is; `relapses`: how often it fell sick lately. `autonomous`:
    its cloud made it by itself, and takes it away by itself. `words`: the cloud's, of why it failed; `trouble`: the
    agent's, of what is wrong.
    """

    sight: Sight
    enrolled: bool = False
    holds: bool = False
    trial: Trial = Trial.WAITING
    spread: bool = False
    quiet: bool = False
    sick_s: float = 0.0
    relapses: int = 0
    is_last: bool = False
    autonomous: bool = False
    words: str = ""
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Patience:
    """The longest time in each state, in seconds, and the allowed falls.

    Raises BadInput with the field.
    """

    order_s: float = 300.0
    build_s: float = 600.0
    load_s: float = 60.0
    prove_s: float = 30.0
    spread_s: float = 60.0
    silent_s: float = 1.5
    """A VNF that has told its load no later than that is well, if nothing else is wrong."""
    sick_s: float = 10.0
    steady_s: float = 5.0
    """For so long it must look well before it is."""
    drain_s: float = 60.0
    most_relapses: int = 3
    relapse_window_s: float = 120.0

    def __post_init__(self) -> None:
        for each in fields(self):
            if not 0 < getattr(self, each.name) < math.inf:
                raise BadInput(f"{getattr(self, each.name)} is not a number above zero", place=each.name)


@dataclass(frozen=True, slots=True)
class Step:
    """The state that comes next, and why."""

    state: MemberState
    because: str


def step(state: MemberState, seen: Seen, for_s: float, patience: Patience) -> Step | None:
    """Return the next state of a VNF after a time in its state, or None."""
    if state in ENDING:
        return Step(_S.GONE, "the cloud has it no more") if seen.sight is Sight.ABSENT else None
    if seen.autonomous and seen.sight in (Sight.ABSENT, Sight.LEAVING):
        return _step_of_removed(state, seen, for_s, patience)
    if state not in (_S.GONE, _S.REQUESTED) and (lost := _lost(seen)) is not None:
        return Step(_S.FAILED, lost)
    return _AS_IT_IS[state](seen, for_s, patience)


def _step_of_removed(state: MemberState, seen: Seen, for_s: float, patience: Patience) -> Step | None:
    """Return a removed VNF's next state: it drains while its cloud has it."""
    if state is _S.SERVING:
        return Step(_S.DRAINING, "its cloud takes it away")
    if state is _S.DRAINING and seen.sight is Sight.LEAVING:
        return _step_of_draining(seen, for_s, patience)
    return None if state is _S.GONE else Step(_S.LEAVING, "its cloud takes it away")


def _lost(seen: Seen) -> str | None:
    """Return why a VNF is lost by what the cloud says, or None."""
    match seen.sight:
        case Sight.FAILED:
            return f"the cloud could not build it: {seen.words}" if seen.words else "the cloud could not build it"
        case Sight.ABSENT | Sight.LEAVING:
            return "the cloud has it no more, and nobody here removed it"
        case _:
            return None


def _step_of_requested(seen: Seen, for_s: float, patience: Patience) -> Step | None:
    if seen.sight in (Sight.COMING, Sight.RUNNING):
        return Step(_S.BUILDING, "the cloud builds it")
    if seen.sight is Sight.FAILED:
        return Step(_S.FAILED, _lost(seen) or "")
    return _fail_if_late(for_s, patience.order_s, seen.words or "the cloud did not begin to build it")


def _step_of_building(seen: Seen, for_s: float, patience: Patience) -> Step | None:
    if seen.enrolled:
        return Step(_S.ENROLLED, "its agent has enrolled")
    said = f"; of its machine the cloud said last: {seen.words}" if seen.words else ""
    return _fail_if_late(for_s, patience.build_s, f"its agent never enrolled{said}")


def _step_of_enrolled(seen: Seen, for_s: float, patience: Patience) -> Step | None:
    if seen.holds:
        return Step(_S.LOADED, "it was read back to hold the domain's program")
    return _fail_if_late(for_s, patience.load_s, seen.trouble or "it never held the domain's program")


def _step_of_loaded(seen: Seen, for_s: float, patience: Patience) -> Step | None:
    if seen.trial is Trial.PASSED:
        return Step(_S.PROVEN, "packets that were sent through it fared as the policy says")
    if seen.trial is Trial.FAILED:
        return Step(_S.FAILED, f"the probe failed: {seen.trouble}")
    return _fail_if_late(for_s, patience.prove_s, "it never answered the probe")


def _step_of_proven(seen: Seen, for_s: float, patience: Patience) -> Step | None:
    if _is_ill(seen, patience):
        return Step(_S.FAILED, _describe_illness(seen, patience))
    if seen.spread and not seen.sick_s:
        return Step(_S.SERVING, "the switch gives it its share")
    return _fail_if_late(for_s, patience.spread_s, "the switch was never read back to give it traffic")


def _step_of_serving(seen: Seen, _for_s: float, patience: Patience) -> Step | None:
    if seen.is_last:  # first another one, then its end: its filter may still do what it did
        return None
    return Step(_S.FAILED, _describe_illness(seen, patience)) if _is_ill(seen, patience) else None


def _step_of_draining(seen: Seen, for_s: float, patience: Patience) -> Step | None:
    if seen.spread and seen.quiet:
        return Step(_S.LEAVING, "it carries nothing any more")
    if for_s >= patience.drain_s:
        return Step(
            _S.LEAVING, f"it still carries something after {patience.drain_s:g} s, which was as long as allowed"
        )
    return None


_AS_IT_IS: Mapping[MemberState, Callable[[Seen, float, Patience], Step | None]] = MappingProxyType(
    {
        _S.REQUESTED: _step_of_requested,
        _S.BUILDING: _step_of_building,
        _S.ENROLLED: _step_of_enrolled,
        _S.LOADED: _step_of_loaded,
        _S.PROVEN: _step_of_proven,
        _S.SERVING: _step_of_serving,
        _S.DRAINING: _step_of_draining,
        _S.GONE: lambda _seen, _for_s, _patience: None,
    }
)


def _fail_if_late(for_s: float, most_s: float, words: str) -> Step | None:
    return Step(_S.FAILED, f"{words} (waited {most_s:g} s)") if for_s >= most_s else None


def _is_ill(seen: Seen, patience: Patience) -> bool:
    return seen.sick_s >= patience.sick_s or seen.relapses > patience.most_relapses


def _describe_illness(seen: Seen, patience: Patience) -> str:
    if seen.relapses > patience.most_relapses:
        return f"it fell sick {seen.relapses} times within {patience.relapse_window_s:g} s"
    return f"it has not been well for {seen.sick_s:.0f} s: {seen.trouble or 'it is silent'}"
