"""From a port that a cloud makes to packets of its instance at a plain router, and back to nothing.

Service, controller, switch, routed uplink, host services, BIRD in a router: all are real. The cloud is what Neutron's
driver and os-vif do: a call for the port, a tap in the bridge, and a question whether its rows were read back.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from patience import until
from served import ServiceProcess
from system.fabricworld import BRIDGE, OUTSIDE, Host, address_of, mac_of, policy_with, prefixes_of
from system.servedworld import RESOLVER, ServedWorld

from orchestrator.bootstrap import create_token
from orchestrator.client import Client
from orchestrator.client import Host as KnownHost
from orchestrator.hosts.switch import datapath_of
from orchestrator.lab import namespaces, network
from orchestrator.lab.layout import Layout
from orchestrator.lab.processes import free_port
from orchestrator.policy.addresses import Family, Prefix, format_mac
from orchestrator.policy.model import Endpoint, TenantId
from orchestrator.store.records import Role

DOMAIN, PROJECT = "pop1", TenantId("shop")
PORT_ID = "5f0c8c34-8d5e-4b1f-9a49-2f3a6d1c7e10"
TAP = f"tap{PORT_ID[:11]}"
LINK = ("uplctl", "ctl0")
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Cloud:
    """A host that a service and its controller rule, and a client of the service."""

    world: ServedWorld
    host: Host
    client: Client

    def is_active(self) -> bool:
        """What Neutron's driver asks before it calls the port active."""
        return PORT_ID in self.client.domains.read_endpoints_in_force(DOMAIN, self.host.name).endpoints

    def offers(self) -> str:
        """Which addresses the host would give."""
        return self.host.command("host", "services", "show", "-o", "csv")


@pytest.fixture
def cloud(layout: Layout, tmp_path: Path) -> Iterator[Cloud]:
    with ServedWorld(layout) as world:
        h1 = world.hosts["h1"]
        service = ServiceProcess(tmp_path)
        service.start()
        client = Client(service.url, create_token(service.settings, Role.ADMIN).secret)
        client.domains.create(DOMAIN)
        client.domains.add_host(DOMAIN, KnownHost(h1.name, datapath_of(DOMAIN, h1.name), "up0"))
        port = free_port()
        arguments = (service.url, tmp_path / "controller", port, "controller", 2.0, client.enrolment.invite(DOMAIN))
        with (tmp_path / "controller.log").open("wb") as log:
            controller = subprocess.Popen(
                [sys.executable, str(ROOT / "tests/enforce/controller_main.py"), *map(str, arguments)],
                cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=log, stderr=log,
            )  # fmt: skip
        try:
            mine, theirs = LINK
            subprocess.run(["ip", "link", "add", mine, "type", "veth", "peer", "name", theirs, "netns", h1.namespace],
                           check=True)  # fmt: skip
            for words in (("address", "add", "192.168.99.1/24", "dev", mine), ("link", "set", mine, "up")):
                subprocess.run(["ip", *words], check=True)
            world.ip("h1", "address", "add", "192.168.99.2/24", "dev", theirs)
            world.ip("h1", "link", "set", theirs, "up")
            h1.ovs.vsctl("del-port", BRIDGE, "v-a1", "--", "set-controller", BRIDGE, f"tcp:192.168.99.1:{port}")
            until(lambda: client.domains.wait_until_enforced(DOMAIN, client.domains.read(DOMAIN).generation).done)
            h1.start_uplink()
            world.start_services(h1)
            yield Cloud(world, h1, client)
        finally:
            controller.kill()
            controller.wait()
            client.close()
            service.stop()


def plug(cloud: Cloud) -> None:
    """Put an instance's interface into the bridge as os-vif does."""
    world, host = cloud.world, cloud.host
    for words in (("link", "set", "v-a1", "down"), ("link", "set", "v-a1", "name", TAP), ("link", "set", TAP, "up")):
        world.ip(host.name, *words)
    namespaces.inside(host.namespace, lambda: network.without_offloads(TAP))
    known = {"iface-id": PORT_ID, "attached-mac": format_mac(mac_of("a1")), "iface-status": "active",
             "vm-uuid": "c0ffee00-0000-4000-8000-000000000001"}  # fmt: skip
    ids = [f'external_ids:{key}="{value}"' for key, value in known.items()]
    host.ovs.vsctl("--may-exist", "add-port", BRIDGE, TAP, "--", "set", "Interface", TAP, *ids)


def test_a_port_becomes_an_instance_that_a_plain_router_reaches(cloud: Cloud) -> None:
    world, client = cloud.world, cloud.client
    addresses = tuple(sorted(map(Prefix.parse, prefixes_of("a1"))))
    [tenant] = policy_with("a1").tenants
    client.tenants.create(PROJECT, domain=DOMAIN, prefixes=tenant.prefixes)
    client.acls.put(PROJECT, tenant.acl)
    written = client.domains.put_endpoint(DOMAIN, Endpoint(PORT_ID, PROJECT, TAP, mac_of("a1"), addresses))

    assert client.domains.wait_until_enforced(DOMAIN, written.generation).done, "every host was read back"
    assert not cloud.is_active(), "but its interface is nowhere"
    assert world.announced() == set()
    assert address_of("a1", Family.IPV4) not in cloud.offers()

    plug(cloud)
    until(cloud.is_active)
    assert address_of("a1", Family.IPV4) in cloud.offers(), "it is active when its rows are there, not before"

    assert world.ask("a1", "dhclient"), world.log(cloud.host)
    until(lambda: world.announced() == prefixes_of("a1"), what=cloud.host.log)
    until(partial(world.pings, "a1", OUTSIDE[Family.IPV4]))
    until(partial(world.pings, "o", address_of("a1", Family.IPV4)))
    until(partial(world.resolves, "a1", RESOLVER[Family.IPV4]))
    with world.listen("a1", 80, 81):
        until(partial(world.connects, "o", address_of("a1", Family.IPV4), 80))
        assert not world.connects("o", address_of("a1", Family.IPV4), 81), "its list has no such rule"

    client.domains.remove_endpoint(DOMAIN, PORT_ID)
    until(lambda: world.announced() == set())
    until(lambda: not cloud.is_active())
    assert not world.pings("o", address_of("a1", Family.IPV4))
    assert world.ask("a1", "udhcpc") is None
