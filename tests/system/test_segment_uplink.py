"""Hosts that answer for their endpoints on the network whose addresses these have, without a routing daemon."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest
from patience import until
from system.fabricworld import OUTSIDE, address_of, policy_with, prefixes_of
from system.segmentworld import HOST_ADDRESSES, RANGES, ROUTER, SegmentHost, SegmentWorld

from orchestrator.lab.layout import Layout
from orchestrator.policy.addresses import Family, Prefix

ALL = ("a1", "a2", "b1")
H1, H2 = prefixes_of("a1", "a2"), prefixes_of("b1")


@pytest.fixture(scope="module")
def world(layout: Layout) -> Iterator[SegmentWorld]:
    with SegmentWorld(layout) as made:
        yield made


@pytest.fixture
def site(world: SegmentWorld) -> SegmentWorld:
    """Both hosts hold the policy, and answer for all of their endpoints."""
    for generation, host in enumerate(world.hosts.values(), 1):
        host.enforce(policy_with(*ALL), generation)
        if host.uplink is None:
            host.start_uplink()
    for name in ALL:
        world.pings(name, ROUTER[Family.IPV4])  # who has sent nothing is not answered for
    _answers_for_all(world)
    return world


def h1_of(site: SegmentWorld) -> SegmentHost:
    host = site.hosts["h1"]
    assert isinstance(host, SegmentHost)
    return host


def _answers_for_all(site: SegmentWorld) -> None:
    for host, held in zip(site.hosts.values(), (H1, H2), strict=True):
        assert isinstance(host, SegmentHost)
        until(lambda host=host, held=held: host.answered() == held, what=lambda host=host: host.log()[-1500:])


def test_what_the_list_permits_arrives_from_outside_and_from_hosts(site: SegmentWorld) -> None:
    with site.listen("a1", 80, 81), site.listen("b1", 80, 81), site.listen("o", 80):
        for family in Family:
            a1, b1 = address_of("a1", family), address_of("b1", family)
            for sender, target in (("o", a1), ("o", b1), ("a2", a1), ("b1", a1), ("a1", b1)):
                until(partial(site.pings, sender, target))
                until(partial(site.connects, sender, target, 80))
                assert not site.connects(sender, target, 81), (sender, target)
            assert site.connects("a1", OUTSIDE[family], 80), "and out"
    for name, host in (("a1", h1_of(site)), ("b1", site.hosts["h2"])):
        assert isinstance(host, SegmentHost)
        assert {site.known_mac(name, family) for family in Family} == {host.mac}


def test_a_router_that_looks_whether_an_endpoint_is_still_there_is_answered(site: SegmentWorld) -> None:
    """It asks the endpoint's address itself then, not everybody."""
    for family in Family:
        address = address_of("a1", family)
        until(partial(site.pings, "o", address))
        mac = site.known_mac("a1", family)
        site.ip("r", "neigh", "replace", address, "lladdr", mac, "dev", "lan", "nud", "probe")
        until(lambda address=address: "REACHABLE" in site.ip("r", "neigh", "show", address, "dev", "lan"))


def test_a_router_whose_address_endpoints_might_have_finds_them_all_the_same(site: SegmentWorld) -> None:
    """It asks by that address; of what else comes in the name of an endpoint nothing reaches the host."""
    host = h1_of(site)
    host.stop_uplink()
    host.start_uplink(ranges=("10.10.0.0/24", "fd10::/64"))
    try:
        site.forget_neighbours()
        with site.listen("h1", 22):
            for family in Family:
                until(partial(site.pings, "r", address_of("a1", family)), 30)
                assert not site.connects("r", HOST_ADDRESSES["h1"][family], 22)
    finally:
        host.stop_uplink()
        host.start_uplink()


def test_endpoints_reach_no_host_and_no_management(site: SegmentWorld) -> None:
    hosts = [address for each in HOST_ADDRESSES.values() for address in each.values()]
    with site.listen("h1", 22), site.listen("h2", 22), site.listen("m", 22):
        for target in (*hosts, "192.168.77.1", "fd77::1"):
            assert not site.pings("a1", target), target
            assert not site.connects("a1", target, 22), target
        for target in HOST_ADDRESSES["h1"].values():
            assert site.connects("r", target, 22), "it is not that nobody answers"


def test_nobody_is_answered_for_who_is_no_endpoint_here(site: SegmentWorld) -> None:
    for target in ("10.10.0.99", "fd10::99"):
        assert not site.pings("r", target)
        assert "lladdr" not in site.ip("r", "neigh", "show", target, "dev", "lan")


def test_an_endpoint_that_goes_is_answered_for_no_more(site: SegmentWorld) -> None:
    host = h1_of(site)
    host.enforce(policy_with("a1", "b1"), 11)
    until(lambda: host.answered() == prefixes_of("a1"))
    site.forget_neighbours()
    assert not site.pings("r", address_of("a2", Family.IPV4))
    host.enforce(policy_with(*ALL), 12)
    until(lambda: host.answered() == H1)


def test_an_endpoint_that_moves_is_reached_where_it_spoke_last(site: SegmentWorld) -> None:
    """The router is told by the host that the endpoint has come to, and asks nobody."""
    host, old = h1_of(site), site.hosts["h2"]
    assert isinstance(old, SegmentHost)
    for family in Family:
        until(partial(site.pings, "r", address_of("b1", family)))
    site.plug_again("b1", "h1")
    try:
        host.enforce(policy_with(*ALL), 12)
        until(lambda: host.routed() == H1 | H2)
        time.sleep(0.5)
        assert host.answered() == H1, "nothing came from it there"
        assert {site.known_mac("b1", family) for family in Family} == {old.mac}
        site.speak("b1")
        until(lambda: host.answered() == H1 | H2, what=lambda: host.log()[-1500:])
        until(lambda: {site.known_mac("b1", family) for family in Family} == {host.mac})
    finally:
        site.unplug_again("b1", "h1")
    host.enforce(policy_with(*ALL), 13)
    until(lambda: host.answered() == H1)


def test_answers_changed_by_hand_are_set_right_and_those_of_others_left(site: SegmentWorld) -> None:
    host = h1_of(site)
    site.ip("h1", "neigh", "add", "proxy", "10.10.0.200", "dev", "e1")
    site.ip("h1", "neigh", "add", "proxy", "10.10.0.98", "dev", "e1", "protocol", "172")
    site.ip("h1", "neigh", "del", "proxy", "10.10.0.11", "dev", "e1")
    site.ip("h1", "-6", "neigh", "del", "proxy", "fd10::11", "dev", "e1")
    site.run_in("h1", "sysctl", "-qw", "net.ipv6.conf.all.proxy_ndp=0")
    until(lambda: host.answered() == H1)
    until(lambda: site.run_in("h1", "sysctl", "-n", "net.ipv6.conf.all.proxy_ndp").strip() == "1")
    assert "10.10.0.200 dev e1 proxy" in site.ip("h1", "neigh", "show", "proxy")
    site.ip("h1", "neigh", "del", "proxy", "10.10.0.200", "dev", "e1")


def test_an_interface_made_anew_is_answered_on_again(site: SegmentWorld) -> None:
    host = h1_of(site)
    site.leave("h1")
    until(lambda: "there is no interface 'e1'" in host.log())
    site.join("h1")
    until(lambda: host.answered() == H1, what=lambda: host.log()[-1500:])
    for family in Family:
        until(partial(site.pings, "r", address_of("a1", family)))


def test_a_gateway_that_does_not_answer_is_named(site: SegmentWorld) -> None:
    host = h1_of(site)

    def is_named() -> bool:
        site.pings("a1", OUTSIDE[Family.IPV4])  # the kernel looks again for whom it needs
        return "the gateway 10.10.0.254 does not answer on 'e1'" in host.log()

    site.ip("r", "link", "set", "lan", "down")
    try:
        until(is_named)
    finally:
        site.ip("r", "link", "set", "lan", "up")
        site.ip("r", "-6", "address", "replace", f"{ROUTER[Family.IPV6]}/64", "dev", "lan", "nodad")
    until(partial(site.pings, "a1", ROUTER[Family.IPV4]))


def test_answers_outlive_the_process_and_what_changed_meanwhile_is_set_right(site: SegmentWorld) -> None:
    host = h1_of(site)
    host.stop_uplink(signal.SIGKILL)
    assert host.answered() == H1
    host.enforce(policy_with("a1", "b1"), 51)
    host.start_uplink()
    until(lambda: host.answered() == prefixes_of("a1"))


def test_a_switch_that_stays_away_is_answered_for_no_more(site: SegmentWorld) -> None:
    host = h1_of(site)
    host.stop_uplink()
    host.start_uplink("--silent", "2")
    until(lambda: host.answered() == H1)
    host.kill_switch()
    until(lambda: host.answered() == set())
    host.switch = host.ovs.start_switch()
    host.enforce(policy_with(*ALL), 61)
    until(lambda: host.routed() == H1)


def test_an_uplink_that_answers_no_longer_leaves_no_answers(site: SegmentWorld) -> None:
    host = h1_of(site)
    host.stop_uplink()
    host.leads = ("--fabric", "e1")
    try:
        host.start_uplink()
        until(lambda: host.answered() == set())
    finally:
        host.stop_uplink()
        del host.leads
        host.start_uplink()


def test_show_tells_who_is_answered_for_and_remove_withdraws_it(site: SegmentWorld) -> None:
    host = h1_of(site)
    shown = host.command("uplink", "show", "-o", "csv").splitlines()
    assert shown[0] == "prefix,delivered,routed,answered"
    assert set(shown[1:]) == {f"{prefix},yes,yes,yes" for prefix in H1}
    host.stop_uplink()
    host.command("uplink", "remove")
    assert host.answered() == host.routed() == set()


def test_a_prefix_of_many_addresses_is_named(site: SegmentWorld) -> None:
    host = h1_of(site)
    host.stop_uplink()
    host.start_uplink(ranges=(*RANGES, "10.10.0.0/24"))
    policy = policy_with(*ALL)
    first = policy.endpoints[0]
    wide = replace(first, prefixes=(*first.prefixes, Prefix.parse("10.10.0.64/28")))
    host.enforce(replace(policy, endpoints=(wide, *policy.endpoints[1:])), 71)
    until(lambda: "10.10.0.64/28: no single address" in host.log())
    assert host.answered() == H1
