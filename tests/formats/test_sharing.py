"""Large sets that lines of a foreign list have in common become groups, and the list decides what it decided."""

from __future__ import annotations

import pytest

from orchestrator.policy.addresses import Addresses
from orchestrator.policy.difference import difference
from orchestrator.policy.formats import assemble
from orchestrator.policy.formats.registry import read, write
from orchestrator.policy.model import Acl

NETWORKS = "".join(f" network-object 192.0.{each}.0 255.255.255.128\n" for each in range(assemble.MANY))
FEW = "".join(f" network-object 203.0.{each}.0 255.255.255.128\n" for each in range(assemble.MANY - 1))
LINES = (
    "access-list in extended permit tcp object-group MANY object-group FEW eq 80",
    "access-list in extended deny tcp object-group FEW object-group MANY range 8000 8999",
    "access-list in extended permit udp object-group FEW any eq 53",
    "access-list in extended permit icmp object-group MANY object-group MANY",
)
CONFIGURATION = f"object-group network MANY\n{NETWORKS}object-group network FEW\n{FEW}" + "\n".join(LINES)


def asa(text: str = CONFIGURATION) -> Acl:
    return read(text, "asa").acl


def test_a_large_set_that_several_rules_name_is_a_group() -> None:
    (group,) = asa().groups.values()
    named, few = Addresses((), (group.name,)), asa().rules[2].source
    assert len(group.prefixes) == assemble.MANY
    assert (len(few.prefixes), few.groups) == (assemble.MANY - 1, ())
    assert [(rule.source, rule.destination) for rule in asa().rules] == [
        (named, few), (few, named), (few, asa().rules[2].destination), (named, named),
    ]  # fmt: skip


def test_a_large_set_that_one_rule_names_stays_where_it_is() -> None:
    text = CONFIGURATION[: CONFIGURATION.index(LINES[1])]
    assert not asa(text).groups
    assert len(asa(text).rules[0].source.prefixes) == assemble.MANY


def test_the_list_says_the_same_with_groups_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = asa()
    monkeypatch.setattr(assemble, "MANY", 1 << 20)
    plain = asa()
    assert shared.groups
    assert not plain.groups
    assert [rule.id for rule in shared.rules] == [rule.id for rule in plain.rules]
    assert not difference(shared, plain)
    monkeypatch.setattr(assemble, "MANY", 1)
    assert not difference(asa(), plain)


@pytest.mark.parametrize("form", ["native", "native-yaml", "asa", "iptables", "nftables"])
def test_what_is_written_and_read_again_has_the_same_groups(form: str) -> None:
    to_many = LINES[2].replace("FEW", "MANY")
    there = asa("\n".join((CONFIGURATION[: CONFIGURATION.index(LINES[0])], to_many, LINES[2], LINES[3])))
    assert len(there.groups) == 1
    back = read(write(there, form).text, form).acl
    assert back.groups == there.groups
    assert read(write(back, form).text, form).acl == back
