"""Small and large programs for tests of the loop, without a compiler: a pair of symbolic rows a port, and rules."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.openflow import oxm
from orchestrator.compile.openflow.instructions import instructions, output
from orchestrator.program.delta import Delta, between
from orchestrator.program.flows import SYMBOL_BASE, Flow, FlowTable
from orchestrator.program.program import Program, Tier

PORTS = ("p1", "p2")
_TO_INGRESS, _TO_OUTPUT = instructions(goto=50), instructions(goto=60)
_RULE = Cookie(Tier.HOST, Kind.RULE).pack()


def rule(number: int, *, permits: bool = True, priority: int = 30000, tenant: int = 1) -> Flow:
    """A rule's row: TCP to one port of one address, both drawn from its number."""
    match = oxm.pack(
        (
            oxm.Term(oxm.ETH_TYPE, oxm.IPV4),
            oxm.Term(oxm.IPV4_DST, 0x0A000000 | number >> 8),
            oxm.Term(oxm.IP_PROTO, 6),
            oxm.Term(oxm.TCP_DST, 1000 + (number & 0xFF)),
        )
    )
    return Flow(50, priority, match, _TO_OUTPUT if permits else b"", _RULE + number, tenant)


def port_rows(index: int) -> tuple[Flow, Flow]:
    """What a port of the program brings: it is admitted from, and sent to."""
    symbol = SYMBOL_BASE + index
    structure = Cookie(Tier.HOST, Kind.STRUCTURE).pack()
    admit = Flow(0, 1000, oxm.pack((oxm.Term(oxm.IN_PORT, symbol),)), _TO_INGRESS, structure)
    target = oxm.pack((oxm.Term(oxm.ETH_TYPE, oxm.IPV4), oxm.Term(oxm.IPV4_DST, 0x0A000000 | index)))
    return admit, Flow(60, 1000, target, instructions((output(symbol),)), structure)


def program(rules: Iterable[Flow], *, generation: int = 1, ports: tuple[str, ...] = PORTS) -> Program:
    """A program of some rules over some ports."""
    flows = FlowTable.of([*(row for index in range(len(ports)) for row in port_rows(index)), *rules])
    return Program.of("pop1", Tier.HOST, generation, flows, ports)


def large_program(rules: int, *, generation: int = 1) -> Program:
    """As `program(map(rule, range(rules)))`, by column."""
    small = program([rule(0)])
    base = small.flows.take(np.arange(len(small.flows) - 1))
    template = small.flows.take(np.full(rules, len(small.flows) - 1))
    numbers = np.arange(rules)
    match = template.match.copy()
    address = oxm.pack((oxm.Term(oxm.ETH_TYPE, oxm.IPV4), oxm.Term(oxm.IPV4_DST, 0)))
    match[:, len(address) - 4 : len(address)] = (0x0A000000 | numbers >> 8).astype(">u4").view(np.uint8).reshape(-1, 4)
    length = int(template.match_length[0])
    match[:, length - 2 : length] = (1000 + (numbers & 0xFF)).astype(">u2").view(np.uint8).reshape(-1, 2)
    body = FlowTable(
        template.table,
        template.priority,
        numbers.astype(np.uint64) + np.uint64(_RULE),
        template.tenant,
        template.match_length,
        match,
        template.instructions,
        template.instruction_set,
    )
    flows = FlowTable.join_tables((base, body))
    return Program.of("pop1", Tier.HOST, generation, flows, small.ports)


def change(old: Program, new: Program) -> Delta:
    """How the service would say it."""
    return between(old, new)
