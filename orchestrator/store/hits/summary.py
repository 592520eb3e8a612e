"""What a whole list decided, in a few numbers: for dashboards, which ask every few seconds and by the dozen.

A list of 20,000 rules is summed up as columns, so that a summary costs about as much as reading the counts does; what
each rule decided is in `rules.py`.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.policy.model import Action
from orchestrator.policy.numbers import RuleNumbers
from orchestrator.program.counts import U64, Counts
from orchestrator.program.program import Tier
from orchestrator.store.acls import rows as aclrows
from orchestrator.store.hits.history import HitHistory, Resolution
from orchestrator.store.records import AclRecord
from orchestrator.store.sql.keys import from_micros, to_micros
from orchestrator.store.transaction import Transaction


@dataclass(frozen=True, slots=True)
class VerdictStretch:
    """Packets of a stretch of time, by their fate."""

    start: dt.datetime
    permitted: int
    denied: int


@dataclass(frozen=True, slots=True)
class HitSummary:
    """What a list decided: packets by their fate, return traffic and defaults among them, in all and over time.

    `unused` of `rules` rules decided nothing so far; `busiest` are rule ids with their packets, most first.
    """

    permitted: int
    denied: int
    rules: int
    unused: int
    busiest: tuple[tuple[str, int], ...]
    history: tuple[VerdictStretch, ...]


class HitSummaries:
    """The repository of summaries."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def of(
        self, tenant: str, *, top: int, resolution: Resolution, since: dt.datetime, tier: Tier = Tier.HOST
    ) -> HitSummary:
        """Sum a tenant's current list up, with its `top` busiest rules. Raises NotFound."""
        owner = self._tx.tenant(tenant)
        record = aclrows.load(self._tx, owner, owner.acl_version).record
        history = HitHistory(self._tx, owner.domain)
        columns = _Columns.of(record, owner.number, tier)
        packets, permits = history.totals(columns.cookies).packets, columns.permits
        of_rules = packets[: len(record.acl.rules)]
        first = np.argsort(-of_rules, kind="stable")[:top].tolist()
        return HitSummary(
            permitted=int(packets[permits].sum()),
            denied=int(packets[~permits].sum()),
            rules=len(of_rules),
            unused=int((of_rules == 0).sum()),
            busiest=tuple((record.acl.rules[row].id, int(of_rules[row])) for row in first if of_rules[row]),
            history=tuple(
                columns.stretch(stretch.start, stretch.counts)
                for stretch in history.stretches(resolution, to_micros(since))
            ),
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Columns:
    """The cookies of a list's rules in their order and of its ends, and which permit; the same by ascending cookie."""

    cookies: U64
    permits: npt.NDArray[np.bool_]
    ascending: U64
    ascending_permits: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, record: AclRecord, tenant: int, tier: Tier) -> _Columns:
        acl, numbers = record.acl, record.numbers
        if isinstance(numbers, RuleNumbers):
            numbers = numbers.as_dict()
        ends = {
            Kind.INGRESS_DEFAULT: acl.ingress_default,
            Kind.EGRESS_DEFAULT: acl.egress_default,
            Kind.INGRESS_RETURN: Action.PERMIT,
            Kind.EGRESS_RETURN: Action.PERMIT,
        }
        rules: U64 = np.array([numbers[rule.id] for rule in acl.rules], np.uint64) | np.uint64(
            Cookie(tier, Kind.RULE).pack()
        )
        cookies = np.concatenate([rules, np.array([Cookie(tier, kind, tenant).pack() for kind in ends], np.uint64)])
        actions = [*(rule.action for rule in acl.rules), *ends.values()]
        permits = np.array([action is Action.PERMIT for action in actions], bool)
        order = np.argsort(cookies)
        return cls(cookies, permits, cookies[order], permits[order])

    def stretch(self, start: int, counts: Counts) -> VerdictStretch:
        """What the list decided in a stretch of a domain's counts: looked for by what moved, which is little."""
        place = np.minimum(np.searchsorted(self.ascending, counts.cookie), len(self.ascending) - 1)
        mine = self.ascending[place] == counts.cookie
        packets, permits = counts.packets[mine], self.ascending_permits[place[mine]]
        return VerdictStretch(from_micros(start), int(packets[permits].sum()), int(packets[~permits].sum()))
