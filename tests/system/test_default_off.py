"""The floor of "default off", with real packets through real switches: none arrives unless a rule permits it.

Here: who sends, to whom, from where, and what neighbours may be told. `test_default_off_headers` tries headers.
"""

from __future__ import annotations

import contextlib
import itertools
import subprocess
from collections.abc import Iterator
from dataclasses import replace

import pytest
from system.shooting import (
    ACK,
    ADDRESS,
    ALL_NODES,
    BRIDGES_MAC,
    EVERYBODY,
    EVERYBODY_MAC,
    F4,
    F6,
    GATEWAY,
    MAC,
    MANY_MAC,
    POP,
    SYN,
    Range,
    aimed,
    arp,
    forged_discovery,
    layer3,
    packet,
    told_as,
    true_question,
)

from orchestrator.compile.pipelines.host import GATEWAY_MAC
from orchestrator.enforce.drivers.openflow import frames
from orchestrator.lab.spec import ClientSpec
from orchestrator.lab.wire import Shot, shot
from orchestrator.policy.addresses import Family, Prefix, format_address
from orchestrator.policy.model import Packet
from orchestrator.policy.protocols import ICMPV6, TCP, UDP


def test_what_rules_permit_arrives_and_what_they_do_not_name_does_not(aim: Range) -> None:
    for family in Family:
        assert aim.send(
            ("alice", packet("alice", "web1", family, TCP, 40000, 80, tcp_flags=SYN)),
            ("alice", packet("alice", "web1", family, UDP, 40000, 53)),
            ("mallory", packet("mallory", "web1", family, TCP, 40000, 80, tcp_flags=SYN)),
            ("mallory", packet("mallory", "web1", family, TCP, 40000, 81, tcp_flags=SYN)),
            ("mallory", packet("mallory", "web1", family, UDP, 40000, 80)),
            ("mallory", packet("mallory", "db1", family, TCP, 40000, 80, tcp_flags=SYN)),
            ("alice", packet("alice", "bank1", family, TCP, 40000, 80, tcp_flags=SYN)),
        ) == [("web1",), ("web1",), ("web1",), (), (), (), ()]


def test_spoofed_sources_reach_nobody(aim: Range) -> None:
    """From web1's port, as everybody else, with web1's MAC address and with theirs, to where it would be permitted."""
    shots = []
    for family, (liar, victim) in itertools.product(Family, [("web1", "db1"), ("bank1", "web1"), ("db1", "bank2")]):
        for claimed in EVERYBODY:
            if claimed == liar:
                continue
            lie = packet(claimed, victim, family, TCP, 40000, 80, tcp_flags=ACK)
            shots += [Shot(liar, told_as(lie, MAC[liar])), Shot(liar, told_as(lie, MAC[claimed]))]
        own = packet(liar, victim, family, TCP, 40000, 80, tcp_flags=ACK)
        shots.append(Shot(liar, told_as(own, MAC["alice"])))
        nobody = Packet(family, 0x01020304, own.destination, TCP, 40000, 80, tcp_flags=ACK)
        shots.append(Shot(liar, told_as(nobody, MAC[liar])))
    assert aim.fire(shots) == [()] * len(shots)
    for family in Family:  # the same frames, told truly, arrive: it was the lie that was dropped
        assert aim.send(("web1", packet("web1", "db1", family, TCP, 40000, 80, tcp_flags=ACK))) == [("db1",)]


@contextlib.contextmanager
def liar_at_the_uplink_of(aim: Range, host: str) -> Iterator[None]:
    """What mallory sends goes to a host as it is: the edge, which would know better, does not look."""
    client, port = POP.node("mallory"), POP.host(host).edge_port
    assert isinstance(client, ClientSpec)
    kinds = ("ip", "ipv6", f"arp,arp_tpa={format_address(F4, ADDRESS['web1', F4])}")
    matches = [f'priority=9000,in_port="{client.port}",{kind}' for kind in kinds]
    aim.lab.ovs.ofctl("add-flows", "edge", "-", text="\n".join(f'{each},actions=output:"{port}"' for each in matches))
    aim.lab.ovs.forget()
    try:
        yield
    finally:
        for match in matches:
            aim.lab.ovs.ofctl("del-flows", "edge", match, options=["--strict"])
        aim.lab.ovs.forget()


def test_nobody_outside_speaks_for_an_endpoint_that_is_here(aim: Range) -> None:
    """Rule `low` permits bank1 to send to the shop. On the wire to a host each name is worth what its port says."""
    for family in Family:
        lies = [packet(one, "web1", family, UDP, 40000, port) for one in ("bank1", "web1") for port in (514, 53)]
        names = ("mallory", "alice", "bank2", "db1")
        told = [packet(one, "web1", family, UDP, 40000, 53) for one in names]
        with liar_at_the_uplink_of(aim, "host1"):
            shots = [Shot("mallory", told_as(each, MAC["mallory"])) for each in (*lies, *told)]
            assert aim.fire(shots) == [()] * len(lies) + [("web1",)] * len(told)
        with liar_at_the_uplink_of(aim, "host2"):
            low = [packet(one, "db1", family, UDP, 40000, 514) for one in ("bank1", "bank2")]
            assert aim.fire([Shot("mallory", told_as(each, MAC["mallory"])) for each in low]) == [("db1",), ()]


def test_frames_for_others_do_not_come_in_by_the_uplink(aim: Range) -> None:
    with liar_at_the_uplink_of(aim, "host1"):
        for family in Family:
            true = packet("mallory", "web1", family, UDP, 40000, 53)
            macs = (GATEWAY_MAC, MAC["web1"], MAC["bank1"], MAC["mallory"], EVERYBODY_MAC, MANY_MAC, BRIDGES_MAC)
            assert aim.fire([aimed("mallory", mac, true) for mac in macs]) == [("web1",), *[()] * (len(macs) - 1)]


def test_neighbours_beyond_the_uplink_are_neither_heard_nor_answered(aim: Range) -> None:
    operations = (frames.ARP_REQUEST, frames.ARP_REPLY)
    shots = [
        arp("mallory", operation, mac, ADDRESS[named, F4], ADDRESS["web1", F4], mac=mac)
        for operation in operations
        for mac in (MAC["bank1"], GATEWAY_MAC)
        for named in ("bank1", "web1", "db1")
    ]
    shots += [replace(each, sender="mallory") for each in (*forged_discovery(), true_question("web1"))]
    with liar_at_the_uplink_of(aim, "host1"):
        assert aim.fire(shots) == [()] * len(shots)


# ---------------------------------------------------------------- neighbours


def test_true_questions_are_answered_by_the_switch_and_go_no_further(aim: Range) -> None:
    """Whoever is asked for: the answer is the gateway's MAC address, and only the one who asked sees anything."""
    for asked in ("169.254.1.1", "198.51.100.20", "203.0.113.10", "192.0.2.10", "8.8.8.8"):
        target = Prefix.parse(asked).network
        (landed,) = aim.wire.fire([arp("web1", frames.ARP_REQUEST, MAC["web1"], ADDRESS["web1", F4], target)])
        assert landed.nodes == ("web1",)
        answer = frames.arp(frames.ARP_REPLY, GATEWAY_MAC, target, MAC["web1"], ADDRESS["web1", F4])
        assert landed.frame.startswith(frames.ethernet(GATEWAY_MAC, MAC["web1"], frames.ARP, answer))


def test_forged_arp_reaches_nobody_and_gets_no_answer(aim: Range) -> None:
    mine, mac = ADDRESS["web1", F4], MAC["web1"]
    forged = []
    for victim in ("db1", "bank1", "bank2", "alice"):
        theirs, their_mac = ADDRESS[victim, F4], MAC[victim]
        for operation in (frames.ARP_REQUEST, frames.ARP_REPLY):
            forged += [
                arp("web1", operation, mac, theirs, theirs),  # a gratuitous claim of somebody's address
                arp("web1", operation, mac, theirs, ADDRESS["bank1", F4]),
                arp("web1", operation, their_mac, mine, theirs),  # own address, another's MAC address inside
                arp("web1", operation, their_mac, theirs, mine, mac=their_mac),
                arp("web1", operation, mac, mine, theirs, mac=their_mac),
            ]
        forged.append(arp("web1", frames.ARP_REPLY, mac, mine, theirs))  # even a true reply: nobody asked
    forged.append(arp("web1", frames.ARP_REPLY, mac, Prefix.parse("169.254.1.1").network, ADDRESS["bank1", F4]))
    forged.append(arp("web1", frames.ARP_REQUEST, mac, mine, mine))  # a probe for its own address is not answered
    assert aim.fire(forged) == [()] * len(forged)


def test_forged_neighbour_discovery_reaches_nobody_and_gets_no_answer(aim: Range) -> None:
    forged = forged_discovery()
    assert aim.fire(forged) == [()] * len(forged)
    (landed,) = aim.wire.fire([true_question("web1")])
    assert landed.nodes == ("web1",)  # the same, told truly, is answered
    assert landed.frame[6:12] == GATEWAY_MAC.to_bytes(6, "big")


@pytest.mark.parametrize("kind", [133, 134, 137, 130, 131, 132, 143])
def test_routers_redirects_and_listeners_are_not_spoken_for(aim: Range, kind: int) -> None:
    """A router advertisement from a neighbour would take over its whole network."""
    shots = []
    for source, to in itertools.product((ADDRESS["web1", F6], GATEWAY), (ALL_NODES, ADDRESS["bank1", F6])):
        message = frames.icmp(kind, 0, bytes(12), frames.pseudo_v6(source, to))
        whole = frames.ipv6(source, to, ICMPV6, message)
        shots += [
            Shot("web1", lambda marker, m=mac, w=whole: frames.ethernet(MAC["web1"], m, frames.IPV6, w + marker))
            for mac in (MANY_MAC, GATEWAY_MAC)
        ]
    assert aim.fire(shots) == [()] * len(shots)


def test_discovery_is_not_forwarded_even_where_all_is_permitted(aim: Range) -> None:
    """Rule `all` permits every protocol from alice to db1; discovery lives on one link all the same."""
    ends = ADDRESS["alice", F6], ADDRESS["db1", F6]
    about = frames.pseudo_v6(*ends)

    def message(kind: int) -> Shot:
        return layer3(
            "alice", frames.IPV6, lambda m: frames.ipv6(*ends, ICMPV6, frames.icmp(kind, 0, bytes(20) + m, about))
        )

    assert aim.fire([message(kind) for kind in (200, 133, 134, 136, 137)]) == [("db1",), (), (), (), ()]


def test_neighbour_caches_hold_the_gateway_and_nothing_else(aim: Range) -> None:
    """After all this lying, what the endpoints' own kernels believe."""
    for node in ("web1", "bank1", "db1", "bank2"):
        lines = aim.lab.inside(node, lambda: subprocess.check_output(["ip", "neigh", "show"], text=True)).splitlines()
        believed = [line for line in lines if "lladdr" in line]
        assert all("0a:ac:1f:00:00:01" in line for line in believed), believed


# ---------------------------------------------------------------- who and where


def test_packets_to_nobodys_address_arrive_nowhere(aim: Range) -> None:
    nobody = {
        F4: ("198.51.100.99", "203.0.113.127", "8.8.8.8", "127.0.0.1", "169.254.1.1", "0.0.0.0", "255.255.255.255",
             "224.0.0.1", "239.1.1.1", "198.51.100.255"),
        F6: ("2001:db8:100::99", "2001:db8:200:1::1", "2001:4860::8888", "::1", "::", "fe80::1", "ff02::1", "ff0e::1",
             "fe80::8ac:1fff:fe01:1"),
    }  # fmt: skip
    shots = []
    for family, sender in itertools.product(Family, ("alice", "web1", "bank1", "db1")):
        for text in nobody[family]:
            to = Prefix.parse(text).network
            for flags, protocol in ((SYN, TCP), (ACK, TCP), (0, UDP)):
                lost = Packet(family, ADDRESS[sender, family], to, protocol, 40000, 80, tcp_flags=flags)
                shots.append(shot(aim.lab, sender, lost))
                shots += [aimed(sender, mac, lost) for mac in (EVERYBODY_MAC, MANY_MAC, MAC["bank2"])]
    assert aim.fire(shots) == [()] * len(shots)


def test_a_receivers_own_mac_address_is_no_way_in(aim: Range) -> None:
    """Addressed to the other endpoint's network card rather than to the gateway, on its own bridge and elsewhere."""
    shots = []
    for family, (sender, receiver) in itertools.product(
        Family, [("web1", "bank1"), ("web1", "bank2"), ("alice", "bank1"), ("bank1", "web1"), ("bank2", "db1")]
    ):
        wanted = packet(sender, receiver, family, TCP, 40000, 443, tcp_flags=SYN)
        shots += [aimed(sender, to, wanted) for to in (MAC[receiver], EVERYBODY_MAC, MANY_MAC, BRIDGES_MAC)]
    assert aim.fire(shots) == [()] * len(shots)


def test_frames_to_several_are_dropped_even_where_the_packet_is_permitted(aim: Range) -> None:
    for family in Family:
        permitted = packet("db1", "web1", family, TCP, 40000, 80, tcp_flags=SYN)
        shots = [aimed("db1", mac, permitted) for mac in (GATEWAY_MAC, EVERYBODY_MAC, MANY_MAC, BRIDGES_MAC)]
        assert aim.fire(shots) == [("web1",), (), (), ()]


def test_between_tenants_and_endpoints_on_the_same_and_on_other_hosts(aim: Range) -> None:
    """web1 and bank1 are neighbours on host1, db1 and bank2 on host2."""
    endpoints = ("web1", "db1", "bank1", "bank2")
    for family in Family:
        pairs = list(itertools.permutations(endpoints, 2))
        syns = aim.send(*((a, packet(a, b, family, TCP, 40000, 443, tcp_flags=SYN)) for a, b in pairs))
        assert syns == [()] * len(pairs)
        datagrams = aim.send(*((a, packet(a, b, family, UDP, 40000, 514)) for a, b in pairs))
        permitted = {("bank1", "web1"), ("bank1", "db1")}  # rule `low`
        assert datagrams == [(b,) if (a, b) in permitted else () for a, b in pairs]
        assert aim.send(
            ("bank2", packet("bank2", "db1", family, TCP, 40000, 5432, tcp_flags=SYN)),  # rule `bank`
            ("bank1", packet("bank1", "db1", family, TCP, 40000, 5432, tcp_flags=SYN)),
            ("bank2", packet("bank2", "web1", family, TCP, 40000, 5432, tcp_flags=SYN)),
            ("bank2", packet("bank2", "web1", family, TCP, 40000, 80, tcp_flags=SYN)),  # rule `web`
            ("db1", packet("db1", "web1", family, TCP, 40000, 80, tcp_flags=SYN)),
        ) == [("db1",), (), (), ("web1",), ("web1",)]


def test_the_senders_list_is_asked_too(aim: Range) -> None:
    """`shop` denies itself mail: not to a client, not to a neighbour, not even what looks like a reply."""
    for family in Family:
        assert aim.send(
            ("web1", packet("web1", "alice", family, TCP, 40000, 25, tcp_flags=SYN)),
            ("web1", packet("web1", "bank1", family, TCP, 40000, 25, tcp_flags=ACK)),
            ("db1", packet("db1", "mallory", family, TCP, 40000, 25, tcp_flags=SYN)),
            ("web1", packet("web1", "alice", family, TCP, 40000, 26, tcp_flags=SYN)),
            ("bank1", packet("bank1", "alice", family, TCP, 40000, 25, tcp_flags=SYN)),
        ) == [(), (), (), ("alice",), ("alice",)]
