"""Hold tenants' lists to quotas in compiled units before anything is committed.

The unit is a flow entry of the domain's program: a rule of many ports or prefixes is many of them. They are counted by
tenant when a program is first seen, and afterwards by the rows that a change adds and removes.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Mapping

import numpy as np

from orchestrator.compile.cost import cost
from orchestrator.compile.pipelines.host import Table
from orchestrator.errors import TooLarge
from orchestrator.policy.model import Acl
from orchestrator.program.delta import Delta
from orchestrator.program.flows import FlowTable
from orchestrator.program.program import Program
from orchestrator.store.unit import Unit

_LISTS = (Table.EGRESS, Table.INGRESS, Table.ALONE_EGRESS, Table.ALONE_INGRESS)
"""Where the rows of tenants' lists are; rows of their endpoints are elsewhere, and not counted."""
_KEPT = 32
"""Programs of which the counts are remembered."""


class Usage:
    """Counts the flow entries of lists by tenant number. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: OrderedDict[bytes, Mapping[int, int]] = OrderedDict()

    def of(self, program: Program) -> Mapping[int, int]:
        """The flow entries of each tenant of a program."""
        known = self._known_counts(program.digest)
        return known if known is not None else self._keep_counts(program.digest, _count_flows(program.flows))

    def after(self, program: Program, change: Delta | None) -> Mapping[int, int]:
        """Return what each tenant uses after a change."""
        known = self._known_counts(program.digest)
        if known is not None:
            return known
        before = self._known_counts(change.base) if change is not None else None
        if change is None or before is None:
            return self.of(program)
        counts = Counter(before)
        counts.update(_count_flows(change.added))
        counts.subtract(_count_flows(change.removed))
        return self._keep_counts(program.digest, counts)

    def hold(self, unit: Unit, program: Program, change: Delta | None, before: Program | None) -> None:
        """Refuse a change that takes a list over its quota, or further over it.

        Raises TooLarge.

        A list that is over it already, because the quota was made smaller, may change as long as it does not grow.

        `before` is the domain's program without this change; it is asked for where a quota of flow entries is set.
        `change` leads to `program` from the one compiled last.
        """
        for tenant in sorted(unit.changed_lists - unit.reverted_lists):
            quota = unit.tenants.quota(tenant)
            if quota.flows is None:  # nearly always, and then the tenant need not be read as a whole
                continue
            record = unit.tenants.get(tenant)
            if record.domain != program.domain:
                continue
            flows = self.after(program, change).get(record.number, 0)
            was = self.of(before).get(record.number, 0) if before is not None else 0
            if flows > max(quota.flows, was):
                raise _over(tenant, unit.acls.current(tenant).acl, flows, quota.flows)

    def _known_counts(self, digest: bytes) -> Mapping[int, int] | None:
        with self._lock:
            found = self._counts.get(digest)
            if found is not None:
                self._counts.move_to_end(digest)
            return found

    def _keep_counts(self, digest: bytes, counts: Mapping[int, int]) -> Mapping[int, int]:
        with self._lock:
            self._counts[digest] = counts
            while len(self._counts) > _KEPT:
                self._counts.popitem(last=False)
        return counts


def _count_flows(flows: FlowTable) -> Counter[int]:
    of_lists = np.isin(flows.table, _LISTS)
    numbers, counts = np.unique(flows.tenant[of_lists], return_counts=True)
    return Counter(dict(zip(numbers.tolist(), counts.tolist(), strict=True)))


def _over(tenant: str, acl: Acl, flows: int, quota: int) -> TooLarge:
    """The error that names the rule that costs most, and what would make it cheaper."""
    counted = cost(acl)
    index = next((index for index, rule in enumerate(acl.rules) if rule.id == counted.widest_rule), None)
    reason = f"the list would need {flows} flow entries, and the quota is {quota}"
    if index is None:
        return TooLarge(reason, place=f"tenants[{tenant}].acl")
    return TooLarge(
        f"{reason}: rule '{counted.widest_rule}' needs most of them, {counted.widest_rule_flows}. A rule needs one for "
        "each pair of its prefixes and each block of its port ranges (1-65535 is 16 blocks, 0-65535 none): name fewer "
        "prefixes, aligned ranges or `any`",
        place=f"tenants[{tenant}].acl.rules[{index}]",
    )
