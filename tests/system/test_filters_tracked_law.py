"""Packet filters that track connections, on random traces: they let through a part of what the oracle permits.

Conversations run side by side through a router, some with segments of chance and ICMP errors among them, while lists
change.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import pytest
from system.test_filters_tracked import CHANGED, FLAGS, TRACKED, VARIANTS, Both, error_frame, firsts, is_ours
from tracked_domain import conversation, error_about

from orchestrator.lab.layout import Layout
from orchestrator.lab.router import LEFT, RIGHT, Router, frame_packet
from orchestrator.policy.connections import NONE, decide_tracked, ends_of
from orchestrator.policy.model import Packet
from orchestrator.policy.protocols import TCP, UDP

pytestmark = pytest.mark.system


@pytest.fixture(params=VARIANTS.values(), ids=VARIANTS)
def both(request: pytest.FixtureRequest, layout: Layout) -> Iterator[Both]:
    with Router(layout.prefix) as router:
        yield Both(router, request.param)


TALKS = 400
"""So many conversations run side by side: of each, one packet is on its way at a time."""
Said = tuple[Packet, Packet | None]
"""A packet, and what it quotes if it is an ICMP error."""


def varied(corners: Sequence[Packet], rng: random.Random) -> list[Packet]:
    """First packets at the corners of the policy, each between other ends, by ports of chance."""
    found: dict[object, Packet] = {}
    for _ in range(TALKS):
        first = rng.choice(corners)
        if first.protocol in (TCP, UDP) and rng.random() < 0.8:
            first = replace(first, source_port=rng.randrange(1024, 1 << 16))
        found.setdefault(ends_of(first), first)
    return list(found.values())


def said(first: Packet, rng: random.Random) -> Iterator[Said]:
    """What two ends say, with segments of chance, and errors by the receiver and by others on its side."""
    for packet in conversation(first):
        is_odd = packet.protocol == TCP and rng.random() < 0.1
        yield (replace(packet, tcp_flags=rng.choice(FLAGS)) if is_odd else packet), None
        if rng.random() < 0.05:
            error = error_about(packet, rng.choice((packet.destination, packet.destination ^ 3)))
            if is_ours(TRACKED, error, error.source) is not is_ours(TRACKED, error, error.destination):
                yield error, packet


def meet_all(both: Both, spoken: Sequence[Said], sender: str) -> None:
    """Send packets of one direction, and hold what came through to the oracle."""
    crafts = [
        partial(frame_packet, packet, sender=sender) if quoted is None else partial(error_frame, packet, quoted, sender)
        for packet, quoted in spoken
    ]
    for (packet, quoted), through in zip(spoken, both.router.fire_frames(crafts, sender), strict=True):
        verdict = decide_tracked(both.policy, packet, both.known, quoted)
        assert through <= verdict.decision.permitted, (packet, quoted)
        if through:
            both.known = verdict.connections
            both.passed += 1


@pytest.mark.parametrize(
    "packets", [6_000, pytest.param(1_000_000, marks=[pytest.mark.long, pytest.mark.timeout(4 * 3600)])]
)
def test_random_traces_get_no_more_through_than_the_oracle_permits(both: Both, packets: int) -> None:
    rng, met = random.Random(packets), 0
    corners = firsts(rng, 80)
    both.load(TRACKED)
    while met < packets:
        both.real.empty_table()
        both.known = NONE
        talks = [said(first, rng) for first in varied(corners, rng)]
        for turn in range(1 << 10):
            if turn % 6 == 3:
                both.load(rng.choice((TRACKED, CHANGED)))
            spoken = [(talk, each) for talk in talks if (each := next(talk, None)) is not None]
            if not spoken:
                break
            for sender in (LEFT, RIGHT):
                now = [each for _, each in spoken if is_ours(TRACKED, each[0], each[0].source) is (sender == RIGHT)]
                meet_all(both, now, sender)
            met += len(spoken)
            talks = [talk for talk, _ in spoken]
    assert both.passed > met / 5, "many conversations go through"
