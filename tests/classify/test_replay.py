"""A replay counts every frame once: by fate, by rule, by flow; and says what another list would change."""

from __future__ import annotations

import io
from collections import Counter

import numpy as np
import pytest
from classify.recorded import V4, V6, ethernet, icmp, ipv4, ipv6, pcap, pcapng, tcp, udp, web

from orchestrator.classify import captures as reading
from orchestrator.classify.captures import Capture
from orchestrator.classify.flows import Count, FlowCounts, Flows, Place, flows_of
from orchestrator.classify.listdecider import Deciding
from orchestrator.classify.packets import PACKET, Unread, record
from orchestrator.classify.replay import Replay, replay
from orchestrator.errors import BadInput
from orchestrator.policy.addresses import Addresses, Family, Prefix
from orchestrator.policy.model import Acl, Action, Direction, Packet, ReturnTraffic, Rule, RuleId
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import TCP, UDP

OWN = (Prefix.parse("198.51.100.0/24"), Prefix.parse("2001:db8:1::/48"))
WEB = Rule(RuleId("web"), Action.PERMIT, protocol=TCP, destination_ports=(PortRange(80, 80),))
NO_LAB = Rule(RuleId("no-lab"), Action.DENY, source=Addresses((Prefix.parse("192.0.2.128/25"),)))
NO_MAIL = Rule(
    RuleId("no-mail"), Action.DENY, Direction.EGRESS, protocol=TCP, destination_ports=(PortRange(25, 25),)
)  # fmt: skip
NAMES = Rule(RuleId("names"), Action.PERMIT, protocol=UDP, destination_ports=(PortRange(53, 53),))
ACL = Acl((NO_LAB, WEB, NO_MAIL, NAMES))

FRAMES = [
    web(), web(flags=0x10), web(), web("192.0.2.200"), web(port=81),
    ethernet(V4, ipv4(6, tcp(80, 40000, 0x12), "198.51.100.7", "192.0.2.1")),
    ethernet(V4, ipv4(6, tcp(40001, 25), "198.51.100.7", "192.0.2.1")),
    ethernet(V4, ipv4(6, tcp(40001, 80), "198.51.100.7", "198.51.100.8")),
    ethernet(V4, ipv4(1, icmp())), ethernet(V6, ipv6(58, icmp(128))), ethernet(V6, ipv6(17, udp())),
    ethernet(V4, ipv4(6, tcp(), "192.0.2.1", "203.0.113.1")),
    ethernet(0x0806, bytes(28)), ethernet(V4, ipv4(6, tcp()[:7])),
]  # fmt: skip


def capture(frames: list[bytes], name: str = "day.pcap") -> Capture:
    return Capture(name, io.BytesIO(pcap(frames)))


def run(frames: list[bytes], acl: Acl = ACL, against: Acl | None = None, *, threads: int = 2) -> Replay:
    other = None if against is None else Deciding(against, own=OWN)
    return replay([capture(frames)], Deciding(acl, own=OWN), other, threads=threads)


def octets(*places: int) -> Count:
    """Of some frames."""
    return Count(len(places), sum(len(FRAMES[place]) for place in places))


def by_rule(found: Replay) -> dict[str, int]:
    deciders = found.deciding.deciders
    return {
        f"{each.direction.value} {each.id}": int(found.of_list.packets[place]) for place, each in enumerate(deciders)
    }


def test_every_frame_has_one_fate() -> None:
    found = run(FRAMES)
    assert found.all == octets(*range(len(FRAMES)))
    assert found.of_list.permitted == octets(0, 1, 2, 5, 7, 10)
    assert found.of_list.denied == octets(3, 4, 6, 8, 9)
    assert found.nobodys == octets(11)
    assert found.unread == {Unread.NOT_IP: octets(12), Unread.BROKEN: octets(13)}


def test_every_list_that_is_asked_counts() -> None:
    assert by_rule(run(FRAMES)) == {
        "egress no-mail": 1, "egress _default": 2,
        "ingress no-lab": 1, "ingress web": 4, "ingress names": 1, "ingress _default": 3,
    }  # fmt: skip


def test_denied_flows_name_who_denies_and_where_they_began() -> None:
    found = run([FRAMES[0], *FRAMES[3:5], web("192.0.2.200", flags=0x10), *FRAMES[6:]])
    told = [
        (str(flow), found.deciding.deciders[flow.decider].id, flow.count.packets, flow.first.packet)
        for flow in found.denied_flows.largest()
    ]
    assert told == [
        ("tcp 192.0.2.200 > 198.51.100.7:80", "no-lab", 2, 2),
        ("tcp 192.0.2.1 > 198.51.100.7:81", "_default", 1, 3),
        ("tcp 198.51.100.7 > 192.0.2.1:25", "no-mail", 1, 5),
        ("icmp 192.0.2.1 > 198.51.100.7 type 8 code 0", "_default", 1, 7),
        ("icmpv6 2001:db8::1 > 2001:db8:1::7 type 128 code 0", "_default", 1, 8),
    ]


def test_a_service_is_one_flow_whatever_ports_it_answers_to() -> None:
    answers = [
        ethernet(V6, ipv6(6, tcp(443, port, 0x10), "2001:db8::1", "2001:db8:1::7")) for port in range(40000, 40009)
    ]
    (flow,) = run(answers).denied_flows.largest()
    assert (str(flow), flow.count.packets) == ("tcp [2001:db8::1]:443 > 2001:db8:1::7", 9)


def test_what_another_list_would_change() -> None:
    before = Acl((WEB, NAMES, Rule(RuleId("ping"), Action.PERMIT, protocol=1)))
    found = run(FRAMES, against=before)
    assert found.changed
    assert found.of_other is not None
    assert found.of_other.permitted == octets(0, 1, 2, 3, 5, 6, 7, 8, 10)
    assert found.changed.permitted == Count()
    assert found.changed.denied == octets(3, 6, 8)
    assert found.against is not None
    told = [
        (str(flow), found.against.deciders[flow.before].id, found.deciding.deciders[flow.decider].id)
        for flow in found.changed.denied_flows.largest()
    ]
    assert told == [
        ("tcp 192.0.2.200 > 198.51.100.7:80", "web", "no-lab"),
        ("tcp 198.51.100.7 > 192.0.2.1:25", "_default", "no-mail"),
        ("icmp 192.0.2.1 > 198.51.100.7 type 8 code 0", "ping", "_default"),
    ]
    back = run(FRAMES, before, ACL).changed
    assert (back.permitted, back.denied) == (found.changed.denied, found.changed.permitted)
    assert not run(FRAMES, against=ACL).changed


def test_replies_come_in_where_the_domain_lets_them() -> None:
    reply = ethernet(V4, ipv4(6, tcp(80, 40000, 0x12)))
    for returns, denied in ((ReturnTraffic.EXPLICIT, 1), (ReturnTraffic.ESTABLISHED, 0)):
        found = replay([capture([reply])], Deciding(ACL, own=OWN, returns=returns))
        assert found.of_list.denied.packets == denied


@pytest.mark.parametrize("threads", [1, 3])
def test_pieces_add_up_in_order(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts, first packets and the order of flows do not depend on how a capture is cut, nor on who is first."""
    whole = run(FRAMES * 7)
    monkeypatch.setattr(reading, "PIECE", 150)
    found = run(FRAMES * 7, threads=threads)
    assert (found.all, found.of_list.permitted, found.unread) == (whole.all, whole.of_list.permitted, whole.unread)
    assert by_rule(found) == by_rule(whole)
    assert [*found.denied_flows.largest()] == [*whole.denied_flows.largest()]


def test_captures_are_told_apart() -> None:
    captures = [capture(FRAMES[:4], "one"), Capture("two", io.BytesIO(pcapng(FRAMES[4:])[:-1]))]
    found = replay(captures, Deciding(ACL, own=OWN))
    assert found.captures == ["one", "two"]
    assert found.all.packets == len(FRAMES) - 1
    assert [flow.first for flow in found.denied_flows.largest()][:2] == [Place("one", 4), Place("two", 1)]
    assert [remark.split(":")[0] for remark in found.remarks] == ["two is cut off"]


def test_damage_ends_a_replay() -> None:
    with pytest.raises(BadInput, match=r"day\.pcap: packet 15, at byte"):
        replay([Capture("day.pcap", io.BytesIO(pcap(FRAMES) + b"\xff" * 40))], Deciding(ACL))


def test_the_smallest_flows_are_forgotten_and_that_is_told() -> None:
    found = run([web(f"192.0.2.{200 + place % 12}") for place in range(12)] + [web("192.0.2.129")] * 3)
    parts = [(flow.source & 0xFF, flow.count.packets) for flow in found.denied_flows.largest()]
    assert Counter(count for _, count in parts) == {3: 1, 1: 12}
    few = Flows(most=4)
    for turn in range(5):
        addresses = [129, *(130 + 3 * turn + each for each in range(3)), 129]
        few.add(_flows(addresses), "day.pcap", 0)
        few.add(_flows(addresses), "day.pcap", 5)
    kept = [*few.largest()]
    assert len(kept) <= 4
    assert few.forgotten > 0
    assert (kept[0].source, kept[0].count, kept[0].first) == (129, Count(20, 1200), Place("day.pcap", 1))


def _flows(addresses: list[int]) -> FlowCounts:
    """A packet of 60 bytes from each of some addresses."""
    packets = [Packet(Family.IPV4, address, 1, TCP, 40000, 80) for address in addresses]
    ones = np.ones(len(packets), np.int64)
    numbers = np.zeros(len(packets), np.int32)
    kinds = np.array([record(packet) for packet in packets], PACKET)
    return flows_of(kinds, ones, 60 * ones, np.arange(len(packets)), numbers, numbers)
