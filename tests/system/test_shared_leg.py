"""Three endpoints behind one leg of a VNF-ACL, with real packets: permitted, refused, spoofed, and among themselves."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from functools import partial

import pytest
from patience import until
from system.legworld import DECLARED, FEED, NEWS, OUTER, WEB, LegWorld, address_of, mac_of, policy_of
from system.servedworld import heard

from orchestrator.compile.pipelines.host import GATEWAY_MAC
from orchestrator.enforce.drivers.openflow import frames
from orchestrator.lab.layout import Layout
from orchestrator.policy.addresses import Family, parse_address
from orchestrator.policy.model import Packet, ReturnTraffic
from orchestrator.policy.protocols import UDP

BROADCAST = (1 << 48) - 1
_generations = iter(range(1, 100))


@pytest.fixture(scope="module")
def world(layout: Layout) -> Iterator[LegWorld]:
    with LegWorld(layout) as made:
        yield made


@pytest.fixture
def site(world: LegWorld) -> LegWorld:
    """The VNF-ACL holds the policy, and the segment's bridge has heard from everybody."""
    world.vnf.enforce(policy_of(*DECLARED), next(_generations))
    world.vnf.ovs.forget()
    for name, neighbour in zip(DECLARED, (*DECLARED[1:], DECLARED[0]), strict=True):
        until(partial(world.pings, name, address_of(neighbour, Family.IPV4)))
    return world


def number(text: str) -> int:
    return parse_address(text)[1]


def datagram(family: Family, source: str, destination: str, port: int) -> Packet:
    return Packet(family, number(source), number(destination), UDP, 40000, port)


def told(packet: Packet, mac: int, to: int = GATEWAY_MAC) -> bytes:
    return frames.frame(packet, src_mac=mac, dst_mac=to, payload=b"told")


def datagrams(found: list[bytes]) -> list[bytes]:
    """The frames with the tests' own payload."""
    return [each for each in found if b"told" in each]


def counted(site: LegWorld, before: dict[int, int]) -> dict[int, int]:
    """The packets that rules have counted since."""
    after = site.vnf.count_packets()
    return {rule: after[rule] - before.get(rule, 0) for rule in after if after[rule] != before.get(rule, 0)}


def test_each_endpoint_is_reached_as_the_list_permits(site: LegWorld) -> None:
    for name in DECLARED:
        for family in Family:
            until(partial(site.pings, "o", address_of(name, family)))
    with site.listen("a1", 80, 81), site.listen("a2", 80):
        for family in Family:
            assert site.connects("o", address_of("a1", family), 80)
            assert not site.connects("o", address_of("a1", family), 81)
            assert not site.connects("o", address_of("a2", family), 80)
    with site.listen("o", 443):
        for name in DECLARED:
            for family in Family:
                assert site.connects(name, OUTER[family], 443)


def test_packets_of_each_are_counted_and_delivered_to_it_alone(site: LegWorld) -> None:
    before = site.vnf.count_packets()
    sent = {"a1": 20, "a2": 30, "a3": 40}
    listening = {name: site.capture(name) for name in (*sent, "x")}
    for family in Family:
        for name, times in sent.items():
            shots = [told(datagram(family, OUTER[family], address_of(name, family), port), GATEWAY_MAC)
                     for port in (5000, 5001)]  # fmt: skip
            site.send_frames("o", shots * times)
    for name, times in sent.items():
        got = datagrams(heard(listening[name]))
        assert len(got) == 2 * times
        assert {(each[:6], each[6:12]) for each in got} == {
            (mac_of(name).to_bytes(6, "big"), GATEWAY_MAC.to_bytes(6, "big"))
        }  # fmt: skip
    assert datagrams(heard(listening["x"])) == []
    assert counted(site, before) == {FEED: 2 * sum(sent.values())}


def test_what_the_segment_says_in_others_names_comes_to_nothing(site: LegWorld) -> None:
    before = site.vnf.count_packets()
    shots: list[tuple[str, bytes]] = []
    for family in Family:
        own, others = address_of("a1", family), [address_of(name, family) for name in ("a2", "x")]
        true = datagram(family, own, OUTER[family], 6000)
        shots += [("a1", told(true, mac_of(name))) for name in ("a2", "a3", "x")]
        shots += [("a1", told(datagram(family, each, OUTER[family], 6000), mac_of("a1"))) for each in others]
        shots += [("x", told(datagram(family, each, OUTER[family], 6000), mac_of("x"))) for each in (own, *others)]
        shots += [("a1", told(true, mac_of("a1"), to)) for to in (mac_of("a2"), 0x02AAAAAAAAAA, BROADCAST)]
    with site.capture("o") as outside:
        for sender, shot in shots:
            site.send_frames(sender, [shot])
        assert datagrams(heard(outside)) == []
        assert counted(site, before) == {}
        for name in DECLARED:  # told truly, they arrive: it was the lie that was dropped
            for family in Family:
                own = address_of(name, family)
                site.send_frames(name, [told(datagram(family, own, OUTER[family], port), mac_of(name))
                                        for port in (6000, 6001)])  # fmt: skip
        assert len(datagrams(heard(outside))) == 2 * len(DECLARED)
    assert counted(site, before)[NEWS] == 2 * len(DECLARED)


def test_neighbours_reach_each_other_past_the_vnf_and_never_by_it(site: LegWorld) -> None:
    before = site.vnf.count_packets()
    for family in Family:
        until(partial(site.pings, "a1", address_of("a2", family)))
    with site.capture("a2") as there, site.capture("o") as outside:
        for family in Family:
            through = datagram(family, address_of("a1", family), address_of("a2", family), 5000)
            site.send_frames("a1", [told(through, mac_of("a1"))])
        assert datagrams(heard(there)) == []
        assert datagrams(heard(outside)) == []
    assert counted(site, before) == {}


def test_a_question_for_a_neighbour_has_one_answer(site: LegWorld) -> None:
    asked = {"10.10.0.12": mac_of("a2"), "10.10.0.1": GATEWAY_MAC, "192.0.2.7": GATEWAY_MAC}
    for target, answerer in asked.items():
        question = frames.arp(frames.ARP_REQUEST, mac_of("a1"), number("10.10.0.11"), 0, number(target))
        with site.capture("a1") as port:
            site.send_frames("a1", [frames.ethernet(mac_of("a1"), BROADCAST, frames.ARP, question.ljust(46, b"\0"))])
            assert _list_repliers(port) == [answerer]
    lie = frames.arp(frames.ARP_REQUEST, mac_of("x"), number("10.10.0.11"), 0, number("10.10.0.1"))
    with site.capture("x") as port:
        site.send_frames("x", [frames.ethernet(mac_of("x"), BROADCAST, frames.ARP, lie.ljust(46, b"\0"))])
        assert _list_repliers(port) == []


def _list_repliers(port: socket.socket) -> list[int]:
    """The MAC addresses that answer by ARP, until half a second was quiet."""
    found = []
    while True:
        try:
            frame, (_, _, kind, *_) = port.recvfrom(4096)
        except TimeoutError:
            return found
        if kind != socket.PACKET_OUTGOING and frame[12:14] == b"\x08\x06" and frame[20:22] == b"\0\2":
            found.append(int.from_bytes(frame[22:28], "big"))


def test_an_endpoint_that_is_not_declared_any_more_is_a_stranger(site: LegWorld) -> None:
    site.vnf.enforce(policy_of("a1", "a3"), next(_generations))
    site.vnf.ovs.forget()
    for family in Family:
        assert not site.pings("o", address_of("a2", family))
        assert site.pings("o", address_of("a1", family))
        assert site.pings("o", address_of("a3", family))


def test_connections_are_tracked_through_a_shared_leg(site: LegWorld) -> None:
    site.vnf.enforce(policy_of(*DECLARED, returns=ReturnTraffic.TRACKED), next(_generations))
    site.vnf.ovs.forget()
    before = site.vnf.count_packets()
    with site.listen("a1", 80, 81), site.listen("a3", 80), site.listen("o", 443):
        for family in Family:
            until(partial(site.connects, "o", address_of("a1", family), 80))
            assert not site.connects("o", address_of("a1", family), 81)
            assert not site.connects("o", address_of("a3", family), 80)
            for name in DECLARED:
                until(partial(site.connects, name, OUTER[family], 443))
    assert set(counted(site, before)) >= {WEB}
