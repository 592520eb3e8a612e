"""20,000 random rules, many of them lifted, and 100,000 packets at their corners: nobody's verdict or count is another.

Between the program before and after the lift only rows of table `lifted` differ. So what a packet's verdict is before
and after differs at most where such a row holds it; and there the row must be of the line that comes first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest
from lifted_shop import SHOP

from orchestrator.compile.equivalence import prove
from orchestrator.compile.equivalence.rowdecoder import decode
from orchestrator.compile.hostprogram import CompileCache
from orchestrator.compile.lists.atoms import atoms
from orchestrator.compile.pipelines.host import Table
from orchestrator.placement.hoist import Form
from orchestrator.placement.lifting import LiftedRule
from orchestrator.policy.addresses import ANY, Addresses, Family, Prefix
from orchestrator.policy.model import Acl, Action, Direction, Endpoint, Policy, Rule, RuleId, Tenant
from orchestrator.policy.ports import EVERY_PORT, PortRange
from orchestrator.policy.protocols import TCP, UDP
from orchestrator.program.flows import FlowTable

HOW_MANY, PACKETS, LIFTED = 20_000, 100_000, 150
HOME = 0x0A1D0400
LENGTHS, SHARES = (0, 10, 14, 18, 22, 26, 30), (0.01, 0.01, 0.03, 0.1, 0.25, 0.3, 0.3)
Column = npt.NDArray[np.int64]


def addresses(draw: np.random.Generator, base: int, length: int) -> Addresses:
    if length == 0:
        return ANY
    network = (base | int(draw.integers(1 << 32 - 8)) & ((1 << 32 - 8) - 1)) >> 32 - length << 32 - length
    return Addresses((Prefix(Family.IPV4, network, length),))


def random_rule(draw: np.random.Generator, number: int) -> Rule:
    """A rule of the shop's: some wide, most narrow, permits and denies in any order."""
    ingress = bool(draw.integers(10))
    far = addresses(
        draw, 10 << 24, int(draw.choice((0, 10, 14, 18, 22, 26, 30), p=(0.01, 0.01, 0.03, 0.1, 0.25, 0.3, 0.3)))
    )
    own = Addresses((Prefix(Family.IPV4, HOME | int(draw.integers(8)), 32),))
    port = int(draw.choice((22, 53, 80, 443, 8080)) + draw.integers(40))
    ports = EVERY_PORT if not draw.integers(50) else (PortRange(port, port + int(draw.integers(3))),)
    return Rule(
        RuleId(f"r{number}"),
        Action.PERMIT if draw.integers(2) else Action.DENY,
        Direction.INGRESS if ingress else Direction.EGRESS,
        TCP if draw.integers(3) else UDP,
        far if ingress else own,
        own if ingress else far,
        destination_ports=ports,
    )  # fmt: skip


@pytest.fixture(scope="module")
def world() -> Policy:
    draw = np.random.default_rng(20)
    rules = tuple(random_rule(draw, number) for number in range(HOW_MANY))
    prefixes = (Prefix(Family.IPV4, HOME, 24),)
    tenant = Tenant(SHOP, 7, prefixes, Acl(rules), {rule.id: number for number, rule in enumerate(rules, 1)})
    ends = (Endpoint("web", SHOP, "web0", 2, (Prefix(Family.IPV4, HOME, 29),)),)
    return Policy((tenant,), endpoints=ends)


@dataclass(frozen=True)
class Packets:
    """Packets as columns: source, destination, protocol, source port, destination port, TCP flags."""

    fields: Column
    from_uplink: npt.NDArray[np.bool_]


def test_no_verdict_and_no_count_differs(world: Policy) -> None:
    draw = np.random.default_rng(21)
    names = [LiftedRule(SHOP, RuleId(f"r{number}")) for number in draw.choice(HOW_MANY, LIFTED, replace=False)]
    cache = CompileCache()
    cache.compile_program(world, domain="d1", generation=1)
    program = cache.compile_program(world, domain="d1", generation=2, lifted=names)
    assert cache.change is not None
    assert not len(cache.change.removed)
    assert set(cache.change.added.table.tolist()) == {int(Table.LIFTED)}
    prove(world, program.flows)
    forms = [lift.form for lift in cache.lifts]
    assert set(forms) == {None, Form.ALONE, Form.NARROWED, Form.TOGETHER}, "the draw is too easy"
    rows = cache.change.added
    packets = corner_packets(draw, world, rows)
    hit, claimed = decided_ahead(rows, packets)
    first = first_matches(world, packets, np.flatnonzero(hit))
    assert hit.sum() > PACKETS // 10, "too few packets meet what is lifted"
    assert (claimed[hit] == first).all()
    cache.compile_program(world, domain="d1", generation=3)
    assert cache.change.removed.rows() != []
    assert set(cache.change.removed.table.tolist()) == {int(Table.LIFTED)}


def corner_packets(draw: np.random.Generator, world: Policy, rows: FlowTable) -> Packets:
    """Packets at the corners of lifted rows and of rules, each field of one of them or one beside it."""
    items = decode(rows).items
    bounds = [
        (items["low"][:, side, 1] >> np.uint64(32), items["high"][:, side, 1] >> np.uint64(32)) for side in (0, 1)
    ]
    bounds += [(items["port_low"][:, side], items["port_high"][:, side]) for side in (0, 1)]
    one = draw.integers(len(rows), size=PACKETS)
    table = atoms(world.tenants[0].acl.rules, {})
    other = draw.integers(len(table), size=PACKETS)
    fields = np.zeros((PACKETS, 6), np.int64)
    for place, (low, high) in zip((0, 1, 3, 4), bounds, strict=True):
        end = np.where(draw.integers(2, size=PACKETS), low[one], high[one]).astype(np.int64)
        limit = (1 << 32) - 1 if place < 2 else 65535
        beside = draw.choice((-1, 0, 0, 0, 0, 0, 1), size=PACKETS)
        fields[:, place] = np.clip(end + beside, 0, limit)
    swap = draw.integers(3, size=PACKETS) == 0
    fields[swap, 0] = (table.src_hi >> np.uint64(32)).astype(np.int64)[other[swap]]
    fields[:, 2] = np.where(draw.integers(4, size=PACKETS), items["small_low"][one, 0], UDP)
    fields[:, 5] = draw.choice((0x02, 0x10, 0x12, 0x04), size=PACKETS)
    ingress = decode(rows).registers["mask"][one, 2] != 0
    return Packets(fields, ingress)


def decided_ahead(rows: FlowTable, packets: Packets) -> tuple[npt.NDArray[np.bool_], Column]:
    """Which packets a lifted row holds, and whose the highest is: its cookie."""
    decoded = decode(rows)
    items, registers = decoded.items, decoded.registers
    order = np.argsort(rows.priority.astype(np.int64))  # the highest is the last to write
    hit = np.zeros(len(packets.fields), np.bool_)
    claimed = np.zeros(len(packets.fields), np.int64)
    source, destination, protocol, source_port, destination_port, flags = packets.fields.T
    for row in order.tolist():
        item = items[row]
        holds = packets.from_uplink == bool(registers["mask"][row, 2])
        for side, value in enumerate((source, destination)):
            low, high = (int(item[end][side, 1]) >> 32 for end in ("low", "high"))
            holds &= (value >= low) & (value <= high)
        for side, value in enumerate((source_port, destination_port)):
            holds &= (value >= int(item["port_low"][side])) & (value <= int(item["port_high"][side]))
        holds &= (protocol >= int(item["small_low"][0])) & (protocol <= int(item["small_high"][0]))
        wanted, mask = map(int, item["word"])
        holds &= (protocol != TCP) | (flags & mask == wanted)
        hit |= holds
        claimed[holds] = int(rows.cookie[row]) & (1 << 52) - 1
    return hit, claimed


def first_matches(world: Policy, packets: Packets, which: npt.NDArray[np.intp]) -> Column:
    """Kind and number of the line of the composed list that comes first, for some packets: by the rules themselves."""
    table = atoms(world.tenants[0].acl.rules, {}, numbers=world.tenants[0].rule_numbers)
    bounds = [(hi >> np.uint64(32), 32 - length.astype(np.int64)) for hi, length in
              ((table.src_hi, table.src_len), (table.dst_hi, table.dst_len))]  # fmt: skip
    low = [network.astype(np.int64) for network, _ in bounds]
    high = [network.astype(np.int64) + (np.int64(1) << free) - 1 for network, free in bounds]
    found = np.zeros(len(which), np.int64)
    for place, packet in enumerate(which.tolist()):
        source, destination, protocol, source_port, destination_port, flags = packets.fields[packet].tolist()
        ingress = bool(packets.from_uplink[packet])
        holds = (low[0] <= source) & (high[0] >= source) & (low[1] <= destination) & (high[1] >= destination)
        holds &= (table.dp_lo <= destination_port) & (table.dp_hi >= destination_port)
        holds &= (table.protocol == protocol) & (table.direction == (0 if ingress else 1))
        first = int(holds.argmax())
        if holds[first]:
            found[place] = 1 << 48 | int(table.number[first])
        elif protocol == TCP and flags & 0x14:
            found[place] = (5 if ingress else 6) << 48 | 7
        else:
            found[place] = (2 if ingress else 3) << 48 | 7
        assert source_port >= 0
    return found
