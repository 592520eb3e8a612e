"""A list that asks for both ports cannot be made to need the product of all lengths of them in the switch's cache."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import replace

import pytest
from enforce.dummy_ovs import DummyOvs
from lifted_shop import WEB, policy, rule
from traced_switch import GATEWAY, PORT_A, UPLINK, Bridge, Tracer, rows_of

from orchestrator.compile.hostprogram import CompileCache, compile_host
from orchestrator.compile.pipelines.host import Table
from orchestrator.compile.pipelines.wholeports import find_split_ways
from orchestrator.hosts.ovs import join_commands
from orchestrator.hosts.switch import prefix_tracking
from orchestrator.policy.model import Acl, Action, Direction, Policy, ReturnTraffic, Rule, RuleId
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import ICMP, TCP, UDP

IN, OUT = Direction.INGRESS, Direction.EGRESS
READING = (Table.SENDER_PORTS, Table.RECEIVER_PORTS)
BITS = range(0, 16, 2)


def from_port(name: str, port: int, direction: Direction = IN, protocol: int | None = TCP) -> Rule:
    made = rule(name, "permit", protocol=protocol, direction=direction)
    return replace(made, source_ports=(PortRange(port, port),))


SPLIT = (rule("port", "permit", port=80), rule("one", "permit", "192.88.77.55/32"), from_port("from", 12345))
PLAIN = SPLIT[:2]


def turned(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """The same rules about packets that go out: what is denied goes to others."""
    return tuple(
        replace(
            each,
            id=RuleId(f"{each.id}-out"),
            direction=OUT,
            source=each.destination,
            destination=each.source,
            action=Action.DENY,
        )
        for each in rules
    )


def reading_rows(world: Policy) -> list[tuple[int, int]]:
    """The table and tenant of each row that reads ports of packets."""
    flows = compile_host(world, domain="d1", generation=1).flows
    return sorted((row.table, row.tenant) for row in flows.rows() if row.table in READING and row.priority == 10)


@pytest.mark.parametrize(
    ("rules", "ways"),
    [
        (SPLIT, (IN,)),
        (turned(SPLIT), (OUT,)),
        ((*SPLIT, *turned(SPLIT)), (IN, OUT)),
        ((replace(SPLIT[0], source_ports=SPLIT[2].source_ports),), (IN,)),
        ((rule("tcp", "permit", port=80), from_port("udp", 53, protocol=UDP)), (IN,)),
        (PLAIN, ()),
        (SPLIT[1:], ()),
        ((rule("port", "permit", port=80), from_port("out", 53, OUT)), ()),
        ((rule("port", "permit", port=80), rule("ping", "permit", protocol=ICMP)), ()),
    ],
)
def test_a_list_that_asks_for_both_ports_of_one_direction_is_found(
    rules: tuple[Rule, ...], ways: tuple[Direction, ...]
) -> None:
    assert find_split_ways(Acl(rules)) == ways


def test_ports_are_read_of_such_lists_alone() -> None:
    both = {Table.RECEIVER_PORTS: (SPLIT, 7), Table.SENDER_PORTS: (turned(SPLIT), 7)}
    for table, (rules, tenant) in both.items():
        assert reading_rows(policy(*rules)) == 6 * [(table, tenant)], "TCP, UDP and SCTP of two IP versions"
    assert reading_rows(policy(*PLAIN)) == []


def test_where_connections_are_asked_only_stateless_rules_need_it() -> None:
    """Fields of connections have no tries of their own in the switch: it reads them whole."""
    tracked = policy(*SPLIT, returns=ReturnTraffic.TRACKED)
    assert reading_rows(tracked) == []
    alone = policy(*(replace(each, stateless=True) for each in SPLIT), returns=ReturnTraffic.TRACKED)
    assert reading_rows(alone) == 6 * [(Table.RECEIVER_PORTS, 7)]


def test_a_change_of_the_list_brings_and_takes_the_rows() -> None:
    cache = CompileCache()
    for generation, rules in enumerate((PLAIN, SPLIT, SPLIT[1:], turned(SPLIT)), 1):
        world = policy(*rules)
        program = compile_host(world, domain="d1", generation=generation, cache=cache)
        assert program.digest == compile_host(world, domain="d1", generation=generation).digest


# --------------------------------------------------------------------------------------------- the real switch's cache


@pytest.fixture
def traced(ovs: DummyOvs, bridge: Bridge) -> Tracer:
    ovs.vsctl(*join_commands(prefix_tracking("br0", {})))
    return Tracer(ovs)


def count_masks(traced: Tracer, direction: Direction, protocol: str = "tcp") -> int:
    """The masks that packets need which differ from rules first in some bits of address and ports.

    Masks are told apart by the lengths of the fields that the switch shortens.
    """
    found = set()
    mac = ":".join(f"{byte:02x}" for byte in (0x02_00_00_00_00_02).to_bytes(6, "big"))
    for bit in BITS:
        stranger = ".".join(str((0xC0584D37 ^ 1 << bit) >> shift & 255) for shift in (24, 16, 8, 0))
        ends = (stranger, WEB.partition("/")[0])
        source, destination = ends if direction is IN else reversed(ends)
        way = f"in_port={UPLINK},dl_src={GATEWAY}" if direction is IN else f"in_port={PORT_A},dl_src={mac}"
        for one in BITS:
            for two in BITS:
                ports = f"tp_src={12345 ^ 1 << one},tp_dst={80 ^ 1 << two}"
                flow = f"{way},dl_dst={GATEWAY},{protocol},nw_src={source},nw_dst={destination},{ports}"
                found.add(_lengths(traced.megaflow(flow)))
    return len(found)


def _lengths(megaflow: str) -> tuple[str, ...]:
    """How much of each address and port an entry looks at."""
    found = dict(re.findall(r"(nw_src|nw_dst|tp_src|tp_dst)=([^,]*)", megaflow))
    return tuple("none" if name not in found else found[name].partition("/")[2] or "whole"
                 for name in ("nw_src", "nw_dst", "tp_src", "tp_dst"))  # fmt: skip


@pytest.mark.skipif(shutil.which("ovs-vswitchd") is None, reason="Open vSwitch is not installed")
@pytest.mark.parametrize("direction", [IN, OUT])
def test_masks_of_both_ports_do_not_multiply(bridge: Bridge, traced: Tracer, direction: Direction) -> None:
    rules = SPLIT if direction is IN else turned(SPLIT)
    program = compile_host(policy(*rules, operator=()), domain="d1", generation=1)
    rows = rows_of(program, {"web0": PORT_A})
    bridge.hold(rows)
    most = len(BITS) ** 2
    assert count_masks(traced, direction) == most
    bridge.hold([row for row in rows if row.table not in READING or not row.priority])
    assert count_masks(traced, direction) == most * len(BITS), "what the rows are for: without them they do"


@pytest.mark.skipif(shutil.which("ovs-vswitchd") is None, reason="Open vSwitch is not installed")
def test_packets_of_other_lists_share_entries_as_before(bridge: Bridge, traced: Tracer) -> None:
    bridge.hold(rows_of(compile_host(policy(*PLAIN, operator=()), domain="d1", generation=1), {"web0": PORT_A}))
    flow = f"in_port={UPLINK},dl_src={GATEWAY},dl_dst={GATEWAY},tcp,nw_src=8.8.8.8,nw_dst=10.29.4.2,tp_src=1,tp_dst="
    assert "tp_dst=0x8000/0x8000" in traced.megaflow(f"{flow}40000")


@pytest.mark.skipif(shutil.which("ovs-vswitchd") is None, reason="Open vSwitch is not installed")
def test_what_is_decided_is_the_same(bridge: Bridge, traced: Tracer) -> None:
    bridge.hold(rows_of(compile_host(policy(*SPLIT, operator=()), domain="d1", generation=1), {"web0": PORT_A}))
    way = f"in_port={UPLINK},dl_src={GATEWAY},dl_dst={GATEWAY}"
    for source, ports, arrives in (
        ("8.8.8.8", "tp_src=9,tp_dst=80", True),
        ("8.8.8.8", "tp_src=12345,tp_dst=9", True),
        ("192.88.77.55", "tp_src=9,tp_dst=9", True),
        ("8.8.8.8", "tp_src=9,tp_dst=9", False),
    ):
        actions = traced.actions(f"{way},tcp,nw_src={source},nw_dst=10.29.4.2,{ports}")
        assert actions.endswith(str(PORT_A)) is arrives, (source, ports)
    later = traced.actions(f"{way},ip,nw_proto=6,nw_src=192.88.77.55,nw_dst=10.29.4.2,nw_frag=later")
    assert later.endswith(str(PORT_A)), "later fragments have no port that could be read"
