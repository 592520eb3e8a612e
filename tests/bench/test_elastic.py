"""The suite of the elastic fleet without its lab: the load's course, its sender and talkers, its figures."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from orchestrator.bench.elastic import receiver, sender, talkers
from orchestrator.bench.elastic.suite import FRAME_OCTETS, Phase, Seen, Sizes, conclude, when_sent
from orchestrator.bench.results import Results

SIZES = Sizes(0.5, (Phase(10, 0.5), Phase(10, 2.5), Phase(5, 0.5)), cap_mbps=8.0, connections=3, runs=1)
RUN = Seen(
    offered=(100, 200), carried={0: 100, 1: 199}, missed={}, sizes=((0.0, 1), (1.0, 3), (2.0, 2)), sent=300, came=300,
    cut=0, answers=40, to_serving_s=(1.5, 2.5, 2.0), left=1, to_move_away_s=1.5,
)  # fmt: skip


def test_the_load_goes_evenly_from_phase_to_phase() -> None:
    one = SIZES.capacity_pps
    assert one * FRAME_OCTETS * 8 == pytest.approx(8e6)
    wanted = {0: 0.5, 9.99: 0.5, 15: 1.5, 20: 2.5, 22.5: 1.5, 25: 0.5, 99: 0.5}
    assert {at: SIZES.pps(at) / one for at in wanted} == pytest.approx(wanted, abs=0.01)
    for sizes in (Sizes.quick(), Sizes.full()):
        assert max(sizes.pps(at) for at in range(int(sizes.seconds))) > sizes.capacity_pps
        assert sizes.pps(sizes.seconds) < sizes.capacity_pps * 0.6


def figures(run: Seen) -> Results:
    results = Results("elastic", {})
    conclude(results, [run])
    return results


def test_nothing_lost_and_nothing_cut_meets_the_targets() -> None:
    found = figures(RUN).figures
    for name in ("packets_lost", "connections_cut", "seconds_to_serving", "seconds_to_move_away"):
        target = found[name].target
        assert target is not None
        assert target.met(found[name].median)
    assert found["seconds_to_serving"].median == 2.0
    assert found["most_vnfs"].median == 3


def test_one_packet_lost_or_one_connection_cut_does_not() -> None:
    for run, name in ((replace(RUN, came=299), "packets_lost"), (replace(RUN, cut=1), "connections_cut")):
        figure = figures(run).figures[name]
        assert figure.target is not None
        assert not figure.target.met(figure.median)


def test_a_fleet_that_never_grew_says_so() -> None:
    assert "seconds_to_serving" in figures(replace(RUN, to_serving_s=())).absent


def test_the_sender_sends_what_it_is_asked_for_in_turns_over_its_flows() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taking:
        taking.bind(("127.0.0.1", 0))
        taking.settimeout(5)
        sent = sender.send("127.0.0.1", taking.getsockname()[1], 100, 4, [100.0] * 5)
        assert sum(sent) == 50
        got = [sender.NUMBER.unpack_from(taking.recv(200)) for _ in range(50)]
    assert sorted(got) == sorted((flow, number) for number in range(13) for flow in range(4) if 4 * number + flow < 50)


class Answers(socketserver.StreamRequestHandler):
    """Answers so many lines, then falls silent and closes."""

    lines = 10**9

    def handle(self) -> None:
        for _, line in zip(range(self.lines), self.rfile, strict=False):
            self.wfile.write(line)


@pytest.fixture
def port() -> Iterator[int]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answers) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def test_talkers_tell_who_was_cut(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(talkers, "EVERY_S", 0.01)
    whole = talkers.talk("127.0.0.1", port, 3, 0.2)
    assert whole["cut"] == 0
    assert whole["answers"] >= 3
    monkeypatch.setattr(Answers, "lines", 1)
    assert talkers.talk("127.0.0.1", port, 3, 0.2)["cut"] == 3


def test_what_did_not_come_is_told_with_the_second_in_which_it_was_sent() -> None:
    """Three flows in turn: 0.0 1.0 2.0 0.1 | 1.1 2.1 0.2 1.2."""
    sent = [(flow, number) for number in range(3) for flow in range(3)][:8]
    lost = [(0, 1), (1, 1)]
    seen = {sender.NUMBER.pack(*each) for each in sent if each not in lost}
    assert sorted(receiver.missing(seen)) == lost
    assert when_sent([4, 4], 3, lost) == {0: 1, 1: 1}
    notes = figures(replace(RUN, came=298, missed={0: 1, 1: 1})).notes
    assert any("0 s: 1, 1 s: 1" in note and "1 s: 3, 2 s: 2" in note for note in notes)
