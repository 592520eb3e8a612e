"""Hosts whose kernel routes to the switch: announced is what was read back, and endpoints reach no host."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from functools import partial

import pytest
from patience import until
from system.fabricworld import BRIDGE, OUTSIDE, World, address_of, policy_with, prefixes_of

from orchestrator.lab.layout import Layout
from orchestrator.policy.addresses import Family

ALL = ("a1", "a2", "b1")
H1, H2 = prefixes_of("a1", "a2"), prefixes_of("b1")


@pytest.fixture(scope="module")
def world(layout: Layout) -> Iterator[World]:
    with World(layout) as made:
        yield made


@pytest.fixture
def site(world: World) -> World:
    """Both hosts hold the policy, and all of it is announced."""
    for generation, host in enumerate(world.hosts.values(), 1):
        host.enforce(policy_with(*ALL), generation)
        if host.uplink is None:
            host.start_uplink()
    until(lambda: world.announced() == H1 | H2, what=lambda: (world.announced(), *map(_said, world.hosts.values())))
    return world


def _said(host: object) -> str:
    return host.log()[-1500:]  # type: ignore[attr-defined,no-any-return]


def test_what_the_list_permits_arrives_from_outside_and_from_hosts(site: World) -> None:
    with site.listen("a1", 80, 81), site.listen("b1", 80, 81), site.listen("o", 80):
        for family in Family:
            a1, b1 = address_of("a1", family), address_of("b1", family)
            for sender, target in (("o", a1), ("o", b1), ("a2", a1), ("b1", a1), ("a1", b1)):
                until(partial(site.pings, sender, target))
                until(partial(site.connects, sender, target, 80))
                assert not site.connects(sender, target, 81), (sender, target)
            assert site.connects("a1", OUTSIDE[family], 80), "and out"


def test_endpoints_reach_no_host_and_no_management(site: World) -> None:
    """The lists permit what endpoints send; the hosts' own guard is what keeps them away."""
    hosts = ["10.0.1.2", "fd00:1::2", "192.168.77.2", "fd77::2", "10.0.2.2", "fd00:2::2"]
    managed = ["192.168.77.1", "fd77::1"]
    with site.listen("h1", 22), site.listen("h2", 22), site.listen("m", 22), site.listen("a1", 80):
        for target in (*hosts, *managed):
            assert not site.pings("a1", target), target
            assert not site.connects("a1", target, 22), target
        for target in hosts[:2]:
            assert site.connects("r", target, 22), "it is not that nobody answers"
        for family in Family:
            assert not site.pings("m", address_of("a1", family)), "management does not reach endpoints either"
            assert not site.connects("m", address_of("a1", family), 80)


def test_the_host_forwards_nothing_else(site: World) -> None:
    """Forwarding had to be switched on; from the fabric to the management network nothing goes all the same."""
    site.ip("r", "route", "replace", "192.168.77.0/24", "via", "10.0.1.2")
    try:
        assert not site.pings("r", "192.168.77.1")
        assert not site.pings("o", "192.168.77.1")
    finally:
        site.ip("r", "route", "del", "192.168.77.0/24")


def test_the_host_and_the_router_are_hops_and_answer_for_a_time_that_is_over(site: World) -> None:
    for family, hops in ((Family.IPV4, ("10.0.1.2", "10.0.1.1")), (Family.IPV6, ("fd00:1::2", "fd00:1::1"))):
        for ttl, hop in enumerate(hops, 1):
            until(partial(_answers, site, hop, ttl, OUTSIDE[family]))


def _answers(site: World, hop: str, ttl: int, target: str) -> bool:
    """Whether a hop says to a1 that the time of a packet was over there."""
    ping = ("ip", "netns", "exec", site.namespace("a1"), "ping", "-n", "-c", "1", "-W", "2", "-t", str(ttl), target)
    return f"From {hop} " in subprocess.run(ping, capture_output=True, text=True, check=False).stdout


def test_an_endpoint_that_goes_is_withdrawn_and_one_that_comes_is_announced(site: World) -> None:
    h1 = site.hosts["h1"]
    h1.enforce(policy_with("a1", "b1"), 11)
    until(lambda: site.announced() == prefixes_of("a1") | H2)
    assert h1.routed() == prefixes_of("a1")
    h1.enforce(policy_with(*ALL), 12)
    until(lambda: site.announced() == H1 | H2)


@pytest.mark.parametrize(("name", "new", "before", "after"), [("a1", "h2", "e1", "e2"), ("b1", "h1", "e2", "e1")])
def test_an_endpoint_that_moves_is_reached_where_it_spoke_last(
    site: World, name: str, new: str, before: str, after: str
) -> None:
    """Its port on the next host is there long before it runs there: until then packets go where it still is."""
    until(lambda: {site.chosen_way(prefix) for prefix in prefixes_of(name)} == {before})
    site.plug_again(name, new)
    try:
        site.hosts[new].enforce(policy_with(*ALL), 12)
        until(
            lambda: all(site.known_ways(prefix) == 2 for prefix in prefixes_of(name)),
            what=lambda: _said(site.hosts[new]),
        )
        assert {site.chosen_way(prefix) for prefix in prefixes_of(name)} == {before}, "nothing came from it there"
        site.speak(name)
        until(lambda: {site.chosen_way(prefix) for prefix in prefixes_of(name)} == {after})
    finally:
        site.unplug_again(name, new)
    site.hosts[new].enforce(policy_with(*ALL), 13)
    until(lambda: {site.chosen_way(prefix) for prefix in prefixes_of(name)} == {before})


def test_what_no_endpoint_may_have_is_not_announced_and_said(site: World) -> None:
    h1 = site.hosts["h1"]
    h1.stop_uplink()
    h1.start_uplink(ranges=("10.10.0.11/32", "fd10::/64"))
    try:
        until(lambda: h1.routed() == H1 - {"10.10.0.12/32"})
        assert "10.10.0.12/32: outside of the ranges" in h1.log()
    finally:
        h1.stop_uplink()
        h1.start_uplink()


def _repairs(site: World) -> None:
    until(lambda: site.hosts["h1"].routed() == H1, what=lambda: _said(site.hosts["h1"]))
    until(lambda: site.announced() == H1 | H2, what=lambda: (site.announced(), _said(site.hosts["h1"])))
    for family in Family:
        until(partial(site.pings, "o", address_of("a1", family)))


def test_a_port_that_was_down_gets_all_back(site: World) -> None:
    site.ip("h1", "link", "set", "up0", "down")
    _repairs(site)


def test_a_port_made_anew_gets_all_back(site: World) -> None:
    ovs = site.hosts["h1"].ovs
    ovs.vsctl("del-port", BRIDGE, "up0")
    ovs.vsctl("add-port", BRIDGE, "up0", "--", "set", "interface", "up0", "type=internal",
              'mac="0a:ac:1f:00:00:01"')  # fmt: skip
    site.hosts["h1"].enforce(policy_with(*ALL), 21)
    _repairs(site)


def test_a_mac_address_set_from_outside_is_undone(site: World) -> None:
    site.ip("h1", "link", "set", "up0", "address", "02:00:00:00:99:99")
    _repairs(site)


def test_an_address_that_goes_takes_no_route_along_for_long(site: World) -> None:
    site.ip("h1", "address", "add", "10.99.0.1/32", "dev", "up0")
    site.ip("h1", "address", "del", "10.99.0.1/32", "dev", "up0")
    _repairs(site)


def test_routes_neighbours_and_settings_changed_by_hand_are_set_right(site: World) -> None:
    site.ip("h1", "route", "del", "10.10.0.11/32", "proto", "172")
    site.ip("h1", "route", "add", "10.10.0.99/32", "dev", "e1", "via", "10.0.1.1", "proto", "172")
    site.ip("h1", "route", "add", "10.10.0.98/32", "via", "169.254.1.1", "dev", "up0", "onlink", "proto", "172")
    site.ip("h1", "neigh", "replace", "169.254.1.1", "lladdr", "02:00:00:00:99:99", "dev", "up0", "nud", "permanent")
    site.ip("h1", "-6", "neigh", "del", "fe80::1", "dev", "up0")
    _repairs(site)


def test_a_guard_that_somebody_took_away_is_written_again(site: World) -> None:
    site.run_in("h1", "nft", "delete", "table", "inet", "aclflow_uplink")
    site.run_in("h1", "sysctl", "-qw", "net.ipv6.conf.all.forwarding=0")
    until(lambda: "aclflow_uplink" in site.run_in("h1", "nft", "list", "tables"))
    until(lambda: site.run_in("h1", "sysctl", "-n", "net.ipv6.conf.all.forwarding").strip() == "1")
    with site.listen("h1", 22):
        assert not site.connects("a1", "10.0.1.2", 22)


def test_a_switch_that_lost_its_rows_is_withdrawn_at_once_and_comes_back_with_them(site: World) -> None:
    h1 = site.hosts["h1"]
    h1.restart_switch()
    until(lambda: site.announced() == H2, what=lambda: _said(h1))
    h1.enforce(policy_with(*ALL), 31)
    _repairs(site)


def test_a_switch_that_stays_away_is_withdrawn_on_purpose(site: World) -> None:
    h1 = site.hosts["h1"]
    h1.stop_uplink()
    h1.start_uplink("--silent", "2")
    until(lambda: h1.routed() == H1)
    h1.kill_switch()
    until(lambda: "routes are kept for 2 s" in h1.log())
    until(lambda: site.announced() == H2, what=lambda: _said(h1))
    until(lambda: "silent for" in h1.log())
    h1.switch = h1.ovs.start_switch()
    h1.enforce(policy_with(*ALL), 41)
    _repairs(site)


def test_what_changed_while_nobody_looked_is_set_right_first(site: World) -> None:
    h1 = site.hosts["h1"]
    h1.stop_uplink(signal.SIGKILL)
    assert h1.routed() == H1, "routes outlive the process, as rows outlive the controller"
    h1.enforce(policy_with("a1", "b1"), 51)
    h1.start_uplink()
    until(lambda: h1.routed() == prefixes_of("a1"))
    h1.enforce(policy_with(*ALL), 52)
    _repairs(site)


def test_nothing_is_announced_by_a_process_that_never_read_a_row(site: World) -> None:
    h1 = site.hosts["h1"]
    h1.stop_uplink()
    h1.kill_switch()
    h1.start_uplink()
    until(lambda: h1.routed() == set())
    until(lambda: site.announced() == H2)
    h1.switch = h1.ovs.start_switch()
    h1.enforce(policy_with(*ALL), 61)
    _repairs(site)


def test_show_says_what_is_delivered_and_routed_and_remove_withdraws_it(site: World) -> None:
    h1 = site.hosts["h1"]
    shown = h1.command("uplink", "show", "-o", "csv").splitlines()
    assert shown[0] == "prefix,delivered,routed,answered"
    assert set(shown[1:]) == {f"{prefix},yes,yes,no" for prefix in H1}
    h1.stop_uplink()
    h1.command("uplink", "remove")
    assert h1.routed() == set()
    assert "aclflow_uplink" not in site.run_in("h1", "nft", "list", "tables")
    until(lambda: site.announced() == H2)
