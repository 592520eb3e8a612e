"""A policy compiled for a flow cache, and the law that it must obey.

The law: what the cache decides of a packet, the oracle decides too, and the cache counts it for whom the packet filter
would have counted it; all else it leaves alone, and so it does what a rule that logs decides, and
what the packet filter limits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from compiled_filter import carried, counted_under, limits, logs

from orchestrator.compile.cookies import Cookie
from orchestrator.compile.filters.cacherows import CacheRow, Verdict
from orchestrator.compile.filters.filterrows import comment
from orchestrator.placement.lifting import LiftedRule
from orchestrator.policy.model import Packet, Policy
from orchestrator.policy.oracle import decide


def every_rule(policy: Policy) -> list[LiftedRule]:
    return [LiftedRule(tenant.id, rule.id) for tenant in policy.tenants for rule in tenant.acl.rules]


def first(rows: Iterable[CacheRow], packet: Packet) -> CacheRow | None:
    """The row that decides a packet."""
    return next((row for row in rows if row.holds(packet)), None)


def in_words(cookie: int) -> str:
    """Whom a cookie counts for, as the packet filter's comments say it."""
    found = Cookie.unpack(cookie)
    assert found is not None
    return comment(found.kind, found.number)


def check(policy: Policy, rows: Sequence[CacheRow], packets: Iterable[Packet]) -> None:
    """The law."""
    for packet in filter(carried, packets):
        row = first(rows, packet)
        if row is not None and row.verdict is not Verdict.DEFER:
            decision = decide(policy, packet)
            found = row.verdict is Verdict.PERMIT, [in_words(cookie) for cookie in row.counts]
            assert found == (decision.permitted, counted_under(policy, decision)), packet
            assert not any(logs(policy, step) for step in decision.steps), packet
            assert not limits(decision, packet), packet
