"""The OpenFlow controller of a domain, as a process: enrols once, follows the program, keeps every switch at it.

    service ──▶ Watch ──goal──▶ Loop (one a host) ◀──device── Launcher ◀── switches
       ▲                          │
       └──────── Reporter ◀───────┘  points, hits

Everything it needs to keep its switches at the last known program is on its disk: it starts, and repairs switches,
while the service is away. It takes over the domain's switches when it starts (a higher epoch); who led them before
stands by. When it stops, switches go on as they were last programmed.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Protocol

import structlog

from orchestrator.client import Client, Enrolment, Host
from orchestrator.enforce import gap
from orchestrator.enforce.drivers.openflow.launcher import Launcher, Listen
from orchestrator.enforce.fleet import Fleet
from orchestrator.enforce.report import Reporter, ReportSink
from orchestrator.enforce.standing import Goal, Timing, same
from orchestrator.enforce.state import Credentials, StateDir
from orchestrator.enforce.watch import Patience, ProgramSource, Watch
from orchestrator.errors import AclflowError, Missing, TryAgain

log = structlog.get_logger()

KIND = "openflow"

KEEP_AGAIN_S = 60.0
"""When to try again to write a program to the disk that was full; a new one is written at once."""

SWITCH_INTERVAL_S = 0.0005
"""How long a thread may keep the interpreter while others wait. Python's 5 ms are as long as a whole change takes."""


class Service(ProgramSource, ReportSink, Protocol):
    """What the controller asks of the service: `orchestrator.client.Client` has it."""

    def enrol(self, token: str, *, name: str, kind: str) -> Enrolment:
        """Use up an enrolment token."""
        ...

    def new_epoch(self, domain: str, enforcer: int) -> int:
        """A higher epoch than any in the domain."""
        ...

    def hosts(self, domain: str) -> tuple[Host, ...]:
        """The hosts of a domain."""
        ...

    def close(self) -> None:
        """Give the connections back."""
        ...


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """How a controller is started. `token` is needed once; afterwards the credentials in `state_dir` serve."""

    url: str
    state_dir: Path
    name: str
    listen: Listen
    token: str = field(default="", repr=False)
    authority: Path | None = None
    """Whose certificate (PEM) the service's must be signed by; None: one that the machine believes."""
    timing: Timing = field(default_factory=Timing)
    patience: Patience = field(default_factory=Patience)
    hosts_every_s: float = 10.0
    """How often the list of hosts is read again; also at once when a switch comes that belongs to none."""


class Chore:
    """Something done now and then in a thread of its own: every so often, and soon after `poke`."""

    def __init__(self, name: str, work: Callable[[], None], every_s: float) -> None:
        self._name = name
        self._work = work
        self._every_s = every_s
        self._poked = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin, with the work itself."""
        self._poked.set()
        self._thread.start()

    def poke(self) -> None:
        """Do it soon."""
        self._poked.set()

    def stop(self, timeout_s: float = 1.0) -> None:
        """No more. Work under way may go on; it does not keep the process."""
        self._stopping = True
        self._poked.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while True:
            self._poked.wait(self._every_s)
            self._poked.clear()
            if self._stopping:
                return
            try:
                self._work()
            except AclflowError as error:
                log.warning("chore.failed", chore=self._name, error=str(error))
            except Exception:
                log.exception("chore.fault", chore=self._name)  # of ours; the chore must go on all the same


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
        self._goal: Goal | None = None
        self._kept = state.program()
        domain = credentials.domain
        self._reporter = Reporter(service, domain, credentials.enforcer, self._take_over, self._is_busy)
        self._hosts = Chore("hosts", self._read_hosts, settings.hosts_every_s)
        self._keeping = Chore("keep-program", self._keep_program, KEEP_AGAIN_S)
        self._fleet = Fleet(self._reporter.point, self._reporter.hits, self._hosts.poke, settings.timing)
        self._watch = Watch(service, domain, self._aim, known=self._kept, patience=settings.patience)
        self._launcher = Launcher(settings.listen, self._fleet)

    @property
    def port(self) -> int:
        """The TCP port that switches reach us on."""
        return self._launcher.port

    def start(self) -> None:
        """Begin, with what is remembered if the service is away. Raises NotFound or Unauthenticated if it is there and
        does not know us any more."""
        self._fleet.lead(self._credentials.epoch)
        try:
            self._take_over()
        except TryAgain as error:
            log.warning("controller.alone", error=str(error), epoch=self._credentials.epoch)
        self._fleet.set_hosts(self._state.hosts())
        for part in (self._reporter, self._watch, self._launcher, self._hosts, self._keeping):
            part.start()
        log.info("controller.started", domain=self._credentials.domain, enforcer=self._credentials.enforcer)

    def stop(self) -> None:
        """End in order: no new goals, no loops, no switches, the last reports, the program on the disk.

        Loops go before switches, so that nobody is told of lost connections: a successor may have them already.
        """
        self._watch.stop()
        self._hosts.stop()
        self._fleet.stop()
        self._launcher.stop()
        self._reporter.stop()
        self._keeping.stop()
        _grudgingly(self._keep_program)
        self._service.close()
        log.info("controller.stopped")

    def _take_over(self) -> None:
        """Get an epoch above everybody's, once in this life. Raises TryAgain while the service is away."""
        with self._taking_over:
            if self._leads:
                return
            known = self._credentials
            epoch = self._service.new_epoch(known.domain, known.enforcer)
            self._credentials = replace(known, epoch=epoch)
            self._fleet.lead(epoch)
            self._leads = True
            log.info("controller.leads", epoch=epoch)
        # A full disk costs the next start this epoch, which gets a later one anyway; it must not cost the switches us.
        _grudgingly(lambda: self._state.keep_credentials(self._credentials))

    def _is_busy(self) -> bool:
        return self._fleet.is_busy()

    def _aim(self, goal: Goal) -> None:
        self._goal = goal
        self._fleet.aim(goal)
        self._keeping.poke()

    def _read_hosts(self) -> None:
        hosts = self._service.hosts(self._credentials.domain)
        self._fleet.set_hosts(hosts)
        if hosts != self._state.hosts():
            self._state.keep_hosts(hosts)

    def _keep_program(self) -> None:
        goal, kept = self._goal, self._kept
        if goal is None or (kept is not None and same(kept, goal.program)):
            return
        deltas = gap.since(kept.digest, goal.program.digest, goal.trail) if kept is not None else ()
        if not deltas or not self._state.keep_deltas(deltas):
            self._state.keep_program(goal.program)
        self._kept = goal.program


def _grudgingly(keep: Callable[[], None]) -> None:
    """Keep something if the disk allows it."""
    try:
        keep()
    except Missing as error:
        log.warning("state.not_kept", error=str(error))


def enrolled(
    settings: ControllerSettings, state: StateDir, connect: Callable[[str], Service], stopping: threading.Event
) -> Credentials | None:
    """Who we are: from the disk, else by enrolling, for which the service is waited for. None when told to stop.

    Raises Missing without credentials and token, Unauthenticated when the token is wrong or was used.
    """
    credentials = state.credentials()
    if credentials is not None:
        return credentials
    if not settings.token:
        raise Missing("there are no credentials yet, so a one-time enrolment token is needed", place="token")
    state.check()  # the token is good for one time: better to know now that its fruit cannot be kept
    service = connect(settings.url)
    failures = 0
    while not stopping.is_set():
        try:
            found = service.enrol(settings.token, name=settings.name, kind=KIND)
        except TryAgain as error:
            failures += 1
            log.warning("controller.waits", error=str(error), url=settings.url)
            stopping.wait(settings.patience.delay_s(failures))
        else:
            credentials = Credentials(found.domain, found.enforcer, found.token, found.epoch)
            state.keep_credentials(credentials)
            log.info("controller.enrolled", domain=found.domain, enforcer=found.enforcer, epoch=found.epoch)
            return credentials
    return None


def run_controller(settings: ControllerSettings) -> None:
    """The whole life of a controller process, until SIGTERM or SIGINT. To be called in the main thread.

    Raises what `enrolled` and `Controller.start` raise, and Missing for a directory or an address that cannot be used.
    """
    stopping = threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    state = StateDir(settings.state_dir)
    credentials = enrolled(settings, state, partial(Client, authority=settings.authority), stopping)
    if credentials is None:
        return
    service = Client(settings.url, credentials.token, authority=settings.authority)
    controller = Controller(settings, state, credentials, service)
    controller.start()
    stopping.wait()
    controller.stop()
