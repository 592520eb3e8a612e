"""Policy snapshots into programs, with what each domain's last compilation left to build on."""

from __future__ import annotations

import threading
import time

from orchestrator.compile.host import CompileCache, compile_host
from orchestrator.control.metrics import Metrics
from orchestrator.program.program import Program
from orchestrator.store.records import PolicySnapshot


class Compiler:
    """Compiles one snapshot at a time: the caches are shared, and two at once would only take turns."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._lock = threading.Lock()
        self._caches: dict[str, CompileCache] = {}

    def compile(self, domain: str, snapshot: PolicySnapshot) -> Program:
        """The program of a domain's policy. Raises TooLarge and NotExpressible with the rule's place."""
        with self._lock:
            cache = self._caches.setdefault(domain, CompileCache())
            started = time.perf_counter()
            program = compile_host(snapshot.policy, domain=domain, generation=snapshot.generation, cache=cache)
            self._metrics.compiled(time.perf_counter() - started)
        return program

    def forget(self, domain: str) -> None:
        """Drop what is kept for a domain that is no more."""
        with self._lock:
            self._caches.pop(domain, None)
