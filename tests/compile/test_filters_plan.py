"""How packets find their rules: order kept, large lists divided, and no packet meets more than was told in advance."""

from __future__ import annotations

import gzip
import itertools

import numpy as np
import pytest
from compiled_filter import check_iptables, check_nftables, counted_under
from hypothesis import given
from hypothesis import strategies as st
from public_data import DATA
from references.waves import reference_turns
from strategies import acls

from orchestrator.compile.cookies import HIGHEST_NUMBER, Kind
from orchestrator.compile.filters.filtercost import firewall_cost
from orchestrator.compile.filters.filterlists import WORLDS, World, tenant_lists
from orchestrator.compile.filters.filterrows import comment, read_comment
from orchestrator.compile.filters.iptables import iptables_texts
from orchestrator.compile.nftables import nftables_script
from orchestrator.compile.nftables.plan import Cut, Rules, Sequence, Table, plan, plan_by_address, row_turns, waves
from orchestrator.compile.nftables.space import Space
from orchestrator.enforce.drivers.nftables.fake import ruleset as nft_ruleset
from orchestrator.errors import NotExpressible
from orchestrator.lab.aims import aims
from orchestrator.policy.addresses import EVERY_IPV4, EVERY_IPV6, Addresses, Family, Prefix
from orchestrator.policy.formats.registry import read
from orchestrator.policy.formats.results import Options
from orchestrator.policy.model import Acl, Action, Policy, ReturnTraffic, Rule, RuleId, Tenant, TenantId
from orchestrator.policy.oracle import decide
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import ICMP, TCP
from orchestrator.policy.tcpflags import FlagMatch

CLASSBENCH = DATA / "classbench"
COUNTED = [kind for kind in Kind if Kind.RULE <= kind <= Kind.EGRESS_RETURN]
WHOLE4 = World(Family.IPV4, later=False)


def alone(acl: Acl) -> Tenant:
    """A tenant that owns everything."""
    numbers: dict[str, int] = {rule.id: number for number, rule in enumerate(acl.rules, 1)}
    return Tenant(TenantId("owner"), 1, (EVERY_IPV4, EVERY_IPV6), acl, numbers)


def space_of(acl: Acl, world: World = WHOLE4) -> Space:
    _, ingress = tenant_lists(alone(acl), ReturnTraffic.EXPLICIT)
    return Space.of(tuple(ingress.rows(world).lines()), world.family)


@given(st.sampled_from(COUNTED), st.integers(0, HIGHEST_NUMBER))
def test_comments_come_back(kind: Kind, number: int) -> None:
    assert read_comment(comment(kind, number)) == (kind, number)


@given(st.text(max_size=12) | st.sampled_from(["rule 01", "rule  1", "rule -1", "rule 1 ", "rule ²", "stamp 1"]))
def test_other_comments_are_nobodys(text: str) -> None:
    found = read_comment(text)
    assert found is None or comment(*found) == text


@given(acls(max_rules=14), st.data())
def test_waves_keep_the_order_of_rows_that_meet(acl: Acl, data: st.DataObject) -> None:
    for world in WORLDS:
        space = space_of(acl, world)
        rows = np.arange(len(space.lines))
        if not len(rows):
            continue
        kinds = np.array(data.draw(st.lists(st.integers(0, 2), min_size=len(rows), max_size=len(rows))))
        found = waves(space, rows, kinds)
        assert sorted(row for each in found for row in each.rows.tolist()) == rows.tolist()
        turn = {row: number for number, each in enumerate(found) for row in each.rows.tolist()}
        assert all(kinds[row] == found[turn[row]].kind for row in rows.tolist())
        for earlier, later in itertools.combinations(rows.tolist(), 2):
            if len(space.meeting(later, np.array([earlier]))):
                assert turn[earlier] <= turn[later]


@given(acls(max_rules=14), st.integers(1, 4), st.data())
def test_turns_are_those_of_the_definition(acl: Acl, classes: int, data: st.DataObject) -> None:
    for world in WORLDS:
        space = space_of(acl, world)
        taken = data.draw(st.lists(st.booleans(), min_size=len(space.lines), max_size=len(space.lines)))
        rows = np.flatnonzero(taken)
        kinds = data.draw(st.lists(st.integers(0, classes - 1), min_size=len(rows), max_size=len(rows)))
        found, plain = (take(space, rows, np.array(kinds, np.int64), classes) for take in (row_turns, reference_turns))
        assert found.tolist() == plain.tolist()


@given(acls(max_rules=14))
def test_rows_meet_exactly_if_some_packet_matches_both(acl: Acl) -> None:
    space = space_of(acl)
    for one, other in itertools.combinations(range(len(space.lines)), 2):
        first, second = space.lines[one], space.lines[other]
        flags = (first.word_value ^ second.word_value) & first.word_mask & second.word_mask
        apart = (
            not first.source.overlaps(second.source)
            or not first.destination.overlaps(second.destination)
            or (min(first.protocol, second.protocol) >= 0 and first.protocol != second.protocol)
            or _apart(first.source_ports, second.source_ports)
            or _apart(first.destination_ports, second.destination_ports)
            or (min(first.icmp_type, second.icmp_type) >= 0 and first.icmp_type != second.icmp_type)
            or (min(first.icmp_code, second.icmp_code) >= 0 and first.icmp_code != second.icmp_code)
            or flags != 0
        )
        if {first.protocol, second.protocol} <= {-1, TCP} or {first.protocol, second.protocol} <= {-1, ICMP}:
            assert len(space.meeting(one, np.array([other]))) == (not apart)
        elif not apart:
            assert len(space.meeting(one, np.array([other])))


def _apart(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[1] < other[0] or other[1] < one[0]


def test_thousands_of_exact_pairs_are_one_map() -> None:
    """A whitelist: one look-up, whatever its length, and a deny before it keeps its place."""
    deny = Rule(RuleId("bad"), Action.DENY, source=Addresses((Prefix.parse("10.0.0.0/24"),)))
    pairs = [
        Rule(
            RuleId(f"pair{n}"),
            Action.PERMIT,
            source=Addresses((Prefix(Family.IPV4, 0x0A000000 + 7 * n, 32),)),
            destination=Addresses((Prefix(Family.IPV4, 0xC6336400 + n % 256, 32),)),
        )
        for n in range(3000)
    ]
    found = plan(space_of(Acl((deny, *pairs))))
    assert isinstance(found, Sequence)
    assert [type(part) for part in found.parts] == [Rules, Table]
    assert len(found.parts[1].rows) == 3000  # type: ignore[union-attr]


def test_a_long_list_is_cut() -> None:
    rules = [
        Rule(
            RuleId(f"r{n}"),
            Action.PERMIT,
            protocol=TCP,
            destination=Addresses((Prefix(Family.IPV4, 0xC6336400 + n, 32),)),
            destination_ports=(PortRange(1000, 1000 + n),),
        )
        for n in range(100)
    ]
    (protocol,) = [part for part in _parts(plan(space_of(Acl(tuple(rules))))) if isinstance(part, Cut)][:1]
    (tcp,) = protocol.spans
    assert isinstance(tcp.then, Cut)
    assert all(isinstance(span.then, Rules) and len(span.then.rows) == 1 for span in tcp.then.spans)


@pytest.mark.parametrize("shut_out", [1, 100])
def test_addresses_that_are_shut_out_first_are_a_part_of_their_own(shut_out: int) -> None:
    """The other rows are planned as without them."""
    denies = [
        Rule(RuleId(f"bad{n}"), Action.DENY, source=Addresses((Prefix(Family.IPV4, 0x0A000000 + 2 * n, 32),)))
        for n in range(shut_out)
    ]
    rules = [
        Rule(
            RuleId(f"r{n}"),
            Action.PERMIT,
            protocol=TCP,
            source=Addresses((Prefix(Family.IPV4, 0x0A000000 + n // 20 * 2**16, 16),)),
            destination=Addresses((Prefix(Family.IPV4, 0xC6336400 + n % 20, 32),)),
        )
        for n in range(100)
    ]
    found = plan_by_address(space_of(Acl((*denies, *rules))))
    assert isinstance(found, Sequence)
    head, others = found.parts
    assert isinstance(head, Rules if shut_out == 1 else Cut)
    assert _shape_of(others) == _shape_of(plan_by_address(space_of(Acl(tuple(rules)))), shut_out)


def _shape_of(found: object, shift: int = 0) -> object:
    """A plan as values that compare, its rows counted from `shift`."""
    if isinstance(found, Rules):
        return [row + shift for row in found.rows]
    if isinstance(found, Cut):
        return found.axis, [(span.low, span.high, _shape_of(span.then, shift)) for span in found.spans]
    return [_shape_of(part, shift) for part in _parts(found)]


def _parts(found: object) -> tuple[object, ...]:
    return found.parts if isinstance(found, Sequence) else (found,)


def test_ip6tables_refuses_flags_that_it_cannot_look_at() -> None:
    ecn = Rule(RuleId("ecn"), Action.PERMIT, protocol=TCP, tcp_flags=FlagMatch(0x40, 0xC0))
    with pytest.raises(NotExpressible, match="ECE and CWR"):
        iptables_texts(Policy((alone(Acl((ecn,))),)))
    only_four = Rule(
        RuleId("ecn"), Action.PERMIT, protocol=TCP, source=Addresses((Prefix.parse("192.0.2.0/24"),)),
        tcp_flags=FlagMatch(0x42, 0xC2),
    )  # fmt: skip
    check_iptables(Policy((alone(Acl((only_four,))),)))


def test_what_iptables_has_no_words_for_is_said_in_numbers() -> None:
    """ICMP type 255 (any type to iptables) and protocol 0 (any protocol to it)."""
    rules = (
        Rule(RuleId("type"), Action.PERMIT, protocol=ICMP, icmp_type=255),
        Rule(RuleId("code"), Action.PERMIT, protocol=ICMP, icmp_type=255, icmp_code=3),
        Rule(RuleId("zero"), Action.PERMIT, protocol=0),
    )
    for kept in (rules, rules[1:]):
        check_iptables(Policy((alone(Acl(kept)),)))
        check_nftables(Policy((alone(Acl(kept)),)))


@pytest.mark.parametrize("name", ["acl1_1k", "fw1_1k", "ipc1_1k", "acl1_10k", "fw1_10k", "ipc1_10k"])
def test_classbench_sets_are_decided_and_counted_right(name: str) -> None:
    """And no packet meets more in either list than `firewall_cost` says, beside the way to the lists."""
    acl = classbench(name)
    tenant = alone(acl)
    policy = Policy((tenant,))
    ruleset = nft_ruleset(nftables_script(policy))
    told = firewall_cost(acl)
    for aim in aims(acl, ReturnTraffic.ESTABLISHED, 100):
        decision = decide(policy, aim.packet)
        journey = ruleset.send(aim.packet)
        assert journey.accepted == decision.permitted
        assert journey.comments == counted_under(policy, decision)
        assert journey.lookups <= told.nftables_lookups + 6


def classbench(name: str) -> Acl:
    """A set with actions in turn, which makes every wrong order visible."""
    plain, packed = CLASSBENCH / f"{name}.rules", CLASSBENCH / f"{name}.rules.gz"
    if not plain.exists() and not packed.exists():
        pytest.skip(f"{plain} is not there: set ACLFLOW_DATA to the folder that holds classbench/")
    text = plain.read_bytes() if plain.exists() else gzip.decompress(packed.read_bytes())
    return read(text, "classbench", name=plain.name, options=Options(classbench_action=None)).acl


@given(acls(max_rules=14))
def test_costs_told_are_what_the_texts_hold(acl: Acl) -> None:
    policy = Policy((alone(acl),))
    told = firewall_cost(acl)
    script = nftables_script(policy).splitlines()
    maps = [number for number, line in enumerate(script) if line.startswith(("\tmap egress", "\tmap ingress"))]
    elements = [line for start in maps for line in itertools.takewhile(lambda each: each != "\t}", script[start:])]
    assert told.nftables_elements == sum(line.endswith(",") for line in elements)
    try:
        texts = iptables_texts(policy).values()
    except NotExpressible:
        return
    assert told.iptables_lines == sum(text.count("--comment") + text.count("-j NFLOG") for text in texts)
