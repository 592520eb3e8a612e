"""Frames that no instance may send: another's word about routers and neighbours of IPv6, and tags.

Each kind is shown to be one that an instance believes, or that passes without what is wrong in it.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
from functools import partial

from instances.looking import LONG_S, fetches, hears, open_for_pings, pings_of, tap_of, typed
from instances.traffic import Traffic, nothing_but_sniffing
from patience import until
from twohosts import example
from twohosts.addresses import OUTSIDE, OUTSIDE_ADDRESS, OUTSIDE_ADDRESS6
from twohosts.cloud import Cloud
from twohosts.example import Instance

from orchestrator.compile.pipelines.host import GATEWAY_IPV6, GATEWAY_MAC
from orchestrator.enforce.drivers.openflow import frames
from orchestrator.enforce.drivers.openflow.frames import IPV4, IPV6
from orchestrator.enforce.services.routers import made_of_mac
from orchestrator.lab import namespaces
from orchestrator.policy.protocols import ICMP, ICMPV6, UDP

_ROUTER = int(ipaddress.ip_address(GATEWAY_IPV6))
_EVERYBODY, _EVERYBODY_MAC = int(ipaddress.ip_address("ff02::1")), 0x333300000001
_LINK = 0xFE80 << 112
_FALSE = "2001:db8:bad:"
"""Begins the addresses of a prefix that is nobody's."""
_ADVERTISES = 134
_ROUTER_FLAG, _OVERRIDE_FLAG = 1 << 31, 1 << 29
_QUEUE_IN_QUEUE = 0x88A8
"""The type of the outer of two tags."""


def test_a_router_in_an_instance_is_believed_by_nobody(cloud: Cloud, shop: Instance, near: Instance) -> None:
    until(lambda: f"default via {GATEWAY_IPV6}" in typed(cloud, near, "ip -6 route show"))
    mac = _mac(shop)
    own = made_of_mac(mac, _LINK)
    sent = [
        _router(source, mac, target, lifetime_s=1800)
        for source in (own, _ROUTER) for target in (_EVERYBODY_MAC, _mac(near))
    ]  # fmt: skip
    with nothing_but_sniffing(cloud, near) as seen:
        _send(cloud, shop, *sent)
        until(lambda: _advertised(seen, tap_of(shop)) >= len(sent))
        hears(cloud, near, "outside", OUTSIDE_ADDRESS)
    told = typed(cloud, near, "ip -6 address show dev eth0; ip -6 route show")
    assert f"default via {GATEWAY_IPV6}" in told
    assert _FALSE not in told
    assert _text(own) not in told
    heard = [kind for kind in seen.seen if (kind.protocol, kind.port, kind.source) == (ICMPV6, _ADVERTISES, _text(own))]
    assert {kind.interface for kind in heard} == {tap_of(shop)}

    _deliver(cloud, near, _router(own, mac, _EVERYBODY_MAC, lifetime_s=0))
    until(lambda: _FALSE in typed(cloud, near, "ip -6 address show dev eth0"), what=lambda: "it believes none at all")


def test_a_frame_with_a_tag_leaves_no_port(cloud: Cloud, shop: Instance) -> None:
    plain = {size: _ping(shop, size) for size in (77, 90, 91, 92, 93)}
    tagged = (
        frames.vlan(0, plain[90]), frames.vlan(5, plain[91]), frames.vlan(5, frames.vlan(6, plain[92])),
        plain[93][:12] + struct.pack("!HH", _QUEUE_IN_QUEUE, 5) + plain[93][12:],
    )  # fmt: skip
    with namespaces.inside(cloud.prefix + OUTSIDE, open_for_pings) as heard:
        _send(cloud, shop, *tagged, plain[77])
        assert pings_of(heard, shop.address, 77) == {77}


def test_answers_of_dhcp_leave_no_port_where_lists_permit_all(cloud: Cloud, shop: Instance, near: Instance) -> None:
    """The same datagrams with other ports arrive."""
    ports = {IPV4: ((67, 68), (69, 70)), IPV6: ((547, 546), (549, 548))}
    example.put_list(cloud, shop.project, [{"id": "all", "action": "permit"}])
    try:
        with nothing_but_sniffing(cloud, near) as seen:
            _send(cloud, shop, *(_datagram(shop, near, kind, *pair) for kind in ports for pair in ports[kind]))
            until(lambda: {70, 548} <= _heard(seen, shop, near), what=lambda: _heard(seen, shop, near))
        assert _heard(seen, shop, near) & {68, 546} == set()
    finally:
        example.put_list(cloud, shop.project, example.LISTS["blue"])


def test_one_that_claims_the_router_s_and_another_s_ipv6_address_gets_none_of_their_packets(
    cloud: Cloud, shop: Instance, near: Instance
) -> None:
    until(lambda: fetches(cloud, near.address6), LONG_S)
    mac = _mac(shop)
    claims = [
        _claim(claimed, mac, target)
        for claimed in (_ROUTER, int(ipaddress.ip_address(near.address6)))
        for target in (_EVERYBODY_MAC, GATEWAY_MAC, _mac(near))
    ]
    with nothing_but_sniffing(cloud, near) as seen:
        _send(cloud, shop, *claims, *(_ask_for(claimed, mac) for claimed in (_ROUTER, made_of_mac(_mac(near), _LINK))))
        assert "1 packets received" in typed(cloud, near, f"ping6 -c 1 -W 60 {OUTSIDE_ADDRESS6}")
        assert fetches(cloud, near.address6, patience_s=60.0)
        until(lambda: any(kind.destination == OUTSIDE_ADDRESS6 for kind in seen.seen))
    others = [kind for kind in seen.seen if kind.interface == tap_of(shop)]
    assert any(kind.port == frames.ADVERTISEMENT for kind in others), "the claims were sent"
    assert not [kind for kind in others if kind.to_interface and near.address6 in (kind.source, kind.destination)]
    known = [line for line in typed(cloud, near, "ip -6 neigh show dev eth0").splitlines() if "lladdr" in line]
    assert known
    assert all(_mac_text(GATEWAY_MAC) in line for line in known), known

    _deliver(cloud, near, _claim(_ROUTER, mac, _mac(near)))
    until(lambda: _mac_text(mac) in typed(cloud, near, "ip -6 neigh show dev eth0"), what=lambda: "it believes none")


# ------------------------------------------------------------------------------------------------------------- frames


def _router(source: int, mac: int, target: int, *, lifetime_s: int) -> bytes:
    """An advertisement of a router, with a prefix that whoever believes it makes an address of."""
    head = struct.pack("!BBHII", 64, 0, lifetime_s, 0, 0)
    prefix = struct.pack("!BBBBIII16s", 3, 4, 64, 0xC0, 60, 60, 0, ipaddress.ip_address(_FALSE + ":").packed)
    body = head + frames.link_address(frames.SOURCE_LINK_ADDRESS, mac) + prefix
    return _discovery(source, mac, target, frames.icmp(_ADVERTISES, 0, body, frames.pseudo_v6(source, _EVERYBODY)))


def _claim(claimed: int, mac: int, target: int) -> bytes:
    """An advertisement that an address is at a MAC address, and that what was known before is wrong."""
    option = frames.link_address(frames.TARGET_LINK_ADDRESS, mac)
    pseudo = frames.pseudo_v6(claimed, _EVERYBODY)
    told = frames.neighbour(frames.ADVERTISEMENT, _ROUTER_FLAG | _OVERRIDE_FLAG, claimed, option, pseudo)
    return _discovery(claimed, mac, target, told)


def _ask_for(claimed: int, mac: int) -> bytes:
    """A question from an address that says at which MAC address the asking one is."""
    option = frames.link_address(frames.SOURCE_LINK_ADDRESS, mac)
    pseudo = frames.pseudo_v6(claimed, _EVERYBODY)
    return _discovery(claimed, mac, _EVERYBODY_MAC, frames.neighbour(frames.SOLICITATION, 0, _ROUTER, option, pseudo))


def _discovery(source: int, mac: int, target: int, message: bytes) -> bytes:
    """A message of neighbour discovery to everybody: one that crossed no router."""
    packet = bytearray(frames.ipv6(source, _EVERYBODY, ICMPV6, message))
    packet[7] = 255
    return frames.ethernet(mac, target, IPV6, bytes(packet))


def _ping(sender: Instance, size: int) -> bytes:
    """An echo request to the outside that carries so many bytes."""
    addresses = (int(ipaddress.ip_address(each)) for each in (sender.address, OUTSIDE_ADDRESS))
    request = frames.icmp(8, 0, bytes(4 + size))
    return frames.ethernet(_mac(sender), GATEWAY_MAC, IPV4, frames.ipv4(*addresses, ICMP, request))


def _datagram(sender: Instance, receiver: Instance, kind: int, source_port: int, port: int) -> bytes:
    """A datagram of UDP from one instance to another."""
    six = kind == IPV6
    texts = (sender.address6, receiver.address6) if six else (sender.address, receiver.address)
    source, target = (int(ipaddress.ip_address(each)) for each in texts)
    pseudo = (frames.pseudo_v6 if six else frames.pseudo_v4)(source, target)
    body = frames.udp(source_port, port, bytes(16), pseudo)
    packet = (frames.ipv6 if six else frames.ipv4)(source, target, UDP, body)
    return frames.ethernet(_mac(sender), GATEWAY_MAC, kind, packet)


# --------------------------------------------------------------------------------------------------- sent and looked at


def _send(cloud: Cloud, instance: Instance, *made: bytes) -> None:
    """Have an instance send frames, one a line: its shell takes no long ones."""
    for each in made:
        assert typed(cloud, instance, f"frame {each.hex()}") == ""


def _deliver(cloud: Cloud, instance: Instance, made: bytes) -> None:
    """Give an instance a frame past the switch."""
    opened = namespaces.inside(cloud.prefix + instance.host, partial(socket.socket, socket.AF_PACKET, socket.SOCK_RAW))
    with opened:
        opened.bind((tap_of(instance), 0))
        opened.send(made)


def _advertised(seen: Traffic, tap: str) -> int:
    """How many advertisements of routers came by an instance's interface."""
    return sum(
        count for kind, count in seen.seen.items()
        if (kind.interface, kind.to_interface, kind.protocol, kind.port) == (tap, False, ICMPV6, _ADVERTISES)
    )  # fmt: skip


def _heard(seen: Traffic, sender: Instance, receiver: Instance) -> set[int]:
    """The ports of UDP at which an instance was given something by another one."""
    tap, senders = tap_of(receiver), (sender.address, sender.address6)
    return {
        kind.port for kind in seen.seen
        if kind.interface == tap and kind.to_interface and kind.protocol == UDP and kind.source in senders
    }  # fmt: skip


def _mac(instance: Instance) -> int:
    return int(instance.project.port(instance.server).mac_address.replace(":", ""), 16)


def _mac_text(mac: int) -> str:
    return frames.mac_bytes(mac).hex(":")


def _text(address: int) -> str:
    return str(ipaddress.IPv6Address(address))
