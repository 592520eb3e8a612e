"""Two VNF-ACLs with routed uplinks and a leg of its own each; a machine moves from the one's segment to the other's.

    a1, a2 ── segment s1 ── inside-1 ┤ h1 ├ up0 ── kernel ── e1 ┐
                                                                r ── o (outside)
        b1 ── segment s2 ── inside-2 ┤ h2 ├ up0 ── kernel ── e2 ┘

Both hold the same program. The router speaks BGP and knows nothing of aclflow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

import pytest
from patience import until
from system.fabricworld import BRIDGE, ENDPOINTS, Host, World, address_of, mac_of, policy_with, prefixes_of

from orchestrator.compile.pipelines.host import GATEWAY_IPV4, GATEWAY_IPV6
from orchestrator.lab import namespaces, network
from orchestrator.lab.layout import Layout
from orchestrator.policy.addresses import Family, format_mac
from orchestrator.policy.model import Policy

HOME = {"a1": 1, "a2": 1, "b1": 2}
"""The segment of each machine."""
MOVED = {**HOME, "a1": 2}
_LENGTHS = {Family.IPV4: 24, Family.IPV6: 64}
_generations = iter(range(1, 100))


def leg_of(number: int) -> str:
    """The leg of a VNF-ACL."""
    return f"inside-{number}"


def policy_behind(places: Mapping[str, int]) -> Policy:
    """The policy of `fabricworld` with machines behind the legs of their segments."""
    policy = policy_with(*places)
    endpoints = (replace(each, port=leg_of(places[each.name]), shared=True) for each in policy.endpoints)
    return replace(policy, endpoints=tuple(endpoints))


class VnfAcl(Host):
    """A host whose leg leads to a segment."""

    def configure(self) -> None:
        assert isinstance(self.world, LegsWorld)
        self.world.make_segment(self.number)
        self.command("host", "configure", "pop1", self.name, "--controller", "tcp:127.0.0.1:6653", "--datapath",
                     "netdev", "--no-services", "--port", leg_of(self.number))  # fmt: skip
        self.ovs.vsctl("set-controller", BRIDGE, f"punix:{self.ovs.run_dir}/{BRIDGE}.controller")

    def list_ports(self) -> set[str]:
        return {"up0", leg_of(self.number)}


class LegsWorld(World):
    """All of it; used in a `with` statement. Needs root."""

    host_type = VnfAcl

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        self.names += [segment_of(number) for number in (1, 2)]

    def make_segment(self, number: int) -> None:
        """Make a segment's bridge, with the leg of its VNF-ACL."""
        segment = segment_of(number)
        self.ip(segment, "link", "add", "br0", "type", "bridge", "forward_delay", "0")
        self.ip(segment, "link", "set", "br0", "up")
        self._join(f"h{number}", leg_of(number), segment, "to-vnf")

    def plug(self, name: str) -> None:
        """Put a machine into its segment."""
        segment = segment_of(HOME[name])
        self._join(name, "eth0", segment, f"to-{name}")
        self.ip(name, "link", "set", "eth0", "address", format_mac(mac_of(name)))
        for family, length in _LENGTHS.items():
            more = ["nodad"] if family is Family.IPV6 else []
            self.ip(name, "address", "add", f"{address_of(name, family)}/{length}", "dev", "eth0", *more)
        self.ip(name, "route", "add", "default", "via", GATEWAY_IPV4, "dev", "eth0", "onlink")
        self.ip(name, "-6", "route", "add", "default", "via", GATEWAY_IPV6, "dev", "eth0")

    def _join(self, one: str, mine: str, segment: str, theirs: str) -> None:
        """Put a cable between a machine and a segment's bridge."""
        self.ip(one, "link", "add", mine, "type", "veth", "peer", "name", theirs, "netns", self.namespace(segment))
        for name, interface in ((one, mine), (segment, theirs)):
            namespaces.inside(self.namespace(name), partial(network.without_offloads, interface))
            self.ip(name, "link", "set", interface, "up")
        self.ip(segment, "link", "set", theirs, "master", "br0")

    def move(self, name: str, old: int, new: int) -> None:
        """Take a machine's cable out of a segment and put it into another one; neighbours forget what they knew."""
        self.ip(segment_of(old), "link", "set", f"to-{name}", "netns", self.namespace(segment_of(new)))
        self.ip(segment_of(new), "link", "set", f"to-{name}", "master", "br0")
        self.ip(segment_of(new), "link", "set", f"to-{name}", "up")
        for machine in ENDPOINTS:
            for way in ("-4", "-6"):
                self.ip(machine, way, "neighbour", "flush", "all")

    def enforce(self, places: Mapping[str, int]) -> None:
        """Bring both VNF-ACLs to the policy with machines at their places."""
        generation = next(_generations)
        for host in self.hosts.values():
            host.enforce(policy_behind(places), generation)

    def find_ways(self, name: str) -> set[str]:
        """The router's interfaces towards a machine."""
        return {self.chosen_way(prefix) for prefix in prefixes_of(name)}


def segment_of(number: int) -> str:
    """The namespace with a segment's bridge."""
    return f"s{number}"


@pytest.fixture(scope="module")
def world(layout: Layout) -> Iterator[LegsWorld]:
    with LegsWorld(layout) as made:
        yield made


@pytest.fixture
def site(world: LegsWorld) -> LegsWorld:
    """Everybody is at home, and all of it is announced."""
    world.enforce(HOME)
    for host in world.hosts.values():
        if host.uplink is None:
            host.start_uplink()
    until(lambda: world.announced() == prefixes_of(*HOME), what=lambda: (world.announced(), *_logs(world)))
    return world


def _logs(world: LegsWorld) -> list[str]:
    return [host.log()[-1500:] for host in world.hosts.values()]


def _check_reached(site: LegsWorld, *pairs: tuple[str, str]) -> None:
    """Each of the pairs pings and connects as the list permits."""
    with site.listen("a1", 80, 81), site.listen("b1", 80, 81):
        for family in Family:
            for sender, target in pairs:
                address = address_of(target, family)
                until(partial(site.pings, sender, address), what=partial(_logs, site))
                until(partial(site.connects, sender, address, 80))
                assert not site.connects(sender, address, 81), (sender, target)


def test_each_vnf_acl_announces_what_is_behind_its_own_leg_by_the_same_program(site: LegsWorld) -> None:
    assert site.hosts["h1"].routed() == prefixes_of("a1", "a2")
    assert site.hosts["h2"].routed() == prefixes_of("b1")
    _check_reached(site, ("o", "a1"), ("o", "b1"), ("a1", "b1"), ("b1", "a1"), ("a2", "b1"))


def test_a_machine_that_moves_is_filtered_behind_the_next_leg_and_not_before_it_is_told(site: LegsWorld) -> None:
    _check_reached(site, ("o", "a1"))
    site.move("a1", 1, 2)
    try:
        for family in Family:
            assert not site.pings("o", address_of("a1", family)), "its packets leave by a leg that it is not behind"
            assert not site.pings("a1", address_of("a2", family))
        site.enforce(MOVED)
        until(lambda: site.find_ways("a1") == {"e2"}, what=lambda: _logs(site))
        assert site.hosts["h1"].routed() == prefixes_of("a2")
        assert site.hosts["h2"].routed() == prefixes_of("a1", "b1")
        _check_reached(site, ("o", "a1"), ("o", "b1"), ("a2", "a1"))
        for family in Family:
            until(partial(site.pings, "a1", address_of("a2", family)))
            until(partial(site.pings, "a1", address_of("b1", family)), what=lambda: "they are neighbours now")
    finally:
        site.move("a1", 2, 1)
    site.enforce(HOME)
    until(lambda: site.find_ways("a1") == {"e1"}, what=lambda: _logs(site))
    _check_reached(site, ("o", "a1"), ("b1", "a1"))
