"""Blame and bisect end at a version where the verdict changes, and read no more of the history than they say."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples
from strategies import acls, packets

from orchestrator.errors import BadInput
from orchestrator.policy import oracle
from orchestrator.policy.addresses import Family
from orchestrator.policy.history import Asked, Verdict, bisect, blame
from orchestrator.policy.model import Acl, Action, Direction, Packet, ReturnTraffic, Rule, RuleId
from orchestrator.policy.protocols import TCP

OPEN = Acl((Rule(RuleId("web"), Action.PERMIT, protocol=TCP),))
SHUT = Acl((Rule(RuleId("no-web"), Action.DENY, protocol=TCP),))

SYN = Packet(Family.IPV4, 1, 2, TCP, tcp_flags=0x02)

asked_of = st.builds(Asked, packets(), st.sampled_from(list(Direction)), st.sampled_from(list(ReturnTraffic)))


def verdicts(history: list[Acl], asked: Asked) -> list[Verdict[int]]:
    steps = [oracle.ask(acl, asked.packet, asked.direction, asked.returns) for acl in history]
    return [Verdict(number, step.action, step.rule) for number, step in enumerate(steps)]


@settings(max_examples=examples(80), deadline=None)
@given(st.lists(st.one_of(st.sampled_from((OPEN, SHUT)), acls(3)), min_size=1, max_size=9), asked_of)
def test_blame_names_the_last_change(history: list[Acl], asked: Asked) -> None:
    read = []

    def newest_first() -> Iterator[tuple[int, Acl]]:
        for number in reversed(range(len(history))):
            read.append(number)
            yield number, history[number]

    answers = verdicts(history, asked)
    found = blame(newest_first(), asked)
    others = [answer for answer in answers if answer.action is not answers[-1].action]
    assert found.now == answers[-1]
    assert found.before == (others[-1] if others else None)
    assert found.after == answers[others[-1].version + 1 if others else 0]
    assert read[-1] == (others[-1].version if others else 0)


@settings(max_examples=examples(80), deadline=None)
@given(st.lists(st.one_of(st.sampled_from((OPEN, SHUT)), acls(3)), min_size=1, max_size=40), asked_of)
def test_bisect_ends_at_a_true_change_after_few_looks(history: list[Acl], asked: Asked) -> None:
    answers, read = verdicts(history, asked), []

    def load(number: int) -> Acl:
        read.append(number)
        return history[number]

    found = bisect(range(len(history)), load, asked)
    if answers[0].action is answers[-1].action:
        assert found is None
        return
    assert found is not None
    assert found.after.version == found.before.version + 1
    assert (found.before, found.after) == (answers[found.before.version], answers[found.after.version])
    assert found.before.action is answers[0].action
    assert found.after.action is answers[-1].action
    assert found.looked_at == len(read) <= 2 + math.ceil(math.log2(len(history)))
    assert found.of == len(history)


def test_bisect_can_ask_who_decides() -> None:
    asked = Asked(SYN)
    renamed = Acl((Rule(RuleId("www"), Action.PERMIT, protocol=TCP),))
    history = [OPEN, OPEN, renamed, renamed]
    assert bisect(range(4), history.__getitem__, asked) is None
    found = bisect(range(4), history.__getitem__, asked, lambda answer: answer.rule == "www")
    assert found is not None
    assert (found.before.version, found.after.version) == (1, 2)


def test_no_versions_are_refused() -> None:
    asked = Asked(SYN)
    with pytest.raises(BadInput, match="no version"):
        blame([], asked)
    with pytest.raises(BadInput, match="no version"):
        bisect([], lambda _: OPEN, asked)
