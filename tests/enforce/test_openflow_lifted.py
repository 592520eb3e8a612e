"""Real frames through a real switch: the same come out before rules are lifted, afterwards, and when they are back."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from enforce.real_switch import RealSwitch
from enforce.test_openflow_compiled import NOTHING, Twins, frames_of, placed
from hypothesis import HealthCheck, Phase, given, settings
from strategies import policies

from orchestrator.compile.hostprogram import CompileCache
from orchestrator.compile.pipelines.host import Table
from orchestrator.placement.lifting import LiftedRule
from orchestrator.policy.model import Policy
from orchestrator.program.delta import Delta

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def switch(real_switch: RealSwitch) -> Iterator[RealSwitch]:
    yield real_switch
    real_switch.reset()


@given(policies(max_tenants=2, max_rules=6))
@settings(
    max_examples=6,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
def test_real_frames_go_where_they_went(switch: RealSwitch, drawn: Policy) -> None:
    switch.reset()
    policy, cache, twins = placed(drawn), CompileCache(), Twins(switch)
    every = [LiftedRule(tenant.id, rule.id) for tenant in policy.tenants for rule in tenant.acl.rules]
    frames = list(frames_of(policy, random.Random(1)))
    try:
        before = cache.compile_program(policy, domain="d", generation=1)
        twins.apply(Delta(b"", before.digest, 1, NOTHING, before.flows, before.ports))
        answers = [sorted(switch.forward(sent, port)) for port, sent in frames]
        for generation, lifted in ((2, every), (3, [])):
            program = cache.compile_program(policy, domain="d", generation=generation, lifted=lifted)
            assert cache.change is not None
            changed = {*cache.change.added.table.tolist(), *cache.change.removed.table.tolist()}
            assert changed <= {int(Table.LIFTED)}
            twins.apply(cache.change)
            assert twins.hold(program)
            again = [sorted(switch.forward(sent, port)) for port, sent in frames]
            assert again == answers, generation
    finally:
        twins.close()
