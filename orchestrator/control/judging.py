"""Findings on lists that resemble lists judged before, as the workbench remembers them.

Runs in one process of the workbench (`judge`), which is alone in it: nothing here is shared between threads. The memory
only makes it faster; it is told the whole list each time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from itertools import islice

from orchestrator.policy.findings import Checks, Finding, Findings, Kind, Severity, Subject
from orchestrator.policy.model import Acl
from orchestrator.policy.rechecks import Judged, brought, recheck

_MOST = 4
_SAMPLES = 256
"""Of so many rules it is asked whether two lists share them."""


@dataclass(frozen=True, slots=True)
class Told:
    """Some findings on a list, their number, and the waived ones.

    The others do not count those.
    """

    first: tuple[Finding, ...]
    counts: Mapping[Kind, int]
    severities: Mapping[Severity, int]
    waived: tuple[Finding, ...] = ()


class _Memory:
    """The lists judged last: a tenant's present one, and the last one tried."""

    def __init__(self) -> None:
        self._known: OrderedDict[Hashable, Judged] = OrderedDict()

    def findings(self, what: Hashable, near: Hashable, acl: Acl, checks: Checks) -> Findings:
        """Return a list's findings.

        It resembles what was judged under `what`, or `near`, if it was.
        """
        candidates = [self._known[each] for each in (what, near) if each in self._known]
        known = max(candidates, key=lambda each: _count_shared(each.acl, acl), default=None)
        self._known.pop(what, None)
        judged = Judged.of(acl, checks) if known is None else recheck(known, acl, checks)
        self._known[what] = judged
        while len(self._known) > _MOST:
            self._known.popitem(last=False)
        return judged.findings


def _count_shared(known: Acl, acl: Acl) -> int:
    """How many of some rules of a list, taken evenly, another list has as well."""
    rules = {rule.id: rule for rule in known.rules}
    return sum(rules.get(rule.id) == rule for rule in acl.rules[:: len(acl.rules) // _SAMPLES + 1])


_memory = _Memory()


def findings_now(tenant: str, acl: Acl, checks: Checks, most_of_a_kind: int, waived: Collection[Subject] = ()) -> Told:
    """The findings on a tenant's list as it is, the first of each kind."""
    found, without = _find_current(tenant, acl, checks).split(waived)
    first = tuple(each for kind in Kind for each in found.of([kind])[:most_of_a_kind])
    return Told(first, found.counts, found.severities, tuple(without))


def findings_then(
    tenant: str, current: Acl, tried: Acl, checks: Checks, most: int, waived: Collection[Subject] = ()
) -> tuple[Told, Told]:
    """Return the first findings on a tried list, and those that the current one lacks."""
    before = _find_current(tenant, current, checks)
    after, without = _memory.findings((tenant, "tried"), (tenant, "now"), tried, checks).split(waived)
    more = brought(before, after)
    return (
        Told(tuple(islice(after, most)), after.counts, after.severities, tuple(without)),
        Told(tuple(islice(more, most)), more.counts, more.severities),
    )


def _find_current(tenant: str, acl: Acl, checks: Checks) -> Findings:
    return _memory.findings((tenant, "now"), (tenant, "tried"), acl, checks)
