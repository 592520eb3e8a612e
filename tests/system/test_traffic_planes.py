"""Firewalls on a line are loaded, and one that enforces something else is noticed before anything is measured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from orchestrator.bench.promotion.suite import LIFTED
from orchestrator.bench.traffic.filters import Filter
from orchestrator.bench.traffic.gauges import KernelPlane, Plane, SwitchPlane
from orchestrator.bench.traffic.line import serve_line, site
from orchestrator.bench.traffic.rules import Kind, Listed, Position
from orchestrator.bench.traffic.vnf import vnf_acl
from orchestrator.errors import Drifted, Unreachable
from orchestrator.lab.layout import Layout
from orchestrator.lab.ovs import Ports

RULES = 20


@pytest.fixture(scope="module")
def planes(layout: Layout) -> Iterator[dict[str, Plane]]:
    with site(layout) as place, ExitStack() as stack:
        kernel = stack.enter_context(serve_line(place, "kernel"))
        line = stack.enter_context(serve_line(place, "vnf"))
        vnf = stack.enter_context(vnf_acl(line, Ports.SYSTEM))
        yield {
            "kernel": KernelPlane(kernel, Filter.IPTABLES_LEGACY),
            "switch": SwitchPlane(line, vnf),
            "lifting": SwitchPlane(line, vnf, LIFTED),
        }


@pytest.mark.parametrize("name", ["kernel", "switch", "lifting"])
def test_lists_of_every_kind_are_enforced_wherever_the_traffics_rules_stand(
    planes: dict[str, Plane], name: str
) -> None:
    for position, kind in zip(Position, Kind, strict=True):
        planes[name].load(Listed(RULES, position, kind))
    planes[name].load(Listed(0))


@pytest.mark.parametrize("name", ["kernel", "switch"])
def test_a_plane_that_lets_everything_through_is_not_measured(
    planes: dict[str, Plane], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plane = planes[name]
    plane.load(Listed(RULES))
    put = plane.put
    monkeypatch.setattr(plane, "put", lambda _listed: put(Listed(0)))
    with pytest.raises(Drifted, match="what gets through"):
        plane.load(Listed(RULES))


@pytest.mark.parametrize("name", ["kernel", "switch"])
def test_a_plane_that_lets_nothing_through_is_not_measured(planes: dict[str, Plane], name: str) -> None:
    plane = planes[name]
    if isinstance(plane, SwitchPlane):
        plane.load(Listed(RULES))
        plane.vnf.switch.vsctl("del-port", "vnf", "left")
    else:
        plane.line.route(False)
    with pytest.raises(Unreachable):
        plane.load(Listed(RULES))
