"""A deny that moves from the sender's egress list to the receiver's ingress list, while one of the two switches lags.

Neither list permits web1's packets to db1's port 5432: before, web1's egress denies them; afterwards, db1's ingress.
A sender's switch that is ahead of the receiver's would let them through, were it not for the intersection.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from system.direct import Direct
from system.patrol import Patrol
from system.readback import seconds_until_exact
from system.shooting import F4, POP, SYN, both, packet, port

from orchestrator.compile.cookies import HIGHEST_NUMBER
from orchestrator.lab import pop
from orchestrator.lab.expect import policy_of
from orchestrator.lab.layout import Layout
from orchestrator.lab.ovs import SWITCH
from orchestrator.lab.pop import Lab
from orchestrator.lab.service import ControlPlane
from orchestrator.lab.wire import Wire, shot
from orchestrator.policy.intersection import withheld
from orchestrator.policy.model import Acl, Action, Direction, Packet, Rule, RuleId, TenantId
from orchestrator.policy.narrowing import narrow
from orchestrator.policy.protocols import TCP

SHOP = TenantId("shop")
WITHIN_S = 60.0
TO_DATABASE = packet("web1", "db1", F4, TCP, 40000, 5432, tcp_flags=SYN)
TO_WEB = packet("web1", "db1", F4, TCP, 40000, 443, tcp_flags=SYN)


def deny_database(direction: Direction) -> Acl:
    """Everything inside the shop is permitted but port 5432, which one direction denies."""
    return Acl(
        (
            Rule(RuleId(f"no-{direction.value}"), Action.DENY, direction, protocol=TCP, destination_ports=port(5432)),
            Rule(RuleId("in"), Action.PERMIT, source=both("web1")),
        )
    )


OLD, NEW = deny_database(Direction.EGRESS), deny_database(Direction.INGRESS)


def arrives(wire: Wire, lab: Lab, sent: Packet) -> bool:
    """Whether db1 gets a packet, by what the switches' flows say now and not their caches."""
    for daemon in lab.daemons:
        daemon.forget()
    (landed,) = wire.fire([shot(lab, "web1", sent)])
    return landed.nodes == ("db1",)


@pytest.fixture(scope="module")
def lab(layout: Layout) -> Lab:
    return pop.up(layout, POP)


def test_switches_out_of_step_leak_but_for_the_intersection(lab: Lab) -> None:
    old, new = (policy_of(POP, {SHOP: acl}) for acl in (OLD, NEW))
    middle = narrow(new, withheld([old], new), highest_number=HIGHEST_NUMBER)
    with Direct(lab) as direct, Wire(lab, ["web1", "db1"]) as wire:
        direct.enforce(old)
        assert not arrives(wire, lab, TO_DATABASE)
        direct.enforce(new, on=["host1"])
        assert arrives(wire, lab, TO_DATABASE), "a mix of the two lets through what neither permits"
        direct.enforce(old)
        for policy in (middle, new):
            for hosts in (["host1"], ["host2"]):
                direct.enforce(policy, on=hosts)
                assert not arrives(wire, lab, TO_DATABASE)
                assert arrives(wire, lab, TO_WEB), "what both lists permit passes all the while"


NOBODY = "tcp:127.0.0.1:9"


@contextmanager
def cut_off(lab: Lab, bridge: str) -> Iterator[None]:
    """A switch keeps what it holds, for it finds no controller. (One without any would forget its flows.)"""
    ovs = lab.ovs_of(bridge)
    target = ovs.vsctl("get-controller", bridge).strip()
    ovs.vsctl("set-controller", bridge, NOBODY)
    try:
        yield
    finally:
        ovs.vsctl("set-controller", bridge, target)


@pytest.fixture(scope="module")
def plane(lab: Lab) -> ControlPlane:
    lab.kill(SWITCH)  # which remembers the mastership of whoever commanded it before
    lab.start_switch()
    made = ControlPlane(lab)
    made.start({SHOP: OLD})
    return made


@pytest.mark.parametrize(("lagging", "old", "new"), [("host2", OLD, NEW), ("host1", NEW, OLD)])
def test_nothing_leaks_while_one_switch_lags(lab: Lab, plane: ControlPlane, lagging: str, old: Acl, new: Acl) -> None:
    with plane.client() as client:
        plane.wait_enforced(client, client.acls.put(SHOP, old).generation)
        with Patrol(lab, "web1", [TO_DATABASE], [TO_WEB], nodes=["web1", "db1"]) as patrol:
            with cut_off(lab, lagging):
                target = client.acls.put(SHOP, new).generation
                state = client.domains.wait_until_enforced(POP.domain, target, timeout_s=2.0)
                assert {each.host for each in state.laggards} == {"host1", "host2"}, "the target waits for both"
                assert (
                    client.domains.wait_until_enforced(POP.domain, target - 1, timeout_s=0.0).laggards[0].host
                    == lagging
                )
            plane.wait_enforced(client, target)
            seconds_until_exact(lab, WITHIN_S)
        assert patrol.volleys > 10
