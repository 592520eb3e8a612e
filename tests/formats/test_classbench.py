"""ClassBench sets and traces."""

from __future__ import annotations

import pytest

from orchestrator.errors import BadInput
from orchestrator.policy.formats.classbench import read_trace
from orchestrator.policy.formats.registry import read
from orchestrator.policy.formats.results import Effect, Options
from orchestrator.policy.model import Action, Direction, ReturnTraffic
from orchestrator.policy.oracle import ask
from orchestrator.policy.tcpflags import FlagMatch

SET = """@192.0.2.0/24\t198.51.100.7/32\t0 : 65535\t80 : 90\t0x06/0xFF\t0x1000/0x1200\t
@0.0.0.0/0\t198.51.100.0/24\t0 : 65535\t0 : 65535\t0x06/0xFF\t0x0000/0x0200\t
@0.0.0.0/0\t198.51.100.0/24\t0 : 65535\t0 : 65535\t0x01/0xFF\t0x0303/0xffff\t
@0.0.0.0/0\t0.0.0.0/0\t53 : 53\t1024 : 65535\t0x11/0xFF\t0x0000/0x0000\t
@10.0.0.0/8\t0.0.0.0/0\t0 : 65535\t0 : 65535\t0x00/0x00\t0x0000/0x0000\t
"""


def test_a_set_is_read_exactly() -> None:
    imported = read(SET)
    assert imported.exact
    rules = imported.acl.rules
    assert [rule.id for rule in rules] == ["r0", "r1", "r2", "r3", "r4"]
    assert [rule.protocol for rule in rules] == [6, 6, 1, 17, None]
    assert [rule.tcp_flags for rule in rules[:2]] == [FlagMatch(0x10, 0x12), FlagMatch(0x00, 0x02)]
    assert (rules[2].icmp_type, rules[2].icmp_code) == (3, 3)
    assert (str(rules[3].source_ports[0]), str(rules[3].destination_ports[0])) == ("53", "1024-65535")
    assert {rule.action for rule in rules} == {Action.PERMIT}


def test_actions_and_directions() -> None:
    turns = read(SET, options=Options(classbench_action=None, direction=Direction.EGRESS)).acl
    assert [rule.action.value for rule in turns.rules] == ["permit", "deny", "permit", "deny", "permit"]
    assert {rule.direction for rule in turns.rules} == {Direction.EGRESS}
    assert turns.egress_default is Action.DENY


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("@0.0.0.0/0 0.0.0.0/0 0 : 65535 0 : 65535 0x11/0xFF 0x1000/0x1000", "only TCP and ICMP have flags"),
        ("@0.0.0.0/0 0.0.0.0/0 0 : 65535 0 : 65535 0x06/0xFF 0x0001/0x0001", "only TCP and ICMP have flags"),
        (
            "@0.0.0.0/0 0.0.0.0/0 0 : 65535 80 : 80 0x00/0x00 0x0000/0x0000",
            "ports are looked at under tcp",
        ),
        ("@0.0.0.0/0 0.0.0.0/0 0 : 65535 80 : 80 0x07/0x06 0x0000/0x0000", "a value has bits that its mask does not"),
        ("@0.0.0.0/0 0.0.0.0/0 0 : 65535 80 : 80 0x06/0xFF 0x1200/0x1000", "a value has bits that its mask does not"),
    ],
)
def test_what_cannot_be_seen_is_a_loss(line: str, reason: str) -> None:
    (loss,) = read(line, "classbench").losses
    assert reason in loss.reason
    assert (loss.line, loss.effect) == (1, Effect.NARROWER)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SET + "garbage\n", "line 6: 'garbage' is no rule"),
        (
            SET.replace("0x06/0xFF", "tcp"),
            "line 1: '@192.0.2.0/24 198.51.100.7/32 0 : 65535 80 : 90 tcp 0x1000/0x1200'",
        ),
        (SET.replace("80 : 90", "90 : 80"), "line 1: 90 : 80 is not a range"),
        (SET.replace("192.0.2.0/24", "192.0.2.0/40"), "line 1: '192.0.2.0/40' is not a prefix"),
    ],
)
def test_lines_that_are_no_rules(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        read(text, "classbench")


def test_a_trace_and_the_set_it_was_made_from() -> None:
    trace = f"{0xC0000205}\t{0xC6336407}\t7\t85\t6\t{0x10001200}\t0\n{0x0A000001}\t1\t0\t0\t17\t4294967295\t4\n"
    found = read_trace(trace)
    acl = read(SET).acl
    decided = [ask(acl, one.packet, Direction.INGRESS, ReturnTraffic.EXPLICIT).rule for one in found]
    assert decided == [f"r{one.rule_number}" for one in found] == ["r0", "r4"]
    with pytest.raises(BadInput, match=r"line 1: .* is no line of a trace"):
        read_trace("1 2 3\n")
    with pytest.raises(BadInput, match=r"line 1: .* too large"):
        read_trace("1 2 3 70000 6 0 1\n")
