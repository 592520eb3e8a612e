"""The fake switch against a real Open vSwitch: the same messages and the same frames, the same answers."""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest
from enforce.contract_samples import MATCHES, SAMPLES, SYMBOLS, VM1, VM2
from enforce.real_switch import RealSwitch, SocketLink

from orchestrator.compile.openflow import oxm
from orchestrator.compile.openflow.instructions import (
    IN_PORT,
    conjunction,
    copy_field,
    instructions,
    output,
    output_register,
    read_field,
    set_field,
)
from orchestrator.compile.openflow.tracking import begin, open_with, track
from orchestrator.enforce.drivers.openflow import flowdesc, messages
from orchestrator.enforce.drivers.openflow.channel import StreamChannel
from orchestrator.enforce.drivers.openflow.fake import FakeSwitch, channel_to
from orchestrator.enforce.drivers.openflow.fake.fields import BY_NAME, Field
from orchestrator.enforce.drivers.openflow.frames import frame as frame_of
from orchestrator.enforce.drivers.openflow.frames import vlan
from orchestrator.enforce.drivers.openflow.messages import Fragments, SwitchConfig, Type
from orchestrator.enforce.drivers.openflow.resolve import resolve
from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Packet
from orchestrator.policy.protocols import TCP
from orchestrator.program.flows import Flow, FlowTable

pytestmark = pytest.mark.system

PORTS = {"vm1": 1, "vm2": 2, "vm3": 3, "wan0": 4}
ADD, DELETE, DELETE_STRICT = 0, 3, 4


class Pair:
    """Both switches, each over a channel of its own."""

    def __init__(self, real: RealSwitch, link: SocketLink) -> None:
        self.real, self.fake = real, FakeSwitch(dict(PORTS))
        self.channels: tuple[StreamChannel, StreamChannel] = (channel_to(self.fake), link.channel)

    def ask(self, requests: Sequence[bytes]) -> list[list[bytes]]:
        """The answers of both to messages without numbers, renumbered from 0."""
        found = []
        for channel in self.channels:
            xids = channel.reserve(len(requests) + 1)
            numbered = [raw[:4] + xid.to_bytes(4, "big") + raw[8:] for raw, xid in zip(requests, xids, strict=False)]
            whole = b"".join(numbered) + messages.barrier_request(xids[-1])
            answers = channel.exchange(whole, xids, timeout_s=30)
            found.append([raw[:4] + struct.pack("!I", struct.unpack_from("!I", raw, 4)[0] - xids[0]) + raw[8:]
                          for raw in answers])  # fmt: skip
        return found

    def complaints(self, requests: Sequence[bytes]) -> list[dict[int, tuple[int, int]]]:
        """What each switch refuses: number of the request -> type and code of the error."""
        return [
            {error.xid: (error.type, error.code) for error in messages.errors_in(answers)}
            for answers in self.ask(requests)
        ]

    def descriptions(self) -> list[dict[tuple[int, int, bytes], Flow]]:
        """What each switch says that it holds."""
        return [
            {flow.key: flow for flow in flowdesc.decode(messages.multipart_replies(answers, range(1))).flows.rows()}
            for answers in self.ask([flowdesc.request(0)])
        ]

    def load(self, flows: Sequence[Flow]) -> None:
        assert self.complaints([flow_mod(ADD, flow) for flow in flows]) == [{}, {}]
        self.real.settle()

    def hits(self) -> list[Counter[int]]:
        self.real.settle()
        counted = []
        for answers in self.ask([flowdesc.request(0)]):
            stats = flowdesc.decode(messages.multipart_replies(answers, range(1)))
            by_cookie: Counter[int] = Counter()
            for cookie, packets in zip(stats.flows.cookie.tolist(), stats.packets.tolist(), strict=True):
                by_cookie[cookie] += packets
            counted.append(+by_cookie)
        return counted


@pytest.fixture
def pair(real_switch: RealSwitch) -> Iterator[Pair]:
    real_switch.reset()
    link = real_switch.connect()
    yield Pair(real_switch, link)
    link.close()


def flow_mod(command: int, flow: Flow, *, flags: int = 4, cookie_mask: int = 0) -> bytes:
    """A flow-mod, packed here."""
    body = struct.pack("!QQBBHHHIIIHH", flow.cookie, cookie_mask, flow.table, command, 0, 0, flow.priority,
                       0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, flags, 0)  # fmt: skip
    match = struct.pack("!HH", 1, 4 + len(flow.match)) + flow.match
    return messages.message(Type.FLOW_MOD, 0, body + match + bytes(-len(match) % 8) + flow.instructions)


# messages

_LIKELY = {
    "icmpv6_type": (128, 135, 136),
    "icmpv6_code": (0, 1),
    "in_port": (1, 2, 0xFFFFFFFE, 0xFF00, 0xFE000001),
}


def some_tlv(rng: random.Random, field: Field, protocol: int, version: int) -> bytes:
    """A field with a value that is likely to be right."""
    bits = field.bits if rng.random() < 0.95 else 8 * field.size
    likely = {**_LIKELY, "eth_type": (version,) * 9 + (0x0800,), "ip_proto": (protocol,) * 9 + (6,)}
    value = rng.choice(likely[field.name]) if field.name in likely else rng.getrandbits(bits)
    value &= (1 << 8) - 1 if field.name == "arp_op" and rng.random() < 0.9 else -1
    header = field.oxm_class << 16 | field.number << 9
    if rng.random() < (0.5 if field.maskable else 0.03):
        mask = rng.choice((rng.getrandbits(bits), (1 << 8 * field.size) - 1, 0, 1, field.ones))
        if not mask and field.name in ("eth_src", "eth_dst", "vlan_vid"):
            mask = 1  # a match of nothing in Ethernet still asks for Ethernet, which the switch shows as one more field
        value = value & mask if rng.random() < 0.95 else value
        body = value.to_bytes(field.size, "big") + mask.to_bytes(field.size, "big")
        return (header | 0x100 | 2 * field.size).to_bytes(4, "big") + body
    return (header | field.size).to_bytes(4, "big") + value.to_bytes(field.size, "big")


def some_match(rng: random.Random) -> bytes:
    """Fields mostly in the order in which they need each other, here and there missing, doubled or swapped."""
    version, protocol, family = rng.choice(
        (
            (0x0800, 6, ("ipv4_src", "ipv4_dst", "ip_frag", "ip_proto", "tcp_src", "tcp_dst", "tcp_flags")),
            (0x86DD, 17, ("ipv6_src", "ipv6_dst", "ip_frag", "ipv6_label", "ip_proto", "udp_src", "udp_dst")),
            (0x86DD, 132, ("ip_dscp", "ip_ecn", "ip_ttl", "ip_proto", "sctp_src", "sctp_dst")),
            (0x0800, 1, ("ip_proto", "icmp_type", "icmp_code")),
            (0x86DD, 58, ("ip_proto", "icmpv6_type", "icmpv6_code", "nd_reserved", "nd_target", "nd_options_type")),
            (0x86DD, 58, ("ip_proto", "icmpv6_type", "icmpv6_code", "nd_sll")),
            (0x86DD, 58, ("ip_proto", "icmpv6_type", "nd_tll")),
            (0x0806, 0, ("arp_op", "arp_spa", "arp_tpa", "arp_sha", "arp_tha")),
            (0, 0, ("vlan_vid", "eth_src", "eth_dst", "in_port", "metadata")),
            (0, 0, ("reg0", "reg1", "packet_reg1", "reg5", "reg15", "packet_reg7")),
            (0x0800, 0, ("ct_state", "ct_nw_src", "ct_nw_dst", "ct_nw_proto", "ct_tp_src", "ct_tp_dst")),
            (0x86DD, 0, ("ct_state", "ct_ipv6_src", "ct_ipv6_dst", "ct_nw_proto", "ct_tp_src", "ct_tp_dst")),
        )
    )  # fmt: skip
    names = ["eth_type"] if version and rng.random() < 0.97 else []
    names += [name for name in family if rng.random() < (0.95 if name in ("ip_proto", "icmpv6_type") else 0.6)]
    names += [
        name for name in ("in_port", "eth_src", "reg1", "packet_reg0", "conj_id", "ct_mark") if rng.random() < 0.15
    ]
    if not {"eth_type", "ct_nw_proto"} <= set(names):  # else the switch asks for Ethernet in their place
        names = [name for name in names if not name.startswith("ct_tp")]
    if rng.random() < 0.1:
        rng.shuffle(names)
    if names and rng.random() < 0.05:
        names.append(rng.choice(names))
    octets = b"".join(some_tlv(rng, BY_NAME[name], protocol, version) for name in names)
    if rng.random() < 0.03 and octets:
        octets = octets[: rng.randrange(len(octets))]
    if rng.random() < 0.02:
        octets += bytes.fromhex("80005402000a")
    return octets


@pytest.mark.parametrize("seed", range(4))
def test_matches_are_taken_refused_and_described_alike(pair: Pair, seed: int) -> None:
    rng = random.Random(seed)
    flows = [Flow(rng.randrange(3), number, some_match(rng), b"", number) for number in range(1500)]
    ours, theirs = pair.complaints([flow_mod(ADD, flow) for flow in flows])
    differ = {number: (ours.get(number), theirs.get(number), flows[number].match.hex())
              for number in range(len(flows)) if ours.get(number) != theirs.get(number)}  # fmt: skip
    assert not differ
    assert 200 < len(theirs) < 900
    assert len(set(theirs.values())) >= 6
    our_flows, their_flows = pair.descriptions()
    assert our_flows == their_flows


def some_instructions(rng: random.Random) -> bytes:
    fields = (oxm.ETH_SRC, oxm.ETH_DST, oxm.ETH_TYPE, oxm.IPV4_SRC, oxm.IPV6_DST, oxm.ARP_OP, oxm.ARP_SPA, oxm.ARP_SHA,
              oxm.ICMPV6_TYPE, oxm.ND_TARGET, oxm.ND_TLL, oxm.ND_SLL, oxm.ND_RESERVED, oxm.ND_OPTIONS_TYPE,
              oxm.IP_PROTO, oxm.CT_NW_DST, oxm.CT_IPV6_DST, oxm.CT_TP_DST, *oxm.REGISTERS[:6])  # fmt: skip
    ours = [each for each in fields if each.oxm_class == 1]  # the switch names others in other words
    actions = []
    for _ in range(rng.randrange(4)):
        first, second = rng.choice(fields), rng.choice(fields)
        actions.append(
            rng.choice(
                (
                    output(rng.choice((1, 4, 4000, 0xFEFF, IN_PORT, 0xFFFFFFFE, 0xFF00, 0xFE000001, 0xFFFFFFFF))),
                    set_field(first, rng.getrandbits(8 * first.size if rng.random() < 0.7 else 4)),
                    copy_field(first, second) if first.size == second.size else copy_field(first, first),
                    copy_field(first, second),
                    read_field(rng.choice(ours), rng.choice(ours), bits=rng.choice((1, 16, 32, 128))),
                    output_register(rng.choice(oxm.REGISTERS)),
                    track(rng.getrandbits(16), rng.randrange(254)),
                    begin(rng.getrandbits(16), rng.getrandbits(32)),
                    open_with(rng.getrandbits(16), rng.getrandbits(32), rng.randrange(254)),
                )
            )
        )
    if rng.random() < 0.1:
        actions = actions[: rng.choice((0, 0, 0, 1))]
        for _ in range(rng.randrange(1, 3)):
            actions.append(conjunction(rng.getrandbits(32), rng.randrange(3), rng.choice((0, 1, 2, 2, 3, 64, 65))))
    raw = instructions(actions, goto=rng.choice((None, None, 5, 253, 254, 255, 0)))
    if rng.random() < 0.05 and raw:
        raw = raw[: rng.randrange(0, len(raw), 4)]
    if rng.random() < 0.05:
        raw += rng.choice((raw, struct.pack("!HHB3x", 1, 8, 77), struct.pack("!HHI", 99, 8, 0)))
    return raw


@pytest.mark.parametrize("seed", range(4))
def test_instructions_are_taken_refused_and_described_alike(pair: Pair, seed: int) -> None:
    rng = random.Random(100 + seed)
    matches = [sample.flow.match for sample in MATCHES]
    flows = [Flow(2, number, rng.choice(matches), some_instructions(rng), number) for number in range(1500)]
    ours, theirs = pair.complaints([flow_mod(ADD, flow) for flow in flows])
    differ = {
        number: (ours.get(number), theirs.get(number), flows[number].match.hex(), flows[number].instructions.hex())
        for number in range(len(flows)) if ours.get(number) != theirs.get(number)
    }  # fmt: skip
    assert not differ
    assert len(theirs) < 1200
    our_flows, their_flows = pair.descriptions()
    assert our_flows == their_flows


@pytest.mark.parametrize("seed", range(3))
def test_deletes_and_adds_end_alike(pair: Pair, seed: int) -> None:
    rng = random.Random(200 + seed)
    matches = [sample.flow.match for sample in MATCHES[:12]] + [b""]
    requests = []
    for number in range(1500):
        flow = Flow(
            rng.randrange(3), rng.randrange(3), rng.choice(matches), rng.choice((b"", output_one())), number % 7
        )
        command = rng.choices((ADD, DELETE, DELETE_STRICT), (80, 3, 17))[0]
        mask = rng.choice((0, 0, 1, (1 << 64) - 1)) if command != ADD else 0
        table = rng.choice((0, 1, 2, 255)) if command != ADD else flow.table
        flow = Flow(table, flow.priority, flow.match, flow.instructions if command == ADD else b"", flow.cookie)
        requests.append(flow_mod(command, flow, flags=rng.choice((0, 4)), cookie_mask=mask))
        if rng.random() < 0.02:
            assert pair.complaints(requests) == [{}, {}]
            requests.clear()
            ours, theirs = pair.descriptions()
            assert ours == theirs


def output_one() -> bytes:
    return instructions([output(1)])


# frames

FRAMES = [frame for sample in SAMPLES for frame in (sample.hit, sample.miss) if frame]


def some_frame(rng: random.Random) -> bytes:
    """A sample's frame, often cut, tagged, padded or with a header byte changed."""
    frame = rng.choice(FRAMES)
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        kind = rng.randrange(5)
        if kind == 0:
            frame = vlan(rng.randrange(4096), frame)
        elif kind == 1:
            frame = frame[: rng.randrange(14, len(frame) + 1)]
        elif kind == 2:
            frame += bytes(rng.randrange(20))
        elif len(frame) > 20:
            at = rng.randrange(12, min(len(frame), 60))
            frame = (
                frame[:at] + bytes((rng.choice((0, 1, 6, 17, 44, 51, 58, 60, rng.randrange(256))),)) + frame[at + 1 :]
            )
    return frame


def some_program(rng: random.Random) -> list[Flow]:
    """Flows with the samples' matches in four tables, each priority once, doing this and that."""
    numbers = resolve(FlowTable.of([flow for sample in SAMPLES for flow in sample.flows]), SYMBOLS, PORTS, "wan0")
    flows = []
    for table in (0, 10, 20, 30):
        for priority, sample in enumerate(rng.sample(numbers.rows(), 30), 10):
            doing = rng.choice(
                (
                    instructions([output(rng.choice((1, 2, 3, 4, IN_PORT)))]),
                    instructions([set_field(oxm.REGISTERS[rng.randrange(8)], rng.randrange(4))], goto=table + 10),
                    instructions([set_field(oxm.ETH_DST, rng.getrandbits(48))], goto=table + 10),
                    instructions([copy_field(oxm.ETH_SRC, oxm.ETH_DST), output(4)], goto=table + 10),
                    instructions(goto=table + 10),
                    b"",
                )
            )
            flows.append(Flow(table, priority, sample.match, doing, table << 16 | priority))
        flows.append(Flow(table, 1, b"", instructions([output(3)], goto=table + 10), table << 16 | 1))
    return flows


def meet_alike(pair: Pair, frames: Sequence[bytes]) -> None:
    """Both switches send the same frames to the same ports, and count them for the same flows."""
    for frame in frames:
        ours, theirs = pair.fake.forward(frame, "vm1"), pair.real.forward(frame, "vm1")
        assert sorted(ours) == sorted(theirs), frame.hex()
    our_hits, their_hits = pair.hits()
    assert our_hits == their_hits


def set_fragments(pair: Pair, fragments: Fragments) -> None:
    assert pair.complaints([messages.set_config(0, SwitchConfig(fragments, 128))]) == [{}, {}]


@pytest.mark.parametrize("seed", range(8))
def test_frames_go_the_same_ways(pair: Pair, seed: int) -> None:
    rng = random.Random(300 + seed)
    set_fragments(pair, Fragments.NX_MATCH if seed % 4 else Fragments.NORMAL)
    pair.load(some_program(rng))
    meet_alike(pair, [some_frame(rng) for _ in range(250)])


def some_conjunctions(rng: random.Random) -> list[Flow]:
    """Conjunctive matches over sources, destinations and ports that share clauses, and plain flows between them."""
    is_tcp = [oxm.Term(oxm.ETH_TYPE, oxm.IPV4), oxm.Term(oxm.IP_PROTO, 6)]
    addresses = [
        [is_tcp[0], oxm.Term(field, 0x0A000000 | rng.randrange(4) << at, 0xFF000000 | 3 << at)]
        for field in (oxm.IPV4_SRC, oxm.IPV4_DST)
        for at in (0, 1)
    ]
    ports = [[*is_tcp, oxm.Term(oxm.TCP_DST, rng.randrange(4) & mask, mask)] for mask in (1, 2, 3)]
    clauses: dict[tuple[int, bytes], list[bytes]] = {}
    flows = []
    for number in range(1, 8):
        priority = 100 + number // 2 * 4
        sides = [addresses[:2], addresses[2:], ports][: rng.choice((2, 3, 3))]
        for clause, side in enumerate(sides):
            for terms in rng.sample(side, rng.randrange(1, len(side) + 1)):
                named = conjunction(number, clause, len(sides))
                clauses.setdefault((priority, oxm.pack(terms)), []).append(named)
        if number > 1 or rng.random() < 0.5:  # it has its priority for itself, and nobody may ask for it
            match = oxm.pack([oxm.Term(oxm.CONJ_ID, number), is_tcp[0]])
            flows.append(Flow(0, priority, match, instructions([output(2)]), priority))
        above = priority + 1 + number % 2
        flows.append(Flow(0, above, oxm.pack(rng.choice(addresses)), instructions([output(3)]), 50 + number))
    flows += [Flow(0, *key, instructions(named), 100 + number) for number, (key, named) in enumerate(clauses.items())]
    return list({flow.key: flow for flow in flows}.values())


@pytest.mark.parametrize("seed", range(6))
def test_conjunctive_matches_are_met_alike(pair: Pair, seed: int) -> None:
    rng = random.Random(400 + seed)
    pair.load(some_conjunctions(rng))
    packets = [
        Packet(Family.IPV4, 0x0A000000 | rng.randrange(8), 0x0A000000 | rng.randrange(8), TCP, 9, rng.randrange(4))
        for _ in range(250)
    ]
    meet_alike(pair, [frame_of(packet, src_mac=0x020000000001, dst_mac=0x020000000002) for packet in packets])


@pytest.mark.parametrize("name", ["answer-arp", "answer-solicitation", "readdress"])
def test_frames_are_rewritten_alike(pair: Pair, name: str) -> None:
    rng = random.Random(name)
    set_fragments(pair, Fragments.NX_MATCH)
    sample = next(each for each in SAMPLES if each.name == name)
    numbers = resolve(FlowTable.of(sample.flows), SYMBOLS, PORTS, "wan0")
    pair.load(numbers.rows())
    frames = [sample.hit]
    for _ in range(300):
        changed = bytearray(sample.hit)
        for _ in range(rng.choice((1, 1, 2))):
            changed[rng.randrange(len(changed))] = rng.choice((0, 1, 2, 255, rng.randrange(256)))
        end = rng.choice((len(changed), len(changed), rng.randrange(14, len(changed))))
        frames.append(bytes(changed[:end]) + bytes(rng.choice((0, 0, 8))))
    meet_alike(pair, frames)


def test_symbols_reach_no_switch(pair: Pair) -> None:
    """A program that nobody resolved is refused by both, in whichever place the symbol stands."""
    unresolved = [
        Flow(0, 1, oxm.pack([oxm.Term(oxm.IN_PORT, VM1)]), b"", 1),
        Flow(0, 2, b"", instructions([output(VM2)]), 1),
    ]
    ours, theirs = pair.complaints([flow_mod(ADD, flow) for flow in unresolved])
    assert ours == theirs
    assert set(theirs) == {0, 1}
