"""One loop makes machines hosts and gives them back, step by step.

    add     prepare the machine ─▶ essential services, host in the domain ─▶ wait until it was read back ─▶ done
    remove  close the switch ─▶ host out of the domain ─▶ forgotten

Every step may be repeated, and the database says what is under way: a process that is killed anywhere, or finds the
store away, is followed by another (or by itself) that begins with the first step again. A machine that does not answer,
or refuses, has failed: the operator is told what to change, and asks again. A machine never forwards more than before:
its switch is default off from the step that makes it, the domain learns of it after that, and on the way back it is
closed before the domain forgets it.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import structlog

from orchestrator.control.units import Units
from orchestrator.errors import AclflowError, Conflict, NotFound, Refused, TryAgain
from orchestrator.hosts.installer import Installers
from orchestrator.hosts.request import Onboarding, merge_rules
from orchestrator.store.points.onboardings import OnboardingRecord, OnboardingState
from orchestrator.store.records import HostRecord
from orchestrator.store.unit import Unit

log = structlog.get_logger()

LEASE_S = 120.0
"""How long a claim holds without a step: after that another process takes over."""
LOOK_S = 2.0
_RENEW_S = LEASE_S / 4
_ENFORCED_S = 120.0
_LOOK_ENFORCED_S = 0.2


class _ServiceEnds(TryAgain):
    """The service ends while something is under way."""


class Onboarder:
    """The loop, on a thread of its own: what it does takes minutes."""

    def __init__(
        self,
        units: Units,
        installers: Installers,
        invite: Callable[[Unit, Onboarding], Mapping[str, Any]],
        withdraw: Callable[[Unit, Onboarding], None],
        look_s: float = LOOK_S,
    ) -> None:
        """Set the loop up.

        `invite` gives what must be known so that the machine's controller can join and its switch gets a certificate,
        in the transaction that it is given; `withdraw` makes what nobody has used of it invalid, also what a process
        that was killed has given.

        `look_s`: how often to look for what other processes were asked for, or left.
        """
        self.units = units
        self._installers = installers
        self._invite = invite
        self._withdraw = withdraw
        self._look_s = look_s
        self._name = f"{socket.gethostname()}:{os.getpid()}"
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="onboarding", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End after the step that is being done."""
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def notice(self) -> None:
        """Note that something was asked for."""
        self._wake.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            try:
                while not self._stopping.is_set() and self.turn():
                    pass
            except TryAgain as error:
                log.warning("onboarding tries again", error=str(error))
            except Exception:
                log.exception("onboarding failed")  # a defect must not end the loop for all other machines
            self._wake.wait(self._look_s)

    def turn(self) -> bool:
        """Work on one machine, if there is one to work on."""
        if not self.units.read(lambda unit: unit.onboardings.has_free(self._name)):
            return False
        taken = self.units.write(lambda unit: unit.onboardings.claim(self._name, LEASE_S))
        if taken is None:
            return False
        with _Lease(self.units, taken.asked, self._stopping):
            try:
                if taken.state is OnboardingState.ADDING:
                    self._add_host(taken)
                else:
                    self._remove_host(taken)
            except TryAgain:
                raise  # it stays under way: whoever comes next goes on
            except AclflowError as error:
                self._note_failure(taken.asked, str(error))
            except Exception as error:
                log.exception("onboarding's fault", host=taken.asked.switch.host)
                self._note_failure(
                    taken.asked, f"a fault of the service, whose log says more: {type(error).__name__}: {error}"
                )
        return True

    # ---------------------------------------------------------------------------------------------------- the steps

    def _add_host(self, taken: OnboardingRecord) -> None:
        asked = taken.asked
        domain, host = asked.switch.domain, asked.switch.host
        self._tell_step(asked, f"logging in to {asked.machine.address}")
        secrets = self.units.write(lambda unit: self._invite_anew(unit, asked), domain=domain)
        with _at_the_machine():
            self._installers.of(asked).prepare(asked, secrets, lambda text: self._mention(asked, text))
        generation = self.units.write(lambda unit: self._join_anew(unit, asked), domain=domain)
        self._tell_step(asked, f"a host of {domain}; waiting until it was read back at generation {generation}")
        self._wait_enforced(domain, host, generation)
        self.units.write(lambda unit: _finish_onboarding(unit, asked), domain=domain)
        log.info("onboarded", domain=domain, host=host)

    def _remove_host(self, taken: OnboardingRecord) -> None:
        asked = taken.asked
        self._tell_step(asked, f"closing the switch of {asked.machine.address}")
        with _at_the_machine():
            self._installers.of(asked).release(asked, lambda text: self._mention(asked, text))
        self.units.write(lambda unit: _leave_domain(unit, asked), domain=asked.switch.domain)
        log.info("given back", domain=asked.switch.domain, host=asked.switch.host)

    def _invite_anew(self, unit: Unit, asked: Onboarding) -> Mapping[str, Any]:
        self._withdraw(unit, asked)
        return self._invite(unit, asked)

    def _join_anew(self, unit: Unit, asked: Onboarding) -> int:
        self._withdraw(unit, asked)
        return _join(unit, asked)

    def _wait_enforced(self, domain: str, host: str, generation: int) -> None:
        """Wait until a host holds the policy.

        Raises Conflict where it does not in time, with what it says.
        """
        said = ""
        for _ in range(int(_ENFORCED_S / _LOOK_ENFORCED_S)):
            state = self.units.read(lambda unit: unit.enforcers.enforced_state(domain, generation))
            laggard = next((each for each in state.laggards if each.host == host), None)
            if laggard is None:
                return
            report = laggard.point.report if laggard.point else None
            said = "nothing" if report is None else report.error or report.state.value
            if self._stopping.wait(_LOOK_ENFORCED_S):
                raise _ServiceEnds("the service ends")
        raise Conflict(
            f"the switch is configured, but after {_ENFORCED_S:.0f} s the controller says of it: {said}. Is a "
            "controller of the domain running where the switch looks for it (ovs-vsctl show on the machine, "
            f"aclflow domain show {domain})?"
        )

    def _tell_step(self, asked: Onboarding, text: str) -> None:
        domain, host = asked.switch.domain, asked.switch.host

        def write_step(unit: Unit) -> None:
            unit.onboardings.step(domain, host, text, LEASE_S)
            unit.events.append("onboarding.step", domain, {"name": host, "step": text})

        self.units.write(write_step, domain=domain)

    def _mention(self, asked: Onboarding, text: str) -> None:
        """Log in the middle of a step; a failure to log does not stop it."""
        try:
            self._tell_step(asked, text)
        except TryAgain as error:
            log.warning("onboarding's step was not told", host=asked.switch.host, step=text, error=str(error))

    def _note_failure(self, asked: Onboarding, text: str) -> None:
        domain, host = asked.switch.domain, asked.switch.host

        def write_failure(unit: Unit) -> None:
            self._withdraw(unit, asked)
            unit.onboardings.finish(domain, host, OnboardingState.FAILED, text)
            unit.events.append("onboarding.failed", domain, {"name": host, "error": text})

        log.warning("onboarding failed", domain=domain, host=host, error=text)
        self.units.write(write_failure, domain=domain)


@contextmanager
def _at_the_machine() -> Iterator[None]:
    """Treat an unreachable machine as failed, but wait for the store.

    Raises Refused for that.
    """
    try:
        yield
    except TryAgain as error:
        raise Refused(error.reason, place=error.place) from error


def check_approved(unit: Unit, asked: Onboarding) -> None:
    """Refuse a machine whose essential services need operator rules that another person must approve first.

    Raises ApprovalNeeded.
    """
    before = unit.domains.operator_rules(asked.switch.domain).rules
    if tuple(merge_rules(before, asked.rules())) != tuple(before):
        unit.domains.check_unmarked(asked.switch.domain)


def _join(unit: Unit, asked: Onboarding) -> int:
    """Add the host and its essential services; return the generation to reach."""
    switch = asked.switch
    before = unit.domains.operator_rules(switch.domain).rules
    unit.domains.set_operator_rules(switch.domain, merge_rules(before, asked.rules()))
    wanted = HostRecord(switch.host, switch.datapath_id, switch.uplink)
    known = _find_host(unit, switch.domain, switch.host)
    if known != wanted:
        if known is not None:
            unit.domains.remove_host(switch.domain, switch.host)
        unit.domains.add_host(switch.domain, wanted)
        detail = {"name": switch.host, "datapath_id": f"{switch.datapath_id:016x}", "uplink": switch.uplink}
        unit.events.append("host.added", switch.domain, detail)
    return unit.domains.get(switch.domain).generation


def _find_host(unit: Unit, domain: str, name: str) -> HostRecord | None:
    """Return a host of a domain, if it is there."""
    try:
        return unit.domains.host(domain, name)
    except NotFound:
        return None


def _leave_domain(unit: Unit, asked: Onboarding) -> None:
    domain, host = asked.switch.domain, asked.switch.host
    if _find_host(unit, domain, host) is not None:
        unit.domains.remove_host(domain, host)
        unit.events.append("host.removed", domain, {"name": host})
    unit.onboardings.forget(domain, host)


def _finish_onboarding(unit: Unit, asked: Onboarding) -> None:
    domain, host = asked.switch.domain, asked.switch.host
    unit.onboardings.finish(domain, host, OnboardingState.DONE)
    unit.events.append("onboarding.done", domain, {"name": host})


class _Lease:
    """Holds a claim while a long step goes on without a word."""

    def __init__(self, units: Units, asked: Onboarding, stopping: threading.Event) -> None:
        self._units = units
        self._asked = asked
        self._stopping = stopping
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._renew_lease, name="onboarding-lease", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _renew_lease(self) -> None:
        switch = self._asked.switch
        while not self._over.wait(_RENEW_S):
            try:
                self._units.write(
                    lambda unit: unit.onboardings.hold(switch.domain, switch.host, LEASE_S), domain=switch.domain
                )
            except TryAgain as error:
                log.warning("onboarding's claim was not renewed", error=str(error))
