"""Recorded captures through the kernel's packet filters and through a cluster: a part of what the oracle permits.

Recorded packets have real ends, with their sequence numbers, windows and odd packets. `captures/talks.pcap` is our own:
web, names and echo in both IP versions, refusals, and a connection that began before the recording. More are in the
folder pcap/ of ACLFLOW_DATA, if that names one.
"""

from __future__ import annotations

import itertools
import json
import select
import socket
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import cast

import pytest
from enforce.test_openflow_tracked_law import Recorded, endpoint_policy, recorded
from public_data import CAPTURES
from statesync.programbench import DROP, PASS, Bench, built
from system.sharing_ground import held
from system.test_filters_tracked import VARIANTS, Both, is_ours
from system.test_statesync_law import Law

from orchestrator.bench.state_sync.programs import Cluster
from orchestrator.bench.state_sync.syncworld import CLIENT, SERVER
from orchestrator.compile.filters import filtertracking
from orchestrator.enforce.drivers.openflow.frames import EXTENSION_HEADERS
from orchestrator.lab.layout import Layout
from orchestrator.lab.processes import wait_until
from orchestrator.lab.router import LEFT, RIGHT, Router, ethernet
from orchestrator.policy.addresses import Family
from orchestrator.policy.connections import NONE, decide_tracked
from orchestrator.policy.model import Action, Packet, Policy
from orchestrator.statesync.kernel import Replicator

pytestmark = pytest.mark.system

OWN = Path(__file__).parent / "captures" / "talks.pcap"
EVERY = (OWN, *CAPTURES)
MOST = 1_500
MOST_BYTES = 1_500
"""A link's, without its Ethernet header."""
LONG = pytest.param(None, marks=[pytest.mark.long, pytest.mark.timeout(3600)])


def can_cross(policy: Policy, each: Recorded) -> bool:
    """Whether a router forwards a packet, and one of its ends is the tenant's."""
    packet, ip = each.packet, each.whole[2:]
    ends = [address >> (packet.family.bits - 8) for address in (packet.source, packet.destination)]
    sides = {is_ours(policy, packet, end) for end in (packet.source, packet.destination)}
    hops = ip[8] if packet.family is Family.IPV4 else ip[7]
    return (
        len(sides) == 2 and all(0 < first < 224 and first != 127 for first in ends) and hops > 1
        and len(ip) <= MOST_BYTES
    )  # fmt: skip


def without_hops(ip: bytes) -> bytes:
    """An IP packet without what a router changes, and without what pads its frame."""
    if ip[0] >> 4 == 4:
        return ip[:8] + ip[9:10] + ip[12 : int.from_bytes(ip[2:4], "big")]
    return ip[:7] + ip[8 : 40 + int.from_bytes(ip[4:6], "big")]


def arrived(ends: Sequence[socket.socket], patience_s: float = 0.0) -> Iterator[bytes]:
    """The packets that have come out at some ends, without their hops."""
    while ready := select.select(ends, [], [], patience_s)[0]:
        for end in ready:
            frame, sent_by = end.recvfrom(1 << 16)
            if sent_by[2] != socket.PACKET_OUTGOING and frame[12:14] in (b"\x08\x00", b"\x86\xdd"):
                yield without_hops(frame[14:])


# ---------------------------------------------------------------------------------------------- filters of the kernel


@pytest.fixture(params=VARIANTS.values(), ids=VARIANTS)
def both(request: pytest.FixtureRequest, layout: Layout) -> Iterator[Both]:
    with Router(layout.prefix) as router:
        yield Both(router, request.param)


STRICTER: Mapping[str, int] = {
    "ftp_bigtransfer.pcap": 14,  # sequence numbers jump by gigabytes, which no window spans
    "http_bro.org.pcap": 1,  # an ACK outside of the window
    "ipv6-http-atomic-frag.pcap": 5,  # the kernel puts fragments together: what arrives has no fragment header
    "tcp_handshake-reorder.pcap": 7,  # the SYN+ACK was recorded before the SYN
    "tcp_reassembly.pcap": 3,  # the capture lacks segments, which these three acknowledge or follow
}
"""So many packets of a capture's beginning are dropped, and the oracle, which knows no windows, permits them."""


def replay(both: Both, policy: Policy, packets: Sequence[Recorded]) -> tuple[int, int]:
    """Send recorded packets in their order; how many passed, and how many were dropped that the oracle permits."""
    both.load(policy)
    both.real.empty_table()
    ends = [*both.router.sockets.values()]
    known, permitted, came = NONE, Counter[bytes](), Counter[bytes]()
    about: dict[bytes, Packet] = {}
    list(arrived(ends))  # of the capture before
    for each in packets:
        if not can_cross(policy, each):
            continue
        sender = RIGHT if is_ours(policy, each.packet, each.packet.source) else LEFT
        verdict = decide_tracked(policy, each.packet, known, each.quoted)
        known = verdict.connections
        sent = without_hops(each.whole[2:])
        permitted[sent] += verdict.decision.permitted
        about[sent] = each.packet
        both.router.sockets[sender].send(ethernet(int.from_bytes(each.whole[:2], "big"), each.whole[2:], sender))
        came.update(arrived(ends))
    came.update(arrived(ends, 0.1))
    for sent, packet in about.items():
        assert came[sent] <= permitted[sent], f"{packet} passed, and the oracle denies it"
    passed = sum(came[sent] for sent in about)
    return passed, permitted.total() - passed


def tenant_of(packets: Sequence[Recorded], inward: Action) -> Policy:
    """One tenant, which owns the most frequent address of each IP version, and opens what it wants."""
    return replace(endpoint_policy([each.packet for each in packets], inward), endpoints=())


@pytest.mark.parametrize("most", [MOST, LONG])
@pytest.mark.parametrize("inward", list(Action), ids=lambda action: action.value)
def test_filters_let_a_part_of_what_the_oracle_permits_through(both: Both, inward: Action, most: int | None) -> None:
    stricter, everything = {}, 0
    for capture in EVERY:
        packets = list(islice(recorded(capture), most))
        passed, dropped = replay(both, tenant_of(packets, inward), packets)
        everything += passed
        if dropped:
            stricter[capture.name] = dropped
    assert everything > (1_000 if CAPTURES else 60)
    if most == MOST:
        assert {name: dropped for name, dropped in stricter.items() if dropped > STRICTER.get(name, 0)} == {}


def test_a_filter_that_picks_connections_up_in_the_middle_is_noticed(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted bug: of TCP that is new, segments that are no SYN are not dropped."""
    nftables, iptables = filtertracking.nftables_chains, filtertracking.iptables_chains
    drops = ("meta l4proto 6 drop", "-p tcp -j DROP")

    def without(lines: Sequence[str]) -> list[str]:
        return [line for line in lines if line not in drops]

    monkeypatch.setattr(
        filtertracking, "nftables_chains", lambda *of: ((name, without(lines)) for name, lines in nftables(*of))
    )
    monkeypatch.setattr(
        filtertracking, "iptables_chains", lambda *of: ((name, tuple(without(lines))) for name, lines in iptables(*of))
    )
    packets = list(recorded(OWN))
    with pytest.raises(AssertionError, match="the oracle denies it"):
        replay(both, tenant_of(packets, Action.PERMIT), packets)


# ---------------------------------------------------------------------------------------------------------- a cluster

TURN = 40
"""After so many packets of a capture all that follow go through the next member."""
PATIENCE_S, LATE_S = 5.0, 0.05
DROPS = ("unreadable", "no_connection", "unexpected")
_QUIET = """table inet quiet {
 chain p {
  type filter hook prerouting priority -300;
  icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept
  drop
 }
}
"""


class Passage:
    """A way for packets of any address through a cluster, one member after the other; both ends only listen."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, world = cluster, cluster.world
        self.member = 1
        self._macs: dict[tuple[str, int], bytes] = {}
        self._sockets: dict[tuple[str, int], socket.socket] = {}
        for end in (CLIENT, SERVER):
            world.run(end, "nft", "-f", "-", text=_QUIET)
        for member in world.members:
            for table, (here, there, network) in enumerate(((CLIENT, SERVER, 2), (SERVER, CLIENT, 1)), 100):
                for version, gateway in (("-4", f"10.{network}.{member}.2"), ("-6", f"fd0{network}:{member}::2")):
                    way = ("default", "via", gateway, "dev", there, "table", str(table))
                    world.run(member, "ip", version, "route", "replace", *way)
                    world.run(member, "ip", version, "rule", "add", "iif", here, "lookup", str(table))
                (link,) = json.loads(world.run(member, "ip", "-j", "link", "show", here))
                self._macs[here, member] = bytes.fromhex(link["address"].replace(":", ""))
                self._sockets[here, member] = world.inside(here, lambda member=member: _listen(f"m{member}"))

    def close(self) -> None:
        for each in self._sockets.values():
            each.close()

    def move(self) -> None:
        """Go on through the next member, when all has been told."""
        nodes = self.cluster.nodes
        wait_until(
            lambda: all(node.member.has_told_all and not held(self.cluster, number) for number, node in nodes.items()),
            "something is not told",
        )
        self.member = self.member % len(nodes) + 1

    def send(self, frame: bytes, end: str) -> int:
        """PASS or DROP of a frame that an end sends; its addresses are written anew."""
        kernel = self.cluster.nodes[self.member].kernel
        other = self._sockets[SERVER if end == CLIENT else CLIENT, self.member]
        before, until = self._dropped(kernel), time.monotonic() + PATIENCE_S
        sent = without_hops(frame[14:])
        list(arrived([other]))
        self._sockets[end, self.member].send(self._macs[end, self.member] + bytes(6) + frame[12:])
        while time.monotonic() < until:
            if sent in arrived([other], 0.001):
                return PASS
            if self._dropped(kernel) != before:  # perhaps another one that was under way
                return PASS if sent in arrived([other], LATE_S) else DROP
        return DROP

    @staticmethod
    def _dropped(kernel: Replicator) -> int:
        counted = kernel.counters()
        return sum(counted[name] for name in DROPS)


def _listen(interface: str) -> socket.socket:
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    made.bind((interface, 3))
    return made


class Side:
    """What stands for the program in its law: a cluster, into which one end sends."""

    def __init__(self, path: Passage) -> None:
        self.path = path
        self.end = CLIENT

    def watch(self, frame: bytes) -> int:
        return self.path.send(frame, self.end)


@pytest.fixture
def path(cluster: Cluster) -> Iterator[Passage]:
    made = Passage(cluster)
    yield made
    made.close()
    for member, version, table in itertools.product(cluster.world.members, ("-4", "-6"), ("100", "101")):
        cluster.world.run(member, "ip", version, "rule", "del", "lookup", table)
    for end in (CLIENT, SERVER):
        cluster.world.run(end, "nft", "delete", "table", "inet", "quiet")


def replay_through(path: Passage, capture: Path, most: int | None) -> Law:
    """Hold each packet of a capture to what one firewall would do, and to what policies permit."""
    packets = list(islice(recorded(capture), most))
    policy = tenant_of(packets, Action.PERMIT)
    side = Side(path)
    law = Law(cast("Bench", side), policy)
    path.cluster.forget_all()
    for place, each in enumerate(each for each in packets if can_cross(policy, each)):
        if place % TURN == TURN - 1:
            path.move()
        side.end = SERVER if is_ours(policy, each.packet, each.packet.source) else CLIENT
        frame = bytes(12) + each.whole
        if _has_plain_header(each.whole):
            law.meet(each.packet, frame, each.quoted)
        else:
            assert side.watch(frame) == DROP
    return law


def _has_plain_header(whole: bytes) -> bool:
    """Whether an IP header has neither options nor extension headers behind it, which do not pass."""
    return whole[2] == 0x45 if whole[:2] == b"\x08\x00" else whole[8] not in EXTENSION_HEADERS


@pytest.mark.parametrize("most", [400, LONG])
def test_a_cluster_lets_through_what_one_firewall_would(path: Passage, most: int | None) -> None:
    """Also while traffic moves from member to member."""
    assert sum(replay_through(path, capture, most).passed for capture in EVERY) > (1_000 if CAPTURES else 60)


def test_a_member_that_stores_nothing_is_noticed(
    path: Passage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted bug: it confirms what it is told, and forgets it."""
    stores = "	struct connection *known = NULL, value = {};\n	__u32 was_open"
    liar, honest = built(tmp_path, stores, f"	return true;\n{stores}"), Replicator.new
    cluster = path.cluster
    cluster.stop(2)
    monkeypatch.setattr(Replicator, "new", lambda: honest(liar))
    cluster.start(2)
    monkeypatch.undo()
    cluster.wait_whole()
    try:
        with pytest.raises(AssertionError):
            replay_through(path, OWN, None)
    finally:
        cluster.stop(2)
        cluster.start(2)
        cluster.wait_whole()
