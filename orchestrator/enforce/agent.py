"""The agent process inside a firewall VNF: enrols, follows its program, writes the filter.

    service ──▶ Watch ──goal──▶ Loop ◀──▶ driver ◀──▶ nftables or iptables of this network namespace
       ▲                          │
       └──────── Reporter ◀───────┘  point, hits;  load, health and packets of rules that log beside

The order of a start is what makes it safe: the filter is made to drop everything that is forwarded, unless it already
holds a program of ours, then forwarding is switched on, then the copy of the program on the disk is loaded, then the
service is asked. A rebooted VNF so enforces its last program before anybody can reach anybody through it, and drops
everything while it has none: because it never got one, because the disk was full, because the copy is damaged. Where
there is no program, the goal is the empty one of generation 0, which is kept like any other.

When the agent stops, however it stops, the filter stays as it is; one that classifies in this process forwards nothing
from then on.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Protocol, runtime_checkable

import structlog

from orchestrator import interpreter
from orchestrator.client import Held
from orchestrator.compile.filters.legs import NO_LEGS, Legs
from orchestrator.compile.nftables.served import REHOME
from orchestrator.enforce import changing
from orchestrator.enforce.chores import Chore
from orchestrator.enforce.countreport import CountReporter, CountSink
from orchestrator.enforce.drivers.filters.nflog import PacketReports, Seen
from orchestrator.enforce.enrolment import Membership, kept_fresh, obtain_admission
from orchestrator.enforce.gap import stamp_of
from orchestrator.enforce.guardtable import leg_guard
from orchestrator.enforce.load import load_between, read_counters
from orchestrator.enforce.loop import Loop
from orchestrator.enforce.programfiles import KEEP_AFTER_S, KEEP_AGAIN_S, Keeper
from orchestrator.enforce.report import Reporter, ReportSink
from orchestrator.enforce.sightings import EVERY_S, Lookout, SightingSink
from orchestrator.enforce.standing import Device, Goal, Point, Timing
from orchestrator.enforce.state import Credentials, StateDir
from orchestrator.enforce.stopsignal import AskedToEnd
from orchestrator.enforce.trial import TrialOffice, Trier
from orchestrator.enforce.watch import Copy, Watch
from orchestrator.errors import AclflowError, Drifted, Missing, TryAgain
from orchestrator.program.delta import Delta
from orchestrator.program.flows import FlowTable
from orchestrator.program.program import Program, Tier
from orchestrator.program.wire import Received
from orchestrator.wire.firewalls import Load
from orchestrator.wire.points import PointState

log = structlog.get_logger()

NOTHING_YET = "there is no program yet: everything that is forwarded is dropped"
DAMAGED = "the program on the disk is damaged"
LEGS_CHANGED = "somebody changed the table that guards the legs: it was written anew"
TRY_EVERY_S = 0.2
"""How often a VNF that is to be tried asks whether it is time."""
_FORWARDING = ("net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding")


class Service(ReportSink, CountSink, SightingSink, TrialOffice, Protocol):
    """The agent's calls of the service; a client's `points` implement them."""

    def follow_program(
        self,
        domain: str,
        held: Held | None = None,
        *,
        tier: Tier = Tier.HOST,
        lasts_s: float = 60.0,
        server: str | None = None,
        edits: bool = False,
    ) -> Iterator[Received | None]:
        """Yield newer programs or deltas as they come."""
        ...

    def begin_epoch(self, domain: str, enforcer: int) -> int:
        """A higher epoch than any in the domain."""
        ...

    def report_load(self, domain: str, enforcer: int, load: Load) -> None:
        """Tell what is carried, and what is wrong."""
        ...

    def close(self) -> None:
        """Give the connections back."""
        ...


@runtime_checkable
class Troubled(Protocol):
    """A device that sees of itself when something is wrong."""

    def trouble(self) -> str | None:
        """Describe what is wrong; None where nothing is."""
        ...


@runtime_checkable
class Reporting(Protocol):
    """A device that reports packets of rules that log by itself, not by NFLOG."""

    def report_to(self, seen: Seen) -> None:
        """Report to a function from now on."""
        ...


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """The start of an agent.

    `kind` is what it enrols as; `device` makes the driver of this network namespace.
    """

    membership: Membership
    kind: str
    device: Callable[[], Device]
    interfaces: tuple[str, ...] = ()
    """Between which packets are forwarded; none: all but the loopback."""
    timing: Timing = field(default_factory=Timing)
    load_every_s: float = 10.0
    is_tried: bool = False
    """Whether it is one of a fleet, which is tried before it gets traffic."""
    legs: Legs = NO_LEGS
    """The interfaces of `interfaces` that are declared as legs."""
    is_server: bool = False
    """Whether it is a firewall server of a PoP, which has a share of the tenants and a program of its own."""

    @property
    def beside(self) -> tuple[str, ...]:
        """Interfaces that packets are forwarded to and from besides the legs."""
        return list_beside(self.interfaces, self.legs, is_server=self.is_server)


def list_beside(interfaces: Collection[str], legs: Legs, *, is_server: bool) -> tuple[str, ...]:
    """Return the interfaces that packets are forwarded to and from besides the legs."""
    others = tuple(name for name in interfaces if name not in legs.names)
    return (*others, REHOME) if is_server else others


@dataclass(frozen=True, slots=True)
class _Programs:
    """The programs of firewall VNFs, or of one firewall server."""

    service: Service
    domain: str
    server: str | None

    def follow_program(
        self,
        domain: str,  # noqa: ARG002 - the name of the program, which is the only one
        held: Held | None = None,
        *,
        lasts_s: float = 60.0,
    ) -> Iterator[Received | None]:
        return self.service.follow_program(
            self.domain, held, tier=Tier.SERVER, lasts_s=lasts_s, server=self.server, edits=True
        )


class Agent:
    """A firewall's agent in this process, for an enforcement point that has enrolled."""

    def __init__(self, settings: AgentSettings, state: StateDir, credentials: Credentials, service: Service) -> None:
        self._settings = settings
        self._state = state
        self._credentials = credentials
        self._service = service
        self._taking_over = threading.Lock()
        self._leads = False
        self._trouble: dict[str, str] = {}
        self._device = settings.device()
        domain, name = credentials.domain, credentials.name or settings.membership.name
        self._of = f"{domain}/{name}" if settings.is_server else domain
        kept = self._read_program()
        self._keeper = Keeper(state, kept)
        self._reporter = Reporter(service, domain, credentials.enforcer, self._take_over)
        self._counts = CountReporter(service, domain, credentials.enforcer, self._take_over)
        self._loop = Loop(name, self._note_point, self._counts, timing=settings.timing)
        programs = _Programs(service, domain, name if settings.is_server else None)
        self._watch = Watch(programs, self._of, self._aim_at, known=kept, patience=settings.membership.patience)
        self._first = kept or Program.of(self._of, Tier.SERVER, 0, FlowTable.of(()), ())
        self._keeping = Chore("keep-program", self._keep, KEEP_AGAIN_S, settle_s=KEEP_AFTER_S)
        self._lookout = Lookout(service, domain, credentials.enforcer, self._take_over)
        self._packets = PacketReports(partial(self._lookout.seen, name))
        if isinstance(self._device, Reporting):
            self._device.report_to(partial(self._lookout.seen, name))
        self._reporting = Chore("packets", self._lookout.tell, EVERY_S)
        self._guard = leg_guard(settings.legs, settings.beside)
        self._telling = Chore("load", self._tell_load, settings.load_every_s)
        self._reading = read_counters(time.monotonic(), settings.interfaces)
        self._held: int | None = None
        trier = Trier(service, domain, credentials.enforcer, lambda: self._held)
        self._trying = Chore("trial", trier.look, TRY_EVERY_S) if settings.is_tried else None

    def start(self) -> None:
        """Start, on the kept program if the service is away.

        Raises NotFound or Unauthenticated if it does not know us any more, Missing, Refused or Unreachable if the
        filter cannot be read or written: then nothing is forwarded by our doing.
        """
        close_if_bare(self._device, self._first.domain)
        self._guard.close()
        switch_forwarding_on()
        self._loop.attach(self._device)
        self._loop.aim(Goal(self._first, remembered=True))
        self._loop.start()
        try:
            self._take_over()
        except TryAgain as error:
            log.warning("agent.alone", error=str(error), generation=self._first.generation)
        for part in (self._reporter, self._counts, self._watch, self._keeping, self._telling, self._reporting):
            part.start()
        try:
            self._packets.start()
        except Missing as error:
            self._say("log", f"packets of rules that log are not reported: {error}")
        if self._trying is not None:
            self._trying.start()
        log.info("agent.started", domain=self._credentials.domain, enforcer=self._credentials.enforcer)

    def stop(self) -> None:
        """Stop in order: goals, loop, last reports, program on the disk.

        The filter stays.
        """
        self._watch.stop()
        self._loop.stop()
        self._telling.stop()
        self._packets.stop()
        self._reporting.stop()
        if self._trying is not None:
            self._trying.stop()
        self._reporter.stop()
        self._counts.stop()
        self._keeping.stop()
        try:
            self._keep()
        except Missing as error:
            log.warning("state.not_kept", error=str(error))
        self._service.close()
        log.info("agent.stopped")

    # -------------------------------------------------------------------------------------------------------- steps

    def _read_program(self) -> Program | None:
        """The program on the disk, if it is sound and ours."""
        program = self._state.program()
        if program is None:
            self._trouble["program"] = DAMAGED if self._state.has_program else NOTHING_YET
            return None
        try:
            if program.domain == self._of:
                return Copy.of(program).program
            self._trouble["program"] = NOTHING_YET
        except Drifted as error:
            log.warning("program.damaged", error=str(error))
            self._trouble["program"] = DAMAGED
        return None

    def _take_over(self) -> None:
        """Get an epoch, once in this life: earlier reports count no more.

        Raises TryAgain.
        """
        with self._taking_over:
            if self._leads:
                return
            known = self._credentials
            self._credentials = replace(known, epoch=self._service.begin_epoch(known.domain, known.enforcer))
            self._leads = True
        try:
            self._state.change_credentials(known, epoch=self._credentials.epoch)
        except Missing as error:  # a full disk costs the next start this epoch, which gets a later one anyway
            log.warning("state.not_kept", error=str(error))

    def _aim_at(self, goal: Goal) -> None:
        self._trouble.pop("program", None)
        self._keeper.jot(goal)
        if not self._keeper.has(goal):  # it does not follow on what is kept: whole then, for nobody else remembers it
            with suppress(Missing):  # said already, and tried again
                self._keep()
        work = self._loop.take(goal)
        if work is not None:
            changing.advance((changing.Member(work, self._loop.take_over),))
        self._keeping.poke()

    def _note_point(self, point: Point) -> None:
        self._say("filter", point.error)
        self._held = point.generation if point.state is PointState.ENFORCED else None
        if self._trying is not None:
            self._trying.poke()
        self._reporter.point(point)

    def _keep(self) -> None:
        """Store the program.

        Where that cannot be, the older one must not be what a reboot begins with.
        """
        try:
            self._keeper.keep()
        except Missing as error:
            self._say("disk", f"the program cannot be kept, and would be missing after a restart: {error}")
            try:
                self._keeper.drop()
            except Missing:
                self._say("disk", f"the program cannot be kept, and a restart would begin with an older one: {error}")
            raise
        self._say("disk", None)

    def _say(self, about: str, trouble: str | None) -> None:
        """Note what is wrong about something, or that nothing is."""
        if trouble:
            self._trouble[about] = trouble
        else:
            self._trouble.pop(about, None)

    def _tell_load(self) -> None:
        before, now = self._reading, read_counters(time.monotonic(), self._settings.interfaces)
        self._reading = now
        self._say("interfaces", _absent(self._settings.interfaces))
        self._say("legs", self._check_guard())
        self._say("packets", self._device.trouble() if isinstance(self._device, Troubled) else None)
        trouble = "; ".join(self._trouble.copy().values()) or None
        known = self._credentials
        self._service.report_load(known.domain, known.enforcer, load_between(before, now, trouble))

    def _check_guard(self) -> str | None:
        """Look at the table that guards the legs; in words what was wrong with it."""
        try:
            return LEGS_CHANGED if self._guard.look() else None
        except AclflowError as error:
            return f"what guards the legs cannot be looked at: {error}"


def close_if_bare(device: Device, domain: str) -> None:
    """Make the filter drop all forwarded packets, unless it holds a whole program of ours."""
    observed = device.observe()
    if observed.stamp is None:
        nothing = Program.of(domain, Tier.SERVER, 0, FlowTable.of(()), ())
        stamp = stamp_of(nothing)
        device.apply(Delta(b"", stamp.digest, stamp.generation, observed.flows, FlowTable.of(()), ()), stamp)
        log.info("filter.closed")


def _absent(interfaces: Collection[str]) -> str | None:
    """Which of some interfaces are not here, in words."""
    there = {name for _, name in socket.if_nameindex()}
    gone = [f"'{name}'" for name in interfaces if name not in there]
    return f"there is no interface {', '.join(gone)} here" if gone else None


def switch_forwarding_on() -> None:
    """Let the kernel forward packets. Raises Missing where that is not allowed."""
    for name in _FORWARDING:
        try:
            Path("/proc/sys", name).write_text("1")
        except FileNotFoundError:  # a kernel without that IP version forwards nothing of it
            continue
        except OSError as error:
            raise Missing(f"forwarding cannot be switched on: {error.strerror}", place=name) from None


def run_agent(settings: AgentSettings) -> None:
    """Run an agent process until SIGTERM or SIGINT.

    To be called in the main thread.

    Raises what `obtain_admission` and `Agent.start` raise, Missing for a directory that cannot be used, and Conflict
    where an agent that runs has it: a second one would take the name of the first, and nobody would hear that one any
    more.
    """
    stopping = AskedToEnd()
    membership = settings.membership
    state = StateDir(membership.state_dir)
    state.hold()
    admission = obtain_admission(membership, settings.kind, state, stopping)
    if admission is None:
        return
    agent = Agent(settings, state, admission.credentials, admission.service.points)
    interpreter.prepare_interpreter()
    with admission.explaining():
        agent.start()
    with kept_fresh(admission.renewal()):
        stopping.wait()
    agent.stop()
