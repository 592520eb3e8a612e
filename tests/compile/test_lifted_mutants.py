"""Planted faults in table `lifted`: the proof refuses each, and the law with packets finds those of the compiler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from compiled_domain import check_policy
from hypothesis import HealthCheck, Phase, given, settings
from lifted_shop import WEB, named, policy, rule
from strategies import policies

from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.equivalence import prove
from orchestrator.compile.hostprogram import CompileCache
from orchestrator.compile.lifting import liftedrows, lifts
from orchestrator.compile.openflow.encoder import RuleStage, rule_flows
from orchestrator.compile.openflow.instructions import instructions, set_field
from orchestrator.compile.pipelines.host import LIFTED_PRIORITY, MISS_PRIORITY, OPERATOR_PERMIT, Table
from orchestrator.errors import NotEquivalent
from orchestrator.placement.lifting import LiftedRule
from orchestrator.policy.model import Direction, Policy
from orchestrator.program.flows import Flow, FlowTable
from orchestrator.program.program import Tier

TOGETHER = policy(
    *(rule(f"lab{index}", "deny", f"10.{index}.0.0/16", WEB, 80) for index in (1, 2, 3, 4)),
    rule("web", "permit", "", WEB, 80),
    rule("mute", "deny", WEB, "10.66.0.0/16", protocol=None, direction=Direction.EGRESS),
)
"""The web rule goes up with all that must stay above it."""


def rows_of(world: Policy, *names: str) -> tuple[list[Flow], list[Flow]]:
    """The rows of lifted rules, and all others."""
    program = CompileCache().compile_program(world, domain="d1", generation=1, lifted=named(*names))
    rows = program.flows.rows()
    lifted = [row for row in rows if row.table == Table.LIFTED and row.priority != MISS_PRIORITY]
    return lifted, [row for row in rows if row not in lifted]


def number_of(row: Flow) -> tuple[Kind, int]:
    cookie = Cookie.unpack(row.cookie)
    assert cookie is not None
    return cookie.kind, cookie.number


def of(kind: Kind, number: int) -> Callable[[Flow], bool]:
    return lambda row: number_of(row) == (kind, number)


FROM_UPLINK = bytes.fromhex("80010310") + bytes.fromhex("0000000100000000") + bytes.fromhex("ffffffff00000000")
"""reg2 = 1, as the encoder writes it."""
DENY, WEB_RULE, QUIET, BACK = of(Kind.RULE, 2), of(Kind.RULE, 5), of(Kind.RULE, 6), of(Kind.EGRESS_RETURN, 7)
ANY_OF = (DENY, WEB_RULE, QUIET, BACK)

Change = Callable[[Flow], Flow | None]


def changed(rows: list[Flow], which: Callable[[Flow], bool], change: Change) -> list[Flow]:
    assert any(map(which, rows)), "the planted fault finds nothing to change"
    found = (change(row) if which(row) else row for row in rows)
    return [row for row in found if row is not None]


def cut(part: bytes) -> Change:
    def without(row: Flow) -> Flow:
        assert part in row.match
        return replace(row, match=row.match.replace(part, b""))

    return without


def other_bits(old: str, new: str) -> Change:
    before, after = bytes.fromhex(old), bytes.fromhex(new)

    def with_other(row: Flow) -> Flow:
        assert before in row.match
        return replace(row, match=row.match.replace(before, after))

    return with_other


MUTANTS: list[tuple[str, Callable[[Flow], bool], Change]] = [
    ("no deny above the permit", DENY, lambda row: None),
    ("no quiet above the replies", QUIET, lambda row: None),
    ("order turned over", WEB_RULE, lambda row: replace(row, priority=LIFTED_PRIORITY)),
    ("a tie", WEB_RULE, lambda row: replace(row, priority=row.priority + 1)),
    ("below the lists", WEB_RULE, lambda row: replace(row, priority=20000)),
    ("from anywhere", WEB_RULE, cut(FROM_UPLINK)),
    ("from endpoints", WEB_RULE, other_bits("8001031000000001", "8001031000000000")),
    ("replies of any tenant", BACK, other_bits("8001011000000007", "8001011000000008")),
    ("replies from any port", BACK, cut(bytes.fromhex("80001a020050"))),
    ("replies that need no flag", BACK, lambda row: replace(row, match=_without_flags(row.match))),
    ("replies from any address", BACK, cut(bytes.fromhex("800016040a1d0402"))),
    ("an address too many", WEB_RULE, other_bits("800018040a1d0402", "800019080a1d0402fffffffe")),
    ("any port", WEB_RULE, cut(bytes.fromhex("80001c020050"))),
    ("later fragments too", WEB_RULE, cut(bytes.fromhex("000135020002"))),
    ("another's cookie", WEB_RULE, lambda row: replace(row, cookie=row.cookie - 1)),
    ("the default's cookie", WEB_RULE, lambda row: replace(row, cookie=_DEFAULT)),
    ("a cookie of nobody", WEB_RULE, lambda row: replace(row, cookie=row.cookie + 1000)),
    ("a deny that permits", DENY, lambda row: replace(row, instructions=_ARRIVED)),
    ("a permit that drops", WEB_RULE, lambda row: replace(row, instructions=b"")),
    ("a permit straight out", WEB_RULE, lambda row: replace(row, instructions=instructions(goto=Table.OUTPUT))),
    ("a permit past nothing", WEB_RULE, lambda row: replace(row, instructions=instructions(goto=Table.LOCAL))),
    ("replies past the receiver's list", BACK, lambda row: replace(row, instructions=_ARRIVED)),
    ("on a tenant's account", WEB_RULE, lambda row: replace(row, tenant=7)),
]  # fmt: skip

_DEFAULT = Cookie(Tier.HOST, Kind.INGRESS_DEFAULT, 7).pack()
_ARRIVED = instructions([set_field(OPERATOR_PERMIT.field, 1)], goto=Table.LOCAL)


def _without_flags(match: bytes) -> bytes:
    start = match.index(bytes.fromhex("80005504"))
    return match[:start] + match[start + 8 :]


@pytest.mark.parametrize(("which", "change"), [each[1:] for each in MUTANTS], ids=[each[0] for each in MUTANTS])
def test_the_proof_refuses(which: Callable[[Flow], bool], change: Change) -> None:
    lifted, others = rows_of(TOGETHER, "web")
    prove(TOGETHER, FlowTable.of([*lifted, *others]))
    with pytest.raises(NotEquivalent):
        prove(TOGETHER, FlowTable.of([*changed(lifted, which, change), *others]))


def test_rows_that_are_not_there_are_no_fault() -> None:
    """Without them packets go on to their lists: it is order, not presence, that is proven."""
    lifted, others = rows_of(TOGETHER, "web")
    prove(TOGETHER, FlowTable.of([*(row for row in lifted if not WEB_RULE(row)), *others]))
    prove(TOGETHER, FlowTable.of(others))


def test_lifted_rows_outlive_their_list_only_until_the_next_proof() -> None:
    """A rule comes in front of the list, and nothing changes in table `lifted`: that is found out as well."""
    cache = CompileCache()
    before = cache.compile_program(TOGETHER, domain="d1", generation=1, lifted=named("web"))
    proof = prove(TOGETHER, before.flows)
    neighbour, shop = TOGETHER.tenants
    fresh = rule("new", "deny", "192.0.2.0/24", WEB, 80)
    acl = replace(shop.acl, rules=(fresh, *shop.acl.rules))
    edited = replace(
        TOGETHER, tenants=(neighbour, replace(shop, acl=acl, rule_numbers={**shop.rule_numbers, "new": 50}))
    )
    cache.compile_program(edited, domain="d1", generation=2, lifted=named("web"))
    assert cache.change is not None
    removed, added = (FlowTable.of([row for row in table.rows() if row.table != Table.LIFTED])
                      for table in (cache.change.removed, cache.change.added))  # fmt: skip
    with pytest.raises(NotEquivalent, match="decides packets of 'new'"):
        proof.after(edited, removed, added, lambda: before.flows)


# ------------------------------------------------------------------------------------------- faults of the compiler

FEW = settings(
    max_examples=100, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


@FEW
@given(policies(max_tenants=2, max_rules=5))
def the_law(world: Policy) -> None:
    check_policy(world, [LiftedRule(tenant.id, each.id) for tenant in world.tenants for each in tenant.acl.rules])


def all_levels_equal(table: Any) -> Any:
    return np.zeros(len(table), np.int32)


def shifted_cookies(rules: Any, stage: RuleStage, priority: Any, cookie: Any, meter: int = 0) -> FlowTable:
    return rule_flows(rules, stage, priority, np.roll(cookie, 1), meter)


def only_the_last_part(rows: Any, row: int, **bounds: Any) -> Any:
    found = _hoist(rows, row, **bounds)
    return replace(found, entries=found.entries[-1:]) if hasattr(found, "entries") else found


_hoist = lifts.hoist

FAULTS: list[tuple[str, Any, str, Any]] = [
    ("one level for all", liftedrows, "levels", all_levels_equal),
    ("shifted cookies", liftedrows, "rule_flows", shifted_cookies),
    ("no companions", lifts, "hoist", only_the_last_part),
]


@pytest.mark.parametrize(("module", "name", "fault"), [each[1:] for each in FAULTS], ids=[each[0] for each in FAULTS])
def test_the_law_kills(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, fault: Any) -> None:
    monkeypatch.setattr(module, name, fault)
    with pytest.raises(AssertionError):
        the_law()
