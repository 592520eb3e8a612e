"""Instances that change their host: alive, stopped for it, or because their host is dead."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from instances.looking import LONG_S, fetches, typed
from instances.traffic import traffic, traffic_from_outside
from openstack.exceptions import BadRequestException
from patience import until
from twohosts import example
from twohosts.cloud import Cloud
from twohosts.example import Instance

_BOOT = "cat /proc/sys/kernel/random/boot_id"
_OPEN = [{"id": "all", "action": "permit"}]


def test_a_running_instance_moves_there_and_back_and_its_lists_hold_all_the_time(
    cloud: Cloud, shop: Instance, base: Instance, record_property: Callable[[str, object], None]
) -> None:
    mover = _booted(cloud, shop, "mover")
    boot = typed(cloud, mover, _BOOT)
    with traffic(cloud, mover, base) as moving:
        moving.wait_until_it_flows("one")
        for target, source in (("two", "one"), ("one", "two")):
            until(lambda source=source: _is_settled(cloud, mover, source), LONG_S, what=cloud.announced)
            moving.pinged.clear()
            mover.project.cloud.compute.live_migrate_server(
                mover.server, host=target, force=True, block_migration="auto"
            )
            _wait_until_on(cloud, mover, target, source)
            moving.wait_until_it_flows(target)
            record_property(f"outage_ms_from_{source}_to_{target}", moving.outage_ms)
            print(f"from {source} to {target}: {moving.outage_ms} ms without an answer", flush=True)
        assert moving.wrong() == {}
        assert moving.numbers == list(range(len(moving.numbers))), "the stream lacks nothing"

        example.put_list(cloud, mover.project, _OPEN)  # now the same packets pass: they were sent, and are seen
        try:
            until(lambda: {81, 80} <= {kind.port for kind in moving.wrong() if kind.destination == mover.address})
        finally:
            example.put_list(cloud, mover.project, example.LISTS["blue"])
    assert typed(cloud, mover, _BOOT) == boot, "it was not booted anew"
    _delete(cloud, mover)


def test_an_instance_that_is_stopped_to_move_is_reached_on_its_new_host(cloud: Cloud, shop: Instance) -> None:
    mover = _booted(cloud, shop, "packer")
    compute = mover.project.cloud.compute
    compute.migrate_server(mover.server)
    until(
        lambda: mover.project.server(mover.server).status == "VERIFY_RESIZE",
        LONG_S,
        what=lambda: mover.project.server(mover.server),
    )
    compute.confirm_server_resize(mover.server)
    _wait_until_on(cloud, mover, "two", "one")
    until(lambda: fetches(cloud, mover.address), LONG_S)
    assert not fetches(cloud, mover.address, 81), "its list is the same there"
    _delete(cloud, mover)


def test_an_instance_whose_host_lost_its_power_comes_up_elsewhere_and_stays_there(cloud: Cloud, shop: Instance) -> None:
    mover = _booted(cloud, shop, "refugee")
    compute, host = mover.project.cloud.compute, cloud.hosts["one"]
    service = next(iter(compute.services(binary="nova-compute", host="one")))
    with traffic_from_outside(cloud, mover) as sent:
        host.lose_power()
        try:
            compute.update_service_forced_down(service, forced=True)
            compute.evacuate_server(mover.server, host="two")
            until(lambda: cloud.announced().get(mover.address) == "two", LONG_S, what=cloud.announced)
            until(lambda: sent.delivered("two"), LONG_S)
            until(lambda: fetches(cloud, mover.address), LONG_S)
            until(lambda: mover.project.server(mover.server).status == "ACTIVE", LONG_S)
            assert not fetches(cloud, mover.address, 81), "its list is the same there"
            before = sent.delivered("one")
        finally:
            host.start_again()
            until(partial(_is_taken_back, mover, service), LONG_S)
        _wait_until_on(cloud, mover, "two", "one")
        compute.reboot_server(shop.server, "HARD")
        until(lambda: cloud.announced().get(shop.address) == "one", LONG_S, what=cloud.announced)
        until(lambda: fetches(cloud, shop.address), LONG_S)
        answered = len(sent.pinged)
        until(lambda: len(sent.pinged) > answered)
        assert sent.delivered("one") == before, "the host that came back gets none of its packets"
        assert sent.wrong() == {}
    _delete(cloud, mover)


def _is_settled(cloud: Cloud, instance: Instance, host: str) -> bool:
    """Whether a host announces an instance as one that has been there for a while."""
    return "metric 10" in cloud.run_in(host, "ip", "route", "show", instance.address, "proto", "172").stdout


def _is_taken_back(instance: Instance, service: Any) -> bool:
    """Let Nova use a host again; return whether it may: its nova-compute looks first what was evacuated."""
    try:
        instance.project.cloud.compute.update_service_forced_down(service, forced=False)
    except BadRequestException:
        return False
    return True


def _booted(cloud: Cloud, shop: Instance, name: str) -> Instance:
    """Boot an instance on `one`; return when it is reached."""
    booted = example.boot(cloud, shop.project, name, "one")
    until(lambda: fetches(cloud, booted.address), LONG_S)
    return booted


def _wait_until_on(cloud: Cloud, instance: Instance, target: str, source: str) -> None:
    """Return when Nova, Neutron and the router have an instance on its new host, and the old one has nothing of it."""
    port = partial(instance.project.port, instance.server)
    server = partial(instance.project.server, instance.server)
    until(
        lambda: (port().binding_host_id, port().status) == (target, "ACTIVE"), LONG_S, what=lambda: (port(), server())
    )
    until(lambda: server().status == "ACTIVE", LONG_S, what=server)
    until(lambda: cloud.announced().get(instance.address) == target, LONG_S, what=cloud.announced)
    interface = f"tap{port().id}"[:14]
    until(lambda: interface not in cloud.hosts[source].run("ovs-vsctl", "list-ports", "br-aclflow"), LONG_S)
    until(lambda: instance.address not in cloud.run_in(source, "ip", "route", "show", "proto", "172").stdout, LONG_S)


def _delete(cloud: Cloud, instance: Instance) -> None:
    instance.project.cloud.compute.delete_server(instance.server)
    until(lambda: instance.address not in cloud.announced(), LONG_S)
