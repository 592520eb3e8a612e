"""The flow cache as the agent's loop sees it, over the kernel in memory; and what it looks for around it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from enforce.contract_filters import POLICIES
from flow_cache_samples import packets_near, row_lists
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples

from orchestrator.compile.filters.cacherows import CLASSIFIER, FLOWCACHE, CacheRow, Verdict, cache_table
from orchestrator.compile.filters.filterprogram import filter_program
from orchestrator.enforce import gap
from orchestrator.enforce.driver import UNKNOWN_IDLE_S, Stamp
from orchestrator.enforce.drivers.bpf import kernel
from orchestrator.enforce.drivers.bpf.cachefront import Around, BpfFront, look_around
from orchestrator.enforce.drivers.bpf.fake import FakeKernel
from orchestrator.enforce.drivers.bpf.kernel import KernelCache
from orchestrator.enforce.drivers.bpf.layout import FlowSet
from orchestrator.enforce.drivers.filters.front import Fronted
from orchestrator.enforce.drivers.nftables.fake import FakeNft
from orchestrator.enforce.drivers.nftables.tool import nftables_driver
from orchestrator.errors import Drifted, Missing, Refused
from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Packet
from orchestrator.policy.protocols import UDP
from orchestrator.policy.spans import Span
from orchestrator.program.flows import Flow, FlowTable
from orchestrator.program.program import Program, Tier
from orchestrator.wire.firewalls import Plane

STAMP = Stamp(4, bytes(range(16)))
FREE = Around(source_check=0, forwards_ipv6=True, bystanders=())
EVERY_PORT = Span(0, 65535)
HOST = {Family.IPV4: 0xC0000201, Family.IPV6: 0x20010DB8 << 96 | 1}


def row(family: Family, verdict: Verdict, *counts: int) -> CacheRow:
    one = Span(HOST[family], HOST[family])
    return CacheRow(family, one, one, EVERY_PORT, EVERY_PORT, Span(UDP, UDP), (0, 0), verdict, counts)


ROWS = (row(Family.IPV4, Verdict.PERMIT, 7), row(Family.IPV6, Verdict.DENY, 8, 7))
FOUR, SIX = (Packet(family, HOST[family], HOST[family], UDP, 1, 2) for family in Family)


class Surroundings:
    """What is around may change."""

    def __init__(self) -> None:
        self.now = FREE

    def look(self, interfaces: Sequence[str], plane: Plane) -> Around:
        return self.now


def front_over(fake: FakeKernel, around: Surroundings | None = None) -> BpfFront:
    return BpfFront(("left", "right"), Plane.IPTABLES, fake, (around or Surroundings()).look)


@settings(max_examples=examples(60), deadline=None)
@given(row_lists(), st.data())
def test_what_is_opened_is_observed_and_decides(rows: tuple[CacheRow, ...], data: st.DataObject) -> None:
    fake = FakeKernel()
    front = front_over(fake)
    table = cache_table(rows)
    other = Flow(1, 0, b"chain ours", b"accept", 1)
    front.open(FlowTable.join_tables([table, FlowTable.of([other])]), STAMP)
    assert front.observe().rows() == table.rows() == front.resolve(table).rows()
    if rows:
        packet = data.draw(packets_near(rows))
        wanted = next((row.verdict for row in rows if row.holds(packet)), Verdict.DEFER)
        assert fake.decide(packet, 100) is wanted
    front.close()
    assert not len(front.observe())


def test_rows_that_do_not_meet_may_share_a_priority() -> None:
    front = BpfFront(("left",), Plane.NFTABLES, FakeKernel(), Surroundings().look, CLASSIFIER)
    tables = FlowTable.join_tables([cache_table((each,), CLASSIFIER) for each in ROWS])
    front.open(FlowTable.join_tables([tables, cache_table(ROWS)]), STAMP)
    assert front.observe().rows() == tables.rows() == front.resolve(tables).rows()


def test_counts_are_of_rules_and_stay_when_rows_go() -> None:
    fake = FakeKernel()
    front = front_over(fake)
    front.open(cache_table(ROWS), STAMP)
    for packet in (FOUR, SIX, SIX):
        fake.decide(packet, 50)
    before = front.hits()
    assert dict(zip(before.cookie.tolist(), before.packets.tolist(), strict=True)) == {7: 3, 8: 2}
    assert dict(zip(before.cookie.tolist(), before.bytes.tolist(), strict=True)) == {7: 150, 8: 100}
    assert set(before.idle_s.tolist()) == {UNKNOWN_IDLE_S}
    assert len(set(before.key.tolist())) == 2
    assert np.isnan(before.age_s).all()
    front.close()
    front.open(cache_table(ROWS[:1]), STAMP)
    fake.decide(FOUR, 50)
    after = front.hits()
    assert after.key.tolist() == before.key.tolist()
    assert dict(zip(after.cookie.tolist(), after.packets.tolist(), strict=True)) == {7: 4, 8: 2}


def test_beside_a_table_of_somebody_else_it_holds_nothing() -> None:
    fake, around = FakeKernel(), Surroundings()
    front = front_over(fake, around)
    around.now = Around(0, True, ("nft ip nat",))
    front.open(cache_table(ROWS), STAMP)
    assert fake.read() is None
    assert not len(front.resolve(cache_table(ROWS)))
    around.now = FREE
    front.observe()
    assert len(front.resolve(cache_table(ROWS))) == 2


def test_where_ipv6_is_not_forwarded_it_has_no_rows_for_it() -> None:
    fake, around = FakeKernel(), Surroundings()
    around.now = Around(0, False, ())
    front = front_over(fake, around)
    front.open(cache_table(ROWS), STAMP)
    assert front.observe().rows() == cache_table(ROWS[:1]).rows() == front.resolve(cache_table(ROWS)).rows()


def test_a_stricter_rp_filter_asks_for_the_rows_again() -> None:
    fake, around = FakeKernel(), Surroundings()
    front = front_over(fake, around)
    front.open(cache_table(ROWS), STAMP)
    around.now = Around(1, True, ())
    assert not len(front.observe())
    front.open(cache_table(ROWS), STAMP)
    held = fake.read()
    assert held is not None
    assert held.source_check == 1
    assert len(front.observe()) == 2


def test_without_rows_it_stays_closed() -> None:
    fake = FakeKernel()
    front_over(fake).open(cache_table(()), STAMP)
    assert fake.read() is None


def settings_of(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("everywhere", "left", "right", "strictest"), [(0, 0, 0, 0), (0, 1, 2, 1), (2, 1, 0, 2), (1, 0, 0, 1), (0, 2, 0, 2)]
)
def test_the_strictest_rp_filter_counts(tmp_path: Path, everywhere: int, left: int, right: int, strictest: int) -> None:
    conf = "sys__net__ipv4__conf__"
    files = {f"{conf}{name}__rp_filter": f"{value}\n"
             for name, value in (("all", everywhere), ("left", left), ("right", right))}  # fmt: skip
    files["sys__net__ipv6__conf__all__forwarding"] = "1\n"
    found = look_around(("left", "right"), Plane.IPTABLES, lambda: (), settings_of(tmp_path, **files))
    assert found == Around(strictest, True, ())


TABLES = (
    ("ip", "aclflow"), ("ip6", "aclflow2"), ("ip6", "filter"), ("inet", "filter"), ("arp", "x"), ("netdev", "early")
)  # fmt: skip


@pytest.mark.parametrize(
    ("plane", "others"),
    [
        (Plane.IPTABLES, ("iptables nat", "nft ip aclflow", "nft ip6 aclflow2", "nft inet filter", "nft netdev early")),
        (Plane.NFTABLES, ("iptables filter", "iptables nat", "ip6tables filter", "nft ip6 filter", "nft inet filter",
                          "nft netdev early")),
    ],
)  # fmt: skip
def test_tables_that_are_not_the_planes_are_found(tmp_path: Path, plane: Plane, others: tuple[str, ...]) -> None:
    files = settings_of(tmp_path, net__ip_tables_names="filter\nnat\n", net__ip6_tables_names="filter\n")
    found = look_around((), plane, lambda: TABLES, files)
    assert found.bystanders == others
    assert not found.forwards_ipv6


def test_tables_that_may_not_be_read_are_in_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel lists the older iptables' to root alone, unless somebody lets others read that."""
    files = settings_of(tmp_path, net__ip_tables_names="filter\n")
    read = Path.read_text

    def refuse(path: Path, *words: str) -> str:
        if path.name == "ip_tables_names":
            raise PermissionError(13, "Permission denied", str(path))
        return read(path, *words)

    monkeypatch.setattr(Path, "read_text", refuse)
    for plane in (Plane.IPTABLES, Plane.NFTABLES):
        [other] = look_around((), plane, tuple, files).bystanders
        assert "iptables (unknown" in other


def test_where_there_is_nothing_nothing_is_in_the_way(tmp_path: Path) -> None:
    assert look_around((), Plane.NFTABLES, tuple, tmp_path) == Around(0, False, ())


def test_without_the_program_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "OBJECT", tmp_path / "flowcache.bpf.o")
    with pytest.raises(Missing, match=r"flowcache.bpf.o was not built: install clang and libbpf-dev"):
        KernelCache(()).load({})


def test_a_machine_that_lacks_something_has_no_rows_from_then_on() -> None:
    class Lacking(FakeKernel):
        def open(self, held: FlowSet) -> None:
            raise Missing("no clang")

    front = front_over(Lacking())
    assert len(front.resolve(cache_table(ROWS))) == 2
    with pytest.raises(Missing, match="no clang"):
        front.open(cache_table(ROWS), STAMP)
    assert not len(front.resolve(cache_table(ROWS)))


def test_before_it_is_loaded_it_has_no_program() -> None:
    with pytest.raises(Refused, match="no such program is loaded"):
        _ = KernelCache(()).program


class Garbled(FakeKernel):
    """Somebody may write into its maps."""

    is_garbled = False

    def close(self) -> None:
        super().close()
        self.is_garbled = False

    def read(self) -> FlowSet | None:
        if self.is_garbled:
            raise Drifted("the flow cache holds what nobody of ours wrote")
        return super().read()


def test_one_that_holds_what_nobody_wrote_is_closed_and_opened_anew() -> None:
    fake, machine = Garbled(), FakeNft()
    device = Fronted(nftables_driver(machine.run), front_over(fake))
    filtered = filter_program(POLICIES["whole"], [Plane.NFTABLES], domain="pop1", generation=1)
    rows = FlowTable.join_tables([filtered.flows, cache_table(ROWS)])
    wanted = Program.of("pop1", Tier.SERVER, 1, rows, ())
    for _ in range(2):
        device.apply(gap.correction(device.observe(), wanted, device.resolve), gap.stamp_of(wanted))
        assert gap.mismatch(device.observe(), device.resolve(rows, ()), gap.stamp_of(wanted)) is None
        assert fake.decide(FOUR, 50) is Verdict.PERMIT
        fake.is_garbled = True
        assert not (device.observe().flows.table == FLOWCACHE).any()
        assert fake.decide(FOUR, 50) is Verdict.DEFER
