"""Changes that another person must approve: propose them, and carry them out when approved.

    PUT, rules, groups, restore ──▶ carry out ──▶ 200
                                    │ ApprovalNeeded
                                    ▼
                                    rehearse: do it, compile, prove, undo ──▶ keep what would be so ──▶ 202

A proposal holds the whole result, not the request: what is approved is what was shown. So it can be carried out from
the version alone that it was made from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

import orjson
from fastapi import Response

from api.answers import answer_write, etag, reply
from api.context import Once, Services, Writing, author, log_event
from orchestrator.compile.cost import cost
from orchestrator.compile.estimate import Estimate
from orchestrator.control.expecting import broken_by, refuse_broken
from orchestrator.errors import ApprovalNeeded, BadInput, Forbidden, NotFound, Stale, TooLarge
from orchestrator.policy.formats.native import acl_from_json, acl_text, rule_from_json, rule_to_json
from orchestrator.policy.model import Rule
from orchestrator.store.proposals import KeptProposal, NewProposal, Scope
from orchestrator.store.records import Change, Principal, Reply
from orchestrator.store.unit import Unit
from orchestrator.wire.codec import decode, encode
from orchestrator.wire.common import Approvals, Proposal, ProposalKind, Written
from orchestrator.wire.costs import WrittenList

Work = Callable[[Unit], Reply]
Refused = Literal["rejected", "withdrawn"]
PROPOSED: dict[int | str, dict[str, Any]] = {202: {"model": WrittenList}}
"""The description of an answer with a proposal, for OpenAPI."""
_NOTHING_ASKED = Writing(cost=False, comment="", despite=False, confirm_s=None)


def written_list(unit: Unit, tenant: str, change: Change, writing: Writing) -> WrittenList:
    """Check a list's change against expectations, keep its comment and deadline, and answer it.

    Raises BadPolicy for a change that breaks an expectation, BadInput for a comment that is not one line, TooLarge
    where the cost is asked for and cannot be expanded.
    """
    if change.changed and writing.despite:
        with suppress(BadInput, TooLarge):
            broken = [each.expectation.text for each in broken_by(unit, tenant, change.version)]
            if broken:
                unit.events.append("expectations.broken", tenant, {"version": change.version, "expectations": broken})
    elif change.changed:
        refuse_broken(unit, tenant, change.version)
    if writing.comment and change.changed:
        unit.acls.set_comment(tenant, change.version, writing.comment)
    deadline = None
    if writing.confirm_s is not None and change.changed:
        deadline = unit.acls.await_confirmation(tenant, change.version - 1, writing.confirm_s)
    told = None
    if writing.cost:
        returns = unit.domains.get(unit.tenants.get(tenant).domain).return_traffic
        told = cost(unit.acls.current(tenant).acl, returns)
    return WrittenList(
        version=change.version, generation=change.generation, changed=change.changed, cost=told, confirm_by=deadline
    )


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The state that a proposed change would make, in its native form.

    `base_version` is the version that it was made from.
    """

    base_version: int
    body: str
    domain: str
    generation: int


def change_list(
    services: Services,
    caller: Principal,
    tenant: str,
    work: Work,
    writing: Writing,
    once: Once | None = None,
    *,
    puts: Estimate | None = None,
) -> Response:
    """Carry out a change of a tenant's list, or propose it for approval.

    It is proposed where another person must approve it.
    """
    asked = work if once is None else once.of(caller, work)
    control = services.control
    try:
        return answer_write(control.carry_out(asked, payer=tenant, puts=puts))
    except ApprovalNeeded:
        found = control.rehearse(lambda unit: _list_outcome(unit, tenant, work), payer=tenant, puts=puts)
    scope = Scope(found.domain, tenant)

    def propose(unit: Unit) -> Reply:
        _check_base(found, unit.acls.version(tenant))
        return _keep_proposal(unit, caller, scope, "list", found, writing)

    return answer_write(services.control.carry_out(propose if once is None else once.of(caller, propose), payer=tenant))


def change_operator_rules(services: Services, caller: Principal, domain: str, work: Work) -> Response:
    """Carry out a change of a domain's operator rules, or propose it for approval.

    It is proposed where another person must approve it.
    """
    try:
        return answer_write(services.control.carry_out(work, domain=domain))
    except ApprovalNeeded:
        found = services.control.rehearse(lambda unit: _try_rules_change(unit, domain, work), domain=domain)

    def propose(unit: Unit) -> Reply:
        _check_base(found, unit.domains.operator_rules(domain).version)
        return _keep_proposal(unit, caller, Scope(domain), "operator-rules", found, _NOTHING_ASKED)

    return answer_write(services.control.carry_out(propose, domain=domain))


def set_approvals(unit: Unit, caller: Principal, domain: str, wanted: Approvals) -> Reply:
    """Set which changes need approval, or propose that where it removes any.

    A proposal has all of `wanted`.
    """
    before, version = unit.proposals.approvals(domain), unit.domains.get(domain).version
    wanted = replace(wanted, tenants=tuple(sorted({*wanted.tenants})))
    gives_up = (before.operator_rules and not wanted.operator_rules) or not {*before.tenants} <= {*wanted.tenants}
    if gives_up:
        generation = unit.domains.get(domain).generation
        found = _Outcome(version, encode(wanted).decode(), domain, generation)
        return _keep_proposal(unit, caller, Scope(domain), "approvals", found, _NOTHING_ASKED)
    if unit.proposals.set_approvals(domain, wanted):
        log_event(unit, caller, "approvals.changed", domain, _describe_marks(wanted))
    record = unit.domains.get(domain)
    written = Written(version=record.version, generation=record.generation, changed=before != wanted)
    return reply(written, tag=etag(record.version))


def approve(unit: Unit, caller: Principal, scope: Scope, proposal: str) -> Reply:
    """Carry out what was proposed, by another person's word.

    Raises NotFound, Forbidden for the person that proposed it, Conflict where it was decided or has ended, Stale where
    the base has moved, and what the change itself raises.
    """
    found = unit.proposals.open(scope, proposal)
    approver = unit.tokens.bearing(caller.token_id)
    if found.bearing.is_of(approver):
        raise Forbidden(
            f"this token is of '{approver.person}'{_describe_maker(approver.maker)}, and the proposal is by a token of "
            f"'{found.bearing.person}'{_describe_maker(found.bearing.maker)}: another person must approve it"
        )
    if found.seen.has_moved:
        raise Stale(
            f"it was made from version {found.seen.base_version}, and there is a newer one: it cannot be carried out; "
            "propose it anew"
        )
    unit.proposals.decide(scope, proposal, "approved", by=author(caller), by_name=caller.description)
    detail = {"proposal": proposal, "author": found.seen.author, "sha256": found.seen.digest}
    subject = scope.tenant or scope.domain
    log_event(unit, caller, _name_event("approved", scope), subject, detail)
    return _CARRY_OUT[found.seen.kind](unit, caller, scope, found)


def refuse(unit: Unit, caller: Principal, scope: Scope, proposal: str, state: Refused, reason: str) -> Reply:
    """Decide against a proposal: its author withdraws it, anybody else rejects it. Raises NotFound, Conflict."""
    found = unit.proposals.open(scope, proposal)
    if state == "withdrawn" and not found.bearing.is_of(unit.tokens.bearing(caller.token_id)):
        raise Forbidden("only its author withdraws a proposal: others reject it")
    by, name = author(caller), caller.description
    decided = unit.proposals.decide(scope, proposal, state, by=by, by_name=name, reason=reason)
    detail = {"proposal": proposal, "author": found.seen.author, "reason": reason}
    log_event(unit, caller, _name_event(state, scope), scope.tenant or scope.domain, detail)
    return reply(decided)


def rules_of(body: str) -> Sequence[Rule]:
    """The operator rules of a proposal."""
    return tuple(rule_from_json(rule, f"rules[{index}]") for index, rule in enumerate(orjson.loads(body)["rules"]))


# ---------------------------------------------------------------------------------------------------- proposing


def _list_outcome(unit: Unit, tenant: str, work: Work) -> _Outcome:
    """The list that a change makes: for a rehearsal, which is undone."""
    base = unit.acls.version(tenant)
    domain = unit.tenants.domain(tenant)
    generation = unit.domains.get(domain).generation
    work(unit)
    return _Outcome(base, acl_text(unit.acls.current(tenant).acl).decode(), domain, generation)


def _try_rules_change(unit: Unit, domain: str, work: Work) -> _Outcome:
    base, generation = unit.domains.operator_rules(domain).version, unit.domains.get(domain).generation
    work(unit)
    rules = [rule_to_json(rule) for rule in unit.domains.operator_rules(domain).rules]
    return _Outcome(base, orjson.dumps({"rules": rules}).decode(), domain, generation)


def _check_base(found: _Outcome, version: int) -> None:
    if found.base_version != version:
        raise Stale(f"it is at version {version} now: read it again, then write")


def _keep_proposal(
    unit: Unit, caller: Principal, scope: Scope, kind: ProposalKind, found: _Outcome, writing: Writing
) -> Reply:
    """Keep a change as a proposal, and answer that."""
    made = unit.proposals.add(
        scope,
        NewProposal(
            kind,
            found.body,
            found.base_version,
            author(caller),
            unit.tokens.bearing(caller.token_id),
            writing.comment,
            writing.despite,
            writing.confirm_s,
        ),
    )
    detail = {"proposal": made.id, "kind": kind, "base_version": made.base_version, "sha256": made.digest}
    log_event(unit, caller, _name_event("made", scope), scope.tenant or scope.domain, detail)
    body = WrittenList(version=found.base_version, generation=found.generation, changed=False, proposal=made)
    return Reply(202, {"Location": path_of(scope, made.id)}, encode(body))


def path_of(scope: Scope, proposal: str) -> str:
    """The path of a proposal."""
    about = f"domains/{scope.domain}" if scope.tenant is None else f"tenants/{scope.tenant}"
    return f"/v1/{about}/proposals/{proposal}"


def _name_event(what: str, scope: Scope) -> str:
    return f"proposal.{what}" if scope.tenant is not None else f"domain-proposal.{what}"


def _describe_maker(maker: str | None) -> str:
    return "" if maker is None else f", made by '{maker}'"


# ---------------------------------------------------------------------------------------------------- carrying out


def _carry_out_list(unit: Unit, caller: Principal, scope: Scope, found: KeptProposal) -> Reply:
    """Replace a tenant's list as proposed, in the name of both persons."""
    assert scope.tenant is not None
    acl, seen = acl_from_json(orjson.loads(found.body)), found.seen
    change = unit.acls.replace(scope.tenant, acl, author=seen.author, approved=True)
    if change.changed:
        detail = {
            "version": change.version,
            "generation": change.generation,
            "rules": len(acl.rules),
            **_name_both_persons(seen, caller),
        }
        log_event(unit, caller, "acl.replaced", scope.tenant, detail)
    asked = Writing(cost=False, comment=seen.comment, despite=found.despite, confirm_s=seen.confirm_s)
    body = written_list(unit, scope.tenant, change, asked)
    return reply(body, generation=change.generation, tag=etag(change.version))


def _carry_out_rules(unit: Unit, caller: Principal, scope: Scope, found: KeptProposal) -> Reply:
    rules = rules_of(found.body)
    change = unit.domains.set_operator_rules(scope.domain, rules, approved=True)
    if change.changed:
        detail = {"version": change.version, "generation": change.generation, "rules": len(rules)}
        log_event(
            unit, caller, "operator-rules.replaced", scope.domain, {**detail, **_name_both_persons(found.seen, caller)}
        )
    body = WrittenList(version=change.version, generation=change.generation, changed=change.changed)
    return reply(body, generation=change.generation, tag=etag(change.version))


def _carry_out_approvals(unit: Unit, caller: Principal, scope: Scope, found: KeptProposal) -> Reply:
    wanted = decode(Approvals, orjson.loads(found.body))
    wanted = replace(wanted, tenants=tuple(each for each in wanted.tenants if _has_tenant(unit, each)))
    changed = unit.proposals.set_approvals(scope.domain, wanted)
    log_event(
        unit,
        caller,
        "approvals.changed",
        scope.domain,
        {**_describe_marks(wanted), **_name_both_persons(found.seen, caller)},
    )
    record = unit.domains.get(scope.domain)
    body = WrittenList(version=record.version, generation=record.generation, changed=changed)
    return reply(body, tag=etag(record.version))


def _has_tenant(unit: Unit, tenant: str) -> bool:
    try:
        unit.tenants.get(tenant)
    except NotFound:
        return False
    return True


def _name_both_persons(seen: Proposal, caller: Principal) -> dict[str, object]:
    return {"proposal": seen.id, "proposed_by": seen.author, "approved_by": author(caller)}


def _describe_marks(approvals: Approvals) -> dict[str, object]:
    return {"operator_rules": approvals.operator_rules, "tenants": list(approvals.tenants)}


_CARRY_OUT: dict[ProposalKind, Callable[[Unit, Principal, Scope, KeptProposal], Reply]] = {
    "list": _carry_out_list,
    "operator-rules": _carry_out_rules,
    "approvals": _carry_out_approvals,
}
