"""The loop of a routed uplink: what is routed, what is withdrawn and when, with a switch and a kernel in memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from orchestrator.enforce.drivers.openflow.frames import checksum
from orchestrator.enforce.guardtable import GuardTable
from orchestrator.enforce.uplink.monitors import delivered_prefixes
from orchestrator.enforce.uplink.routeduplink import RoutedUplink
from orchestrator.enforce.uplink.segment import SegmentChange, make_announcement
from orchestrator.enforce.uplink.uplinkkeeper import UplinkKeeper
from orchestrator.enforce.uplink.uplinkkernel import ARRIVED_S, Arrivals, KernelChange, Rank
from orchestrator.errors import BadInput, Refused, Unreachable
from orchestrator.policy.addresses import Prefix

WEB, DB, FAR = map(Prefix.parse, ("198.51.100.10/32", "2001:db8::20/128", "203.0.113.1/32"))
WIDE = Prefix.parse("198.51.0.0/16")
PORTS = {WEB: 5, DB: 6, FAR: 7, WIDE: 8}
UPLINK = RoutedUplink(("eth0",), (Prefix.parse("198.51.100.0/24"), Prefix.parse("2001:db8::/48")))


@dataclass
class Segments:
    """Networks on which somebody answers for endpoints."""

    answered: frozenset[Prefix] = frozenset()
    told: list[tuple[Prefix, ...]] = field(default_factory=list)

    def follow(self, prefixes: Collection[Prefix]) -> SegmentChange:
        now = frozenset(prefixes)
        change = SegmentChange(now - self.answered, self.answered - now)
        self.answered = now
        return change

    def tell(self, addresses: Iterable[Prefix]) -> None:
        if told := tuple(sorted(addresses)):
            self.told.append(told)


@dataclass
class World:
    """A switch, a kernel and nft in one: each as it is now."""

    delivered: frozenset[Prefix] = frozenset()
    error: Exception | None = None
    table: str = ""
    nft_error: Exception | None = None
    frames: dict[int, int] = field(default_factory=dict)
    count_error: Exception | None = None
    routes: frozenset[Prefix] = frozenset()
    ranks: dict[Prefix, Rank] = field(default_factory=dict)
    now: float = 0.0
    order: list[str] = field(default_factory=list)
    kernel_error: Exception | None = None
    segments: Segments = field(default_factory=Segments)

    def read(self) -> dict[Prefix, int]:
        if self.error is not None:
            raise self.error
        return {prefix: PORTS[prefix] for prefix in self.delivered}

    def count_received(self) -> dict[int, int]:
        if self.count_error is not None:
            raise self.count_error
        return self.frames

    def follow(self, ranked: Mapping[Prefix, Rank]) -> KernelChange:
        if self.kernel_error is not None:
            raise self.kernel_error
        prefixes = frozenset(ranked)
        change = KernelChange(prefixes - self.routes, self.routes - prefixes)
        self.order.append(f"{len(prefixes)} routes")
        self.routes, self.ranks = prefixes, dict(ranked)
        return change

    def run(self, command: Sequence[str], text: str) -> str:
        if self.nft_error is not None:
            raise self.nft_error
        if command[1] == "-f":
            self.table = "\n".join(text.splitlines()[2:])
            self.order.append("guard")
        elif not self.table:
            raise Refused("nft: Error: No such file or directory")
        return self.table

    def keeper(self) -> UplinkKeeper:
        return UplinkKeeper(UPLINK, self, self, self.segments, UPLINK.guard(self.run), 10.0, lambda: self.now)


def test_the_guard_stands_before_the_first_route() -> None:
    world = World(frozenset({WEB, DB}))
    step = world.keeper().step()
    assert world.order == ["guard", "2 routes"]
    assert step.announced == world.routes == {WEB, DB}
    assert step.change.repaired == ("the guard's table",)


def test_without_a_guard_no_route_stays() -> None:
    world = World(frozenset({WEB}))
    keeper = world.keeper()
    keeper.step()
    world.nft_error = Refused("nft: no")
    with pytest.raises(Refused):
        keeper.step()
    assert world.routes == frozenset()
    world.nft_error, world.table = None, ""
    keeper.step()
    assert world.routes == {WEB}
    assert world.table


@pytest.mark.parametrize("error", [Unreachable("away"), Refused("what?")])
def test_routes_outlive_a_silent_switch_for_a_while_and_no_longer(error: Exception) -> None:
    world = World(frozenset({WEB}))
    keeper = world.keeper()
    keeper.step()
    world.error, world.now = error, 9.9
    kept = keeper.step()
    assert world.routes == {WEB}
    assert "kept for 10 s" in kept.trouble[0]
    world.now = 10.0
    gone = keeper.step()
    assert world.routes == frozenset()
    assert "silent for 10 s" in gone.trouble[0]
    world.error, world.delivered = None, frozenset({DB})
    assert not keeper.step().trouble
    assert world.routes == {DB}


def test_a_keeper_that_never_read_a_row_withdraws_what_another_left() -> None:
    world = World(error=Unreachable("away"), routes=frozenset({WEB}))
    step = world.keeper().step()
    assert world.routes == frozenset()
    assert "nothing was read" in step.trouble[0]


def test_an_empty_table_is_an_answer() -> None:
    world = World(frozenset({WEB}))
    keeper = world.keeper()
    keeper.step()
    world.delivered = frozenset()
    assert not keeper.step().trouble
    assert world.routes == frozenset()


def test_an_endpoint_goes_first_when_it_has_just_come_and_last_before_it_spoke() -> None:
    world = World(frozenset({WEB, DB}), frames={PORTS[WEB]: 9, PORTS[DB]: 0})
    keeper = world.keeper()
    keeper.step()
    assert world.ranks == {WEB: Rank.SETTLED, DB: Rank.UNHEARD}
    assert not keeper.hears_an_arrival()
    world.now, world.frames[PORTS[DB]] = 1.0, 1
    assert keeper.hears_an_arrival()
    keeper.step()
    assert world.ranks == {WEB: Rank.SETTLED, DB: Rank.ARRIVED}
    world.now = 1.0 + ARRIVED_S
    keeper.step()
    assert world.ranks == {WEB: Rank.SETTLED, DB: Rank.SETTLED}


def test_an_endpoint_is_answered_for_once_it_spoke_and_told_of_some_times() -> None:
    world = World(frozenset({WEB, DB}), frames={PORTS[WEB]: 9, PORTS[DB]: 0})
    keeper = world.keeper()
    step = keeper.step()
    assert world.segments.answered == step.on_segments.answered == {WEB}, "another host may still have the silent one"
    keeper.tell_of_arrivals()
    world.now, world.frames[PORTS[DB]] = 3.0, 1
    keeper.step()
    assert world.segments.answered == {WEB, DB}
    for tenth in range(30, 300):
        world.now = tenth / 10
        keeper.tell_of_arrivals()
    assert world.segments.told == [(WEB,), (WEB, DB), (DB,), (WEB,), (DB,), (WEB,), (DB,)]


def test_nobody_is_told_of_an_endpoint_that_has_gone() -> None:
    world = World(frozenset({WEB}), frames={PORTS[WEB]: 9})
    keeper = world.keeper()
    keeper.step()
    world.delivered = frozenset()
    assert keeper.step().on_segments.silenced == {WEB}
    world.now = 60.0
    keeper.tell_of_arrivals()
    assert not world.segments.told


@pytest.mark.parametrize("fault", ["guard", "kernel"])
def test_nobody_is_answered_for_whom_nothing_is_routed_to(fault: str) -> None:
    world = World(frozenset({WEB}), frames={PORTS[WEB]: 9})
    keeper = world.keeper()
    keeper.step()
    assert world.segments.answered == {WEB}
    if fault == "guard":
        world.nft_error = Refused("nft: no")
    else:
        world.kernel_error = Unreachable("no port")
    with pytest.raises((Refused, Unreachable)):
        keeper.step()
    assert not world.segments.answered


MAC, LINK = 0x0A0000007711, 0xFE80 << 112 | 7


def test_announcements_are_what_the_standards_say() -> None:
    four = make_announcement(WEB, MAC, None)
    assert four is not None
    assert four.hex() == (
        "ffffffffffff0a00000077110806" "0001080006040001" "0a0000007711c633640a" "000000000000c633640a"
    )  # fmt: skip
    six = make_announcement(DB, MAC, LINK)
    assert six is not None
    assert six[:14].hex() == "3333000000010a000000771186dd"
    assert six[20:22].hex() == "3aff", "ICMPv6, and 255 hops or nobody believes it"
    assert six[22:54].hex() == LINK.to_bytes(16, "big").hex() + "ff020000000000000000000000000001"
    assert six[54] == 136
    assert six[58:].hex() == "20000000" + DB.network.to_bytes(16, "big").hex() + "02010a0000007711"
    assert checksum(six[22:54] + len(six[54:]).to_bytes(4, "big") + b"\0\0\0\x3a" + six[54:]) == 0
    assert make_announcement(DB, MAC, None) is None, "there is no address to say it from"


def test_an_endpoint_that_comes_again_has_to_speak_again() -> None:
    world = World(frozenset({WEB}), frames={PORTS[WEB]: 9})
    keeper = world.keeper()
    keeper.step()
    world.delivered = frozenset()
    keeper.step()
    world.delivered, world.frames = frozenset({WEB}), {PORTS[WEB]: 0}
    keeper.step()
    assert world.ranks == {WEB: Rank.UNHEARD}


def test_a_port_that_cannot_be_counted_keeps_its_rank_and_an_unknown_one_is_settled() -> None:
    world = World(frozenset({WEB}), frames={PORTS[WEB]: 0})
    keeper = world.keeper()
    keeper.step()
    world.count_error, world.delivered = Unreachable("away"), frozenset({WEB, DB})
    keeper.step()
    assert world.ranks == {WEB: Rank.UNHEARD, DB: Rank.SETTLED}


def test_a_port_that_stays_silent_is_counted_less_often() -> None:
    arrivals = Arrivals()
    arrivals.rank([5], {5: 0}, 0.0)
    counted = [eighth for eighth in range(8_000) if arrivals.is_time(eighth / 8)]
    assert counted[:80] == list(range(80)), "each time, in the beginning"
    assert 1900 < len(counted) < 2200, "then twice a second"


def test_what_lies_outside_of_the_ranges_is_not_announced_and_named() -> None:
    step = World(frozenset({WEB, FAR, WIDE})).keeper().step()
    assert step.announced == {WEB}
    assert step.trouble == (
        "198.51.0.0/16, 203.0.113.1/32: outside of the ranges that endpoints may have, so not announced (--range)",
    )


ROW = "cookie=0xac10000000000001, duration=1s, table=40, n_packets=0, n_bytes=0, priority=1065,{} actions={}"
DELIVERS = "set_field:0x1->reg1,set_field:0x5->reg4,set_field:0a:ac:1f:00:00:01->eth_src,goto_table:50"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (ROW.format("ip,nw_dst=198.51.100.10", DELIVERS), WEB),
        (ROW.format("ipv6,ipv6_dst=2001:db8::20", DELIVERS), DB),
        (ROW.format("ip,nw_dst=198.51.100.0/28", DELIVERS), Prefix.parse("198.51.100.0/28")),
        (ROW.format("ip,nw_dst=198.51.100.10", "goto_table:60"), None),
        (ROW.format("ip,reg2=0x1,nw_dst=198.51.100.10", "drop"), None),
        (ROW.format("ip", DELIVERS), None),
        (ROW.format("ip,nw_dst=198.51.100.10", DELIVERS).replace("0xac1", "0x1"), None),
        ("OFPST_FLOW reply (OF1.5) (xid=0x2):", None),
    ],
)
def test_rows_that_deliver_to_an_endpoint_name_its_prefix(line: str, found: Prefix | None) -> None:
    assert delivered_prefixes([line]) == ({found: 5} if found else {})


@pytest.mark.parametrize(
    ("fabric", "ranges", "beside", "port", "place"),
    [
        ((), ("10.0.0.0/8",), (), "up0", "--fabric"),
        (("eth0",), (), (), "up0", "--range"),
        (("eth0",), ("0.0.0.0/0",), (), "up0", "--range"),
        (("eth 0",), ("10.0.0.0/8",), (), "up0", "--fabric"),
        (('eth0" drop',), ("10.0.0.0/8",), (), "up0", "--fabric"),
        (("eth0",), ("10.0.0.0/8",), ("{",), "up0", "--beside"),
        (("up0",), ("10.0.0.0/8",), (), "up0", "--fabric"),
    ],
)
def test_an_uplink_that_cannot_be_is_refused_with_the_option(
    fabric: tuple[str, ...], ranges: tuple[str, ...], beside: tuple[str, ...], port: str, place: str
) -> None:
    with pytest.raises(BadInput) as raised:
        RoutedUplink(fabric, tuple(map(Prefix.parse, ranges)), beside, port)
    assert raised.value.place == place


def test_routers_of_a_segment_may_ask_where_endpoints_are() -> None:
    guard = RoutedUplink((), UPLINK.ranges, segments=("eth0",)).guard()
    lines = guard.script.splitlines()
    asks = next(place for place, line in enumerate(lines) if "nd-neighbor-solicit" in line)
    drops = next(place for place, line in enumerate(lines) if "ip6 saddr" in line)
    assert 'iifname { "eth0" }' in lines[asks]
    assert asks < drops
    assert 'iifname "up0" oifname { "eth0" } accept' in guard.script
    assert "nd-neighbor" not in UPLINK.guard().script


def test_the_guards_text_names_ranges_once_and_all_interfaces() -> None:
    ranges = tuple(map(Prefix.parse, ("10.0.0.0/8", "10.1.0.0/16", "2001:db8::/48")))
    guard = RoutedUplink(("eth0", "eth1"), ranges, ("docker0",)).guard()
    assert isinstance(guard, GuardTable)
    assert "ip saddr { 10.0.0.0/8 } drop" in guard.script
    assert "ip6 saddr { 2001:db8::/48 } drop" in guard.script
    assert 'iifname "up0" oifname { "eth0", "eth1" } accept' in guard.script
    assert 'iifname { "eth0", "eth1", "docker0" } oifname { "eth0", "eth1", "docker0" } accept' in guard.script
    assert "policy drop" in guard.script
