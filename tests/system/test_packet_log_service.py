"""The packet log from end to end: a packet on the wire, the switch, the controller, the service, a tenant who looks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest
from system.shooting import F4, POP, SHOP, SYN, packet

from orchestrator.client import Client
from orchestrator.client.packetlog import LoggedPacket
from orchestrator.lab import pop
from orchestrator.lab.layout import Layout
from orchestrator.lab.pop import Lab
from orchestrator.lab.service import SERVICE, ControlPlane
from orchestrator.lab.wire import Wire, shot
from orchestrator.policy.addresses import format_address
from orchestrator.policy.model import Acl, TenantId
from orchestrator.policy.protocols import TCP

WITHIN_S = 30.0
LOGGING = Acl(tuple(replace(rule, log=rule.id == "web") for rule in SHOP.rules))


@pytest.fixture(scope="module")
def served(layout: Layout) -> Iterator[tuple[Lab, ControlPlane, Client]]:
    lab = pop.up(layout, POP)
    plane = ControlPlane(lab)
    plane.start({TenantId("shop"): LOGGING})
    with plane.client() as client:
        yield lab, plane, client


def until(holds: Callable[[Sequence[LoggedPacket]], bool], client: Client) -> Sequence[LoggedPacket]:
    """The shop's log once it is as wanted."""
    deadline = time.monotonic() + WITHIN_S
    while not holds(found := client.packet_log.read("shop")):
        assert time.monotonic() < deadline, found
        time.sleep(0.2)
    return found


def fire(lab: Lab, *source_ports: int) -> None:
    sent = [packet("alice", "web1", F4, TCP, each, 80, tcp_flags=SYN) for each in source_ports]
    with Wire(lab, ["alice", "web1"]) as wire:
        landed = wire.fire([shot(lab, "alice", each) for each in sent])
    assert [each.nodes for each in landed] == [("web1",)] * len(sent)


def test_a_tenant_sees_the_packet_that_its_rule_decided(served: tuple[Lab, ControlPlane, Client]) -> None:
    lab, _, client = served
    fire(lab, 41000)
    (record,) = until(len, client)
    assert (record["rule"], record["action"], record["source_port"], record["destination_port"]) == (
        "web", "permit", 41000, 80
    )  # fmt: skip
    assert record["host"] == next(endpoint.host for endpoint in POP.endpoints if endpoint.name == "web1")


def test_a_draft_is_told_which_packets_on_the_wire_it_would_refuse(served: tuple[Lab, ControlPlane, Client]) -> None:
    """Before a commit: a packet that alice sent, by the rule that let it in and by its sender."""
    lab, _, client = served
    before = len(client.packet_log.read("shop"))
    fire(lab, 41500)
    until(lambda seen: len(seen) > before, client)
    draft = replace(LOGGING, rules=tuple(rule for rule in LOGGING.rules if rule.id != "web"))
    found = client.acls.check_traffic("shop", draft, hours=1)
    assert (found.newly_permitted, found.newly_denied) == (0, found.packets)
    (change,) = found.changes
    assert (change.direction, change.rule_before, change.rule) == ("ingress", "web", None)
    sender = packet("alice", "web1", F4, TCP, 1, 80).source
    assert [(peer.peer, peer.packets) for peer in change.peers] == [(format_address(F4, sender), found.packets)]
    assert client.acls.check_traffic("shop", LOGGING, hours=1).changes == ()


def test_what_was_seen_while_the_service_was_away_is_told_when_it_is_back(
    served: tuple[Lab, ControlPlane, Client],
) -> None:
    lab, plane, client = served
    lab.kill(SERVICE)
    fire(lab, 42000)
    plane.start_service()
    found = until(lambda seen: any(each["source_port"] == 42000 for each in seen), client)
    assert len([each for each in found if each["source_port"] == 42000]) == 1


def test_a_rule_that_logs_no_more_is_quiet(served: tuple[Lab, ControlPlane, Client]) -> None:
    lab, plane, client = served
    before = len(client.packet_log.read("shop"))
    plane.wait_enforced(client, client.acls.put(TenantId("shop"), SHOP).generation)
    fire(lab, 43000)
    plane.wait_enforced(client, client.acls.put(TenantId("shop"), LOGGING).generation)
    fire(lab, 44000)
    found = until(lambda seen: len(seen) > before, client)
    assert [each["source_port"] for each in found[before:]] == [44000]
