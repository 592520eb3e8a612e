"""Proposals: changes that another person must approve, and which changes need that."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

import orjson
from fastapi import APIRouter, Path, Response

from api.answers import answer, answer_write, etag, page_of
from api.auth import Administrator, TenantReader, TenantWriter
from api.context import ConditionDep, Limit, NameMarker, NamePath, OnceDep, Services, ServicesDep
from api.limits import SmallBody
from api.proposing import approve, refuse, rules_of, set_approvals
from api.schemas.drafts import ApprovalsPut, ProposedChanges, ProposedRule, Rejection
from api.schemas.inspection import ChangeBody
from orchestrator.errors import NotFound, TooLarge
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.difference import difference, operator_difference
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.model import Acl, ReturnTraffic
from orchestrator.policy.rulechanges import list_changes
from orchestrator.store.proposals import KeptProposal, Scope
from orchestrator.store.records import Reply
from orchestrator.store.unit import Unit
from orchestrator.wire.common import Approvals, Page, Proposal, Written
from orchestrator.wire.costs import WrittenList

ProposalPath = Annotated[str, Path(pattern="^[0-9a-f]{32}$")]

router = APIRouter(prefix="/v1/tenants/{tenant}/proposals", tags=["proposals"], route_class=SmallBody)
domains = APIRouter(prefix="/v1/domains/{domain}", tags=["proposals"], route_class=SmallBody)


def _scope_of_tenant(unit: Unit, tenant: str) -> Scope:
    return Scope(unit.tenants.domain(tenant), tenant)


# ---------------------------------------------------------------------------------------------------- lists


@router.get("", response_model=Page[Proposal])
def list_proposals(
    _: TenantReader, services: ServicesDep, tenant: NamePath, limit: Limit = 100, marker: NameMarker = None
) -> Response:
    """Return the proposals about a tenant's list, newest first.

    Of those that were decided, they are the newest 100.
    """
    found = services.control.read(lambda unit: unit.proposals.list(_scope_of_tenant(unit, tenant)))
    return answer(page_of({each.id: each for each in found}, limit, marker))


@router.get("/{proposal}", response_model=Proposal)
def get_proposal(_: TenantReader, services: ServicesDep, tenant: NamePath, proposal: ProposalPath) -> Response:
    """One proposal."""
    return answer(services.control.read(lambda unit: unit.proposals.get(_scope_of_tenant(unit, tenant), proposal)).seen)


@router.get("/{proposal}/acl", response_model=dict[str, object])
def get_proposed_list(_: TenantReader, services: ServicesDep, tenant: NamePath, proposal: ProposalPath) -> Response:
    """The list that is proposed, in the native form. Raises 409 once it was decided."""
    found = services.control.read(lambda unit: unit.proposals.open(_scope_of_tenant(unit, tenant), proposal))
    return Response(found.body.encode(), media_type="application/json")


@router.get("/{proposal}/difference", response_model=ProposedChanges)
async def compare_proposal(
    _: TenantReader, services: ServicesDep, tenant: NamePath, proposal: ProposalPath
) -> Response:
    """Return the difference between an open proposal and the current list.

    It is in rules and in packets.
    """
    return await services.questions.answer_in_turn(tenant, lambda: answer(_list_changes(services, tenant, proposal)))


@router.post("/{proposal}/approval", response_model=WrittenList)
def approve_proposal(
    caller: TenantWriter, services: ServicesDep, tenant: NamePath, proposal: ProposalPath, once: OnceDep
) -> Response:
    """Approve a proposal: the list becomes what it says.

    Another person than its author must do it.
    """
    work = once.of(caller, lambda unit: approve(unit, caller, _scope_of_tenant(unit, tenant), proposal))
    return answer_write(services.control.carry_out(work, payer=tenant))


@router.post("/{proposal}/rejection", response_model=Proposal)
def reject_proposal(
    caller: TenantWriter,
    services: ServicesDep,
    tenant: NamePath,
    proposal: ProposalPath,
    body: Rejection,
    once: OnceDep,
) -> Response:
    """Reject a proposal: nothing of it happens."""
    work = once.of(
        caller, lambda unit: refuse(unit, caller, _scope_of_tenant(unit, tenant), proposal, "rejected", body.reason)
    )
    return answer_write(services.control.carry_out(work, tenant=tenant))


@router.post("/{proposal}/withdrawal", response_model=Proposal)
def withdraw_proposal(
    caller: TenantWriter, services: ServicesDep, tenant: NamePath, proposal: ProposalPath, once: OnceDep
) -> Response:
    """Take one's own proposal back."""
    work = once.of(caller, lambda unit: refuse(unit, caller, _scope_of_tenant(unit, tenant), proposal, "withdrawn", ""))
    return answer_write(services.control.carry_out(work, tenant=tenant))


# ---------------------------------------------------------------------------------------------------- domains


@domains.get("/approvals", response_model=Approvals)
def get_approvals(_: Administrator, services: ServicesDep, domain: NamePath) -> Response:
    """The changes of a domain that go out only when another person has approved it."""

    def read(unit: Unit) -> tuple[Approvals, int]:
        return unit.proposals.approvals(domain), unit.domains.get(domain).version

    found, version = services.control.read(read)
    return answer(found, tag=etag(version))


@domains.put("/approvals", response_model=Written, responses={202: {"model": Written}})
def put_approvals(
    caller: Administrator, services: ServicesDep, domain: NamePath, body: ApprovalsPut, condition: ConditionDep
) -> Response:
    """Set which changes need the approval of another person.

    A change by which less needs it is itself a proposal.
    """
    wanted = Approvals(operator_rules=body.operator_rules, tenants=tuple(body.tenants))

    def write_approvals(unit: Unit) -> Reply:
        condition.require(etag(unit.domains.get(domain).version))
        return set_approvals(unit, caller, domain, wanted)

    return answer_write(services.control.carry_out(write_approvals, domain=domain))


@domains.get("/proposals", response_model=Page[Proposal])
def list_domain_proposals(
    _: Administrator, services: ServicesDep, domain: NamePath, limit: Limit = 100, marker: NameMarker = None
) -> Response:
    """The proposals about a domain's operator rules and approvals, newest first."""
    found = services.control.read(lambda unit: unit.proposals.list(Scope(domain)))
    return answer(page_of({each.id: each for each in found}, limit, marker))


@domains.get("/proposals/{proposal}", response_model=Proposal)
def get_domain_proposal(_: Administrator, services: ServicesDep, domain: NamePath, proposal: ProposalPath) -> Response:
    """One proposal."""
    return answer(services.control.read(lambda unit: unit.proposals.get(Scope(domain), proposal)).seen)


@domains.get("/proposals/{proposal}/operator-rules", response_model=dict[str, object])
def get_proposed_rules(_: Administrator, services: ServicesDep, domain: NamePath, proposal: ProposalPath) -> Response:
    """Return the operator rules that are proposed.

    Raises 409 once it was decided, 404 where others are proposed.
    """
    found = services.control.read(lambda unit: unit.proposals.open(Scope(domain), proposal))
    if found.seen.kind != "operator-rules":
        raise NotFound(f"proposal '{proposal}' is not about operator rules")
    return Response(found.body.encode(), media_type="application/json")


@domains.get("/proposals/{proposal}/difference", response_model=ProposedChanges)
def compare_domain_proposal(
    _: Administrator, services: ServicesDep, domain: NamePath, proposal: ProposalPath
) -> Response:
    """The change that an open proposal makes to what is in force now."""
    return answer(_domain_changes(services, domain, proposal))


@domains.post("/proposals/{proposal}/approval", response_model=WrittenList)
def approve_domain_proposal(
    caller: Administrator, services: ServicesDep, domain: NamePath, proposal: ProposalPath, once: OnceDep
) -> Response:
    """Approve a proposal. Another person than its author must do it."""
    work = once.of(caller, lambda unit: approve(unit, caller, Scope(domain), proposal))
    return answer_write(services.control.carry_out(work, domain=domain))


@domains.post("/proposals/{proposal}/rejection", response_model=Proposal)
def reject_domain_proposal(
    caller: Administrator,
    services: ServicesDep,
    domain: NamePath,
    proposal: ProposalPath,
    body: Rejection,
    once: OnceDep,
) -> Response:
    """Reject a proposal: nothing of it happens."""
    work = once.of(caller, lambda unit: refuse(unit, caller, Scope(domain), proposal, "rejected", body.reason))
    return answer_write(services.control.carry_out(work, domain=domain))


@domains.post("/proposals/{proposal}/withdrawal", response_model=Proposal)
def withdraw_domain_proposal(
    caller: Administrator, services: ServicesDep, domain: NamePath, proposal: ProposalPath, once: OnceDep
) -> Response:
    """Take one's own proposal back."""
    work = once.of(caller, lambda unit: refuse(unit, caller, Scope(domain), proposal, "withdrawn", ""))
    return answer_write(services.control.carry_out(work, domain=domain))


# ---------------------------------------------------------------------------------------------------- differences


def _list_changes(services: Services, tenant: str, proposal: str) -> ProposedChanges:
    def read(unit: Unit) -> tuple[Acl, KeptProposal, tuple[Prefix, ...], ReturnTraffic]:
        scope = _scope_of_tenant(unit, tenant)
        returns = unit.domains.get(scope.domain).return_traffic
        found = unit.proposals.open(scope, proposal)
        return unit.acls.current(tenant).acl, found, unit.tenants.get(tenant).prefixes, returns

    current, found, own, returns = services.control.read(read)
    proposed = acl_from_json(orjson.loads(found.body))
    edits = list_changes(current, proposed)
    packets = None
    with suppress(TooLarge):
        found_packets = services.workbench.run(
            services.review_limit_s, difference, current, proposed, own=own, returns=returns
        )
        packets = ChangeBody.all_of(found_packets)
    return ProposedChanges(
        rules=[ProposedRule.of(each) for each in edits.rules],
        groups=list(edits.groups),
        defaults=[way.value for way in edits.defaults],
        packets=packets,
    )


def _domain_changes(services: Services, domain: str, proposal: str) -> ProposedChanges:
    def read(unit: Unit) -> tuple[Acl, KeptProposal, ReturnTraffic]:
        current, returns = Acl(unit.domains.operator_rules(domain).rules), unit.domains.get(domain).return_traffic
        return current, unit.proposals.open(Scope(domain), proposal), returns

    current, found, returns = services.control.read(read)
    if found.seen.kind == "approvals":
        return ProposedChanges(approvals=orjson.loads(found.body), packets=[])
    proposed = Acl(tuple(rules_of(found.body)))
    rules = [ProposedRule.of(each) for each in list_changes(current, proposed).rules]
    try:
        packets = services.workbench.run(services.review_limit_s, operator_difference, current, proposed, returns)
    except TooLarge:
        return ProposedChanges(rules=rules)
    return ProposedChanges(
        rules=rules, packets=ChangeBody.all_of(packets.decided), left=ChangeBody.all_of(packets.left)
    )
