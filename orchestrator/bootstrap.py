"""Wiring: from settings to a running service, in one place.

Settings ──▶ Store ──▶ Compiler, Publisher ──▶ Control, Enforcement ──▶ the application ──▶ uvicorn
"""

from __future__ import annotations

import datetime as dt
import fcntl
import gc
import os
import re
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import structlog
from fastapi import FastAPI

from api.app import create_app
from api.context import Services
from api.questions import Questions
from api.rates import Rates
from orchestrator.clouds import open_cloud
from orchestrator.control.audit import Auditor, Refusals, Sink
from orchestrator.control.auditsinks import AnchorFile, Syslog
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
from orchestrator.control.gauges import EdgeMetrics, FleetGauges, HitMetrics, PointMetrics
from orchestrator.control.metrics import Metrics
from orchestrator.control.onboarding import Onboarder
from orchestrator.control.packets.log import PacketDesk, PacketSink
from orchestrator.control.packets.sinks import Collector, JsonLines
from orchestrator.control.pops.manager import ServerManager, Unmade
from orchestrator.control.precompiling import Precompiler
from orchestrator.control.publisher import Publisher
from orchestrator.control.spreading import Spreading
from orchestrator.control.tiers import Tiers
from orchestrator.control.timekeeper import Timekeeper
from orchestrator.control.workbench import Workbench
from orchestrator.errors import BadInput, Conflict, Missing
from orchestrator.hosts.installer import AnsibleInstaller, Installers, LocalInstaller, variables_in
from orchestrator.hosts.request import Onboarding, controller_name
from orchestrator.identity.auditkey import AuditKey
from orchestrator.identity.files import AuthorityDir
from orchestrator.identity.names import OPENFLOW, SWITCH
from orchestrator.largepages import keep_gathered
from orchestrator.logs import configure_logging
from orchestrator.memory import collect_seldom
from orchestrator.serving import Server
from orchestrator.settings import PREFIX, Settings
from orchestrator.store import Store, open_store
from orchestrator.store.audit import Actor
from orchestrator.store.records import NewToken, Role
from orchestrator.store.sql.clock import utc_now
from orchestrator.store.transaction import HistorySettings, StoreSettings
from orchestrator.store.unit import Unit
from orchestrator.turns import take_turns
from orchestrator.wire.codec import encode

log = structlog.get_logger()

_SQLITE_FILE = "sqlite:///"

_HERE = "machine"
"""How one is named who works on the store itself, on the service's machine."""

_INVITED = dt.timedelta(hours=1)
_ALONE = "the one service on SQLite"
_SHARED_RECHECK_S = 1.0
"""How often a wait looks for reports that another replica took. SQLite has exactly one process, and nobody looks."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a service below its application."""

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
        self.control.stop()
        self.auditor.stop()
        self.store.close()

    @asynccontextmanager
    async def lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        """From the application's start to its end."""
        self.control.start()
        self.auditor.start()
        self.onboarder.start()
        if self.keeper is not None:
            self.keeper.start()
        yield
        self.close()


@dataclass(frozen=True, slots=True)
class Service:
    """A service as a value: the application, and what starts and stops with it."""

    app: FastAPI
    parts: Parts


def build_service(settings: Settings, *, clock: Callable[[], dt.datetime] = utc_now) -> Service:
    """Wire a service. It is started by its application's lifespan. Raises what `open_store` raises."""
    store = _open(settings, clock)
    metrics, workbench = Metrics(), Workbench()
    publisher, duties = Publisher(), Duties(store.members)
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
    is_shared = not settings.database_url.startswith(_SQLITE_FILE)
    tells, is_enforced = partial(_log_unmade, store), partial(_is_enforced, store)
    tiers = Tiers(servers=ServerManager(Publisher(), is_enforced, vouches=not is_shared, tells=tells))
    metrics.registry.register(EdgeMetrics(tiers.edges.reports))
    ceilings = Ceilings(settings.tenant_flows_limit, settings.domain_flows_limit)
    precompiler = Precompiler(settings.list_limit_s)
    control = Control(
        store,
        Compiler(metrics),
        publisher,
        timekeeper,
        tiers,
        ceilings=ceilings,
        duties=duties,
        precompiler=precompiler,
    )
    spreading = Spreading(store, Publisher())
    feed = Feed(store)
    recheck_s = _SHARED_RECHECK_S if is_shared else None
    enforcement = Enforcement(store, metrics, recheck_s=recheck_s, told=control.reported, vouched=tiers.servers.vouched)
    place = AuthorityDir(settings.authority_dir)
    authority, believed = (place.load(), place.read_believed()) if settings.tls else (None, "")
    cloud = None if settings.cloud is None else open_cloud(settings.cloud)
    is_pinned = settings.tls_certificate is None
    desk = EnrolmentDesk(control, clock, authority, pinned=is_pinned, believed=believed, cloud_of=lambda _: cloud)
    onboarder = Onboarder(control, _installers(settings), partial(_invite, desk, settings), _withdraw)
    keeper = None
    if cloud is not None:
        hand = CloudHand(cloud, settings.url, token_text=desk.token_text)
        keeper = FleetKeeper(control, hand, spreading, holder=str(uuid.uuid4()) if is_shared else _ALONE)
    metrics.registry.register(FleetGauges(control))
    metrics.registry.register(HitMetrics(control))
    metrics.registry.register(PointMetrics(control))
    refusals = Refusals()
    auditor = _auditor(settings, store, refusals)
    metrics.watch_audit(lambda: auditor.unsent)
    services = Services(
        control=control,
        rates=Rates(settings.tenant_changes_a_minute),
        refusals=refusals,
        enforcement=enforcement,
        desk=desk,
        onboarder=onboarder,
        counts=CountDesk(store),
        packets=PacketDesk(store, tuple(_packet_sinks(settings))),
        spreading=spreading,
        cloud_kind=None if cloud is None else cloud.kind,
        metrics=metrics,
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
    parts = Parts(
        control,
        (publisher, *tiers.publishers, spreading.publisher),
        enforcement,
        spreading,
        onboarder,
        keeper,
        workbench,
        precompiler,
        feed,
        auditor,
        store,
    )
    return Service(create_app(services, parts.lifespan), parts)


def _is_enforced(store: Store, domain: str, generation: int) -> bool:
    """Whether everybody in a domain was read back to hold a generation."""
    with store.read() as unit:
        return unit.enforcers.enforced(domain, generation).done


def _log_unmade(store: Store, server: Unmade) -> None:
    """A firewall server's program cannot be made, or can again."""
    detail = {"firewall": server.server, **({} if server.because is None else {"because": server.because})}
    with store.write() as unit:
        unit.events.append("firewall.made" if server.because is None else "firewall.unmade", server.domain, detail)


def _installers(settings: Settings) -> Installers:
    local = None if settings.local_switch is None else LocalInstaller(settings.local_switch)
    remote = None
    if settings.ansible:
        ours = {"aclflow_authority_source": str(AuthorityDir(settings.authority_dir).certificate)}
        machines = {**ours, **variables_in(settings.machine_variables)}
        remote = AnsibleInstaller(settings.ansible, settings.ssh_key, machines)
    return Installers(local, remote)


def _packet_sinks(settings: Settings) -> Iterator[PacketSink]:
    if settings.packet_log_file is not None:
        yield JsonLines(settings.packet_log_file)
    if settings.ipfix_collector:
        yield Collector(settings.ipfix_collector)


def _auditor(settings: Settings, store: Store, refusals: Refusals) -> Auditor:
    key, sinks = AuditKey.open(settings.audit_dir), tuple(_audit_sinks(settings))
    return Auditor(store, refusals, key, sinks, keep=dt.timedelta(days=settings.audit_days))


def _audit_sinks(settings: Settings) -> Iterator[Sink]:
    if settings.audit_file is not None:
        yield AnchorFile(settings.audit_file)
    if settings.audit_syslog:
        yield Syslog(settings.audit_syslog)


def _invite(desk: EnrolmentDesk, settings: Settings, unit: Unit, asked: Onboarding) -> dict[str, Any]:
    """Return the tokens for an onboarded machine.

    With what its controller joins the domain, and the playbook that we run here asks us for the certificate of the
    machine's switch: tokens that are good once, for these two and nobody else.
    """
    invite = partial(
        unit.enforcers.invite, asked.switch.domain, expires=unit.now + _INVITED, author=_onboarding_of(asked)
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


def _withdraw(unit: Unit, asked: Onboarding) -> None:
    unit.enforcers.withdraw(asked.switch.domain, _onboarding_of(asked))


def _onboarding_of(asked: Onboarding) -> str:
    return f"onboarding of {asked.switch.host}"


def _open(settings: Settings, clock: Callable[[], dt.datetime] = utc_now) -> Store:
    make_state_dir(settings)
    history = HistorySettings(
        moments_s=settings.history_moments_s,
        minutes_s=settings.history_minutes_s,
        hours_s=settings.history_hours_s,
        limit_bytes=int(settings.history_limit_mb * (1 << 20)),
    )
    limits = StoreSettings(
        busy_timeout_s=settings.busy_timeout_s,
        packets_kept=settings.packet_log_kept,
        packets_key=read_packets_key(settings.packet_log_key),
        token_lasts=dt.timedelta(days=settings.token_days),
        history=history,
    )
    return open_store(settings.database_url, settings=limits, clock=clock)


def read_packets_key(path: Path | None) -> bytes | None:
    """Read the key of recorded headers.

    Raises Missing and BadInput: a service with a wrong key must not begin.
    """
    if path is None:
        return None
    try:
        text = path.read_text("ascii").strip()
    except (OSError, ValueError) as error:
        raise Missing(f"the key of the packet log cannot be read: {error}", place="packet_log_key") from None
    if not re.fullmatch("[0-9a-fA-F]{64}", text):
        raise BadInput(f"{path} holds no key: 64 hexadecimal digits", place="packet_log_key")
    return bytes.fromhex(text)


def make_state_dir(settings: Settings) -> None:
    """Make the state directory.

    Raises Missing where it cannot be made, and where root would keep a SQLite file in another user's: the service could
    not write it, and has a store of its own by the settings of its unit.
    """
    try:
        settings.state_dir.mkdir(parents=True, exist_ok=True)
        owner = settings.state_dir.stat().st_uid
    except OSError as error:
        raise Missing(f"the state directory cannot be made: {error.strerror}", place=str(settings.state_dir)) from None
    if os.geteuid() == 0 and owner != 0 and settings.database_url.startswith(_SQLITE_FILE):
        raise Missing(
            "it belongs to the service's user, and this is root: run it as that user, with the settings of the "
            "service's unit",
            place=str(settings.state_dir),
        )


@contextmanager
def opened_store(settings: Settings) -> Iterator[Store]:
    """The store alone, for commands that work on it without a service."""
    store = _open(settings)
    try:
        yield store
    finally:
        store.close()


def create_token(
    settings: Settings,
    role: Role,
    *,
    tenant: str | None = None,
    expires: dt.datetime | None = None,
    description: str = "",
    person: str = "",
) -> NewToken:
    """Make a token directly in the store, such as the first administrator's.

    Raises BadInput, NotFound, Busy.
    """
    with opened_store(settings) as store, store.write() as unit:
        made = unit.tokens.create(role, tenant=tenant, expires=expires, description=description, person=person)
        text = encode({"role": role.value, "tenant": tenant, "person": made.record.bearing.person}).decode()
        number = None if tenant is None else unit.tenants.get(tenant).number
        subject, actor = str(made.record.id), Actor(_HERE)
        unit.audit.append("token.created", subject, text, actor=actor, tenant=number, domain=None)
        return made


# ---------------------------------------------------------------------------------------------------- serving


def serve(settings: Settings) -> None:
    """Run a service until SIGTERM or SIGINT.

    Raises what wiring raises, Missing when the address cannot be had, Conflict when another service has the database,
    and BadInput where it would speak HTTP in clear over a network and nobody has asked for that.
    """
    if settings.tells_secrets:
        raise BadInput(
            f"at '{settings.listen_host}' tokens could be read on the way: speak TLS (`aclflow serve --tls`), or say "
            "--plain-http (ACLFLOW_PLAIN_HTTP=yes)",
            place="listen_host",
        )
    configure_logging(settings)
    take_turns()
    collect_seldom()
    with alone(settings):
        _serve(settings)


@contextmanager
def alone(settings: Settings) -> Iterator[None]:
    """Keep a second service away from a SQLite file during the block.

    Each would serve programs that the other has replaced.

    Raises Conflict while a service has it.
    """
    if not settings.database_url.startswith(_SQLITE_FILE):
        yield
        return
    make_state_dir(settings)
    database, _, _ = settings.database_url.removeprefix(_SQLITE_FILE).partition("?")
    try:
        mark = os.open(f"{database}.serving", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise Missing(f"the database cannot be kept there: {error.strerror}", place=database) from None
    try:
        try:
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict("another service has this database, one at a time: stop it first", place=database) from None
        yield
    finally:
        os.close(mark)


def _serve(settings: Settings) -> None:
    service = build_service(settings)
    try:
        server = build_server(service, settings)
        keep_gathered()
        gc.freeze()  # modules, routes and schemas stay for good: the collector need not look at them again
        server.run()
    except SystemExit as error:  # how uvicorn says that it could not listen; it has logged why
        raise Missing(f"cannot listen on {settings.listen_host} port {settings.listen_port}") from error
    except OSError as error:
        raise Missing(f"the certificate or its key cannot be used: {error}", place="tls_certificate") from error
    finally:
        service.parts.close()


def build_server(service: Service, settings: Settings, clock: Callable[[], dt.datetime] = utc_now) -> Server:
    """Build the server of a service.

    Raises Missing and BadInput where TLS lacks something, OSError for files of it.
    """
    return Server(service.app, settings, service.parts.store, service.parts.release, clock)
