"""Lifted rules of a domain: which are lifted, why, and the operator's wishes.

It also has the settings by which they are chosen.
"""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from api.answers import answer, answer_write, etag, reply
from api.auth import DomainOwner
from api.context import ConditionDep, NamePath, ServicesDep, log_event
from api.limits import SmallBody
from api.schemas.placement import (
    ChoiceBody,
    PlacedRule,
    PlacementBody,
    PlacementChange,
    PlacementSettingsBody,
    Wished,
)
from orchestrator.compile.lifting.lifted import Lifted
from orchestrator.control.promote import Round
from orchestrator.errors import NotFound
from orchestrator.placement.choice import Wish
from orchestrator.placement.lifting import LiftedRule
from orchestrator.policy.model import RuleId, TenantId
from orchestrator.store.placements import Placement
from orchestrator.store.records import Reply
from orchestrator.store.unit import Unit
from orchestrator.wire.common import Gone

router = APIRouter(prefix="/v1/domains/{domain}/placement", tags=["placement"], route_class=SmallBody)


@router.get("", response_model=PlacementBody)
def get_placement(_: DomainOwner, services: ServicesDep, domain: NamePath, request: Request) -> Response:
    """Return the lifted rules: since when, why, in which form, with what saving.

    The ETag is that of the settings.
    """

    def read_placement(unit: Unit) -> PlacementBody:
        rules = _placed_rules(unit, domain, unit.placements.list(domain))
        return PlacementBody.of(unit.placements.settings(domain), rules)

    body = services.control.read(read_placement)
    return answer(body, tag=etag(body.version), request=request)


@router.put("", response_model=PlacementSettingsBody)
def set_placement(
    caller: DomainOwner, services: ServicesDep, domain: NamePath, condition: ConditionDep, body: PlacementChange
) -> Response:
    """Choose differently from now on."""
    settings = body.settings()

    def write_placement(unit: Unit) -> Reply:
        before = unit.placements.settings(domain)
        condition.require(etag(before.version))
        version = unit.placements.set_settings(domain, settings)
        if version != before.version:
            log_event(unit, caller, "placement.settings", domain, body.model_dump())
        return reply(PlacementSettingsBody.of(settings), tag=etag(version))

    return answer_write(services.control.carry_out(write_placement, domain=domain))


@router.post("/try", response_model=ChoiceBody)
def try_placement(
    _: DomainOwner, services: ServicesDep, domain: NamePath, body: PlacementChange | None = None
) -> Response:
    """Try a round of choosing, by these settings or the domain's own. Nothing is changed."""
    settings = body.settings() if body is not None else None
    begun = services.control.read(lambda unit: Round.of(unit, domain))
    return answer(ChoiceBody.of(begun.choice(settings), begun.elapsed_s))


@router.put("/rules/{tenant}/{rule}", response_model=PlacedRule)
def wish(
    caller: DomainOwner, services: ServicesDep, domain: NamePath, tenant: NamePath, rule: NamePath, body: Wished
) -> Response:
    """Pin a rule above its list, or forbid that it is lifted."""
    name = LiftedRule(TenantId(tenant), RuleId(rule))

    def write_wish(unit: Unit) -> Reply:
        placement = unit.placements.wish(domain, name, Wish(body.wish))
        log_event(unit, caller, "placement.wished", domain, {"tenant": tenant, "rule": rule, "wish": body.wish})
        assert placement is not None
        (placed,) = _placed_rules(unit, domain, [placement])
        return reply(placed, generation=unit.domains.get(domain).generation)

    return answer_write(services.control.carry_out(write_wish, domain=domain))


@router.delete("/rules/{tenant}/{rule}", response_model=Gone)
def leave(caller: DomainOwner, services: ServicesDep, domain: NamePath, tenant: NamePath, rule: NamePath) -> Response:
    """Leave a rule to the chooser again."""
    name = LiftedRule(TenantId(tenant), RuleId(rule))

    def remove_wish(unit: Unit) -> Reply:
        if not any(each.rule == name and each.wish for each in unit.placements.list(domain)):
            raise NotFound(f"nothing was wished of '{name}'")
        unit.placements.wish(domain, name, None)
        log_event(unit, caller, "placement.wished", domain, {"tenant": tenant, "rule": rule, "wish": None})
        generation = unit.domains.get(domain).generation
        return reply(Gone(generation), generation=generation)

    return answer_write(services.control.carry_out(remove_wish, domain=domain))


def _placed_rules(unit: Unit, domain: str, placements: tuple[Placement, ...] | list[Placement]) -> list[PlacedRule]:
    """Placements with the forms that they take in the policy as it is now."""
    wanted = [each.rule for each in placements if each.wanted]
    lifts = {lift.rule: lift for lift in Lifted.of(wanted, unit.domains.policy(domain).policy).lifts} if wanted else {}
    return [PlacedRule.of(each, lifts.get(each.rule)) for each in placements]
