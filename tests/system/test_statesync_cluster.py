"""Clusters of firewalls with real packets: what settings share, bad messages and bad members."""

from __future__ import annotations

import itertools
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from statesync.frames import message_frame
from statesync.programbench import built
from system.sharing_ground import (
    PORT,
    STEP_S,
    Ends,
    counted,
    heal,
    held,
    states,
    talks,
)
from system.unitrights import USER, is_readable_by_others, with_rights_of

from orchestrator.bench.state_sync.programs import SECRET, Cluster
from orchestrator.bench.state_sync.syncworld import CLIENT, MIDDLE, SERVER4, World
from orchestrator.lab.processes import wait_until
from orchestrator.statesync import sessions
from orchestrator.statesync.kernel import Replicator
from orchestrator.statesync.messages import Message, MessageKind, Word
from orchestrator.statesync.sessions import MOST_OF_AN_ADDRESS, NONCE_BYTES
from orchestrator.statesync.states import Confirmation, Context, Level, State

COMBINATIONS = list(itertools.product(Level, Context, Confirmation))
EVERY_FRAME = 3
METRICS_PORT = 9381
MEMBERS_PORT = 3781
ACLFLOW = (sys.executable, "-m", "orchestrator.cli", "statesync")


@pytest.mark.parametrize(("level", "context", "confirmation"), COMBINATIONS, ids=lambda each: each.name.lower())
def test_every_combination_shares_what_its_level_says(
    cluster: Cluster, ends: Ends, level: Level, context: Context, confirmation: Confirmation
) -> None:
    cluster.change(level=level, context=context, confirmation=confirmation)
    for family in (socket.AF_INET, socket.AF_INET6):
        near, far = ends.connect(family)
        assert talks(near, far)
    near, far = ends.datagrams()
    near.send(b"nobody answers")
    assert far.recv(100) == b"nobody answers"
    opened = [State.ESTABLISHED] * 2
    expected = {Level.NONE: [], Level.ESTABLISHED: opened, Level.FULL: opened}[level]
    one_way = [State.ONE_WAY] if level is Level.FULL else []
    assert states(cluster, 1) == opened
    for member in (2, 3):
        wait_until(lambda member=member: states(cluster, member) == expected, f"{states(cluster, member)}", 2)
        assert states(cluster, member, socket.IPPROTO_UDP) == one_way
    assert held(cluster, 1) == 0


@pytest.mark.parametrize("confirmation", Confirmation, ids=lambda each: each.name)
@pytest.mark.parametrize("context", Context, ids=lambda each: each.name)
def test_a_connection_ends_everywhere(
    cluster: Cluster, ends: Ends, context: Context, confirmation: Confirmation
) -> None:
    cluster.change(context=context, confirmation=confirmation)
    near, far = ends.connect()
    near.close()
    assert far.recv(1) == b""
    far.close()
    for member in (1, 2, 3):
        wait_until(lambda member=member: states(cluster, member) == [State.TIME_WAIT], f"member {member}", 2)


def test_a_member_that_was_away_becomes_whole_in_bulk(cluster: Cluster, ends: Ends) -> None:
    cluster.stop(3)
    wait_until(lambda: cluster.nodes[1].member.followers == {2}, "a member that left is waited for", 3)
    pairs = [ends.connect() for _ in range(30)]
    cluster.start(3)
    wait_until(lambda: cluster.nodes[3].member.is_whole, "it does not become whole", 5)
    assert states(cluster, 3) == [State.ESTABLISHED] * 30
    cluster.world.via(3)
    assert all(talks(near, far) for near, far in pairs)


def test_a_member_that_falls_silent_delays_others_only_for_a_while(cluster: Cluster, ends: Ends) -> None:
    cluster.world.ip(3, ["link set x down"])
    try:
        wait_until(lambda: 3 not in cluster.nodes[1].member.followers, "it is waited for still", 3)
        assert talks(*ends.connect())
    finally:
        cluster.world.ip(3, ["link set x up", "route replace 10.9.0.0/16 via 10.9.3.254"])
    cluster.wait_whole()
    assert states(cluster, 3) == [State.ESTABLISHED]


# --------------------------------------------------------------------------------------------------------- bad messages


@pytest.mark.parametrize("context", Context, ids=lambda each: each.name)
def test_lost_messages_are_sent_again_before_a_client_would(
    cluster: Cluster, ends: Ends, lossy: Callable[[str], None], context: Context
) -> None:
    cluster.change(context=context)
    lossy("@th,198,2 0 drop")  # a quarter, by bits of their numbers
    pairs = [ends.connect() for _ in range(25)]
    assert all(talks(near, far) for near, far in pairs)
    assert cluster.nodes[1].member.resent.again > 0
    opened = [State.ESTABLISHED] * 25
    wait_until(lambda: states(cluster, 2) == states(cluster, 3) == opened, "they are not told what opened", 5)


def test_lost_messages_without_confirmation_are_noticed_and_made_good(
    cluster: Cluster, ends: Ends, lossy: Callable[[str], None]
) -> None:
    cluster.change(confirmation=Confirmation.ASYNCHRONOUS)
    lossy("ip saddr 10.9.1.1 ip daddr 10.9.3.1 drop")
    for _ in range(10):
        ends.connect()
    assert len(states(cluster, 2)) == 10
    assert states(cluster, 3) == []
    heal(cluster.world)
    ends.connect()  # a message that comes shows which did not
    wait_until(lambda: states(cluster, 3) == [State.ESTABLISHED] * 11, "it never asks for what it missed", 5)
    cluster.wait_whole()


def test_a_packet_that_nobody_confirms_is_dropped_in_time(
    cluster: Cluster, ends: Ends, lossy: Callable[[str], None]
) -> None:
    lossy("drop")
    with pytest.raises(TimeoutError):
        ends.connect()
    wait_until(lambda: held(cluster, 1) == 0, "it is held for ever", 2)
    assert cluster.nodes[1].member.resent.given_up > 0


def test_messages_with_another_key_and_replayed_ones_are_counted_and_dropped(cluster: Cluster, ends: Ends) -> None:
    world = cluster.world
    tap = world.inside(MIDDLE, lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(EVERY_FRAME)))
    with tap:
        tap.bind(("m2", EVERY_FRAME))
        tap.settimeout(STEP_S)
        ends.connect()
        heard = [
            frame for frame in _frames(tap) if frame[23] == socket.IPPROTO_UDP and frame[30:34] == b"\x0a\x09\x02\x01"
        ]
        assert len(heard) >= 2
        before = counted(cluster, 2, "replayed")
        for frame in heard:
            tap.send(frame)
        wait_until(lambda: counted(cluster, 2, "replayed") == before + len(heard), "replays are not counted", 2)
        key = next(iter(cluster.nodes[1].kernel.connections())).key
        forged = Message(MessageKind.WRITE, 1, 0, time.time_ns(), key.pack(), Word(State.CLOSED, version=2**31).pack())
        sealed = message_frame(forged.seal(bytes(16)), "10.9.2.1")
        before = counted(cluster, 2, "wrong_mac")
        tap.send(heard[0][:14] + sealed[14:])
        wait_until(lambda: counted(cluster, 2, "wrong_mac") == before + 1, "a wrong key is not counted", 2)
    assert states(cluster, 2) == [State.ESTABLISHED]


def _frames(tap: socket.socket) -> list[bytes]:
    found, until = [], time.monotonic() + STEP_S / 2
    with suppress(TimeoutError):
        while time.monotonic() < until:
            frame, sent_by = tap.recvfrom(2000)
            if sent_by[2] == socket.PACKET_OUTGOING:
                found.append(frame)
    return found


def test_a_packet_that_is_changed_on_its_way_goes_out_as_it_was(
    cluster: Cluster, ends: Ends, lossy: Callable[[str], None]
) -> None:
    """The middle writes into the destination port of every packet that a message carries."""
    lossy("@th,1040,16 set 9")  # behind 8 bytes of UDP, 80 of the message, 20 of the packet's IP header: its ports
    near, far = ends.connect()
    assert talks(near, far)


def test_a_member_with_another_key_is_no_member(cluster: Cluster, ends: Ends) -> None:
    cluster.stop(3)
    cluster.start(3, secret=SECRET[::-1])
    time.sleep(STEP_S)
    assert cluster.nodes[1].member.followers == {2}
    assert not cluster.nodes[3].member.is_whole
    assert talks(*ends.connect())
    assert states(cluster, 3) == []
    cluster.stop(3)
    cluster.start(3)
    cluster.wait_whole()


def test_strangers_at_a_members_port_are_few_and_keep_no_member_out(cluster: Cluster, ends: Ends) -> None:
    """They have a member's address and not its key, and say nothing, or a nonce."""
    world, before = cluster.world, threading.active_count()
    with ExitStack() as stack:
        for number in range(200):
            stranger = stack.enter_context(world.dialler(2)(world.address(1), MEMBERS_PORT, world.address(2)))
            stranger.sendall(bytes(NONCE_BYTES * (number % 2)))
        wait_until(lambda: threading.active_count() <= before + MOST_OF_AN_ADDRESS, "each of them has a thread", 5)
        for member in (2, 3):
            cluster.stop(member)
            cluster.start(member)
        cluster.wait_whole()
        assert talks(*ends.connect())
        began = time.monotonic()
        cluster.stop(1)
        assert time.monotonic() - began < sessions.PROVEN_WITHIN_S, "it waits for strangers before it ends"
        cluster.start(1)
    cluster.wait_whole()


def test_a_member_that_lies_costs_only_those_who_come_to_it(
    cluster: Cluster, ends: Ends, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It confirms and does not store."""
    stores = "	struct connection *known = NULL, value = {};\n	__u32 was_open"
    liar = built(tmp_path, stores, f"	return true;\n{stores}")
    cluster.stop(3)
    honest = Replicator.new
    monkeypatch.setattr(Replicator, "new", lambda: honest(liar))
    cluster.start(3)
    monkeypatch.undo()
    cluster.wait_whole()
    pairs = [ends.connect() for _ in range(5)]
    cluster.world.via(3)
    assert not any(talks(near, far) for near, far in pairs)
    cluster.world.via(2)
    assert all(talks(near, far) for near, far in [ends.connect()])
    cluster.stop(3)
    cluster.start(3)
    cluster.wait_whole()


def test_a_flood_of_half_open_connections_evicts_no_established_one(cluster: Cluster, ends: Ends) -> None:
    pairs = [ends.connect() for _ in range(20)]
    flooder = cluster.world.inside(CLIENT, lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW))
    flood = 150_000  # more than the table of half-open connections holds
    with flooder:
        for number in range(flood):
            flooder.sendto(_syn(number), (SERVER4, 0))
    assert counted(cluster, 1, "changes") >= flood
    for member in (1, 2, 3):
        assert states(cluster, member).count(State.ESTABLISHED) == 20
    assert 50_000 < states(cluster, 1).count(State.SYN_SENT) <= 131_072
    assert all(talks(near, far) for near, far in pairs)
    assert talks(*ends.connect())
    cluster.world.via(2)
    assert all(talks(near, far) for near, far in pairs)


def _syn(number: int) -> bytes:
    """A SYN of nobody, with a TCP checksum that the server does not take."""
    source = struct.pack(">I", 0xC6120000 + number)
    head = struct.pack(">BBHHHBBH", 0x45, 0, 40, 0, 0, 64, 6, 0) + source + socket.inet_aton(SERVER4)
    return head + struct.pack(">HHIIBBHHH", 1024, PORT, number, 0, 0x50, 2, 1000, 1, 0)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users may read."""
    with TemporaryDirectory(dir="/var/tmp") as path:
        Path(path).chmod(0o755)
        yield Path(path)


def test_members_on_the_command_line(open_folder: Path) -> None:
    """Two processes find each other; one is shown, and shares otherwise from then on.

    They have the rights of their unit and no others.
    """
    rights = with_rights_of("aclflow-statesync") if is_readable_by_others() else []
    key = open_folder / "key"
    key.touch(mode=0o600)
    key.write_text(SECRET.hex())
    os.chown(key, int(USER), int(USER))
    lists = open_folder / "lists.json"
    tenant = {"prefixes": [SERVER4], "acl": {"rules": [], "ingress_default": "permit"}}
    lists.write_text(json.dumps({"generation": 1, "tenants": [tenant]}))
    with World(2, "sstest2-") as world, ExitStack() as stack:
        members = [f"--member={each}={world.address(each)}" for each in world.members]
        others = ["--interface=c", "--interface=s", "--messages=x", f"--key-file={key}", f"--lists={lists}"]
        for each in world.members:
            place = f"--metrics={world.address(each)}:{METRICS_PORT}"
            command = [*rights, *ACLFLOW, "run", f"--self={each}", *members, *others, place]
            process = world.inside(each, lambda command=command: subprocess.Popen(command))
            stack.callback(lambda process=process: (process.terminate(), process.wait()))

        def shown() -> dict[str, Any]:
            try:
                return json.loads(world.run(1, *ACLFLOW, "show", "--json"))
            except subprocess.CalledProcessError:
                return {}

        wait_until(lambda: shown().get("followers") == [2], "they do not find each other")
        with Ends.only(world) as ends:
            assert talks(*ends.connect())
            world.run(1, *ACLFLOW, "add", f"2={world.address(2)}", "3=10.9.3.1")  # the first is known already
            for wrong in ("2=10.9.0.9", "16=10.9.0.9", "3=nowhere"):
                with pytest.raises(subprocess.CalledProcessError):
                    world.run(1, *ACLFLOW, "add", wrong)
            for wrong in ("2", "7", "two"):  # it takes part; there is none; it is no number
                with pytest.raises(subprocess.CalledProcessError):
                    world.run(1, *ACLFLOW, "remove", wrong)
            assert shown()["followers"] == [2]
            world.run(1, *ACLFLOW, "remove", "3")
            with pytest.raises(subprocess.CalledProcessError):
                world.run(1, *ACLFLOW, "remove", "3")
            world.run(1, *ACLFLOW, "set", "--level", "none")
            found = shown()
            _look_from_elsewhere(world)
            lists.write_text("{")  # refused, and changes nothing
            fresh = open_folder / "fresh"
            fresh.write_text(json.dumps({"generation": 2, "tenants": []}))
            assert talks(*ends.connect())
            fresh.rename(lists)
            wait_until(lambda: not _states_in(shown(), "ESTABLISHED"), "connections that no list permits live on", 10)
        assert (found["level"], found["held"], found["counters"]["released"]) == ("none", 0, 1)
        assert {"protocol": "tcp", "state": "ESTABLISHED", "count": 1} in found["states"]


def _states_in(found: dict[str, Any], state: str) -> int:
    return sum(each["count"] for each in found.get("states", ()) if each["state"] == state)


def _look_from_elsewhere(world: World) -> None:
    """`aclflow firewall cluster` and Prometheus see both members; one that does not answer is said to."""
    both = [f"{world.address(each)}:{METRICS_PORT}" for each in world.members]
    found = json.loads(world.run(2, *ACLFLOW[:-1], "firewall", "cluster", *both, "--json"))
    assert [found[each]["followers"] for each in both] == [[2], [1]]
    assert {"protocol": "tcp", "state": "ESTABLISHED", "count": 1} in found[both[1]]["states"]
    ask = f"import urllib.request as u; print(u.urlopen('http://{both[0]}/metrics').read().decode())"
    told = world.run(2, sys.executable, "-c", ask)
    assert 'aclflow_cluster_connections{member="1",protocol="tcp",state="ESTABLISHED"} 1.0' in told
    assert 'aclflow_cluster_serves{member="1"} 1.0' in told
    assert 'aclflow_cluster_lag{followed="2",member="1"} 0.0' in told
    nobody = f"{world.address(1)}:1"
    with pytest.raises(subprocess.CalledProcessError) as caught:
        world.run(2, *ACLFLOW[:-1], "firewall", "cluster", both[0], nobody)
    assert caught.value.returncode == 1
    rows = [line.split("\t") for line in caught.value.stdout.splitlines()]
    assert rows[1][:5] == [both[0], "1", "yes", "yes", "2"]
    assert rows[2][:3] == [nobody, "-", "does not answer"]
