"""The counters of every line of the tenants' lists, read over REST.

Rules, return traffic and defaults alike.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from orchestrator.client.transport import Transport
from orchestrator.policy.model import RETURN_RULE_ID, Direction, Policy, RuleId, TenantId
from orchestrator.policy.oracle import Step

_PAGE = 1000


@dataclass(frozen=True, slots=True)
class Line:
    """A rule, or with `rule` None the default of a direction."""

    tenant: TenantId
    direction: Direction
    rule: RuleId | None

    @classmethod
    def of(cls, step: Step) -> Line:
        """Return the line of a step of the oracle.

        Operator rules belong to nobody; the lab has none.
        """
        assert step.tenant is not None
        assert step.direction is not None
        return cls(step.tenant, step.direction, step.rule)


Counts: TypeAlias = Mapping[Line, int]


def lines_of(policy: Policy) -> tuple[Line, ...]:
    """Every line that can decide something in a policy."""
    ends: tuple[RuleId | None, ...] = (None, RETURN_RULE_ID)
    return tuple(
        line
        for tenant in policy.tenants
        for line in (
            *(Line(tenant.id, rule.direction, rule.id) for rule in tenant.acl.rules),
            *(Line(tenant.id, direction, end) for direction in Direction for end in ends),
        )
    )


def read(service: Transport, lines: Iterable[Line]) -> Counts:
    """The packets that each of these lines has decided so far, on all hosts."""
    found: dict[Line, int] = {}
    for tenant, mine in _group_by_tenant(lines).items():
        path = f"/v1/tenants/{tenant}/acl/hits"
        rules = {item["rule"]: int(item["packets"]) for item in service.pages(path, limit=_PAGE)}
        ends = service.read(path, limit=1)
        for line in mine:
            found[line] = rules[line.rule] if line.rule in rules else int(ends[_end(line)]["packets"])
    return found


def read_until(
    service: Transport, before: Counts, growth: Mapping[Line, int], patience_s: float, pause_s: float = 0.25
) -> Counts:
    """Read until every line has grown enough, or patience ends.

    Switches report every few seconds.
    """
    until = time.monotonic() + patience_s
    while True:
        now = read(service, growth)
        if all(now[line] >= before[line] + more for line, more in growth.items()) or time.monotonic() > until:
            return now
        time.sleep(pause_s)


def _group_by_tenant(lines: Iterable[Line]) -> dict[TenantId, set[Line]]:
    tenants: dict[TenantId, set[Line]] = {}
    for line in lines:
        tenants.setdefault(line.tenant, set()).add(line)
    return tenants


def _end(line: Line) -> str:
    """Return the API's name of a line that is no rule of the tenant's."""
    return f"{line.direction.value}_{'return' if line.rule == RETURN_RULE_ID else 'default'}"
