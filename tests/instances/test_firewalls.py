"""A fleet of firewalls that Heat boots: a project's packets pass them in both directions, whoever comes and goes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from images.built import folder_of
from instances.looking import LONG_S, ask, fetches, is_shut_out
from patience import until
from twohosts.addresses import OUTSIDE_ADDRESS
from twohosts.cloud import Cloud
from twohosts.example import Instance
from twohosts.firewalls import Fleet, firewalls


@pytest.fixture(scope="module")
def fleet(cloud: Cloud, shop: Instance) -> Iterator[Fleet]:
    """A fleet with one firewall, in the path of `shop`'s project."""
    until(lambda: fetches(cloud, shop.address), LONG_S)
    with firewalls(cloud, folder_of("firewall-vnf") / "firewall-vnf.qcow2", shop.project.name) as made:
        yield made


def _passes(cloud: Cloud, shop: Instance) -> None:
    """Packets pass from outside and to it as the project's list permits."""
    until(lambda: fetches(cloud, shop.address), LONG_S)
    assert not fetches(cloud, shop.address, 81)
    until(lambda: ask(cloud, shop, OUTSIDE_ADDRESS) == "outside", LONG_S)
    assert is_shut_out(cloud, shop, OUTSIDE_ADDRESS, 81)


def test_a_project_s_packets_pass_the_firewall_that_heat_made(cloud: Cloud, shop: Instance, fleet: Fleet) -> None:
    assert len(fleet.carrying()) == 1
    _passes(cloud, shop)


def test_a_second_firewall_carries_its_share_and_goes_on_alone(cloud: Cloud, shop: Instance, fleet: Fleet) -> None:
    [first] = fleet.carrying()
    fleet.resize(2)
    _passes(cloud, shop)
    fleet.operator.compute.stop_server(fleet.server(first))
    until(lambda: first not in fleet.carrying(), LONG_S)
    _passes(cloud, shop)


def test_without_a_firewall_nothing_passes(cloud: Cloud, shop: Instance, base: Instance, fleet: Fleet) -> None:
    for name in fleet.carrying():
        fleet.operator.compute.stop_server(fleet.server(name))
    until(lambda: not fetches(cloud, shop.address), LONG_S)
    assert fetches(cloud, shop.address, 81) is False
    assert ask(cloud, base, OUTSIDE_ADDRESS) == "outside", "another project goes as before"
