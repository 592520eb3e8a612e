"""Onboarding: machines that become hosts of a domain, and are given back.

The steps are done beside the requests.
"""

from __future__ import annotations

from fastapi import APIRouter, Response

from api.answers import answer, answer_write, dump_json, etag, reply
from api.auth import DomainOwner
from api.context import Limit, NameMarker, NamePath, OnceDep, ServicesDep, log_event
from api.limits import SmallBody
from api.schemas.enrolment import NewHost
from orchestrator.control.onboarding import check_approved
from orchestrator.errors import BadInput
from orchestrator.store.points.onboardings import OnboardingRecord
from orchestrator.store.records import HostRecord, Principal, Reply
from orchestrator.store.unit import Unit
from orchestrator.wire.codec import fill
from orchestrator.wire.common import Page
from orchestrator.wire.domains import MachineOnboarding, WrittenHost

router = APIRouter(prefix="/v1/domains/{domain}", tags=["domains"], route_class=SmallBody)

_ONLY_WITH_MACHINE = frozenset(NewHost.model_fields) - {"name", "uplink", "datapath_id"}


@router.post("/hosts", status_code=201, response_model=WrittenHost, responses={202: {"model": MachineOnboarding}})
def add_host(caller: DomainOwner, services: ServicesDep, domain: NamePath, body: NewHost, once: OnceDep) -> Response:
    """Add a host, or onboard a machine as a host.

    With `machine`, its switch is configured and it joins the domain step by step: 202, and where to look how far it is.
    Asked for again, a step that has failed is tried again.
    """
    if body.machine is None:
        host = _configured_host(body)
        add = once.of(caller, lambda unit: _add_host(unit, caller, domain, host))
        return answer_write(services.control.carry_out(add, domain=domain))
    asked = body.onboarding(domain)

    def write_onboarding(unit: Unit) -> Reply:
        check_approved(unit, asked)
        record = unit.onboardings.ask(asked)
        log_event(unit, caller, "onboarding.asked", domain, {"name": body.name, "machine": asked.machine.address})
        return _reply_under_way(domain, record)

    done = services.control.carry_out(once.of(caller, write_onboarding), domain=domain)
    services.onboarder.notice()
    return answer_write(done)


@router.get("/onboardings", response_model=Page[MachineOnboarding])
def list_onboardings(
    _: DomainOwner, services: ServicesDep, domain: NamePath, limit: Limit = 100, marker: NameMarker = None
) -> Response:
    """Machines that were onboarded, or are on their way, by the name of the host."""
    found = services.control.read(lambda unit: unit.onboardings.page(domain, limit=limit + 1, marker=marker or ""))
    following = found[limit - 1].asked.switch.host if len(found) > limit else None
    return answer(Page(tuple(map(_make_onboarding, found[:limit])), following))


@router.get("/onboardings/{host}", response_model=MachineOnboarding)
def get_onboarding(_: DomainOwner, services: ServicesDep, domain: NamePath, host: NamePath) -> Response:
    """How far a machine is."""
    return answer(_make_onboarding(services.control.read(lambda unit: unit.onboardings.get(domain, host))))


@router.delete("/onboardings/{host}", status_code=202, response_model=MachineOnboarding)
def remove_onboarding(caller: DomainOwner, services: ServicesDep, domain: NamePath, host: NamePath) -> Response:
    """Give a machine back: its switch is closed, then the domain forgets it.

    Nothing passes unfiltered in between.
    """

    def remove(unit: Unit) -> Reply:
        record = unit.onboardings.ask_back(domain, host)
        log_event(unit, caller, "onboarding.back", domain, {"name": host})
        return _reply_under_way(domain, record)

    done = services.control.carry_out(remove, domain=domain)
    services.onboarder.notice()
    return answer_write(done)


def _configured_host(body: NewHost) -> HostRecord:
    """A host whose switch is configured already. Raises BadInput."""
    useless = sorted(body.model_fields_set & _ONLY_WITH_MACHINE)
    if useless:
        raise BadInput("says something of a machine's switch: name the `machine`, too", place=useless[0])
    if body.datapath_id is None:
        raise BadInput("is needed of a switch that is configured already", place="datapath_id")
    return HostRecord(body.name, int(body.datapath_id, 16), body.uplink)


def _add_host(unit: Unit, caller: Principal, domain: str, host: HostRecord) -> Reply:
    generation = unit.domains.add_host(domain, host)
    said = {"name": host.name, "datapath_id": f"{host.datapath_id:016x}", "uplink": host.uplink}
    log_event(unit, caller, "host.added", domain, said)
    location = f"/v1/domains/{domain}/hosts/{host.name}"
    return reply(
        WrittenHost(**said, generation=generation),
        generation=generation,
        tag=etag(said["datapath_id"]),
        location=location,
    )


def _reply_under_way(domain: str, record: OnboardingRecord) -> Reply:
    body = _make_onboarding(record)
    return Reply(202, {"Location": f"/v1/domains/{domain}/onboardings/{body.name}"}, dump_json(body))


def _make_onboarding(record: OnboardingRecord) -> MachineOnboarding:
    switch = record.asked.switch
    return fill(
        MachineOnboarding,
        record,
        name=switch.host,
        machine=record.asked.machine.address,
        bridge=switch.bridge,
        datapath_id=f"{switch.datapath_id:016x}",
        uplink=switch.uplink,
        controllers=switch.controllers,
        state=record.state.value,
    )
