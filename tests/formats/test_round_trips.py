"""Every format that is written: what is written says no more than the list, and reading it is a fixed point."""

from __future__ import annotations

import pytest
from formats.iptables_texts import some_corners
from formats.samples import SAMPLES, WRITABLE, options_of
from hypothesis import HealthCheck, event, given, settings
from law_examples import examples
from strategies import OWN_POOL, acls

from orchestrator.errors import TooLarge
from orchestrator.policy.addresses import Addresses, Family, Prefix
from orchestrator.policy.formats.registry import guess, read, write
from orchestrator.policy.formats.results import Exported
from orchestrator.policy.model import Acl, Action, Direction, Packet, ReturnTraffic, Rule, RuleId
from orchestrator.policy.oracle import ask
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import WITH_PORTS

BUDGET = examples(300, fixed=30)
slow = settings(max_examples=BUDGET, deadline=None, suppress_health_check=list(HealthCheck))
LONGEST = 200_000
ONE_VERSION = {"iptables": Family.IPV4, "ip6tables": Family.IPV6}
WHOLE_PACKETS = {"aws-sg", "aws-nacl", "azure-nsg", "openstack-sg", "openstack-fwaas", "kubernetes", "asa", "aerleon"}
"""Systems that put fragments together before they decide."""


def decision(acl: Acl, packet: Packet, direction: Direction) -> bool:
    return ask(acl, packet, direction, ReturnTraffic.EXPLICIT).action is Action.PERMIT


def written(acl: Acl, name: str) -> Exported | None:
    """The text of a list; None where it would be too long for a test."""
    try:
        exported = write(acl, name)
    except TooLarge:
        return None
    return exported if len(exported.text) < LONGEST else None


def packets_of(acl: Acl, name: str) -> list[Packet]:
    found = [packet for packet in some_corners(acl) if packet.family is ONE_VERSION.get(name, packet.family)]
    if name in WHOLE_PACKETS or name == "ip6tables":
        found = [packet for packet in found if not packet.later_fragment]
    return found


@pytest.mark.parametrize("name", WRITABLE)
@slow
@given(acls(max_rules=4, own=OWN_POOL[:4]))
def test_what_is_written_says_no_more_than_the_list(name: str, acl: Acl) -> None:
    """And no less where nothing was lost: as far as the reader goes, which other tests hold to the real thing."""
    exported = written(acl, name)
    if exported is None:
        return
    event(f"exact: {exported.exact}")
    again = read(exported.text, name)
    for packet in packets_of(acl, name):
        for direction in Direction:
            ours, theirs = decision(acl, packet, direction), decision(again.acl, packet, direction)
            assert theirs == ours if exported.exact and again.exact else theirs <= ours, (packet, direction)


@pytest.mark.parametrize("name", WRITABLE)
@slow
@given(acls(max_rules=4, own=OWN_POOL[:4]))
def test_import_export_import_is_a_fixed_point(name: str, acl: Acl) -> None:
    exported = written(acl, name)
    if exported is None:
        return
    once = read(exported.text, name).acl
    second = written(once, name)
    if second is None or not second.exact:
        return
    again = read(second.text, name)
    assert again.exact, again.losses
    assert again.acl == once


@pytest.mark.parametrize("name", WRITABLE)
def test_a_plain_list_is_a_fixed_point_without_losses(name: str) -> None:
    """Something that every format can say, so that the laws above are about something."""
    family = ONE_VERSION.get(name, Family.IPV4)
    far = Prefix.parse("10.1.0.0/16" if family is Family.IPV4 else "2001:db8::/32")
    one = read(write(_plain_list(far), "native").text, "native").acl
    exported = write(one, name)
    once = read(exported.text, name)
    again = read(write(once.acl, name).text, name)
    assert (exported.losses, once.losses, again.losses) == ((), (), ())
    assert again.acl == once.acl
    assert any(rule.action is Action.PERMIT and rule.protocol in WITH_PORTS for rule in once.acl.rules)


def _plain_list(far: Prefix) -> Acl:
    ports = (PortRange(80, 80), PortRange(8000, 8080))
    web = Rule(RuleId("web"), Action.PERMIT, protocol=6, source=Addresses((far,)), destination_ports=ports)
    every = Rule(RuleId("out"), Action.PERMIT, Direction.EGRESS, protocol=17, destination=Addresses((far,)))
    return Acl((web, every), egress_default=Action.DENY)


@pytest.mark.parametrize("name", WRITABLE)
def test_a_real_text_is_a_fixed_point(name: str) -> None:
    once = read(SAMPLES[name], name, options=options_of(name, stateless=True)).acl
    exported = write(once, name)
    if exported.exact:
        again = read(exported.text, name)
        assert again.exact, again.losses
        assert again.acl == once


@pytest.mark.parametrize("name", WRITABLE)
def test_what_is_written_is_known_by_sight(name: str) -> None:
    far = Prefix.parse("2001:db8::/32" if name == "ip6tables" else "10.1.0.0/16")
    assert guess(write(_plain_list(far), name).text, "no-name").name == name
