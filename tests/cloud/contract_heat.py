"""What a fleet in Heat must do: one suite, run over the OpenStack in memory and over a real one.

A test module subclasses `HeatContract` and gives it a `bench`. The fleet of the bench has one VNF, fw-0, when a story
begins, and when it ends; so every story also shows that nobody else was touched.
"""

from __future__ import annotations

import itertools
from contextlib import AbstractContextManager
from typing import Protocol

import pytest

from orchestrator.cloud.base import Cloud, Vnf, VnfOrder, VnfState
from orchestrator.cloud.heat.settings import HeatSettings
from orchestrator.errors import Busy, TooLarge
from orchestrator.wire.firewalls import Plane

URL = "http://192.0.2.1:8420"
FLEET = "pop1"
NUMBERS = itertools.count(1)


class Bench(Protocol):
    """A cloud whose fleet has fw-0, and ways to meddle with what is under it."""

    cloud: Cloud
    settings: HeatSettings

    def settle(self) -> tuple[Vnf, ...]:
        """Wait until nothing is coming or leaving; what there is then."""
        ...

    def no_host(self) -> AbstractContextManager[None]:
        """As long as it lasts, no virtual machine finds a host."""
        ...

    def full(self) -> AbstractContextManager[None]:
        """As long as it lasts, the project may have no more virtual machines than it has."""
        ...

    def resize_group(self, by: int) -> None:
        """Somebody else changes the ResourceGroup's size, and waits until it is done."""
        ...

    def lose_machine(self, vnf: Vnf) -> None:
        """Somebody else deletes a virtual machine."""
        ...

    def machines(self) -> int:
        """How many virtual machines there are."""
        ...


def order(number: int, fleet: str = FLEET) -> VnfOrder:
    """One VNF that there should be."""
    return VnfOrder(fleet, f"fw-{number}", number, Plane.NFTABLES, URL, "unused")


def states(vnfs: tuple[Vnf, ...]) -> dict[str, VnfState]:
    """By name."""
    return {vnf.name: vnf.state for vnf in vnfs}


def named(vnfs: tuple[Vnf, ...], name: str) -> Vnf:
    """The one of that name."""
    return next(vnf for vnf in vnfs if vnf.name == name)


class HeatContract:
    """See the module."""

    @pytest.fixture(autouse=True)
    def _fw_0_stays(self, bench: Bench) -> object:
        before = named(bench.settle(), "fw-0")
        yield
        after = bench.settle()
        assert states(after) == {"fw-0": VnfState.RUNNING}
        assert after == (before,)
        assert bench.machines() == 1

    def test_grows_and_gives_back_the_one_that_was_chosen(self, bench: Bench) -> None:
        first, second = next(NUMBERS), next(NUMBERS)
        (bench.settings.group_tokens / f"{FLEET}.token").write_text(f"a-newer-token-{first}")  # no server is replaced
        bench.cloud.create([order(first), order(second)])
        assert states(bench.cloud.list(FLEET))[f"fw-{first}"] is VnfState.COMING
        bench.cloud.create([order(first), order(second)])  # the answer was lost, so it is asked again
        with pytest.raises(Busy):
            bench.cloud.create([order(99)])
        there = bench.settle()
        new = [named(there, f"fw-{number}") for number in (first, second)]
        assert [vnf.state for vnf in new] == [VnfState.RUNNING] * 2
        for vnf in there:
            assert vnf.instance_id is not None
            assert vnf.addresses
            assert vnf.left is not None
            assert vnf.right is not None
            assert vnf.left != vnf.right
        assert len({vnf.instance_id for vnf in there}) == 3
        bench.cloud.create([order(first), order(second), order(0)])
        assert bench.cloud.list(FLEET) == there

        bench.cloud.delete(FLEET, [f"fw-{first}"])
        assert states(bench.cloud.list(FLEET))[f"fw-{first}"] is VnfState.LEAVING
        left = bench.settle()
        assert left == tuple(vnf for vnf in there if vnf.name != f"fw-{first}")
        bench.cloud.delete(FLEET, [f"fw-{first}"])
        assert bench.cloud.list(FLEET) == left
        assert bench.cloud.list() == left
        bench.cloud.delete(FLEET, [f"fw-{second}"])

    def test_one_that_fails_says_why_and_is_taken_out_alone(self, bench: Bench) -> None:
        bad, good = next(NUMBERS), next(NUMBERS)
        with bench.no_host():
            bench.cloud.create([order(bad)])
            failed = named(bench.settle(), f"fw-{bad}")
        assert failed.state is VnfState.FAILED
        assert failed.progress.startswith("no host takes it")
        bench.cloud.create([order(good)])  # the failed one is not tried once more, it leaves
        assert states(bench.settle()) == {"fw-0": VnfState.RUNNING, f"fw-{good}": VnfState.RUNNING}
        bench.cloud.delete(FLEET, [f"fw-{bad}", f"fw-{good}"])

    def test_over_the_quota_nothing_is_begun(self, bench: Bench) -> None:
        before = bench.cloud.list(FLEET)
        with bench.full(), pytest.raises(TooLarge, match=r"instances and uses \d+; 1 more VNFs take 1, so 0 more fit"):
            bench.cloud.create([order(next(NUMBERS))])
        assert bench.cloud.list(FLEET) == before

    def test_what_somebody_else_added_is_seen_and_can_be_deleted(self, bench: Bench) -> None:
        bench.resize_group(1)
        strays = [name for name in states(bench.settle()) if name.startswith("stray-")]
        assert len(strays) == 1
        bench.cloud.delete(FLEET, strays)

    def test_what_somebody_else_took_away_is_not_there(self, bench: Bench) -> None:
        first, second = next(NUMBERS), next(NUMBERS)
        bench.cloud.create([order(first)])
        bench.settle()
        bench.resize_group(-1)  # Heat takes the last one
        assert states(bench.settle()) == {"fw-0": VnfState.RUNNING}
        bench.cloud.create([order(second)])
        assert states(bench.settle()) == {"fw-0": VnfState.RUNNING, f"fw-{second}": VnfState.RUNNING}
        bench.cloud.delete(FLEET, [f"fw-{first}", f"fw-{second}"])

    def test_a_machine_that_is_gone_is_no_firewall_any_more(self, bench: Bench) -> None:
        number = next(NUMBERS)
        bench.cloud.create([order(number)])
        bench.lose_machine(named(bench.settle(), f"fw-{number}"))
        lost = named(bench.cloud.list(FLEET), f"fw-{number}")
        assert lost.state is VnfState.FAILED
        assert "gone" in lost.progress
        bench.cloud.delete(FLEET, [f"fw-{number}"])
