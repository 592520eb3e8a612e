"""Every domain's current program, ready to send, and its watchers.

    publish(program) ──▶ Edition ── program ──── the current one; whole, it is encoded when first asked for
                            ├────── recent ───── the programs before it, by digest
                            └────── answers ──── the deltas from them to the current one, each encoded once

An enforcement point says what it holds. When that is a recent program it gets the delta from there; the delta from the
program before is encoded when a program is published, because watchers that are up to date hold that one. A point that
holds something else gets the whole program. A published program is never replaced by an older generation.

A change that is known from a program before the current one, as of services that write in turns, is not searched for
again: the small steps in between are taken out of it (`program.delta.between_targets`).
"""

from __future__ import annotations

import asyncio
import enum
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from orchestrator.control.signals import Signal
from orchestrator.errors import Busy
from orchestrator.program.blocks import FEW_ROWS
from orchestrator.program.delta import Delta, between, between_targets, follow_on
from orchestrator.program.edits import Edits
from orchestrator.program.flows import FlowTable
from orchestrator.program.program import Program
from orchestrator.program.wire import encode_delta, encode_edits, encode_program

KEPT_PROGRAMS = 16
KEPT_BYTES = 64 << 20
LARGE_BYTES = 1 << 20
"""A difference of more than this is looked for when somebody asks, for whoever publishes holds up all writers."""


class AnswerKind(enum.Enum):
    """The kind of an answer's body."""

    PROGRAM = "program"
    DELTA = "delta"


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer to an enforcement point."""

    kind: AnswerKind
    generation: int
    body: bytes
    digest: bytes
    """Of the program that whoever takes it holds then."""
    edits: bytes | None = None
    """The same as edits, where these are shorter."""

    @property
    def held(self) -> Held:
        """Return what a recipient of the answer holds then."""
        return Held(self.digest, self.generation)

    def form(self, *, edits: bool) -> bytes:
        """The body for a caller that can read edits, or cannot."""
        return self.edits if edits and self.edits is not None else self.body


@dataclass(frozen=True, slots=True)
class Held:
    """The program that an enforcement point holds; `generation` is None if not stated."""

    digest: bytes
    generation: int | None


@dataclass(frozen=True, slots=True)
class _Recent:
    """A program that was current before, and the bytes that it alone keeps in memory."""

    program: Program
    own_bytes: int
    step: Delta | None
    """To the edition after it, where that is small."""


class Edition:
    """A domain's current program with recent ones.

    Only its cache of answers changes, and `is_proven`: whether this service has compiled and proven the program.
    """

    def __init__(self, program: Program, recent: tuple[_Recent, ...] = (), *, is_proven: bool = True) -> None:
        self.program = program
        self.is_proven = is_proven
        self._recent = {each.program.digest: each for each in recent if each.program.digest != program.digest}
        self._answers: dict[bytes | None, Answer] = {}
        self._encoding = threading.Lock()

    def find_recent(self, digest: bytes) -> Program | None:
        """Return this program or a recent one by its digest."""
        if digest == self.program.digest:
            return self.program
        found = self._recent.get(digest)
        return None if found is None else found.program

    def succeeded_by(self, program: Program, change: Delta | None = None, *, is_proven: bool = True) -> Edition:
        """The next edition, with the answer for all who hold this one at hand.

        `change` may be the delta between the two. If it is from elsewhere, a small difference is looked for now; the
        answer for a large one is made when first asked for.
        """
        own_bytes = self.program.blocks.bytes_apart(program.blocks)
        if change is not None and change.target == program.digest:
            change = self._from_here(change)
        if change is None or (change.base, change.target) != (self.program.digest, program.digest):
            change = between(self.program, program) if own_bytes <= LARGE_BYTES else None
        recent = [*self._recent.values(), _Recent(self.program, own_bytes, _small(change))][-KEPT_PROGRAMS:]
        while len(recent) > 1 and sum(each.own_bytes for each in recent) > KEPT_BYTES:
            del recent[0]
        following = Edition(program, tuple(recent), is_proven=is_proven)
        if change is not None:
            following._answers[self.program.digest] = _make_answer(change)
        return following

    def _from_here(self, change: Delta) -> Delta | None:
        """Return the delta from this program to the target of `change`, or None.

        `change` starts from a recent program, as where services write in turns: each starts from what it compiled
        last. None where the delta takes a search.
        """
        if change.base == self.program.digest:
            return change
        steps = [each.step for each in self._recent.values()]
        places = {digest: place for place, digest in enumerate(self._recent)}
        start = places.get(change.base)
        way = None if start is None or _small(change) is None else steps[start]
        for step in steps[start + 1 :] if start is not None else ():
            way = None if way is None or step is None else follow_on(way, step)
        return None if way is None else between_targets(way, change)

    def is_newer(self, held: Held | None) -> bool:
        """Whether this is another program than `held`, or of another generation."""
        return held is None or (held.digest, held.generation) != (self.program.digest, self.program.generation)

    def ready(self, held: Held | None) -> Answer | None:
        """The answer for `held` if it is at hand already."""
        return self._answers.get(self._start(held))

    def answer(self, held: Held | None) -> Answer:
        """The answer for `held`, encoded now if nobody asked before: may take a while."""
        start = self._start(held)
        with self._encoding:
            if start not in self._answers:
                self._answers[start] = self._encode_answer(start)
            return self._answers[start]

    def _start(self, held: Held | None) -> bytes | None:
        """Return the digest that the answer starts from, or None for the whole program."""
        known = held is not None and (held.digest == self.program.digest or held.digest in self._recent)
        return held.digest if held is not None and known else None

    def _encode_answer(self, start: bytes | None) -> Answer:
        program = self.program
        if start is None:
            return Answer(AnswerKind.PROGRAM, program.generation, encode_program(program), program.digest)
        if start == program.digest:
            return _make_answer(_empty_delta(program))
        return _make_answer(between(self._recent[start].program, program))


class Publisher:
    """The current editions of all domains, and who waits for newer ones."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.editions: dict[str, Edition] = {}
        self._changed: WeakValueDictionary[str, Signal] = WeakValueDictionary()
        """Of each domain that somebody waits for: a program wakes nobody who waits for another domain's."""
        self._closed = False

    @property
    def watching(self) -> int:
        """How many enforcement points wait for a newer program."""
        return sum(changed.waiting for changed in self._list_signals())

    def program(self, domain: str) -> Program | None:
        """A domain's current program; None when none was published yet."""
        edition = self.editions.get(domain)
        return edition.program if edition else None

    def programs(self) -> tuple[Program, ...]:
        """Every domain's current program."""
        return tuple(edition.program for edition in tuple(self.editions.values()))

    def find_recent(self, domain: str, digest: bytes) -> Program | None:
        """Return a domain's current program, or a recent one, by its digest."""
        edition = self.editions.get(domain)
        return edition.find_recent(digest) if edition else None

    def is_proven(self, domain: str) -> bool:
        """Return whether this service has proven a domain's current program, if there is one."""
        edition = self.editions.get(domain)
        return edition is None or edition.is_proven

    def confirm(self, program: Program) -> bool:
        """Note that a program was proven here; return whether it is the current one."""
        with self._lock:
            edition = self.editions.get(program.domain)
            if edition is None or edition.program.digest != program.digest:
                return False
            edition.is_proven = edition.is_proven or edition.program.generation == program.generation
            return edition.is_proven

    def publish(
        self, program: Program, change: Delta | None = None, *, again: bool = False, is_proven: bool = True
    ) -> bool:
        """Make a program current and wake watchers.

        Returns False when the current one is as new already.

        `change` is how the program came about, if the caller knows: it spares comparing with the one before. `again`:
        a generation may come to another program than before, for what else it is made of has changed. `is_proven`: it
        was compiled and proven here.
        """
        with self._lock:
            before = self.editions.get(program.domain)
            if before is not None and before.program.generation >= program.generation + again:
                return False
            self.editions[program.domain] = (
                before.succeeded_by(program, change, is_proven=is_proven)
                if before
                else Edition(program, is_proven=is_proven)
            )
        self._wake(program.domain)
        return True

    def drop(self, domain: str) -> None:
        """Forget a domain that is no more."""
        with self._lock:
            self.editions.pop(domain, None)
        self._wake(domain)

    def close(self) -> None:
        """Answer all who wait, now and from now on, with nothing newer: the service stops."""
        self._closed = True
        for changed in self._list_signals():
            changed.fire()

    async def watch(
        self, domain: str, held: Held | None, wait_s: float, *, at_least: Callable[[], int] = lambda: 0
    ) -> Answer | None:
        """Wait for a program newer than `held`; None after `wait_s`.

        A program older than generation `at_least`, as it is at the moment, is not given out. Raises Busy when all this
        time there was none.
        """
        edition = self.editions.get(domain)
        if held is not None and held.generation is None and edition is not None:
            held = Held(held.digest, edition.program.generation)

        async def find_newer() -> Answer | bool | None:
            edition = self.editions.get(domain)
            if self._closed:
                return False
            if edition is None or edition.program.generation < at_least() or not edition.is_newer(held):
                return None
            return edition.ready(held) or await asyncio.to_thread(edition.answer, held)

        answer = await self._signal_of(domain).until(find_newer, wait_s)
        if isinstance(answer, Answer):
            return answer
        program = self.program(domain)
        if program is None or program.generation < at_least():
            raise Busy(f"the program of '{domain}' is being compiled: ask again")
        return None

    async def follow(
        self, domain: str, first: Answer | None, held: Held | None, lasts_s: float, *, heartbeat_s: float
    ) -> AsyncIterator[Answer | None]:
        """Yield programs newer than `held`, beginning with `first`; None is a heartbeat.

        Ends after `lasts_s`, when the domain is gone, and when the service stops.
        """
        ends = time.monotonic() + lasts_s
        found = first
        while True:
            yield found
            held = found.held if found is not None else held
            left = ends - time.monotonic()
            if self._closed or left <= 0:
                return
            try:
                found = await self.watch(domain, held, min(left, heartbeat_s))
            except Busy:
                return

    def _signal_of(self, domain: str) -> Signal:
        with self._lock:
            return self._changed.setdefault(domain, Signal())

    def _list_signals(self) -> list[Signal]:
        with self._lock:
            return list(self._changed.values())

    def _wake(self, domain: str) -> None:
        """Wake all that wait for a domain's next program."""
        with self._lock:
            changed = self._changed.get(domain)
        if changed is not None:
            changed.fire()


def _small(change: Delta | None) -> Delta | None:
    """Return a change of few rows, None for any other."""
    return change if change is not None and len(change.removed) + len(change.added) <= FEW_ROWS else None


def _make_answer(delta: Delta) -> Answer:
    """Encode a delta as an answer, also as edits where these are shorter."""
    whole, edits = encode_delta(delta), Edits.of(delta)
    shorter = None if edits is None else encode_edits(edits)
    if shorter is not None and len(shorter) >= len(whole):
        shorter = None
    return Answer(AnswerKind.DELTA, delta.generation, whole, delta.target, shorter)


def _empty_delta(program: Program) -> Delta:
    """The delta that only moves the generation on."""
    nothing = FlowTable.of(())
    return Delta(program.digest, program.digest, program.generation, nothing, nothing, program.ports)


Kept = TypeVar("Kept")


class PublishedTier(Generic[Kept]):
    """Publishes a tier's programs, and forgets domains without the tier.

    Safe between threads.
    """

    def __init__(self, publisher: Publisher) -> None:
        self.publisher = publisher
        self._lock = threading.Lock()
        self._known: dict[str, Kept] = {}

    def publish(self, domain: str, program: Program | None) -> None:
        """Make a program current. None: the domain does not have the tier (any more)."""
        if program is not None:
            self.publisher.publish(program)
        elif self.publisher.program(domain) is not None:
            self.forget(domain)

    def forget(self, domain: str) -> None:
        """Drop what is kept for a domain."""
        with self._lock:
            self._known.pop(domain, None)
        self.publisher.drop(domain)
