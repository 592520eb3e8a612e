"""Changes in a fleet since the last look: steps, health, trials, traffic.

Reads, decides, and writes nothing but by `noted`, in the transaction of whoever keeps the fleet.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.compile.spreadprogram import Member as SpreadMember
from orchestrator.compile.spreadprogram import MemberState as SpreadState
from orchestrator.control.fleet import trials, vnfinputs
from orchestrator.control.fleet.vnfinputs import Sky
from orchestrator.scaling.lifecycle import TRIED, Health, MemberState, Step, Trial, step
from orchestrator.store.firewalls.fleetrecords import FleetLook, Member, MemberLook, Place, TrialSheet
from orchestrator.store.firewalls.spreads import SpreadRecord
from orchestrator.store.unit import Unit

_GETS_TRAFFIC = {MemberState.PROVEN: SpreadState.SERVING, MemberState.SERVING: SpreadState.SERVING,
                 MemberState.DRAINING: SpreadState.DRAINING}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Known:
    """A fleet as one look finds it, and how its traffic is spread."""

    look: FleetLook
    spread: SpreadRecord | None

    @property
    def domain(self) -> str:
        return self.look.record.domain


@dataclass(slots=True)
class News:
    """The changes in a fleet."""

    steps: list[tuple[Member, Step]] = field(default_factory=list)
    health: list[tuple[Member, Health, str]] = field(default_factory=list)
    sheets: list[tuple[Member, TrialSheet]] = field(default_factory=list)
    notes: list[tuple[Member, str, Place]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.steps or self.health or self.sheets or self.notes)


@dataclass(frozen=True, slots=True)
class View:
    """The look's other inputs: the cloud, when agents could first report, refusals."""

    sky: Sky
    listens_since: dt.datetime | None = None
    refused: Mapping[str, str] = field(default_factory=dict)


def known_fleets(unit: Unit) -> list[Known]:
    """Every fleet."""
    return [Known(look, unit.spreads.find(look.record.domain)) for look in unit.fleets.looks()]


def news_of(unit: Unit, known: Known, view: View) -> News:
    """Return the changes in a fleet."""
    news = News()
    for look in known.look.members:
        member = look.member
        if member.name in view.refused:
            news.steps.append((member, Step(MemberState.FAILED, view.refused[member.name])))
        else:
            _find_member_news(unit, known, look, view, news)
    return news


def _find_member_news(unit: Unit, known: Known, look: MemberLook, view: View, news: News) -> None:
    member, settings = look.member, known.look.record.settings
    health, trouble = member.health, ""
    if member.state in vnfinputs.WATCHED:
        health, trouble = vnfinputs.health_of(look, unit.now, view.listens_since, settings.patience)
        if health != member.health:
            news.health.append((member, health, trouble))
    trial = _trial(unit, member, news) if member.state in TRIED else (Trial.WAITING, "")
    around = vnfinputs.Around(_is_spread(known), _is_last(known, member), settings.stateful, settings.alarms)
    now = vnfinputs.seen(look, view.sky, health, trouble or trial[1], trial[0], around, unit.now)
    taken = step(member.state, now, (unit.now - member.since).total_seconds(), settings.patience)
    if taken is not None:
        news.steps.append((member, taken))
    _, vnf = view.sky.of(member)
    if vnf is not None and (vnf.progress, place := vnfinputs.place_of(member, vnf)) != (member.progress, member.place):
        news.notes.append((member, vnf.progress, place))


def _trial(unit: Unit, member: Member, news: News) -> tuple[Trial, str]:
    """Return a member's trial and result.

    One is written for it where there is none, or where the policy has changed.
    """
    policy = unit.domains.policy(member.domain)
    if member.trial is None or trials.is_outdated(member.trial, policy.policy):
        news.sheets.append((member, trials.choose(policy.policy, policy.generation)))
        return Trial.WAITING, ""
    return trials.judge_trial(member.trial, policy.policy)


def _is_spread(known: Known) -> bool:
    """Return whether the switch was read back with the members' shares."""
    if not known.look.record.settings.spread:
        return True
    spread = known.spread
    is_newest = spread is not None and spread.spread.members == carriers(known.look, News())
    return is_newest and spread is not None and spread.enforced >= spread.generation


def _is_last(known: Known, member: Member) -> bool:
    """Return whether a member is the last healthy one, unless an operator wants none."""
    if known.look.record.settings.size == 0:
        return False
    others = (each.member for each in known.look.members if each.member.name != member.name)
    return not any(other.state is MemberState.SERVING and other.health.is_well for other in others)


def carriers(look: FleetLook, news: News) -> tuple[SpreadMember, ...]:
    """Return the members that carry traffic after the changes, by number.

    A member that is not well carries none, unless no member is well: a filter goes on filtering when its agent has
    died, and where all are silent at once it is rather we who do not hear.
    """
    states = {member.name: taken.state for member, taken in news.steps}
    health = {member.name: now for member, now, _ in news.health}
    places = {member.name: place for member, _, place in news.notes}
    found = []
    for member in (each.member for each in look.members):
        gets = _GETS_TRAFFIC.get(states.get(member.name, member.state))
        place = places.get(member.name, member.place)
        if gets is None or place.left is None or place.right is None:
            continue
        carrier = SpreadMember(member.name, member.number, place.left, place.right, gets)
        found.append((carrier, gets is SpreadState.DRAINING or health.get(member.name, member.health).is_well))
    somebody = any(is_well for carrier, is_well in found if carrier.state is SpreadState.SERVING)
    return tuple(carrier for carrier, is_well in found if is_well or not somebody)


def note_changes(unit: Unit, news: News) -> None:
    """Write the events and rows of what changed."""
    for member, progress, place in news.notes:
        unit.fleets.note(member, progress=progress, place=place)
    for member, health, trouble in news.health:
        unit.fleets.set_health(member, health, trouble)
    for member, sheet in news.sheets:
        unit.fleets.set_trial(member.domain, member.name, sheet)
    for member, taken in news.steps:
        unit.fleets.advance(member, taken)
