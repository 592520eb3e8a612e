"""Answer a dry run's questions in the workbench's processes.

The list comes as it was sent, as text in the native form, and is read there: once in a process for all questions
that are asked about it. Each raises BadInput, and BadPolicy where the list names what is not the tenant's
(`checks.own`).
"""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Collection
from dataclasses import dataclass

from orchestrator.compile.cost import cost
from orchestrator.compile.filters.filtercost import firewall_cost
from orchestrator.control.judging import Told, findings_then
from orchestrator.control.workbench import read_list
from orchestrator.errors import TooLarge
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.difference import Difference, difference
from orchestrator.policy.findings import Checks, Subject, soon_over
from orchestrator.policy.model import Acl, Rule
from orchestrator.policy.ownership import check_ownership
from orchestrator.wire.costs import Cost, FirewallCost


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
    """Return its cost to a switch and a ternary CAM.

    Raises TooLarge where it cannot be expanded.
    """
    return cost(_try_list(text, (*checks.own,)), checks.returns)


def tried_firewall_cost(text: bytes, checks: Checks) -> FirewallCost:
    """Return its cost to a firewall VNF.

    Raises TooLarge where it cannot be expanded.
    """
    return firewall_cost(_try_list(text, (*checks.own,)), checks.returns)
