"""When a VNF is tried: not before it holds what is to be tried, not again and again, and it tells what it saw."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from orchestrator.client.fleet import Trial
from orchestrator.enforce import trial
from orchestrator.enforce.trial import Trier
from orchestrator.errors import Missing
from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Packet

PACKETS = (Packet(Family.IPV4, 1 << 24, 2 << 24, 17, 5, 53), Packet(Family.IPV4, 1 << 24, 2 << 24, 6, 5, 80))


class Office:
    def __init__(self, asked: Trial | None) -> None:
        self.asked = asked
        self.looks = 0
        self.answers: list[tuple[int, tuple[bool, ...], int]] = []

    def trial(self, domain: str, enforcer: int) -> Trial | None:
        assert (domain, enforcer) == ("pop", 3)
        self.looks += 1
        return self.asked

    def answer_trial(self, domain: str, enforcer: int, generation: int, came: Sequence[bool], held: int) -> None:
        assert (domain, enforcer) == ("pop", 3)
        self.answers.append((generation, tuple(came), held))


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[Packet]]:
    """The packets that were sent; the first of them came through."""
    sent: list[Sequence[Packet]] = []

    def came_through(packets: Sequence[Packet]) -> tuple[bool, ...]:
        sent.append(packets)
        return tuple(index == 0 for index in range(len(packets)))

    monkeypatch.setattr(trial, "came_through", came_through)
    return sent


@pytest.mark.parametrize("held", [None, 6])
def test_nothing_is_tried_before_the_filter_holds_it(held: int | None, tried: list[Sequence[Packet]]) -> None:
    office = Office(Trial(7, PACKETS))
    Trier(office, "pop", 3, lambda: held).look()
    assert (tried, office.answers) == ([], [])


def test_what_was_seen_is_told_once(tried: list[Sequence[Packet]]) -> None:
    office = Office(Trial(7, PACKETS))
    trier = Trier(office, "pop", 3, lambda: 8)
    for _ in range(3):
        trier.look()
    assert tried == [PACKETS]
    assert office.answers == [(7, (True, False), 8)]


def test_who_is_not_to_be_tried_goes_on_asking(tried: list[Sequence[Packet]]) -> None:
    office = Office(None)
    trier = Trier(office, "pop", 3, lambda: 8)
    trier.look()
    trier.look()
    assert (office.looks, tried, office.answers) == (2, [], [])


def test_a_vnf_that_cannot_send_packets_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: Sequence[Packet]) -> tuple[bool, ...]:
        raise Missing("packets cannot be sent through this VNF to try it")

    monkeypatch.setattr(trial, "came_through", refused)
    office = Office(Trial(7, PACKETS))
    with pytest.raises(Missing):
        Trier(office, "pop", 3, lambda: 8).look()
    assert office.answers == []
