"""Path MTU discovery through a host: its messages pass by the domain's setting, and so many a second at most."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest
from patience import until
from system.fabricworld import World, address_of, policy_with

from orchestrator.lab import namespaces
from orchestrator.lab.layout import Layout
from orchestrator.policy.addresses import Family
from orchestrator.policy.model import PATH_MTU_RATE, Policy, ReturnTraffic
from orchestrator.policy.protocols import ICMP, ICMPV6

LONG = bytes(400_000)
SMALL_MTU = 1300
OUTSIDE_ADDRESS = {Family.IPV4: "10.0.9.2", Family.IPV6: "fd00:9::2"}
TOO_BIG = {Family.IPV4: "IcmpInDestUnreachs", Family.IPV6: "Icmp6InPktTooBigs"}


@pytest.fixture(scope="module")
def world(layout: Layout) -> Iterator[World]:
    with World(layout) as made:
        host = made.hosts["h1"]
        host.enforce(listed(ReturnTraffic.ESTABLISHED), 1)
        host.start_uplink()
        until(lambda: len(made.announced()) == 2)
        made.ip("r", "link", "set", "e9", "mtu", str(SMALL_MTU))
        yield made


def listed(returns: ReturnTraffic, rate: int = PATH_MTU_RATE) -> Policy:
    """Everybody may reach a1 at one TCP port. No ICMP comes in by a rule."""
    whole = policy_with("a1")
    (tenant,) = whole.tenants
    rules = tuple(rule for rule in tenant.acl.rules if rule.protocol not in (ICMP, ICMPV6))
    return replace(
        whole,
        tenants=(replace(tenant, acl=replace(tenant.acl, rules=rules)),),
        return_traffic=returns,
        path_mtu_rate=rate,
    )


def counted(world: World, name: str, counter: str) -> int:
    """A counter of a node's kernel."""
    for line in world.run_in(name, "nstat", "-asz", counter).splitlines():
        if line.startswith(counter):
            return int(line.split()[1])
    raise AssertionError(f"no counter {counter}")


@pytest.mark.parametrize("family", list(Family))
def test_a_download_over_a_smaller_link_stands_still_until_the_messages_pass(world: World, family: Family) -> None:
    host = world.hosts["h1"]
    host.enforce(listed(ReturnTraffic.ESTABLISHED), 10 * family.value)
    retransmitted = counted(world, "a1", "TcpRetransSegs")
    with world.listen("a1", 80) as listening:
        reader = _connected(world, address_of("a1", family))
        sender, _ = listening.accept()
        with reader, sender:
            sender.setblocking(False)
            sent = sender.send(LONG)
            assert sent > 20 * SMALL_MTU
            until(lambda: counted(world, "a1", "TcpRetransSegs") >= retransmitted + 3)
            assert not _readable(reader), "no full segment arrives"
            host.enforce(listed(ReturnTraffic.PATH_MTU), 10 * family.value + 1)
            reader.settimeout(60)
            left = sent
            while left:
                left -= len(reader.recv(1 << 16))


@pytest.mark.parametrize("rate", [PATH_MTU_RATE, 20])
@pytest.mark.parametrize("family", list(Family))
def test_a_flood_of_such_messages_is_bounded(world: World, family: Family, rate: int) -> None:
    world.hosts["h1"].enforce(listed(ReturnTraffic.PATH_MTU, rate), 100 * family.value)
    before = counted(world, "a1", TOO_BIG[family])
    began = time.monotonic()
    namespaces.inside(world.namespace("o"), partial(_flood, family, address_of("a1", family), 2_000))
    arrived = counted(world, "a1", TOO_BIG[family]) - before
    seconds = time.monotonic() - began
    assert 0 < arrived <= rate * (seconds + 2), f"{arrived} in {seconds:.1f} s"
    assert arrived < 2_000


def test_what_says_anything_else_does_not_pass(world: World) -> None:
    """Not even what an ICMP error says of another kind, or a message about path MTU that an endpoint sends."""
    world.hosts["h1"].enforce(listed(ReturnTraffic.PATH_MTU), 2000)
    before = counted(world, "a1", TOO_BIG[Family.IPV4])
    namespaces.inside(world.namespace("o"), partial(_flood, Family.IPV4, address_of("a1", Family.IPV4), 50, code=1))
    assert counted(world, "a1", TOO_BIG[Family.IPV4]) == before
    assert not world.pings("o", address_of("a1", Family.IPV4))


def _connected(world: World, target: str) -> socket.socket:
    found: list[socket.socket] = []

    def connect() -> bool:
        try:
            found.append(socket.create_connection((target, 80), 5))
        except OSError:
            return False
        return True

    until(lambda: namespaces.inside(world.namespace("o"), connect))
    return found[-1]


def _readable(reader: socket.socket) -> bool:
    reader.setblocking(False)
    try:
        return bool(reader.recv(1))
    except BlockingIOError:
        return False
    finally:
        reader.setblocking(True)


def _flood(family: Family, target: str, count: int, *, code: int = 4) -> None:
    """Send messages that quote a packet of the target's which it never sent."""
    ends = [socket.inet_pton(_VERSIONS[family], each) for each in (target, OUTSIDE_ADDRESS[family])]
    if family is Family.IPV4:
        quoted = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 1500, 0, 0, 64, 17, 0, *ends) + bytes(8)
        plain = struct.pack("!BBHHH", 3, code, 0, 0, 600) + quoted
        message = plain[:2] + _checksum(plain).to_bytes(2, "big") + plain[4:]
        protocol = socket.IPPROTO_ICMP
    else:
        quoted = struct.pack("!IHBB16s16s", 6 << 28, 1460, 17, 64, *ends) + bytes(8)
        message = struct.pack("!BBHI", 2, 0, 0, 1280) + quoted  # the kernel writes the checksum
        protocol = socket.IPPROTO_ICMPV6
    with socket.socket(_VERSIONS[family], socket.SOCK_RAW, protocol) as raw:
        for _ in range(count):
            raw.sendto(message, (target, 0))


_VERSIONS = {Family.IPV4: socket.AF_INET, Family.IPV6: socket.AF_INET6}


def _checksum(data: bytes) -> int:
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
