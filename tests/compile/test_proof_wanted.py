"""What a few rules match, read one by one for the proof of a small change: the same sets as by column."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from law_examples import examples
from strategies import acls

from orchestrator.compile.equivalence import rulesets as proof
from orchestrator.compile.equivalence.rulesets import Pool, Wanted
from orchestrator.policy.model import Acl
from orchestrator.policy.spans import Span


def members(pool: Pool, number: int) -> list[bytes]:
    return sorted(each.tobytes() for each in pool.members[pool.start[number] : pool.start[number + 1]])


def sets_of(wanted: Wanted) -> list[tuple[Any, ...]]:
    """What every rule asks for, whatever the numbers of its sets."""
    return [
        (
            [members(wanted.addresses, 2 * int(side) + six) for side in each["side"] for six in (0, 1)],
            [members(wanted.ports, int(ports)) for ports in each["ports"]],
            members(wanted.words, int(each["words"])),
            *(each[name].tolist() for name in ("protocol", "fragments", "family", "table")),
        )
        for each in wanted.wants
    ]


def agree(acl: Acl) -> None:
    rules = acl.rules or ()
    tables = [place % 3 for place in range(len(rules))]
    if rules:
        one, other = (way(rules, tables, acl.groups) for way in (proof.expect_one_by_one, proof.expect_by_column))
        assert sets_of(one) == sets_of(other)
        assert one.addresses.members.dtype == other.addresses.members.dtype


@given(acls(max_rules=5))
@settings(max_examples=examples(100))
def test_rules_one_by_one_ask_for_what_they_do_by_column(acl: Acl) -> None:
    agree(acl)


@pytest.mark.parametrize(
    ("owner", "name", "spoil"),
    [
        (proof, "_align_span", lambda real: lambda span, shift: real(Span(span.low, span.high + 1), shift)),
        (proof, "_span_bytes", lambda real: lambda span: real(Span(span.low & ~0xFFFF, span.high))),
        (proof, "_port_set", lambda real: lambda ports, exact: real(ports[:1], exact)),
        (proof, "_list_words", lambda real: lambda rule: real(rule)[:1]),
        (proof, "_read_protocols", lambda real: lambda rule: (0, real(rule)[1])),
    ],
)
def test_the_law_notices(
    owner: object, name: str, spoil: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    spoilt, real = spoil(getattr(owner, name)), proof.expect_one_by_one

    def one_by_one(*asked: Any) -> Wanted:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(owner, name, spoilt)
            return real(*asked)

    monkeypatch.setattr(proof, "expect_one_by_one", one_by_one)

    @given(acls(max_rules=5))
    @settings(max_examples=100, database=None, derandomize=True, report_multiple_bugs=False)
    def law(acl: Acl) -> None:
        agree(acl)

    with pytest.raises(AssertionError):
        law()
