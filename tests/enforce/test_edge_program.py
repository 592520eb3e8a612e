"""An edge's program on a switch that really forwards: every packet from outside goes where model and policy say.

The law: nothing that no rule permits goes straight to the WAN; everything else to a tenant's chunk meets the tenant's
server, addressed to it; what is nobody's, and what pretends to be a tenant's, goes nowhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from compiled_domain import populated
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lifted_shop import named, policy
from strategies import policies

from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.edgeprogram import Edge, FamilyLines, Way, edge_program
from orchestrator.compile.equivalence.liftedproof import EdgeProof
from orchestrator.compile.lifting.edgeheavy import PASSED_ON, TO_WAN, Heavy, HeavyTable, entries_in
from orchestrator.compile.openflow import oxm
from orchestrator.compile.pipelines.edge import EDGE_REGISTERS, EDGE_STAGES, LINES_TOP, EdgeTable
from orchestrator.compile.pipelines.host import GATEWAY_MAC
from orchestrator.compile.pipelines.page import edge_page
from orchestrator.edge.chunks import allocate, servers_of, settle_tenants
from orchestrator.edge.lines import Lines, Shape
from orchestrator.edge.settings import EdgeSettings
from orchestrator.edge.upkeep import keep
from orchestrator.enforce import gap
from orchestrator.enforce.drivers.openflow import frames
from orchestrator.enforce.drivers.openflow.driver import OpenFlowDriver
from orchestrator.enforce.drivers.openflow.fake.session import channel_to
from orchestrator.enforce.drivers.openflow.fake.switch import FakeSwitch
from orchestrator.errors import BadInput, NotEquivalent, NotExpressible, TooLarge
from orchestrator.placement.lifting import LiftedRule
from orchestrator.policy.addresses import Family, Prefix
from orchestrator.policy.corners import policy_packets
from orchestrator.policy.model import Action, Direction, Packet, Policy, Tenant, TenantId
from orchestrator.policy.oracle import decide, owner
from orchestrator.policy.protocols import ICMPV6
from orchestrator.program.flows import FlowTable
from orchestrator.program.program import Program, Tier

WAYS = tuple(Way(number, f"s{number}", 0x0AAC1F040000 + number) for number in (1, 2, 3))
PORTS = {"outside": 1, "wan": 2, "s1": 3, "s2": 4, "s3": 5}
LAID_OUT = EdgeSettings(ipv4_chunk=20, functions=4, per_line=2)
few = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))


def every_permit(policy: Policy) -> list[LiftedRule]:
    return [
        LiftedRule(tenant.id, rule.id)
        for tenant in policy.tenants
        for rule in tenant.acl.rules
        if rule.action is Action.PERMIT and rule.direction is Direction.INGRESS
    ]


class Pop:
    """An edge for a policy, as the service would make it, and a switch that holds its program."""

    def __init__(self, policy: Policy, heavy: Sequence[LiftedRule] = (), laid_out: EdgeSettings = LAID_OUT) -> None:
        self.policy = policy
        owned = {tenant.number: tenant.prefixes for tenant in policy.tenants}
        allocations = [allocate(laid_out.chunking(family), owned) for family in Family]
        self.places = settle_tenants(allocations, {way.number: True for way in WAYS}, {}, {})
        self.chunks = {each.chunking.family: (each.chunking, set(each.key.tolist())) for each in allocations}
        families = []
        for each in allocations:
            servers = servers_of(each, self.places)
            lines = keep(None, each.key, servers, laid_out, "test").standing.lines(servers)
            families.append(FamilyLines(each.chunking, lines))
        self.heavy: Heavy = HeavyTable().of(heavy, policy)
        prefixes = tuple(prefix for tenant in policy.tenants for prefix in tenant.prefixes)
        self.edge = Edge(("outside",), WAYS, prefixes, tuple(families), self.heavy.rows)
        self.program: Program = edge_program(self.edge, domain="d1", generation=1)
        self.switch = FakeSwitch(dict(PORTS))
        driver = OpenFlowDriver(channel_to(self.switch), uplink="wan", tier=Tier.EDGE)
        driver.start(1)
        driver.apply(gap.correction(driver.observe(), self.program, driver.resolve), gap.stamp_of(self.program))
        rows = driver.resolve(self.program.flows, self.program.ports)
        assert gap.mismatch(driver.observe(), rows, gap.stamp_of(self.program)) is None

    def where(self, packet: Packet) -> tuple[str, int]:
        """The port that a packet from outside leaves by, and the MAC address that it is sent to; ("", 0): nowhere."""
        frame = frames.frame(packet, src_mac=0x0AAC1F020001, dst_mac=GATEWAY_MAC)
        sent = self.switch.forward(frame, "outside")
        if not sent:
            return "", 0
        ((port, left),) = sent
        if port == "wan":
            assert left == frame, "what goes straight to the WAN is not touched"
        else:
            assert left[12:] == frame[12:], "of what goes to a server only the MAC addresses are written"
        return port, int.from_bytes(left[:6], "big")

    def server(self, packet: Packet) -> tuple[str, int]:
        """Where it goes if no rule is ahead."""
        chunking, keys = self.chunks[packet.family]
        if chunking.key(packet.destination) not in keys:
            return "", 0
        receiver = owner(self.policy, packet.family, packet.destination)
        number = self.places[(receiver or self.policy.tenants[0]).number]
        return f"s{number}", WAYS[number - 1].mac


def sendable(packets: Sequence[Packet]) -> list[Packet]:
    found = []
    for packet in packets:
        try:
            frames.frame(packet, src_mac=1, dst_mac=2)
        except NotExpressible:
            continue
        if not (packet.family is Family.IPV6 and packet.protocol == ICMPV6 and 133 <= packet.icmp_type <= 137):
            found.append(packet)
    return found


@few
@given(policies(max_tenants=3, max_rules=5).map(populated), st.data())
def test_every_packet_from_outside_goes_where_it_should(policy: Policy, data: st.DataObject) -> None:
    names = every_permit(policy)
    chosen = data.draw(st.lists(st.sampled_from(names), unique=True)) if names else []
    pop = Pop(policy, chosen)
    EdgeProof().check(policy, pop.heavy.rows, pop.program.flows)
    for packet in sendable(policy_packets(policy)):
        went = pop.where(packet)
        if owner(policy, packet.family, packet.source) is not None:
            assert went == ("", 0), "a tenant's address cannot come from outside"
        elif went[0] == "wan":
            assert decide(policy, packet).permitted, f"{packet} goes past the firewall servers"
        elif owner(policy, packet.family, packet.destination) is not None:
            assert went == pop.server(packet)


@few
@given(policies(max_tenants=2, max_rules=5).map(populated))
def test_packets_of_a_rule_that_stands_ahead_alone_go_straight_to_the_wan(policy: Policy) -> None:
    names = every_permit(policy)
    pop = Pop(policy, names)
    standing = {lift.rule for lift in pop.heavy.lifts if lift.form is not None}
    for packet in sendable(policy_packets(policy)):
        if owner(policy, packet.family, packet.source) is not None:
            continue
        decision = decide(policy, packet)
        step = decision.steps[-1] if decision.steps else None
        if step is None or step.tenant is None or step.rule is None or not decision.permitted:
            continue
        if LiftedRule(step.tenant, step.rule) in standing:
            assert pop.where(packet)[0] == "wan"


def test_a_chunk_that_is_nobodys_goes_nowhere_or_to_a_server_but_never_to_the_wan() -> None:
    tenants = tuple(
        Tenant(TenantId(f"t{n}"), n, (Prefix.parse(f"10.{n}.0.0/20"), Prefix.parse(f"2001:db8:{n:x}::/48")))
        for n in range(1, 40)
    )
    pop = Pop(Policy(tenants=tenants))
    for family in Family:
        lines = pop.edge.families[0 if family is Family.IPV4 else 1].lines
        chunking, keys = pop.chunks[family]
        drawn = np.array([key for key in range(1 << 14) if key not in keys][::37], np.uint64)
        for key, server in zip(drawn.tolist(), lines.server_of(drawn).tolist(), strict=True):
            packet = Packet(family, 0x01010101, chunking.prefix(key).network + 9, 17, 1000, 53)
            assert pop.where(packet) == (("", 0) if server < 0 else (f"s{server}", WAYS[server - 1].mac))


def test_lines_that_match_foreign_chunks_are_asked_in_their_order() -> None:
    """Lines so narrow that they match each other's chunks all the time: order and exceptions alone send them right."""
    narrow = EdgeSettings(ipv4_chunk=20, width=32, functions=3, per_line=3)
    prefixes = (Prefix.parse(f"10.{n}.{16 * (n % 16)}.0/20") for n in range(1, 120))
    pop = Pop(
        Policy(tenants=tuple(Tenant(TenantId(f"t{n}"), n, (each,)) for n, each in enumerate(prefixes, 1))), (), narrow
    )
    lines = pop.edge.families[0].lines
    assert len(lines.exception) > 0
    assert (lines.first(np.array(sorted(pop.chunks[Family.IPV4][1]), np.uint64)) != lines.holds).any()
    for tenant in pop.policy.tenants:
        packet = Packet(Family.IPV4, 0x01010101, tenant.prefixes[0].network + 9, 17, 1000, 53)
        assert pop.where(packet) == pop.server(packet)


def test_rows_keep_to_the_declaration() -> None:
    stages = {stage.table: stage for stage in EDGE_STAGES}
    assert list(stages) == sorted(EdgeTable)
    assert len({register.field for register in EDGE_REGISTERS}) == len(EDGE_REGISTERS)
    policy = Policy(tenants=(Tenant(TenantId("t"), 1, (Prefix.parse("10.0.0.0/20"), Prefix.parse("2001:db8::/48"))),))
    for row in Pop(policy).program.flows.rows():
        stage = stages[EdgeTable(row.table)]
        assert {term.field for term in oxm.unpack(row.match)} <= set(stage.looks_at)
        cookie = Cookie.unpack(row.cookie)
        assert cookie is not None
        assert cookie.tier is Tier.EDGE
        if cookie.kind is Kind.LINE:
            assert row.priority <= LINES_TOP


def test_the_page_is_current() -> None:
    page = Path(__file__).parents[2] / "docs" / "edge-pipeline.md"
    assert page.read_text() == edge_page()


def test_a_program_that_lets_more_pass_is_not_proven() -> None:
    """A heavy hitter wider than its rule, another row that leads to the WAN, a line that denies and does not."""
    world = policy()
    pop = Pop(world, named("web", "dns"))
    EdgeProof().check(world, pop.heavy.rows, pop.program.flows)
    rows = pop.heavy.rows.rows()
    straight = next(row for row in rows if row.instructions == TO_WAN)
    passed_on = next(row for row in rows if row.instructions == PASSED_ON)
    ports = {oxm.TCP_DST, oxm.UDP_DST}
    wider = replace(straight, match=oxm.pack(term for term in oxm.unpack(straight.match) if term.field not in ports))
    for bad in (
        [wider if row is straight else row for row in rows],
        [replace(row, instructions=TO_WAN) if row is passed_on else row for row in rows],
        [row for row in rows if row is not passed_on],
    ):
        with pytest.raises(NotEquivalent):
            EdgeProof().check(world, FlowTable.of(bad), FlowTable.of(bad))
    smuggled = FlowTable.of([*rows, replace(straight, table=EdgeTable.EXCEPTIONS)])
    with pytest.raises(NotEquivalent, match="past the firewall servers"):
        EdgeProof().check(world, pop.heavy.rows, smuggled)


def test_only_permits_of_ingress_lists_go_ahead_and_entries_are_counted_as_they_are_made() -> None:
    world = policy()
    entries = entries_in(world)
    for name in named("lab", "ssh", "web", "dns", "partners", "updates", "quiet", "none"):
        made = HeavyTable().of([name], world)
        assert entries(name) == (len(made.rows) if made.lifts[0].form is not None else None)
    whole = HeavyTable().of(named("lab", "updates", "web", "none"), world)
    because = {lift.rule.rule: lift.because for lift in whole.lifts if lift.form is None}
    assert because == {
        "lab": "it denies, and the edge leaves that to the firewall server",
        "updates": "it is an egress rule, and the edge sees what comes in",
        "none": "the list has no such rule",
    }


def test_what_a_switch_cannot_hold_is_refused() -> None:
    chunking = EdgeSettings().chunking(Family.IPV4)
    none = np.empty(0, np.int64)
    keys = none.astype(np.uint64)

    def lines(shape: Shape, count: int = 0) -> Lines:
        return Lines(shape, np.ones((count, shape.width), np.bool_), np.ones(count, np.int64), none, keys, none)

    with pytest.raises(BadInput, match="288"):
        FamilyLines(chunking, lines(Shape(320, (1,), 1)))
    with pytest.raises(BadInput, match="bases up to 65535"):
        FamilyLines(chunking, lines(Shape(288, (1 << 16,), 1)))
    with pytest.raises(TooLarge, match="priorities for 30000"):
        FamilyLines(chunking, lines(Shape(8, (1,), 1), 30_001))
    stray = FamilyLines(chunking, lines(Shape(8, (1,), 1), 1))
    with pytest.raises(BadInput, match="no way to server 1"):
        edge_program(Edge(("outside",), (), (), (stray,), FlowTable.of(())), domain="d1", generation=1)
