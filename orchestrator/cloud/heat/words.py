"""Explain OpenStack's failures to operators, with what to do. Pure."""

from __future__ import annotations

import re

from orchestrator.cloud.heat.api import Quota

_QUOTA = re.compile(
    r"Quota exceeded for (?P<what>[\w ,]+): Requested (?P<more>[\d, ]+), but already used (?P<used>[\d, ]+) of "
    r"(?P<limit>[\d, ]*\d)"
)
_NEUTRON_QUOTA = re.compile(r"Quota exceeded for resources: \[(?P<what>[^\]]*)\]")
_OF_HEAT = re.compile(r"You have reached the maximum (?P<what>[\w ]+ per \w+), (?P<limit>\d+)")
_OVER = (re.compile(r"Quota exceeded", re.IGNORECASE), _OF_HEAT, re.compile(r"quota", re.IGNORECASE))
_NOISE = re.compile(
    r"\s*\((HTTP \d+|Request-ID: [\w-]+)\)|\s*Neutron server returns request_ids: \[[^\]]*\]|^ERROR:\s*|, Code: \d+"
)
_WRAPPING = re.compile(
    r"^(Resource (CREATE|UPDATE|DELETE) failed: |resources[.\w\[\]-]*: "
    r"|[A-Z]\w*(Error|Exception|Request|Client|Failed): |(Forbidden|NotFound|Conflict): )"
)
_LONGEST = 500


def in_words(reason: str) -> str:
    """Explain a reason of Heat's, Nova's or Neutron's: the cause, and what to do."""
    quota = _explain_quota(reason)
    if quota:
        return quota
    if "No valid host was found" in reason:
        return (
            "no host takes it: all are full, or too few are left for servers that must not share one; "
            "add hosts, or choose a smaller flavor or placement: soft-anti-affinity, which counts for a new stack"
        )
    text = _NOISE.sub("", " ".join(reason.split()))
    while (bare := _WRAPPING.sub("", text)) != text:
        text = bare
    return text[:_LONGEST]


def is_over_quota(reason: str) -> bool:
    """Whether it says that more is not allowed."""
    return any(pattern.search(reason) for pattern in _OVER)


def too_little_room(quota: Quota, more: int) -> str | None:
    """Why so many more VNFs do not fit into a quota; None: they do."""
    if quota.limit is None or quota.used + more * quota.each <= quota.limit:
        return None
    fits = max(0, quota.limit - quota.used) // max(quota.each, 1)
    return (
        f"the project may have {quota.limit} {quota.what} and uses {quota.used}; {more} more VNFs take "
        f"{more * quota.each}, so {fits} more fit: ask the cloud's operator for more, or lower the fleet's `most`"
    )


def _explain_quota(reason: str) -> str | None:
    found = _QUOTA.search(reason)
    if found:
        return (
            f"the project's quota of {found['what']} is used up: {found['used']} of {found['limit']}, and "
            f"{found['more']} more was asked for; ask the cloud's operator for more, or lower the fleet's `most`"
        )
    found = _NEUTRON_QUOTA.search(reason)
    if found:
        what = found["what"].replace("'", "")
        return f"the project's network quota of {what}s is used up: ask the cloud's operator for more"
    found = _OF_HEAT.search(reason)
    if found:
        return f"Heat allows a {found['what'].split()[-1]} at most {found['limit']} {found['what'].split(' per ')[0]}"
    return None
