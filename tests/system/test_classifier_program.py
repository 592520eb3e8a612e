"""The classifier's program, run by the kernel on one packet at a time: as its rows say, as the server's oracle does."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from compiled_filter import carried, hangs_on_dscp
from flow_cache_samples import packets_near, row_lists
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import policies
from system.test_flow_cache_mutants import built
from system.test_flow_cache_program import (
    DROP,
    F4,
    F6,
    NOT_PLAIN,
    PLAIN,
    REDIRECT,
    SLOW_PATH,
    STAMP,
    configured,
    everything,
    expected,
    expressible,
    few,
    framed,
    tcp,
    unicast,
    v4,
    v6,
)

from orchestrator.compile.filters.cacherows import CacheRow, Verdict
from orchestrator.compile.filters.filterlists import operator_list, tenant_lists
from orchestrator.compile.servers.generalrows import general_rows
from orchestrator.enforce.drivers.bpf import classifier, libbpf
from orchestrator.enforce.drivers.bpf.classifier import KernelClassifier
from orchestrator.enforce.drivers.bpf.layout import BY_LEG, FlowSet
from orchestrator.lab.layout import Layout
from orchestrator.lab.router import LEFT, RIGHT, ROUTER, Router
from orchestrator.policy.addresses import Family
from orchestrator.policy.corners import policy_packets
from orchestrator.policy.model import Packet, Policy, ReturnTraffic, Rule
from orchestrator.policy.prefilter import Fate, Share, verdict
from orchestrator.policy.protocols import ICMPV6
from orchestrator.policy.spans import Span

_NOT_LOOKED_INTO = (51, 59, 135, 139, 140, 253, 254)
fewer = settings(few, max_examples=15)
some = settings(few, max_examples=35)


class Bench:
    """A router with a classifier whose program is run by hand."""

    def __init__(self, router: Router, *, remembers: bool = False) -> None:
        self.router = router
        self.kernel = KernelClassifier((LEFT, RIGHT), remembers=remembers)
        self.left = router.inside(ROUTER, lambda: socket.if_nametoindex(LEFT))

    def hold(self, *rows: CacheRow, check: int = 0) -> None:
        self.router.inside(ROUTER, lambda: self.kernel.open(FlowSet(rows, STAMP, check)))

    def run_all(self, sent: list[bytes]) -> list[int]:
        return self.router.inside(
            ROUTER, lambda: [libbpf.run(self.kernel.program, frame, self.left)[0] for frame in sent]
        )

    def counts(self) -> dict[int, int]:
        found = self.router.inside(ROUTER, self.kernel.read_counters)
        return dict(zip(found.cookie.tolist(), found.packets.tolist(), strict=True))


@pytest.fixture(scope="module")
def router(layout: Layout) -> Iterator[Router]:
    with Router(layout.prefix) as router:
        yield router


@pytest.fixture(params=[False, True], ids=["searches", "remembers"])
def bench(router: Router, request: pytest.FixtureRequest) -> Iterator[Bench]:
    made = Bench(router, remembers=request.param)
    yield made
    router.inside(ROUTER, made.kernel.detach)


def answers_as_rows_say(bench: Bench) -> None:
    answers = set()

    @some
    @given(row_lists(20).filter(bool), st.data())
    def compare(rows: tuple[CacheRow, ...], data: st.DataObject) -> None:
        near = data.draw(st.lists(packets_near(rows), min_size=20, max_size=20))
        sent = {packet: framed(packet) for packet in near if expressible(packet)}
        bench.hold(*rows)
        found = dict(zip(sent, bench.run_all(list(sent.values())), strict=True))
        assert found == {packet: expected(rows, packet) for packet in sent}
        assert bench.run_all(list(sent.values())) == list(found.values())
        answers.update(found.values())

    compare()
    assert answers == {SLOW_PATH, DROP, REDIRECT}


def thousands(base: int) -> tuple[CacheRow, ...]:
    """A row for each address, in reverse, every other one a deny, and a row for all behind them."""
    port, everybody = Span(0, 65535), Span(0, 0xFFFFFFFF)
    one = [
        CacheRow(Family.IPV4, everybody, Span(base + at, base + at), port, port, Span(0, 255), (0, 0),
                 Verdict.DENY if at % 2 else Verdict.PERMIT, (1 + at,))
        for at in reversed(range(10_000))
    ]  # fmt: skip
    last = CacheRow(Family.IPV4, everybody, everybody, port, port, Span(0, 255), (0, 0), Verdict.DENY, (20_000,))
    return (*one, last)


def finds_among_thousands(bench: Bench) -> None:
    base = 0xC6000000
    bench.hold(*thousands(base))
    places = (0, 1, 63, 64, 4095, 4096, 9998, 9999, 10_000)
    packets = [Packet(Family.IPV4, 0xC0000201, base + place, 17, 1, 2) for place in places]
    before = bench.counts()
    wanted = [DROP if place % 2 or place == 10_000 else REDIRECT for place in places]
    assert bench.run_all([framed(packet) for packet in packets]) == wanted
    after = bench.counts()
    grown = {cookie for cookie, count in after.items() if count > before.get(cookie, 0)}
    assert grown == {*(1 + place for place in places[:-1]), 20_000}


def is_odd(packet: Packet) -> bool:
    """Of IPv6, and nothing that the program looks into: a word between neighbours, or no upper layer."""
    neighbourly = packet.protocol == ICMPV6 and 130 <= packet.icmp_type <= 137
    return packet.family is Family.IPV6 and (neighbourly or packet.protocol in _NOT_LOOKED_INTO)


def silent(policy: Policy) -> Policy:
    """The same without rules that log, whose packets the program leaves to the tables."""

    def silenced(rules: Sequence[Rule]) -> tuple[Rule, ...]:
        return tuple(replace(rule, log=False) for rule in rules)

    tenants = (replace(each, acl=replace(each.acl, rules=silenced(each.acl.rules))) for each in policy.tenants)
    return replace(policy, tenants=tuple(tenants), operator=silenced(policy.operator))


def agrees_with_the_oracle(bench: Bench) -> None:
    @fewer
    @given(policies(max_tenants=2, max_rules=6))
    def compare(drawn: Policy) -> None:
        policy = silent(drawn)
        lists = [tenant_lists(tenant, ReturnTraffic.EXPLICIT)[1] for tenant in policy.tenants]
        rows = [row for each in lists for row in general_rows(operator_list(policy), each)]
        bench.hold(*sorted(rows, key=lambda row: row.family))
        share = Share(frozenset(tenant.id for tenant in policy.tenants))
        packets = [each for each in policy_packets(policy) if carried(each) and expressible(each)]
        answers = bench.run_all([framed(packet) for packet in packets])
        for packet, answer in zip(packets, answers, strict=True):
            if answer == SLOW_PATH:
                owners = [tenant for tenant in policy.tenants if tenant.owns(packet.family, packet.destination)]
                owned = any(not hangs_on_dscp(policy, tenant, packet) for tenant in owners)
                assert packet.later_fragment or not unicast(packet) or not owned or is_odd(packet), packet
            else:
                wanted = verdict(policy, share, packet).fate
                assert answer == {Fate.PERMIT: REDIRECT, Fate.DROP: DROP}[wanted], packet

    compare()


def leaves_what_is_not_plain(bench: Bench) -> None:
    everywhere = tuple(
        CacheRow(family, Span(0, (1 << family.bits) - 1), Span(0, (1 << family.bits) - 1), Span(0, 65535),
                 Span(0, 65535), Span(0, 255), (0, 0), Verdict.DENY)
        for family in Family
    )  # fmt: skip
    bench.hold(*everywhere)
    for name, craft in PLAIN.items():
        assert bench.run_all([craft()]) == [DROP], name
    for name, craft in NOT_PLAIN.items():
        assert bench.run_all([craft()]) == [SLOW_PATH], name


SUITE: tuple[Callable[[Bench], None], ...] = (
    finds_among_thousands, leaves_what_is_not_plain, agrees_with_the_oracle, answers_as_rows_say
)  # fmt: skip


@pytest.mark.parametrize("part", SUITE, ids=lambda part: part.__name__)
def test_the_program(bench: Bench, part: Callable[[Bench], None]) -> None:
    part(bench)


def test_closed_it_decides_nothing_and_opened_it_is_read_back(bench: Bench) -> None:
    rows = thousands(0xC6000000)[-3:]
    bench.hold(*rows)
    bench.hold(*rows[:2])
    assert bench.router.inside(ROUTER, bench.kernel.read) == FlowSet(rows[:2], STAMP, 0)
    bench.router.inside(ROUTER, bench.kernel.close)
    assert bench.router.inside(ROUTER, bench.kernel.read) is None
    assert bench.run_all([craft() for craft in PLAIN.values()]) == [SLOW_PATH] * len(PLAIN)


def test_where_legs_are_declared_sources_of_both_versions_are_asked_for(bench: Bench) -> None:
    """As of a flow cache: to whom the way back leads by another leg, the filter decides about, each time."""
    bench.hold(*everything(Verdict.PERMIT), check=BY_LEG)
    for frame, block in ((v4(tcp(F4)), "192.0.2.0/24"), (v6(tcp(F6)), "2001:db8:ffff::/48")):
        assert bench.run_all([frame, frame]) == [SLOW_PATH] * 2
        with configured(bench, "route", "add", block, "dev", LEFT):
            assert bench.run_all([frame, frame]) == [REDIRECT] * 2
        assert bench.run_all([frame]) == [SLOW_PATH]


MUTANTS = {
    "the interval before": ("return table->class[low & (MOST_INTERVALS - 1)]", "return table->class[0]"),
    "the ends of intervals": ("return *left <= *right;", "return *left < *right;"),
    "the class of no port": ("(table)->of[*(value)]", "(table)->of[0]"),
    "half of an address": ("(left->high == right->high && left->low <= right->low)", "left->high == right->high"),
    "an axis not looked at": ("common &= source_port->word[word] & protocol", "common &= protocol"),
    "the wrong word": ("return word * 64", "return (word ^ 1) * 64"),
    "one word of four not looked at": (" |\n\t\t\t      OF_DESTINATION(first + 3)", ""),
    "a summary that is not asked to the end": ("part < SUMMARY", "part < 2"),
    "flags not looked at": ("(__u16)p->protocol << 8 | p->flags", "(__u16)p->protocol << 8"),
    "the other half": ("set->half * VECTORS", "(1 - set->half) * VECTORS"),
    "an old set's flows": ("known && known->serial == set->serial", "known"),
    "outcomes of the other version": ("set->half * 2 + place", "set->half * 2"),
}  # fmt: skip


def whole_suite(bench: Bench) -> None:
    for part in SUITE:
        part(bench)


@pytest.mark.long
@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_is_noticed(router: Router, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    mutant = built(tmp_path, *MUTANTS[name], program="classifier")
    monkeypatch.setattr(classifier, "OBJECT", mutant)
    bench = Bench(router, remembers=True)
    try:
        with pytest.raises(AssertionError):
            whole_suite(bench)
    finally:
        router.inside(ROUTER, bench.kernel.detach)
