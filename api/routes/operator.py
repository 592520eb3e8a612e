"""The operator's rules, which stand above all tenants of a domain."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from api.answers import answer, etag, reply
from api.auth import Administrator
from api.context import ConditionDep, NamePath, RawBody, ServicesDep, log_event, seen_from, takes
from api.lean import Lean
from api.proposing import change_operator_rules
from api.schemas.domains import OperatorRulesDocument
from orchestrator.errors import BadInput
from orchestrator.policy.formats.json_text import json_document
from orchestrator.policy.formats.native import rule_from_json, rule_to_json
from orchestrator.policy.model import Rule
from orchestrator.store.records import Reply
from orchestrator.store.unit import Unit
from orchestrator.wire.common import Written

router = APIRouter(prefix="/v1/domains/{domain}/operator-rules", tags=["domains"], route_class=Lean)


@router.get("", response_model=OperatorRulesDocument)
def get_rules(_: Administrator, services: ServicesDep, domain: NamePath, request: Request) -> Response:
    """The rules, in order."""
    found = services.control.read(lambda unit: unit.domains.operator_rules(domain))
    body = {"rules": [rule_to_json(rule) for rule in found.rules]}
    return answer(body, tag=etag(found.version), request=request)


@router.put("", response_model=Written, responses={202: {"model": Written}}, openapi_extra=takes(OperatorRulesDocument))
def set_rules(
    caller: Administrator, services: ServicesDep, domain: NamePath, condition: ConditionDep, raw: RawBody
) -> Response:
    """Make these the rules."""
    rules = _rules(json_document(raw))

    def work(unit: Unit) -> Reply:
        condition.require(etag(unit.domains.operator_rules(domain).version))
        change = unit.domains.set_operator_rules(domain, rules)
        if change.changed:
            detail = {"version": change.version, "generation": change.generation, "rules": len(rules)}
            log_event(unit, caller, "operator-rules.replaced", domain, detail)
        written = Written(version=change.version, generation=change.generation, changed=change.changed)
        return reply(written, generation=change.generation, tag=etag(change.version))

    with seen_from("operator"):
        return change_operator_rules(services, caller, domain, work)


def _rules(document: object) -> list[Rule]:
    if not isinstance(document, dict) or set(document) != {"rules"} or not isinstance(document["rules"], list):
        raise BadInput('operator rules are an object {"rules": [...]} and nothing else', place="body")
    return [rule_from_json(rule, f"rules[{index}]") for index, rule in enumerate(document["rules"])]
