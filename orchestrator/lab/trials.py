"""The trials of a demo and their results, by real network stacks or crafted frames."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.client.records import Json
from orchestrator.lab.aims import OUTSIDE, TENANT, Aim
from orchestrator.lab.counters import Counts, Line
from orchestrator.lab.expect import holder
from orchestrator.lab.pop import Lab
from orchestrator.lab.sockets import Conversation, converse
from orchestrator.lab.wire import Wire, shot
from orchestrator.policy.addresses import format_address
from orchestrator.policy.model import Direction, Packet, Policy
from orchestrator.policy.oracle import Decision, decide


@dataclass(frozen=True, slots=True)
class Trial:
    """One attempt, between two nodes or two addresses.

    `line` decided it: the line that refused, or the last one that permitted. `met_host` is false where a firewall
    server behind an edge switch refused it before any host could, and counted it for itself.
    """

    sender: str
    receiver: str
    packet: Packet
    expected: bool
    seen: bool
    line: Line
    met_host: bool = True

    @property
    def agrees(self) -> bool:
        return self.expected is self.seen


def talk(lab: Lab, policy: Policy, conversations: Sequence[Conversation]) -> tuple[Trial, ...]:
    """Hold real conversations.

    An answer is expected where the policy permits the first packet and its answer.
    """
    guarded = {client.name for client in lab.spec.clients} if lab.spec.servers else set()
    outcomes = converse(lab, conversations)
    trials = []
    for conversation, outcome in zip(conversations, outcomes, strict=True):
        there, back = decide(policy, outcome.request), decide(policy, outcome.reply)
        decision = back if there.permitted and not back.permitted else there
        at_server = conversation.client in guarded and not there.permitted
        trials.append(
            Trial(
                conversation.client,
                conversation.server,
                outcome.request,
                expected=there.permitted and back.permitted,
                seen=outcome.answered,
                line=_find_decider(decision),
                met_host=not at_server,
            )
        )
    return tuple(trials)


def _find_decider(decision: Decision) -> Line:
    return Line.of(decision.steps[-1])


def send(lab: Lab, aims: Sequence[Aim]) -> tuple[Trial, ...]:
    """Crafted packets: expected to arrive where the list permits them."""
    ways = [_way(lab, aim) for aim in aims]
    with Wire(lab) as wire:
        landed = wire.fire([shot(lab, sender, aim.packet) for aim, (sender, _) in zip(aims, ways, strict=True)])
    trials = []
    for aim, (_, receiver), landing in zip(aims, ways, landed, strict=True):
        source, destination = (
            format_address(aim.packet.family, address) for address in (aim.packet.source, aim.packet.destination)
        )
        line = Line(TENANT, aim.direction, aim.rule)
        trials.append(Trial(source, destination, aim.packet, aim.permit, landing.nodes == (receiver,), line))
    return tuple(trials)


def _way(lab: Lab, aim: Aim) -> tuple[str, str]:
    """Return from where to where a packet goes."""
    inside = holder(lab.spec, aim.packet.family, aim.inside)
    assert inside is not None
    return (OUTSIDE, inside.name) if aim.direction is Direction.INGRESS else (inside.name, OUTSIDE)


def growth(trials: Sequence[Trial]) -> Mapping[Line, int]:
    """Return each line's least growth: one for every trial decided on a host."""
    return Counter(trial.line for trial in trials if trial.met_host)


@dataclass(frozen=True, slots=True)
class Ways:
    """The heavy hitters, the trials with them, the strays that passed, and the counts."""

    chosen: tuple[str, ...]
    again: tuple[Trial, ...]
    strayed: int
    traffic: Json

    @property
    def good(self) -> bool:
        """Whether all went as the policy says, and no stray got anywhere."""
        return not self.strayed and all(trial.agrees for trial in self.again)


@dataclass(frozen=True, slots=True)
class Report:
    """How a demo went, under which policy, and what more there is to tell."""

    policy: Policy
    trials: tuple[Trial, ...]
    before: Counts
    after: Counts
    ways: Ways | None = None

    @property
    def wrong(self) -> tuple[Trial, ...]:
        """The trials in which the wire and the policy disagree."""
        return tuple(trial for trial in self.trials if not trial.agrees)

    @property
    def good(self) -> bool:
        """Whether the wire did what the policy says, and the counters say so too."""
        return not self.wrong and not self.uncounted and (self.ways is None or self.ways.good)

    @property
    def uncounted(self) -> tuple[Line, ...]:
        """The lines that decided something and did not count it."""
        due = growth(self.trials)
        return tuple(line for line, more in due.items() if self.after[line] < self.before[line] + more)
