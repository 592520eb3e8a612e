"""The lab keeps what every cloud keeps; killed in the middle of building, it finds what it began; nothing is left."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from cloud.contract import *  # noqa: F403 -- the contract's tests
from cloud.contract import Bench, runs
from patience import until

from orchestrator.cloud.base import VnfState
from orchestrator.errors import BadInput, Refused
from orchestrator.lab import namespaces, pop, processes, specfile, vnf
from orchestrator.lab.cloud import LabCloud, open_lab
from orchestrator.lab.layout import Layout
from orchestrator.lab.pop import Lab
from orchestrator.lab.standby import AtHand, Order

POP = specfile.parse(
    """
    hosts: [{name: host1}]
    tenants: [{id: shop, prefixes: [198.51.100.0/24]}]
    endpoints: [{name: web, tenant: shop, host: host1, addresses: [198.51.100.10]}]
    clients: [{name: outside, addresses: [192.0.2.1]}]
    spread: true
    """
)


@pytest.fixture(scope="module")
def lab(layout: Layout) -> Lab:
    return pop.up(layout, POP)


@pytest.fixture
def bench(lab: Lab) -> Iterator[Bench]:
    bench = Bench(LabCloud(lab.layout, cap_mbps=20), lab.spec.domain, patience_s=60.0, breathe_s=0.1)
    yield bench
    bench.cloud.delete(bench.fleet, list(bench.there()))
    bench.cloud.close()
    assert [name for name in namespaces.with_prefix(lab.layout.prefix) if "-fw-" in name] == []
    agents = [each.name for each in processes.marked_processes(lab.layout.run_dir) if not each.name.startswith("ov")]
    assert agents == []
    assert "fl-fw" not in lab.ovs.vsctl("list-ports", "spread")


def test_a_vnf_is_plugged_in_and_capped_and_says_so(bench: Bench, lab: Lab) -> None:
    bench.cloud.create([bench.order(7)])
    (found,) = bench.until(runs("fw-7")).values()
    assert found.capped == "20 Mb/s, by a token bucket on both links"
    assert found.left is not None
    assert found.left.port in lab.ovs.vsctl("list-ports", "spread")
    assert found.left.mac == 0x0AAC1F040000 + 14
    assert found.addresses[0].startswith("169.254.77.")


def test_what_was_begun_by_who_was_killed_is_seen_as_failed_and_can_be_removed(
    bench: Bench, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def dies(*_: object, **__: object) -> None:
        raise Killed

    for place in ("create_one", "spawn"):
        with monkeypatch.context() as patch:
            patch.setattr(vnf if place == "create_one" else processes, place, dies)
            with pytest.raises(Killed):
                bench.cloud.create([bench.order(3)])
        again = LabCloud(lab.layout)  # of the process that comes next
        (found,) = again.list()
        assert (found.state, found.progress) == (VnfState.FAILED, "the service ended while it was made")
        again.delete(bench.fleet, ["fw-3"])
        assert again.list() == ()


def test_an_agent_that_ends_at_once_says_why(bench: Bench) -> None:
    order = bench.order(0)
    bench.cloud.create([type(order)(order.fleet, order.name, 0, order.plane, "nowhere://", "x")])
    found = bench.until(lambda found: found["fw-0"].state is VnfState.FAILED)
    assert "ended before it had enrolled" in found["fw-0"].progress


def test_another_domain_has_no_place_here(bench: Bench) -> None:
    order = bench.order(0)
    with pytest.raises(Refused, match="this lab is the domain 'pop1'"):
        bench.cloud.create([type(order)("other", order.name, 0, order.plane, order.url, order.token)])


WRONG = [
    ({"prefx": "x-"}, "prefx: 'prefx' is nothing"),
    ({"cap_mbps": 0}, "cap_mbps: 0 is not"),
    ({"prefix": "X"}, "prefix: 'X' cannot be"),
]


@pytest.mark.parametrize(("settings", "words"), WRONG)
def test_a_cloud_file_is_read_with_care(settings: dict[str, object], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        open_lab({"kind": "lab", **settings})


def test_the_second_agent_was_loaded_beforehand(bench: Bench, lab: Lab) -> None:
    for number in (1, 2):
        bench.cloud.create([bench.order(number)])
    bench.until(runs("fw-1", "fw-2"))

    def lines() -> list[bytes]:
        return [
            Path("/proc", str(each.pid), "cmdline").read_bytes()
            for each in processes.marked_processes(lab.layout.run_dir)
        ]

    # one is an agent, two wait
    until(lambda: sum(b"orchestrator.cli.standby" in line for line in lines()) == 3, what=lines)
    assert sum(b"\0agent\0" in line for line in lines()) == 1
    assert "fw-2" in bench.there()


def test_an_agent_that_waits_ends_when_nobody_can_want_it_any_more(lab: Lab) -> None:
    hand = AtHand(lab.layout.run_dir, lab.layout.logs / "standby.log", 1)
    hand.fill()
    process, pipe = hand.waiting.pop()
    os.close(pipe)  # as when its service is killed
    assert processes.wait(process, 60.0)
    assert hand.send_order("agent", Order("nowhere", "log", {}, ())) is None
