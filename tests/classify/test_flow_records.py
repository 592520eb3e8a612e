"""Flow records of IPFIX, of our packet log and of others: decided only where what they leave out does not matter."""

from __future__ import annotations

import datetime as dt
import io
import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import aclflow
from hypothesis import given
from hypothesis import strategies as st
from strategies import acls, corner_packets_of

from orchestrator.classify.captures import Capture
from orchestrator.classify.flowrecords import FlowRecords
from orchestrator.classify.flows import Count
from orchestrator.classify.frames import NO_TIME
from orchestrator.classify.listdecider import Deciding
from orchestrator.classify.packets import Unread, packet_of
from orchestrator.classify.replay import Replay, replay
from orchestrator.control.packets.ipfix import Exporter
from orchestrator.errors import BadInput
from orchestrator.policy.addresses import Addresses, Family, Prefix
from orchestrator.policy.model import Acl, Action, Direction, Packet, ReturnTraffic, Rule, RuleId
from orchestrator.policy.oracle import ask
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import TCP, UDP
from orchestrator.policy.space import possible
from orchestrator.store.packetlog import LoggedPacket

NOON = dt.datetime(2026, 1, 2, 12, tzinfo=dt.UTC)


def exported(packets: Sequence[Packet]) -> bytes:
    """A file of what the packet log tells of packets."""
    logged = [
        LoggedPacket(NOON + dt.timedelta(seconds=place), "acme", "web", Action.PERMIT, Direction.INGRESS,
                     "host1", packet, 60)
        for place, packet in enumerate(packets)
    ]  # fmt: skip
    return b"".join(Exporter().messages("metro", logged, 1, with_templates=True))


def run(data: bytes, acl: Acl) -> Replay:
    return replay([Capture("log.ipfix", io.BytesIO(data))], Deciding(acl), threads=2)


def pieces(data: bytes) -> list[FlowRecords]:
    found = list(Capture("log.ipfix", io.BytesIO(data)).pieces())
    assert all(isinstance(each, FlowRecords) for each in found)
    return found  # type: ignore[return-value]


def decider(acl: Acl, packet: Packet) -> str | None:
    return ask(acl, packet, Direction.INGRESS, ReturnTraffic.EXPLICIT).rule


def possible_packets(packet: Packet) -> Iterator[Packet]:
    """The packets that a record of our packet log may be of: it has no word of fragments."""
    yield packet
    said = packet.source_port, packet.destination_port, packet.icmp_type, packet.icmp_code
    if packet.family is Family.IPV4 and not packet.later_fragment and not any(said):
        yield possible(replace(packet, later_fragment=True))


@given(acls())
def test_our_own_records_are_decided_as_their_packets_or_not_at_all(acl: Acl) -> None:
    """And they are left undecided only where a later fragment, which looks alike, would meet another rule."""
    for packet in corner_packets_of(acl)[:12]:
        found = run(exported([packet]), acl)
        met = [
            each.id
            for number, each in enumerate(found.deciding.deciders)
            if found.of_list.packets[number] and each.direction is Direction.INGRESS
        ]
        if met:
            wanted = decider(acl, packet)
            assert met == [wanted if wanted is not None else "_default"], packet
        else:
            assert found.unread == {Unread.UNSAID: Count(1, 60)}
            plain = replace(packet, later_fragment=False)
            fates = {decider(acl, each) for each in (packet, *possible_packets(plain))}
            assert len(fates) > 1 or packet.later_fragment, packet


def test_records_are_numbered_timed_and_counted() -> None:
    packets = [Packet(Family.IPV4, 1, 2, TCP, 9, 80, tcp_flags=2), Packet(Family.IPV6, 1, 2, UDP, 9, 53)] * 30
    found = run(exported(packets), Acl(()))
    assert found.all == Count(60, 3600)
    assert found.timeline.counts.sum() == 60
    assert found.timeline.width == 1_000_000_000
    (records,) = pieces(exported(packets[:1]))
    assert packet_of(records.packets[0]) == packets[0]
    assert records.times.tolist() == [int(NOON.timestamp()) * 10**9]


# ---- records of others


def message(*sets: bytes, domain: int = 1) -> bytes:
    body = b"".join(sets)
    return struct.pack("!HHIII", 10, 16 + len(body), 1, 0, domain) + body


def template(number: int, *fields: tuple[int, int]) -> bytes:
    body = struct.pack("!HH", number, len(fields)) + b"".join(struct.pack("!HH", *each) for each in fields)
    return struct.pack("!HH", 2, 4 + len(body)) + body


def data(number: int, body: bytes) -> bytes:
    return struct.pack("!HH", number, 4 + len(body)) + body


FLOW = ((8, 4), (12, 4), (4, 1), (7, 2), (11, 2), (2, 4), (1, 4), (152, 8))


def flow(protocol: int, port: int, packets: int = 5) -> bytes:
    ends = bytes((192, 0, 2, 1, 198, 51, 100, 7))
    return ends + struct.pack("!BHHIIQ", protocol, 40000, port, packets, 60 * packets, 1_700_000_000_000)


ESTABLISHED = Rule(RuleId("replies"), Action.PERMIT, protocol=TCP, established=True)
WEB = Rule(RuleId("web"), Action.PERMIT, protocol=TCP, destination_ports=(PortRange(80, 80),))
NO_LAB = Rule(RuleId("no-lab"), Action.DENY, source=Addresses((Prefix.parse("192.0.2.0/24"),)))


@pytest.mark.parametrize(
    ("rules", "permitted", "denied", "undecided"),
    [
        ((WEB,), 5, 3, 0),
        ((WEB, ESTABLISHED), 5, 0, 3),
        ((ESTABLISHED, WEB), 0, 0, 8),
        ((NO_LAB, ESTABLISHED), 0, 8, 0),
    ],
)
def test_a_flow_without_flags_is_undecided_where_a_rule_asks_for_them(
    rules: tuple[Rule, ...], permitted: int, denied: int, undecided: int
) -> None:
    found = run(message(template(300, *FLOW), data(300, flow(6, 80) + flow(6, 22, 3))), Acl(rules))
    assert (found.of_list.permitted.packets, found.of_list.denied.packets) == (permitted, denied)
    assert found.unread.get(Unread.UNSAID, Count()).packets == undecided
    assert found.all == Count(8, 480)
    assert found.timeline.counts.sum() == 8


@pytest.mark.parametrize(("packets", "is_known"), [(1, True), (2, False)])
def test_flags_of_several_packets_are_of_none_of_them(packets: int, is_known: bool) -> None:
    body = flow(6, 80, packets) + b"\x12"
    found = run(message(template(300, *FLOW, (6, 1)), data(300, body)), Acl((ESTABLISHED,)))
    assert bool(found.of_list.permitted.packets) is is_known


def test_a_fragment_offset_says_whether_it_is_a_later_fragment() -> None:
    body = flow(17, 0).replace(struct.pack("!H", 40000), bytes(2))
    rule = Rule(RuleId("names"), Action.DENY, protocol=UDP, destination_ports=(PortRange(0, 53),))
    acl = Acl((rule, Rule(RuleId("all"), Action.PERMIT)))
    assert Unread.UNSAID in run(message(template(300, *FLOW), data(300, body)), acl).unread
    for offset, fate in ((0, "denied"), (8, "permitted")):
        told = message(template(300, *FLOW, (88, 2)), data(300, body + struct.pack("!H", offset)))
        assert getattr(run(told, acl).of_list, fate).packets == 5


def test_templates_are_of_their_domain_and_may_be_withdrawn() -> None:
    flows = data(300, flow(6, 80))
    known = message(template(300, *FLOW))
    reading = Capture("log.ipfix", io.BytesIO(known + message(flows, domain=2) + message(template(300), flows)))
    assert list(reading.pieces()) == []
    assert reading.remarks == ["log.ipfix: 2 sets of records are left out, for no template says what is in them"]
    assert run(known + message(flows), Acl(())).all.packets == 5


def test_elements_of_enterprises_names_of_any_length_and_options_are_passed_over() -> None:
    private = struct.pack("!HHI", 0x8000 | 8, 2, 29305)
    fields = b"".join(struct.pack("!HH", *each) for each in FLOW)
    body = struct.pack("!HH", 300, len(FLOW) + 2) + private + struct.pack("!HH", 335, 0xFFFF) + fields
    known = struct.pack("!HH", 2, 4 + len(body)) + body
    records = b"xx" + b"\xff" + struct.pack("!H", 300) + bytes(300) + flow(6, 80) + b"xx\x00" + flow(17, 53)
    options = struct.pack("!HH", 3, 12) + bytes(8)
    found = run(message(known, options, data(300, records + b"\0")), Acl((WEB,)))
    assert (found.of_list.permitted.packets, found.of_list.denied.packets) == (5, 5)


def test_records_that_say_too_little_or_too_much() -> None:
    arp = message(template(300, (80, 6), (2, 4)), data(300, bytes(6) + struct.pack("!I", 7)))
    assert run(arp, Acl(())).unread == {Unread.NOT_IP: Count(7, 0)}
    odd = message(template(300, (8, 4), (12, 4), (4, 1), (1, 8)), data(300, bytes(9) + b"\xff" * 8))
    assert run(odd, Acl(())).unread == {Unread.BROKEN: Count(1, 0)}
    (untimed,) = pieces(message(template(300, (8, 4), (12, 4), (4, 1)), data(300, bytes(9))))
    assert untimed.times.tolist() == [NO_TIME]
    (ntp,) = pieces(message(template(300, (8, 4), (12, 4), (4, 1), (154, 8)), data(300, bytes(9) + b"\xff" * 8)))
    assert ntp.times.tolist() == [((1 << 32) - 1 - 2_208_988_800) * 10**9 + ((1 << 32) - 1) * 10**9 // (1 << 32)]


GOOD = message(template(300, *FLOW), data(300, flow(6, 80)))
DAMAGE = {
    "another version": (GOOD + b"\0\x09" + bytes(14), "no message of IPFIX begins so"),
    "a short message": (GOOD + struct.pack("!HHIII", 10, 15, 0, 0, 0), "no message of IPFIX begins so"),
    "a set beyond its message": (GOOD + message(struct.pack("!HH", 300, 99)), "no set is 99 bytes long here"),
    "a set without its header": (GOOD + message(struct.pack("!HH", 300, 3)), "no set is 3 bytes long here"),
    "half a header": (GOOD + message(bytes(3)), "inside a set's header"),
    "half a template": (message(struct.pack("!HHHHH", 2, 10, 300, 2, 8)), "a template ends inside its fields"),
    "no length": (message(template(300, (8, 0)), data(300, b"1234")), "records without a length"),
    "a long name": (message(template(300, (8, 0xFFFF)), data(300, b"\x09abc")), "ends behind its set"),
    "a longer name": (message(template(300, (8, 0xFFFF)), data(300, b"\xff\xff")), "ends behind its set"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_refused_with_its_place(name: str) -> None:
    told, words = DAMAGE[name]
    with pytest.raises(BadInput, match=words) as caught:
        run(told, Acl(()))
    assert "at byte" in str(caught.value)


@given(st.integers(0, len(GOOD) - 1), st.integers(0, 255))
def test_any_byte_may_be_wrong(place: int, byte: int) -> None:
    told = bytearray(GOOD)
    told[place] = byte
    try:
        run(bytes(told), Acl((WEB,)))
    except BadInput:
        return


def test_records_of_a_byte_each_do_not_fill_memory() -> None:
    tiny = message(data(300, bytes(60_000)))
    found = pieces(message(template(300, (4, 1))) + tiny * 5 + GOOD)
    assert [len(each) for each in found] == [60_000] * 5 + [1]
    assert run(message(template(300, (4, 1))) + tiny * 5 + GOOD, Acl(())).all.packets == 300_005


def test_a_file_that_ends_early_is_read_up_to_there(tmp_path: Path) -> None:
    path, listed = tmp_path / "log.ipfix", tmp_path / "list.json"
    path.write_bytes(GOOD + message(data(300, flow(6, 22)))[:-1])
    listed.write_text(json.dumps({"rules": [{"id": "web", "action": "permit", "protocol": "tcp"}]}))
    ended = aclflow("replay", str(path), "--acl", str(listed), "--json")
    assert ended.json()["permitted"] == {"packets": 5, "octets": 300}
    assert "cut off" in ended.err
    assert "unsaid" in ended.json()["undecided"]
