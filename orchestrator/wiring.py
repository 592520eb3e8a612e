"""Wire the parts of a service: control, enforcement, machines, and what routes use of them.

store ──▶ `_Core`: control, publishers, enforcement ──▶ `_Machines`: enrolment, onboarding, fleets ──▶ `Parts`
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog
from fastapi import FastAPI

from api.context import Services
from api.questions import Questions
from api.rates import Rates, Strangers
from api.threads import RequestThreads
from orchestrator.clouds import open_cloud
from orchestrator.control.alarms import ImpostorDesk
from orchestrator.control.audit import Auditor, Refusals
from orchestrator.control.auditsinks import LOCAL_LOG, NOWHERE, open_sinks
from orchestrator.control.ceilings import Ceilings
from orchestrator.control.compiler import Compiler
from orchestrator.control.control import Control
from orchestrator.control.counting import CountDesk
from orchestrator.control.duties import Duties
from orchestrator.control.enforcement import Enforcement
from orchestrator.control.enrolment import EnrolmentDesk
from orchestrator.control.feed import Feed
from orchestrator.control.fleet.effects import CloudHand
from orchestrator.control.fleet.keeper import FleetKeeper
from orchestrator.control.gauges import EdgeMetrics, FleetGauges, HitMetrics, MemoryMetrics, PointMetrics
from orchestrator.control.keptprograms import KeptPrograms, ProgramKeeper
from orchestrator.control.metrics import Metrics
from orchestrator.control.onboarding import Onboarder
from orchestrator.control.packets.log import PacketDesk, PacketSink
from orchestrator.control.packets.sinks import Collector, JsonLines
from orchestrator.control.pops.manager import ServerManager, Unmade
from orchestrator.control.precompiling import Precompiler
from orchestrator.control.publisher import Publisher
from orchestrator.control.sealedsteps import SealedSteps
from orchestrator.control.spreading import Spreading
from orchestrator.control.tiers import Tiers
from orchestrator.control.timekeeper import Timekeeper
from orchestrator.control.workbench import Workbench
from orchestrator.hosts.installer import AnsibleInstaller, Installers, LocalInstaller, variables_in
from orchestrator.hosts.request import Onboarding, controller_name
from orchestrator.identity.files import AuthorityDir
from orchestrator.identity.names import OPENFLOW, SWITCH
from orchestrator.identity.trail import AuditKey
from orchestrator.settings import PREFIX, Settings
from orchestrator.store import Store
from orchestrator.store.unit import Unit

log = structlog.get_logger()

_INVITED = dt.timedelta(hours=1)
_ALONE = "the one service on SQLite"
_SHARED_RECHECK_S = 1.0
"""How often a wait looks for reports that another replica took. SQLite has exactly one process, and nobody looks."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a service below its application; `services` are those that its routes use."""

    services: Services
    control: Control
    publishers: tuple[Publisher, ...]
    enforcement: Enforcement
    spreading: Spreading
    onboarder: Onboarder
    keeper: FleetKeeper | None
    workbench: Workbench
    precompiler: Precompiler
    feed: Feed
    auditor: Auditor
    programs: ProgramKeeper
    store: Store

    def release(self) -> None:
        """Answer everybody who waits, so that the connections can end."""
        for publisher in self.publishers:
            publisher.close()
        self.enforcement.close()
        self.feed.close()

    def close(self) -> None:
        """Stop the loops and give the database back."""
        self.release()
        self.onboarder.stop()
        if self.keeper is not None:
            self.keeper.close()
        self.workbench.close()
        self.precompiler.close()
        self.programs.stop()
        self.control.stop()
        self.auditor.stop()
        self.store.close()

    @asynccontextmanager
    async def lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        """Run the parts from the application's start to its end."""
        self.control.start()
        self.auditor.start()
        self.programs.start()
        self.onboarder.start()
        if self.keeper is not None:
            self.keeper.start()
        yield
        self.close()


@dataclass(frozen=True, slots=True)
class _Core:
    """The parts that lead from a change to what enforcement points hold."""

    metrics: Metrics
    control: Control
    precompiler: Precompiler
    programs: ProgramKeeper
    enforcement: Enforcement
    spreading: Spreading
    publishers: tuple[Publisher, ...]


@dataclass(frozen=True, slots=True)
class _Machines:
    """The parts that bring machines in, and make them."""

    desk: EnrolmentDesk
    onboarder: Onboarder
    keeper: FleetKeeper | None
    cloud_kind: str | None


def wire_parts(store: Store, settings: Settings, clock: Callable[[], dt.datetime]) -> Parts:
    """Wire the parts of a service on an opened store; its application starts them."""
    core = _wire_core(store, settings)
    machines = _wire_machines(core, settings, clock, is_alone=store.is_alone)
    refusals, workbench, feed = Refusals(), Workbench(), Feed(store, settings.event_streams)
    auditor = _make_auditor(settings, store, refusals)
    core.metrics.watch_audit(lambda: auditor.unsent)
    control = core.control
    services = Services(
        control=control,
        threads=RequestThreads(settings.request_threads),
        rates=Rates(settings.tenant_changes_a_minute, tenant_a_day=settings.tenant_changes_a_day),
        strangers=Strangers(settings.stranger_refusals_a_minute),
        refusals=refusals,
        enforcement=core.enforcement,
        desk=machines.desk,
        onboarder=machines.onboarder,
        counts=CountDesk(store),
        impostors=ImpostorDesk(store, core.metrics),
        packets=PacketDesk(store, tuple(_make_packet_sinks(settings))),
        spreading=core.spreading,
        cloud_kind=machines.cloud_kind,
        metrics=core.metrics,
        clock=clock,
        workbench=workbench,
        questions=Questions(lambda tenant: control.read(lambda unit: unit.tenants.quota(tenant).analysis_seconds)),
        feed=feed,
        body_limit_bytes=settings.body_limit_bytes,
        watch_limit_s=settings.watch_limit_s,
        review_limit_s=settings.review_limit_s,
        silence_s=settings.enforcer_silence_s,
        heartbeat_s=settings.heartbeat_s,
        expiry_lead=dt.timedelta(seconds=settings.expiry_lead_s),
    )
    return Parts(
        services,
        control,
        core.publishers,
        core.enforcement,
        core.spreading,
        machines.onboarder,
        machines.keeper,
        workbench,
        core.precompiler,
        feed,
        auditor,
        core.programs,
        store,
    )


def _wire_core(store: Store, settings: Settings) -> _Core:
    metrics, publisher = Metrics(), Publisher()
    duties = Duties(store.members, sealed=_sealed_steps(store, settings))
    metrics.watch(
        lambda: (each for each in publisher.programs() if duties.keeps(each.domain)), lambda: publisher.watching
    )

    def note_heard(unit: Unit) -> None:
        enforcement.note_heard(unit)  # which is made from what is made from the timekeeper

    timekeeper = Timekeeper(
        expiry_lead=dt.timedelta(seconds=settings.expiry_lead_s),
        silence_s=settings.enforcer_silence_s,
        note_heard=note_heard,
    )
    tells, is_enforced = partial(_log_unmade, store), partial(_is_enforced, store)
    tiers = Tiers(servers=ServerManager(Publisher(), is_enforced, vouches=store.is_alone, tells=tells))
    precompiler = Precompiler(settings.list_limit_s)
    kept = KeptPrograms(store, settings.programs_dir, refused=metrics.refused_kept)
    control = Control(
        store,
        Compiler(metrics, kept),
        publisher,
        timekeeper,
        tiers,
        ceilings=Ceilings(settings.tenant_flows_limit, settings.domain_flows_limit),
        duties=duties,
        precompiler=precompiler,
    )
    recheck_s = None if store.is_alone else _SHARED_RECHECK_S
    enforcement = Enforcement(
        store, metrics, recheck_s=recheck_s, told=control.note_report, vouched=tiers.servers.vouched_reports
    )
    spreading = Spreading(store, Publisher())
    publishers = (publisher, *tiers.publishers, spreading.publisher)
    for gauges in (
        EdgeMetrics(tiers.edges.reports),
        FleetGauges(control),
        HitMetrics(control),
        PointMetrics(control),
        MemoryMetrics(store.policies.all, lambda: (each for some in publishers for each in some.programs())),
    ):
        metrics.registry.register(gauges)
    programs = ProgramKeeper(kept, publisher)
    return _Core(metrics, control, precompiler, programs, enforcement, spreading, publishers)


def _wire_machines(core: _Core, settings: Settings, clock: Callable[[], dt.datetime], *, is_alone: bool) -> _Machines:
    place = AuthorityDir(settings.authority_dir)
    authority, believed = (place.load(), place.read_believed()) if settings.tls else (None, "")
    cloud = None if settings.cloud is None else open_cloud(settings.cloud)
    is_pinned = settings.tls_certificate is None
    desk = EnrolmentDesk(core.control, clock, authority, pinned=is_pinned, believed=believed, cloud_of=lambda _: cloud)
    onboarder = Onboarder(
        core.control, _make_installers(settings), partial(_invite, desk, settings), _withdraw_invitation
    )
    if cloud is None:
        return _Machines(desk, onboarder, None, None)
    hand = CloudHand(cloud, settings.url, token_text=desk.token_text)
    holder = _ALONE if is_alone else str(uuid.uuid4())
    keeper = FleetKeeper(core.control, hand, core.spreading, holder=holder)
    return _Machines(desk, onboarder, keeper, cloud.kind)


def _sealed_steps(store: Store, settings: Settings) -> SealedSteps | None:
    """Return how services pass each other steps, where they have an authority's key."""
    if store.members is None or not settings.tls:
        return None
    authority = AuthorityDir(settings.authority_dir).load()
    return SealedSteps(authority.derive_key("aclflow programs' steps"), store.members)


def _is_enforced(store: Store, domain: str, generation: int) -> bool:
    """Whether everybody in a domain was read back to hold a generation."""
    with store.read() as unit:
        return unit.enforcers.enforced_state(domain, generation).done


def _log_unmade(store: Store, server: Unmade) -> None:
    """A firewall server's program cannot be made, or can again."""
    detail = {"firewall": server.server, **({} if server.because is None else {"because": server.because})}
    with store.write(part=f"servers of {server.domain}") as unit:
        unit.events.append("firewall.made" if server.because is None else "firewall.unmade", server.domain, detail)


def _make_installers(settings: Settings) -> Installers:
    local = None if settings.local_switch is None else LocalInstaller(settings.local_switch)
    remote = None
    if settings.ansible:
        ours = {"aclflow_authority_source": str(AuthorityDir(settings.authority_dir).certificate)}
        machines = {**ours, **variables_in(settings.machine_variables)}
        remote = AnsibleInstaller(settings.ansible, settings.ssh_key, machines)
    return Installers(local, remote)


def _make_packet_sinks(settings: Settings) -> Iterator[PacketSink]:
    if settings.packet_log_file is not None:
        yield JsonLines(settings.packet_log_file)
    if settings.ipfix_collector:
        yield Collector(settings.ipfix_collector)


def _make_auditor(settings: Settings, store: Store, refusals: Refusals) -> Auditor:
    key, sinks = AuditKey.open(settings.audit_dir), open_sinks(settings.audit_file, settings.audit_syslog, LOCAL_LOG)
    if not sinks:
        say = log.info if settings.audit_syslog == NOWHERE else log.warning
        say("audit.no_sink", kept="in the database alone", settings="audit_file, audit_syslog")
    return Auditor(store, refusals, key, sinks, keep=dt.timedelta(days=settings.audit_days))


def _invite(desk: EnrolmentDesk, settings: Settings, unit: Unit, asked: Onboarding) -> dict[str, Any]:
    """Return the tokens for an onboarded machine.

    With what its controller joins the domain, and the playbook that we run here asks us for the certificate of the
    machine's switch: tokens that are good once, for these two and nobody else.
    """
    invite = partial(
        unit.enforcers.invite, asked.switch.domain, expires=unit.now + _INVITED, author=_name_onboarding(asked)
    )
    found: dict[str, Any] = {}
    if asked.controller is not None:
        secret = invite(name=controller_name(asked.controller), kind=OPENFLOW)
        found["aclflow_invitation_token"] = desk.token_text(secret)
    if asked.switch.tls is not None:
        found["aclflow_switch_token"] = desk.token_text(invite(name=asked.switch.host, kind=SWITCH))
        authority = "" if settings.authority is None else str(settings.authority)
        found["aclflow_asking"] = {f"{PREFIX}URL": settings.url, f"{PREFIX}AUTHORITY": authority}
    return found


def _withdraw_invitation(unit: Unit, asked: Onboarding) -> None:
    unit.enforcers.withdraw(asked.switch.domain, _name_onboarding(asked))


def _name_onboarding(asked: Onboarding) -> str:
    return f"onboarding of {asked.switch.host}"
