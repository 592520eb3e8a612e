"""Edits of tenants' lists, as a service makes them: what stays is the same object."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from orchestrator.policy.model import Action, Tenant


@st.composite
def edits(draw: st.DrawFn, tenant: Tenant) -> Tenant:
    """A tenant with one rule taken out, moved, or with the other action; rules that stay are the same objects."""
    rules = list(tenant.acl.rules)
    if not rules:
        return tenant
    taken = rules.pop(draw(st.integers(0, len(rules) - 1)))
    kind = draw(st.sampled_from(("out", "moved", "other")))
    if kind == "other":
        taken = replace(taken, action=Action.DENY if taken.action is Action.PERMIT else Action.PERMIT)
    if kind != "out":
        rules.insert(draw(st.integers(0, len(rules))), taken)
    return replace(tenant, acl=replace(tenant.acl, rules=tuple(rules)))
