"""Sums of permitted and denied packets over a whole list, for dashboards.

Dashboards ask every few seconds and by the dozen. A list of 20,000 rules is summed up as columns, so that a summary
costs about as much as reading the counts does; counts of each rule are in `rules.py`.

A packet that is permitted passes through several tiers and is counted at each; one that is denied ends where it is. So
the packets that hosts permitted are all that were permitted, but those that they denied are not all: firewall servers
and VNFs drop ahead of them. The edge drops nothing that a list speaks of: a packet that a line of it denies is sent on
(`compile/lifting/edgeheavy.py`).
"""

from __future__ import annotations

import datetime as dt
import enum
from dataclasses import dataclass
from typing import cast

import numpy as np

from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.policy.model import Action
from orchestrator.policy.numbers import RuleNumbers
from orchestrator.program.counts import I64, U64, Counts
from orchestrator.program.program import Tier
from orchestrator.store.acls import rows as aclrows
from orchestrator.store.hits.history import HitHistory, Resolution
from orchestrator.store.records import AclRecord
from orchestrator.store.sql.keys import from_micros, to_micros
from orchestrator.store.transaction import Transaction
from orchestrator.wire.hits import BusyRule, HitSummary, TierWord, VerdictStretch


class _Fate(enum.IntEnum):
    """How a summary counts the packets that a line of a list decides."""

    PERMITTED = 0
    DENIED = 1
    DENIED_AHEAD = 2
    """It ends at a firewall server or VNF, ahead of the hosts."""
    GOES_ON = 3
    """It is permitted ahead of the hosts, which count it again: it counts for nothing here."""


class HitSummaries:
    """The repository of summaries."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def of(
        self, tenant: str, *, top: int, resolution: Resolution, since: dt.datetime, tier: Tier = Tier.HOST
    ) -> HitSummary:
        """Sum a tenant's current list up, with its `top` busiest rules. Raises NotFound.

        Packets dropped ahead of the hosts are told with the host tier; another tier is told alone.
        """
        owner = self._tx.tenant(tenant)
        record = aclrows.load(self._tx, owner, owner.acl_version).record
        history = HitHistory(self._tx, owner.domain)
        columns = _Columns.of(record, owner.number, tier)
        packets = history.totals(columns.cookies).packets
        by_fate = _by_fate(packets, columns.fates)
        of_rules: I64 = columns.by_tier(np.where(columns.fates == _Fate.GOES_ON, 0, packets)).sum(axis=0)
        first = np.argsort(-of_rules, kind="stable")[:top].tolist()
        return HitSummary(
            tier=cast("TierWord", tier.value),
            permitted=by_fate[_Fate.PERMITTED],
            denied=by_fate[_Fate.DENIED],
            denied_ahead=by_fate[_Fate.DENIED_AHEAD],
            rules=len(of_rules),
            unused=int((columns.by_tier(packets).sum(axis=0) == 0).sum()),
            busiest=tuple(BusyRule(record.acl.rules[row].id, int(of_rules[row])) for row in first if of_rules[row]),
            history=tuple(
                columns.stretch(stretch.start, stretch.counts)
                for stretch in history.stretches(resolution, to_micros(since))
            ),
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Columns:
    """The cookies of a list on each tier, and what becomes of their packets.

    `cookies` begins with those of the hosts' tier: of the `rules` rules in their order, then of the defaults and return
    traffic. `ascending` has the same by ascending cookie.
    """

    rules: int
    cookies: U64
    fates: I64
    ascending: U64
    ascending_fates: I64

    @classmethod
    def of(cls, record: AclRecord, tenant: int, tier: Tier) -> _Columns:
        """Return the cookies of a list and its ends on a tier."""
        acl, numbers = record.acl, record.numbers
        if isinstance(numbers, RuleNumbers):
            numbers = numbers.as_dict()
        ends = {
            Kind.INGRESS_DEFAULT: acl.ingress_default,
            Kind.EGRESS_DEFAULT: acl.egress_default,
            Kind.INGRESS_RETURN: Action.PERMIT,
            Kind.EGRESS_RETURN: Action.PERMIT,
        }
        of_rules: U64 = np.array([numbers[rule.id] for rule in acl.rules], np.uint64)
        actions = [*(rule.action for rule in acl.rules), *ends.values()]
        permits = np.array([action is Action.PERMIT for action in actions], bool)
        cookies, fates = [], []
        for each, permitted, denied in _TIERS[tier]:
            rules: U64 = of_rules | np.uint64(Cookie(each, Kind.RULE).pack())
            cookies += [rules, np.array([Cookie(each, kind, tenant).pack() for kind in ends], np.uint64)]
            fates.append(np.where(permits, permitted, denied))
        all_cookies, all_fates = np.concatenate(cookies), np.concatenate(fates)
        order = np.argsort(all_cookies)
        return cls(len(of_rules), all_cookies, all_fates, all_cookies[order], all_fates[order])

    def by_tier(self, packets: I64) -> I64:
        """The packets of rules: a row a tier, a column a rule."""
        return packets.reshape(-1, self.rules + _ENDS)[:, : self.rules]

    def stretch(self, start: int, counts: Counts) -> VerdictStretch:
        """Sum up the decisions of the list in a stretch of a domain's counts.

        Cookies are looked up by the counts that moved, because these are few.
        """
        place = np.minimum(np.searchsorted(self.ascending, counts.cookie), len(self.ascending) - 1)
        mine = self.ascending[place] == counts.cookie
        return VerdictStretch(from_micros(start), *_by_fate(counts.packets[mine], self.ascending_fates[place[mine]]))


_ENDS = 4
"""Lines that stand for no rule: two defaults, and return traffic in two directions."""
_HOSTS = (Tier.HOST, _Fate.PERMITTED, _Fate.DENIED)
_AHEAD = (Tier.SERVER, _Fate.GOES_ON, _Fate.DENIED_AHEAD)
_TIERS = {
    Tier.HOST: (_HOSTS, _AHEAD),
    Tier.SERVER: ((Tier.SERVER, _Fate.PERMITTED, _Fate.DENIED),),
    Tier.EDGE: ((Tier.EDGE, _Fate.PERMITTED, _Fate.DENIED),),
}
"""By the tier that is asked about: the tiers that are looked at, and what they do with packets."""


def _by_fate(packets: I64, fates: I64) -> tuple[int, int, int]:
    """Packets permitted, denied, and denied ahead."""
    sums = [int(packets[fates == fate].sum()) for fate in (_Fate.PERMITTED, _Fate.DENIED, _Fate.DENIED_AHEAD)]
    return sums[0], sums[1], sums[2]
