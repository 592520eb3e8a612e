"""When a VNF is tried: not before it holds what is to be tried, not again and again, and it tells what it saw."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from orchestrator.client.points import Trial
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

    def read_trial(self, domain: str, enforcer: int) -> Trial | None:
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


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now

    def looks(self, trier: Trier, for_s: float) -> None:
        """As the agent looks: a few times a second."""
        for _ in range(round(for_s / 0.2)):
            self.now += 0.2
            trier.look()


def test_who_is_not_to_be_tried_asks_less_and_less_often(tried: list[Sequence[Packet]]) -> None:
    """A firewall server, say, or a VNF of a fleet that an operator brought in: nobody wants to try it, ever."""
    office, clock = Office(None), Clock()
    trier = Trier(office, "pop", 3, lambda: 8, clock)
    clock.looks(trier, 3.0)
    assert office.looks >= 6, "a fleet that is slow to ask loses little time"
    clock.looks(trier, 60.0)
    before = office.looks
    clock.looks(trier, 600.0)
    assert 100 <= office.looks - before <= 120
    assert (tried, office.answers) == ([], [])
    office.asked = Trial(7, PACKETS)
    clock.looks(trier, 5.4)
    assert office.answers == [(7, (True, False), 8)]


def test_who_was_tried_is_quiet_for_the_rest_of_its_life(tried: list[Sequence[Packet]]) -> None:
    office, clock = Office(Trial(7, PACKETS)), Clock()
    trier = Trier(office, "pop", 3, lambda: 8, clock)
    clock.looks(trier, 0.2)
    office.asked = None
    clock.looks(trier, 600.0)
    assert (len(tried), len(office.answers)) == (1, 1)
    assert office.looks <= 121


def test_a_vnf_that_cannot_send_packets_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: Sequence[Packet]) -> tuple[bool, ...]:
        raise Missing("packets cannot be sent through this VNF to try it")

    monkeypatch.setattr(trial, "came_through", refused)
    office = Office(Trial(7, PACKETS))
    with pytest.raises(Missing):
        Trier(office, "pop", 3, lambda: 8).look()
    assert office.answers == []
