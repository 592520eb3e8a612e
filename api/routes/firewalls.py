"""Firewall VNFs of a domain: hosts that filter with iptables or nftables.

Each has an agent inside.
"""

from __future__ import annotations

from fastapi import APIRouter, Response

from api.answers import answer, answer_write, etag, reply
from api.auth import DomainOwner, DomainReader, TheEnforcer
from api.context import ConditionDep, Limit, NameMarker, NamePath, NumberPath, OnceDep, ServicesDep, log_event
from api.limits import SmallBody
from api.paging import page_after
from api.schemas.firewalls import Load, NewFirewall
from orchestrator.errors import NotFound
from orchestrator.store.records import FirewallSeen, Reply
from orchestrator.store.unit import Unit
from orchestrator.wire.codec import fill
from orchestrator.wire.common import Gone, Page
from orchestrator.wire.firewalls import Firewall, SeenLoad, WrittenFirewall

router = APIRouter(prefix="/v1/domains/{domain}", tags=["firewalls"], route_class=SmallBody)


@router.get("/firewalls", response_model=Page[Firewall])
def list_firewalls(
    _: DomainReader, services: ServicesDep, domain: NamePath, limit: Limit = 100, marker: NameMarker = None
) -> Response:
    """The domain's firewall VNFs by name, with the latest word of their load."""
    found = {seen.firewall.name: seen for seen in services.control.read(lambda unit: unit.firewalls.list(domain))}
    names, following = page_after(list(found), limit, marker)
    return answer(Page(tuple(_seen(found[name]) for name in names), following))


@router.post("/firewalls", status_code=201, response_model=WrittenFirewall)
def add_firewall(
    caller: DomainOwner, services: ServicesDep, domain: NamePath, body: NewFirewall, once: OnceDep
) -> Response:
    """Add a firewall VNF to the domain.

    Refused where it cannot carry what the domain's lists say, with the place of the rule.
    """

    def work(unit: Unit) -> Reply:
        generation = unit.firewalls.add(domain, body.record())
        log_event(unit, caller, "firewall.added", domain, body.model_dump())
        written = WrittenFirewall(name=body.name, plane=body.plane, generation=generation)
        location = f"/v1/domains/{domain}/firewalls/{body.name}"
        return reply(written, generation=generation, tag=etag(body.plane), location=location)

    return answer_write(services.control.carry_out(once.of(caller, work), domain=domain))


@router.get("/firewalls/{firewall}", response_model=Firewall)
def get_firewall(_: DomainReader, services: ServicesDep, domain: NamePath, firewall: NamePath) -> Response:
    """One firewall VNF. Its ETag does not change with its load."""
    seen = services.control.read(lambda unit: _firewall(unit, domain, firewall))
    return answer(_seen(seen), tag=etag(seen.firewall.plane.value))


@router.delete("/firewalls/{firewall}", response_model=Gone)
def remove_firewall(
    caller: DomainOwner, services: ServicesDep, domain: NamePath, firewall: NamePath, condition: ConditionDep
) -> Response:
    """Take a firewall VNF out of the domain, which waits for it no more.

    It goes on as it was last programmed.
    """

    def work(unit: Unit) -> Reply:
        condition.require(etag(_firewall(unit, domain, firewall).firewall.plane.value))
        generation = unit.firewalls.remove(domain, firewall)
        log_event(unit, caller, "firewall.removed", domain, {"name": firewall})
        return reply(Gone(generation), generation=generation)

    return answer_write(services.control.carry_out(work, domain=domain))


@router.put("/enforcers/{enforcer}/load", status_code=204)
def put_load(_: TheEnforcer, services: ServicesDep, domain: NamePath, enforcer: NumberPath, body: Load) -> Response:
    """Take an agent's account of the firewall that bears its name."""

    def work(unit: Unit) -> None:
        name = unit.enforcers.get(enforcer).name
        unit.enforcers.check_hosts(enforcer, (name,), place="path.enforcer")
        unit.firewalls.report_load(enforcer, body.record())

    services.control.write(work, domain=domain)
    return Response(status_code=204)


def _firewall(unit: Unit, domain: str, name: str) -> FirewallSeen:
    found = next((seen for seen in unit.firewalls.list(domain) if seen.firewall.name == name), None)
    if found is None:
        raise NotFound(f"the domain has no firewall '{name}'")
    return found


def _seen(seen: FirewallSeen) -> Firewall:
    has_told = seen.load is not None and seen.reported is not None
    load = fill(SeenLoad, seen.load, reported=seen.reported) if has_told else None
    return fill(Firewall, seen.firewall, plane=seen.firewall.plane.value, load=load)
