"""Packet filters that track connections, with real packets through a router: nftables and both kinds of iptables.

Conversations run over the kernel and over the fake side by side, and both are held to the oracle; so are traces of
chance over the kernel, which knows windows and more states than the fake.
"""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import pytest
from compiled_filter import carried, counted_under
from enforce.contract_filters import SHOP, assert_holds, bring, by_cookie, policy, program
from system.test_filters_contract import RealBench
from tracked_domain import conversation, error_about, trackable

from orchestrator.compile.cookies import Cookie
from orchestrator.compile.filters.filterrows import read_comment
from orchestrator.enforce import gap
from orchestrator.enforce.drivers.iptables.fake import FakeIptables
from orchestrator.enforce.drivers.iptables.tool import iptables_driver
from orchestrator.enforce.drivers.nftables.fake import FakeNft
from orchestrator.enforce.drivers.nftables.tool import nftables_driver
from orchestrator.enforce.drivers.openflow import frames
from orchestrator.lab.layout import Layout
from orchestrator.lab.router import LEFT, RIGHT, Router, ethernet
from orchestrator.policy.addresses import Family
from orchestrator.policy.connections import NONE, decide_tracked, ends_of, opening
from orchestrator.policy.corners import policy_packets
from orchestrator.policy.model import Acl, Action, Packet, Policy, ReturnTraffic, Rule, RuleId
from orchestrator.policy.oracle import owner
from orchestrator.policy.protocols import ICMP, ICMPV6, TCP, UDP
from orchestrator.program.program import Program, Tier

pytestmark = pytest.mark.system

TRACKED = trackable(policy())
CHANGED = trackable(policy([each for each in SHOP if each.id not in ("any", "echo", "echo6")]))
VARIANTS = {"nftables": None, "iptables-legacy": "legacy", "iptables-nft": "nft"}
"""The filters; which iptables, None: nftables."""
FLAGS = (0x02, 0x02, 0x10, 0x12, 0x14, 0x04, 0x11, 0x18, 0x01, 0)


class Both:
    """A real filter and its fake, with the same program."""

    def __init__(self, router: Router, variant: str | None) -> None:
        self.router = router
        self.real = RealBench(router, variant)
        self.fake = FakeNft() if variant is None else FakeIptables()
        run = self.fake.run
        self._fake_driver = nftables_driver(run) if variant is None else iptables_driver("", run)
        self._generation = 6
        self.known = NONE
        self.passed = 0
        self.counted: Counter[int] = Counter()

    def load(self, wanted: Policy) -> Program:
        self.policy = wanted
        self._generation += 1
        made = program(self.real, wanted, self._generation)
        bring(self.real, made)
        assert_holds(self.real, made)
        change = gap.correction(self._fake_driver.observe(), made, self._fake_driver.resolve)
        self._fake_driver.apply(change, gap.stamp_of(made))
        return made

    def meet(self, packets: Sequence[Packet], *, fully: bool = False, quoted: Packet | None = None) -> list[bool]:
        """Send packets of one direction, and hold what came through to the oracle.

        `fully`: nothing less than it permits may pass, and the fake lets the same through.
        """
        sender = RIGHT if is_ours(self.policy, packets[0], packets[0].source) else LEFT
        if quoted is None:
            came = self.router.fire(packets, sender)
        else:
            came = self.router.fire_frames([partial(error_frame, each, quoted, sender) for each in packets], sender)
        for packet, through in zip(packets, came, strict=True):
            verdict = decide_tracked(self.policy, packet, self.known, quoted)
            assert through <= verdict.decision.permitted, packet
            if fully:
                assert through is verdict.decision.permitted, packet
                assert self.fake.forward(packet) is through, packet
                self.counted.update(map(_cookie, counted_under(self.policy, verdict.decision)))
            if through:
                self.known = verdict.connections
                self.passed += 1
        return came


def is_ours(policy: Policy, packet: Packet, address: int) -> bool:
    return owner(policy, packet.family, address) is not None


def _cookie(comment: str) -> int:
    counted = read_comment(comment)
    assert counted is not None
    return Cookie(Tier.SERVER, *counted).pack()


def error_frame(error: Packet, quoted: Packet, sender: str, marker: bytes) -> bytes:
    """The frame of an ICMP error that quotes a packet."""
    inside = frames.frame(quoted, src_mac=0, dst_mac=0, payload=marker)[14:]
    four = error.family is Family.IPV4
    if four:
        message = frames.icmp(error.icmp_type, error.icmp_code, bytes(4) + inside)
        return ethernet(0x0800, frames.ipv4(error.source, error.destination, ICMP, message), sender)
    pseudo = frames.pseudo_v6(error.source, error.destination)
    message = frames.icmp(error.icmp_type, error.icmp_code, bytes(4) + inside, pseudo)
    return ethernet(0x86DD, frames.ipv6(error.source, error.destination, ICMPV6, message), sender)


@pytest.fixture(params=VARIANTS.values(), ids=VARIANTS)
def both(request: pytest.FixtureRequest, layout: Layout) -> Iterator[Both]:
    with Router(layout.prefix) as router:
        yield Both(router, request.param)


def firsts(rng: random.Random, most: int) -> list[Packet]:
    """Packets that may open connections, each between other ends, some of which the whole policy permits."""
    packets = [replace(each, tcp_flags=0x02 if each.protocol == TCP else 0) for each in policy_packets(TRACKED)]
    found = [each for each in dict.fromkeys(packets) if _can_cross(each)]
    rng.shuffle(found)
    found.sort(key=lambda each: not decide_tracked(TRACKED, each, NONE).decision.permitted)
    by_ends = list({ends_of(packet): packet for packet in found}.values())
    return by_ends[: most // 2] + rng.sample(by_ends, most // 2)


def _can_cross(packet: Packet) -> bool:
    """Whether a packet has a frame that a router forwards, between the outside and a tenant."""
    if not carried(packet) or opening(packet) is None or packet.protocol in (0, 44, 132):
        return False
    ends = [address >> (packet.family.bits - 8) for address in (packet.source, packet.destination)]
    ours, theirs = (is_ours(TRACKED, packet, each) for each in (packet.source, packet.destination))
    return ours is not theirs and all(0 < first < 224 and first != 127 for first in ends)


def test_conversations_pass_as_the_oracle_decides_and_changes_cut(both: Both) -> None:
    """Step by step, all of one direction at once; then the list changes and only what it forbids ends."""
    both.load(TRACKED)
    talks = [list(conversation(first)) for first in firsts(random.Random(7), 80)]
    going = talks
    for step in range(4):
        going = [talk for talk in going if len(talk) > step]
        came = _step(both, going, step, fully=True)
        going = [talk for talk, through in zip(going, came, strict=True) if through]
    assert len(going) > 15
    assert by_cookie(both.real.driver.hits()) == both.counted
    both.load(CHANGED)
    stayed = sum(_step(both, going, 4, fully=True))
    both.load(TRACKED)
    assert all(_step(both, going, 4, fully=True))
    assert 0 < stayed < len(going)


def _step(both: Both, talks: Sequence[list[Packet]], step: int, *, fully: bool) -> list[bool]:
    """Send the packets of a step, those of each direction together; which came through."""
    found = [False] * len(talks)
    for inside in (False, True):
        places = [at for at, talk in enumerate(talks) if is_ours(TRACKED, talk[step], talk[step].source) is inside]
        if places:
            came = both.meet([talks[at][step] for at in places], fully=fully)
            for at, through in zip(places, came, strict=True):
                found[at] = through
    return found


def test_no_trace_gets_more_through_than_the_oracle_permits(both: Both) -> None:
    """Packets of chance, of all flags and in both directions, with ICMP errors about what went before."""
    both.load(TRACKED)
    rng = random.Random(11)
    said = [packet for first in firsts(rng, 24) for packet in conversation(first)]
    for turn in range(160):
        packet = rng.choice(said)
        if turn % 40 == 20:
            both.load(rng.choice((TRACKED, CHANGED)))
        if packet.protocol == TCP and rng.random() < 0.5:
            packet = replace(packet, tcp_flags=rng.choice(FLAGS))
        if rng.random() < 0.2:
            both.meet([error_about(packet, packet.destination)], quoted=packet)
        else:
            both.meet([packet])
    assert both.passed > 20


OPEN = Policy(
    (replace(TRACKED.tenants[0], acl=Acl((Rule(RuleId("all"), Action.PERMIT),)), rule_numbers={"all": 1}),),
    return_traffic=ReturnTraffic.TRACKED,
)
"""One tenant, whose list permits everything in both directions."""
OUTSIDE, INSIDE = 0xC0000201, 0xC633640A
SYN, ACK, FIN, RST, PSH = 0x02, 0x10, 0x01, 0x04, 0x08
Said = tuple[str, Callable[[bytes], bytes]]
"""An end of the router, and the frame that it sends."""


def _whole(sender: str, protocol: int, body: bytes, *, options: bool = False, fragment: int = 0) -> bytes:
    source, destination = (OUTSIDE, INSIDE) if sender == LEFT else (INSIDE, OUTSIDE)
    no_operations = b"\x01" * 4 if options else b""
    packet = frames.ipv4(source, destination, protocol, body, fragment=fragment, options=no_operations)
    return ethernet(0x0800, packet, sender)


def _tcp(sender: str, port: int, flags: int, *, number: int = 1, broken: bool = False, options: bool = False) -> Said:
    ports = (port, 80) if sender == LEFT else (80, port)
    source, destination = (OUTSIDE, INSIDE) if sender == LEFT else (INSIDE, OUTSIDE)

    def made(marker: bytes) -> bytes:
        segment = bytearray(frames.tcp(*ports, flags, marker, frames.pseudo_v4(source, destination)))
        first, second = struct.unpack_from("!HH", segment, 4)
        after = struct.unpack("!HH", number.to_bytes(4, "big"))
        check = struct.unpack_from("!H", segment, 16)[0]
        total = (~check & 0xFFFF) + (~first & 0xFFFF) + (~second & 0xFFFF) + sum(after)
        while total >> 16:
            total = (total & 0xFFFF) + (total >> 16)
        struct.pack_into("!HH", segment, 4, *after)
        struct.pack_into("!H", segment, 16, (~total & 0xFFFF) ^ (0x0101 if broken else 0))
        return _whole(sender, TCP, bytes(segment), options=options)

    return sender, made


def _udp(sender: str, port: int, *, broken: bool = False) -> Said:
    ports = (port, 53) if sender == LEFT else (53, port)

    def made(marker: bytes) -> bytes:
        ends = (OUTSIDE, INSIDE) if sender == LEFT else (INSIDE, OUTSIDE)
        datagram = bytearray(frames.udp(*ports, marker, frames.pseudo_v4(*ends)))
        datagram[7] ^= 1 if broken else 0
        return _whole(sender, UDP, bytes(datagram))

    return sender, made


def _icmp(sender: str, kind: int, *, broken: bool = False) -> Said:
    def made(marker: bytes) -> bytes:
        message = bytearray(frames.icmp(kind, 0, bytes(4) + marker))
        message[3] ^= 1 if broken else 0
        return _whole(sender, ICMP, bytes(message))

    return sender, made


def _other(sender: str, protocol: int) -> Said:
    return sender, lambda marker: _whole(sender, protocol, marker)


def _opened(port: int) -> list[tuple[Said, bool]]:
    return [(_tcp(LEFT, port, SYN), True), (_tcp(RIGHT, port, SYN | ACK), True), (_tcp(LEFT, port, ACK), True)]


LINES: dict[str, list[tuple[Said, bool]]] = {
    "a segment outside of the window": [*_opened(1001), (_tcp(LEFT, 1001, ACK | PSH, number=1 << 30), False)],
    "a SYN of the opener after both have agreed": [*_opened(1002), (_tcp(LEFT, 1002, SYN), True)],
    "a SYN of the answerer after both have agreed": [*_opened(1003), (_tcp(RIGHT, 1003, SYN), False)],
    "a SYN of the other end while one is unanswered": [
        (_tcp(LEFT, 1004, SYN), True), (_tcp(RIGHT, 1004, SYN), False)],
    "data before the SYN+ACK": [(_tcp(LEFT, 1005, SYN), True), (_tcp(RIGHT, 1005, ACK | PSH), True)],
    "a new SYN after a reset": [*_opened(1006), (_tcp(RIGHT, 1006, RST | ACK), True), (_tcp(LEFT, 1006, SYN), True)],
    "a SYN of the opener after one FIN alone": [
        *_opened(1013), (_tcp(LEFT, 1013, FIN | ACK), True), (_tcp(LEFT, 1013, SYN), True),
        (_tcp(RIGHT, 1013, SYN | ACK), True), (_tcp(LEFT, 1013, ACK), True)],
    "flags that no stack sends together": [(_tcp(LEFT, 1007, SYN | FIN), False), (_tcp(LEFT, 1007, 0), False)],
    "nothing in the middle": [(_tcp(LEFT, 1008, ACK), False), (_tcp(RIGHT, 1009, SYN | ACK), False),
                              (_tcp(RIGHT, 1008, ACK), False)],
    "wrong checksums": [(_tcp(LEFT, 1010, SYN, broken=True), False), (_udp(LEFT, 1010, broken=True), False),
                        (_icmp(LEFT, 8, broken=True), False)],
    "another protocol": [(_other(LEFT, 99), True), (_other(RIGHT, 99), True)],
    "ICMP timestamps": [(_icmp(LEFT, 13), True), (_icmp(RIGHT, 14), True), (_icmp(RIGHT, 16), False)],
    "ICMP that the kernel tracks and nobody may open": [(_icmp(LEFT, 17), False)],
    "IP options": [(_tcp(LEFT, 1012, SYN, options=True), True)],
}  # fmt: skip


def test_each_line_of_the_table_of_strictness(both: Both) -> None:
    both.load(OPEN)
    for name, said in LINES.items():
        for place, ((sender, made), wanted) in enumerate(said):
            assert both.router.fire_frames([made], sender) == [wanted], (name, place)


def test_fragments_pass_once_all_are_there(both: Both) -> None:
    both.load(OPEN)

    def part(begin: int, end: int, more: int) -> Callable[[bytes], bytes]:
        def made(marker: bytes) -> bytes:
            payload = (marker if begin == 0 else bytes(len(marker))) + bytes(64)
            return _whole(LEFT, UDP, _datagram(payload)[begin:end], fragment=more | begin // 8)

        return made

    assert both.router.fire_frames([part(0, 48, 0x2000), part(48, 200, 0)]) == [True, False], "two fragments went out"
    assert both.router.fire_frames([part(0, 48, 0x2000)]) == [False], "the other fragment is missing"


def _datagram(payload: bytes) -> bytes:
    """A UDP datagram without a checksum, for parts of it are made apart."""
    return struct.pack("!HHHH", 2000, 53, 8 + len(payload), 0) + payload
