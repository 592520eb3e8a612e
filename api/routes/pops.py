"""Points of presence: their edge switches, the firewall servers behind them, and who serves whom."""

from __future__ import annotations

from fastapi import APIRouter, Response

from api.answers import answer, answer_write, etag, page_of, reply
from api.auth import Administrator, DomainReader
from api.context import ConditionDep, Limit, NameMarker, NamePath, OnceDep, Services, ServicesDep, log_event
from api.limits import SmallBody
from api.schemas.domains import Host
from api.schemas.pops import (
    ChosenBody,
    Moved,
    NewPop,
    NewServerBody,
    PlacesChange,
    PopBody,
    PopLayout,
    RoundBody,
    ServerChange,
    TrafficBody,
    WrittenPop,
    WrittenServer,
    state_of,
)
from orchestrator.control.pops.heavy import choose
from orchestrator.control.pops.traffic import pop_traffic
from orchestrator.store.records import Reply
from orchestrator.store.unit import Unit
from orchestrator.wire.common import Gone, Page
from orchestrator.wire.domains import WrittenHost

router = APIRouter(prefix="/v1/pops", tags=["pops"], route_class=SmallBody)
edges = APIRouter(prefix="/v1/domains/{domain}", tags=["pops"], route_class=SmallBody)


@router.get("", response_model=Page[WrittenPop])
def list_pops(_: Administrator, services: ServicesDep, limit: Limit = 100, marker: NameMarker = None) -> Response:
    """Every PoP, with its domain's generation."""

    def read_pops(unit: Unit) -> list[WrittenPop]:
        found = unit.pops.list(limit=limit + 1, marker=marker)
        return [
            WrittenPop(name=pop.name, version=pop.version, generation=unit.domains.get(pop.domain).generation)
            for pop in found
        ]

    found = services.control.read(read_pops)
    following = found[limit - 1].name if len(found) > limit else None
    return answer(Page(tuple(found[:limit]), following))


@router.post("", status_code=201, response_model=WrittenPop)
def add_pop(caller: Administrator, services: ServicesDep, body: NewPop, once: OnceDep) -> Response:
    """Create the PoP of a domain.

    Its edge drops everything from outside until it has a firewall server.
    """
    settings = body.settings()

    def add(unit: Unit) -> Reply:
        generation = unit.pops.add(body.name, body.domain, settings)
        log_event(unit, caller, "pop.added", body.domain, body.model_dump())
        written = WrittenPop(name=body.name, version=1, generation=generation)
        return reply(written, generation=generation, tag=etag(1), location=f"/v1/pops/{body.name}")

    return answer_write(services.control.carry_out(once.of(caller, add), domain=body.domain))


@router.get("/{pop}", response_model=PopBody)
def get_pop(_: Administrator, services: ServicesDep, pop: NamePath) -> Response:
    """Return a PoP: its settings, switches and servers, lines and heavy hitters.

    It also says which server serves which tenant.
    """

    def read_pop(unit: Unit) -> PopBody:
        found = unit.pops.get(pop)
        policy = unit.domains.policy(found.domain).policy
        return PopBody.of(found, policy, services.control.edge_report(found.domain))

    body = services.control.read(read_pop)
    return answer(body, tag=etag(body.version))


@router.put("/{pop}", response_model=WrittenPop)
def set_pop(
    caller: Administrator, services: ServicesDep, pop: NamePath, body: PopLayout, condition: ConditionDep
) -> Response:
    """Change the layout of a PoP.

    Refused where chunks, lines or heavy hitters do not fit, with a layout that would.
    """
    settings = body.settings()

    def write_pop(unit: Unit) -> Reply:
        before = unit.pops.get(pop)
        condition.require(etag(before.version))
        generation = unit.pops.set_settings(pop, settings)
        version = unit.pops.get(pop).version
        if version != before.version:
            log_event(unit, caller, "pop.changed", before.domain, {"pop": pop, **body.model_dump()})
        written = WrittenPop(name=pop, version=version, generation=generation)
        return reply(written, generation=generation, tag=etag(version))

    return answer_write(services.control.carry_out(write_pop, domain=_find_domain(services, pop)))


@router.delete("/{pop}", response_model=Gone)
def remove_pop(caller: Administrator, services: ServicesDep, pop: NamePath, condition: ConditionDep) -> Response:
    """Take a PoP away, once it has no edge switches any more."""

    def remove(unit: Unit) -> Reply:
        found = unit.pops.get(pop)
        condition.require(etag(found.version))
        generation = unit.pops.remove(pop)
        log_event(unit, caller, "pop.removed", found.domain, {"pop": pop})
        return reply(Gone(generation), generation=generation)

    return answer_write(services.control.carry_out(remove, domain=_find_domain(services, pop)))


@router.post("/{pop}/edges", status_code=201, response_model=WrittenHost)
def add_edge(caller: Administrator, services: ServicesDep, pop: NamePath, body: Host, once: OnceDep) -> Response:
    """Onboard an edge switch; its uplink leads to the WAN."""

    def add(unit: Unit) -> Reply:
        domain = unit.pops.get(pop).domain
        generation = unit.pops.add_edge(pop, body.record())
        log_event(unit, caller, "pop.edge-added", domain, {"pop": pop, **body.model_dump()})
        written = WrittenHost(**body.model_dump(), generation=generation)
        return reply(written, generation=generation, location=f"/v1/pops/{pop}/edges/{body.name}")

    return answer_write(services.control.carry_out(once.of(caller, add), domain=_find_domain(services, pop)))


@router.delete("/{pop}/edges/{edge}", response_model=Gone)
def remove_edge(caller: Administrator, services: ServicesDep, pop: NamePath, edge: NamePath) -> Response:
    """Take an edge switch out of the PoP, which waits for it no more.

    It goes on as it was last programmed.
    """

    def remove(unit: Unit) -> Reply:
        domain = unit.pops.get(pop).domain
        unit.pops.remove_edge(pop, edge)
        log_event(unit, caller, "pop.edge-removed", domain, {"pop": pop, "name": edge})
        generation = unit.domains.get(domain).generation
        return reply(Gone(generation), generation=generation)

    return answer_write(services.control.carry_out(remove, domain=_find_domain(services, pop)))


@router.post("/{pop}/servers", status_code=201, response_model=WrittenServer)
def add_server(
    caller: Administrator, services: ServicesDep, pop: NamePath, body: NewServerBody, once: OnceDep
) -> Response:
    """Bring in a firewall server. It gets its share of tenants in the same generation."""

    def add(unit: Unit) -> Reply:
        domain = unit.pops.get(pop).domain
        server = unit.pops.add_server(pop, body.record())
        generation = unit.domains.get(domain).generation
        log_event(unit, caller, "pop.server-added", domain, {"pop": pop, **body.model_dump()})
        said = body.model_dump() | {"number": server.number, "state": server.state.value, "generation": generation}
        location = f"/v1/pops/{pop}/servers/{body.name}"
        return reply(WrittenServer(**said), generation=generation, location=location)

    return answer_write(services.control.carry_out(once.of(caller, add), domain=_find_domain(services, pop)))


@router.put("/{pop}/servers/{server}", response_model=Moved)
def set_server(
    _: Administrator, services: ServicesDep, pop: NamePath, server: NamePath, body: ServerChange
) -> Response:
    """Set whether a server serves, drains or is lost.

    The tenants of one that is lost get other servers in the same generation.
    """

    def write_server(unit: Unit) -> Reply:
        generation = unit.pops.set_server_state(pop, server, state_of(body.state))
        return reply(Moved(generation=generation), generation=generation)

    return answer_write(services.control.carry_out(write_server, domain=_find_domain(services, pop)))


@router.delete("/{pop}/servers/{server}", response_model=Gone)
def remove_server(caller: Administrator, services: ServicesDep, pop: NamePath, server: NamePath) -> Response:
    """Take a server out. Its tenants get other servers in the same generation."""

    def remove(unit: Unit) -> Reply:
        domain = unit.pops.get(pop).domain
        generation = unit.pops.remove_server(pop, server)
        log_event(unit, caller, "pop.server-removed", domain, {"pop": pop, "name": server})
        return reply(Gone(generation), generation=generation)

    return answer_write(services.control.carry_out(remove, domain=_find_domain(services, pop)))


@router.patch("/{pop}/places", response_model=Moved)
def place(caller: Administrator, services: ServicesDep, pop: NamePath, body: PlacesChange) -> Response:
    """Have tenants served by servers of your choice. Tenants that share a chunk move together."""

    def place_tenants(unit: Unit) -> Reply:
        domain = unit.pops.get(pop).domain
        generation = unit.pops.place(pop, body.places)
        log_event(unit, caller, "pop.placed", domain, {"pop": pop, "places": body.places})
        return reply(Moved(generation=generation), generation=generation)

    return answer_write(services.control.carry_out(place_tenants, domain=_find_domain(services, pop)))


@router.post("/{pop}/rebuild", response_model=Moved)
def rebuild(caller: Administrator, services: ServicesDep, pop: NamePath, once: OnceDep) -> Response:
    """Have the lines built anew, now, whatever their stale share is."""

    def write_rebuild(unit: Unit) -> Reply:
        generation = unit.pops.forget_lines(pop)
        return reply(Moved(generation=generation), generation=generation)

    return answer_write(services.control.carry_out(once.of(caller, write_rebuild), domain=_find_domain(services, pop)))


@router.post("/{pop}/heavy", response_model=RoundBody)
def choose_heavy(_: Administrator, services: ServicesDep, pop: NamePath) -> Response:
    """Choose heavy hitters now, from what was counted since the last time."""
    chosen = choose(services.control, pop)
    domain = _find_domain(services, pop)
    generation = services.control.read(lambda unit: unit.domains.get(domain).generation)
    said = [ChosenBody.of(each) for each in chosen or ()]
    return answer(RoundBody(had=chosen is not None, chosen=said, generation=generation))


@router.get("/{pop}/traffic", response_model=TrafficBody)
def traffic(_: Administrator, services: ServicesDep, pop: NamePath) -> Response:
    """Where packets from outside went: straight to the WAN, to which server, or nowhere."""
    return answer(TrafficBody.of(services.control.read(lambda unit: pop_traffic(unit, pop))))


@edges.get("/edges", response_model=Page[Host])
def list_edges(
    _: DomainReader, services: ServicesDep, domain: NamePath, limit: Limit = 100, marker: NameMarker = None
) -> Response:
    """The edge switches of a domain's PoP, by name."""

    def read_edges(unit: Unit) -> dict[str, Host]:
        unit.domains.get(domain)
        return {each.name: Host.of(each) for each in unit.pops.edges(domain)}

    found = services.control.read(read_edges)
    return answer(page_of(found, limit, marker))


def _find_domain(services: Services, pop: str) -> str:
    """Return the domain of a PoP: its changes wait for no other's. Raises NotFound."""
    return services.control.read(lambda unit: unit.pops.get(pop).domain)
