"""Traffic of an interface through a list as it comes, with real packets."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial

import pytest
from enforce.contract_filters import POLICIES, corner_packets

from orchestrator.classify import live
from orchestrator.classify.listdecider import Deciding
from orchestrator.classify.live import LiveCapture
from orchestrator.classify.replay import Replay, replay
from orchestrator.errors import BadInput, Missing
from orchestrator.lab.layout import Layout
from orchestrator.lab.router import ROUTER, Router
from orchestrator.policy.model import Direction
from orchestrator.policy.oracle import ask

ACL = POLICIES["whole"].tenants[0].acl
LISTENING_S = 2.0


@pytest.fixture
def router(layout: Layout) -> Iterator[Router]:
    with Router(layout.prefix) as router:
        yield router


def test_packets_of_an_interface_are_decided_as_they_come(router: Router) -> None:
    """Each packet once, by the rule that the oracle names, although it is only its beginning that is copied."""
    packets = corner_packets()
    deciding = Deciding(ACL, way=Direction.INGRESS)
    capture = router.inside(ROUTER, partial(LiveCapture, "left", LISTENING_S))
    found: list[Replay] = []
    listening = threading.Thread(target=lambda: found.append(replay([capture], deciding)))
    listening.start()
    for _ in range(3):
        router.fire(packets)
    listening.join()
    (replayed,) = found
    wanted = [ask(ACL, packet, Direction.INGRESS, POLICIES["whole"].return_traffic).rule for packet in packets]
    by_rule = {each.id: int(replayed.of_list.packets[number]) for number, each in enumerate(deciding.deciders)}
    for rule in {each.id for each in ACL.rules if each.direction is Direction.INGRESS}:
        assert by_rule[rule] == 3 * wanted.count(rule), rule
    assert replayed.remarks == []


def test_packets_that_come_too_fast_are_said_to_be_lost(router: Router, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "BLOCK", 1 << 12)
    monkeypatch.setattr(live, "BLOCKS", 2)
    capture = router.inside(ROUTER, partial(LiveCapture, "left", 0.1))
    for _ in range(3):
        router.fire(corner_packets())  # nobody takes them meanwhile
    taken = sum(map(len, capture.pieces()))
    assert 0 < taken < 3 * len(corner_packets())
    assert "came faster than they were taken" in str(capture.remarks)


def test_interfaces_that_cannot_be_listened_to(router: Router) -> None:
    for name, error in (("nothere", Missing), ("", BadInput), ("much-too-long-a-name", BadInput), ("a\0b", BadInput)):
        with pytest.raises(error):
            router.inside(ROUTER, partial(LiveCapture, name, 1.0))
