"""A firewall server does what the oracle of its tier says, with its exact pairs in hash sets, and denies nothing that
hosts permit."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from compiled_filter import TCP, UDP, carried, reported_denial
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples
from strategies import policies

from orchestrator.compile.filters.filterlists import FilterList, tenant_lists
from orchestrator.compile.filters.filterrows import Filter
from orchestrator.compile.nftables import plan
from orchestrator.compile.nftables.script import whole_table
from orchestrator.compile.nftables.served import MISDIRECTED, PAIRED, REHOME
from orchestrator.compile.servers import tenants as servedtenants
from orchestrator.compile.servers.exactpairs import HOSTS4, HOSTS6, PAIR_SETS, SERVICES4, SERVICES6, PairSet, keys_of
from orchestrator.compile.servers.programs import Ask, ServerCompiler
from orchestrator.compile.servers.tenants import TenantCompiler
from orchestrator.enforce.drivers.nftables.fake import Ruleset
from orchestrator.enforce.drivers.nftables.fake import ruleset as nft_ruleset
from orchestrator.policy.addresses import ANY, Addresses, Family, Prefix
from orchestrator.policy.corners import policy_packets
from orchestrator.policy.model import Acl, Action, Packet, Policy, ReturnTraffic, Rule, RuleId, Tenant, TenantId
from orchestrator.policy.oracle import decide, owner
from orchestrator.policy.ports import EVERY_PORT, PortRange
from orchestrator.policy.prefilter import Fate, Misdirect, Share, Verdict, verdict
from orchestrator.policy.protocols import SCTP
from orchestrator.program.delta import apply
from orchestrator.program.program import Program

_WITH_PORTS = (TCP, UDP, SCTP)


class Served:
    """A server in plain Python: its tables, its sets of pairs, and its ways to other servers."""

    def __init__(self, program: Program, ways: Iterable[int] = ()) -> None:
        flows = program.flows
        self.pairs = {kind: set(map(bytes, keys_of(flows, kind))) for kind in PAIR_SETS}
        lines: list[str] = []
        for family, of in ((Family.IPV4, Filter.NFT_IPV4), (Family.IPV6, Filter.NFT_IPV6)):
            objects = {
                row.match.decode(): row.instructions.decode().split("\n") for row in flows.rows() if row.table == of
            }
            lines += whole_table(family, {name: tuple(text) for name, text in objects.items()})
        self.ruleset: Ruleset = nft_ruleset("\n".join([*lines, ""]))
        self.ruleset.ways = {MISDIRECTED | number: REHOME for number in ways}
        self.reported: list[str] = []
        """The comments under which the packet before was reported."""

    def fate(self, packet: Packet, *, rehomed: bool, hidden: int = UDP) -> Verdict:
        """What becomes of a packet."""
        mark = PAIRED if self.is_paired(packet) else 0
        journey = self.ruleset.send(packet, hidden, mark=mark, came_by=REHOME if rehomed else "left")
        self.reported = journey.reported
        if not journey.accepted:
            return Verdict(Fate.DROP)
        number = journey.mark & 0xFFFF if journey.mark & 0xFFFF0000 == MISDIRECTED else 0
        return Verdict(Fate.REHOME, number) if number else Verdict(Fate.PERMIT)

    def is_paired(self, packet: Packet) -> bool:
        """Whether the kernel would find it in a set."""
        octets = packet.family.bits // 8
        hosts = packet.source.to_bytes(octets, "big") + packet.destination.to_bytes(octets, "big")
        mine: tuple[PairSet, PairSet] = (HOSTS4, SERVICES4) if packet.family is Family.IPV4 else (HOSTS6, SERVICES6)
        if hosts in self.pairs[mine[0]]:
            return True
        if packet.later_fragment or packet.protocol not in _WITH_PORTS:
            return False
        service = bytes((packet.protocol, 0, 0, 0)) + packet.destination_port.to_bytes(2, "big") + bytes(2)
        return hosts + service in self.pairs[mine[1]]


def served(policy: Policy, share: Share) -> Served:
    program, _ = ServerCompiler("s1").program(policy, Ask(share), 1)
    return Served(program, share.elsewhere.values())


def check(policy: Policy, share: Share, packets: Iterable[Packet] | None = None) -> None:
    server = served(policy, share)
    for packet in filter(carried, policy_packets(policy) if packets is None else packets):
        for rehomed in (False, True):
            for hidden in (UDP, TCP) if packet.later_fragment and packet.family is Family.IPV6 else (UDP,):
                wanted = verdict(policy, share, packet, rehomed=rehomed)
                assert server.fate(packet, rehomed=rehomed, hidden=hidden) == wanted, packet
                tenant = owner(policy, packet.family, packet.destination)
                served_here = tenant is not None and tenant.id in share.served
                reported = reported_denial(policy, tenant, packet) if tenant is not None and served_here else []
                assert server.reported == reported, packet


@st.composite
def shares(draw: st.DrawFn, policy: Policy) -> Share:
    """Every tenant here, on server 2 or 3, or with nobody."""
    places = {tenant.id: draw(st.integers(0, 3)) for tenant in policy.tenants}
    return Share(
        frozenset(tenant for tenant, place in places.items() if place == 1),
        {tenant: place for tenant, place in places.items() if place > 1},
        draw(st.sampled_from(Misdirect)),
    )


EXACT = ("10.1.2.3/32", "10.1.2.4/32", "2001:db8:1:2::3/128")
OWN = {Family.IPV4: "172.16.1.1/32", Family.IPV6: "2001:db8:a:1::1/128"}


@st.composite
def pair_policies(draw: st.DrawFn) -> Policy:
    """One tenant whose list is mostly exact pairs, with denies in between."""
    rules = []
    for number in range(draw(st.integers(1, 10))):
        source = Prefix.parse(draw(st.sampled_from(EXACT)))
        wide = draw(st.integers(0, 3)) == 0
        protocol = draw(st.sampled_from((None, TCP, UDP, SCTP)))
        ports = (
            draw(st.sampled_from((EVERY_PORT, (PortRange(80, 80),), (PortRange(80, 81),)))) if protocol else EVERY_PORT
        )
        rules.append(
            Rule(
                RuleId(f"r{number}"),
                draw(st.sampled_from((Action.PERMIT, Action.PERMIT, Action.DENY))),
                protocol=protocol,
                source=Addresses((Prefix.parse("10.1.0.0/16"),)) if wide else Addresses((source,)),
                destination=ANY if wide else Addresses((Prefix.parse(OWN[source.family]),)),
                destination_ports=ports,
                fragments=protocol is None and draw(st.integers(0, 5)) == 0,
            )
        )
    owned = (Prefix.parse("172.16.0.0/16"), Prefix.parse("2001:db8:a::/48"))
    numbers = {rule.id: place for place, rule in enumerate(rules, 1)}
    default = draw(st.sampled_from((Action.DENY, Action.DENY, Action.PERMIT)))
    operator = draw(
        st.sampled_from(((), (Rule(RuleId("o"), Action.DENY, source=Addresses((Prefix.parse(EXACT[0]),))),)))
    )
    tenant = Tenant(TenantId("t"), 7, owned, Acl(tuple(rules), ingress_default=default), numbers)
    return Policy((tenant,), operator, {rule.id: 1 for rule in operator})


@settings(max_examples=examples(60))
@given(policies(max_tenants=3, max_rules=6), st.data())
def test_a_server_does_what_the_oracle_says(policy: Policy, data: st.DataObject) -> None:
    check(policy, data.draw(shares(policy)))


@settings(max_examples=examples(40))
@given(policies(max_tenants=3, max_rules=3), st.data())
def test_what_no_route_leads_to_another_server_is_dropped(policy: Policy, data: st.DataObject) -> None:
    share = data.draw(shares(policy))
    server = served(policy, share)
    server.ruleset.ways.clear()
    for packet in filter(carried, policy_packets(policy)):
        if verdict(policy, share, packet).fate is Fate.REHOME:
            assert server.fate(packet, rehomed=False).fate is Fate.DROP


@given(pair_policies())
def test_pairs_in_sets_change_no_verdict(policy: Policy) -> None:
    check(policy, Share(frozenset({TenantId("t")})))


@settings(max_examples=examples(60))
@given(pair_policies())
def test_pairs_are_taken_out_unless_a_deny_is_before_them(policy: Policy) -> None:
    rules = policy.tenants[0].acl.rules
    if all(rule.action is Action.PERMIT for rule in rules):
        found = served(policy, Share(frozenset({TenantId("t")}))).pairs
        hosts = {
            rule.id for rule in rules if rule.protocol is None and not rule.fragments and not rule.destination.is_any
        }
        assert bool(hosts) == bool(found[HOSTS4] | found[HOSTS6])


@settings(max_examples=examples(50))
@given(policies(max_tenants=2, max_rules=6))
def test_it_denies_nothing_that_hosts_permit(policy: Policy) -> None:
    share = Share(frozenset(tenant.id for tenant in policy.tenants))
    owned = {(prefix.family, prefix) for tenant in policy.tenants for prefix in tenant.prefixes}
    for packet in policy_packets(policy):
        if any(family is packet.family and prefix.holds(packet.destination) for family, prefix in owned):
            assert verdict(policy, share, packet).fate is Fate.PERMIT or not decide(policy, packet).permitted


@pytest.mark.usefixtures("eager")
@settings(max_examples=examples(40))
@given(policies(max_tenants=1, max_rules=12))
def test_with_maps_for_everything(policy: Policy) -> None:
    check(policy, Share(frozenset(tenant.id for tenant in policy.tenants)))


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists of a few rules are planned like lists of thousands."""
    for name, value in (("FEW_ROWS", 1), ("TABLE_ROWS", 2), ("SPLIT_ROWS", 2), ("LOOKUP", 0)):
        monkeypatch.setattr(plan, name, value)


def test_a_list_that_did_not_change_is_not_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def noted(tenant: Tenant, returns: ReturnTraffic) -> tuple[FilterList, FilterList]:
        seen.append(tenant.id)
        return tenant_lists(tenant, returns)

    monkeypatch.setattr(servedtenants, "tenant_lists", noted)
    tenants = [Tenant(TenantId(f"t{n}"), n, (Prefix.parse(f"10.{n}.0.0/16"),)) for n in (1, 2)]
    share = Share(frozenset(tenant.id for tenant in tenants))
    compiler = ServerCompiler("s")
    compiler.program(Policy(tuple(tenants)), Ask(share), 1)
    changed = Tenant(TenantId("t2"), 2, tenants[1].prefixes, Acl(ingress_default=Action.PERMIT))
    compiler.program(Policy((tenants[0], changed)), Ask(share), 2)
    assert seen == ["t1", "t2", "t2"]


@settings(max_examples=examples(60))
@given(st.lists(policies(max_tenants=3, max_rules=4), min_size=2, max_size=4), st.data())
def test_a_program_made_of_the_one_before_is_the_program(history: list[Policy], data: st.DataObject) -> None:
    compiler = ServerCompiler("s1", TenantCompiler(general=True))
    before = None
    for generation, policy in enumerate(history, 1):
        ask = Ask(data.draw(shares(policy)))
        program, change = compiler.program(policy, ask, generation)
        alone, _ = ServerCompiler("s1", TenantCompiler(general=True)).program(policy, ask, generation)
        assert program.digest == alone.digest
        if before is not None:
            assert change is not None
            assert apply(before, change).blocks.digest(()) == program.digest
        before = program
