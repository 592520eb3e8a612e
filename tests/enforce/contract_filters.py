"""What every packet filter must be to its driver: one suite, run over the fakes and over real filters in namespaces.

A test module subclasses `FilterContract` and gives it a `bench`: a driver on a filter in its first state, its programs,
and a way to send packets through. Foreign hands use the same programs as the driver.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import pytest
from compiled_filter import carried, counted_under

from orchestrator.compile.cookies import Cookie
from orchestrator.compile.filters.filterprogram import filter_program
from orchestrator.compile.filters.filterrows import filter_row, read_comment
from orchestrator.compile.filters.iptables import FORWARD
from orchestrator.compile.filters.legs import Legs
from orchestrator.enforce import gap
from orchestrator.enforce.agent import close_if_bare
from orchestrator.enforce.changing import finish
from orchestrator.enforce.driver import Hits, Stamp
from orchestrator.enforce.drivers.filters.command import Run
from orchestrator.enforce.drivers.filters.driver import FilterDriver
from orchestrator.enforce.drivers.nftables.scripts import NAMES
from orchestrator.errors import Refused
from orchestrator.policy.addresses import Addresses, Prefix
from orchestrator.policy.corners import policy_packets
from orchestrator.policy.model import (
    Acl,
    Action,
    Direction,
    Packet,
    Policy,
    ReturnTraffic,
    Rule,
    RuleId,
    Tenant,
    TenantId,
)
from orchestrator.policy.oracle import decide
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import ICMP, ICMPV6, TCP, UDP
from orchestrator.policy.tcpflags import FlagMatch, TcpFlag
from orchestrator.program.delta import Delta, between
from orchestrator.program.flows import FlowTable
from orchestrator.program.program import Program, Tier
from orchestrator.wire.firewalls import Plane

PERMIT, DENY = Action.PERMIT, Action.DENY
NOTHING = FlowTable.of(())
MOST_PACKETS = 150


class Bench(Protocol):
    """A filter that forwards, its driver, and its programs."""

    plane: Plane
    driver: FilterDriver
    run: Run
    packets: Sequence[Packet]
    """Some at the corners of the policies below, such as a bare filter lets through."""

    def forward(self, packets: Sequence[Packet]) -> list[bool]:
        """Which of some packets come through."""
        ...

    def declare(self, legs: Legs) -> None:
        """Have a driver that knows legs; packets come in by the interface `left`."""
        ...

    def fail(self, words: str) -> None:
        """Have the next transactions refused, as far as this filter can be made to."""
        ...


def of(*texts: str) -> Addresses:
    return Addresses(tuple(map(Prefix.parse, texts)))


def ports(low: int, high: int | None = None) -> tuple[PortRange, ...]:
    return (PortRange(low, low if high is None else high),)


SHOP = (
    Rule(RuleId("bad"), DENY, source=of("192.0.2.128/25", "2001:db8:ffff:bad::/64"), log=True),
    Rule(RuleId("web"), PERMIT, protocol=TCP, destination=of("198.51.100.10", "2001:db8:100::10"),
         destination_ports=ports(80)),
    Rule(RuleId("high"), DENY, protocol=TCP, destination_ports=ports(1000, 1999)),
    Rule(RuleId("any"), PERMIT, source=of("192.0.2.0/26", "2001:db8:ffff:1::/64"), protocol=TCP),
    Rule(RuleId("dns"), PERMIT, protocol=UDP, source_ports=ports(1024, 65535), destination_ports=ports(53), log=True),
    Rule(RuleId("echo"), PERMIT, protocol=ICMP, icmp_type=8),
    Rule(RuleId("echo6"), PERMIT, protocol=ICMPV6, icmp_type=128, icmp_code=0),
    Rule(RuleId("gre"), PERMIT, protocol=47, source=of("192.0.2.66")),
    Rule(RuleId("synfin"), DENY, protocol=TCP, tcp_flags=FlagMatch(TcpFlag.SYN | TcpFlag.FIN, 0x03)),
    Rule(RuleId("mail"), DENY, Direction.EGRESS, protocol=TCP, destination_ports=ports(25)),
)  # fmt: skip
BANK = (
    Rule(RuleId("shop"), PERMIT, protocol=TCP, source=of("198.51.100.0/24"), destination_ports=ports(443)),
    Rule(RuleId("rest"), DENY, source=of("0.0.0.0/0")),
)
DNS = Rule(RuleId("dns"), PERMIT, protocol=UDP, destination=of("192.0.2.53"), destination_ports=ports(53))


def policy(shop: Sequence[Rule] = SHOP, bank: Sequence[Rule] = BANK, operator: Sequence[Rule] = (DNS,)) -> Policy:
    """Two tenants, both IP versions, every kind of match. Rules keep their numbers."""
    numbers = {rule.id: number for number, rule in enumerate((*SHOP, *BANK), 1)}
    tenants = (
        Tenant(TenantId("shop"), 1, _owned("198.51.100.0/24", "2001:db8:100::/48"), Acl(tuple(shop)), numbers),
        Tenant(TenantId("bank"), 2, _owned("203.0.113.0/24"), Acl(tuple(bank)), numbers),
    )
    return Policy(tenants, tuple(operator), {rule.id: number for number, rule in enumerate(operator, 1)})


def _owned(*texts: str) -> tuple[Prefix, ...]:
    return tuple(map(Prefix.parse, texts))


POLICIES = {
    "whole": policy(),
    "without a rule": policy(SHOP[:3] + SHOP[4:]),
    "another order": policy((SHOP[3], SHOP[2], *SHOP[:2], *SHOP[4:])),
    "without operator": policy(operator=()),
    "empty lists": policy((), ()),
    "without a tenant": Policy(policy().tenants[:1], (DNS,), {"dns": 1}),
    "single addresses": Policy(
        (replace(policy().tenants[0], prefixes=_owned("198.51.100.10", "2001:db8:100::10")), policy().tenants[1])
    ),
    "no tenants": Policy(),
    "messages about path MTU": replace(policy(), return_traffic=ReturnTraffic.PATH_MTU, path_mtu_rate=5),
}


@dataclass(frozen=True)
class Meddling:
    """What a foreign hand does, by plane: the text for `nft -f` or for `iptables-restore --noflush`."""

    name: str
    nftables: str
    iptables: str


MEDDLINGS = (
    Meddling("opens everything", "add rule ip aclflow whole accept", "-A FORWARD -j ACCEPT"),
    Meddling("opens a list", "add rule ip aclflow ingress_1 accept", "-A ingress_1 -j ACCEPT"),
    Meddling("empties a list", "flush chain ip aclflow ingress_1", "-F ingress_1"),
    Meddling(
        "changes a rule of the other IP version",
        "flush chain ip6 aclflow ingress_1\nadd rule ip6 aclflow ingress_1 counter accept",
        "6 -F ingress_1",
    ),
    Meddling("takes the stamp away", "flush chain ip aclflow stamp", "-F aclflow"),
    Meddling(
        "writes another stamp",
        f'flush chain ip aclflow stamp\nadd rule ip aclflow stamp return comment "generation 9 digest {"0" * 32}"',
        f'-F aclflow\n-A aclflow -m comment --comment "generation 9 digest {"0" * 32}"',
    ),
    Meddling("changes the policy", "delete table ip aclflow", ":FORWARD ACCEPT [0:0]\n-F FORWARD"),
)


def in_force(meddling: Meddling, run: Run) -> str:
    """A meddling's script about the tables that are there: they have one of two names."""
    for name in NAMES:
        try:
            run(("nft", "-nn", "-a", "list", "table", "ip", name), "")
        except Refused:
            continue
        return re.sub(r"\baclflow\b", name, meddling.nftables) + "\n"
    raise AssertionError("there is no table of ours")


def meddle(bench: Bench, meddling: Meddling) -> None:
    if bench.plane is Plane.NFTABLES:
        bench.run(("nft", "-f", "-"), in_force(meddling, bench.run))
        return
    text = meddling.iptables
    program = "ip6tables" if text.startswith("6 ") else "iptables"
    bench.run((f"{program}-restore", "--noflush"), f"*filter\n{text.removeprefix('6 ')}\nCOMMIT\n")


def program(bench: Bench, of_policy: Policy, generation: int = 7) -> Program:
    return filter_program(of_policy, [bench.plane], domain="pop1", generation=generation)


def bring(bench: Bench, wanted: Program) -> None:
    """What the loop does from whatever the filter holds."""
    change = gap.correction(bench.driver.observe(), wanted, bench.driver.resolve)
    bench.driver.apply(change, gap.stamp_of(wanted))


def assert_holds(bench: Bench, wanted: Program) -> None:
    observed = bench.driver.observe()
    assert gap.mismatch(observed, bench.driver.resolve(wanted.flows, ()), gap.stamp_of(wanted)) is None


def corner_packets() -> list[Packet]:
    """Packets at the corners of the whole policy, spread over all that there are."""
    plain = [packet for packet in policy_packets(POLICIES["whole"]) if carried(packet) and not packet.later_fragment]
    return plain[:: max(1, len(plain) // MOST_PACKETS)]


def assert_decides(bench: Bench, policy: Policy, packets: Sequence[Packet]) -> None:
    came = bench.forward(packets)
    wrong = [
        packet for packet, through in zip(packets, came, strict=True) if through != decide(policy, packet).permitted
    ]
    assert not wrong


def by_cookie(hits: Hits) -> Counter[int]:
    counted: Counter[int] = Counter()
    for cookie, packets in zip(hits.cookie.tolist(), hits.packets.tolist(), strict=True):
        counted[cookie] += packets
    return +counted


class FilterContract:
    fails_at_will: ClassVar[bool] = True

    # what is there, and what it does

    def test_a_bare_filter_is_closed_before_anything_else(self, bench: Bench) -> None:
        assert any(bench.forward(bench.packets))
        close_if_bare(bench.driver, "pop1")
        assert not any(bench.forward(bench.packets))
        nothing = Program.of("pop1", Tier.SERVER, 0, NOTHING, ())
        assert_holds(bench, nothing)

    def test_a_filter_that_holds_a_program_is_not_closed(self, bench: Bench) -> None:
        wanted = program(bench, POLICIES["whole"])
        bring(bench, wanted)
        close_if_bare(bench.driver, "pop1")
        assert_holds(bench, wanted)

    @pytest.mark.parametrize("name", POLICIES)
    def test_a_program_is_read_back_as_it_was_written_and_decides_as_its_policy(self, bench: Bench, name: str) -> None:
        wanted = program(bench, POLICIES[name])
        bring(bench, wanted)
        assert_holds(bench, wanted)
        assert_decides(bench, POLICIES[name], bench.packets)

    @pytest.mark.parametrize("name", POLICIES)
    @pytest.mark.parametrize("legs", [Legs(("left",), ("right",)), Legs(("wan0", "right"), ("lan0", "left"))])
    def test_a_leg_bears_no_name_of_the_other_side(self, bench: Bench, name: str, legs: Legs) -> None:
        """What comes by the outside leg in a tenant's name is dropped, and by the inside leg what is in no tenant's."""
        bench.declare(legs)
        wanted, policy = program(bench, POLICIES[name]), POLICIES[name]
        bring(bench, wanted)
        assert_holds(bench, wanted)
        owned = [prefix for tenant in policy.tenants for prefix in tenant.prefixes]
        ours = [any(each.family is packet.family and each.holds(packet.source) for each in owned)
                for packet in bench.packets]  # fmt: skip
        believed = [own is ("left" in legs.inside) for own in ours]
        permitted = [decide(policy, packet).permitted for packet in bench.packets]
        wanted_through = list(map(all, zip(permitted, believed, strict=True)))
        assert bench.forward(bench.packets) == wanted_through
        if name == "whole":
            assert any(wanted_through)
            assert any(yes and not known for yes, known in zip(permitted, believed, strict=True)), "nobody lies"

    @pytest.mark.parametrize("name", list(POLICIES)[1:])
    def test_a_delta_leads_from_one_program_to_another_and_back(self, bench: Bench, name: str) -> None:
        here, there = program(bench, POLICIES["whole"]), program(bench, POLICIES[name], 8)
        bring(bench, here)
        for old, new, of_policy in ((here, there, POLICIES[name]), (there, here, POLICIES["whole"])):
            bench.driver.apply(gap.step(old, new, (), bench.driver.resolve), gap.stamp_of(new))
            assert_holds(bench, new)
            assert_decides(bench, of_policy, bench.packets)

    def test_a_small_change_says_what_it_left(self, bench: Bench) -> None:
        here, there = program(bench, POLICIES["whole"]), program(bench, POLICIES["without a rule"], 8)
        bring(bench, here)
        changed = finish(bench.driver.change(between(here, there), gap.stamp_of(there)))
        assert gap.changed_otherwise(changed, gap.stamp_of(there)) is None
        assert_holds(bench, there)

    def test_applying_what_is_there_changes_nothing(self, bench: Bench) -> None:
        wanted = program(bench, POLICIES["whole"])
        bring(bench, wanted)
        bring(bench, wanted)
        assert_holds(bench, wanted)
        change = gap.correction(bench.driver.observe(), wanted, bench.driver.resolve)
        assert not len(change.removed)
        assert not len(change.added)

    def test_a_fresh_driver_reads_what_another_one_wrote(self, bench: Bench) -> None:
        wanted = program(bench, POLICIES["whole"])
        bring(bench, wanted)
        bench.driver = FilterDriver(bench.driver.tool)  # as after a restart
        assert_holds(bench, wanted)

    # what it counts

    def test_hits_are_those_of_the_rules_that_decided(self, bench: Bench) -> None:
        whole = POLICIES["whole"]
        bring(bench, program(bench, whole))
        packets = bench.packets
        bench.forward(packets)
        comments = [comment for packet in packets for comment in counted_under(whole, decide(whole, packet))]
        owners = [owner for comment in comments if (owner := read_comment(comment)) is not None]
        wanted = Counter(Cookie(Tier.SERVER, *owner).pack() for owner in owners)
        hits = bench.driver.hits()
        assert len(set(hits.key.tolist())) == len(hits)
        assert by_cookie(hits) == wanted
        assert all(octets >= count for octets, count in zip(hits.bytes.tolist(), hits.packets.tolist(), strict=True))

    def test_under_one_key_a_counter_only_grows(self, bench: Bench) -> None:
        whole, other = POLICIES["whole"], POLICIES["without a rule"]
        bring(bench, program(bench, whole))
        seen: dict[int, int] = {}
        for generation, of_policy in enumerate((other, whole, other), 8):
            bench.forward(bench.packets)
            self._grown(bench, seen)
            bring(bench, program(bench, of_policy, generation))
            self._grown(bench, seen)

    @staticmethod
    def _grown(bench: Bench, seen: dict[int, int]) -> None:
        hits = bench.driver.hits()
        for key, packets in zip(hits.key.tolist(), hits.packets.tolist(), strict=True):
            assert packets >= seen.get(key, 0)
            seen[key] = packets

    # what goes wrong

    @pytest.mark.parametrize("meddling", MEDDLINGS, ids=lambda each: each.name)
    def test_a_foreign_change_is_seen_and_put_right(self, bench: Bench, meddling: Meddling) -> None:
        wanted = program(bench, POLICIES["whole"])
        bring(bench, wanted)
        meddle(bench, meddling)
        found = bench.driver.observe()
        assert gap.mismatch(found, bench.driver.resolve(wanted.flows, ()), gap.stamp_of(wanted)) is not None
        bring(bench, wanted)
        assert_holds(bench, wanted)
        assert_decides(bench, POLICIES["whole"], bench.packets)

    def test_a_refused_transaction_leaves_everything_as_it_was(self, bench: Bench) -> None:
        wanted = program(bench, POLICIES["whole"])
        bring(bench, wanted)
        leads_nowhere = "jump nowhere" if bench.plane is Plane.NFTABLES else "-j nowhere"
        bad = filter_row(_first_filter(bench), _list_name(bench), leads_nowhere)
        with pytest.raises(Refused):
            bench.driver.apply(Delta(b"", b"", 8, NOTHING, FlowTable.of([bad]), ()), Stamp(8, bytes(16)))
        assert_holds(bench, wanted)

    def test_a_program_that_does_not_end_by_dropping_is_refused(self, bench: Bench) -> None:
        wanted = program(bench, POLICIES["whole"])
        bring(bench, wanted)
        name = "chain receivers" if bench.plane is Plane.NFTABLES else FORWARD
        for text in ("", "type filter hook forward priority 0; policy accept;", "policy ACCEPT"):
            open_ended = filter_row(_first_filter(bench), name, text)
            with pytest.raises(Refused, match="does not"):
                bench.driver.apply(Delta(b"", b"", 8, NOTHING, FlowTable.of([open_ended]), ()), Stamp(8, bytes(16)))
        assert_holds(bench, wanted)

    def test_objects_that_are_not_ours_are_refused(self, bench: Bench) -> None:
        bring(bench, program(bench, POLICIES["whole"]))
        for name in ("INPUT", "chain stamp", "aclflow", "chain x; flush ruleset", "counter c"):
            foreign = filter_row(_first_filter(bench), name, "")
            with pytest.raises(Refused, match="not one of ours"):
                bench.driver.apply(Delta(b"", b"", 8, NOTHING, FlowTable.of([foreign]), ()), Stamp(8, bytes(16)))

    def test_rows_of_other_filters_are_passed_over(self, bench: Bench) -> None:
        both = filter_program(POLICIES["whole"], Plane, domain="pop1", generation=7)
        bring(bench, both)
        assert_holds(bench, both)

    def test_when_the_device_fails_nothing_is_changed_and_later_it_goes_on(self, bench: Bench) -> None:
        if not self.fails_at_will:
            pytest.skip("this filter cannot be made to fail")
        here, there = program(bench, POLICIES["whole"]), program(bench, POLICIES["without a rule"], 8)
        bring(bench, here)
        bench.fail("Interrupted")
        with pytest.raises(Refused, match="Interrupted"):
            bring(bench, there)
        assert_decides(bench, POLICIES["whole"], bench.packets)
        bring(bench, there)
        assert_holds(bench, there)


def _first_filter(bench: Bench) -> int:
    return int(bench.driver.observe().flows.table.min())


def _list_name(bench: Bench) -> str:
    names = {Plane.NFTABLES: "chain ingress_1", Plane.IPTABLES: "ingress_1", Plane.QUEUE: "ingress_1 rule 1"}
    return names[bench.plane]
