"""What the measurement of cuts concludes from what was heard."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from itertools import pairwise

from orchestrator.bench.control_plane import cuts
from orchestrator.bench.traffic.addresses import SERVER, Clients
from orchestrator.bench.traffic.talks import Cut, Pace, Talk, Turns, conclude
from orchestrator.policy.addresses import Family, parse_address
from orchestrator.policy.model import Packet
from orchestrator.policy.oracle import decide
from orchestrator.policy.protocols import TCP


def talk(heard_s: float, *, forbidden: bool) -> Talk:
    return Talk(socket.socket.__new__(socket.socket), False, forbidden, heard_s)


def test_the_last_word_of_a_forbidden_connection_is_the_cut() -> None:
    talks = [talk(100.03, forbidden=True), talk(100.25, forbidden=True), talk(104.0, forbidden=False)]
    assert conclude(talks, 100.0, 105.0) == Cut(250.0, missed=0, lost=0)


def test_connections_that_go_on_though_they_may_not_and_end_though_they_may_are_counted() -> None:
    talks = [talk(104.9, forbidden=True), talk(100.1, forbidden=True)]
    talks += [talk(104.95, forbidden=False), talk(99.9, forbidden=False), talk(100.2, forbidden=False)]
    found = conclude(talks, 100.0, 105.0)
    assert (found.missed, found.lost) == (1, 2)


def test_a_cut_before_the_first_word_takes_no_time() -> None:
    assert conclude([talk(99.8, forbidden=True), talk(104.0, forbidden=False)], 100.0, 105.0).cut_ms == 0.0


def test_ten_thousand_talk_for_longer_than_a_few() -> None:
    """What the figures' notes say of the pace, and what keeps a round of few short."""
    assert Pace.of(10_000) == Pace(0.1, 2.0, 5.0)
    assert Pace.of(20) == Pace.of(300) == Pace(0.1, 0.5, 2.0)


def test_each_speaks_once_in_its_time_however_late_the_step_comes() -> None:
    with ExitStack() as stack:
        pairs = [socket.socketpair() for _ in range(4)]
        for one, other in pairs:
            stack.enter_context(one)
            stack.enter_context(other)
        turns = Turns([Talk(one, True, False) for one, _ in pairs], 1.0)
        for now in (0.0, 0.5, 1.0, 10.0):
            turns.speak(now)
        assert [len(other.recv(100)) // len(b"speaking") for _, other in pairs] == [2, 2, 2, 2]


def test_the_edit_forbids_those_clients_and_no_other() -> None:
    clients = Clients.OUTSIDE.addresses(40)
    edited = cuts.domain_policy(cuts.forbid(clients[::10]))
    permitted = [
        decide(edited, Packet(Family.IPV4, parse_address(each)[1], SERVER.network, TCP, 4000, 7001, tcp_flags=2))
        for each in clients
    ]
    assert [each.permitted for each in permitted] == [bool(place % 10) for place in range(40)]
    assert all(one != other for one, other in pairwise(sorted(clients)))
