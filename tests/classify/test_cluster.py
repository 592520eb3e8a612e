"""A replay on a Dask cluster gives the answer of one machine, whatever happens to workers."""

from __future__ import annotations

import json
import os
import signal
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import pytest
from classify.recorded import V4, ethernet, ipv4, packed, packet_block, pcap_header, tcp, udp, web
from classify.test_timeline import an_interface, at, section
from command_line import aclflow
from distributed import LocalCluster

from orchestrator.classify.captures import open_capture
from orchestrator.classify.cluster import Question, replay_on
from orchestrator.classify.replay import Replay, replay
from orchestrator.errors import BadInput, Missing, Refused, Unreachable
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.model import Acl, Action, Rule, RuleId
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import TCP

WEB = Rule(RuleId("web"), Action.PERMIT, protocol=TCP, destination_ports=(PortRange(80, 80),))
QUESTION = Question(Acl((WEB,)), Acl(()), (Prefix.parse("198.51.100.0/24"),))
SHARE = 20_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Two workers. A dead one is asked for its results for 2 s, not 30."""
    ports = {"dashboard_address": "127.0.0.1:0", "worker_dashboard_address": "127.0.0.1:0", "host": "127.0.0.1"}
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "2s"}),
        LocalCluster(n_workers=2, threads_per_worker=1, **ports) as made,
    ):
        yield made


def frame(number: int) -> bytes:
    """A packet of one of many flows; some go to nobody, some are cut."""
    payload = (tcp(destination=80 + number % 3), udp(), tcp()[:7])[number % 13 % 3]
    ends = f"192.0.2.{number % 250}", ("198.51.100.7", "203.0.113.1")[number % 11 == 0]
    return ethernet(V4, ipv4(17 if number % 13 % 3 == 1 else 6, payload, *ends))


def plain(count: int, begin: int = 0) -> bytes:
    found = [
        struct.pack("<IIII", 1_700_000_000 + number, 0, len(each), len(each)) + each
        for number in range(begin, begin + count) for each in (frame(number),)
    ]  # fmt: skip
    return pcap_header() + b"".join(found)


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Plain and packed ones, one with two sections of pcapng whose interfaces have clocks of their own, one cut off."""
    folder = tmp_path_factory.mktemp("captures")
    ng = b"".join(
        section()
        + an_interface("<", (9, bytes((unit,))))
        + b"".join(at(number * 10**unit, 0, "<") for number in range(700))
        for unit in (9, 3)
    )
    written = {
        "a.pcap": plain(4_000), "b.pcap.gz": packed(plain(2_000, 5_000), 3), "c.pcapng": ng + packet_block(web()),
        "d.pcap": plain(3_000, 9_000)[:-10],
    }  # fmt: skip
    for name, data in written.items():
        (folder / name).write_bytes(data)
    return [str(folder / name) for name in written]


def here(captures: list[str]) -> Replay:
    def opened() -> Iterator[Any]:
        for name in captures:
            with open_capture(name) as capture:
                yield capture

    return replay(opened(), *QUESTION.lists(), threads=2)


def answer(found: Replay) -> dict[str, Any]:
    """All that a replay says."""
    return {
        "captures": found.captures, "all": found.all, "nobodys": found.nobodys, "unread": found.unread,
        "remarks": found.remarks, "permitted": found.of_list.permitted, "denied": found.of_list.denied,
        "by rule": found.of_list.packets.tolist(), "bytes": found.of_list.byte_counts.tolist(),
        "other": None if found.of_other is None else found.of_other.packets.tolist(),
        "flows": [*found.denied_flows.largest()], "opened": [*found.changed.permitted_flows.largest()],
        "closed": [*found.changed.denied_flows.largest()], "times": [*found.timeline.intervals()],
    }  # fmt: skip


def test_the_answer_is_that_of_one_machine(cluster: LocalCluster, captures: list[str]) -> None:
    done: list[int] = []
    found = replay_on(cluster.scheduler_address, captures, QUESTION, share_bytes=SHARE, told=done.append)
    assert answer(found) == answer(here(captures))
    assert len(done) > 20, "captures are read in shares"
    assert done[-1] == sum(os.path.getsize(name) for name in captures)


def test_shares_of_workers_that_die_are_given_to_others(cluster: LocalCluster, captures: list[str]) -> None:
    killed: list[int] = []

    def kill(_: int) -> None:
        """A worker, while others are in work, three times."""
        alive = [each.process.pid for each in cluster.workers.values() if each.process and each.process.pid]
        if len(killed) < 3 and alive and alive[0] not in killed:
            killed.append(alive[0])
            os.kill(alive[0], signal.SIGKILL)

    found = replay_on(cluster.scheduler_address, captures, QUESTION, share_bytes=SHARE // 2, told=kill)
    assert killed
    assert answer(found) == answer(here(captures))


def test_damage_is_told_with_its_place(cluster: LocalCluster, captures: list[str], tmp_path: Path) -> None:
    path = tmp_path / "bad.pcap"
    path.write_bytes(plain(2_000)[:-54] + b"\xff" * 54 + bytes(100))
    with pytest.raises(BadInput, match="packet 2000, at byte") as caught:
        replay_on(cluster.scheduler_address, [captures[0], str(path)], QUESTION, share_bytes=SHARE)
    with pytest.raises(BadInput) as alone:
        here([str(path)])
    assert str(caught.value) == str(alone.value)
    with pytest.raises(Missing, match="cannot be read"):
        replay_on(cluster.scheduler_address, [str(tmp_path / "none.pcap")], QUESTION)


def fail(*_: object) -> None:
    raise ZeroDivisionError("of a worker")


def test_what_a_worker_cannot_do_is_refused(
    cluster: LocalCluster, captures: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.classify.cluster._sums", fail)
    with pytest.raises(Refused, match="a worker cannot replay it: ZeroDivisionError: of a worker"):
        replay_on(cluster.scheduler_address, captures[:1], QUESTION)


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_share_with_which_every_worker_dies_is_given_up(
    cluster: LocalCluster, captures: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.classify.cluster._sums", die)
    monkeypatch.setattr("orchestrator.classify.cluster._RETRIES", 1)
    with pytest.raises(Unreachable, match="workers died with it"):
        replay_on(cluster.scheduler_address, captures[:1], QUESTION)


def test_a_scheduler_that_is_not_there(monkeypatch: pytest.MonkeyPatch, captures: list[str]) -> None:
    monkeypatch.setattr("orchestrator.classify.cluster._PATIENCE_S", 0.5)
    with pytest.raises(Unreachable, match="no scheduler of Dask answers"):
        replay_on("tcp://127.0.0.1:9", captures, QUESTION)


def test_without_dask_it_is_missing(monkeypatch: pytest.MonkeyPatch, captures: list[str]) -> None:
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    with pytest.raises(Missing, match=r"aclflow\[dask\]"):
        replay_on("tcp://127.0.0.1:9", captures, QUESTION)


def test_from_the_command_line(cluster: LocalCluster, captures: list[str], tmp_path: Path) -> None:
    listed = tmp_path / "list.json"
    listed.write_text(
        json.dumps({"rules": [{"id": "web", "action": "permit", "protocol": "tcp", "destination_ports": ["80"]}]})
    )
    pattern = str(Path(captures[0]).parent / "*.pcap*")
    call = ("replay", pattern, "--acl", str(listed), "--for", "198.51.100.0/24", "--json")
    told = aclflow(*call, "--dask", cluster.scheduler_address)
    assert told.code == 0
    assert told.json() == aclflow(*call).json()
    assert told.json()["captures"] == captures
    for more, words in (
        (("--device", "auto"), "workers of a cluster search on their processors"),
        (("-",), "workers read captures from files"),
    ):
        assert words in aclflow(*call, "--dask", cluster.scheduler_address, *more).err
    assert "no capture is called so" in aclflow("replay", str(tmp_path / "*.pcap"), "--acl", str(listed)).err


def test_a_lost_connection_is_told(captures: list[str]) -> None:
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0", host="127.0.0.1") as made,
        pytest.raises(Unreachable),
    ):
        replay_on(
            made.scheduler_address, captures, QUESTION, share_bytes=SHARE // 4, told=lambda _: made.close(timeout=5)
        )
