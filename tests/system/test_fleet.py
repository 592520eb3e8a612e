"""A fleet in a whole lab: VNFs are made as load comes, real agents enforce in them, real packets prove them."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from orchestrator.client import Client
from orchestrator.enforce.trial import came_through
from orchestrator.lab import bridges, namespaces, pop, processes, specfile
from orchestrator.lab.cloud import LabCloud, LabVnf
from orchestrator.lab.layout import Layout
from orchestrator.lab.pop import Lab
from orchestrator.lab.service import SERVICE, ControlPlane
from orchestrator.lab.wire import Wire, shot
from orchestrator.policy.addresses import Family, parse_address
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.model import Packet, TenantId
from orchestrator.policy.protocols import TCP, UDP
from orchestrator.scaling.buckets import BUCKETS
from orchestrator.scaling.capacity import Measured
from orchestrator.wire.firewalls import Fleet

POP = specfile.parse(
    """
    hosts: [{name: host1}]
    clients: [{name: outside, addresses: [192.0.2.1]}]
    tenants: [{id: shop, prefixes: [198.51.100.0/24]}]
    endpoints: [{name: web, tenant: shop, host: host1, addresses: [198.51.100.10]}]
    spread: true
    """
)
POLICY = acl_from_json(
    {"rules": [{"id": "web", "action": "permit", "protocol": "tcp", "destination_ports": "8000"},
               {"id": "load", "action": "permit", "protocol": "udp", "destination_ports": "9"}]}
)  # fmt: skip
PATIENCE_S = 90.0
PATIENT = {"silent_s": 6.0, "sick_s": 8.0, "steady_s": 1.0, "drain_s": 20.0}
"""On a machine that does nine other things, silence says little."""
SERVER = """
import socket
server = socket.socket(); server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(("198.51.100.10", 8000)); server.listen(5)
while True:
    each, _ = server.accept()
    while octets := each.recv(65536):
        each.sendall(octets)
"""
TALKER = """
import socket, sys, time
while True:
    try:
        talk = socket.create_connection(("198.51.100.10", 8000), timeout=30)
        break
    except ConnectionRefusedError:  # who answers is still starting
        time.sleep(0.2)
count = 0
while True:
    message = b"%08d" % count
    talk.sendall(message)
    got = b""
    while len(got) < 8:
        more = talk.recv(8 - len(got))
        if not more:
            sys.exit("cut after %d" % count)
        got += more
    assert got == message, (got, message)
    count += 1
    print(count, flush=True)
    time.sleep(0.02)
"""
LOAD = """
import socket, sys, time
rate = float(sys.argv[1])
sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(32)]
for number, each in enumerate(sockets):
    each.bind(("192.0.2.1", 30000 + number))
began, sent = time.monotonic(), 0
while True:
    while sent < (time.monotonic() - began) * rate:
        sockets[sent % 32].sendto(b"x" * 100, ("198.51.100.10", 9)); sent += 1
    time.sleep(0.005)
"""


@pytest.fixture(scope="module")
def lab(layout: Layout) -> Lab:
    built = pop.up(layout, POP)
    ControlPlane(built).start({TenantId("shop"): POLICY})
    return built


@pytest.fixture(scope="module")
def client(lab: Lab) -> Iterator[Client]:
    with ControlPlane(lab).client() as found:
        yield found


@contextmanager
def running(lab: Lab, node: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A Python program inside a node, until the block ends."""
    command = ["ip", "netns", "exec", lab.layout.namespace(node), sys.executable, "-c", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def until(client: Client, holds: Callable[[Fleet], bool], what: str) -> Fleet:
    began = time.monotonic()
    while True:
        fleet = client.fleet.read("pop1")
        if holds(fleet):
            return fleet
        told = [(each.name, each.state, each.because, each.trouble) for each in fleet.members]
        assert time.monotonic() - began < PATIENCE_S, (what, fleet.because, told)
        time.sleep(0.1)


def serving(fleet: Fleet) -> list[str]:
    return [each.name for each in fleet.members if each.state == "serving"]


def processes_of(lab: Lab) -> list[int]:
    """The agents that run in VNFs: what is the lab's, and neither in our own network namespace nor in its switches'."""
    ours = [Path("/proc/self/ns/net"), Path("/run/netns", lab.layout.ovs_namespace)]
    known = {path.stat().st_ino for path in ours}
    return [
        process.pid
        for process in processes.marked_processes(lab.layout.run_dir)
        if _network_of(process.pid) not in known
    ]


def _network_of(pid: int) -> int:
    """The network namespace of a process; that of this one for a process that has ended."""
    for place in (pid, "self"):
        with suppress(OSError):
            return Path("/proc", str(place), "ns", "net").stat().st_ino
    raise AssertionError


def vnfs(lab: Lab) -> list[str]:
    """The namespaces of VNFs."""
    return [name for name in namespaces.with_prefix(lab.layout.prefix) if "-fw-" in name]


def test_it_grows_under_load_and_shrinks_again_and_no_connection_is_cut(lab: Lab, client: Client) -> None:
    """By really started agents; the connection that is open all the time goes on through every change."""
    client.fleet.add_capacity(
        "nftables", [Measured(rules, 128, 300.0) for rules in (1, 100)], "small, so that little is much"
    )
    limits = {"fewest": 1, "most": 3, "cooldown_up_s": 1.0, "cooldown_down_s": 3.0, "peak_s": 5.0, "ahead_s": 1.0}
    client.fleet.configure("pop1", {"decide_every_s": 1.0, "limits": limits, "patience": PATIENT})
    until(client, lambda fleet: len(serving(fleet)) == 1, "the first serves")
    with running(lab, "web", SERVER), running(lab, "outside", TALKER) as talker:
        assert talker.stdout is not None
        talker.stdout.readline()
        with running(lab, "outside", LOAD, "500"):
            grown = until(client, lambda fleet: len(serving(fleet)) >= 2, "it grows")
            assert len(processes_of(lab)) >= 2
        shares = client.spread.read("pop1").firewalls
        assert sum(each.buckets for each in shares) == BUCKETS
        until(client, lambda fleet: len(fleet.members) == 1, "it shrinks")
        lines = [talker.stdout.readline() for _ in range(20)]
        assert talker.poll() is None, talker.stderr and talker.stderr.read()
        assert int(lines[-1]) > 20
    assert len(processes_of(lab)) == 1
    for member in grown.members:
        if member.served is not None:
            print(f"{member.name}: {(member.served - member.asked).total_seconds():.2f} s from the wish to serving")
    sizes = [(each.before, each.size) for each in client.fleet.read_decisions("pop1")]
    assert sizes[-1] == (0, 1)
    assert any(after > before >= 1 for before, after in sizes)
    assert any(after < before for before, after in sizes)


def test_behind_the_spreading_switch_nobody_outside_speaks_for_a_tenant(lab: Lab) -> None:
    """In the name of an address that no endpoint of this host has, so that the host could not tell."""
    lies = [_packet(f"198.51.100.{last}", "198.51.100.10", UDP, 9) for last in (1, 77, 254)]
    truth = _packet("192.0.2.1", "198.51.100.10", UDP, 9)
    shots = [shot(lab, "outside", each) for each in (*lies, truth)]
    with Wire(lab) as wire:
        for joint, seen in (
            (bridges.CLIENTS_TO_SPREAD, [(), (), (), ("web",)]),
            (bridges.HOSTS_TO_SPREAD, [("web",)] * 3 + [()]),
        ):
            match = f'priority=9000,in_port="{POP.clients[0].port}",ip'
            lab.ovs.ofctl("add-flow", "edge", f'{match},actions=output:"{joint}"')
            lab.ovs.forget()
            assert [one.nodes for one in wire.fire(shots)] == seen, joint
            lab.ovs.ofctl("del-flows", "edge", match, options=["--strict"])
        lab.ovs.forget()


def test_an_agent_that_is_killed_is_replaced_and_its_share_moves_at_once(lab: Lab, client: Client) -> None:
    client.fleet.configure("pop1", {"size": 2})
    before = until(client, lambda fleet: len(serving(fleet)) == 2, "two serve")
    victim = before.members[0]
    cloud = LabCloud(lab.layout)
    process = cloud.process_of(LabVnf("pop1", victim.name, victim.number))
    assert process is not None
    processes.send(process, signal.SIGKILL)

    def carries_none(fleet: Fleet) -> bool:
        silent = [each.name for each in fleet.members if not each.well and each.state == "serving"]
        shares = {each.carrier.name: each.buckets for each in client.spread.read("pop1").firewalls}
        return silent == [victim.name] and shares.get(victim.name, 0) == 0 and sum(shares.values()) == BUCKETS

    until(client, carries_none, "it is silent, and its share is with the other before it is given up")
    until(client, lambda fleet: len(set(serving(fleet)) - {victim.name}) == 2, "another serves")
    until(client, lambda fleet: victim.name not in {each.name for each in fleet.members}, "it is removed")


def test_the_service_killed_while_it_grows_leaves_nothing_behind(lab: Lab, client: Client) -> None:
    client.fleet.configure("pop1", {"size": 3})
    until(client, lambda fleet: len(fleet.members) >= 3, "the third is asked for")
    lab.kill(SERVICE)
    ControlPlane(pop.find(lab.layout)).start_service()
    until(client, lambda fleet: len(serving(fleet)) == 3, "three serve")
    client.fleet.configure("pop1", {"size": 0})
    until(client, lambda fleet: not fleet.members, "all are gone")
    deadline = time.monotonic() + PATIENCE_S
    while (vnfs(lab) or processes_of(lab)) and time.monotonic() < deadline:
        time.sleep(0.5)  # what was half made is swept
    assert (vnfs(lab), processes_of(lab)) == ([], [])


def test_packets_that_a_vnf_is_tried_with_meet_its_filter(layout: Layout) -> None:
    """In at one end of a namespace that filters, out at the other or not; and nothing stays behind."""
    name = f"{layout.prefix}tried"
    namespaces.create(name)

    def tried() -> tuple[tuple[bool, ...], str]:
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        Path("/proc/sys/net/ipv6/conf/all/forwarding").write_text("1")
        rules = (
            "table inet t { chain f { type filter hook forward priority 0; tcp dport 81 drop; udp dport 53 drop; }; }"
        )
        subprocess.run(["nft", "-f", "-"], input=rules, text=True, check=True)
        found = came_through([_packet("192.0.2.1", "10.0.0.1", TCP, port) for port in (80, 81, 82)]
                             + [_packet("2001:db8::1", "2001:db8:1::1", UDP, port) for port in (53, 54)])  # fmt: skip
        links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
        return found, links + subprocess.run(["ip", "rule"], capture_output=True, text=True, check=True).stdout

    try:
        found, left = namespaces.inside(name, tried)
    finally:
        namespaces.remove(name)
    assert found == (True, False, True, False, True)
    assert "acl-t" not in left


def _packet(source: str, destination: str, protocol: int, port: int) -> Packet:
    family, from_ = parse_address(source)
    flags = 2 if protocol == TCP else 0
    assert family in Family
    return Packet(family, from_, parse_address(destination)[1], protocol, 40000, port, tcp_flags=flags)
