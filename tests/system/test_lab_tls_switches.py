"""The switches beside the hosts' speak TLS with their controllers too: the spreading switch and a PoP's edge switch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from system.dialing import give_switches, identity_of_switches, is_answered, showing

from orchestrator.enforce.state import StateDir
from orchestrator.lab import pop, specfile
from orchestrator.lab.bridges import POP_SWITCH, SPREAD_SWITCH, SideBridge
from orchestrator.lab.layout import Layout
from orchestrator.lab.pop import Lab
from orchestrator.lab.service import EDGE_CONTROLLER, SPREADER, ControlPlane
from orchestrator.policy.model import Acl, Action, Rule, RuleId, TenantId

NODES = """
hosts: [{name: host1}]
clients: [{name: outside, addresses: [192.0.2.1]}]
tenants: [{id: shop, prefixes: [198.51.100.0/24]}]
endpoints: [{name: web, tenant: shop, host: host1, addresses: [198.51.100.10]}]
"""
OPEN = Acl((Rule(RuleId("all"), Action.PERMIT),))
PATIENCE_S = 60.0


@dataclass(frozen=True)
class Site:
    """A lab that speaks TLS, and the switch that this is about."""

    lab: Lab
    plane: ControlPlane
    switch: SideBridge
    controller: str


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("spread: true", SPREAD_SWITCH, SPREADER), id="spreading"),
        pytest.param(("servers: [{name: fs1}]", POP_SWITCH, EDGE_CONTROLLER), id="edge"),
    ],
)
def site(layout: Layout, request: pytest.FixtureRequest) -> Iterator[Site]:
    what, switch, controller = request.param
    with pop.temporary(layout, specfile.parse(f"{NODES}{what}")) as lab:
        plane = ControlPlane(lab, tls=True)
        plane.start({TenantId("shop"): OPEN})
        yield Site(lab, plane, switch, controller)


def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def is_connected(site: Site) -> bool:
    return site.lab.ovs.vsctl("get", "controller", site.switch.name, "is_connected").strip() == "true"


def flows(site: Site) -> list[str]:
    return [line for line in site.lab.ovs.ofctl("dump-flows", site.switch.name).splitlines() if "actions=" in line]


def test_it_is_programmed_over_tls(site: Site) -> None:
    assert site.lab.ovs.vsctl("get", "controller", site.switch.name, "target").startswith('"ssl:')
    until(lambda: is_connected(site) and bool(flows(site)), "the switch has no program")


def test_its_controller_speaks_with_switches_alone(site: Site) -> None:
    """Not in clear, not with who shows no certificate, not with what the authority knows as another machine."""
    there = site.lab.controller_address[0], site.switch.controller_port
    assert not is_answered(there, None)
    assert not is_answered(there, showing(None))
    assert not is_answered(there, showing(StateDir(site.lab.layout.run_dir / site.controller).identity_file))
    assert is_answered(there, showing(identity_of_switches(site.lab)))


def test_one_that_proves_to_be_another_switch_is_passed_over(site: Site) -> None:
    """The certificate is host1's alone: it is let in by TLS, and gets no word of this switch's program after it."""
    site.lab.ovs.vsctl("del-controller", site.switch.name)
    site.lab.ovs.ofctl("del-flows", site.switch.name)
    give_switches(site.plane, site.lab, "host1")
    site.switch.redial(site.lab.ovs, site.lab.controller_address[0], site.lab.openflow_scheme)
    log = site.lab.layout.logs / f"{site.controller}.log"
    until(lambda: "switch.impostor" in log.read_text(), "nobody noticed")
    assert flows(site) == []
