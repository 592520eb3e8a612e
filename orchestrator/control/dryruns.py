"""Answer a dry run's questions in the workbench's processes.

The list comes as it was sent, as text in the native form, and is read there: once in a process for all questions
that are asked about it. Each raises BadInput, and BadPolicy where the list names what is not the tenant's
(`checks.own`).

Findings of lists are remembered, so that lists that resemble one judged before cost little. That memory is in one
process of the workbench (`judge`), which is alone in it: nothing here is shared between threads. It only makes the
answer faster; the whole list is told each time.
"""

from __future__ import annotations

import datetime as dt
import functools
from collections import OrderedDict
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from itertools import islice

from orchestrator.compile.cost import cost
from orchestrator.compile.filters.filtercost import firewall_cost
from orchestrator.control.workbench import read_list
from orchestrator.errors import TooLarge
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.difference import Difference, difference
from orchestrator.policy.findings import Checks, Finding, Findings, Kind, Severity, Subject, soon_over
from orchestrator.policy.model import Acl, Rule
from orchestrator.policy.ownership import check_ownership
from orchestrator.policy.rechecks import Judged, brought, recheck
from orchestrator.wire.costs import Cost, FirewallCost

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


@dataclass(frozen=True, slots=True)
class TriedFindings:
    """A list's findings, the new ones among them, and rules near their end."""

    whole: Told
    brought: Told
    soon: tuple[Rule, ...]


@functools.lru_cache(maxsize=1)
def _try_list(text: bytes, own: tuple[Prefix, ...]) -> Acl:
    acl = read_list(text)
    check_ownership(acl, own)
    return acl


def tried_list(text: bytes, checks: Checks) -> Acl:
    """Return the list of a text in the native form."""
    return _try_list(text, (*checks.own,))


def tried_difference(current: Acl, text: bytes, checks: Checks) -> Difference | None:
    """Return what it permits and denies newly; None if the lists share next to nothing."""
    tried = _try_list(text, (*checks.own,))
    try:
        return difference(current, tried, own=checks.own, returns=checks.returns)
    except TooLarge:
        return None


def tried_findings(
    tenant: str,
    current: Acl,
    text: bytes,
    checks: Checks,
    lead: dt.timedelta,
    most: int,
    waived: Collection[Subject] = (),
) -> TriedFindings:
    """Return its findings and the new ones, `most` of each, and rules ending soon."""
    tried = _try_list(text, (*checks.own,))
    whole, brought = findings_then(tenant, current, tried, checks, most, waived)
    return TriedFindings(whole, brought, soon_over(tried, checks, lead))


def tried_cost(text: bytes, checks: Checks) -> Cost:
    """Return what a tried list would cost a switch and a ternary CAM.

    Raises TooLarge where it cannot be expanded.
    """
    return cost(_try_list(text, (*checks.own,)), checks.returns)


def tried_firewall_cost(text: bytes, checks: Checks) -> FirewallCost:
    """Return its cost to a firewall VNF.

    Raises TooLarge where it cannot be expanded.
    """
    return firewall_cost(_try_list(text, (*checks.own,)), checks.returns)
