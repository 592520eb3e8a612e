"""Time to lift one rule among many, from the decision to the switch's barrier.

The clock covers finding the form that changes nothing (hoist), compiling, proving the program's lifted part against the
policy, and one bundle to the switch, with its barrier and with the rows read back that it brought. Each of the
traffic's rules is lifted in turn, alone, and taken down again. The first lift of a list leaves results about the list
that later lifts use, so it is counted apart.
"""

from __future__ import annotations

import time
from functools import partial

from orchestrator.bench.promotion.outcome import Lifts
from orchestrator.bench.promotion.ways import LIFTED
from orchestrator.bench.traffic.addresses import policy
from orchestrator.bench.traffic.line import RIGHT
from orchestrator.bench.traffic.rules import Listed
from orchestrator.bench.traffic.vnf import VnfAcl
from orchestrator.compile.equivalence import Proof, prove
from orchestrator.compile.host import CompileCache
from orchestrator.placement.lifting import LiftedRule
from orchestrator.policy.model import Policy


def measure_lifts(vnf: VnfAcl, rules: int, turns: int) -> Lifts:
    """Lift one rule and lower it again, `turns` times after a first."""
    bench = _Bench(vnf, policy(Listed(rules).acl(), server_port=RIGHT))
    found = Lifts(bench.milliseconds(LIFTED[:1]))
    bench.milliseconds(())
    for turn in range(1, turns + 1):
        found.up.append(bench.milliseconds((LIFTED[turn % len(LIFTED)],)))
        found.down.append(bench.milliseconds(()))
    return found


class _Bench:
    """A switch that holds a policy, with what compiler and proof know of it."""

    def __init__(self, vnf: VnfAcl, wanted: Policy) -> None:
        self._vnf = vnf
        self._wanted = wanted
        self._cache = CompileCache()
        self._generation = 1
        program = self._cache.compile_program(wanted, domain="bench", generation=self._generation)
        self._proof: Proof = prove(wanted, program.flows)
        vnf.load(program)

    def milliseconds(self, lifted: tuple[LiftedRule, ...]) -> float:
        """Bring the switch to just these lifts."""
        self._generation += 1
        began = time.perf_counter()
        program = self._cache.compile_program(self._wanted, domain="bench", generation=self._generation, lifted=lifted)
        change = self._cache.change
        assert change is not None
        flows = partial(getattr, program, "flows")
        self._proof = self._proof.after(self._wanted, change.removed, change.added, flows)
        self._vnf.change(change, program)
        return (time.perf_counter() - began) * 1000
