"""A switch that holds a policy, and brings lifts to it as the product does."""

from __future__ import annotations

import time
from functools import partial

from orchestrator.bench.traffic.vnf import VnfAcl
from orchestrator.compile.equivalence import Proof, prove
from orchestrator.compile.hostprogram import CompileCache
from orchestrator.placement.lifting import LiftedRule
from orchestrator.policy.model import Policy


class LiftBench:
    """A switch that holds a policy, with what compiler and proof know of it."""

    def __init__(self, vnf: VnfAcl, wanted: Policy) -> None:
        self.vnf = vnf
        self.policy = wanted
        self._cache = CompileCache()
        self._generation = 1
        program = self._cache.compile_program(wanted, domain="bench", generation=self._generation)
        self._proof: Proof = prove(wanted, program.flows)
        vnf.load(program)

    def bring(self, lifted: tuple[LiftedRule, ...]) -> float:
        """Bring just these lifts; return milliseconds from the decision to the barrier."""
        self._generation += 1
        began = time.perf_counter()
        program = self._cache.compile_program(self.policy, domain="bench", generation=self._generation, lifted=lifted)
        change = self._cache.change
        assert change is not None
        flows = partial(getattr, program, "flows")
        self._proof = self._proof.after(self.policy, change.removed, change.added, flows)
        self.vnf.change(change, program)
        return (time.perf_counter() - began) * 1000
