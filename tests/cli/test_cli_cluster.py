"""Clusters on the command line: members, what each owns, lag, packets held, connections by state; the key's file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from cli.tenantlists import Run
from served import Served

from orchestrator.client.spread import Carrier, Link
from orchestrator.lab.processes import free_port
from orchestrator.statesync.status import Followed, StateCount, Status, StatusServer

HOST = "127.0.0.1"
FIRST = Status(
    1, "full", "dirty", "synchronous", serves=True, is_whole=True, followers=(2,), followed=(Followed(2, True, 0),),
    held=3, states=(StateCount("tcp", "ESTABLISHED", 1200), StateCount("udp", "ONE_WAY", 4)), counters={},
)  # fmt: skip
SECOND = replace(
    FIRST, member=2, followers=(1,), followed=(Followed(1, True, 0),), held=0,
    states=(StateCount("tcp", "ESTABLISHED", 1198),),
)  # fmt: skip


@pytest.fixture
def members() -> Iterator[list[str]]:
    """Two members that say these things, and where."""
    with ExitStack() as stack:
        places = []
        for status in (FIRST, SECOND):
            server = StatusServer(HOST, port := free_port(), partial(_say, status))
            stack.callback(server.close)
            places.append(f"{HOST}:{port}")
        yield places


def _say(status: Status) -> Status:
    return status


def cells(text: str) -> list[list[str]]:
    return [line.split("\t") for line in text.splitlines()]


def test_connections_are_shown_by_state_for_each_member(run: Run, members: list[str]) -> None:
    told = run("firewall", "cluster", *members)
    assert told.code == 0, told.err
    assert cells(told.out)[3:] == [
        ["protocol", "state", "member 1", "member 2"],
        ["tcp", "ESTABLISHED", "1200", "1198"],
        ["udp", "ONE_WAY", "4", "0"],
    ]
    assert cells(told.out)[1][5:7] == ["2:0", "3"]
    found = run("firewall", "cluster", *members, "--json").json()
    assert "buckets" not in found[members[0]], "nobody was asked for them"
    assert cells(run("firewall", "cluster", *members, "--table", "states", "-o", "csv").out)[1] == [
        "tcp,ESTABLISHED,1200,1198"
    ]


def test_what_each_member_owns_is_the_services_to_say(run: Run, service: Served, members: list[str]) -> None:
    """A bucket is a firewall's by its number; a member that the spread does not name owns none."""
    links = [Link(f"{side}1", f"0a:00:00:00:00:0{at}") for at, side in ((1, "l"), (2, "r"))]
    with service.client() as client:
        client.domains.create("pop")
        client.spread.configure("pop", [Carrier("fw1", 1, *links)], stateful=True, synchronised=True)
    told = run("firewall", "cluster", *members, "--spread", "pop")
    assert told.code == 0, told.err
    assert [row[-1] for row in cells(told.out)[:3]] == ["owns", "256 of 256", "0 of 256"]
    found = run("firewall", "cluster", *members, "--spread", "pop", "--json").json()
    assert [found[place]["buckets"] for place in members] == [256, 0]
    with service.client() as client:
        controller = client.enrolment.enrol(client.enrolment.invite("pop"), name="spreader", kind="openflow")
        assert "carries" in run("spread", "show", "pop").out
        assert "hears nothing" not in run("spread", "show", "pop").out
        with service.client(controller.token) as other:
            other.spread.report_links("pop", controller.enforcer, ["r1"])
        shown = run("spread", "show", "pop")
        assert "the switch hears nothing of fw1; the traffic goes through nobody" in shown.out
        assert run("spread", "show", "pop", "--json").json()["firewalls"][0]["given_up"] is True
        assert [each.kind for each in client.events.read(limit=1000).items].count("firewall.given-up") == 1
    missing = run("firewall", "cluster", *members, "--spread", "nowhere")
    assert (missing.code, "nowhere" in missing.err) == (1, True)


@pytest.mark.parametrize("mode", [0o640, 0o604])
def test_a_key_that_others_may_read_is_no_key(run: Run, tmp_path: Path, mode: int) -> None:
    key = tmp_path / "key"
    key.write_text("00" * 16)
    key.chmod(mode)
    member = ("--self", "1", "--member", "1=10.9.0.1", "--interface", "c", "--messages", "x", "--key-file", str(key))
    told = run("statesync", "run", *member)
    assert told.code != 0
    assert "others may read" in told.err
    assert "chmod 600" in told.err
