"""Fleets of firewall VNFs: settings, members, decisions, capacity, and trials of new members."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Query, Response

from api.answers import answer, answer_write, etag, reply
from api.auth import Administrator, DomainOwner, DomainReader, TheEnforcer
from api.context import ConditionDep, Limit, NamePath, NumberMarker, NumberPath, OnceDep, ServicesDep, author, log_event
from api.limits import SmallBody
from api.schemas.firewalls import FleetChanges, NewCapacity, TrialAnswer, TrialBody
from orchestrator.control.firewalls import check_tracking
from orchestrator.control.fleet.sizing import predict_load
from orchestrator.errors import BadInput, NotFound
from orchestrator.scaling.lifecycle import TRIED
from orchestrator.store.firewalls.fleetrecords import CapacityRecord, FleetLook, FleetSettings, MemberLook, TrialSheet
from orchestrator.store.firewalls.fleets import model_of
from orchestrator.store.records import Reply
from orchestrator.store.unit import Unit
from orchestrator.wire.codec import fill
from orchestrator.wire.common import Gone, Page
from orchestrator.wire.firewalls import (
    CapacityVersion,
    CapacityVersions,
    Fleet,
    FleetDecision,
    FleetMember,
    FleetSamples,
    Plane,
)

router = APIRouter(prefix="/v1/domains/{domain}", tags=["fleet"], route_class=SmallBody)
capacities = APIRouter(prefix="/v1/capacities", tags=["fleet"], route_class=SmallBody)

Tried = {200: {"description": "what is to be tried now"}, 204: {"description": "nothing"}}


@router.get("/fleet", response_model=Fleet)
def get_fleet(_: DomainReader, services: ServicesDep, domain: NamePath) -> Response:
    """Return the domain's fleet with its VNFs.

    Its ETag changes with its settings, not with what its VNFs do.
    """
    body = services.control.read(lambda unit: _make_fleet(unit, domain, services.cloud_kind))
    return answer(body, tag=etag(body.version))


@router.patch("/fleet", response_model=Fleet)
def change_fleet(
    caller: DomainOwner, services: ServicesDep, domain: NamePath, body: FleetChanges, condition: ConditionDep
) -> Response:
    """Change the settings of the fleet; the first change makes it.

    Its size is decided anew at once.
    """

    def change(unit: Unit) -> Reply:
        known = _known_fleet(unit, domain)
        if known is None:
            condition.allow(None)
        else:
            condition.require(etag(known.record.version))
        before = FleetSettings() if known is None else known.record.settings
        settings = before.with_changes(body.changes())
        if known is None or settings != before:
            unit.fleets.put(domain, settings)
            if settings.stateful and settings.spread:
                check_tracking(unit, domain)
            log_event(unit, caller, "fleet.changed", domain, body.changes())
        found = _make_fleet(unit, domain, services.cloud_kind)
        return reply(found, tag=etag(found.version))

    return answer_write(services.control.carry_out(change, domain=domain))


@router.delete("/fleet", response_model=Gone)
def remove_fleet(caller: DomainOwner, services: ServicesDep, domain: NamePath, condition: ConditionDep) -> Response:
    """Forget the fleet, once the last of its VNFs is gone.

    Set its size to 0 first.
    """

    def remove(unit: Unit) -> Reply:
        condition.require(etag(unit.fleets.get(domain).version))
        unit.fleets.remove(domain)
        log_event(unit, caller, "fleet.removed", domain, {})
        return reply(Gone(unit.domains.get(domain).generation))

    return answer_write(services.control.carry_out(remove, domain=domain))


@router.get("/fleet/members/{member}", response_model=FleetMember)
def get_member(_: DomainReader, services: ServicesDep, domain: NamePath, member: NamePath) -> Response:
    """One VNF of the fleet."""
    return answer(services.control.read(lambda unit: _read_member(unit, domain, member)))


@router.post("/fleet/members/{member}/drain", response_model=FleetMember)
def drain_member(
    caller: DomainOwner, services: ServicesDep, domain: NamePath, member: NamePath, once: OnceDep
) -> Response:
    """Take the VNF's traffic away and remove it.

    Another one comes in its place where the fleet's size asks for it.
    """

    def drain(unit: Unit) -> Reply:
        _read_member(unit, domain, member)
        unit.fleets.drain(domain, member, f"drained by {author(caller)}")
        return reply(_read_member(unit, domain, member))

    return answer_write(services.control.carry_out(once.of(caller, drain), domain=domain))


@router.get("/fleet/decisions", response_model=Page[FleetDecision])
def list_decisions(
    _: DomainReader, services: ServicesDep, domain: NamePath, limit: Limit = 100, marker: NumberMarker = None
) -> Response:
    """Changes of the fleet's size, the newest first, each with its reason."""
    found = services.control.read(lambda unit: unit.fleets.decisions(domain, limit=limit + 1, before=marker))
    following = found[limit - 1].id if len(found) > limit else None
    return answer(Page(found[:limit], following))


@router.get("/fleet/samples", response_model=FleetSamples)
def list_samples(_: DomainReader, services: ServicesDep, domain: NamePath) -> Response:
    """The fleet's load in the last hour, oldest first."""

    def read_samples(unit: Unit) -> FleetSamples:
        unit.fleets.get(domain)
        return FleetSamples(unit.fleets.samples(domain))

    return answer(services.control.read(read_samples))


# ---------------------------------------------------------------------------------------------------- trials


@router.get("/enforcers/{enforcer}/trial", response_model=TrialBody, responses=Tried)  # type: ignore[arg-type]
def get_trial(_: TheEnforcer, services: ServicesDep, domain: NamePath, enforcer: NumberPath) -> Response:
    """The packets that a new VNF is to be tried with, while that is due."""
    sheet = services.control.read(lambda unit: _due_trial(unit, domain, enforcer))
    return Response(status_code=204) if sheet is None else answer(TrialBody.of(sheet.generation, sheet.packets))


@router.put("/enforcers/{enforcer}/trial", status_code=204)
def put_trial(
    _: TheEnforcer, services: ServicesDep, domain: NamePath, enforcer: NumberPath, body: TrialAnswer
) -> Response:
    """The outcome. An answer to another trial than the one that is due changes nothing."""

    def write_trial(unit: Unit) -> None:
        sheet = _due_trial(unit, domain, enforcer)
        if sheet is None or sheet.generation != body.generation or body.held < body.generation:
            return
        if len(body.came) != len(sheet.packets):
            raise BadInput(f"{len(sheet.packets)} packets were to be sent", place="came")
        _, name = unit.fleets.name_of(enforcer)
        unit.fleets.set_trial(domain, name, replace(sheet, answer=tuple(body.came), held=body.held))

    services.control.write(write_trial, domain=domain)
    return Response(status_code=204)


def _due_trial(unit: Unit, domain: str, enforcer: int) -> TrialSheet | None:
    """Return the trial that an enforcement point's VNF has not answered yet.

    Raises Forbidden for an enforcement point that is not its agent.
    """
    _, name = unit.fleets.name_of(enforcer)
    unit.enforcers.check_hosts(enforcer, (name,), place="path.enforcer")
    member = next((each for each in unit.fleets.members(domain) if each.name == name), None)
    if member is None or member.state not in TRIED or member.trial is None:
        return None
    return member.trial if member.trial.answer is None else None


# ---------------------------------------------------------------------------------------------------- capacity


@capacities.get("", response_model=CapacityVersions)
def list_capacities(_: Administrator, services: ServicesDep, plane: Annotated[str | None, Query()] = None) -> Response:
    """Capacity of one firewall VNF: every version, newest first; of one plane if named."""

    def read_capacities(unit: Unit) -> CapacityVersions:
        records = [each for each in unit.capacities.list() if plane in (None, each.plane.value)]
        current = {model.version for model in unit.capacities.current().values()}
        return CapacityVersions(tuple(_make_capacity(each, each.version in current) for each in records))

    return answer(services.control.read(read_capacities))


@capacities.post("", status_code=201, response_model=CapacityVersion)
def add_capacity(caller: Administrator, services: ServicesDep, body: NewCapacity, once: OnceDep) -> Response:
    """Have measurements count from now on for their plane."""

    def add(unit: Unit) -> Reply:
        record = unit.capacities.add(Plane(body.plane), body.measurements(), source=body.source)
        log_event(unit, caller, "capacity.measured", body.plane, {"version": record.version, "source": body.source})
        return reply(_make_capacity(record, current=True), location="/v1/capacities")

    return answer_write(services.control.carry_out(once.of(caller, add)))


def _make_capacity(record: CapacityRecord, current: bool) -> CapacityVersion:
    model = model_of(record)
    names = ("base_s", "per_rule_s", "per_octet_s", "error", "most_rules")
    fitted = {name: getattr(model, name) for name in names}
    measurements = len(record.measured)
    return fill(CapacityVersion, record, plane=record.plane.value, measurements=measurements, current=current, **fitted)


def _known_fleet(unit: Unit, domain: str) -> FleetLook | None:
    """The domain's fleet, if it has one. Raises NotFound for no such domain."""
    unit.domains.get(domain)
    try:
        return _read_look(unit, domain)
    except NotFound:
        return None


def _make_fleet(unit: Unit, domain: str, cloud: str | None) -> Fleet:
    look = _read_look(unit, domain)
    model = unit.capacities.current().get(look.record.settings.plane)
    return fill(
        Fleet,
        look.record,
        settings=look.record.settings.to_json(),
        wanted=look.record.size,
        prediction=predict_load(look, unit.fleets.rules([domain])[domain], model),
        cloud=cloud,
        members=tuple(map(_make_member, look.members)),
    )


def _read_look(unit: Unit, domain: str) -> FleetLook:
    (found,) = unit.fleets.looks(domain)
    return found


def _read_member(unit: Unit, domain: str, name: str) -> FleetMember:
    look = next((each for each in _read_look(unit, domain).members if each.member.name == name), None)
    if look is None:
        raise NotFound(f"the fleet has no VNF '{name}'")
    return _make_member(look)


def _make_member(look: MemberLook) -> FleetMember:
    member, load = look.member, look.load
    told = ("packets_pps", "bits_bps", "cpu_permille", "connections", "trouble")
    return fill(
        FleetMember,
        member,
        state=member.state.value,
        well=member.health.is_well,
        address=member.place.address,
        capped=member.place.capped,
        **{name: None if load is None else getattr(load, name) for name in told},
    )
