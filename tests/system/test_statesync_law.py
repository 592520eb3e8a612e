"""The replicator's program on random traces and captures: as its oracle says, and a part of what policies permit.

The list in front of it permits everything here, so what the program drops is dropped by a connection's state alone.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from enforce.test_openflow_tracked_law import Recorded, recorded
from public_data import CAPTURES
from statesync.programbench import DROP, PASS, Bench
from tracked_domain import conversation, error_about, made_of

from orchestrator.compile.pipelines.host import GATEWAY_MAC
from orchestrator.enforce.drivers.openflow.frames import EXTENSION_HEADERS
from orchestrator.policy.addresses import Family, Prefix, parse_address
from orchestrator.policy.connections import NONE, Connections, Ends, decide_tracked, ends_of
from orchestrator.policy.model import Acl, Action, Packet, Policy, ReturnTraffic, Tenant, TenantId
from orchestrator.policy.protocols import ICMP, ICMPV6, SCTP, TCP, UDP
from orchestrator.statesync.oracle import Connection, Kind, step, tcp_kind
from orchestrator.statesync.states import TIMEOUT_S

TALKS = 200
FLAGS = (0x02, 0x02, 0x10, 0x12, 0x14, 0x04, 0x11, 0x18, 0x01, 0x00)
MOST_WAIT_S = 150.0
SLACK_S = 0.05
_KINDS = {ICMP: {8: Kind.REQUEST, 0: Kind.REPLY}, ICMPV6: {128: Kind.REQUEST, 129: Kind.REPLY}}


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.kernel.close()


def kind_of(packet: Packet) -> Kind | None:
    """What a packet is for its connection; None: no connection that the program knows has such packets."""
    if packet.protocol in (TCP, UDP) and 0 in (packet.source_port, packet.destination_port):
        return None
    if packet.protocol == TCP:
        return tcp_kind(packet.tcp_flags)
    if packet.protocol in (ICMP, ICMPV6):
        return None if packet.icmp_code else _KINDS[packet.protocol].get(packet.icmp_type)
    return Kind.DATAGRAM if packet.protocol == UDP else None


def permitting(*addresses: tuple[Family, int]) -> Policy:
    """One tenant that owns these addresses, and permits everything."""
    prefixes = tuple(Prefix(family, address, family.bits) for family, address in dict.fromkeys(addresses))
    acl = Acl((), ingress_default=Action.PERMIT, egress_default=Action.PERMIT)
    return Policy((Tenant(TenantId("t1"), 1, prefixes, acl),), return_traffic=ReturnTraffic.TRACKED)


@dataclass
class Law:
    """The program beside both oracles."""

    bench: Bench
    policy: Policy
    known: Connections = field(default_factory=lambda: NONE)
    states: dict[Ends, Connection] = field(default_factory=dict)
    waited_s: float = 0.0
    passed: int = 0
    stricter: int = 0
    """Packets that the program drops, and a policy permits."""

    def meet(self, packet: Packet, made: bytes, quoted: Packet | None = None) -> bool:
        """Give a packet to all three; whether it passes.

        The program has a clock of its own, so where a connection's time is over just now, either answer is right.
        """
        verdict = decide_tracked(self.policy, packet, self.known, quoted)
        self.known = verdict.connections
        before_s = self._now_s - SLACK_S
        passes = self.bench.watch(made) == PASS
        expected = {at: self._expected(packet, quoted, at) for at in (before_s, self._now_s + SLACK_S)}
        about = packet, quoted, self.states.get(ends_of(quoted or packet))
        fitting = [after for is_passed, after in expected.values() if is_passed == passes]
        assert fitting, about
        if fitting[0] is not None:
            self.states[ends_of(packet)] = replace(fitting[0], seen_s=self._now_s)
        assert verdict.decision.permitted or not passes, about
        self.passed += passes
        self.stricter += verdict.decision.permitted and not passes
        return passes

    def wait(self, seconds: float) -> None:
        self.waited_s += seconds
        self.bench.let_time_pass(seconds)

    @property
    def _now_s(self) -> float:
        return time.monotonic() + self.waited_s

    def _expected(self, packet: Packet, quoted: Packet | None, at_s: float) -> tuple[bool, Connection | None]:
        """Whether a packet passes at a moment, and its connection afterwards; None: as before."""
        if quoted is not None:
            about = self.states.get(ends_of(quoted))
            lives = about is not None and at_s - about.seen_s <= TIMEOUT_S[about.state]
            return lives and kind_of(quoted) is not None and packet.destination == quoted.source, None
        kind = kind_of(packet)
        after = None if kind is None else step(self.states.get(ends_of(packet)), kind, _is_upper(packet), at_s)
        return after is not None, after


def _is_upper(packet: Packet) -> bool:
    ports = (0, 0) if packet.protocol in (ICMP, ICMPV6) else (packet.source_port, packet.destination_port)
    return (packet.source, ports[0]) > (packet.destination, ports[1])


# ------------------------------------------------------------------------------------------------------ random traces

ADDRESSES = {
    Family.IPV4: tuple(parse_address(text)[1] for text in ("10.1.0.1", "10.2.0.1", "192.0.2.7")),
    Family.IPV6: tuple(parse_address(text)[1] for text in ("2001:db8:1::1", "2001:db8:2::1", "2001:db8::7")),
}


def opening_of(rng: random.Random) -> Packet:
    """A packet that opens a connection, or one of what has none."""
    family = rng.choice(list(Family))
    source, destination = rng.sample(ADDRESSES[family], 2)
    icmp = ICMP if family is Family.IPV4 else ICMPV6
    protocol = rng.choice((TCP, TCP, TCP, UDP, UDP, icmp, SCTP))
    ports = (rng.randrange(1, 1 << 16) if rng.random() < 0.98 else 0, rng.choice((22, 53, 80)))
    first = Packet(family, source, destination, protocol)
    if protocol == icmp:
        asks = 8 if family is Family.IPV4 else 128
        return replace(first, icmp_type=rng.choice((asks, asks, 13)), icmp_code=int(rng.random() < 0.1))
    return replace(first, source_port=ports[0], destination_port=ports[1], tcp_flags=0x02 if protocol == TCP else 0)


def said(rng: random.Random) -> Iterator[tuple[Packet, Packet | None]]:
    """What two ends say, with segments of chance, packets of the other end, and errors to the right end and others."""
    for packet in conversation(opening_of(rng)):
        yield packet, None
        if packet.protocol == TCP and rng.random() < 0.1:
            yield replace(packet, tcp_flags=rng.choice(FLAGS)), None
        if rng.random() < 0.1:
            error = error_about(packet, rng.choice(ADDRESSES[packet.family]))
            yield replace(error, destination=rng.choice((error.destination, ADDRESSES[packet.family][2]))), packet


@pytest.mark.parametrize(
    "packets", [20_000, pytest.param(1_000_000, marks=[pytest.mark.long, pytest.mark.timeout(3600)])]
)
def test_random_traces_pass_as_both_oracles_permit(bench: Bench, packets: int) -> None:
    rng, met, passed = random.Random(packets), 0, 0
    policy = permitting(*((family, address) for family, those in ADDRESSES.items() for address in those))
    while met < packets:
        bench.kernel.forget_all()
        law = Law(bench, policy)
        talks = [said(rng) for _ in range(TALKS)]
        while talks:
            talk = rng.choice(talks)
            packet, quoted = next(talk, (None, None))
            if packet is None:
                talks.remove(talk)
                continue
            if quoted is None or packet.source != packet.destination:
                law.meet(packet, made_of(packet, quoted, GATEWAY_MAC), quoted)
            met += 1
            if rng.random() < 0.002:
                law.wait(rng.uniform(1.0, MOST_WAIT_S))
        passed += law.passed
    assert passed > met / 3, "most conversations go through"


# ----------------------------------------------------------------------------------------------------------- captures

MOST = 4_000
STRICTER = {
    "communityid_sctp.pcap": 74,  # SCTP
    "tunnels_gre-within-gre.pcap": 628,  # GRE
    "tcp_handshake-reorder.pcap": 7,  # the SYN+ACK was recorded before the SYN, and no ACK of the opener stands for it
}
"""So many packets are dropped, and policies permit them."""


@pytest.mark.skipif(not CAPTURES, reason="ACLFLOW_DATA names no folder with pcap/")
@pytest.mark.parametrize("capture", CAPTURES or [Path("none")], ids=lambda path: path.name)
def test_recorded_packets_pass_as_both_oracles_permit(bench: Bench, capture: Path) -> None:
    packets = [each for each, _ in zip(recorded(capture), range(MOST), strict=False)]
    ends = [(each.packet.family, end) for each in packets for end in (each.packet.source, each.packet.destination)]
    bench.kernel.forget_all()
    law = Law(bench, permitting(*ends))
    for each in packets:
        if _has_plain_header(each.whole):
            law.meet(each.packet, _framed(each), each.quoted)
        else:
            assert bench.watch(_framed(each)) == DROP
    assert law.stricter == STRICTER.get(capture.name, 0)


def _has_plain_header(whole: bytes) -> bool:
    """Whether an IP header has neither options nor extension headers behind it, which do not pass."""
    return whole[2] == 0x45 if whole[:2] == b"\x08\x00" else whole[8] not in EXTENSION_HEADERS


def _framed(each: Recorded) -> bytes:
    """A frame of it; the program reads no more than headers, and the kernel runs it on a page at most."""
    return (bytes(12) + each.whole)[:1500]
