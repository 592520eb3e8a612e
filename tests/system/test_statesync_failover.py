"""Firewalls of a cluster that die, with real packets: what each setting keeps, and what is under way at that moment."""

from __future__ import annotations

import itertools
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial

import pytest
from system.sharing_ground import PORT, REPEATED_S, Ends, counted, heal, held, states, talks

from orchestrator.bench.state_sync.programs import Cluster, Node
from orchestrator.bench.state_sync.syncworld import CLIENT, SERVER, SERVER4, World
from orchestrator.lab.processes import wait_until
from orchestrator.statesync.messages import MessageKind
from orchestrator.statesync.sessions import ENTRIES, Session
from orchestrator.statesync.states import Confirmation, Context, Level, State

COMBINATIONS = list(itertools.product(Level, Context, Confirmation))


def test_full_synchronous_loses_no_connection(cluster: Cluster, ends: Ends) -> None:
    pairs = [ends.connect() for _ in range(60)] + [ends.connect(socket.AF_INET6) for _ in range(20)]
    cluster.world.via(2)
    assert all(talks(near, far) for near, far in pairs)
    cluster.world.via(3)
    assert all(talks(near, far) for near, far in pairs)
    assert states(cluster, 3) == [State.ESTABLISHED] * 80


def test_without_sharing_every_connection_is_lost(cluster: Cluster, ends: Ends) -> None:
    cluster.change(level=Level.NONE)
    pairs = [ends.connect() for _ in range(5)]
    cluster.world.via(2)
    assert not any(talks(near, far) for near, far in pairs)
    assert counted(cluster, 2, "no_connection") >= 5


def test_ports_of_a_connection_that_only_the_server_holds_can_be_used_again(cluster: Cluster, ends: Ends) -> None:
    """Its ACK and the client's RST, which members let pass, end what a failover had left open there."""
    cluster.change(level=Level.NONE)
    near, far = ends.connect()
    cluster.world.via(2)
    _, port = near.getsockname()
    near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    near.close()
    wait_until(lambda: counted(cluster, 2, "no_connection") >= 1, "the RST passes", 2)
    assert talks(*ends.connect(port=port, patience_s=REPEATED_S))
    with pytest.raises(ConnectionResetError):
        far.recv(1)


def test_answers_to_udp_and_echo_go_on_elsewhere(cluster: Cluster, ends: Ends) -> None:
    near, far = ends.datagrams()
    near.send(b"question")
    _, client = far.recvfrom(100)
    cluster.world.via(2)
    far.sendto(b"answer", client)
    assert near.recv(100) == b"answer"
    assert states(cluster, 2, socket.IPPROTO_UDP) == [State.BOTH_WAYS]
    with pytest.raises(TimeoutError):  # nothing is let in that was not asked for
        far.sendto(b"unasked", (client[0], client[1] + 1)), near.recv(1)
    cluster.world.run(CLIENT, "ping", "-c", "1", "-W", "1", SERVER4)
    answered = [State.BOTH_WAYS]
    wait_until(lambda: states(cluster, 3, socket.IPPROTO_ICMP) == answered, "it is not told of the answer", 2)


HOPS = ((1, 2), (2, 3), (3, 1))
PHASES = (
    (Context.DIRTY, MessageKind.WRITE),
    (Context.TRANSACTION, MessageKind.PREPARE),
    (Context.TRANSACTION, MessageKind.COMMIT),
)


@pytest.mark.parametrize(("context", "kind"), PHASES, ids=[kind.name.lower() for _, kind in PHASES])
@pytest.mark.parametrize("hop", HOPS, ids=lambda hop: f"{hop[0]}to{hop[1]}")
def test_a_firewall_that_dies_while_it_holds_a_syn_ack_costs_no_connection(
    cluster: Cluster,
    world: World,
    lossy: Callable[[str], None],
    hop: tuple[int, int],
    context: Context,
    kind: MessageKind,
) -> None:
    """Its message stops at one hop and its process repeats nothing, so it dies with the packet still held."""
    cluster.change(context=context)
    lossy(f"{between(*hop)} @th,{8 * (8 + 1)},8 {kind:d} {about(State.SYN_RECEIVED)} drop")
    stop_process_of(cluster, 1)
    with handshake(world) as begun:
        wait_until(lambda: held(cluster, 1) == 1, "nothing is held", 3)
        cluster.stop(1)
        world.via(2)
        heal(world)
        assert talks(*begun())
    cluster.start(1)
    cluster.wait_whole()


def test_a_firewall_that_dies_before_a_syn_was_answered_costs_no_connection(cluster: Cluster, world: World) -> None:
    """No member knows of it: its end sends the SYN again, and the server answers that one."""
    stop_process_of(cluster, 1)
    drop = "tcp flags & (syn | ack) == syn | ack drop"
    chain = f"chain o {{ type filter hook output priority 0; {drop}; }}"
    world.run(SERVER, "nft", "-f", "-", text=f"table ip sslate {{ {chain}; }}")
    try:
        with handshake(world) as begun:
            wait_until(lambda: states(cluster, 1) == [State.SYN_SENT], "the SYN does not pass", 3)
            assert held(cluster, 1) == 0
            assert states(cluster, 2) == []
            cluster.stop(1)
            world.via(2)
            world.run(SERVER, "nft", "delete", "table", "ip", "sslate")
            assert talks(*begun())
    finally:
        world.run(SERVER, "nft", "-f", "-", text="table ip sslate\ndelete table ip sslate")
    cluster.start(1)
    cluster.wait_whole()


@pytest.mark.parametrize(
    ("level", "state"),
    [(Level.FULL, State.ONE_WAY), (Level.ESTABLISHED, State.BOTH_WAYS)],
    ids=["question", "answer"],
)
@pytest.mark.parametrize("hop", HOPS, ids=lambda hop: f"{hop[0]}to{hop[1]}")
def test_a_firewall_that_dies_while_it_holds_a_datagram_costs_its_ends_that_one(
    cluster: Cluster,
    world: World,
    ends: Ends,
    lossy: Callable[[str], None],
    hop: tuple[int, int],
    level: Level,
    state: State,
) -> None:
    """Nobody sends it again but the end that asks; through another firewall it is answered."""
    cluster.change(level=level)
    lossy(f"{between(*hop)} {about(state)} drop")
    stop_process_of(cluster, 1)
    near, far = ends.datagrams()
    near.send(b"question")
    if state is State.BOTH_WAYS:
        _, client = far.recvfrom(100)
        far.sendto(b"held", client)
    wait_until(lambda: held(cluster, 1) == 1, "nothing is held", 3)
    cluster.stop(1)
    world.via(2)
    heal(world)
    near.send(b"asked again")
    said, client = far.recvfrom(100)
    assert said == b"asked again"
    far.sendto(b"answer", client)
    assert near.recv(100) == b"answer"
    cluster.start(1)
    cluster.wait_whole()


def between(sender: int, receiver: int) -> str:
    """Messages of one member to another, in words of nft."""
    return f"ip saddr 10.9.{sender}.1 ip daddr 10.9.{receiver}.1"


def about(state: State) -> str:
    """Messages about connections in a state, in words of nft: it stands behind the head of UDP and 64 bytes."""
    return f"@th,{8 * (8 + 64)},8 {state:d}"


MANY = 30


@pytest.mark.parametrize("victim", [1, 3], ids=["gives", "takes"])
def test_a_firewall_that_dies_in_a_bulk_transfer_costs_no_connection(
    cluster: Cluster, world: World, ends: Ends, monkeypatch: pytest.MonkeyPatch, victim: int
) -> None:
    """Member 3 comes back and has half of what member 1 knows. If that one dies, it is whole by what member 2 gives."""
    pairs = [ends.connect() for _ in range(MANY)]
    cluster.stop(3)
    wait_until(lambda: cluster.nodes[1].member.followers == {2}, "a member that left is waited for", 3)
    has_given_half = stop_halfway(cluster.nodes[1], monkeypatch)
    back = cluster.start(3)
    assert has_given_half.wait(5), "it is given nothing"
    wait_until(partial(has_taken_all_of, back, 2), "it does not take the entries of the other member", 5)
    assert not back.member.is_whole, "half of them is not whole"
    cluster.stop(victim)
    if victim == 1:
        wait_until(lambda: back.member.is_whole, "it does not become whole by the member that is left", 5)
        assert states(cluster, 3) == [State.ESTABLISHED] * MANY
        world.via(3)
        assert all(talks(*pair) for pair in pairs)
    world.via(2)
    assert all(talks(*pair) for pair in pairs)
    assert talks(*ends.connect(patience_s=REPEATED_S))
    monkeypatch.undo()
    cluster.start(victim)
    cluster.wait_whole()


def has_taken_all_of(node: Node, other: int) -> bool:
    """Whether a member has taken another one's entries."""
    known = node.member.following.get(other)
    return known is not None and known.is_whole


class Half(list[bytes]):
    """Entries of which half are given."""


def stop_halfway(giver: Node, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Have a member give half of its entries and then wait until the session ends; set once it has given them."""
    give, all_entries, halfway = Session.give, giver.kernel.packed_entries, threading.Event()

    def give_half(session: Session, entries: list[bytes]) -> None:
        if not isinstance(entries, Half):
            give(session, entries)
            return
        session.send(ENTRIES, b"".join(entries[: len(entries) // 2]))
        halfway.set()
        session.receive()

    monkeypatch.setattr(giver.kernel, "packed_entries", lambda: Half(all_entries()))
    monkeypatch.setattr(Session, "give", give_half)
    return halfway


@pytest.mark.parametrize("victim", [1, 2], ids=["drains", "takes over"])
def test_a_firewall_that_dies_while_one_drains_costs_no_connection(
    cluster: Cluster, world: World, ends: Ends, victim: int
) -> None:
    """Member 1 leaves, and its traffic has moved to member 2 when one of the two dies."""
    pairs = [ends.connect() for _ in range(MANY)]
    cluster.nodes[1].member.leave()
    pairs.append(ends.connect())
    world.via(2)
    pairs.append(ends.connect())
    cluster.stop(victim)
    world.via(2 if victim == 1 else 3)
    assert all(talks(*pair) for pair in pairs)
    assert talks(*ends.connect(patience_s=REPEATED_S))
    for number in (1, 2):  # a member that has left does not serve again
        if number in cluster.nodes:
            cluster.stop(number)
        cluster.start(number)
    cluster.wait_whole()


def stop_process_of(cluster: Cluster, number: int) -> None:
    """Leave a member's program with its settings, and nobody who repeats messages or tells what waits."""
    settings = cluster.nodes[number].kernel.settings()
    cluster.nodes[number].member.stop()
    cluster.nodes[number].kernel.configure(settings)


@contextmanager
def handshake(world: World) -> Iterator[Callable[[], tuple[socket.socket, socket.socket]]]:
    """A SYN on its way; what is given waits for the connection, and returns both sides."""
    door = world.inside(SERVER, lambda: socket.create_server((SERVER4, PORT)))
    near = world.inside(CLIENT, lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM))
    with ExitStack() as stack, door, near:
        near.setblocking(False)
        near.connect_ex((SERVER4, PORT))

        def wait() -> tuple[socket.socket, socket.socket]:
            door.settimeout(REPEATED_S)
            near.settimeout(REPEATED_S)
            far = stack.enter_context(door.accept()[0])
            far.settimeout(REPEATED_S)
            return near, far

        yield wait


def test_a_firewall_that_dies_before_it_told_that_connections_opened_costs_none(
    cluster: Cluster, world: World, ends: Ends
) -> None:
    """Its process tells nobody any more; members hold what each packet leads on from."""
    stop_process_of(cluster, 1)
    pairs = [ends.connect() for _ in range(5)]
    near, far = ends.datagrams()
    near.send(b"question")
    _, client = far.recvfrom(100)
    far.sendto(b"answer", client)
    assert near.recv(100) == b"answer"
    assert states(cluster, 1) == [State.ESTABLISHED] * 5
    assert states(cluster, 2) == [State.SYN_RECEIVED] * 5
    assert held(cluster, 1) == 0
    cluster.stop(1)
    world.via(2)
    assert all(talks(*pair) for pair in pairs)
    assert states(cluster, 2) == [State.ESTABLISHED] * 5
    far.sendto(b"another", client)
    assert near.recv(100) == b"another"
    cluster.start(1)
    cluster.wait_whole()


@pytest.mark.parametrize(("level", "context", "confirmation"), COMBINATIONS, ids=lambda each: each.name.lower())
def test_a_failover_loses_what_its_settings_say(
    cluster: Cluster,
    ends: Ends,
    lossy: Callable[[str], None],
    level: Level,
    context: Context,
    confirmation: Confirmation,
) -> None:
    """What members were told lives. What they were not told is cut where nobody waited, and else did not begin."""
    cluster.change(level=level, context=context, confirmation=confirmation)
    told = [ends.connect() for _ in range(3)]
    shared = [] if level is Level.NONE else [State.ESTABLISHED] * 3
    for member in (2, 3):
        wait_until(lambda member=member: states(cluster, member) == shared, f"member {member} is not told", 2)
    stop_process_of(cluster, 1)
    lossy("ip saddr 10.9.1.1 drop")
    untold = []
    with suppress(OSError):
        untold.append(ends.connect())
    waits = level is not Level.NONE and confirmation is Confirmation.SYNCHRONOUS
    assert bool(untold) is not waits
    cluster.stop(1)
    cluster.world.via(2)
    heal(cluster.world)
    assert [talks(*pair) for pair in told] == [level is not Level.NONE] * 3
    assert not any(talks(*pair) for pair in untold)
    cluster.start(1)
    cluster.wait_whole()
