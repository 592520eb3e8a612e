"""A skewed replay: the rules that go up are those that a reader would pick from the list and the counts.

Of published headers a reader's pick is worked out; of a list of a page it is written down by hand.
"""

from __future__ import annotations

import functools
from collections import Counter

import pytest
from public_data import DATA

from orchestrator.compile.equivalence import prove
from orchestrator.compile.hostprogram import CompileCache
from orchestrator.compile.lifting.prospects import Prospector
from orchestrator.placement.choice import LEAST_SAVED_US_PER_S, Algorithm, Prospects, Settings, Subject, choose
from orchestrator.placement.lifting import LiftedRule
from orchestrator.policy.addresses import EVERY_IPV4, Family
from orchestrator.policy.formats.classbench import read_trace
from orchestrator.policy.formats.registry import read
from orchestrator.policy.formats.results import Options
from orchestrator.policy.model import Action, Direction, Endpoint, Policy, RuleId, Tenant, TenantId
from orchestrator.policy.rulelist import rule_lists

CLASSBENCH = DATA / "classbench"
TENANT = TenantId("lab")
INTERVAL_S, PACKETS, SKEW, BUDGET = 300.0, 2_000_000, 1.1, 8


def world(name: str) -> Policy:
    rules = CLASSBENCH / f"{name}.rules"
    if not rules.exists():
        pytest.skip(f"{rules} is not there: set ACLFLOW_DATA to the folder that holds classbench/")
    return enforced(rules.read_bytes(), None)


def enforced(rules: bytes, action: Action | None) -> Policy:
    """Of one tenant with everybody's addresses; without an action the rules permit and deny in turn."""
    acl = read(rules, "classbench", name="rules", options=Options(classbench_action=action)).acl
    numbers = {rule.id: number for number, rule in enumerate(acl.rules, 1)}
    tenant = Tenant(TENANT, 1, (EVERY_IPV4,), acl, numbers)
    return Policy((tenant,), endpoints=(Endpoint("sink", TENANT, "sink", 2, (EVERY_IPV4,)),))


def replayed(policy: Policy, trace: str, packets: int = PACKETS) -> Counter[str]:
    """Packets by rule when the n-th most frequent flow has 1/n^SKEW of the packets, as flows on real links do."""
    rows = rule_lists(policy.tenants[0].acl, Direction.INGRESS)[Family.IPV4]
    finder = rows.finder(range(len(rows)))
    flows = dict.fromkeys(each.packet for each in read_trace(trace))
    weights = [1 / rank**SKEW for rank in range(1, len(flows) + 1)]
    counts: Counter[str] = Counter()
    for packet, weight in zip(flows, weights, strict=True):
        row = finder.first(packet)
        assert row is not None
        counts[rows.rows[row].id] += round(packets * weight / sum(weights))
    return counts


@pytest.mark.parametrize(("name", "gains"), [("acl1_1k", False), ("fw1_1k", True)])
def test_what_goes_up_is_what_a_reader_would_pick(name: str, gains: bool) -> None:
    """Every rule of the first set names both ends of its packets, so nothing is gained there; the second has rules for
    everybody."""
    policy = world(name)
    counts = replayed(policy, (CLASSBENCH / f"{name}.trace").read_text())
    prospects = functools.cache(Prospector(policy).of)
    names = {rule.id: LiftedRule(TENANT, RuleId(rule.id)) for rule in policy.tenants[0].acl.rules}
    busiest = [each for each, _ in counts.most_common(4 * BUDGET) if each in names]
    saved = {each: found.saves_us_per_s(counts[each] / INTERVAL_S) for each in busiest
             if not isinstance(found := prospects(names[each]), str)}  # fmt: skip
    assert len(saved) > BUDGET, "too few rules can be lifted to choose from"

    paper = lifted_after_rounds(Settings(Algorithm.PAPER, most_lifted=BUDGET), names, counts, prospects)
    assert paper == set(list(saved)[:BUDGET]), "Algorithm 1: the busiest that can be lifted, one a round"

    savings = lifted_after_rounds(Settings(most_lifted=BUDGET), names, counts, prospects)
    best = sorted(saved, key=lambda each: (-saved[each], names[each]))[:BUDGET]
    assert savings == {each for each in best if saved[each] >= LEAST_SAVED_US_PER_S}
    assert bool(savings) is gains

    program = CompileCache().compile_program(
        policy, domain="d1", generation=1, lifted=[names[each] for each in sorted(paper | savings)]
    )
    prove(policy, program.flows)


SSH, WEB, DNS, MAIL = "r20", "r21", "r22", "r23"
PAGE = "".join(
    f"@10.{place}.0.0/16\t0.0.0.0/0\t{1024 + place} : {1024 + place}\t0 : 65535\t0x06/0xFF\n" for place in range(20)
) + (
    "@192.0.2.7/32\t198.51.100.30/32\t1000 : 1000\t22 : 22\t0x06/0xFF\n"
    "@0.0.0.0/0\t198.51.100.10/32\t0 : 65535\t80 : 80\t0x06/0xFF\n"
    "@0.0.0.0/0\t198.51.100.20/32\t0 : 65535\t53 : 53\t0x11/0xFF\n"
    "@0.0.0.0/0\t198.51.100.40/32\t0 : 65535\t25 : 25\t0x06/0xFF\n"
)
"""Twenty rules for some clients and their ports, one for one connection, and three services that are open to all."""


def to_service(host: int, port: int, protocol: int, clients: int) -> list[str]:
    """A packet of each of so many clients to a port of 198.51.100.HOST, as lines of a trace."""
    to = 198 << 24 | 51 << 16 | 100 << 8 | host
    return [f"{(203 << 24) + 977 * each}\t{to}\t{40_000 + each}\t{port}\t{protocol}\t0\t0" for each in range(clients)]


def test_of_a_page_of_rules_the_services_go_up_that_many_ask_for() -> None:
    """Nothing flows as much as the one connection, but its rule names both ends: it is one cache entry, lifted or not.
    Web and DNS have many clients, each an entry of its own behind rules that look at clients; hardly anybody sends
    mail. Sixteen times as much traffic meets each of the 2,112 entries within the minute that it is kept, lifted or
    not."""
    connection = f"{192 << 24 | 2 << 8 | 7}\t{198 << 24 | 51 << 16 | 100 << 8 | 30}\t1000\t22\t6\t0\t0"
    services = [line for pair in zip(to_service(10, 80, 6, 400), to_service(20, 53, 17, 400), strict=True)
                for line in pair]  # fmt: skip
    trace = [connection, *services, *to_service(40, 25, 6, 1)]
    policy = enforced(PAGE.encode(), Action.PERMIT)
    counts, busy = (replayed(policy, "\n".join(trace), packets) for packets in (PACKETS // 16, PACKETS))
    assert [name for name, _ in counts.most_common()] == [WEB, DNS, SSH, MAIL]
    names = {rule.id: LiftedRule(TENANT, RuleId(rule.id)) for rule in policy.tenants[0].acl.rules}
    prospects = functools.cache(Prospector(policy).of)
    savings = lifted_after_rounds(Settings(most_lifted=BUDGET), names, counts, prospects)
    assert savings == {WEB, DNS}
    assert lifted_after_rounds(Settings(most_lifted=BUDGET), names, busy, prospects) == set()


def lifted_after_rounds(
    settings: Settings, names: dict[str, LiftedRule], counts: Counter[str], prospects: Prospects
) -> set[str]:
    """What is up when the same traffic went on for some rounds."""
    up: set[LiftedRule] = set()
    for _ in range(2 * BUDGET):
        subjects = [
            Subject(name, counts[rule], 1.0 if counts[rule] else float("inf"), name in up)
            for rule, name in names.items()
        ]
        choice = choose(subjects, settings, INTERVAL_S, prospects)
        up = up - {each.rule for each in choice.lower} | {each.rule for each in choice.lift}
    return {str(each.rule) for each in up}
