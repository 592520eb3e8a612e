"""Aerleon policies against the library's own generator: what it renders for a router decides as the list does."""

from __future__ import annotations

import pytest
from aerleon.lib import cisco, naming, policy
from aerleon.lib.policy_builder import PolicyBuilder
from formats import cisco_walk, real_data
from formats.iptables_texts import some_corners
from hypothesis import HealthCheck, event, given, settings
from law_examples import examples
from public_data import DATA
from strategies import acls

from orchestrator.policy.addresses import Family
from orchestrator.policy.formats.aerleon.definitions import naming_of
from orchestrator.policy.formats.registry import read, read_all, write
from orchestrator.policy.formats.yaml_text import load_yaml
from orchestrator.policy.model import Acl, Action, Direction, Packet, ReturnTraffic
from orchestrator.policy.oracle import ask
from orchestrator.policy.space import boxes_of

slow = settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))


def rendered(text: str) -> str:
    """A policy as the library renders it for IOS."""
    document = load_yaml(text)
    built = policy.FromBuilder(PolicyBuilder(document, naming_of({}, document), False, False))
    return str(cisco.Cisco(built, 2))


def by_ios(text: str, direction: Direction, packet: Packet) -> bool:
    """What IOS decides; a list that was not rendered stands for nothing to deny, or nothing to permit."""
    name = ("ipv6-" if packet.family is Family.IPV6 else "") + direction.value
    return cisco_walk.permits(text, name, packet)


@slow
@given(acls(max_rules=4))
@pytest.mark.filterwarnings("ignore")
def test_what_is_written_is_rendered_as_the_list_decides(acl: Acl) -> None:
    exported = write(acl, "aerleon")
    event(f"exact: {exported.exact}")
    text = rendered(exported.text)
    imported = read(exported.text, "aerleon")
    for packet in some_corners(acl):
        for direction in Direction:
            if packet.later_fragment or f" {direction.value}\n" not in text:
                continue
            ours, again = (
                ask(one, packet, direction, ReturnTraffic.EXPLICIT).action is Action.PERMIT
                for one in (acl, imported.acl)
            )
            theirs = by_ios(text, direction, packet)
            assert theirs is again, (packet, direction)
            assert theirs is ours if exported.exact else theirs <= ours, (packet, direction)


@pytest.mark.skipif(not DATA.is_dir(), reason="ACLFLOW_DATA names no folder of real configurations")
@pytest.mark.parametrize("name", ["sample_cisco_lab", "sample_multitarget"])
def test_published_policies_are_read_as_they_are_rendered(name: str) -> None:
    folder = DATA / "aerleon"
    text = (folder / "policies" / "pol" / f"{name}.pol").read_text()
    built = policy.ParsePolicy(text, naming.Naming(str(folder / "def")), base_dir=str(folder / "policies"))
    router = str(cisco.Cisco(built, 2))
    lists = read_all(text, "aerleon", options=real_data.aerleon_texts())
    ours = {key: one.acl for key, one in lists.items() if key.startswith("cisco:")}
    assert ours
    for key, acl in ours.items():
        assert lists[key].exact
        families = {box.family for rule in acl.rules for box in boxes_of(rule, acl.groups)}
        for packet in some_corners(acl):
            if not packet.later_fragment and packet.family in families:
                listed = ("ipv6-" if packet.family is Family.IPV6 else "") + key.partition(":")[2]
                permitted = ask(acl, packet, Direction.INGRESS, ReturnTraffic.EXPLICIT).action is Action.PERMIT
                assert permitted is cisco_walk.permits(router, listed, packet), (key, packet)
