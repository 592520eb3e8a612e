"""The proof of a program: it holds for what is compiled, in C as in plain Python, and no planted fault lives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import plain_equivalence
import pytest
from flow_tables import rows_by_tenant
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject
from law_examples import examples
from strategies import acls, policies

from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.equivalence import checks, order, prove, rowdecoder, shortestedit
from orchestrator.compile.hostprogram import CompileCache, compile_host
from orchestrator.compile.pipelines.host import DEFAULT_PRIORITY, Table
from orchestrator.errors import NotEquivalent
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.model import Acl, Action, Policy, Rule, Tenant, TenantId
from orchestrator.program.flows import FlowTable
from orchestrator.program.program import Tier

NOTHING = FlowTable.of(())
RULE = Cookie(Tier.HOST, Kind.RULE).pack()


@pytest.fixture(params=["native", "plain"], autouse=True)
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every law and every mutant, with the extension and with the oracle for it."""
    if request.param == "plain":
        for module in (rowdecoder, checks, order, shortestedit):
            monkeypatch.setattr(module, "native", plain_equivalence)


def compiled(policy: Policy) -> FlowTable:
    return compile_host(policy, domain="d1", generation=1).flows


# ---------------------------------------------------------------------------------------------------- it holds


@given(policies(max_tenants=3, max_rules=6))
@settings(max_examples=examples(40))
def test_what_is_compiled_is_proven(policy: Policy) -> None:
    prove(policy, compiled(policy))


def lists_of_one_tenant(acl: Acl, numbers: dict[str, int]) -> Policy:
    return Policy((Tenant(TenantId("t"), 7, (), acl, MappingProxyType(numbers)),))


@st.composite
def edited(draw: st.DrawFn, acl: Acl, spare: tuple[Rule, ...]) -> Acl:
    """A list after a few of its rules were taken out, put in, moved, turned over or made anew."""
    rules = list(acl.rules)
    for _ in range(draw(st.integers(1, 3))):
        what = draw(st.sampled_from(("out", "in", "move", "turn", "anew")))
        at = draw(st.integers(0, max(len(rules) - 1, 0)))
        if what == "in":
            fresh = [rule for rule in spare if rule.id not in {each.id for each in rules}]
            if fresh:
                rules.insert(at, fresh[0])
        elif rules:
            rule = rules.pop(at)
            if what == "move":
                rules.insert(draw(st.integers(0, len(rules))), rule)
            elif what == "turn":
                rules.insert(at, replace(rule, action=next(each for each in Action if each is not rule.action)))
            elif what == "anew":
                rules.insert(at, replace(rule))
    return replace(acl, rules=tuple(rules))


@given(acls(max_rules=10, min_rules=2), acls(max_rules=4), st.data())
@settings(max_examples=examples(40))
def test_a_proof_follows_changes(acl: Acl, other: Acl, data: DataObject) -> None:
    acl = replace(acl, groups={}) if not any(r.source.groups or r.destination.groups for r in acl.rules) else acl
    spare = tuple(
        replace(rule, id=f"s{rule.id}")
        for rule in other.rules
        if not rule.source.groups and not rule.destination.groups
    )  # type: ignore[arg-type]
    numbers = {rule.id: 100 + place for place, rule in enumerate((*acl.rules, *spare))}
    cache = CompileCache()
    policy = lists_of_one_tenant(acl, numbers)
    proof = prove(policy, cache.compile_program(policy, domain="d", generation=1).flows)
    for generation in range(2, 6):
        acl = data.draw(edited(acl, spare))
        policy = lists_of_one_tenant(acl, numbers)
        policy = replace(
            policy, tenants=(replace(policy.tenants[0], rule_numbers=proof.policy.tenants[0].rule_numbers),)
        )
        program = cache.compile_program(policy, domain="d", generation=generation)
        assert cache.change is not None
        proof = proof.after(policy, cache.change.removed, cache.change.added, program.blocks.of_tenant)


@given(st.lists(st.integers(0, 9), max_size=12), st.lists(st.integers(0, 9), max_size=12), st.integers(0, 12))
def test_edits_lead_from_one_to_the_other(old: list[int], new: list[int], most: int) -> None:
    before, after = tuple(old), tuple(new)
    steps = shortestedit.edits(before, after, most)
    assert steps == plain_equivalence.edits(before, after, most)
    if steps is None:
        assert before != after
        return
    assert len(steps) <= most
    made, taken = [], 0
    for step in steps:
        made += before[taken : step.old]
        taken = step.old + (not step.is_insert)
        made += [after[step.new]] if step.is_insert else []
    assert tuple(made) + before[taken:] == after


# ---------------------------------------------------------------------------------------------------- it dies

LIST = acl_from_json(
    {
        "rules": [
            {"id": "web", "action": "permit", "protocol": "tcp", "source": "10.0.0.0/8", "destination_ports": "80-90"},
            {"id": "no-lab", "action": "deny", "source": "10.1.0.0/16"},
            {"id": "most", "action": "permit", "protocol": "tcp", "destination_ports": "1-1023"},
            {"id": "ping", "action": "permit", "protocol": "icmp", "icmp_type": 8},
            {"id": "ack", "action": "permit", "protocol": "tcp", "established": True, "source": "2001:db8::/32"},
            {"id": "late", "action": "deny", "protocol": "udp", "fragments": True},
            {"id": "mail", "action": "deny", "direction": "egress", "protocol": "tcp", "destination_ports": 25},
            {"id": "far", "action": "permit", "direction": "egress", "destination": "192.0.2.0/24"},
        ]
    }
)
NUMBERS = {rule.id: 1 + place for place, rule in enumerate(LIST.rules)}
OPERATOR = acl_from_json(
    {"rules": [{"id": "dns", "action": "permit", "protocol": "udp", "destination_ports": 53}]}
).rules
POLICY = Policy(
    (
        Tenant(TenantId("shop"), 7, (), LIST, NUMBERS),
        Tenant(TenantId("bank"), 9, (), replace(LIST, rules=LIST.rules[:2]), {"web": 21, "no-lab": 22}),
    ),
    OPERATOR,
    {"dns": 31},
)
FLOWS = compiled(POLICY)
DECIDING = np.isin(FLOWS.table, [Table.LIFTED, Table.OPERATOR, Table.EGRESS, Table.INGRESS])


def rows_of(rule: str) -> np.ndarray:
    """Where the shop's rows of a rule are."""
    return np.flatnonzero(FLOWS.cookie == RULE | NUMBERS[rule])


def changed(column: str, rows: np.ndarray, value: object) -> FlowTable:
    cells = getattr(FLOWS, column).copy()
    cells[rows] = value
    return replace(FLOWS, **{column: cells})


def without(rows: np.ndarray) -> FlowTable:
    stays = np.ones(len(FLOWS), np.bool_)
    stays[rows] = False
    return FLOWS.take(stays)


def twice(rows: np.ndarray, **columns: object) -> FlowTable:
    again = FLOWS.take(rows)
    for name, value in columns.items():
        again = replace(again, **{name: np.full(len(again), value, getattr(again, name).dtype)})
    return FlowTable.join_tables([FLOWS, again])


def swapped_priorities() -> FlowTable:
    one, other = rows_of("web"), rows_of("no-lab")
    table = changed("priority", one, FLOWS.priority[other[0]])
    cells = table.priority.copy()
    cells[other] = FLOWS.priority[one[0]]
    return replace(table, priority=cells)


def wider_prefix() -> FlowTable:
    """The source of `no-lab` under a mask of 15 bits instead of 16."""
    row = next(row for row in rows_of("no-lab") if b"\x0a\x01\x00\x00\xff\xff\x00\x00" in FLOWS.row(int(row)).match)
    at = FLOWS.row(int(row)).match.index(b"\x0a\x01\x00\x00\xff\xff\x00\x00")
    match = FLOWS.match.copy()
    match[row, at : at + 8] = (10, 0, 0, 0, 255, 254, 0, 0)
    return replace(FLOWS, match=match)


def other_register() -> FlowTable:
    """The tenant's number asked of the register of the other side."""
    match = FLOWS.match.copy()
    rows = rows_of("ping")
    length = int(FLOWS.match_length[rows[0]])
    match[rows, length - 16 : length] = np.roll(
        match[rows, length - 16 : length].reshape(len(rows), 4, 4), 1, axis=1
    ).reshape(len(rows), 16)
    return replace(FLOWS, match=match)


def ends_of(tenant: int, kind: Kind) -> np.ndarray:
    return np.flatnonzero(FLOWS.cookie == Cookie(Tier.HOST, kind, tenant).pack())


def other_verdict() -> FlowTable:
    rows = rows_of("no-lab")
    return changed("instructions", rows, FLOWS.instructions[rows_of("web")[0]])


MUTANTS: dict[str, Callable[[], FlowTable]] = {
    "order": swapped_priorities,
    "a tie": lambda: changed("priority", rows_of("no-lab"), FLOWS.priority[rows_of("web")[0]]),
    "above the ways past": lambda: changed("priority", rows_of("web"), 30001),
    "among the defaults": lambda: changed("priority", rows_of("ping"), DEFAULT_PRIORITY),
    "mask": wider_prefix,
    "another rule's cookie": lambda: changed("cookie", rows_of("web"), RULE | NUMBERS["most"]),
    "nobody's cookie": lambda: changed("cookie", rows_of("web"), RULE | 99),
    "another kind of cookie": lambda: changed("cookie", rows_of("web"), Cookie(Tier.HOST, Kind.STRUCTURE).pack()),
    "direction": lambda: changed("table", rows_of("mail"), Table.INGRESS),
    "in a table without rules": lambda: changed("table", rows_of("mail"), Table.LOCAL),
    "lifted": lambda: changed("table", rows_of("web"), Table.LIFTED),
    "another tenant's": lambda: changed("tenant", rows_of("web"), 9),
    "a tenant that is not": lambda: changed("tenant", rows_of("web"), 8),
    "the other register": other_register,
    "verdict": other_verdict,
    "a rule removed": lambda: without(rows_of("late")),
    "a port mask missing": lambda: without(rows_of("web")[:1]),
    "a port mask twice": lambda: twice(rows_of("web")[:1]),
    "a port mask twice, lower": lambda: twice(rows_of("web")[:1], priority=400),
    "no default": lambda: without(ends_of(7, Kind.EGRESS_DEFAULT)),
    "a default turned over": lambda: changed(
        "instructions", ends_of(7, Kind.INGRESS_DEFAULT), FLOWS.instructions[rows_of("web")[0]]
    ),
    "a default above the rules": lambda: changed("priority", ends_of(7, Kind.INGRESS_DEFAULT), 29000),
    "no return traffic": lambda: without(ends_of(7, Kind.INGRESS_RETURN)),
    "return traffic first": lambda: changed("priority", ends_of(7, Kind.INGRESS_RETURN), 30000),
    "an operator rule removed": lambda: without(
        np.flatnonzero(FLOWS.cookie == Cookie(Tier.HOST, Kind.OPERATOR_RULE, 31).pack())
    ),
    "no way past the lists": lambda: without(
        np.flatnonzero((FLOWS.table == Table.INGRESS) & (FLOWS.priority == 30001))
    ),
    "a table that ends openly": lambda: without(np.flatnonzero((FLOWS.table == Table.EGRESS) & (FLOWS.priority == 0))),
}


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_the_check_kills(mutant: Callable[[], FlowTable]) -> None:
    prove(POLICY, FLOWS)
    with pytest.raises(NotEquivalent):
        prove(POLICY, mutant())


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_the_check_of_a_change_kills(mutant: Callable[[], FlowTable]) -> None:
    proof = prove(POLICY, FLOWS)
    spoilt = mutant()
    removed, added = apart(FLOWS, spoilt), apart(spoilt, FLOWS)
    with pytest.raises(NotEquivalent):
        proof.after(POLICY, removed, added, rows_by_tenant(spoilt))


def apart(one: FlowTable, other: FlowTable) -> FlowTable:
    """The rows of `one` that `other` has not, or has less often."""
    left = list(other.rows())
    found = []
    for row in one.rows():
        if row in left:
            left.remove(row)
        else:
            found.append(row)
    return FlowTable.of(found)


def test_a_rule_that_changed_without_its_rows_dies() -> None:
    proof = prove(POLICY, FLOWS)
    shop = POLICY.tenants[0]
    for place, rule in enumerate(LIST.rules):
        turned = replace(rule, action=next(each for each in Action if each is not rule.action))
        for rules in (
            (*LIST.rules[:place], turned, *LIST.rules[place + 1 :]),
            (*LIST.rules[:place], *LIST.rules[place + 1 :]),
        ):
            policy = replace(POLICY, tenants=(replace(shop, acl=replace(LIST, rules=rules)), POLICY.tenants[1]))
            with pytest.raises(NotEquivalent):
                proof.after(policy, NOTHING, NOTHING, rows_by_tenant(FLOWS))


def test_rules_that_moved_past_what_they_overlap_without_their_rows_die() -> None:
    proof = prove(POLICY, FLOWS)
    rules = (LIST.rules[1], LIST.rules[0], *LIST.rules[2:])
    policy = replace(POLICY, tenants=(replace(POLICY.tenants[0], acl=replace(LIST, rules=rules)), POLICY.tenants[1]))
    with pytest.raises(NotEquivalent, match="has priority"):
        proof.after(policy, NOTHING, NOTHING, rows_by_tenant(FLOWS))


@given(st.data())
@settings(max_examples=examples(200))
def test_no_byte_of_a_match_may_be_another(data: DataObject) -> None:
    row = data.draw(st.sampled_from(np.flatnonzero(DECIDING & (FLOWS.match_length > 0)).tolist()))
    at = data.draw(st.integers(0, int(FLOWS.match_length[row]) - 1))
    match = FLOWS.match.copy()
    match[row, at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(NotEquivalent):
        prove(POLICY, replace(FLOWS, match=match))


def single_faults() -> Iterator[FlowTable]:
    """Every row that decides, left out; and twice."""
    for row in np.flatnonzero(DECIDING):
        yield without(np.array([row]))
        yield twice(np.array([row]))


def test_no_row_may_be_missing_or_there_twice() -> None:
    for flows in single_faults():
        with pytest.raises(NotEquivalent):
            prove(POLICY, flows)


# ------------------------------------------------------------------------------------------- only what changed


def from_scratch(_: int) -> FlowTable:
    raise AssertionError("a small change is not proven from scratch")


def test_a_small_change_is_proven_by_itself() -> None:
    """Every single rule of the list taken out, put back elsewhere, and turned over, one after the other."""
    cache = CompileCache()
    numbers = POLICY.tenants[0].rule_numbers
    policy = lists_of_one_tenant(LIST, dict(numbers))
    kept = policy.tenants[0].rule_numbers
    proof = prove(policy, cache.compile_program(policy, domain="d", generation=1).flows)
    rules = list(LIST.rules)
    for place, rule in enumerate(LIST.rules):
        turned = replace(rule, action=next(each for each in Action if each is not rule.action))
        rest = [each for each in rules if each.id != rule.id]
        for changed_rules in (
            rest,
            [*rest, rule],
            [*rest, turned],
            [*rules[:place], turned, *rules[place + 1 :]],
            rules,
        ):
            tenant = replace(policy.tenants[0], acl=replace(LIST, rules=tuple(changed_rules)), rule_numbers=kept)
            policy = replace(policy, tenants=(tenant,))
            cache.compile_program(policy, domain="d", generation=2)
            assert cache.change is not None
            proof = proof.after(policy, cache.change.removed, cache.change.added, from_scratch)


@given(st.data())
@settings(max_examples=examples(100))
def test_no_byte_of_a_changed_row_may_be_another(data: DataObject) -> None:
    """The rows of one rule, taken out and put back with one byte changed."""
    proof = prove(POLICY, FLOWS)
    rows = rows_of(data.draw(st.sampled_from([rule.id for rule in LIST.rules])))
    removed = FLOWS.take(rows)
    row = data.draw(st.integers(0, len(rows) - 1))
    at = data.draw(st.integers(0, int(removed.match_length[row]) - 1))
    match = removed.match.copy()
    match[row, at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(NotEquivalent):
        proof.after(POLICY, removed, replace(removed, match=match), from_scratch)
