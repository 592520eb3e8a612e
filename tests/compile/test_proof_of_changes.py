"""The proof of a change says what the proof of the whole says: yes to what is compiled, and no to whatever else.

Programs are spoilt by a change that is not what the policy's is (a row that does not go or come, one that goes or comes
besides, one that comes otherwise), and the two proofs must agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import plain_equivalence
import pytest
from flow_tables import rows_by_tenant
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from law_examples import examples
from laws.test_levels_update import stories

from orchestrator.compile.conjunctions import conjunctive
from orchestrator.compile.equivalence import checks, order, prove, rowdecoder, shortestedit
from orchestrator.compile.hostprogram import CompileCache
from orchestrator.compile.openflow import oxm
from orchestrator.errors import NotEquivalent
from orchestrator.policy.addresses import Addresses, Prefix
from orchestrator.policy.model import (
    Acl,
    Action,
    AddressGroup,
    GroupName,
    Policy,
    ReturnTraffic,
    Rule,
    RuleId,
    Tenant,
    TenantId,
)
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import TCP
from orchestrator.program.flows import Flow, FlowTable

LAWS = settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(params=["native", "plain"], autouse=True)
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "plain":
        for module in (rowdecoder, checks, order, shortestedit):
            monkeypatch.setattr(module, "native", plain_equivalence)


@pytest.fixture(params=["as they are", "eager"], autouse=True)
def conjunctive_rules(request: pytest.FixtureRequest) -> Iterator[None]:
    """With the usual conjunctions, and where whatever can be one is one."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "eager":
            patch.setattr(conjunctive, "WORTH", 2)
            patch.setattr(conjunctive, "GAIN", 0)
            patch.setattr(conjunctive, "PORTS_WORTH", 2)
        yield


def policy_of(tenant: Tenant) -> Policy:
    return Policy(tenants=(tenant,), return_traffic=ReturnTraffic.EXPLICIT)


def holds(prover: Callable[[], object]) -> bool:
    try:
        prover()
    except NotEquivalent:
        return False
    return True


@st.composite
def spoilt(draw: st.DrawFn, before: frozenset[Flow], after: frozenset[Flow]) -> frozenset[Flow]:
    """The rows after a change, with one thing otherwise."""
    what = draw(st.sampled_from(("nothing", "stays", "lacks", "goes too", "comes too", "comes otherwise")))
    gone, come = _sorted(before - after), _sorted(after - before)
    stay = _sorted(before & after)
    if what == "stays" and gone:
        return after | {draw(st.sampled_from(gone))}
    if what == "lacks" and come:
        return after - {draw(st.sampled_from(come))}
    if what == "goes too" and stay:
        return after - {draw(st.sampled_from(stay))}
    if what in ("comes too", "comes otherwise") and (come or stay):
        row = draw(st.sampled_from(come or stay))
        rest = after - {row} if what == "comes otherwise" else after
        return rest | {draw(otherwise(row, _sorted(after)))}
    return after


def _sorted(rows: frozenset[Flow]) -> list[Flow]:
    return sorted(rows, key=lambda row: (row.table, row.cookie, row.priority, row.match))


@st.composite
def otherwise(draw: st.DrawFn, row: Flow, others: Sequence[Flow]) -> Flow:
    """A row that is not quite another."""
    other = draw(st.sampled_from(others))
    what = draw(st.sampled_from(("priority", "cookie", "match", "wider", "instructions")))
    if what == "priority":
        return replace(row, priority=min(65535, max(0, row.priority + draw(st.sampled_from((-1, 1))))))
    if what == "wider":
        return replace(row, match=_wider(draw, row.match))
    return replace(row, **{what: getattr(other, what)})


def _wider(draw: st.DrawFn, match: bytes) -> bytes:
    terms = list(oxm.unpack(match))
    masked = [place for place, term in enumerate(terms) if term.mask is not None and term.mask]
    if not masked:
        return match
    at = draw(st.sampled_from(masked))
    mask = (terms[at].mask or 0) & ((terms[at].mask or 0) - 1)
    terms[at] = oxm.Term(terms[at].field, terms[at].value & mask, mask) if mask else terms[at]
    return oxm.pack(terms)


def check_spoilt(story: Sequence[Tenant], draw: Callable[..., object]) -> None:
    """Every change of a story, spoilt: both proofs say the same."""
    cache = CompileCache()
    policy = policy_of(story[0])
    rows = frozenset(cache.compile_program(policy, domain="d", generation=1).flows.rows())
    proof = prove(policy, FlowTable.of(rows))
    for generation, tenant in enumerate(story[1:], 2):
        policy = policy_of(tenant)
        following = frozenset(cache.compile_program(policy, domain="d", generation=generation).flows.rows())
        wrong = draw(spoilt(rows, following))
        assert isinstance(wrong, frozenset)
        whole = FlowTable.of(wrong)
        gone, come = FlowTable.of(rows - wrong), FlowTable.of(wrong - rows)
        scratch = holds(lambda: prove(policy, whole))  # noqa: B023
        assert holds(lambda: proof.after(policy, gone, come, rows_by_tenant(whole))) is scratch  # noqa: B023
        proof = proof.after(
            policy,
            FlowTable.of(rows - following),
            FlowTable.of(following - rows),
            rows_by_tenant(FlowTable.of(following)),
        )
        rows = following


@LAWS
@given(stories(), st.data())
def test_both_proofs_say_the_same_of_a_spoilt_change(story: tuple[Tenant, ...], data: st.DataObject) -> None:
    check_spoilt(story, data.draw)


# --------------------------------------------------------------------------------------------- only what changed


def from_scratch(_: int) -> FlowTable:
    raise AssertionError("a small change is not proven from scratch")


def grouped(*members: str) -> Policy:
    """Rules for a group: alone, with others' ports, against a fixed prefix, and a wide one behind."""
    group = AddressGroup(GroupName("g"), tuple(map(Prefix.parse, members)))
    some = Addresses(groups=("g",))
    far = Addresses((Prefix.parse("198.51.100.0/24"),))
    both = Addresses((Prefix.parse("10.9.0.0/16"),), ("g",))
    rules = (
        Rule(RuleId("web"), Action.PERMIT, protocol=TCP, source=some, destination_ports=(PortRange(80, 82),)),
        Rule(RuleId("far"), Action.DENY, source=both, destination=far),
        Rule(RuleId("all"), Action.PERMIT, source=Addresses((Prefix.parse("10.0.0.0/8"),))),
    )
    numbers = {str(rule.id): number for number, rule in enumerate(rules, 1)}
    tenant = Tenant(TenantId("t"), 7, (), Acl(rules, {"g": group}), numbers)
    return policy_of(tenant)


STEPS = (
    ("10.0.0.0/32", "10.0.0.4/32", "10.1.0.0/16"),
    ("10.0.0.0/32", "10.0.0.1/32", "10.0.0.4/32", "10.1.0.0/16"),  # two become one prefix
    ("10.0.0.0/32", "10.0.0.1/32", "10.0.0.4/32", "10.1.0.0/16", "10.1.2.0/24"),  # inside another: no row changes
    ("10.0.0.0/32", "10.0.0.1/32", "10.0.0.4/32", "10.1.2.0/24"),  # the wide one goes, what was inside stays
    ("10.0.0.0/32", "10.0.0.1/32", "10.0.0.4/32", "10.1.2.0/24", "10.9.9.0/24", "2001:db8::/32"),
    ("10.0.0.4/32", "10.0.0.4/32", "10.9.9.0/24", "2001:db8::/32"),  # twice
    ("10.0.0.4/32",),
    (),
    ("10.0.0.4/30", "10.0.0.0/30"),
)


def test_members_are_proven_by_themselves() -> None:
    cache = CompileCache()
    policy = grouped(*STEPS[0])
    proof = prove(policy, cache.compile_program(policy, domain="d", generation=1).flows)
    for generation, members in enumerate((*STEPS[1:], *reversed(STEPS)), 2):
        (tenant,) = policy.tenants
        changed = grouped(*members).tenants[0].acl.groups
        policy = policy_of(replace(tenant, acl=replace(tenant.acl, groups=changed)))
        program = cache.compile_program(policy, domain="d", generation=generation)
        assert cache.change is not None
        proof = proof.after(policy, cache.change.removed, cache.change.added, from_scratch)
        prove(policy, program.flows)


@pytest.mark.parametrize("step", [0, 1], ids=["before the last", "behind the last"])
def test_rules_put_in_one_by_one_are_proven_one_by_one(step: int) -> None:
    """Each beside the last, in the middle of a list: there is room for many more than a gap can be halved."""
    rules = [_permit(number) for number in range(80)]
    numbers = {str(rule.id): 1 + number for number, rule in enumerate(rules)}
    cache = CompileCache()
    first = _listed(rules, numbers)
    program = cache.compile_program(first, domain="d", generation=1)
    proof = prove(first, program.flows)

    def all_rows(_: int) -> FlowTable:
        raise AssertionError("the list is proven from scratch")

    for number in range(100):
        rule = _permit(100 + number)
        rules.insert(40 + step * number, rule)
        numbers[str(rule.id)] = 200 + number
        policy = _listed(rules, numbers)
        cache.compile_program(policy, domain="d", generation=2 + number)
        change = cache.change
        assert change is not None
        proof = proof.after(policy, change.removed, change.added, all_rows)


def test_rules_that_came_and_went_again_are_forgotten() -> None:
    """Of a list that is changed for years, no more is kept than of one that was just proven."""
    rules = [_permit(number) for number in range(8)]
    numbers = {str(rule.id): 1 + number for number, rule in enumerate(rules)}
    cache = CompileCache()
    policy = _listed(rules, numbers)
    proof = prove(policy, cache.compile_program(policy, domain="d", generation=1).flows)
    for number in range(20):
        passing = _permit(100 + number)
        numbers[str(passing.id)] = 100 + number
        for listed in ([*rules[:4], passing, *rules[4:]], rules):
            policy = _listed(listed, numbers)
            cache.compile_program(policy, domain="d", generation=2)
            assert cache.change is not None
            proof = proof.after(policy, cache.change.removed, cache.change.added, from_scratch)
    ledger = proof.lists["t"].proof.ledger
    assert (len(ledger.since), len(ledger.since_items), ledger.gone.any()) == (0, 0, False)


def _permit(number: int) -> Rule:
    destination = Addresses((Prefix.parse("10.1.0.9/32"),))
    source = Addresses((Prefix.parse(f"192.0.2.{number}/32"),))
    return Rule(RuleId(f"r{number}"), Action.PERMIT, protocol=TCP, source=source, destination=destination)


def _listed(rules: Sequence[Rule], numbers: dict[str, int]) -> Policy:
    return policy_of(Tenant(TenantId("t"), 1, (Prefix.parse("10.1.0.0/16"),), Acl(tuple(rules)), dict(numbers)))
