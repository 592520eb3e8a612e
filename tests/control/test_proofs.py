"""What is not proven is not published: the write is refused, what was published stays, and it is counted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from orchestrator.compile.hostprogram import CompileCache, compile_host
from orchestrator.compile.pipelines.host import Table
from orchestrator.control import compiler as compiler_module
from orchestrator.control.compiler import Compiler
from orchestrator.control.control import Control
from orchestrator.control.metrics import Metrics
from orchestrator.control.publisher import Held, Publisher
from orchestrator.errors import NotEquivalent
from orchestrator.placement.lifting import LiftedRule
from orchestrator.policy.addresses import EVERY_IPV4
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.model import Acl, Policy
from orchestrator.program.delta import apply
from orchestrator.program.program import Program
from orchestrator.program.wire import decode_delta
from orchestrator.store import Store, open_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(f"sqlite:///{tmp_path / 'store.db'}")
    with opened.write() as unit:
        unit.domains.create("pop")
        unit.tenants.create("all", name="", domain="pop", prefixes=[EVERY_IPV4])
    yield opened
    opened.close()


def ports(*numbers: int) -> Acl:
    return acl_from_json(
        {"rules": [{"id": f"p{n}", "action": "permit", "protocol": "tcp", "destination_ports": n} for n in numbers]}
    )


def one_row_short(
    policy: Policy, *, domain: str, generation: int, lifted: tuple[LiftedRule, ...], cache: CompileCache
) -> Program:
    """A compiler that loses the last row of the ingress rules."""
    program = compile_host(policy, domain=domain, generation=generation, lifted=lifted, cache=cache)
    flows = program.flows
    stays = np.ones(len(flows), np.bool_)
    stays[np.flatnonzero((flows.table == Table.INGRESS) & (flows.priority > 301))[-1]] = False
    cache.change = None
    return Program.of(domain, program.tier, generation, flows.take(stays), program.ports)


@pytest.mark.parametrize("many", [compiler_module._MANY_ROWS, 0])
def test_a_program_that_is_not_its_policy_is_not_published(
    store: Store, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    """Nor is one whose change was written down already, while it was proven."""
    monkeypatch.setattr(compiler_module, "_MANY_ROWS", many)
    metrics, publisher = Metrics(), Publisher()
    control = Control(store, Compiler(metrics), publisher)
    control.start()
    try:

        def put(acl: Acl) -> Any:
            return control.write(lambda unit: unit.acls.replace("all", acl, author="test"))

        put(ports(80, 443))
        before = publisher.program("pop")
        with monkeypatch.context() as patch:
            patch.setattr(compiler_module, "compile_host", one_row_short)
            with pytest.raises(NotEquivalent):
                put(ports(80, 443, 22))
        assert publisher.program("pop") is before
        assert control.read(lambda unit: unit.acls.current("all").acl) == ports(80, 443)
        assert b"aclflow_disproved_total 1.0" in metrics.text()
        put(ports(80, 22))
        after = publisher.program("pop")
        assert before is not None
        assert after is not None
        assert after.generation == before.generation + 1
        answer = publisher.editions["pop"].ready(Held(before.digest, before.generation))
        assert answer is not None
        assert apply(before, decode_delta(answer.body)).digest == after.digest
    finally:
        publisher.close()
        control.stop()
