"""What the measurement of cuts concludes from what was heard."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from orchestrator.bench.control_plane import cuts
from orchestrator.bench.traffic.addresses import SERVER, Clients
from orchestrator.bench.traffic.talks import (
    Cut,
    Heard,
    Pace,
    Talk,
    Turns,
    conclude,
    connect_all,
    draw_tenth,
    measure_cut,
)
from orchestrator.compile.nftables import nftables_objects
from orchestrator.errors import Drifted
from orchestrator.policy.addresses import Family, parse_address
from orchestrator.policy.model import Packet
from orchestrator.policy.oracle import decide
from orchestrator.policy.protocols import TCP

MANY = 40


def talk(heard_s: float, *, forbidden: bool) -> Heard:
    return Heard(heard_s, forbidden)


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


def test_the_edit_gives_no_standing_rule_another_number() -> None:
    """The service gives none, and rows that count for another rule would all be made anew."""
    before, after = (cuts.domain_policy(*rules).tenants[0].rule_numbers for rules in ((), (cuts.forbid(["10.0.0.1"]),)))
    assert before.items() < after.items()
    assert after["forbidden"] == max(after.values())


def test_the_edit_of_a_filter_makes_nothing_anew_but_the_list_itself() -> None:
    """Each connection is cut by one map or a few rules in front of the parts that stand."""
    clients = Clients.OUTSIDE.addresses(300)
    before, few, many = (
        nftables_objects(cuts.domain_policy(*rules))[Family.IPV4]
        for rules in ((), (cuts.forbid(clients[:3]),), (cuts.forbid(clients),))
    )
    for after, made in ((few, 0), (many, 1)):
        assert {name for name in before if before[name] != after.get(name)} == {"chain ingress_1"}
        assert len(after) - len(before) == made


@contextmanager
def listening() -> Iterator[tuple[ExitStack, socket.socket, list[tuple[str, int]]]]:
    """A socket that listens, addresses of clients, and a stack that ends what they open."""
    with ExitStack() as stack:
        door = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=MANY))
        yield stack, door, [(f"127.0.0.{number}", 0) for number in range(2, MANY + 2)]


def test_the_process_that_edits_has_no_part_in_what_talks() -> None:
    """Neither their files nor their threads: the compiler would share its interpreter with them."""
    forbidden = draw_tenth(MANY, 1)
    with listening() as (stack, door, clients):
        files, threads = _count_files(), _count_threads()
        talks = connect_all(stack, door, clients, forbidden)
        while_editing: list[tuple[int, int]] = []
        cut = measure_cut(talks, lambda: while_editing.append((_count_files(), _count_threads())))
        assert while_editing[0][0] - files < MANY
        assert while_editing[0][1] <= threads
    assert cut.missed == len(forbidden), "nothing cuts them, and all of them are heard to the end"


def test_both_sides_are_heard() -> None:
    """Every other connection speaks from the end that opened it, and the others from the one that accepted it."""
    with listening() as (stack, door, clients):
        talks = connect_all(stack, door, clients, frozenset({0, 1}))
        measure_cut(talks, lambda: None)
        assert all(each.heard_s for each in talks.hear_all())
        assert [each.forbidden for each in talks.hear_all()] == [number < 2 for number in range(MANY)]


def test_connections_that_cannot_be_opened_are_told() -> None:
    with listening() as (stack, door, clients):
        clients[3] = ("192.0.2.1", 0)  # no address of this machine
        with pytest.raises(Drifted, match="does not open"):
            connect_all(stack, door, clients, frozenset())


def _count_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def _count_threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))
