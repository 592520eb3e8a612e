"""Counts with real switches, a real service, and a controller that dies: every packet that was met is counted once.

Switches are Open vSwitch with OVS's dummy datapath, which takes frames over a control socket. The controller polls
every half second. Whatever happens, sums come to exactly the frames that were sent, but for what is said to be lost.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from enforce.dummy_ovs import DummyOvs, accepts, missing
from enforce.real_switch import Control
from patience import PATIENCE_S, until
from served import Served, served

from orchestrator.client import Client, Host
from orchestrator.compile.pipelines.host import GATEWAY_MAC
from orchestrator.enforce.drivers.openflow.frames import frame
from orchestrator.lab.processes import free_port
from orchestrator.policy.addresses import Family, Prefix
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.model import Endpoint, Packet, TenantId
from orchestrator.policy.protocols import UDP

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
]

ROOT = Path(__file__).parents[2]
MAC = {1: 0x02000000AA01, 2: 0x02000000AA02}
OUTSIDE_MAC = 0x020000000001
POLL_S = 0.5


def rules(*ports: int) -> list[dict[str, object]]:
    return [{"id": f"p{each}", "action": "permit", "protocol": "udp", "destination_ports": each} for each in ports]


class Site:
    """Two hosts with an endpoint each, a tenant, a service and a controller."""

    def __init__(self, service: Served, folder: Path) -> None:
        self.service, self.folder = service, folder
        self.client = service.client()
        self.ovs = DummyOvs(folder)
        self.sent: Counter[str] = Counter()
        self._controller: subprocess.Popen[bytes] | None = None
        self._dialled = 0
        self._port = free_port()
        self.client.domains.create("pop")
        self.client.tenants.create("shop", domain="pop", prefixes=[Prefix.parse("10.7.0.0/16")])
        for number in (1, 2):
            self.ovs.add_bridge(f"host{number}", datapath_id=number, ports=(f"vm{number}", f"up{number}"))
            self.client.domains.add_host("pop", Host(f"host{number}", number, f"up{number}"))
            address = (Prefix.parse(f"10.7.0.{number}/32"),)
            self.client.domains.put_endpoint(
                "pop", Endpoint(f"e{number}", TenantId("shop"), f"vm{number}", MAC[number], address)
            )
        self._control: Control | None = None

    def start(self) -> None:
        """Start the controller (again) and have the switches dial it."""
        with self.service.client() as client:
            fresh = not (self.folder / "controller").exists()
            token = client.enrolment.invite("pop") if fresh else "used"
        settings = {"PYTHONPATH": str(ROOT)}
        command = (str(ROOT / "tests/enforce/controller_main.py"), self.service.url, str(self.folder / "controller"))
        with (self.folder / "controller.log").open("ab") as log:
            self._controller = subprocess.Popen(
                [sys.executable, *command, str(self._port), "controller", "2.0", token],
                cwd=ROOT, env={**os.environ, **settings}, stdout=log, stderr=log,
            )  # fmt: skip
        until(lambda: _listens(self._port))
        self.dial_until_held()

    def dial_until_held(self) -> None:
        """Have the switches dial until they hold the program: they wait for seconds where nobody answers at once."""
        generation = self.client.domains.read("pop").generation
        self.dial()
        while not self.client.domains.wait_until_enforced("pop", generation, timeout_s=10).done:
            self.dial()

    def dial(self) -> None:
        """Have the switches dial the controller now, by another name of this machine."""
        self._dialled += 1
        for number in (1, 2):
            self.ovs.set_controllers(f"host{number}", f"tcp:127.0.0.{self._dialled}:{self._port}")

    def kill(self) -> None:
        """The controller dies without a word."""
        assert self._controller is not None
        self._controller.send_signal(signal.SIGKILL)
        self._controller.wait()
        self._controller = None

    def restart_switch(self) -> None:
        """The daemon dies with all flows, and comes again."""
        self.ovs.kill_switch()
        self._control = None
        self.ovs.start_switch()
        until(lambda: all(accepts(self.ovs.directory / f"host{number}.mgmt") for number in (1, 2)))
        self.dial_until_held()

    def put(self, *ports: int) -> None:
        """Make these the permitted ports, enforced on both hosts when this returns."""
        written = self.client.acls.put("shop", acl_from_json({"rules": rules(*ports)}))
        assert self.client.domains.wait_until_enforced("pop", written.generation, timeout_s=PATIENCE_S).done

    def send(self, port: int, host: int, count: int = 1) -> None:
        """Frames from outside to a host's endpoint; they come from as many ports, so each is looked up."""
        if self._control is None:
            self._control = Control(self.ovs.directory / "ovs-vswitchd.ctl")
        for number in range(count):
            packet = Packet(Family.IPV4, 0xC0000201, 0x0A070000 | host, UDP, 20000 + number, port)
            octets = frame(packet, src_mac=OUTSIDE_MAC, dst_mac=GATEWAY_MAC, payload=b"x" * 20)
            self._control("netdev-dummy/receive", f"up{host}", octets.hex())
        self.sent[f"p{port}"] += count

    def counted(self) -> dict[str, int]:
        return {each.rule: each.packets for each in self.client.hits.read("shop").rules}

    def settle(self, lost: int = 0) -> None:
        """Everything sent is counted in the end, but for so many of all; and nothing more, also a while later."""
        wanted = {rule: count for rule, count in self.sent.items() if rule in self.counted()}
        until(lambda: sum(wanted.values()) - sum(self._of(wanted)) <= lost)
        time.sleep(3 * POLL_S)
        assert all(count <= wanted[rule] for rule, count in zip(wanted, self._of(wanted), strict=True))
        assert sum(wanted.values()) - sum(self._of(wanted)) <= lost

    def _of(self, wanted: dict[str, int]) -> list[int]:
        counted = self.counted()
        return [counted[rule] for rule in wanted]

    def kinds(self) -> set[str]:
        return {lapse.kind for lapse in self.client.hits.read_unused_rules("shop", idle_s=0).lapses}

    def close(self) -> None:
        if self._controller is not None:
            self.kill()
        self.client.close()
        self.ovs.close()
        _, fault, text = (self.folder / "controller.log").read_text().partition("Traceback")
        assert not fault, text[:5000]


def _listens(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    (tmp_path / "ovs").mkdir()
    with served(tmp_path / "service") as service:
        site = Site(service, tmp_path / "ovs")
        try:
            yield site
        finally:
            site.close()


def begun(site: Site) -> None:
    """Two ports are permitted, both hosts are counted, and a few packets were."""
    site.start()
    site.put(80, 443)
    until(lambda: len(claimed(site.client)) == 2)
    for host in (1, 2):
        site.send(80, host, 3)
    site.send(443, 1, 2)
    site.settle()


def claimed(client: Client) -> list[str]:
    """The hosts that are counted: a log line of the service's would do as well."""
    return ["host1", "host2"] if client.hits.read_unused_rules("shop", idle_s=0).watched_since is not None else []


def test_every_packet_is_counted_once_on_both_hosts(site: Site) -> None:
    begun(site)
    for _ in range(5):
        site.send(80, 1, 7)
        site.send(443, 2, 5)
    site.settle()
    seen = {each.rule: each for each in site.client.hits.read("shop").rules}
    assert seen["p80"].bytes == seen["p80"].packets * (14 + 20 + 8 + 20)
    assert seen["p80"].packets_per_s > 0
    assert seen["p80"].last_hit is not None
    assert site.client.hits.read("shop").ingress_default.packets == 0


def test_edits_lose_nothing_that_was_there_when_they_were_made(site: Site) -> None:
    """Rules come before and behind a rule that goes on deciding, so its flows are moved and replaced."""
    begun(site)
    for ports in ((80, 443, 53), (7, 80, 443), (80, 443), (443, 80), (80, 443, 8080)):
        site.send(80, 1, 4)
        site.put(*ports)
        site.send(80, 2, 2)
    site.settle()
    assert "unread" not in site.kinds()


def test_a_switch_that_restarts_loses_at_most_a_poll(site: Site) -> None:
    begun(site)
    site.restart_switch()
    until(lambda: bool(site.ovs.flows("host1")) and bool(site.ovs.flows("host2")))
    time.sleep(2 * POLL_S)
    before = sum(site.counted().values())
    site.send(80, 1, 9)
    site.send(443, 2, 1)
    until(lambda: sum(site.counted().values()) == before + 10)
    site.settle()
    assert site.kinds() & {"vanished", "renewed"}


def test_a_controller_that_is_killed_loses_nothing(site: Site) -> None:
    begun(site)
    for turn in range(3):
        site.send(80, 1, 5 + turn)
        site.kill()
        site.send(80, 2, 4)
        site.send(443, 1, 1)
        site.start()
        site.send(443, 2, 2)
    site.settle()
    assert "claimed" in site.kinds()


def test_entries_that_somebody_took_away_are_noted(site: Site) -> None:
    begun(site)
    site.ovs.ofctl("del-flows", "host1")
    until(lambda: bool(site.kinds() & {"vanished", "renewed", "unread"}))
    until(lambda: len(site.ovs.flows("host1")) == len(site.ovs.flows("host2")))
    time.sleep(2 * POLL_S)
    site.send(80, 1, 5)
    site.settle()
