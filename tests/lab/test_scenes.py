"""What a demo plays: how lists are read and chosen, and that the shipped scene fits its point of presence."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from orchestrator.client.connections import Answer, Connections
from orchestrator.client.transport import Transport
from orchestrator.errors import BadInput, Missing
from orchestrator.lab import scenes, trials
from orchestrator.lab.aims import OUTSIDE, TENANT
from orchestrator.lab.expect import policy_of
from orchestrator.lab.trials import Line
from orchestrator.policy.model import RETURN_RULE_ID, Direction, RuleId, TenantId
from orchestrator.policy.ownership import check_ownership
from orchestrator.policy.protocols import ICMP, ICMPV6, TCP, UDP

TWO_LISTS = """
ip access-list extended SHORT
 permit tcp any any eq 80
ip access-list extended LONG
 permit tcp any any eq 80
 permit udp any any eq 53
 deny ip any any
"""


def test_the_shipped_scene_fits_its_point_of_presence() -> None:
    scene = scenes.shipped_scene()
    assert set(scene.acls) == {tenant.id for tenant in scene.spec.tenants}
    for tenant in scene.spec.tenants:
        check_ownership(scene.acls[tenant.id], tenant.prefixes)
    for conversation in scenes.CONVERSATIONS:
        assert scene.spec.node(conversation.client) != scene.spec.node(conversation.server)
    assert {c.protocol for c in scenes.CONVERSATIONS} == {TCP, UDP, ICMP, ICMPV6}
    assert {c.family for c in scenes.CONVERSATIONS} == {4, 6}


def test_of_many_lists_the_longest_is_taken_unless_one_is_named(tmp_path: Path) -> None:
    path = tmp_path / "router.cfg"
    path.write_text(TWO_LISTS)
    longest = scenes.of_file(path, None)
    assert len(longest.acls[TENANT].rules) == 3
    assert any("of 2 access lists the longest is taken, LONG" in note for note in longest.notes)
    named = scenes.of_file(path, "cisco", ("SHORT",))
    assert len(named.acls[TENANT].rules) == 1
    assert [client.name for client in named.spec.clients] == [OUTSIDE]
    with pytest.raises(BadInput, match="NONE"):
        scenes.of_file(path, "cisco", ("NONE",))


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Missing, match="none"):
        scenes.of_file(tmp_path / "none", None)
    path = tmp_path / "x.cisco"
    path.write_text("ip access-list extended X\n permit tcp any any eq nonsense\n")
    with pytest.raises(BadInput, match="nonsense"):
        scenes.of_file(path, None)
    path.write_text("hello\n")
    with pytest.raises(BadInput):
        scenes.of_file(path, "klingon")


def test_a_list_of_which_something_was_lost_says_so(tmp_path: Path) -> None:
    path = tmp_path / "x.cisco"
    path.write_text("ip access-list extended X\n permit tcp any any eq nonsense\n permit tcp any any eq 80\n")
    scene = scenes.of_file(path, None)
    assert "not carried over exactly: 1" in scene.notes[0]
    assert any("nonsense" in note for note in scene.notes)


class Counting(Connections):
    """A service whose counters are told by their names."""

    def ask(self, method: str, target: str, *_: object, **__: object) -> Answer:
        return Answer(200, orjson.dumps(counted(target)))


def counted(target: str) -> dict[str, object]:
    ends = {f"{way}_{end}": {"packets": n} for n, (way, end) in enumerate(
        (way, end) for way in ("ingress", "egress") for end in ("default", "return")
    )}  # fmt: skip
    tenant = target.split("/")[3]
    items = [{"rule": f"{tenant}-rule", "packets": 10}]
    return {"items": items, "next": None, **ends}


def test_counters_of_rules_return_traffic_and_defaults_are_read() -> None:
    service = Transport("http://service", "", 1.0, Counting("http://service", plain_http=True))
    shop, ingress, egress = TenantId("shop"), Direction.INGRESS, Direction.EGRESS
    expected = {
        Line(shop, ingress, RuleId("shop-rule")): 10,
        Line(TenantId("bank"), ingress, RuleId("bank-rule")): 10,
        Line(shop, ingress, None): 0,
        Line(shop, ingress, RETURN_RULE_ID): 1,
        Line(shop, egress, None): 2,
        Line(shop, egress, RETURN_RULE_ID): 3,
    }
    assert trials.read_counts(service, expected) == expected
    line = Line(shop, ingress, None)
    assert trials.read_counts_until(service, {line: 0}, {line: 1}, patience_s=0.05, pause_s=0.01) == {line: 0}


def test_every_line_of_a_scene_can_be_named() -> None:
    scene = scenes.shipped_scene()
    lines = trials.lines_of(policy_of(scene.spec, scene.acls))
    assert len(lines) == sum(len(acl.rules) for acl in scene.acls.values()) + 8
    assert len(set(lines)) == len(lines)
