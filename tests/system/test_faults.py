"""Every process of a point of presence killed, in turn and together, with packets on the wire all the while.

Afterwards the switches hold exactly a policy that was acknowledged (or the one in flight), within seconds of the last
part being back; and at no time did a packet pass that neither policy permits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from system.patrol import Patrol
from system.readback import committed, seconds_until_exact
from system.shooting import F4, POP, SYN, both, packet, port

from orchestrator.client import Client
from orchestrator.errors import AclflowError
from orchestrator.lab import pop
from orchestrator.lab.layout import Layout
from orchestrator.lab.ovs import DATABASE, SWITCH
from orchestrator.lab.pop import Lab
from orchestrator.lab.service import CONTROLLER, SERVICE, ControlPlane
from orchestrator.lab.wire import Wire, shot
from orchestrator.policy.model import Acl, Action, Packet, Rule, RuleId, TenantId
from orchestrator.policy.protocols import TCP, UDP

SHOP = TenantId("shop")
WITHIN_S = 60.0
"""How soon after the last part is back the switches must hold what is committed."""


class Stack:
    """A lab with its control plane, and what tests do to it."""

    def __init__(self, lab: Lab, plane: ControlPlane, client: Client) -> None:
        self.lab = lab
        self.plane = plane
        self.client = client

    def put(self, acl: Acl) -> None:
        """Returns once it is enforced."""
        self.plane.wait_enforced(self.client, self.client.acls.put(SHOP, acl).generation)

    def kill(self, *names: str) -> None:
        for name in names:
            self.lab.kill(name)

    def start(self, *names: str) -> None:
        starts = {
            DATABASE: self.lab.start_database,
            SWITCH: self.lab.start_switch,
            SERVICE: self.plane.start_service,
            CONTROLLER: self.plane.start_controller,
        }
        for name in names:
            starts[name]()

    def open_ports(self, *ports: int) -> list[int]:
        """Those of web1's TCP ports that a SYN reaches."""
        with Wire(self.lab, ["alice", "web1"]) as wire:
            landed = wire.fire([shot(self.lab, "alice", to_web(number)) for number in ports])
        return [number for number, landing in zip(ports, landed, strict=True) if landing.nodes]


@pytest.fixture(scope="module")
def module_stack(layout: Layout) -> Iterator[Stack]:
    lab = pop.up(layout, POP)
    plane = ControlPlane(lab)
    plane.start({SHOP: web_on(80)})
    with plane.client() as client:
        yield Stack(lab, plane, client)


@pytest.fixture
def stack(module_stack: Stack) -> Stack:
    """With all its processes up, whatever the test before did."""
    module_stack.plane.supervise()
    return module_stack


def web_on(number: int, *, more: int = 0) -> Acl:
    """A list that permits web1's TCP port `number`, and 443 always; `more` rules make it longer."""
    web = (
        Rule(RuleId(f"web{n}"), Action.PERMIT, protocol=TCP, destination=both("web1"), destination_ports=port(n))
        for n in (443, number)
    )
    filler = (
        Rule(RuleId(f"f{n}"), Action.PERMIT, protocol=UDP, source=both("alice"), destination_ports=port(1 + n))
        for n in range(more)
    )
    return Acl((*web, *filler))


def to_web(number: int) -> Packet:
    return packet("alice", "web1", F4, TCP, 40000, number, tcp_flags=SYN)


NEVER = (
    *(to_web(number) for number in (22, 79)),
    packet("alice", "db1", F4, TCP, 40000, 443, tcp_flags=SYN),
    packet("alice", "bank1", F4, TCP, 40000, 443, tcp_flags=SYN),
    packet("alice", "bank2", F4, UDP, 40000, 53),
)
"""What no list of these tests permits."""


def test_while_the_controller_is_away_the_old_policy_stays(stack: Stack) -> None:
    stack.put(web_on(80))
    with Patrol(stack.lab, "alice", NEVER, [to_web(443)]):
        stack.kill(CONTROLLER)
        written = stack.client.acls.put(SHOP, web_on(81))
        assert not stack.client.domains.wait_until_enforced(POP.domain, written.generation, timeout_s=1.0).done
        assert stack.open_ports(80, 81, 443) == [80, 443]
        stack.start(CONTROLLER)
        seconds_until_exact(stack.lab, WITHIN_S)
    assert stack.open_ports(80, 81, 443) == [81, 443]


def test_a_killed_switch_gets_its_policy_back(stack: Stack) -> None:
    stack.put(web_on(80))
    with Patrol(stack.lab, "alice", NEVER):
        stack.kill(SWITCH)
        assert stack.open_ports(80, 443) == []
        stack.start(SWITCH)
        seconds_until_exact(stack.lab, WITHIN_S)
    assert stack.open_ports(80, 81, 443) == [80, 443]


def test_a_killed_switch_database_changes_nothing(stack: Stack) -> None:
    stack.put(web_on(80))
    with Patrol(stack.lab, "alice", NEVER, [to_web(80), to_web(443)]):
        stack.kill(DATABASE)
        time.sleep(0.5)
        stack.start(DATABASE)
        seconds_until_exact(stack.lab, WITHIN_S)


@pytest.mark.parametrize("delay_s", [0.0, 0.02, 0.05, 0.1, 0.2, 0.4])
def test_a_service_killed_in_the_middle_of_a_put_leaves_the_old_list_or_the_new(stack: Stack, delay_s: float) -> None:
    stack.put(web_on(80))
    new = web_on(81, more=2000)
    acknowledged = threading.Event()

    def put() -> None:
        with stack.plane.client() as client:
            try:
                client.acls.put(SHOP, new)
            except AclflowError:
                return
            acknowledged.set()

    with Patrol(stack.lab, "alice", NEVER, [to_web(443)]):
        writer = threading.Thread(target=put)
        writer.start()
        time.sleep(delay_s)
        stack.kill(SERVICE)
        writer.join()
        stack.start(SERVICE)
        seconds_until_exact(stack.lab, WITHIN_S)
    kept = stack.client.acls.read(SHOP).acl
    assert kept in (web_on(80), new)
    assert kept == new or not acknowledged.is_set()
    assert stack.open_ports(80, 81, 443) == ([81, 443] if kept == new else [80, 443])


def test_a_controller_repairs_switches_while_the_service_is_away(stack: Stack) -> None:
    stack.put(web_on(80))
    with Patrol(stack.lab, "alice", NEVER):
        stack.kill(SERVICE, CONTROLLER, SWITCH)
        stack.start(SWITCH, CONTROLLER)
        seconds_until_exact(stack.lab, WITHIN_S)
        assert stack.open_ports(80, 81, 443) == [80, 443]
        stack.start(SERVICE)
    stack.put(web_on(81))
    assert stack.open_ports(80, 81, 443) == [81, 443]


@pytest.mark.parametrize(
    "order",
    [
        (DATABASE, SWITCH, SERVICE, CONTROLLER),
        (CONTROLLER, SERVICE, DATABASE, SWITCH),
        (CONTROLLER, DATABASE, SWITCH, SERVICE),
    ],
    ids="-".join,
)
def test_everything_killed_at_once_comes_back_in_any_order(stack: Stack, order: tuple[str, ...]) -> None:
    stack.put(web_on(80))
    program = committed(stack.lab)
    with Patrol(stack.lab, "alice", NEVER):
        stack.kill(SERVICE, CONTROLLER, SWITCH, DATABASE)
        stack.start(*order)
        seconds_until_exact(stack.lab, WITHIN_S)
    assert committed(stack.lab).digest == program.digest
    stack.put(web_on(81))
    assert stack.open_ports(80, 81, 443) == [81, 443]


def test_an_endpoint_that_moves_keeps_its_policy(stack: Stack) -> None:
    """The same program serves every host: the rows of a port are where the port is."""
    stack.put(web_on(80))
    with Patrol(stack.lab, "alice", NEVER):
        stack.lab.move_endpoint("web1", "host2")
        seconds_until_exact(stack.lab, WITHIN_S)
        assert stack.open_ports(80, 81, 443) == [80, 443]
        stack.lab.move_endpoint("web1", "host1")
        seconds_until_exact(stack.lab, WITHIN_S)
        assert stack.open_ports(80, 81, 443) == [80, 443]
