"""Find the version of a list that opened or closed a packet.

    version      1      2      3      4      5      6
    verdict    deny   deny  permit permit  deny  permit

    blame      from the newest back to the first that says otherwise: 6 opened it, 5 was the last to deny it
    bisect     halves what lies between two versions that disagree: 1 and 6, then 3 or 4, ...: here 2 and 3

`blame` is exact: it reads every version back to the change. `bisect` reads about log2(n) and always ends at a true
change, two neighbours that disagree; but where a verdict went back and forth it is one of several, and not always the
first or the last. It assumes nothing to be right; it assumes *one* change to be the only one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from orchestrator.errors import BadInput
from orchestrator.policy.model import Acl, Action, Direction, Packet, ReturnTraffic, RuleId
from orchestrator.policy.oracle import ask

K = TypeVar("K")
"""The name of a version: a number in the store, a file's name on the command line."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A packet, and which list it meets."""

    packet: Packet
    direction: Direction = Direction.INGRESS
    returns: ReturnTraffic = ReturnTraffic.EXPLICIT


@dataclass(frozen=True, slots=True)
class Verdict(Generic[K]):
    """One version's verdict for the packet; `rule` is None for the default."""

    version: K
    action: Action
    rule: RuleId | None


@dataclass(frozen=True, slots=True)
class Blame(Generic[K]):
    """The versions around a change of verdict.

    `now`: the newest version's verdict. `after`: that of the version that introduced this action. `before`: that of the
    last version with the other one; None if the oldest given version has the same.
    """

    now: Verdict[K]
    after: Verdict[K]
    before: Verdict[K] | None


@dataclass(frozen=True, slots=True)
class Bisected(Generic[K]):
    """Two neighbouring versions with different answers, and the number of versions examined.

    Where `looked_at` is `of`, there was nothing to assume; else it may have changed more often between others.
    """

    before: Verdict[K]
    after: Verdict[K]
    looked_at: int
    of: int


def verdict(version: K, acl: Acl, asked: Asked) -> Verdict[K]:
    """Return a list's verdict for the packet."""
    step = ask(acl, asked.packet, asked.direction, asked.returns)
    return Verdict(version, step.action, step.rule)


def blame(versions: Iterable[tuple[K, Acl]], asked: Asked) -> Blame[K]:
    """Find the version that opened or closed a packet, from the newest to the oldest.

    Versions are read no further than needed.

    Raises BadInput if there is no version.
    """
    answers = (verdict(version, acl, asked) for version, acl in versions)
    now = next(answers, None)
    if now is None:
        raise BadInput("there is no version to ask")
    after = now
    for answer in answers:
        if answer.action is not now.action:
            return Blame(now, after, answer)
        after = answer
    return Blame(now, after, None)


def permits(answer: Verdict[K]) -> bool:
    """Whether the packet may pass: what is usually asked."""
    return answer.action is Action.PERMIT


def bisect(
    versions: Sequence[K],
    load: Callable[[K], Acl],
    asked: Asked,
    holds: Callable[[Verdict[K]], bool] = permits,
) -> Bisected[K] | None:
    """Find two neighbouring versions between which an answer changes, oldest first.

    None if the oldest and the newest give the same answer: then only these two were looked at, and it may have changed
    and changed back in between. Raises BadInput if there is no version.
    """
    if not versions:
        raise BadInput("there is no version to ask")
    low, high = 0, len(versions) - 1
    before, after = (verdict(versions[place], load(versions[place]), asked) for place in (low, high))
    if holds(before) == holds(after):
        return None
    looked_at = 2
    while high - low > 1:
        middle = (low + high) // 2
        answer = verdict(versions[middle], load(versions[middle]), asked)
        looked_at += 1
        if holds(answer) == holds(before):
            low, before = middle, answer
        else:
            high, after = middle, answer
    return Bisected(before, after, looked_at, len(versions))
