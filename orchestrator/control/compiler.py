"""Policy snapshots into programs, with what each domain's last compilation left to build on."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import structlog

from orchestrator.compile.equivalence import Proof, prove, prove_rest
from orchestrator.compile.hostprogram import CompileCache, compile_host
from orchestrator.compile.lifting.lifts import Lift
from orchestrator.control.keptprograms import KeptPrograms
from orchestrator.control.metrics import Metrics
from orchestrator.errors import AclflowError, NotEquivalent
from orchestrator.policy.model import Policy
from orchestrator.program.delta import Delta
from orchestrator.program.program import Program
from orchestrator.program.wire import written
from orchestrator.store.records import PolicySnapshot

log = structlog.get_logger()


class Proofs:
    """Proves every program before it is published.

    The proof of the program compiled last is kept for each domain, so that after a small change only what the change
    touches is proven again (`compile/equivalence`). Not to be shared between threads without a lock.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._known: dict[str, tuple[bytes, Proof]] = {}

    def fork(self) -> Proofs:
        """Return proofs that know the same and go their own way."""
        other = Proofs(self._metrics)
        other._known = dict(self._known)
        return other

    def resume(self, policy: Policy, program: Program, same: Set[str]) -> None:
        """Prove a restored program, but for the tenants `same`.

        Their rows were proven before they were kept. Raises NotEquivalent.
        """
        blocks = program.blocks
        proof = prove_rest(policy, same, blocks.tenants, blocks.of_tenant)
        self._known[program.domain] = (program.digest, proof)

    def check(self, policy: Policy, program: Program, change: Delta | None) -> None:
        """Prove a program, from the last proven one by `change` where possible.

        Raises NotEquivalent, and counts it; what was proven before stays known.
        """
        digest, known = self._known.get(program.domain, (b"", None))
        started = time.perf_counter()
        try:
            if change is None or change.base != digest:
                known = None
            if known is None or change is None or known.must_begin_anew(policy, change.removed, change.added):
                proof = prove(policy, program.flows)
            else:
                proof = known.after(policy, change.removed, change.added, program.blocks.of_tenant)
        except NotEquivalent as error:
            self._metrics.count_disproof()
            log.critical("not published: the program is not the policy", domain=program.domain, error=str(error))
            raise
        self._metrics.proven(time.perf_counter() - started)
        self._known[program.domain] = (program.digest, proof)


_MANY_ROWS = 4096
"""From so many rows on a change is a large one."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A program, its delta from the last one, and the results of lifting.

    Without a last one there is no delta.
    """

    program: Program
    change: Delta | None
    lifts: tuple[Lift, ...] = ()

    @property
    def is_large(self) -> bool:
        """Whether so much changed that what making it took is worth giving back."""
        return self.change is None or _is_large(self.change)


@dataclass(frozen=True, slots=True)
class _Line:
    """The last program of one line of a domain's programs: its parts and proof."""

    cache: CompileCache
    proofs: Proofs

    def fork(self) -> _Line:
        """Return a line that goes on from here apart from this one."""
        return _Line(self.cache.fork(), self.proofs.fork())


class Compiler:
    """Compiles one snapshot of a domain at a time.

    While an intersection goes first, a write compiles
    both the newest policy and what is published of it: these are two lines, each of which costs what the write changed.
    Where they were one, a long list that is held back would be compiled twice at every write of anybody.
    """

    def __init__(self, metrics: Metrics, kept: KeptPrograms | None = None) -> None:
        self._metrics = metrics
        self._kept = kept
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._lines: dict[str, _Line] = {}
        self._intersections: dict[str, _Line] = {}

    def compile(self, domain: str, snapshot: PolicySnapshot, *, is_intersection: bool = False) -> Compiled:
        """The program of a domain's policy, proven. Raises TooLarge and NotExpressible with the rule's place.

        Raises NotEquivalent when what was compiled is not the policy.
        """
        with self._locks[domain]:
            if domain not in self._lines and self._kept is not None and not is_intersection:
                restored = self._restore(self._kept, domain, snapshot)
                if restored is not None:
                    return restored
            line = self._lines.setdefault(domain, _Line(CompileCache(), Proofs(self._metrics)))
            if is_intersection:
                line = self._intersections.get(domain) or line.fork()
                self._intersections[domain] = line
            cache = line.cache
            started = time.perf_counter()
            program = compile_host(
                snapshot.policy, domain=domain, generation=snapshot.generation, lifted=snapshot.lifted, cache=cache
            )
            self._metrics.observe_compilation(time.perf_counter() - started)
            with _writing(cache.change) as change:
                line.proofs.check(snapshot.policy, program, cache.change)
            return Compiled(program, change(), cache.lifts)

    def _restore(self, kept: KeptPrograms, domain: str, snapshot: PolicySnapshot) -> Compiled | None:
        """Return the program made from a kept one; None: compile it all.

        Parts that changed since are compiled and proven.
        """
        found = kept.restore(domain, snapshot)
        if found is None:
            return None
        line = _Line(CompileCache(), Proofs(self._metrics))
        try:
            program = line.cache.restore_program(
                snapshot.policy, found.program, found.same, generation=snapshot.generation
            )
            line.proofs.resume(snapshot.policy, program, found.same)
        except AclflowError as error:  # if it is the list's fault, compiling it says so
            kept.refuse(domain, error)
            return None
        self._lines[domain] = line
        return Compiled(program, None)

    def follow(self, domain: str) -> None:
        """The newest policy is published: drop what is kept of an intersection."""
        with self._locks[domain]:
            self._intersections.pop(domain, None)

    def forget(self, domain: str) -> None:
        """Drop what is kept for a domain that is no more."""
        with self._locks[domain]:
            self._lines.pop(domain, None)
            self._intersections.pop(domain, None)


@contextmanager
def _writing(change: Delta | None) -> Iterator[Callable[[], Delta | None]]:
    """Encode a large change in a thread beside the block.

    Most of that is compression; the function given returns the change afterwards.
    """
    if change is None or not _is_large(change):
        yield lambda: change
        return
    with ThreadPoolExecutor(1) as beside:
        yield beside.submit(written, change).result


def _is_large(change: Delta) -> bool:
    return len(change.removed) + len(change.added) >= _MANY_ROWS
