"""Endpoints come up by what their host answers, and by nobody else's answers."""

from __future__ import annotations

import os
import random
import select
import signal
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest
from patience import until
from system.fabricworld import BRIDGE, OUTSIDE, address_of, mac_of, output, policy_with
from system.servedworld import RESOLVER, ServedWorld, heard

from orchestrator.enforce.services.requestframes import Caller, icmpv6_frame, udp_frame
from orchestrator.lab.layout import Layout
from orchestrator.policy.addresses import Family, format_mac, parse_address
from orchestrator.policy.model import ReturnTraffic

ALL = ("a1", "a2", "b1")
BROADCAST = b"\xff" * 6
A1, A2 = (mac_of(name).to_bytes(6, "big") for name in ("a1", "a2"))
GATEWAY = bytes.fromhex("0aac1f000001")


@pytest.fixture(scope="module")
def world(layout: Layout) -> Iterator[ServedWorld]:
    with ServedWorld(layout) as made:
        yield made


@pytest.fixture
def site(world: ServedWorld) -> ServedWorld:
    """Both hosts hold the policy and serve, and what is delivered is routed."""
    for generation, host in enumerate(world.hosts.values(), 1):
        host.enforce(policy_with(*ALL), generation)
        if host.uplink is None:
            host.start_uplink()
        if host.name not in world.services:
            world.start_services(host)
    until(lambda: len(world.announced()) == 6)
    return world


def discover(chaddr: bytes, *, kind: int = 1, source: bytes | None = None, requested: bytes = b"") -> bytes:
    """A frame with a DHCP message to all."""
    head = struct.pack("!BBBBIHHIIII16s192x", 1, 1, 6, 0, random.getrandbits(32), 0, 0, 0, 0, 0, 0, chaddr)
    options = b"\x63\x82\x53\x63" + bytes([53, 1, kind]) + (b"\x32\x04" + requested if requested else b"") + b"\xff"
    frame = udp_frame(Caller(0, 0, Family.IPV4, 0), (0, 0xFFFFFFFF), (68, 67), (head + options).ljust(300, b"\0"))
    return BROADCAST + (source or chaddr) + frame[12:]


def test_real_clients_get_address_router_and_names(site: ServedWorld) -> None:
    for name, client in (("a1", "dhclient"), ("a2", "udhcpc"), ("b1", "dhclient"), ("b1", "udhcpc")):
        offered = site.ask(name, client)
        assert offered is not None, (name, client, site.log(site.hosts["h1"]))
        words = ("ip", "subnet", "router", "dns", "mtu") if client == "udhcpc" else (
            "new_ip_address", "new_subnet_mask", "new_routers", "new_domain_name_servers", "new_interface_mtu"
        )  # fmt: skip
        seen = [offered.get(word) for word in words]
        expected = [address_of(name, Family.IPV4), "255.255.255.0", "10.10.0.1", RESOLVER[Family.IPV4], "1400"]
        assert seen[:4] == expected[:4], (client, offered)
        if client == "dhclient":
            assert seen[4] == expected[4]
    for name in ALL:
        until(partial(site.pings, name, OUTSIDE[Family.IPV4]))
        until(partial(site.pings, "o", address_of(name, Family.IPV4)))
        for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
            until(partial(site.resolves, name, RESOLVER[Family.IPV4], kind))


def test_advertisements_and_dhcpv6_bring_an_endpoint_up(site: ServedWorld) -> None:
    for name in ALL:
        until(lambda: " tentative" not in site.ip(name, "-6", "address", "show", "dev", "eth0"))  # noqa: B023
        said = site.run_in(name, "rdisc6", "-1", "-r", "3", "-w", "2000", "eth0")
        assert f"Recursive DNS server     : {RESOLVER[Family.IPV6]}" in said, said
        assert "from fe80::1" in said
        assert "1400 bytes" in said
        assert "Prefix" not in said, "the address is not one that it would make of its MAC address"
        offered = site.ask(name, "dhclient6")
        assert offered is not None, site.log(site.hosts["h1"])
        assert offered["new_ip6_address"] == address_of(name, Family.IPV6)
        until(lambda: "default via fe80::1" in site.ip(name, "-6", "route"))  # noqa: B023 -- by the advertisement
        until(partial(site.pings, name, OUTSIDE[Family.IPV6]))
        until(partial(site.resolves, name, RESOLVER[Family.IPV6]))


def test_routers_are_advertised_before_they_are_forgotten(site: ServedWorld) -> None:
    with site.capture("a1") as port:
        site.stop_services("h1")
        site.start_services(site.hosts["h1"])
        unasked = []

        def advertised() -> bool:
            unasked.extend(frame for frame in heard(port) if frame[12:14] == b"\x86\xdd" and frame[54] == 134)
            return bool(unasked)

        until(advertised)
        assert unasked[0][:6] == A1


def _binds(port: socket.socket, address: str) -> bool:
    """Whether a socket is the one at an address to which a server of DHCP answers."""
    try:
        port.bind((address, 68))
    except OSError:
        return False
    return True


def test_an_address_is_renewed_at_the_server_alone(site: ServedWorld) -> None:
    assert site.ask("a1", "udhcpc")
    own = socket.inet_aton(address_of("a1", Family.IPV4))
    head = struct.pack("!BBBBIHHI12x16s192x", 1, 1, 6, 0, 77, 0, 0, int.from_bytes(own, "big"), A1)
    message = head + b"\x63\x82\x53\x63\x35\x01\x03\xff"

    def renewed() -> bytes:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as port:
            until(partial(_binds, port, address_of("a1", Family.IPV4)))  # its client ends after it has said what it got
            port.settimeout(3.0)
            port.sendto(message, (RESOLVER[Family.IPV4], 67))
            return port.recv(2048)

    answer = site.inside("a1", renewed)
    assert answer[240:243] == b"\x35\x01\x05", "an acknowledgement"
    assert answer[16:20] == own


def test_a_rogue_server_is_heard_by_nobody_and_hears_nobody(site: ServedWorld) -> None:
    rogue = (parse_address(address_of("a2", Family.IPV4))[1], parse_address(address_of("a2", Family.IPV6))[1])
    victim = (parse_address(address_of("a1", Family.IPV4))[1], parse_address(address_of("a1", Family.IPV6))[1])
    one, other = Caller(0, 0, Family.IPV4, 0), Caller(0, 0, Family.IPV6, 0)
    router, everybody = 0xFE80 << 112 | 1, 0xFF02 << 112 | 1
    advertisement = struct.pack("!BBHBBHII", 134, 0, 0, 64, 0xC0, 9000, 0, 0)
    bodies = [
        *(udp_frame(one, (rogue[0], to), (67, 68), bytes(300)) for to in (victim[0], 0xFFFFFFFF)),
        *(udp_frame(other, (rogue[1], to), (547, 546), bytes(60)) for to in (victim[1], everybody)),
        *(icmpv6_frame(other, (source, to), advertisement)
          for source in (rogue[1], router) for to in (victim[1], everybody)),
    ]  # fmt: skip
    frames = [to + A2 + body[12:] for body in bodies for to in (GATEWAY, A1, BROADCAST, b"\x33\x33\0\0\0\1")]
    marked = bytes.fromhex("0aad") + (99).to_bytes(4, "big")
    frames += [marked + A2 + body[12:] for body in bodies] + [A1 + marked + body[12:] for body in bodies]
    with site.capture("a1") as victims, site.capture("b1") as away, site.capture("a2") as rogues:
        site.send_frames("a2", frames)
        assert heard(victims) == []
        assert heard(away) == []
        assert heard(rogues) == []
        assert site.ask("a1", "udhcpc")
        assert heard(rogues) == [], "questions of others are not for it"
        assert len(heard(victims)) == 2, "an offer and an acknowledgement"


def test_who_asks_in_the_name_of_another_changes_nothing(site: ServedWorld) -> None:
    own = socket.inet_aton(address_of("a1", Family.IPV4))
    frames = [
        discover(A1, kind=kind, source=source, requested=own) for kind in (1, 3, 4, 7) for source in (A1, A2)
    ]  # fmt: skip
    with site.capture("a1") as victims, site.capture("a2") as liars:
        site.send_frames("a2", frames)
        assert heard(victims) == []
        assert heard(liars) == []
        site.send_frames("a2", [discover(A2, kind=3, requested=own)])
        [refused] = heard(liars)
        assert refused[282:285] == b"\x35\x01\x06", "another's address is refused"
        assert heard(victims) == []
    offered = site.ask("a1", "udhcpc")
    assert offered is not None
    assert offered["ip"] == address_of("a1", Family.IPV4)


def test_an_endpoint_that_asks_without_end_harms_nobody(site: ServedWorld) -> None:
    flood = [discover(A2), discover(random.randbytes(6), source=A2), discover(A2, kind=3)] * 4000
    with site.capture("a2") as port:
        pid = os.fork()
        if pid == 0:
            until_s = time.monotonic() + 6.0
            while time.monotonic() < until_s:
                site.send_frames("a2", flood)
            os._exit(0)
        try:
            for client in ("udhcpc", "dhclient"):
                offered = site.ask("a1", client)
                assert offered is not None, site.log(site.hosts["h1"])
            until(partial(site.resolves, "a1", RESOLVER[Family.IPV4]))
        finally:
            os.waitpid(pid, 0)
        assert len(heard(port)) < 400, "what it is told is limited, too"
    assert site.ask("a2", "udhcpc"), "and it is served again when it is quiet"


def test_connections_that_one_endpoint_holds_open_leave_room_for_others(site: ServedWorld) -> None:
    assert site.ask("a1", "udhcpc")
    assert site.ask("a2", "udhcpc")
    target = (RESOLVER[Family.IPV4], 53)

    def opened() -> list[socket.socket]:
        held = []
        for _ in range(40):
            port = socket.socket()
            port.setblocking(False)
            port.connect_ex(target)
            held.append(port)
        time.sleep(0.5)
        return held

    held = site.inside("a2", opened)
    try:
        until(partial(site.resolves, "a1", RESOLVER[Family.IPV4], socket.SOCK_STREAM))
        _, writable, _ = select.select((), held, (), 0)
        assert 5 <= len(writable) <= 20, "most of them were not let in"
    finally:
        for each in held:
            each.close()


def test_nothing_of_the_host_is_open_by_the_port(site: ServedWorld) -> None:
    assert site.ask("a1", "udhcpc")
    until(partial(site.resolves, "a1", RESOLVER[Family.IPV4]))
    with site.listen("h1", 22, 80):
        for target in (RESOLVER[Family.IPV4], "10.0.1.2"):
            assert not site.connects("a1", target, 22), target
            assert not site.connects("a1", target, 80), target
    site.ip("r", "route", "replace", RESOLVER[Family.IPV4], "via", "10.0.1.2")
    try:
        assert not site.resolves("r", RESOLVER[Family.IPV4]), "the resolver is for endpoints alone"
    finally:
        site.ip("r", "route", "del", RESOLVER[Family.IPV4])


def test_a_resolver_that_was_killed_is_there_again(site: ServedWorld) -> None:
    h1 = site.hosts["h1"]
    assert site.ask("a1", "udhcpc")
    [before] = site.dnsmasq(h1)
    os.kill(before, signal.SIGKILL)
    until(lambda: site.dnsmasq(h1) not in ([], [before]))
    until(partial(site.resolves, "a1", RESOLVER[Family.IPV4]))


def test_services_that_were_killed_leave_nobody_behind_and_come_back(site: ServedWorld) -> None:
    h1 = site.hosts["h1"]
    assert site.ask("a1", "udhcpc")
    site.stop_services("h1", signal.SIGKILL)
    until(lambda: site.dnsmasq(h1) == [], what=lambda: "its resolver outlived it")
    assert site.ask("a2", "udhcpc") is None
    until(partial(site.pings, "a1", OUTSIDE[Family.IPV4]))
    site.start_services(h1)
    assert site.ask("a2", "udhcpc")
    until(partial(site.resolves, "a2", RESOLVER[Family.IPV4]))


def test_what_somebody_took_away_by_hand_is_set_right(site: ServedWorld) -> None:
    assert site.ask("a1", "udhcpc")
    h1 = site.hosts["h1"]
    steps = [
        lambda: site.run_in("h1", "nft", "delete", "table", "inet", "aclflow_services"),
        lambda: site.run_in("h1", "nft", "delete", "table", "netdev", "aclflow_services"),
        lambda: site.ip("h1", "rule", "del", "from", RESOLVER[Family.IPV4]),
        lambda: site.ip("h1", "address", "del", f"{RESOLVER[Family.IPV4]}/32", "dev", "svc0"),
        lambda: site.ip("h1", "link", "set", "svc0", "down"),
        lambda: h1.ovs.vsctl("del-port", BRIDGE, "svc0", "--", "add-port", BRIDGE, "svc0", "--", "set", "interface",
                             "svc0", "type=internal", 'mac="0a:ac:1f:00:00:02"'),
    ]  # fmt: skip
    for number, step in enumerate(steps):
        step()
        h1.enforce(policy_with(*ALL), 100 + number)
        until(lambda: site.run_in("h1", "nft", "list", "tables").count("aclflow_services") == 2)
        until(partial(site.resolves, "a1", RESOLVER[Family.IPV4]), what=lambda: site.log(h1))
        assert site.ask("a1", "udhcpc"), (number, site.log(h1))


def test_a_switch_that_began_anew_serves_when_it_holds_its_rows(site: ServedWorld) -> None:
    h1 = site.hosts["h1"]
    h1.restart_switch()
    assert site.ask("a1", "udhcpc") is None, "without rows nobody is offered anything"
    h1.enforce(policy_with("a1", "b1"), 201)
    assert site.ask("a1", "udhcpc")
    assert site.ask("a2", "udhcpc") is None, "nor is one whose rows are not there"


def test_names_are_resolved_where_connections_are_tracked(site: ServedWorld) -> None:
    for generation, (name, host) in enumerate(site.hosts.items(), 301):
        host.enforce(replace(policy_with(*ALL), return_traffic=ReturnTraffic.TRACKED), generation)
        endpoint = "a1" if name == "h1" else "b1"
        assert site.ask(endpoint, "udhcpc")
        for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
            until(partial(site.resolves, endpoint, RESOLVER[Family.IPV4], kind))


def test_show_says_what_is_offered_and_remove_takes_it_away(site: ServedWorld) -> None:
    h1 = site.hosts["h1"]
    shown = h1.command("host", "services", "show", "-o", "csv").splitlines()
    assert shown[0] == "port,mac,address"
    assert {line.partition(",")[2] for line in shown[1:]} == {
        f"{format_mac(mac_of(name))},{address_of(name, family)}" for name in ("a1", "a2") for family in Family
    }
    site.stop_services("h1")
    h1.command("host", "services", "remove")
    assert "aclflow_services" not in site.run_in("h1", "nft", "list", "tables")
    assert RESOLVER[Family.IPV4] not in output("ip", "-n", h1.namespace, "address")
    site.start_services(h1)
