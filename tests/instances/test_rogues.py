"""Instances that are not what they say: nothing of it leaves their port, and nobody else notices."""

from __future__ import annotations

from instances.looking import LONG_S, ask, fetches, hears, open_for_pings, pings_of, tap_of, typed
from instances.traffic import nothing_but_sniffing
from patience import until
from twohosts import example
from twohosts.addresses import OUTSIDE, OUTSIDE_ADDRESS
from twohosts.cloud import Cloud
from twohosts.example import Instance

from orchestrator.lab import namespaces
from orchestrator.policy.protocols import UDP

_GATEWAY = "0a:ac:1f:00:00:01"


def test_one_that_claims_the_gateway_s_and_another_s_address_gets_none_of_their_packets(
    cloud: Cloud, shop: Instance, near: Instance
) -> None:
    router = typed(cloud, near, "ip route show default").split()[2]
    for claimed in (router, near.address):
        typed(cloud, shop, f"ip address add {claimed}/32 dev eth0")
        for kind in ("-U", "-A"):
            typed(cloud, shop, f"arping {kind} -c 2 -w 3 -I eth0 {claimed}")
    try:
        hears(cloud, near, "outside", OUTSIDE_ADDRESS)
        assert fetches(cloud, near.address, patience_s=60.0)
        with nothing_but_sniffing(cloud, near) as seen:
            assert ask(cloud, near, OUTSIDE_ADDRESS) == "outside"
            until(lambda: any(kind.destination == OUTSIDE_ADDRESS for kind in seen.seen))
            tap = tap_of(shop)
            assert not [
                kind for kind in seen.seen if kind.interface == tap and near.address in (kind.source, kind.destination)
            ]
        known = typed(cloud, near, "ip neigh show dev eth0").splitlines()
        assert known
        assert all(_GATEWAY in line for line in known if "lladdr" in line), known
    finally:
        for claimed in (router, near.address):
            typed(cloud, shop, f"ip address delete {claimed}/32 dev eth0")
    hears(cloud, shop, "outside", OUTSIDE_ADDRESS)


def test_what_bears_another_mac_address_leaves_no_port(cloud: Cloud, shop: Instance) -> None:
    own = shop.project.port(shop.server).mac_address
    with namespaces.inside(cloud.prefix + OUTSIDE, open_for_pings) as heard:
        typed(cloud, shop, "ip link set eth0 address 02:00:00:00:99:99")
        typed(cloud, shop, f"ping -c 3 -W 1 -s 99 {OUTSIDE_ADDRESS}")
        typed(cloud, shop, f"ip link set eth0 address {own}")
        assert own in typed(cloud, shop, "ip link show dev eth0")
        typed(cloud, shop, f"ping -c 3 -W 1 -s 77 {OUTSIDE_ADDRESS}")
        assert pings_of(heard, shop.address, 77) == {77}


def test_a_dhcp_server_in_an_instance_hears_of_nobody_and_is_heard_by_nobody(
    cloud: Cloud, shop: Instance, near: Instance
) -> None:
    settings = ("start 198.51.100.40", "end 198.51.100.44", "interface eth0", "lease_file /tmp/leases")
    typed(cloud, shop, f"printf '%s\\n' {' '.join(map(repr, settings))} >/tmp/udhcpd.conf; touch /tmp/leases")
    typed(cloud, shop, "udhcpd -I 198.51.100.1 -S /tmp/udhcpd.conf")
    taps = {each.name: tap_of(each) for each in (shop, near)}
    try:
        with nothing_but_sniffing(cloud, near) as seen:
            said = typed(cloud, near, "udhcpc -n -q -i eth0 -s /etc/address")
            assert f"lease of {near.address} obtained" in said, said
            until(lambda: any(kind.interface == taps["near"] and kind.port == 67 for kind in seen.seen))
            questions = [kind for kind in seen.seen if (kind.protocol, kind.port) == (UDP, 67)]
            assert not [kind for kind in questions if kind.interface == taps["shop"] and kind.to_interface]
    finally:
        typed(cloud, shop, "killall udhcpd")


def test_an_address_of_two_instances_belongs_to_one_and_passes_to_the_other(cloud: Cloud, shop: Instance) -> None:
    """As allowed address pairs of both ports: the port that was made first has it."""
    shared = "198.51.100.60"
    other = example.boot(cloud, shop.project, "other", "two")
    network = shop.project.cloud.network
    ports = [each.project.port(each.server) for each in (shop, other)]
    for port, each in zip(ports, (shop, other), strict=True):
        network.update_port(port, allowed_address_pairs=[{"ip_address": shared}])
        typed(cloud, each, f"ip address add {shared}/32 dev eth0")
    try:
        until(lambda: cloud.announced().get(shared) == "one", what=cloud.announced)
        until(lambda: fetches(cloud, shared))
        assert not fetches(cloud, shared, 81)
        network.update_port(ports[0], allowed_address_pairs=[])
        until(lambda: cloud.announced().get(shared) == "two", what=cloud.announced)
        until(lambda: fetches(cloud, shared))
        assert not fetches(cloud, shared, 81)
    finally:
        network.update_port(ports[0], allowed_address_pairs=[])
        typed(cloud, shop, f"ip address delete {shared}/32 dev eth0")
        shop.project.cloud.compute.delete_server(other.server)
    until(lambda: not {shared, other.address} & cloud.announced().keys(), LONG_S)
