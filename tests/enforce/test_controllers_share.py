"""Two controller processes share fake switches: each leads its share, and takes the other's when that one is gone.

`test_controller_process.py` tells the same of real switches.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from enforce.programs import program, rule
from enforce.stub_service import StubService
from patience import PATIENCE_S, until

from orchestrator.enforce.drivers.openflow.fake import FakeSwitch
from orchestrator.enforce.drivers.openflow.fake.session import TcpLink
from orchestrator.enforce.succession import share_of
from orchestrator.lab.processes import free_port

ROOT = Path(__file__).parents[2]
NAMES = tuple(f"host{number}" for number in range(1, 9))
FIRST, SECOND = 3, 4
"""The numbers that the service gives them, in the order in which they enrol."""


class Plant:
    """A service, switches that dial whoever listens, and controllers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.switches = {
            name: FakeSwitch({"p1": 1, "p2": 2}, datapath_id=0x10 + number) for number, name in enumerate(NAMES)
        }
        hosts = [
            {"name": name, "datapath_id": f"{each.datapath_id:016x}", "uplink": "p2"}
            for name, each in self.switches.items()
        ]
        self.service = StubService(hosts)
        self.service.is_shared = True
        self.ports = {"first": free_port(), "second": free_port()}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.starts = {"first": 0, "second": 0}
        self.links: list[TcpLink] = []

    def start(self, name: str) -> None:
        """Start a controller, and have every switch dial it."""
        starts = self.starts[name] = self.starts[name] + 1
        arguments = (self.service.url, self.folder / name, self.ports[name], name, 3600.0)
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, str(ROOT / "tests/enforce/controller_main.py"), *map(str, arguments)],
                cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=log, stderr=log,
            )  # fmt: skip
        until(lambda: self.log(name).count("controller.started") == starts)
        self.links += [TcpLink(each, ("127.0.0.1", self.ports[name])) for each in self.switches.values()]

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.kill()
        process.wait(PATIENCE_S)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def leads(self, enforcer: int, *hosts: str) -> bool:
        return all(self.service.reporter.get(host) == enforcer for host in hosts)

    def publish(self, generation: int) -> None:
        """Publish a rule of that number, and wait until every switch holds it."""
        self.service.publish(program([rule(generation)], generation=generation))
        self.service.wait_enforced(generation, *NAMES)
        for switch in self.switches.values():
            assert {entry.cookie & 0xFFFF for entry in switch.entries() if entry.table == 50} == {generation}

    def close(self) -> None:
        for name in list(self.processes):
            self.kill(name)
        for link in self.links:
            with contextlib.suppress(OSError):
                link.close()
        self.service.close()
        for log in self.folder.glob("*.log"):
            assert "Traceback" not in log.read_text()


@pytest.fixture
def plant(tmp_path: Path) -> Iterator[Plant]:
    plant = Plant(tmp_path)
    try:
        yield plant
    finally:
        plant.close()


MINE = frozenset(filter(share_of(SECOND, (FIRST, SECOND)), NAMES))
OTHERS = frozenset(NAMES) - MINE
WITHIN_S = 5.0
"""How long switches of a dead controller may be led by nobody."""
TRIES = 3


def test_each_leads_its_share_and_takes_the_others_when_that_one_is_gone(plant: Plant) -> None:
    assert MINE
    assert OTHERS
    plant.start("first")
    plant.publish(1)
    assert plant.leads(FIRST, *NAMES)
    plant.start("second")
    plant.service.wait(lambda: plant.leads(SECOND, *MINE))
    assert plant.leads(FIRST, *OTHERS)
    plant.publish(2)
    assert plant.leads(FIRST, *OTHERS)
    assert plant.leads(SECOND, *MINE)

    plant.kill("first")
    plant.publish(3)
    assert plant.leads(SECOND, *NAMES)

    plant.start("first")
    plant.service.wait(lambda: plant.leads(FIRST, *OTHERS))
    plant.publish(4)
    assert plant.leads(SECOND, *MINE)


def test_a_killed_controllers_switches_hold_what_is_newer_within_five_seconds(plant: Plant) -> None:
    """From the kill until the other has brought all of them to a newer program; a busy machine has three tries."""
    took_s: list[float] = []
    plant.start("first")
    plant.publish(1)
    plant.start("second")
    plant.service.wait(lambda: plant.leads(SECOND, *MINE))
    while len(took_s) < TRIES and min(took_s, default=2 * WITHIN_S) > WITHIN_S:
        plant.service.wait(lambda: plant.leads(FIRST, *OTHERS))
        killed = time.monotonic()
        plant.kill("first")
        plant.publish(2 + len(took_s))
        took_s.append(time.monotonic() - killed)
        assert plant.leads(SECOND, *NAMES)
        plant.start("first")
    assert min(took_s) <= WITHIN_S, took_s


def test_whoever_was_paused_writes_no_more_where_it_was_replaced(plant: Plant) -> None:
    plant.start("first")
    plant.publish(1)
    plant.start("second")
    plant.service.wait(lambda: plant.leads(SECOND, *MINE))
    plant.processes["first"].send_signal(signal.SIGSTOP)
    plant.publish(2)
    assert plant.leads(SECOND, *NAMES)
    written = plant.log("first").count("device.written")
    plant.processes["first"].send_signal(signal.SIGCONT)
    until(lambda: "generation=2" in plant.log("first"))
    plant.publish(3)
    assert plant.leads(SECOND, *NAMES)
    assert plant.log("first").count("device.written") == written
