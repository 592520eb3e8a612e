"""The trials of a demo and their results, beside the counters of the lists' lines.

A trial is made by real network stacks or by crafted frames. The counters are those of every line of the tenants' lists
(rules, return traffic and defaults alike), read over REST.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from orchestrator.client.records import Json
from orchestrator.client.transport import Transport
from orchestrator.lab.aims import OUTSIDE, TENANT, Aim
from orchestrator.lab.expect import holder
from orchestrator.lab.pop import Lab
from orchestrator.lab.sockets import Conversation, converse
from orchestrator.lab.wire import Wire, shot
from orchestrator.policy.addresses import format_address
from orchestrator.policy.model import RETURN_RULE_ID, Direction, Packet, Policy, RuleId, TenantId
from orchestrator.policy.oracle import Decision, Step, decide

_PAGE = 1000


@dataclass(frozen=True, slots=True)
class Line:
    """A rule, or with `rule` None the default of a direction."""

    tenant: TenantId
    direction: Direction
    rule: RuleId | None

    @classmethod
    def of(cls, step: Step) -> Line:
        """Return the line of a step of the oracle.

        Operator rules belong to nobody; the lab has none.
        """
        assert step.tenant is not None
        assert step.direction is not None
        return cls(step.tenant, step.direction, step.rule)


Counts: TypeAlias = Mapping[Line, int]


def lines_of(policy: Policy) -> tuple[Line, ...]:
    """Every line that can decide something in a policy."""
    ends: tuple[RuleId | None, ...] = (None, RETURN_RULE_ID)
    return tuple(
        line
        for tenant in policy.tenants
        for line in (
            *(Line(tenant.id, rule.direction, rule.id) for rule in tenant.acl.rules),
            *(Line(tenant.id, direction, end) for direction in Direction for end in ends),
        )
    )


def read_counts(service: Transport, lines: Iterable[Line]) -> Counts:
    """The packets that each of these lines has decided so far, on all hosts."""
    found: dict[Line, int] = {}
    for tenant, mine in _group_by_tenant(lines).items():
        path = f"/v1/tenants/{tenant}/acl/hits"
        rules = {item["rule"]: int(item["packets"]) for item in service.pages(path, limit=_PAGE)}
        ends = service.read(path, limit=1)
        for line in mine:
            found[line] = rules[line.rule] if line.rule in rules else int(ends[_end(line)]["packets"])
    return found


def read_counts_until(
    service: Transport, before: Counts, growth: Mapping[Line, int], patience_s: float, pause_s: float = 0.25
) -> Counts:
    """Read until every line has grown enough, or patience ends.

    Switches report every few seconds.
    """
    until = time.monotonic() + patience_s
    while True:
        now = read_counts(service, growth)
        if all(now[line] >= before[line] + more for line, more in growth.items()) or time.monotonic() > until:
            return now
        time.sleep(pause_s)


def _group_by_tenant(lines: Iterable[Line]) -> dict[TenantId, set[Line]]:
    tenants: dict[TenantId, set[Line]] = {}
    for line in lines:
        tenants.setdefault(line.tenant, set()).add(line)
    return tenants


def _end(line: Line) -> str:
    """Return the API's name of a line that is no rule of the tenant's."""
    return f"{line.direction.value}_{'return' if line.rule == RETURN_RULE_ID else 'default'}"


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
