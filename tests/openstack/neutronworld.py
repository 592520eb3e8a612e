"""A service of aclflow for a real Neutron, and two hosts: bridges of a real Open vSwitch under a controller."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from allinone import schemas
from allinone.contents import PROJECT, connect
from allinone.stack import AllInOne
from enforce.dummy_ovs import DummyOvs, accepts
from enforce.real_switch import Control
from patience import PATIENCE_S, until
from served import ServiceProcess

from orchestrator.bootstrap import create_token
from orchestrator.client import Client, Host
from orchestrator.compile.pipelines.host import GATEWAY_MAC
from orchestrator.enforce.drivers.openflow.frames import frame
from orchestrator.lab.processes import free_port
from orchestrator.policy.model import Packet
from orchestrator.store.records import Role

DOMAIN, HOSTS = "cloud", ("one", "two")
PHYSICAL = "aclflow"
_ROOT = Path(__file__).parents[2]


class NeutronWorld:
    """The service at the port that Neutron's driver asks, its hosts, and a network of aclflow for a project."""

    def __init__(self, stack: AllInOne, directory: Path) -> None:
        self.stack = stack
        (directory / "service").mkdir()
        self.service = ServiceProcess(directory / "service", listen_port=stack.place.ports["aclflow"])
        self.token = create_token(self.service.settings, Role.ADMIN).secret
        (stack.place.root / "aclflow.token").write_text(self.token)
        self.service.start()
        self.client = Client(self.service.url, self.token)
        self.admin = connect(stack.place, "admin", PROJECT)
        (directory / "ovs").mkdir()
        self.ovs = DummyOvs(directory / "ovs")
        self._numbers = itertools.count(10)
        self._cidrs = itertools.count(1)
        self._controller = self._onboard(directory)
        self.made: list[tuple[str, str]] = []

    def _onboard(self, directory: Path) -> subprocess.Popen[bytes]:
        self.client.domains.create(DOMAIN)
        for number, name in enumerate(HOSTS, 0x11):
            self.ovs.add_bridge(name, datapath_id=number, ports=(f"up-{name}",))
            self.client.domains.add_host(DOMAIN, Host(name, number, f"up-{name}"))
        port, token = free_port(), self.client.enrolment.invite(DOMAIN)
        arguments = (self.service.url, directory / "controller", port, "controller", 2.0, token)
        with (directory / "controller.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, str(_ROOT / "tests/enforce/controller_main.py"), *map(str, arguments)],
                cwd=_ROOT, env={**os.environ, "PYTHONPATH": str(_ROOT)}, stdout=log, stderr=log,
            )  # fmt: skip
        for name in HOSTS:
            self.ovs.set_controllers(name, f"tcp:127.0.0.1:{port}")
        return process

    def close(self) -> None:
        """Take away what was made in Neutron, and end everything."""
        try:
            for kind, each in reversed(self.made):
                getattr(self.admin.network, f"delete_{kind}")(each, ignore_missing=True)
            until(lambda: not self.endpoints())
        finally:  # also where a test that failed left a port behind
            self._controller.kill()
            self._controller.wait()
            self.ovs.close()
            self.client.close()
            self.service.stop()

    # -------------------------------------------------------------------------------------------------------- Neutron

    def add_network(self, project: str, cidr: str | None = None) -> Any:
        """A network of aclflow's with a subnet, a project's own."""
        network = self.admin.network.create_network(
            provider_network_type="vlan", provider_physical_network=PHYSICAL, project_id=project
        )
        self.made.append(("network", network.id))
        self.admin.network.create_subnet(
            network_id=network.id,
            project_id=project,
            ip_version=4,
            cidr=cidr or f"10.77.{next(self._cidrs)}.0/24",
            is_dhcp_enabled=False,
        )
        return network

    def add_port(self, network: Any, host: str = "one", **more: object) -> Any:
        """A port that Nova would make: bound to a host, nothing plugged yet."""
        port = self.admin.network.create_port(
            network_id=network.id, project_id=network.project_id, binding_host_id=host, **more
        )
        self.made.append(("port", port.id))
        return port

    def port(self, port: Any) -> Any:
        """The port as Neutron has it now."""
        return self.admin.network.get_port(port.id)

    def await_status(self, port: Any, status: str) -> None:
        until(lambda: self.port(port).status == status, what=lambda: (self.port(port), self.neutron_log()))

    def sql(self, statement: str) -> None:
        """Change Neutron's database behind its back."""
        command = schemas.sql_command(self.stack.place, f"use neutron; {statement}")
        subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE_S)

    def neutron_log(self) -> str:
        lines = (self.stack.place.root / "log" / "neutron.log").read_text(errors="replace").splitlines()
        return "\n".join([line for line in lines if "aclflow" in line or "ERROR" in line][-30:])

    # -------------------------------------------------------------------------------------------------------- aclflow

    def endpoints(self) -> dict[str, Any]:
        """What the service has, by name."""
        return {each.name: each for each in self.client.domains.read_endpoints(DOMAIN)}

    def plug(self, port: Any, host: str = "one") -> None:
        """Make the interface that os-vif would make."""
        name = interface(port)
        self.ovs.add_port(host, name, next(self._numbers), capture=self.ovs.directory / f"{name}.pcap")

    def unplug(self, port: Any) -> None:
        self.ovs.vsctl("--if-exists", "del-port", interface(port))

    def send(self, port: Any, packet: Packet, mark: bytes, mac: str | None = None) -> None:
        """Put a frame with a mark into the interface of a port, as its instance would send it."""
        sender = int((mac or port.mac_address).replace(":", ""), 16)
        octets = frame(packet, src_mac=sender, dst_mac=GATEWAY_MAC, payload=mark)
        control = Control(self.ovs.directory / "ovs-vswitchd.ctl")
        control("netdev-dummy/receive", interface(port), octets.hex())
        control.close()

    def came_to(self, port: Any, mark: bytes) -> bool:
        """Whether a frame with a mark left the switch by the interface of a port."""
        return mark in (self.ovs.directory / f"{interface(port)}.pcap").read_bytes()

    def has_rows(self, port: Any, host: str = "one") -> bool:
        """Whether a host's switch has rows about a port's MAC address."""
        return any(port.mac_address in flow for flow in self.ovs.flows(host))

    def stop_service(self) -> None:
        self.service.stop()

    def start_service(self) -> None:
        """Start it where it was."""
        self.service.start()
        assert accepts(self.ovs.directory / "db.sock")


def interface(port: Any) -> str:
    return f"tap{port.id}"[:14]
