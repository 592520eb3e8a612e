"""The flow cache's program, run by the kernel on one packet at a time: as its rows say, and only what is plain."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from compiled_cache import every_rule, first, in_words
from compiled_filter import carried, counted_under
from flow_cache_samples import packets_near, row_lists
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from strategies import policies
from system.test_same_verdicts import routable

from orchestrator.compile.filters.cacherows import CacheRow, Verdict
from orchestrator.compile.filters.flowcache import flow_cache
from orchestrator.enforce.driver import Stamp
from orchestrator.enforce.drivers.bpf import libbpf
from orchestrator.enforce.drivers.bpf.kernel import KernelCache
from orchestrator.enforce.drivers.bpf.layout import BY_LEG, FlowSet
from orchestrator.enforce.drivers.openflow import frames
from orchestrator.errors import NotExpressible
from orchestrator.lab.layout import Layout
from orchestrator.lab.router import LEFT, RIGHT, ROUTER, Router, ethernet
from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Packet, Policy
from orchestrator.policy.oracle import decide
from orchestrator.policy.protocols import ICMP, ICMPV6, SCTP, TCP, UDP
from orchestrator.policy.spans import Span

SLOW_PATH, DROP, REDIRECT = -1, 2, 7
"""What a tc program answers: the next one decides; dropped; sent on."""

ANSWERS = {Verdict.DEFER: SLOW_PATH, Verdict.PERMIT: REDIRECT, Verdict.DENY: DROP}
STAMP = Stamp(1, bytes(16))
few = settings(
    max_examples=60, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


class Bench:
    """A router with a flow cache whose program is run by hand."""

    def __init__(self, router: Router) -> None:
        self.router = router
        self.cache = KernelCache((LEFT, RIGHT))
        self.left = router.inside(ROUTER, lambda: socket.if_nametoindex(LEFT))

    def hold(self, *rows: CacheRow, check: int = 0) -> None:
        self.router.inside(ROUTER, lambda: self.cache.open(FlowSet(rows, STAMP, check)))

    def run(self, frame: bytes, mark: int = 0) -> tuple[int, bytes]:
        return self.router.inside(ROUTER, lambda: libbpf.run(self.cache.program, frame, self.left, mark))

    def run_all(self, sent: list[bytes]) -> list[int]:
        """Answers to many, without a thread for each."""
        return self.router.inside(
            ROUTER, lambda: [libbpf.run(self.cache.program, frame, self.left)[0] for frame in sent]
        )

    def counts(self) -> dict[int, int]:
        found = self.router.inside(ROUTER, self.cache.read_counters)
        return dict(zip(found.cookie.tolist(), found.packets.tolist(), strict=True))


@pytest.fixture(scope="module")
def bench(layout: Layout) -> Iterator[Bench]:
    with Router(layout.prefix) as router:
        yield Bench(router)


def framed(packet: Packet, payload: bytes = b"payload of some length, to be no short frame") -> bytes:
    """From the left to the router."""
    whole = frames.frame(packet, src_mac=0, dst_mac=0, payload=payload)
    return ethernet(0, b"")[:12] + whole[12:]


def unicast(packet: Packet) -> bool:
    """Whether the cache looks at packets with these addresses at all."""
    if packet.family is Family.IPV4:
        return all(1 <= side >> 24 < 224 and side >> 24 != 127 for side in (packet.source, packet.destination))
    return all(0x2000 <= side >> 112 < 0xFE00 for side in (packet.source, packet.destination))


def expected(rows: tuple[CacheRow, ...], packet: Packet) -> int:
    neighbourly = packet.protocol == ICMPV6 and 130 <= packet.icmp_type <= 137
    row = first(rows, packet)
    if row is None or not unicast(packet) or (neighbourly and packet.family is Family.IPV6):
        return SLOW_PATH
    return ANSWERS[row.verdict]


def test_it_answers_as_its_rows_say(bench: Bench) -> None:
    answers = set()

    @few
    @given(row_lists().filter(bool), st.data())
    def compare(rows: tuple[CacheRow, ...], data: st.DataObject) -> None:
        near = data.draw(st.lists(packets_near(rows), min_size=20, max_size=20))
        sent = {packet: framed(packet) for packet in near if expressible(packet)}
        bench.hold(*rows)
        found = dict(zip(sent, bench.run_all(list(sent.values())), strict=True))
        assert found == {packet: expected(rows, packet) for packet in sent}
        again = bench.run_all(list(sent.values()))  # by what it knows of their flows
        assert again == list(found.values())
        answers.update(again)

    compare()
    assert answers == {SLOW_PATH, DROP, REDIRECT}


def expressible(packet: Packet) -> bool:
    try:
        framed(packet)
    except NotExpressible:
        return False
    return True


def test_for_whole_policies_it_agrees_with_the_oracle_and_counts_exactly(bench: Bench) -> None:
    decided = 0

    @few
    @given(policies(max_tenants=3, max_rules=6))
    def compare(policy: Policy) -> None:
        nonlocal decided
        bench.hold(*flow_cache(policy, every_rule(policy)).rows)
        packets = [packet for packet in filter(carried, routable(policy)) if expressible(packet)]
        before = bench.counts()
        wanted: dict[str, int] = {}
        for packet, answer in zip(packets, bench.run_all([framed(each) for each in packets]), strict=True):
            if answer == SLOW_PATH:
                continue
            decided += 1
            decision = decide(policy, packet)
            assert answer == (REDIRECT if decision.permitted else DROP), packet
            for name in counted_under(policy, decision):
                wanted[name] = wanted.get(name, 0) + 1
        counted = {cookie: count - before.get(cookie, 0) for cookie, count in bench.counts().items()}
        assert {in_words(cookie): count for cookie, count in counted.items() if count} == wanted

    compare()
    assert decided > 500


FROM = {Family.IPV4: 0xC0000201, Family.IPV6: 0x20010DB8FFFF << 80 | 1}
TO = {Family.IPV4: 0xC6336401, Family.IPV6: 0x20010DB80100 << 80 | 1}
F4, F6 = Family.IPV4, Family.IPV6


def everything(verdict: Verdict) -> tuple[CacheRow, ...]:
    """Rows that hold every packet."""
    whole = {family: Span(0, (1 << family.bits) - 1) for family in Family}
    return tuple(
        CacheRow(f, whole[f], whole[f], Span(0, 65535), Span(0, 65535), Span(0, 255), (0, 0), verdict) for f in Family
    )


def pseudo(family: Family) -> frames.Pseudo:
    return (frames.pseudo_v4 if family is F4 else frames.pseudo_v6)(FROM[family], TO[family])


def tcp(family: Family, payload: bytes = b"payload of a segment") -> bytes:
    return frames.tcp(40000, 80, 0x10, payload, pseudo(family))


def v4(body: bytes, protocol: int = TCP, **more: object) -> bytes:
    return ethernet(frames.IPV4, frames.ipv4(FROM[F4], TO[F4], protocol, body, **more))  # type: ignore[arg-type]


def v6(body: bytes, protocol: int = TCP) -> bytes:
    return ethernet(frames.IPV6, frames.ipv6(FROM[F6], TO[F6], protocol, body))


def changed(frame: bytes, at: int, octets: bytes, *, mend: bool = False) -> bytes:
    """The frame with bytes replaced, its IPv4 checksum made right again if asked."""
    frame = frame[:at] + octets + frame[at + len(octets) :]
    if not mend:
        return frame
    blank = frame[:24] + b"\0\0" + frame[26:]
    return frame[:24] + frames.checksum(blank[14:34]).to_bytes(2, "big") + frame[26:]


PLAIN: dict[str, Callable[[], bytes]] = {
    "tcp": lambda: v4(tcp(F4)),
    "tcp over IPv6": lambda: v6(tcp(F6)),
    "don't fragment": lambda: v4(tcp(F4), fragment=0x4000),
    "gre": lambda: v4(bytes(30), 47),
    "sctp": lambda: v4(frames.sctp(1, 2, bytes(8)), SCTP),
    "echo": lambda: v4(frames.icmp(8, 0, bytes(20)), ICMP),
    "echo over IPv6": lambda: v6(frames.icmp(128, 0, bytes(20), pseudo(F6)), ICMPV6),
    "no options, padded": lambda: v4(frames.udp(1, 2, b"", pseudo(F4)), UDP).ljust(60, b"\0"),
}
NOT_PLAIN: dict[str, Callable[[], bytes]] = {
    "a VLAN tag": lambda: frames.vlan(7, v4(tcp(F4))),
    "IPv4 options": lambda: v4(tcp(F4), options=b"\x01\x01\x01\x00"),
    "a first fragment": lambda: v4(tcp(F4), fragment=0x2000),
    "a later fragment": lambda: v4(tcp(F4), fragment=185),
    "the reserved flag": lambda: v4(tcp(F4), fragment=0x8000),
    "a wrong checksum": lambda: changed(v4(tcp(F4)), 24, b"\x12\x34"),
    "the last hop": lambda: changed(v4(tcp(F4)), 22, b"\x01", mend=True),
    "no hop": lambda: changed(v4(tcp(F4)), 22, b"\x00", mend=True),
    "a length beyond the frame": lambda: changed(v4(tcp(F4)), 16, b"\x05\x00", mend=True),
    "octets behind the packet": lambda: v4(tcp(F4)) + bytes(30),
    "a length below the header": lambda: changed(v4(tcp(F4)), 16, b"\x00\x10", mend=True),
    "version 5": lambda: changed(v4(tcp(F4)), 14, b"\x55", mend=True),
    "a cut TCP header": lambda: v4(tcp(F4)[:16]),
    "a cut UDP header": lambda: v4(bytes(7), UDP),
    "a cut SCTP header": lambda: v4(bytes(8), SCTP),
    "a cut ICMP header": lambda: v4(bytes(4), ICMP),
    "to many": lambda: changed(v4(tcp(F4)), 30, b"\xe0\x00\x00\x05", mend=True),
    "from many": lambda: changed(v4(tcp(F4)), 26, b"\xe0\x00\x00\x05", mend=True),
    "to everybody": lambda: changed(v4(tcp(F4)), 30, b"\xff\xff\xff\xff", mend=True),
    "from nobody": lambda: changed(v4(tcp(F4)), 26, bytes(4), mend=True),
    "from this machine": lambda: changed(v4(tcp(F4)), 26, b"\x7f\x00\x00\x01", mend=True),
    "another host's MAC": lambda: changed(v4(tcp(F4)), 0, b"\x02\x00\x00\x00\x00\x99"),
    "everybody's MAC": lambda: changed(v4(tcp(F4)), 0, b"\xff" * 6),
    "ARP": lambda: ethernet(frames.ARP, frames.arp(1, 2, FROM[F4], 0, TO[F4])),
    "hop-by-hop options": lambda: v6(frames.extension(TCP) + tcp(F6), 0),
    "a routing header": lambda: v6(frames.extension(TCP) + tcp(F6), 43),
    "destination options": lambda: v6(frames.extension(TCP) + tcp(F6), 60),
    "an authentication header": lambda: v6(frames.extension(TCP) + tcp(F6), 51),
    "no next header": lambda: v6(bytes(20), 59),
    "a first fragment of IPv6": lambda: v6(frames.fragment_header(TCP, 1) + tcp(F6), 44),
    "a later fragment of IPv6": lambda: v6(frames.fragment_header(TCP, 1480) + tcp(F6), 44),
    "the last hop of IPv6": lambda: changed(v6(tcp(F6)), 21, b"\x01"),
    "a solicitation": lambda: v6(frames.icmp(135, 0, bytes(20), pseudo(F6)), ICMPV6),
    "link-local": lambda: changed(v6(tcp(F6)), 22, b"\xfe\x80"),
    "to many over IPv6": lambda: changed(v6(tcp(F6)), 38, b"\xff\x02"),
    "no payload length": lambda: changed(v6(tcp(F6)), 18, b"\x00\x00"),
    "version 4 in IPv6": lambda: changed(v6(tcp(F6)), 14, b"\x40"),
    "a cut segment over IPv6": lambda: v6(tcp(F6)[:10]),
}


@pytest.mark.parametrize("verdict", [Verdict.PERMIT, Verdict.DENY])
@pytest.mark.parametrize("name", PLAIN)
def test_it_decides_what_is_plain(bench: Bench, name: str, verdict: Verdict) -> None:
    bench.hold(*everything(verdict))
    assert bench.run(PLAIN[name]())[0] == ANSWERS[verdict]


@pytest.mark.parametrize("verdict", [Verdict.PERMIT, Verdict.DENY])
@pytest.mark.parametrize("name", NOT_PLAIN)
def test_it_leaves_alone_what_is_not(bench: Bench, name: str, verdict: Verdict) -> None:
    bench.hold(*everything(verdict))
    frame = NOT_PLAIN[name]()
    assert bench.run(frame)[0] == SLOW_PATH


def test_a_marked_packet_is_somebody_elses(bench: Bench) -> None:
    bench.hold(*everything(Verdict.PERMIT))
    assert bench.run(v4(tcp(F4)), mark=1)[0] == SLOW_PATH


def test_what_it_sends_on_has_one_hop_less_and_the_next_hops_address(bench: Bench) -> None:
    bench.hold(*everything(Verdict.PERMIT))
    _, four = bench.run(v4(tcp(F4)))
    assert four[14:] == changed(v4(tcp(F4)), 22, b"\x3f", mend=True)[14:]
    _, six = bench.run(v6(tcp(F6)))
    assert six[14:] == changed(v6(tcp(F6)), 21, b"\x3f")[14:]
    assert four[:12] == six[:12] != v4(b"")[:12]


def test_every_checksum_stays_right(bench: Bench) -> None:
    bench.hold(*everything(Verdict.PERMIT))
    for number in range(0, 65536, 257):
        frame = changed(v4(tcp(F4)), 18, number.to_bytes(2, "big"), mend=True)
        answer, sent = bench.run(frame)
        assert (answer, frames.checksum(sent[14:34])) == (REDIRECT, 0)


@contextmanager
def configured(bench: Bench, *words: str) -> Iterator[None]:
    """With something added to the router by `ip`, which is taken away again."""
    bench.router.run("ip", *words)
    try:
        yield
    finally:
        bench.router.run("ip", *("del" if word == "add" else word for word in words))


@pytest.mark.parametrize("verdict", [Verdict.PERMIT, Verdict.DENY])
@pytest.mark.parametrize("address", ["192.0.2.1/32", "198.51.100.1/32"], ids=["from", "to"])
def test_the_routers_own_address_is_the_kernels_business(bench: Bench, address: str, verdict: Verdict) -> None:
    bench.hold(*everything(verdict))
    with configured(bench, "address", "add", address, "dev", "lo"):
        assert bench.run(v4(tcp(F4)))[0] == SLOW_PATH
    assert bench.run(v4(tcp(F4)))[0] == ANSWERS[verdict]


def test_nothing_is_sent_where_there_is_no_way(bench: Bench) -> None:
    bench.hold(*everything(Verdict.PERMIT))
    for kind in ("unreachable", "blackhole", "prohibit"):
        with configured(bench, "route", "add", kind, "198.51.100.0/24"):
            assert bench.run(v4(tcp(F4)))[0] == SLOW_PATH
    with configured(bench, "route", "add", "198.51.100.0/24", "dev", LEFT):  # back to where it came from
        assert bench.run(v4(tcp(F4)))[0] == SLOW_PATH
    with configured(bench, "route", "add", "198.51.100.0/24", "dev", RIGHT):  # nobody there is known yet
        assert bench.run(v4(tcp(F4)))[0] == SLOW_PATH


def test_a_source_is_asked_for_as_rp_filter_does(bench: Bench) -> None:
    """Every route leads to the right, and packets come from the left."""
    rows = everything(Verdict.PERMIT)
    strict, loose = 1, 2
    bench.hold(*rows, check=strict)
    assert bench.run(v4(tcp(F4)))[0] == SLOW_PATH
    with configured(bench, "route", "add", "192.0.2.0/24", "dev", LEFT):
        assert bench.run(v4(tcp(F4)))[0] == REDIRECT
    bench.hold(*rows, check=loose)
    assert bench.run(v4(tcp(F4)))[0] == REDIRECT
    with configured(bench, "route", "add", "unreachable", "192.0.2.0/24"):
        assert bench.run(v4(tcp(F4)))[0] == SLOW_PATH
        bench.hold(*rows)
        assert bench.run(v4(tcp(F4)))[0] == REDIRECT


def test_where_legs_are_declared_sources_of_both_versions_are_asked_for(bench: Bench) -> None:
    """The row permits both; a source to which the way back leads by another leg is the filter's to drop."""
    bench.hold(*everything(Verdict.PERMIT), check=BY_LEG)
    for frame, block in ((v4(tcp(F4)), "192.0.2.0/24"), (v6(tcp(F6)), "2001:db8:ffff::/48")):
        assert bench.run(frame)[0] == SLOW_PATH
        with configured(bench, "route", "add", block, "dev", LEFT):
            assert bench.run(frame)[0] == REDIRECT
        with configured(bench, "route", "add", "unreachable", block):
            assert bench.run(frame)[0] == SLOW_PATH


def test_what_does_not_fit_is_left_to_the_kernel(bench: Bench) -> None:
    bench.hold(*everything(Verdict.PERMIT))
    fits, over = v4(tcp(F4, bytes(960))), v4(tcp(F4, bytes(961)))
    six = v6(tcp(F6, bytes(1221)))
    bench.router.run("ip", "link", "set", RIGHT, "mtu", "1000")
    try:
        assert [bench.run(frame)[0] for frame in (fits, over)] == [REDIRECT, SLOW_PATH]
        bench.router.run("ip", "link", "set", RIGHT, "mtu", "1280")
        assert bench.run(six)[0] == SLOW_PATH
    finally:
        bench.router.run("ip", "link", "set", RIGHT, "mtu", "1500")


def test_closed_it_decides_nothing(bench: Bench) -> None:
    bench.hold(*everything(Verdict.DENY))
    bench.router.inside(ROUTER, bench.cache.close)
    assert bench.run(v4(tcp(F4)))[0] == SLOW_PATH
    assert bench.router.inside(ROUTER, bench.cache.read) is None


def test_an_interface_that_is_not_there_keeps_nobody_waiting(bench: Bench) -> None:
    """It gets no packets; when it is there, it is not decided at until all of it is opened anew."""
    rows = FlowSet(everything(Verdict.DENY), STAMP)
    bench.cache = KernelCache((LEFT, RIGHT, "extra"))

    def read() -> FlowSet | None:
        return bench.router.inside(ROUTER, bench.cache.read)

    try:
        bench.hold(*rows.rows)
        assert (read(), bench.run(v4(tcp(F4)))[0]) == (rows, ANSWERS[Verdict.DENY])
        bench.router.run("ip", "link", "add", "extra", "type", "veth", "peer", "name", "extra-end")
        assert read() is None
        bench.hold(*rows.rows)
        assert read() == rows
        bench.router.run("ip", "link", "del", "extra")
        assert read() == rows
    finally:
        bench.cache = KernelCache((LEFT, RIGHT))
