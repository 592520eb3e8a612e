"""The fault matrix, as data: each fault's target, its beginning and its duration.

Everything is undone in one way (`Stage.heal`), whatever it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from orchestrator.lab.chaos.relay import Mode, Relay
from orchestrator.lab.chaos.stage import Stage
from orchestrator.lab.chaos.steps import names_of
from orchestrator.lab.chaos.world import POP
from orchestrator.lab.ovs import DATABASE, SWITCH
from orchestrator.lab.service import CONTROLLER, SERVICE, agent_of

AGENT = agent_of(POP.firewalls[0])
_SHORT, _MIDDLE, _LONG = (0.05, 0.5), (0.3, 2.0), (1.0, 8.0)
_COMMANDS = {"serve": SERVICE, "controller": CONTROLLER, "agent": AGENT}
_HOUR, _MONTH = 3600, 30 * 86400
_CUT_S = 1.0
_OF_NEW_CONNECTIONS = frozenset({("controller", "observe"), ("controller", "apply")})
"""Steps for which a change of a few rows has no use: it is written and read back in one exchange. A connected switch is
observed every 30 s otherwise, which is longer than a step is waited for."""


def _do_nothing(_: Stage) -> None:
    """Leave a lab as it is."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that befalls a lab: `begin` does it, and it `lasts_s` between two times.

    `victim` ends by itself some time after that, at a step of its work; the fault lasts from then on. `lead` brings it
    to that step, once writes have begun, where they alone seldom do.
    """

    name: str
    begin: Callable[[Stage], None]
    lasts_s: tuple[float, float]
    victim: str = ""
    lead: Callable[[Stage], None] = _do_nothing


def matrix() -> tuple[Fault, ...]:
    """Return every fault."""
    found = [Fault("nothing", _do_nothing, _SHORT)]
    found += [_kill_service(*names) for names in _KILLED]
    found += [_pause_process(name) for name in (SERVICE, CONTROLLER, AGENT)]
    found += [_kill_at_step(command, step) for command in _COMMANDS for step in names_of(command)]
    found += [
        Fault("the service's disk is full", lambda at: at.fill(SERVICE), _MIDDLE),
        Fault("the controller's disk is full", lambda at: at.fill(CONTROLLER), _MIDDLE),
        Fault("the database is gone", lambda at: at.database.take_away(at_once=True), _MIDDLE),
        Fault("the database hangs", lambda at: at.database.take_away(at_once=False), _LONG),
    ]
    for way, relay in _WAYS.items():
        found += [
            Fault(f"{mode.value}: {way}", _set_relay(relay, mode), _LONG) for mode in Mode if mode is not Mode.CARRY
        ]
    return (*found, *(_move_clock(seconds) for seconds in (_HOUR, -_HOUR, _MONTH, -_MONTH)))


def _kill_service(*names: str) -> Fault:
    def kill_services(stage: Stage) -> None:
        for name in names:
            stage.lab.kill(name)

    return Fault(f"killed: {' and '.join(names)}", kill_services, _MIDDLE)


def _pause_process(name: str) -> Fault:
    return Fault(f"paused: {name}", lambda stage: stage.pause(name), _LONG)


def _kill_at_step(command: str, step: str) -> Fault:
    victim = _COMMANDS[command]
    lead = _connect_switches_anew if (command, step.rpartition(" ")[2]) in _OF_NEW_CONNECTIONS else _do_nothing
    return Fault(f"{victim} killed {step}", lambda stage: _arm_step(stage, f"{command} {step}"), _SHORT, victim, lead)


def _arm_step(stage: Stage, step: str) -> None:
    """Have a process end itself when it comes to a step of its work."""
    stage.step_file.write_text(step)


def _connect_switches_anew(stage: Stage) -> None:
    """Cut switches off while lists are written, and let them connect again.

    A switch is observed as a whole then, and what was written meanwhile is applied to it.
    """
    stage.set(stage.to_controller, Mode.CUT)
    time.sleep(_CUT_S)
    stage.set(stage.to_controller, Mode.CARRY)
    stage.lab.redial()


def _set_relay(relay: Callable[[Stage], Relay], mode: Mode) -> Callable[[Stage], None]:
    return lambda stage: stage.set(relay(stage), mode)


def _move_clock(seconds: int) -> Fault:
    return Fault(f"the clock moved by {seconds:+d} s", lambda stage: stage.move_clock(seconds), _MIDDLE)


_KILLED = (
    (SERVICE,),
    (CONTROLLER,),
    (SWITCH,),
    (DATABASE,),
    (AGENT,),
    (SERVICE, CONTROLLER),
    (CONTROLLER, SWITCH),
    (SERVICE, CONTROLLER, SWITCH, DATABASE, AGENT),
)
_WAYS: dict[str, Callable[[Stage], Relay]] = {
    "writer to service": lambda stage: stage.to_service,
    "enforcers to service": lambda stage: stage.from_enforcers,
    "switches to controller": lambda stage: stage.to_controller,
}


def deck(faults: tuple[Fault, ...], shuffle: Callable[[list[Fault]], None]) -> Iterator[Fault]:
    """Yield faults for ever: all in a drawn order, then all in another."""
    while True:
        order = list(faults)
        shuffle(order)
        yield from order
