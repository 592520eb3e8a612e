"""What the tools and the switch print is read as it is meant, and a run in which something failed is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from orchestrator.bench.traffic import filters, httperf, iperf, vnf
from orchestrator.bench.traffic.addresses import Clients, in_turn
from orchestrator.bench.traffic.line import Line
from orchestrator.compile.filters.iptables import iptables_texts
from orchestrator.errors import Refused, Unreachable
from orchestrator.lab.network import INTERFACE
from orchestrator.policy.addresses import Family, Prefix
from orchestrator.policy.model import Acl, Action, Policy, Rule, RuleId, Tenant, TenantId

HTTPERF = """\
httperf --timeout=10 --client=0/1 --server=198.18.29.40 --port=80 --uri=/page --wsess=16,250,0.000
Maximum connect burst length: 1

Total: connections 4000 requests 4000 replies 4000 test-duration 0.516 s

Connection rate: 7753.5 conn/s (0.1 ms/conn, <=16 concurrent connections)
Connection time [ms]: min 0.1 avg 0.6 max 5.1 median 0.5 stddev 0.5
Connection time [ms]: connect 0.2
Connection length [replies/conn]: 1.000

Request rate: 7753.5 req/s (0.1 ms/req)
Reply status: 1xx=0 2xx=4000 3xx=0 4xx=0 5xx=0

Errors: total 0 client-timo 0 socket-timo 0 connrefused 0 connreset 0
Errors: fd-unavail 0 addrunavail 0 ftab-full 0 other 0
"""


def test_httperf_reports_a_rate_of_answers_and_times() -> None:
    found = httperf.read(HTTPERF)
    assert found == httperf.Requests(4000, 4000 / 0.516, 0.2, 0.6)


@pytest.mark.parametrize(
    ("said", "instead"),
    [
        ("Errors: total 0", "Errors: total 3"),
        ("2xx=4000", "2xx=3999"),
        ("2xx=4000 3xx=0 4xx=0", "2xx=0 3xx=0 4xx=4000"),
        ("replies 4000", "replies 0"),
    ],
)
def test_requests_that_were_not_answered_well_are_not_counted(said: str, instead: str) -> None:
    assert said in HTTPERF
    with pytest.raises(Unreachable):
        httperf.read(HTTPERF.replace(said, instead))


def test_another_programs_words_are_no_report() -> None:
    with pytest.raises(Refused, match="replies"):
        httperf.read("httperf: invalid option")


def test_iperf_reports_what_it_sent() -> None:
    document = {"end": {"sum": {"packets": 72670, "lost_packets": 12, "seconds": 1.0015, "bytes": 106970240}}}
    assert iperf.read(json.dumps(document)) == (72670, 1.0015)


@pytest.mark.parametrize("text", ['{"error": "unable to connect"}', '{"end": {}}', "[]", "nothing"])
def test_a_run_of_iperf_that_failed_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="iperf3"):
        iperf.read(text)


def test_frames_are_counted_at_the_right_interface() -> None:
    text = (
        "Inter-|   Receive                                                |  Transmit\n"
        " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs\n"
        "    lo:     100       1    0    0    0     0          0         0      100       1    0\n"
        "  eth0: 2098452    1393    0    0    0     0          0         0     4242      51    0\n"
    )
    assert iperf.received_frames(text, "eth0") == 1393
    with pytest.raises(Refused):
        iperf.received_frames(text, "eth1")


def test_the_switchs_words_about_its_cache() -> None:
    stats = (
        "pmd thread numa_id 0 core_id 1:\n"
        "  packets received: 100\n"
        "  miss with success upcall: 7\n"
        "  miss with failed upcall: 2\n"
        "main thread:\n"
        "  miss with success upcall: 30\n"
        "  miss with failed upcall: 0\n"
    )
    assert vnf.missed_packets(stats) == 39
    shown = "netdev@ovs-netdev:\n  lookups: hit:5 missed:3 lost:1\n  flows: 258\n  port 0: x\n"
    assert vnf.megaflows(shown) == 258
    assert vnf.handled_packets(shown) == 9
    for reader in (vnf.missed_packets, vnf.megaflows, vnf.handled_packets):
        with pytest.raises(Refused):
            reader("ovs-vswitchd: no such thing")


def test_a_baseline_carries_no_comments_and_all_its_rules() -> None:
    rule = Rule(RuleId("r"), Action.DENY, protocol=6)
    tenant = Tenant(TenantId("t"), 1, (Prefix.parse("198.18.0.0/16"),), Acl((rule,)), {"r": 1})
    text = iptables_texts(Policy((tenant,)))[Family.IPV4]
    plain = filters.drop_comments(text)
    assert "--comment" in text
    assert "comment" not in plain
    assert [line.split()[-1] for line in plain.splitlines()] == [line.split()[-1] for line in text.splitlines()]
    assert plain.count("\n") == text.count("\n")


_CONNECTING = """
import socket
for _ in range(6):
    caller = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    caller.connect(("127.0.0.1", 9))
    print(caller.getsockname()[0])
"""


def _sources(library: Path, block: str) -> subprocess.CompletedProcess[str]:
    settings = {**os.environ, "LD_PRELOAD": str(library), "ACLBENCH_SOURCES": block}
    return subprocess.run(
        [sys.executable, "-c", _CONNECTING], capture_output=True, text=True, env=settings, check=False
    )


def test_connections_take_the_addresses_of_a_block_in_turn(tmp_path: Path) -> None:
    library = httperf.compile_library(tmp_path)
    for text in ("127.64.0.0/10", "127.0.0.9/32"):
        done = _sources(library, text)
        assert tuple(done.stdout.split()) == in_turn(Prefix.parse(text), 6), done.stderr
    assert _sources(library, "nonsense").returncode == 2


def test_every_client_of_a_block_comes_before_any_comes_again() -> None:
    block = Prefix.parse("10.9.8.0/24")
    assert len(set(in_turn(block, 128))) == 128
    assert in_turn(block, 129)[128] == in_turn(block, 1)[0]
    assert all(Clients.OUTSIDE.value.holds(Prefix.parse(each).network) for each in Clients.OUTSIDE.addresses(50))


class _BusyServer:
    """A line whose iperf3 server refuses some tests; two frames reach it meanwhile."""

    def __init__(self, *refusals: str) -> None:
        self.refusals, self.frames = list(refusals), 0

    def inside(self, role: str, call: Callable[[], str]) -> str:
        return f"{INTERFACE}: 0 {self.frames} 0\n"

    def run(self, role: str, *command: str) -> str:
        if self.refusals:
            self.frames += 2
            raise Refused(f"iperf3: error - {self.refusals.pop(0)}")
        self.frames += 7
        return json.dumps({"end": {"sum": {"packets": 9, "seconds": 1.0}}})


def test_a_server_that_still_ends_the_last_test_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iperf, "_AGAIN_S", 0)
    line = _BusyServer(*2 * ["the server is busy running a test. try again later"])
    assert iperf.flood(cast("Line", line), seconds=1) == iperf.Datagrams(9, 7, 1.0)
    other = _BusyServer("unable to connect to server")
    with pytest.raises(Refused, match="unable to connect"):
        iperf.flood(cast("Line", other), seconds=1)
