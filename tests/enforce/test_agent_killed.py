"""An agent killed before and after everything that it does to its filter and its disk, and in between two of its words.

Whoever comes next goes on: at no moment does the filter let through what no list permitted, nothing is handed to the
reporter that a start would not begin with, and in the end the newest list is in force. As after SIGKILL, nothing of a
killed agent does anything any more; a machine that is rebooted besides forgets its filter and forwards nothing.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from enforce.contract_filters import POLICIES, corner_packets
from enforce.stub_service import StubService
from patience import until

from orchestrator.client import Client
from orchestrator.client.points import PointCalls
from orchestrator.compile.filters.filterprogram import filter_program
from orchestrator.enforce import agent as agent_module
from orchestrator.enforce.agent import Agent, AgentSettings
from orchestrator.enforce.drivers.nftables.fake import FakeNft
from orchestrator.enforce.drivers.nftables.tool import nftables_driver
from orchestrator.enforce.enrolment import Membership, obtain_credentials
from orchestrator.enforce.report import Reporter
from orchestrator.enforce.standing import Point, Timing
from orchestrator.enforce.state import StateDir
from orchestrator.enforce.watch import Patience
from orchestrator.policy.model import Policy
from orchestrator.policy.oracle import decide
from orchestrator.program.delta import Delta
from orchestrator.wire.firewalls import Plane
from orchestrator.wire.points import PointState

Result = TypeVar("Result")
PACKETS = corner_packets()
WHOLE, LESS = POLICIES["whole"], POLICIES["without a rule"]
QUIET = Timing(observe_every_s=3600, count_every_s=3600, absent_after_s=3600)
BEYOND = 10_000


def permitted(policy: Policy) -> tuple[bool, ...]:
    return tuple(decide(policy, packet).permitted for packet in PACKETS)


NOBODY = (False,) * len(PACKETS)
BEFORE, AFTER = permitted(WHOLE), permitted(LESS)
NEITHER_OPENS = {NOBODY, BEFORE, AFTER, tuple(a and b for a, b in zip(BEFORE, AFTER, strict=True))}


class Killed(BaseException):
    """As SIGKILL would: nobody catches it."""


class Life:
    """One life of an agent. The axe falls at an effect of a number; nothing of it does anything from then on."""

    def __init__(self, falls_at: int) -> None:
        self.falls_at = falls_at
        self.log: list[str] = []
        self.over = threading.Event()
        self._turn = threading.RLock()

    def effect(self, what: str, done: Callable[[], Result]) -> Result:
        with self._turn:
            self._falls(f"before {what}")
            result = done()
            self._falls(f"after {what}")
            return result

    def alive(self) -> None:
        if self.over.is_set():
            raise Killed

    def _falls(self, where: str) -> None:
        self.alive()
        self.log.append(where)
        if len(self.log) == self.falls_at:
            self.over.set()
            raise Killed


class MortalState(StateDir):
    """Every write to the disk may be the last thing that is done."""

    def __init__(self, path: Path, life: Life) -> None:
        super().__init__(path)
        self.life = life

    def write(self, name: str, data: bytes) -> None:
        self.life.effect(name, lambda: super(MortalState, self).write(name, data))

    def keep_deltas(self, deltas: Iterable[Delta], *, flush: bool = True) -> bool:
        return self.life.effect("deltas", lambda: super(MortalState, self).keep_deltas(deltas, flush=flush))


class MortalPoints:
    """What a dead agent would still say or hear does not happen."""

    def __init__(self, points: PointCalls, life: Life) -> None:
        self._points = points
        self._life = life

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*words: object, **more: object) -> Any:
            self._life.alive()
            found = getattr(self._points, name)(*words, **more)
            return self._heard(found) if isinstance(found, Iterator) else found

        return call

    def _heard(self, stream: Iterator[Result]) -> Iterator[Result]:
        for each in stream:
            if self._life.over.is_set():
                return
            yield each


class Machine:
    """A VNF: its kernel and its disk, and the agents that live there one after the other."""

    def __init__(self, directory: Path, url: str) -> None:
        self.directory = directory
        self.url = url
        self.nft = FakeNft()
        self.is_forwarding = False
        self.seen: set[tuple[bool, ...]] = set()
        self.ahead_of_disk: list[str] = []

    def passing(self) -> tuple[bool, ...]:
        ruleset = self.nft.ruleset
        return tuple(self.is_forwarding and ruleset.send(packet, size=100).accepted for packet in PACKETS)

    def live(self, life: Life, holds: Callable[[], bool]) -> None:
        """Run an agent until something holds, or until it is killed."""
        agent: Agent | None = None
        client = None
        try:
            patience = Patience(watch_s=0.5, retry_s=0.01, longest_retry_s=0.05)
            membership = Membership(self.url, self.directory, "fw1", token="once", patience=patience)
            state = MortalState(self.directory, life)
            known = obtain_credentials(
                membership, "nftables", state, lambda url, _: Client(url).enrolment, threading.Event()
            )
            assert known is not None
            settings = AgentSettings(
                membership, "nftables", partial(nftables_driver, partial(self._run, life)), timing=QUIET
            )
            client = Client(self.url, known.token)
            agent = Agent(settings, state, known, MortalPoints(client.points, life))  # type: ignore[arg-type]
            agent.start()
            until(lambda: life.over.is_set() or holds())
        except Killed:
            assert life.over.is_set()
        finally:
            life.over.set()
            if agent is not None:
                with suppress(Killed, RuntimeError):  # a part that was not started yet cannot be waited for
                    agent.stop()
            if client is not None:
                client.close()

    def _run(self, life: Life, command: Sequence[str], text: str = "") -> Any:
        if "-f" not in command:
            life.alive()
            return self.nft.run(command, text)
        return life.effect("the filter", lambda: self._written(command, text))

    def _written(self, command: Sequence[str], text: str) -> Any:
        answer = self.nft.run(command, text)
        self.seen.add(self.passing())
        return answer

    def forward(self) -> None:
        """What the kernel is told by the agent."""
        self.is_forwarding = True
        self.seen.add(self.passing())

    def told(self, point: Point) -> None:
        """Said of the filter: the service may hear of it from now on, whenever the agent is killed."""
        kept = StateDir(self.directory).program()
        on_disk = 0 if kept is None else kept.generation
        if point.state is PointState.ENFORCED and point.generation > on_disk:
            self.ahead_of_disk.append(f"{point.generation} was told, and {on_disk} is on the disk")

    def reboot(self) -> None:
        self.nft, self.is_forwarding = FakeNft(), False


class WitnessedReporter(Reporter):
    """Everything that is handed to it is compared with the disk."""

    def __init__(self, machine: Machine, *parts: Any) -> None:
        super().__init__(*parts)
        self.machine = machine

    def point(self, point: Point) -> None:
        self.machine.told(point)
        super().point(point)


@pytest.fixture
def service() -> Iterator[StubService]:
    stub = StubService([])
    yield stub
    stub.close()


@pytest.fixture(autouse=True)
def killed_threads_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    others = threading.excepthook

    def hook(ended: threading.ExceptHookArgs) -> None:
        if ended.exc_type is not Killed:
            others(ended)

    monkeypatch.setattr(threading, "excepthook", hook)


def story(machine: Machine, service: StubService, falls_at: int, *, reboots: bool) -> Life:
    """It enrols, gets a list and then another. Killed on the way, it starts again, maybe on a machine that forgot."""
    first, then = (
        filter_program(policy, [Plane.NFTABLES], domain="pop1", generation=generation)
        for generation, policy in ((5, WHOLE), (6, LESS))
    )
    service.published[:], service.points, service.enrolments[:] = [first], {}, []

    def is_over() -> bool:
        if service.is_enforced(5, "fw1") and service.published[-1] is first:
            service.publish(then)
        return service.is_enforced(6, "fw1")

    life = Life(falls_at)
    machine.live(life, is_over)
    if not is_over():
        if reboots:
            machine.reboot()
        service.enrolments.clear()  # in clear, an answer that was lost costs the token: it is given another
        machine.live(Life(BEYOND), is_over)
    return life


@pytest.mark.parametrize("nth", [3, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("reboots", [False, True], ids=["its machine goes on", "its machine is rebooted"])
def test_killed_at_any_effect_its_successor_goes_on(
    tmp_path: Path, service: StubService, monkeypatch: pytest.MonkeyPatch, reboots: bool, nth: int
) -> None:
    """Every place where the axe may fall, one after the other; or every nth."""
    for at in itertools.count(1, nth):
        machine = Machine(tmp_path / str(at), service.url)
        monkeypatch.setattr(agent_module, "switch_forwarding_on", machine.forward)
        monkeypatch.setattr(agent_module, "Reporter", partial(WitnessedReporter, machine))
        life = story(machine, service, at, reboots=reboots)
        assert machine.passing() == AFTER, life.log[-1:]
        assert machine.seen <= NEITHER_OPENS, life.log[-1:]
        assert machine.ahead_of_disk == [], life.log[-1:]
        if len(life.log) < at:
            break
    assert {"the filter", "program", "deltas", "credentials.json"} <= {each.split(maxsplit=1)[1] for each in life.log}
    assert at > 8
