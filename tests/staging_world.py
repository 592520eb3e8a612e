"""A service's control over a database, and the hosts of one domain, which a test lets report."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager

from patience import until

from orchestrator.control.compiler import Compiler
from orchestrator.control.control import Control
from orchestrator.control.enforcement import Enforcement
from orchestrator.control.metrics import Metrics
from orchestrator.control.publisher import Publisher
from orchestrator.control.reports import Report
from orchestrator.policy.addresses import EVERY_IPV4
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.model import Acl
from orchestrator.program.program import Program
from orchestrator.store import open_store
from orchestrator.store.points.pointrecords import PointReport
from orchestrator.store.records import HostRecord
from orchestrator.store.unit import Unit
from orchestrator.wire.points import PointState

HOSTS = ("h1", "h2")


class Plant:
    """A service's control over a database, and the hosts of one domain, which a test lets report."""

    def __init__(self, url: str, *, is_alone: bool = True) -> None:
        self.store = open_store(url)
        self.store.is_alone = is_alone
        self.publisher = Publisher()
        metrics = Metrics()
        self.control = Control(self.store, Compiler(metrics), self.publisher)
        self.enforcement = Enforcement(self.store, metrics, told=self.control.note_report)

    def start(self) -> None:
        self.control.start()
        until(lambda: self.publisher.program("pop") is not None)

    def close(self) -> None:
        self.publisher.close()
        self.control.stop()
        self.store.close()

    @property
    def program(self) -> Program:
        program = self.publisher.program("pop")
        assert program is not None
        return program

    def put(self, acl: Acl) -> int:
        return self.control.write(lambda unit: unit.acls.replace("all", acl, author="test")).generation

    @property
    def enforcer(self) -> int:
        return self.control.read(lambda unit: unit.enforcers.list("pop")[0].id)

    def read_back(self, *hosts: str, program: Program | None = None) -> None:
        held = program or self.program
        points = [
            PointReport(host, held.generation, held.digest, PointState.ENFORCED, None, len(held.blocks))
            for host in hosts
        ]
        self.enforcement.report("pop", self.enforcer, Report(tuple(points)))


def deny_web(direction: str) -> Acl:
    """Everything is permitted but TCP port 80, which one of the two directions denies."""
    rules = [
        {"id": f"no-{direction}", "action": "deny", "direction": direction, "protocol": "tcp", "destination_ports": 80},
        {"id": "in", "action": "permit"},
    ]
    return acl_from_json({"rules": rules})


def set_up(unit: Unit) -> None:
    unit.domains.create("pop")
    unit.tenants.create("all", name="", domain="pop", prefixes=[EVERY_IPV4])
    for number, host in enumerate(HOSTS):
        unit.domains.add_host("pop", HostRecord(host, 1 + number, "wan0"))


def enrol(plant: Plant) -> None:
    with plant.store.write() as unit:
        later = unit.now + dt.timedelta(hours=1)
        unit.enforcers.enrol(unit.enforcers.invite("pop", expires=later, author="test"), name="c1", kind="openflow")


def everywhere(plant: Plant, acl: Acl) -> int:
    generation = plant.put(acl)
    plant.read_back(*HOSTS)
    until(lambda: plant.program.generation == generation)
    plant.read_back(*HOSTS)
    return generation


@contextmanager
def planted(url: str) -> Iterator[Plant]:
    """A plant with its domain and its hosts, at work for as long as the block runs."""
    plant = Plant(url)
    with plant.store.write() as unit:
        set_up(unit)
    enrol(plant)
    plant.start()
    yield plant
    plant.close()
