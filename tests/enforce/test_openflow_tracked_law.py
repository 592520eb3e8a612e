"""A real switch that tracks connections lets through a part of what the oracle permits, and whole conversations.

Random traces: conversations run side by side, some of them with segments of chance and ICMP errors among them, under
lists that change. Recorded captures: real ends, with their sequence numbers, windows and odd packets.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import pytest
from compiled_domain import endpoint_at, forwarded
from enforce.real_switch import MOST_AT_ONCE, RealSwitch
from enforce.test_openflow_tracked import ALL, Tracking, from_client, openings, serving
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from plain_frames import read_frame
from public_data import CAPTURES
from strategies import policies
from tracked_domain import answers_half_known, conversation, denying, error_about, made_of, marked, trackable

from orchestrator.classify.captures import open_capture
from orchestrator.compile.pipelines.host import GATEWAY_MAC
from orchestrator.enforce.drivers.openflow.frames import checksum, frame, pseudo_v4, pseudo_v6
from orchestrator.policy.addresses import Family, Prefix
from orchestrator.policy.connections import NONE, Connections, decide_tracked, ends_of
from orchestrator.policy.model import (
    Acl,
    Action,
    Direction,
    Endpoint,
    Packet,
    Policy,
    ReturnTraffic,
    Rule,
    RuleId,
    Tenant,
    TenantId,
)
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import ICMP, ICMPV6, TCP, UDP

pytestmark = pytest.mark.system

ETHERNET = 1
PORTS = ("vm1", "vm2")
UPLINK = "wan0"
TALKS = 60
"""So many conversations run side by side: of each, one packet is on its way at a time."""
FLAGS = (0x02, 0x02, 0x10, 0x12, 0x14, 0x04, 0x11, 0x18, 0x01, 0x00)


def all_local(policy: Policy) -> Policy:
    """The policy with every address of its one or two tenants on this switch."""
    owners = policy.tenants if len(policy.tenants) > 1 else policy.tenants * 2
    endpoints = []
    for place, (tenant, port) in enumerate(zip(owners, PORTS, strict=True)):
        whole = tenant.prefixes
        inner = tuple(Prefix(each.family, each.network | 1 << each.family.bits - each.length - 8, each.length + 8)
                      for each in whole)  # fmt: skip
        own = inner if place and owners[0] is owners[1] else whole
        endpoints.append(Endpoint(port, tenant.id, port, 0x020000000001 + place, own))
    return replace(policy, endpoints=tuple(endpoints))


@dataclass
class Talk:
    """A conversation that is going on.

    `whole`: nothing but what its ends say has been sent between them, and all of it was permitted. Of a packet that
    only one end's list permits, the oracle lets that end know a connection, and a switch with both ends does not.
    """

    left: list[Packet]
    whole: bool = True
    last: Packet | None = None


@dataclass(frozen=True)
class Sent:
    """A packet on its way, and the oracle's word on it. `strictly`: it must arrive if it is permitted."""

    permitted: bool
    strictly: bool
    quoted: Packet | None


class Law:
    """A real switch beside the oracle."""

    def __init__(self, tracking: Tracking, policy: Policy, rng: random.Random) -> None:
        self.tracking, self.rng = tracking, rng
        self.known: Connections = NONE
        self.met = 0
        self.load(policy)

    def load(self, policy: Policy) -> None:
        self.policy = policy
        self.tracking.load(policy)

    def turn(self, talks: Sequence[Talk]) -> None:
        """Send one packet of each conversation, and hold what arrives to the oracle."""
        queues: dict[str, list[bytes]] = {port: [] for port in (*PORTS, UPLINK)}
        sent: dict[Packet, Sent] = {}
        for talk in talks:
            packet, quoted = self._next(talk)
            if packet in sent or not forwarded(self.policy, packet):
                continue
            sender = endpoint_at(self.policy, packet.family, packet.source)
            queue = queues[UPLINK if sender is None else sender.port]
            if len(queue) == MOST_AT_ONCE:
                continue
            queue.append(_made(packet, quoted, GATEWAY_MAC if sender is None else sender.mac))
            receiver = endpoint_at(self.policy, packet.family, packet.destination)
            is_half = sender is not None and receiver is not None and answers_half_known(packet, self.known)
            talk.whole &= not is_half
            verdict = decide_tracked(self.policy, packet, self.known, quoted)
            self.known = verdict.connections
            sent[packet] = Sent(verdict.decision.permitted, talk.whole and quoted is None and not is_half, quoted)
            talk.whole &= verdict.decision.permitted
        self.met += len(sent)
        self._compare(sent, self.tracking.twins.real.forward_many(queues))

    def _next(self, talk: Talk) -> tuple[Packet, Packet | None]:
        if talk.last is not None and self.rng.random() < 0.05:
            routers = (talk.last.destination, talk.last.destination ^ 3)
            return error_about(talk.last, self.rng.choice(routers)), talk.last
        packet = talk.last = talk.left.pop(0)
        if packet.protocol == TCP and self.rng.random() < 0.1:
            talk.whole = False
            packet = talk.last = replace(packet, tcp_flags=self.rng.choice(FLAGS))
        return packet, None

    def _compare(self, sent: dict[Packet, Sent], out: list[tuple[str, bytes]]) -> None:
        arrived = Counter((port, read_frame(made, len(made), ETHERNET)) for port, made in out)
        for packet, each in sent.items():
            receiver = endpoint_at(self.policy, packet.family, packet.destination)
            came = arrived.pop((UPLINK if receiver is None else receiver.port, packet), 0)
            assert came <= each.permitted, f"{packet} about {each.quoted} passed, and the oracle denies it"
            assert came == each.permitted or not each.strictly, f"{packet} was dropped, and the oracle permits it"
        assert not arrived, "nothing else may come out"


def _made(packet: Packet, quoted: Packet | None, mac: int) -> bytes:
    """A frame; of TCP without data, for all segments have one sequence number."""
    if packet.protocol == TCP and quoted is None:
        return frame(packet, src_mac=mac, dst_mac=GATEWAY_MAC)
    return made_of(packet, quoted, mac)


def talks_of(policy: Policy, rng: random.Random, most: int) -> list[Talk]:
    """Conversations at the corners of a policy, each between other ends; ports of senders are drawn."""
    corners = [each for each in openings(policy, rng, 200) if forwarded(policy, each) and _reads_back(each)]
    found: dict[object, Talk] = {}
    while corners and len(found) < most:
        first = rng.choice(corners)
        if first.protocol in (TCP, UDP) and rng.random() < 0.8:
            first = replace(first, source_port=rng.randrange(1, 1 << 16))
        elif len(found) > 3 * len(corners):
            break
        ends = frozenset(((first.source, first.source_port), (first.destination, first.destination_port)))
        found.setdefault((first.family, first.protocol, first.icmp_type, ends), Talk(list(conversation(first))))
    return list(found.values())


def _reads_back(packet: Packet) -> bool:
    made = _made(packet, None, GATEWAY_MAC)
    return read_frame(made, len(made), ETHERNET) == packet


@pytest.mark.parametrize("share", [0, 0.4], ids=["tracked", "some-stateless"])
@pytest.mark.parametrize(
    "packets", [8_000, pytest.param(1_000_000, marks=[pytest.mark.long, pytest.mark.timeout(4 * 3600)])]
)
def test_random_traces_pass_as_the_oracle_permits(real_switch: RealSwitch, packets: int, share: float) -> None:
    """Also where a share of the rules is stateless, and other rules are after a change."""
    met = 0

    @settings(
        max_examples=max(4, packets // 2000), deadline=None, phases=(Phase.reuse, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(policies(max_tenants=2, max_rules=6), st.integers(0, 1 << 30))
    def play(policy: Policy, seed: int) -> None:
        nonlocal met
        if met < packets:
            met += _meet_all(real_switch, all_local(policy), random.Random(seed), share)

    while met < packets:
        before = met
        play()
        assert met > before, "no drawn policy has a packet that opens a connection"


def _meet_all(real_switch: RealSwitch, whole: Policy, rng: random.Random, share: float) -> int:
    """Meet packets under a policy that changes on the way.

    A share of its rules is stateless, then of others; then it denies what it permitted; in the end none is stateless.
    """
    policy, again = (marked(whole, rng, share) for _ in range(2))
    real_switch.reset()
    tracking = Tracking(real_switch)
    try:
        law = Law(tracking, policy, rng)
        waiting = talks_of(policy, rng, 300)
        running: list[Talk] = []
        changes = {
            len(waiting) * part // 4: now for part, now in ((3, again), (2, denying(policy)), (1, trackable(whole)))
        }
        while waiting or running:
            while waiting and len(running) < TALKS:
                running.append(waiting.pop())
                now = changes.pop(len(waiting), None)
                if now is not None:
                    law.load(now)
                    _forget_answers(running)
            law.turn(running)
            running = [talk for talk in running if talk.left]
        return law.met
    finally:
        tracking.twins.close()
        real_switch.reset()


def _forget_answers(running: Sequence[Talk]) -> None:
    """Of what is not TCP, an answer may open a connection of its own for the oracle; not for a switch."""
    for talk in running:
        talk.whole &= not talk.left or talk.left[0].protocol == TCP


# -------------------------------------------------------------------------------------------------- recorded captures

TENANT = TenantId("t1")
MAC = 0x020000000001
_TAGS = (0x8100, 0x88A8)
_IP = {0x0800: Family.IPV4, 0x86DD: Family.IPV6}


@dataclass(frozen=True)
class Recorded:
    """A packet of a capture: what policies see of it, its bytes from the Ethernet type on, and what an error quotes."""

    packet: Packet
    whole: bytes
    quoted: Packet | None


def recorded(capture: Path) -> Iterator[Recorded]:
    """The packets of a capture that are whole and no fragments: a data plane puts those together before it looks."""
    with open_capture(str(capture)) as read:
        for piece in read.pieces():
            for start, captured, wire, link in zip(
                piece.starts.tolist(), piece.captured.tolist(), piece.wire.tolist(), piece.links.tolist(), strict=True
            ):
                data = bytes(piece.data[start : start + captured])
                found = read_frame(data, wire, link)
                at = 12
                while int.from_bytes(data[at : at + 2], "big") in _TAGS:
                    at += 4
                family = _IP.get(int.from_bytes(data[at : at + 2], "big"))
                if not isinstance(found, Packet) or family is None or link != ETHERNET or captured < wire:
                    continue
                if not _is_fragment(data[at + 2 :], family):
                    packet, ip = _repaired(found, data[at + 2 :])
                    yield Recorded(packet, data[at : at + 2] + ip, _quoted(found, ip))


def _is_fragment(ip: bytes, family: Family) -> bool:
    if family is Family.IPV6:
        return ip[6] == 44
    return bool(int.from_bytes(ip[6:8], "big") & 0x3FFF)


def _repaired(packet: Packet, ip: bytes) -> tuple[Packet, bytes]:
    """A packet with two different ends, and the checksums that it had on the wire.

    A capture of a loopback interface has one address for both ends; one made where a packet is sent has it without the
    checksum that the interface writes.
    """
    width = 4 if packet.family is Family.IPV4 else 16
    ends = [packet.source, packet.destination]
    if packet.source == packet.destination:
        ends[packet.destination_port < packet.source_port] ^= 2
    packet = replace(packet, source=ends[0], destination=ends[1])
    at = 12 if width == 4 else 8
    ip = ip[:at] + b"".join(end.to_bytes(width, "big") for end in ends) + ip[at + 2 * width :]
    above = (ip[0] & 0xF) * 4 if width == 4 else 40
    if width == 4:
        ip = ip[:10] + checksum(ip[:10] + bytes(2) + ip[12:above]).to_bytes(2, "big") + ip[12:]
    place = above + {TCP: 16, UDP: 6}.get(packet.protocol, 0)
    if place == above or ip[9 if width == 4 else 6] != packet.protocol:
        return packet, ip
    end = int.from_bytes(ip[2:4], "big") if width == 4 else 40 + int.from_bytes(ip[4:6], "big")
    pseudo = pseudo_v4(*ends) if width == 4 else pseudo_v6(*ends)
    plain = ip[:place] + bytes(2) + ip[place + 2 :]
    right = checksum(pseudo(packet.protocol, end - above) + plain[above:end])
    return packet, ip[:place] + right.to_bytes(2, "big") + ip[place + 2 :]


def _quoted(found: Packet, ip: bytes) -> Packet | None:
    """The packet that an ICMP error quotes; what the error has not of it is zero."""
    errors = {ICMP: (3, 4, 5, 11, 12), ICMPV6: (1, 2, 3, 4)}
    if found.icmp_type not in errors.get(found.protocol, ()):
        return None
    inside = ip[(ip[0] & 0xF) * 4 + 8 :] if found.family is Family.IPV4 else ip[48:]
    made = bytes(12) + (0x0800 if found.family is Family.IPV4 else 0x86DD).to_bytes(2, "big") + inside + bytes(64)
    quoted = read_frame(made, 1 << 16, ETHERNET)
    return quoted if isinstance(quoted, Packet) else None


class Replay:
    """A capture on its way through a switch on which one address of each IP version is an endpoint."""

    def __init__(self, tracking: Tracking, policy: Policy) -> None:
        self.policy, self.tracking = policy, tracking
        self.known: Connections = NONE
        self.dropped: list[Packet] = []
        """Packets that the oracle permits and the switch does not."""
        self.passed = 0
        self._queues: dict[str, list[bytes]] = {"vm1": [], UPLINK: []}
        self._sent: list[tuple[bytes, Packet, bool]] = []
        self._ways: dict[object, str] = {}
        tracking.load(policy)

    def send(self, each: Recorded) -> None:
        """Send a packet behind those before it of the same connection."""
        sender = endpoint_at(self.policy, each.packet.family, each.packet.source)
        port, mac = (UPLINK, GATEWAY_MAC) if sender is None else (sender.port, sender.mac)
        ends = ends_of(each.packet)
        waits = each.quoted is not None or len(self._queues[port]) == MOST_AT_ONCE
        if waits or self._ways.get(ends, port) != port:
            self.flush()
        made = GATEWAY_MAC.to_bytes(6, "big") + mac.to_bytes(6, "big") + each.whole
        verdict = decide_tracked(self.policy, each.packet, self.known, each.quoted)
        self.known = verdict.connections
        self._queues[port].append(made)
        self._ways[ends] = port
        self._sent.append((made[12:], each.packet, verdict.decision.permitted))
        if each.quoted is not None:
            self.flush()

    def flush(self) -> None:
        """Hold what has arrived to the oracle."""
        arrived = Counter(made[12:] for _, made in self.tracking.twins.real.forward_many(self._queues))
        for made, packet, permitted in self._sent:
            came = arrived[made] > 0
            arrived[made] -= came
            assert permitted or not came, f"{packet} passed, and the oracle denies it"
            self.passed += came
            if permitted and not came:
                self.dropped.append(packet)
        assert not +arrived, "nothing else may come out"
        self._queues = {port: [] for port in self._queues}
        self._sent, self._ways = [], {}


def _alone() -> tuple[Rule, ...]:
    """Stateless rules for both directions of some traffic; web is permitted so, and the control of FTP denied."""
    ends = ({"protocol": TCP, "port": 80}, {"protocol": TCP, "port": 21}, {"protocol": UDP}, {"protocol": ICMP},
            {"protocol": ICMPV6})  # fmt: skip
    found: list[Rule] = []
    for way in Direction:
        for each in ends:
            action = Action.DENY if each.get("port") == 21 else Action.PERMIT
            for side in ("source_ports", "destination_ports") if "port" in each else ("",):
                asked = {side: (PortRange(each["port"], each["port"]),)} if side else {}
                name = RuleId(f"r{len(found)}")
                found.append(Rule(name, action, way, protocol=each["protocol"], stateless=True, **asked))
    return tuple(found)


def endpoint_policy(packets: Sequence[Packet], inward: Action, rules: tuple[Rule, ...] = ()) -> Policy:
    """The most frequent address of each IP version is an endpoint's; its list permits what it opens."""
    found = []
    for family in Family:
        talking = Counter(end for each in packets if each.family is family for end in (each.source, each.destination))
        found += [Prefix(family, address, family.bits) for address, _ in talking.most_common(1)]
    acl = Acl(rules, ingress_default=inward, egress_default=Action.PERMIT)
    numbers = {rule.id: number for number, rule in enumerate(rules, 1)}
    tenant = Tenant(TENANT, 1, tuple(found), acl, numbers)
    endpoint = Endpoint("vm1", TENANT, "vm1", MAC, tuple(found))
    return Policy((tenant,), return_traffic=ReturnTraffic.TRACKED, endpoints=(endpoint,))


STRICTER = {
    "ftp_bigtransfer.pcap": 20,  # sequence numbers jump by gigabytes, which no window spans
    "vlan-collisions.pcap": 1,  # a SYN of another VLAN's connection between the same ends, while theirs is open
}
"""So many packets of a whole capture are dropped, and the oracle, which knows no windows, permits them."""
MOST = 1_500


@pytest.mark.skipif(not CAPTURES, reason="ACLFLOW_DATA names no folder with pcap/")
@pytest.mark.parametrize("most", [MOST, pytest.param(None, marks=[pytest.mark.long, pytest.mark.timeout(3600)])])
@pytest.mark.parametrize("inward", list(Action), ids=lambda action: action.value)
@pytest.mark.parametrize("alone", [(), _alone()], ids=["tracked", "some-stateless"])
@pytest.mark.parametrize("capture", CAPTURES or [Path("none")], ids=lambda path: path.name)
def test_recorded_packets_pass_as_the_oracle_permits(
    real_switch: RealSwitch, capture: Path, inward: Action, alone: tuple[Rule, ...], most: int | None
) -> None:
    """Also where stateless rules decide about some of them alone: of these none is dropped."""
    packets = list(islice(recorded(capture), most))
    policy = endpoint_policy([each.packet for each in packets], inward, alone)
    real_switch.reset()
    tracking = Tracking(real_switch)
    try:
        replay = Replay(tracking, policy)
        for each in packets:
            if forwarded(policy, each.packet):
                replay.send(each)
        replay.flush()
    finally:
        tracking.twins.close()
        real_switch.reset()
    strict = STRICTER.get(capture.name, 0)
    dropped = len(replay.dropped)
    assert dropped <= strict if alone else dropped == strict, replay.dropped


@pytest.mark.parametrize("protocol", [TCP, UDP])
def test_a_packet_with_a_wrong_checksum_opens_nothing(real_switch: RealSwitch, protocol: int) -> None:
    """No end would take it; the definition does not look."""
    real_switch.reset()
    tracking = Tracking(real_switch)
    try:
        tracking.load(serving(ALL))
        made, port = from_client(1, 0x02, protocol)
        place = 14 + 20 + (16 if protocol == TCP else 6)
        assert not real_switch.forward(made[:place] + bytes((made[place] ^ 1,)) + made[place + 1 :], port)
        assert real_switch.forward(made, port)
    finally:
        tracking.twins.close()
        real_switch.reset()
