"""The controller as a process, a real Open vSwitch, and everything that can die between them.

Each story ends with the same question: do the switches hold exactly the program that the service published last?
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from enforce.dummy_ovs import DummyOvs, missing
from enforce.programs import large_program, program, rule
from enforce.stub_service import StubService
from patience import PATIENCE_S, until

from orchestrator.enforce.drivers.openflow.messages import BundleControl, Type
from orchestrator.enforce.succession import share_of
from orchestrator.lab.processes import free_port
from orchestrator.program.program import Program

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
]

ROOT = Path(__file__).parents[2]
HOSTS = [
    {"name": "host1", "datapath_id": f"{0x11:016x}", "uplink": "p2"},
    {"name": "host2", "datapath_id": f"{0x12:016x}", "uplink": "p2"},
]


def accepts(port: int) -> bool:
    """Whether somebody listens at a port."""
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


class Site:
    """A service, an Open vSwitch with a bridge for each host, and controllers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.service = StubService(HOSTS)
        self.ovs = DummyOvs(folder / "ovs")
        self.port = free_port()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._dialled: dict[int, int] = {}
        self.bridges = [host["name"] for host in HOSTS]
        self.ovs.add_bridge("host1", datapath_id=0x11, ports=("p1", "p2"))
        self.ovs.add_bridge("host2", datapath_id=0x12, ports=("q1", "q2"))

    def serve_again(self) -> None:
        """A service where the one before was, which knows what epochs there were and nothing else."""
        self.service = StubService(HOSTS, self.service.port, epoch=self.service.epoch)

    def start(
        self, name: str = "controller", port: int | None = None, *, look_s: float = 3600.0, through: int | None = None
    ) -> None:
        """Start a controller, which switches reach at its port or `through` a relay's."""
        log = (self.folder / f"{name}.log").open("ab")
        arguments = (self.service.url, self.folder / name, port or self.port, name, look_s)
        self.processes[name] = subprocess.Popen(
            [sys.executable, str(ROOT / "tests/enforce/controller_main.py"), *map(str, arguments)],
            cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=log, stderr=log,
        )  # fmt: skip
        log.close()
        self.dial(port or self.port, through=through)

    def dial(self, port: int, *, through: int | None = None) -> None:
        """Have every bridge dial a controller now, by another name of this machine: it will not try again so soon."""
        until(lambda: accepts(port))
        self._dialled[through or port] = self._dialled.get(through or port, 0) + 1
        targets = [f"tcp:127.0.0.{number}:{known}" for known, number in self._dialled.items()]
        for bridge in self.bridges:
            self.ovs.set_controllers(bridge, *targets)

    def end(self, name: str = "controller", number: signal.Signals = signal.SIGKILL) -> int:
        """End a controller; its exit status."""
        process = self.processes.pop(name)
        process.send_signal(number)
        return process.wait(timeout=PATIENCE_S)

    def log(self, name: str = "controller") -> str:
        return (self.folder / f"{name}.log").read_text()

    def publish(self, goal: Program) -> None:
        """Publish a program and wait until both hosts are reported to hold it."""
        self.service.publish(goal)
        self.service.wait_enforced(goal.generation, "host1", "host2")

    def rules(self, host: str) -> set[int]:
        """The numbers of the rules that a bridge really holds."""
        dump = "\n".join(self.ovs.flows(host))
        return {int(cookie, 16) & 0xFFFFFFFFFF for cookie in re.findall(r"cookie=0xac11([0-9a-f]+), table=50", dump)}

    def await_rules(self, wanted: set[int]) -> None:
        """Wait until both bridges hold exactly some rules."""
        until(lambda: all(self.rules(host["name"]) == wanted for host in HOSTS))

    def close(self) -> None:
        for name in list(self.processes):
            self.end(name)
        self.service.close()
        self.ovs.close()
        for log in self.folder.glob("*.log"):
            assert "Traceback" not in log.read_text()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    (tmp_path / "ovs").mkdir()
    site = Site(tmp_path)
    try:
        yield site
    finally:
        site.close()


ONE, TWO, THREE = (
    program([rule(1)]),
    program([rule(1), rule(2)], generation=2),
    program([rule(2), rule(3)], generation=3),
)


def test_a_program_and_what_follows_reach_every_switch(site: Site) -> None:
    site.start()
    site.publish(ONE)
    assert site.rules("host1") == site.rules("host2") == {1}
    assert any("in_port=1" in flow for flow in site.ovs.flows("host1"))
    site.publish(TWO)
    site.publish(THREE)
    assert site.rules("host1") == site.rules("host2") == {2, 3}
    point = site.service.points["host1"]
    assert (point["digest"], point["error"]) == (THREE.digest.hex(), None)
    site.service.wait(lambda: site.service.counted == {"host1", "host2"})
    assert site.end(number=signal.SIGTERM) == 0
    assert site.rules("host1") == {2, 3}, "switches go on as they were last programmed"
    states = [point["state"] for point in site.service.history]
    assert "disconnected" not in states
    assert "controller.stopped" in site.log()


def test_a_switch_that_is_killed_comes_back_to_its_program(site: Site) -> None:
    site.start()
    site.publish(TWO)
    site.ovs.kill_switch()
    site.service.wait(lambda: site.service.points["host1"]["state"] == "disconnected")
    site.ovs.start_switch()
    site.service.wait_enforced(2, "host1", "host2")
    assert site.rules("host1") == site.rules("host2") == {1, 2}


def test_a_switch_that_hangs_is_told(site: Site) -> None:
    site.start()
    site.publish(ONE)
    site.ovs.freeze_switch()
    site.service.wait(lambda: site.service.points["host1"]["state"] == "disconnected")
    site.ovs.thaw_switch()
    site.service.wait_enforced(1, "host1", "host2")


def test_a_killed_controller_finds_everything_as_it_was(site: Site) -> None:
    site.start()
    site.publish(TWO)
    site.end()
    assert site.rules("host1") == {1, 2}
    site.service.publish(THREE)
    site.start()
    site.service.wait_enforced(3, "host1", "host2")
    assert site.rules("host1") == {2, 3}
    assert len(site.service.enrolments) == 1, "it enrols once in its life"


def test_a_controller_without_its_service_still_repairs_switches(site: Site) -> None:
    site.start()
    site.publish(TWO)
    until((site.folder / "controller/program").exists)
    site.end()
    site.service.close()
    site.ovs.kill_switch()
    site.ovs.start_switch()
    site.start()
    site.await_rules({1, 2})
    site.serve_again()
    site.publish(THREE)
    assert site.rules("host1") == {2, 3}


def test_a_controller_with_an_old_memory_does_not_roll_switches_back(site: Site) -> None:
    site.start()
    site.publish(ONE)
    until((site.folder / "controller/program").exists)
    remembered = (site.folder / "controller/program").read_bytes()
    site.publish(THREE)
    site.end()
    (site.folder / "controller/program").write_bytes(remembered)
    (site.folder / "controller/deltas").unlink(missing_ok=True)
    site.service.close()
    site.start()
    until(lambda: "device.ahead" in site.log())
    assert site.rules("host1") == {2, 3}
    site.serve_again()
    site.publish(THREE)
    assert site.rules("host1") == {2, 3}


def is_a_commit(message: bytes) -> bool:
    return message[1] == Type.BUNDLE_CONTROL and message[13] == BundleControl.COMMIT


def is_an_addition(message: bytes) -> bool:
    return message[1] == Type.BUNDLE_ADD


@pytest.mark.parametrize("moment", [is_an_addition, is_a_commit])
def test_a_controller_killed_in_the_middle_of_a_bundle_leaves_the_old_or_the_new(
    site: Site, moment: Callable[[bytes], bool]
) -> None:
    """Killed while the bundle is being filled, or just after its commit went out; packets never meet a mixture."""
    old, new = large_program(4000), large_program(8000, generation=2)
    relay = Relay(site.port, free_port())
    site.start(through=relay.port)
    site.publish(old)
    relay.act(moment, site.processes["controller"].kill)
    site.service.publish(new)
    site.processes.pop("controller").wait(timeout=PATIENCE_S)
    seen = {host["name"]: len(site.rules(host["name"])) for host in HOSTS}
    assert set(seen.values()) <= {4000, 8000}
    site.start(through=relay.port)
    site.service.wait_enforced(2, "host1", "host2")
    assert {len(site.rules(host["name"])) for host in HOSTS} == {8000}
    relay.close()


class Relay:
    """Passes OpenFlow on between switches and the controller, and acts when a kind of message goes by."""

    def __init__(self, controller: int, port: int) -> None:
        self.port = port
        self._controller = controller
        self._moment: Callable[[bytes], bool] = lambda _: False
        self._action: Callable[[], None] = lambda: None
        self._listener = socket.create_server(("0.0.0.0", port))
        threading.Thread(target=self._accept, daemon=True).start()

    def act(self, moment: Callable[[bytes], bool], action: Callable[[], None]) -> None:
        """Do something once, right after a certain message has gone to a switch."""
        self._action, self._moment = action, moment

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                switch, _ = self._listener.accept()
                controller = socket.create_connection(("127.0.0.1", self._controller))
            except ConnectionRefusedError:
                switch.close()
                continue
            except OSError:
                return
            for source, target, watched in ((switch, controller, False), (controller, switch, True)):
                threading.Thread(target=self._pass_on, args=(source, target, watched), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, watched: bool) -> None:
        rest = b""
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
                rest = self._look(rest + data) if watched else b""
        for sock in (source, target):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _look(self, data: bytes) -> bytes:
        at = 0
        while len(data) - at >= 8 and len(data) - at >= (length := int.from_bytes(data[at + 2 : at + 4], "big")):
            if self._moment(data[at : at + length]):
                self._moment = lambda _: False
                self._action()
            at += length
        return data[at:]


def test_drift_is_repaired_when_it_is_looked_for(site: Site) -> None:
    site.start(look_s=0.5)
    site.publish(TWO)
    site.ovs.ofctl("del-flows", "host1", "table=50")
    site.ovs.ofctl("add-flow", "host2", "table=50,priority=40000,actions=drop")
    site.ovs.ofctl("mod-flows", "host2", "table=60,actions=drop")
    site.service.wait(lambda: [point["state"] for point in site.service.history].count("drifted") >= 2)
    site.await_rules({1, 2})
    until(lambda: not any("priority=40000" in flow for flow in site.ovs.flows("host2")))
    until(lambda: not any("table=60" in flow and "actions=drop" in flow for flow in site.ovs.flows("host2")))


def test_ports_that_come_and_go_are_followed(site: Site) -> None:
    site.start()
    site.publish(ONE)
    assert sum("in_port=" in flow for flow in site.ovs.flows("host1")) == 2
    site.ovs.vsctl("del-port", "host1", "p1")
    until(lambda: not any("in_port=1" in flow for flow in site.ovs.flows("host1")))
    site.ovs.add_port("host1", "p1", 77)
    until(lambda: any("in_port=77" in flow for flow in site.ovs.flows("host1")))
    assert site.rules("host1") == {1}


def test_a_switch_that_refuses_says_why_and_keeps_what_it_had(site: Site) -> None:
    site.start()
    site.publish(ONE)
    site.ovs.vsctl("--", "--id=@t", "create", "flow_table", "flow_limit=1", "overflow_policy=refuse",
                   "--", "set", "bridge", "host1", "flow_tables:50=@t")  # fmt: skip
    site.service.publish(TWO)
    site.service.wait(lambda: site.service.points["host1"]["state"] == "refused")
    assert "full" in str(site.service.points["host1"]["error"])
    site.service.wait_enforced(2, "host2")
    assert site.rules("host1") == {1}
    site.ovs.vsctl("--", "clear", "bridge", "host1", "flow_tables")
    site.service.wait_enforced(2, "host1")


def test_the_later_epoch_leads_and_the_older_writes_no_more(site: Site) -> None:
    """Two controllers, both connected; the first has led and stands by when the second comes, for good."""
    second_port = free_port()
    site.start("first")
    site.publish(ONE)
    site.start("second", second_port)
    until(lambda: site.log("first").count("switch.demoted") == 2)
    until(lambda: site.log("second").count("device.claimed") == 2)
    written = site.log("first").count("device.written")
    site.publish(TWO)
    assert site.rules("host1") == site.rules("host2") == {1, 2}
    site.end("second")
    site.service.publish(THREE)
    until(lambda: "generation=3" in site.log("first"))
    time.sleep(0.3)
    assert site.rules("host1") == site.rules("host2") == {1, 2}
    assert site.log("first").count("device.written") == written
    site.start("second", second_port)
    site.service.wait_enforced(3, "host1", "host2")
    assert site.rules("host1") == site.rules("host2") == {2, 3}
    assert site.log("first").count("device.written") == written


def test_a_killed_controllers_switches_are_led_by_the_other_and_written_by_one_only(site: Site) -> None:
    """Real switches; what each decides, `test_controllers_share.py` tells of fake ones."""
    hosts = [{"name": f"host{at}", "datapath_id": f"{0x10 + at:016x}", "uplink": "p2"} for at in range(1, 7)]
    for at in range(3, 7):
        site.ovs.add_bridge(f"host{at}", datapath_id=0x10 + at, ports=(f"p{at}1", f"p{at}2"))
    site.service.hosts, site.service.is_shared = hosts, True
    site.bridges = names = [each["name"] for each in hosts]
    first, second, second_port = 3, 4, free_port()
    shared = frozenset(filter(share_of(second, (first, second)), names))
    assert 0 < len(shared) < len(names)

    def leads(by: int, of: Iterable[str]) -> bool:
        return all(site.service.reporter.get(name) == by for name in of)

    def publish(goal: Program, *numbers: int) -> None:
        site.service.publish(goal)
        site.service.wait_enforced(goal.generation, *names)
        assert all(site.rules(name) == {*numbers} for name in names)

    site.start("first")
    publish(ONE, 1)
    site.start("second", second_port)
    site.service.wait(lambda: leads(second, shared))
    assert leads(first, set(names) - shared)
    publish(TWO, 1, 2)
    until(lambda: site.ovs.vsctl("--columns=role", "list", "controller").count("master") == len(names))

    site.end("first")
    publish(THREE, 2, 3)
    assert leads(second, names)
    site.start("first")
    site.service.wait(lambda: leads(first, set(names) - shared))
    assert leads(second, shared)


def test_a_spoilt_program_is_not_enforced(site: Site) -> None:
    site.start()
    site.publish(ONE)
    site.service.spoil = lambda body: body[:-1] + bytes([body[-1] ^ 1])
    site.service.publish(TWO)
    until(lambda: site.log().count("program.watch_failed") >= 2)
    assert site.rules("host1") == {1}
    site.service.spoil = lambda body: body
    site.service.wait_enforced(2, "host1", "host2")


def test_a_switch_of_no_host_is_left_alone_until_it_is_onboarded(site: Site) -> None:
    site.start()
    site.publish(ONE)
    site.ovs.add_bridge("host3", datapath_id=0x13, ports=("x1",))
    site.ovs.set_controllers("host3", f"tcp:127.0.0.1:{site.port}")
    until(lambda: "switch.unknown" in site.log())
    assert site.ovs.flows("host3") == []
    site.service.hosts.append({"name": "host3", "datapath_id": f"{0x13:016x}", "uplink": "x1"})
    site.service.wait_enforced(1, "host3")
    assert site.rules("host3") == {1}
    del site.service.hosts[-1]
    until(lambda: "host.left" in site.log())
    site.publish(TWO)
    assert site.rules("host3") == {1}
