"""The OpenFlow controller process of a domain: enrols, follows the program, writes switches.

    service ──▶ Watch ──goal──▶ Loop (one a host) ◀──device── Launcher ◀── switches
       ▲                          │
       └──────── Reporter ◀───────┘  points, hits

Everything it needs to keep its switches at the last known program is on its disk: it starts, and repairs switches,
while the service is away. It takes its share of the domain's switches when it starts (a higher epoch); who led them
before stands by. Others take what a controller led that is gone (`succession.py`). When it stops, switches go on
as they were last programmed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

import structlog

from orchestrator import interpreter
from orchestrator.client import Client, Host
from orchestrator.enforce.chores import Chore
from orchestrator.enforce.countreport import CountReporter, CountSink
from orchestrator.enforce.drivers.openflow.launcher import Launcher, Listen
from orchestrator.enforce.drivers.openflow.stream import Tls
from orchestrator.enforce.enrolment import Membership, kept_fresh, obtain_admission
from orchestrator.enforce.fleet import Fleet, ignore_links
from orchestrator.enforce.impostors import LOOK_S, Impostors, ImpostorSink
from orchestrator.enforce.links import LOOK_S as LINKS_S
from orchestrator.enforce.links import Links, LinkSink
from orchestrator.enforce.programfiles import KEEP_AFTER_S, KEEP_AGAIN_S, Keeper
from orchestrator.enforce.report import Reporter, ReportSink
from orchestrator.enforce.sightings import EVERY_S, Lookout, SightingSink
from orchestrator.enforce.standing import Goal, Timing
from orchestrator.enforce.state import Credentials, StateDir
from orchestrator.enforce.stopsignal import AskedToEnd
from orchestrator.enforce.succession import (
    LONG_S,
    LOOK_AGAIN_S,
    SIGN_OF_LIFE_S,
    SILENCE_S,
    Share,
    Succession,
    share_of,
)
from orchestrator.enforce.switchservice import EdgeService, HostService, SpreadService
from orchestrator.enforce.watch import ProgramSource, Watch
from orchestrator.errors import Missing, TryAgain
from orchestrator.largepages import keep_gathered
from orchestrator.program.program import Tier
from orchestrator.wire.points import Leading

log = structlog.get_logger()

KIND = "openflow"

REFUSE_EVERY_S = 2.0
"""How often it is asked whose certificate was revoked."""


class Service(ProgramSource, ReportSink, CountSink, SightingSink, ImpostorSink, LinkSink, Protocol):
    """The controller's calls of the service; `switchservice.py` has those that implement them."""

    def begin_epoch(self, domain: str, enforcer: int) -> int:
        """A higher epoch than any in the domain."""
        ...

    def read_hosts(self, domain: str) -> tuple[Host, ...]:
        """The hosts of a domain."""
        ...

    def read_leading(self, domain: str, enforcer: int, *, silence_s: float, begins: bool = False) -> Leading | None:
        """Which switches nobody leads; None where switches are not shared. Raises TryAgain."""
        ...

    def close(self) -> None:
        """Give the connections back."""
        ...


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """How a controller is started."""

    membership: Membership
    listen: Listen
    timing: Timing = field(default_factory=Timing)
    hosts_every_s: float = 10.0
    """How often the list of hosts is read again; also at once when a switch comes that belongs to none."""
    own_tls: bool = False
    """Whether switches are spoken to over TLS, by the certificate that we enrolled with."""
    spreads: Host | None = None
    """The domain's spreading switch, where that is what is to be controlled."""
    edges: bool = False
    """Whether the edge switches of the domain's PoP are to be controlled."""

    @property
    def tier(self) -> Tier:
        """The kind of the controlled switches."""
        if self.spreads is not None:
            return Tier.SPREAD
        return Tier.EDGE if self.edges else Tier.HOST


class Controller:
    """A domain's controller in this process, for an enforcement point that has enrolled."""

    def __init__(
        self, settings: ControllerSettings, state: StateDir, credentials: Credentials, service: Service
    ) -> None:
        self._state = state
        self._credentials = credentials
        self._service = service
        self._taking_over = threading.Lock()
        self._leads = False
        self._succession = Succession(credentials.enforcer)
        kept = state.program()
        self._keeper = Keeper(state, kept)
        domain = credentials.domain
        self._reporter = Reporter(
            service, domain, credentials.enforcer, self._take_over, self._is_busy, sign_of_life_s=SIGN_OF_LIFE_S
        )
        self._counts = CountReporter(service, domain, credentials.enforcer, self._take_over)
        self._hosts = Chore("hosts", self._read_hosts, settings.hosts_every_s)
        self._lookout = Lookout(service, domain, credentials.enforcer, self._take_over)
        self._telling = Chore("packets", self._lookout.tell, EVERY_S)
        impostors = Impostors(service, domain, credentials.enforcer, self._take_over)
        self._alarming = Chore("impostors", impostors.report_due, LOOK_S)
        self._links = Links(service, domain, credentials.enforcer, self._take_over)
        self._linking = Chore("links", self._links.report_due, LINKS_S)
        self._succeeding = Chore("succession", self._take_unled_switches, LOOK_AGAIN_S)
        self._keeping = Chore("keep-program", self._keeper.keep, KEEP_AGAIN_S, settle_s=KEEP_AFTER_S)
        self._fleet = Fleet(
            self._reporter.point,
            self._counts,
            self._hosts.poke,
            settings.timing,
            self._reporter.together,
            settings.tier,
            self._lookout.seen,
            impostors.note,
            self._note_links if settings.spreads is not None else ignore_links,
        )
        self._watch = Watch(service, domain, self._aim_at, known=kept, patience=settings.membership.patience)
        self._launcher = Launcher(settings.listen, self._fleet)

    @property
    def port(self) -> int:
        """The TCP port that switches reach us on."""
        return self._launcher.port

    def refuse(self, serials: frozenset[str]) -> None:
        """Take no switch with one of these certificates."""
        self._launcher.refuse(serials)

    def show_certificate(self) -> None:
        """Show switches our new certificate from now on. Raises Missing."""
        try:
            self._launcher.show_certificate()
        except OSError as error:
            raise Missing(f"our certificate cannot be used: {error}") from None

    def start(self) -> None:
        """Start, on the kept program if the service is away.

        Raises NotFound or Unauthenticated if it is there and does not know us any more.
        """
        self._fleet.lead(self._credentials.epoch)
        try:
            self._take_over()
        except TryAgain as error:
            log.warning("controller.alone", error=str(error), epoch=self._credentials.epoch)
        self._fleet.set_hosts(self._state.hosts())
        chores = (self._hosts, self._telling, self._alarming, self._linking, self._keeping, self._succeeding)
        for part in (self._reporter, self._counts, self._watch, self._launcher, *chores):
            part.start()
        log.info("controller.started", domain=self._credentials.domain, enforcer=self._credentials.enforcer)

    def stop(self) -> None:
        """Stop in order: goals, loops, switches, last reports, program on the disk.

        Loops go before switches, so that nobody is told of lost connections: a successor may have them already.
        """
        self._watch.stop()
        self._succeeding.stop()
        self._hosts.stop()
        self._fleet.stop()
        self._launcher.stop()
        self._reporter.stop()
        self._counts.stop()
        self._telling.stop()
        self._alarming.stop()
        self._linking.stop()
        self._keeping.stop()
        _grudgingly(self._keeper.keep)
        self._service.close()
        log.info("controller.stopped")

    def _take_over(self) -> None:
        """Take our share under an epoch above all others, once in this life.

        Raises TryAgain while the service is away.
        """
        with self._taking_over:
            if self._leads:
                return
            seen = self._read_leading(begins=True)
            epoch = self._begin_epoch()
            if seen is None:
                self._fleet.lead(epoch)
            else:
                self._fleet.lead(epoch, self._share_of(seen), led=frozenset(seen.led))
            self._leads = True
            log.info("controller.leads", epoch=epoch, leaders=[] if seen is None else list(seen.leaders))

    def _take_unled_switches(self) -> None:
        """Take switches that another controller led and leads no more."""
        standing_by = self._fleet.standing_by()
        if not standing_by or not self._leads:
            return
        try:
            seen = self._read_leading()
            if seen is not None:
                self._fleet.set_share(self._share_of(seen))
                self._take_hosts(
                    self._succession.choose_hosts(seen, standing_by, self._fleet.leads_any(), time.monotonic())
                )
        except TryAgain:
            self._succession.lose_sight()
            raise

    def _take_hosts(self, hosts: frozenset[str]) -> None:
        """Lead some hosts that we are connected to, under a new epoch."""
        if not hosts:
            return
        began = time.monotonic()
        with self._taking_over:
            epoch = self._begin_epoch()
            is_late = time.monotonic() - began > LONG_S
            self._fleet.lead_hosts(epoch, frozenset() if is_late else hosts)
        if is_late:
            self._succession.lose_sight()
        log.info("controller.succeeds", epoch=epoch, hosts=sorted(hosts), late=is_late)

    def _read_leading(self, *, begins: bool = False) -> Leading | None:
        known = self._credentials
        return self._service.read_leading(known.domain, known.enforcer, silence_s=SILENCE_S, begins=begins)

    def _share_of(self, seen: Leading) -> Share:
        return share_of(self._credentials.enforcer, seen.leaders)

    def _begin_epoch(self) -> int:
        """Get an epoch above all others. To be called with the lock of taking over."""
        known = self._credentials
        epoch = self._service.begin_epoch(known.domain, known.enforcer)
        self._credentials = replace(known, epoch=epoch)
        # A full disk costs the next start this epoch, which gets a later one anyway; it must not cost the switches us.
        _grudgingly(lambda: self._state.change_credentials(known, epoch=epoch))
        return epoch

    def _is_busy(self) -> bool:
        return self._fleet.is_busy()

    def _aim_at(self, goal: Goal) -> None:
        self._fleet.aim(goal, partial(self._keeper.jot, goal))
        self._keeping.poke()

    def _note_links(self, down: frozenset[str]) -> None:
        self._links.note(down)
        self._linking.poke()

    def _read_hosts(self) -> None:
        hosts = self._service.read_hosts(self._credentials.domain)
        self._fleet.set_hosts(hosts)
        if hosts != self._state.hosts():
            self._state.keep_hosts(hosts)


def _grudgingly(keep: Callable[[], None]) -> None:
    """Keep something if the disk allows it."""
    try:
        keep()
    except Missing as error:
        log.warning("state.not_kept", error=str(error))


def run_controller(settings: ControllerSettings) -> None:
    """Run a controller process until SIGTERM or SIGINT.

    To be called in the main thread.

    Raises what `obtain_admission` and `Controller.start` raise, and Missing for a directory or an address that cannot
    be used.
    """
    stopping = AskedToEnd()
    membership = settings.membership
    state = StateDir(membership.state_dir)
    admission = obtain_admission(membership, KIND, state, stopping)
    if admission is None:
        return
    service, credentials = admission.service, admission.credentials
    settings = _listening(settings, state, credentials)
    controller = Controller(settings, state, credentials, _service_of_controller(settings, service))
    interpreter.prepare_interpreter()
    keep_gathered()
    with admission.explaining():
        controller.start()
    refuse = partial(_refuse, controller, state, service, credentials.domain)
    refusing = Chore("revoked-switches", refuse, REFUSE_EVERY_S) if settings.own_tls else None
    with kept_fresh(admission.renewal(controller.show_certificate)), kept_fresh(refusing):
        stopping.wait()
    controller.stop()


def _service_of_controller(settings: ControllerSettings, service: Client) -> Service:
    """The service as a controller of these switches asks it."""
    if settings.spreads is not None:
        return SpreadService(service, settings.spreads)
    return EdgeService(service) if settings.edges else HostService(service)


def _refuse(controller: Controller, state: StateDir, service: Client, domain: str) -> None:
    """Refuse switches with revoked certificates.

    The disk's list holds until the service has given it.
    """
    controller.refuse(state.refused_serials())
    refused = service.certificates.read_revoked_switches(domain)
    if refused != state.refused_serials():
        state.keep_refused(refused)
    controller.refuse(refused)


def _listening(settings: ControllerSettings, state: StateDir, credentials: Credentials) -> ControllerSettings:
    """Return settings with TLS by our certificate, if requested.

    Raises Missing without one.
    """
    if not settings.own_tls:
        return settings
    own, authority = state.identity_file, state.authority_file
    for path in (own, authority):
        if not path.exists():
            raise Missing("there is none: the service does not know machines by certificates", place=str(path))
    tls = Tls(own, own, authority, credentials.domain)
    return replace(settings, listen=replace(settings.listen, tls=tls))
