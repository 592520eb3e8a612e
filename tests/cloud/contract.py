"""What every cloud must keep, whatever it is made of: the laws of `orchestrator/cloud/base.py`.

A module with a cloud of its own gives a fixture `bench` (a `Bench`), and imports the tests from here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.cloud.base import Cloud, Vnf, VnfOrder, VnfState
from orchestrator.errors import TryAgain
from orchestrator.wire.firewalls import Plane


@dataclass
class Bench:
    """A cloud with nothing in it, the fleet that has its place there, and how long things may take in it.

    `breathe_s`: how long to wait between two looks.
    """

    cloud: Cloud
    fleet: str
    url: str = "http://192.0.2.9:8420"
    patience_s: float = 5.0
    breathe_s: float = 0.0

    def order(self, number: int) -> VnfOrder:
        return VnfOrder(self.fleet, f"fw-{number}", number, Plane.NFTABLES, self.url, f"token-{number}")

    def until(self, holds: Callable[[dict[str, Vnf]], bool]) -> dict[str, Vnf]:
        """What there is, once something holds for it."""
        until = time.monotonic() + self.patience_s
        while True:
            found = self.there()
            if holds(found):
                return found
            assert time.monotonic() < until, found
            time.sleep(self.breathe_s)

    def there(self) -> dict[str, Vnf]:
        return {vnf.name: vnf for vnf in self.cloud.list(self.fleet)}

    def ask(self, call: Callable[[], None]) -> None:
        """Ask until the cloud has time."""
        until = time.monotonic() + self.patience_s
        while True:
            try:
                return call()
            except TryAgain:
                assert time.monotonic() < until
                time.sleep(self.breathe_s)


def runs(*names: str) -> Callable[[dict[str, Vnf]], bool]:
    return lambda found: sorted(found) == sorted(names) and all(vnf.state is VnfState.RUNNING for vnf in found.values())


def test_what_is_asked_for_is_there_from_then_on_and_runs_in_the_end(bench: Bench) -> None:
    assert bench.there() == {}
    bench.ask(lambda: bench.cloud.create([bench.order(0), bench.order(1)]))
    at_once = bench.there()
    assert sorted(at_once) == ["fw-0", "fw-1"]
    assert all(vnf.state in (VnfState.COMING, VnfState.RUNNING) for vnf in at_once.values())
    found = bench.until(runs("fw-0", "fw-1"))
    assert all(vnf.fleet == bench.fleet and vnf.instance_id for vnf in found.values())
    assert len({vnf.instance_id for vnf in found.values()}) == 2
    sides = [side for vnf in found.values() for side in (vnf.left, vnf.right) if side is not None]
    assert len({side.port for side in sides}) == len({side.mac for side in sides}) == len(sides)


def test_asked_for_again_it_is_still_the_same_one(bench: Bench) -> None:
    bench.ask(lambda: bench.cloud.create([bench.order(0)]))
    bench.ask(lambda: bench.cloud.create([bench.order(0)]))
    before = bench.until(runs("fw-0"))["fw-0"]
    bench.ask(lambda: bench.cloud.create([bench.order(0), bench.order(1)]))
    after = bench.until(runs("fw-0", "fw-1"))
    assert after["fw-0"].instance_id == before.instance_id


def test_what_is_deleted_goes_and_nothing_else(bench: Bench) -> None:
    bench.ask(lambda: bench.cloud.create([bench.order(0), bench.order(1), bench.order(2)]))
    before = bench.until(runs("fw-0", "fw-1", "fw-2"))
    bench.ask(lambda: bench.cloud.delete(bench.fleet, ["fw-1"]))
    bench.ask(lambda: bench.cloud.delete(bench.fleet, ["fw-1", "fw-never"]))
    after = bench.until(runs("fw-0", "fw-2"))
    assert {name: vnf.instance_id for name, vnf in after.items()} == {
        name: vnf.instance_id for name, vnf in before.items() if name != "fw-1"
    }


def test_what_is_going_says_so_until_it_is_gone(bench: Bench) -> None:
    bench.ask(lambda: bench.cloud.create([bench.order(0)]))
    bench.until(runs("fw-0"))
    bench.ask(lambda: bench.cloud.delete(bench.fleet, ["fw-0"]))
    assert all(vnf.state is VnfState.LEAVING for vnf in bench.there().values())
    bench.until(lambda found: not found)


def test_one_may_be_deleted_while_it_is_still_coming(bench: Bench) -> None:
    bench.ask(lambda: bench.cloud.create([bench.order(0), bench.order(1)]))
    bench.ask(lambda: bench.cloud.delete(bench.fleet, ["fw-0"]))
    bench.until(runs("fw-1"))


def test_fleets_are_listed_together_and_apart(bench: Bench) -> None:
    bench.ask(lambda: bench.cloud.create([bench.order(0)]))
    assert [(vnf.fleet, vnf.name) for vnf in bench.cloud.list()] == [(bench.fleet, "fw-0")]
    assert bench.cloud.list("elsewhere") == ()
    bench.ask(lambda: bench.cloud.delete("elsewhere", ["fw-0"]))
    bench.until(runs("fw-0"))
