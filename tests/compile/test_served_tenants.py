"""What a firewall server needs of a tenant, made of the version of its list before, is what scratch makes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from compile.test_servers_law import EXACT, OWN
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from law_examples import examples

from orchestrator.compile.filters.filterlists import operator_list
from orchestrator.compile.servers import exactpairs, tenants
from orchestrator.compile.servers import tenants as servedtenants
from orchestrator.compile.servers.tenants import Served
from orchestrator.policy.addresses import ANY, Addresses, Prefix
from orchestrator.policy.listed import Listed
from orchestrator.policy.model import Acl, Action, Direction, Policy, Rule, RuleId, Tenant, TenantId, trusted_acl
from orchestrator.policy.numbers import RuleNumbers
from orchestrator.policy.ports import EVERY_PORT, PortRange
from orchestrator.policy.protocols import TCP, UDP
from orchestrator.program.delta import difference
from orchestrator.program.flows import FlowTable

OPERATOR = operator_list(Policy(()))
OWNED = (Prefix.parse("172.16.0.0/16"), Prefix.parse("2001:db8:a::/48"))


@dataclass(frozen=True)
class Edit:
    """A rule that takes the place of so many, somewhere in a list (places beyond its end are its end)."""

    place: int
    gone: int
    rule: Rule | None


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    """Mostly pairs, of few addresses, so that some are permitted twice and some meet a deny."""
    source = Prefix.parse(draw(st.sampled_from(EXACT)))
    sources = draw(st.sampled_from((Addresses((source,)), Addresses((source,)), Addresses((source,)), ANY)))
    protocol = draw(st.sampled_from((None, None, TCP, UDP)))
    ports = EVERY_PORT if protocol is None else draw(st.sampled_from((EVERY_PORT, (PortRange(80, 80),))))
    return Rule(
        RuleId("r"),
        draw(st.sampled_from((Action.PERMIT,) * 5 + (Action.DENY,))),
        direction=draw(st.sampled_from((Direction.INGRESS,) * 5 + (Direction.EGRESS,))),
        protocol=protocol,
        source=sources if source.family.value == 4 else Addresses((source,)),
        destination=Addresses((Prefix.parse(OWN[source.family]),)),
        destination_ports=ports,
    )


edits = st.lists(
    st.builds(Edit, st.integers(0, 12), st.integers(0, 2), st.one_of(st.none(), rules(), rules(), rules())),
    min_size=1,
    max_size=12,
)


class History:
    """A tenant whose list is changed an edit at a time, as the store does it: pieces and numbers are shared."""

    def __init__(self) -> None:
        self.tenant = Tenant(TenantId("t"), 7, OWNED, Acl(), RuleNumbers({}))
        self._next = 1

    def change(self, edit: Edit, default: Action = Action.DENY) -> Tenant:
        listed: Listed[Rule] = self.tenant.acl.listed
        numbers = self.tenant.rule_numbers
        assert isinstance(numbers, RuleNumbers)
        place = min(edit.place, len(listed))
        for _ in range(min(edit.gone, len(listed) - place)):
            numbers = numbers.exchange_ids([listed[place].id], {})
            listed = listed.without(place)
        if edit.rule is not None:
            rule = replace(edit.rule, id=RuleId(f"r{self._next}"))
            listed, numbers = listed.with_one(place, rule), numbers.exchange_ids([], {rule.id: self._next})
            self._next += 1
        acl = trusted_acl(listed, {}, default, Action.PERMIT)
        self.tenant = replace(self.tenant, acl=acl, rule_numbers=numbers)
        return self.tenant


def of(tenant: Tenant) -> Served:
    return Served.of(OPERATOR, tenant)


def rows(served: Served) -> FlowTable:
    return served.since(None)[1]


def same(one: FlowTable, other: FlowTable) -> bool:
    return not any(map(len, difference(one, other))) and len(one) == len(other)


def check(changes: Sequence[Edit], looked: Sequence[bool]) -> int:
    """Follow edits, and compare with scratch now and then; how many were followed."""
    history = History()
    served = seen = of(history.tenant)
    followed = 0
    for number, edit in enumerate(changes):
        found = served.follow_list(history.change(edit))
        followed += found is not None
        served = found or of(history.tenant)
        alone = of(history.tenant)
        assert same(rows(served), rows(alone))
        assert len(served.rest.rules) == len(alone.rest.rules)
        if looked[number % len(looked)]:
            removed, added = served.since(seen)
            kept, left = difference(rows(seen), removed)
            assert not len(left)
            assert same(FlowTable.join_tables([kept, added]), rows(served))
            seen = served
    return followed


looks = st.lists(st.booleans(), min_size=1, max_size=5)


@settings(max_examples=examples(150))
@given(edits, looks)
def test_what_was_followed_is_what_scratch_makes(changes: list[Edit], looked: list[bool]) -> None:
    check(changes, looked)


def pair(source: str, action: Action = Action.PERMIT) -> Rule:
    here = Addresses((Prefix.parse(OWN[Prefix.parse(source).family]),))
    return Rule(RuleId("r"), action, source=Addresses((Prefix.parse(source),)), destination=here)


def test_pairs_that_come_and_go_are_followed() -> None:
    one, two = map(pair, EXACT[:2])
    changes = [Edit(0, 0, one), Edit(1, 0, two), Edit(0, 0, one), Edit(0, 1, None), Edit(0, 2, None)]
    assert check(changes, [True]) == len(changes)


def test_a_deny_before_a_pair_is_not_followed_and_one_behind_is() -> None:
    history = History()
    for edit in (Edit(0, 0, pair(EXACT[1])), Edit(1, 0, pair(EXACT[0], Action.DENY))):
        served = of(history.change(edit))
    assert served.follow_list(history.change(Edit(2, 0, pair(EXACT[0])))) is None
    history.change(Edit(2, 1, None))
    served = of(history.tenant)
    assert served.follow_list(history.change(Edit(0, 0, pair(EXACT[0])))) is not None


def test_other_defaults_prefixes_and_numbers_are_not_followed() -> None:
    history = History()
    served = of(history.change(Edit(0, 0, pair(EXACT[0]))))
    assert served.follow_list(history.change(Edit(1, 0, None), Action.PERMIT)) is None
    assert served.follow_list(replace(served.tenant, prefixes=OWNED[:1])) is None
    assert served.follow_list(replace(served.tenant, rule_numbers=RuleNumbers({"r1": 99}))) is None
    assert served.follow_list(served.tenant) is not None


MUTANTS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "denies are not asked": (servedtenants, "is_met", lambda _pairs, _denies: False),
    "denies stay where they were": (servedtenants._Denies, "after", lambda self, _edit: self),
    "a pair permitted twice goes with the first": (
        tenants.Pairs, "exchange_pairs",
        lambda self, gone, come, whole=tenants.Pairs.exchange_pairs: whole(replace(self, more={}), gone, come),
    ),
    "what is no pair counts as nothing": (
        servedtenants, "pairs_alone",
        lambda rules, prefixes, whole=exactpairs.pairs_alone: whole(rules, prefixes) or {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MUTANTS[name])

    @settings(max_examples=400, phases=[Phase.generate], database=None)
    @given(edits, looks)
    def law(changes: list[Edit], looked: list[bool]) -> None:
        check(changes, looked)

    with pytest.raises((AssertionError, Exception)):
        law()
