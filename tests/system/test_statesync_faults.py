"""Faults of a firewall cluster: cuts, late and doubled messages, full members, clocks apart, other versions."""

from __future__ import annotations

import random
import socket
import struct
import time

import pytest
from system.sharing_ground import REPEATED_S, SILENT_S, Ends, counted, heal, restrict, states, talks
from system.unruly import Unruly

from orchestrator.bench.state_sync.programs import SECRET, Cluster
from orchestrator.bench.state_sync.syncworld import World
from orchestrator.errors import Unreachable
from orchestrator.lab.processes import wait_until
from orchestrator.statesync.messages import VERSION, Key, Word
from orchestrator.statesync.sessions import Session
from orchestrator.statesync.states import Confirmation, Context, Level, State

CUTS = {
    "sessions": "ip saddr 10.9.3.1 tcp dport 3781 drop; ip daddr 10.9.3.1 tcp dport 3781 drop; "
    "ip saddr 10.9.3.1 tcp sport 3781 drop; ip daddr 10.9.3.1 tcp sport 3781 drop",
    "messages": "ip saddr 10.9.3.1 udp dport 3781 drop; ip daddr 10.9.3.1 udp dport 3781 drop",
    "both": "ip saddr 10.9.3.1 drop; ip daddr 10.9.3.1 drop",
    "one way": "ip saddr 10.9.3.1 drop",
    "the other way": "ip daddr 10.9.3.1 drop",
    "messages one way": "ip saddr 10.9.3.1 udp dport 3781 drop",
}
NOTICED = ("sessions", "both", "one way", "the other way")
"""Cuts by which a member's machine seems silent; where only messages are lost, that shows when packets wait."""
OPENED_MOST = 262_144
MANY, KEPT = 30, 20
"""So many connections begin, and so many stay open."""
RESETS = struct.pack("ii", 1, 0)
"""A socket's option: closing it sends a reset."""


@pytest.mark.parametrize("cut", CUTS)
def test_connections_begin_and_survive_on_both_sides_of_a_cut(
    cluster: Cluster, world: World, ends: Ends, cut: str
) -> None:
    """Member 3 is cut off: those before live everywhere, each side goes on, and afterwards all know all."""
    before = ends.connect()
    restrict(world, CUTS[cut])
    try:
        wait_until(lambda: _begins(ends), "no connection begins on the larger side", REPEATED_S)
        if cut in NOTICED:
            wait_until(lambda: 3 not in cluster.nodes[1].member.followers, "it is waited for still", 4 * SILENT_S)
        largest = ends.connect()
        world.via(2)
        assert talks(*largest)
        assert talks(*before)
        world.via(3)
        assert talks(*before)
        wait_until(lambda: _begins(ends), "no connection begins on the smaller side", REPEATED_S)
        smaller = ends.connect()
    finally:
        heal(world)
    cluster.wait_whole()
    for number in (1, 2, 3):
        world.via(number)
        assert all(talks(*pair) for pair in (before, largest, smaller)), number


@pytest.mark.parametrize("confirmation", Confirmation, ids=lambda each: each.name.lower())
@pytest.mark.parametrize("context", Context, ids=lambda each: each.name.lower())
@pytest.mark.parametrize("level", [Level.ESTABLISHED, Level.FULL], ids=lambda each: each.name.lower())
def test_messages_that_come_late_twice_and_in_another_order_cost_no_connection(
    cluster: Cluster, world: World, ends: Ends, level: Level, context: Context, confirmation: Confirmation
) -> None:
    cluster.change(level=level, context=context, confirmation=confirmation)
    with Unruly(world, seed=1) as between:
        pairs = [ends.connect(patience_s=REPEATED_S) for _ in range(MANY)]
        for near, far in pairs[KEPT:]:
            near.close()
            assert far.recv(1) == b""
            far.close()
        expected = [State.ESTABLISHED] * KEPT + [State.TIME_WAIT] * (MANY - KEPT)
        for member in (1, 2, 3):
            wait_until(lambda member=member: states(cluster, member) == expected, f"member {member} lacks some", 5)
    assert min(between.twice, between.overtaken) > MANY / 2
    for member in (2, 3):
        world.via(member)
        assert all(talks(*pair) for pair in pairs[:KEPT])


def _begins(ends: Ends) -> bool:
    try:
        return talks(*ends.connect())
    except OSError:
        return False


def test_a_member_without_room_is_left_and_costs_nobody_else_a_connection(
    cluster: Cluster, world: World, ends: Ends
) -> None:
    full = cluster.nodes[3].kernel
    value = Word(State.ESTABLISHED, version=1).pack().to_bytes(8, "little") + time.monotonic_ns().to_bytes(8, "little")
    for number in range(OPENED_MOST):
        full.put_entry("opened", Key(number, 1 << 100, 1, 1, socket.IPPROTO_UDP).pack(), value * 2 + bytes(8))
    assert _begins(ends)
    wait_until(lambda: counted(cluster, 3, "store_full") > 0, "it is told of no connection that opened", 5)
    wait_until(lambda: _begins(ends), "nothing begins while a member has no room", REPEATED_S)
    assert cluster.nodes[1].member.followers == {2}
    pair = ends.connect()
    world.via(2)
    assert talks(*pair)
    full.forget_all()
    cluster.wait_whole()
    world.via(3)
    assert talks(*pair)


@pytest.mark.parametrize("apart_s", [3600, -3600])
def test_clocks_apart_cost_no_connection(
    cluster: Cluster, world: World, ends: Ends, monkeypatch: pytest.MonkeyPatch, apart_s: int
) -> None:
    """The same ends connect again and again, each time through a firewall of another time."""
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + apart_s * 1_000_000_000)
    kernel = cluster.nodes[2].kernel
    kernel.configure(kernel.settings())
    monkeypatch.undo()
    port = random.Random(apart_s).randrange(20_000, 30_000)
    for number in (2, 1, 2, 3):
        world.via(number)
        near, far = ends.connect(port=port)
        for other in (1, 2, 3):
            world.via(other)
            assert talks(near, far), (number, other)
        near.close()
        far.close()
        _forget(cluster, number)
        port += number == 3
    kernel.configure(kernel.settings())


def _forget(cluster: Cluster, number: int) -> None:
    """One firewall forgets what closed, as after its time-out, and others do not."""
    kernel = cluster.nodes[number].kernel
    wait_until(
        lambda: all(State.ESTABLISHED not in states(cluster, each) for each in (1, 2, 3)), "it does not close", 5
    )
    for entry in list(kernel.connections()):
        kernel.forget(entry.key.pack())


@pytest.mark.parametrize("known", [State.ESTABLISHED, State.FIN_WAIT], ids=lambda each: each.name.lower())
@pytest.mark.parametrize("level", [Level.ESTABLISHED, Level.FULL], ids=lambda each: each.name.lower())
def test_ends_that_begin_anew_where_their_end_was_missed_cost_no_connection(
    cluster: Cluster, world: World, ends: Ends, level: Level, known: State
) -> None:
    """Member 1 has not heard of the reset, and lets the new handshake pass as packets of the connection before."""
    cluster.change(level=level)
    port = random.Random(level).randrange(30_000, 32_000)
    near, far = ends.connect(port=port)
    if known is State.FIN_WAIT:
        near.shutdown(socket.SHUT_WR)
        assert far.recv(1) == b""
    wait_until(lambda: cluster.nodes[1].member.has_told_all, "the others are not told how it began", 5)
    world.via(2)
    restrict(world, "ip daddr 10.9.1.1 udp dport 3781 drop")
    try:
        near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESETS)
        near.close()
        far.close()
        for number in (2, 3):
            wait_until(lambda number=number: states(cluster, number) == [State.CLOSED], "it is not told", 5)
        for number in (2, 3):
            cluster.nodes[number].kernel.forget_all()  # as after its time-out
    finally:
        heal(world)
    time.sleep(2 * SILENT_S + 1.0)
    assert states(cluster, 1) == [known]
    world.via(1)
    pair = ends.connect(port=port)
    assert talks(*pair)
    for number in (2, 3):
        world.via(number)
        assert talks(*pair), number


def test_a_member_of_another_version_is_no_member(cluster: Cluster, ends: Ends, world: World) -> None:
    """It proves the key, and its messages would not be understood: it is told so, and no session begins."""
    stranger = Session.begin(
        world.dialler(3)(world.address(1), 3781, world.address(3)), SECRET, is_follower=True, silent_s=SILENT_S
    )
    stranger.say(member=3, version=VERSION + 1, sequences=[1, 1])
    with pytest.raises(Unreachable):
        stranger.hear()
    assert cluster.nodes[1].member.followers == {2, 3}
    assert talks(*ends.connect())


def test_a_member_that_comes_is_waited_for_from_its_first_question_on(
    cluster: Cluster, ends: Ends, world: World
) -> None:
    """Until then it does not believe messages, and packets would wait in vain."""
    cluster.stop(3)
    wait_until(lambda: cluster.nodes[1].member.followers == {2}, "a member that left is waited for", 3)
    joining = Session.begin(
        world.dialler(3)(world.address(1), 3781, world.address(3)), SECRET, is_follower=True, silent_s=SILENT_S
    )
    joining.say(member=3, version=VERSION, sequences=[1, 1])
    assert joining.hear()["member"] == 1
    assert cluster.nodes[1].member.followers == {2}
    assert talks(*ends.connect())
    joining.say(again=False)
    joining.hear()
    assert cluster.nodes[1].member.followers == {2, 3}
    joining.end()
    cluster.start(3)
    cluster.wait_whole()
