"""An endpoint that leaves checksums and segments to others, as stock guests do, on a switch in user space."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from functools import partial

import pytest
from patience import until
from pyroute2.ethtool.ioctl import IoctlEthtool
from system.fabricworld import ENDPOINTS, OUTSIDE, World, address_of, policy_with, prefixes_of

from orchestrator.lab import namespaces
from orchestrator.lab.layout import Layout
from orchestrator.policy.addresses import Family

BYTES = 300_000
CHECKSUMS, SEGMENTS = "tx-checksumming", "tcp-segmentation-offload"
_generations = iter(range(1, 100))


@pytest.fixture(scope="module")
def world(layout: Layout) -> Iterator[World]:
    with World(layout) as made:
        for host in made.hosts.values():
            host.start_uplink()
        yield made


@pytest.fixture
def site(world: World) -> World:
    """All endpoints are announced."""
    for host in world.hosts.values():
        host.enforce(policy_with(*ENDPOINTS), next(_generations))
    until(lambda: world.announced() == prefixes_of(*ENDPOINTS))
    for family in Family:
        until(partial(world.pings, "a1", OUTSIDE[family]))
    return world


def set_offloads(site: World, name: str, **offloads: bool) -> None:
    """Have an endpoint leave checksums, or segments, to others, or not."""

    def change() -> None:
        with closing(IoctlEthtool()) as device:
            device.change_ifname("eth0")
            for offload, is_on in offloads.items():
                device.set_offload_flag({"checksums": CHECKSUMS, "segments": SEGMENTS}[offload], int(is_on))

    namespaces.inside(site.namespace(name), change)


def offload(site: World, *words: str) -> None:
    """Configure a1's host once more, and start its switch anew."""
    host = site.hosts["h1"]
    host.command(
        "host", "configure", "pop1", "h1", "--controller", "tcp:127.0.0.1:6653", "--datapath", "netdev", *words
    )
    host.ovs.vsctl("set-controller", "br-aclflow", f"punix:{host.ovs.run_dir}/br-aclflow.controller")
    host.restart_switch()
    host.enforce(policy_with(*ENDPOINTS), next(_generations))
    until(lambda: site.announced() == prefixes_of(*ENDPOINTS))


def sends(site: World, family: Family, *, patience_s: float) -> bool:
    """Whether some hundred thousand bytes of TCP from a1 reach the outside in time."""
    got = 0

    def take(door: socket.socket) -> None:
        nonlocal got
        door.settimeout(patience_s)
        try:
            with door.accept()[0] as taken:
                taken.settimeout(patience_s)
                while data := taken.recv(65536):
                    got += len(data)
        except OSError:
            return

    def send() -> None:
        try:
            with socket.create_connection((OUTSIDE[family], 8080), patience_s) as opened:
                opened.settimeout(patience_s)
                opened.sendall(bytes(BYTES))
                opened.shutdown(socket.SHUT_WR)
                opened.recv(1)
        except OSError:
            return

    make = partial(socket.create_server, ("::", 8080), family=socket.AF_INET6, dualstack_ipv6=True)
    with namespaces.inside(site.namespace("o"), make) as door:
        taking = threading.Thread(target=take, args=(door,))
        taking.start()
        namespaces.inside(site.namespace("a1"), send)
        taking.join()
    return got == BYTES


def test_checksums_and_segments_that_an_endpoint_leaves_open_are_finished_where_that_is_asked_for(site: World) -> None:
    for family in Family:
        assert sends(site, family, patience_s=60.0), "with nothing left open"
    set_offloads(site, "a1", checksums=True, segments=True)
    try:
        for family in Family:
            assert site.pings("a1", OUTSIDE[family])
            assert not sends(site, family, patience_s=2.0), "nobody fills the checksum in"
        offload(site, "--offloads")
        for family in Family:
            assert sends(site, family, patience_s=60.0)
            assert site.pings("o", address_of("a1", family))
        _check_a_smaller_link(site)
    finally:
        offload(site, "--no-offloads")
        set_offloads(site, "a1", checksums=False, segments=False)


def _check_a_smaller_link(site: World) -> None:
    """Where the link towards the router is small, segments are the endpoint's own to cut."""
    set_offloads(site, "a1", segments=False)
    for node in ("h1", "r"):
        site.ip(node, "link", "set", "e1", "mtu", "1300")
    try:
        for family in Family:
            assert sends(site, family, patience_s=60.0), family
    finally:
        for node in ("h1", "r"):
            site.ip(node, "link", "set", "e1", "mtu", "1500")
        set_offloads(site, "a1", segments=True)
