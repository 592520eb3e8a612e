"""Prove every program before publishing that it decides as its policy does.

The proof of the program compiled last is kept for each domain, so that after a small change only what the change
touches is proven again (`compile/equivalence`).
"""

from __future__ import annotations

import time
from collections.abc import Set

import structlog

from orchestrator.compile.equivalence import Proof, prove, prove_rest
from orchestrator.control.metrics import Metrics
from orchestrator.errors import NotEquivalent
from orchestrator.policy.model import Policy
from orchestrator.program.delta import Delta
from orchestrator.program.program import Program

log = structlog.get_logger()


class Proofs:
    """Proves programs; not to be shared between threads without a lock."""

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
