"""What a cloud costs at its edge: the paper's numbers, ours beside them, and what must hold for any cloud."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.edge.planner import Cloud, Load, Machines, Plan, Popularity, Tcam, Topology, filters_of, paper, plan
from orchestrator.edge.suggest import suggest
from orchestrator.errors import BadInput

CLOUDS = st.builds(
    lambda tenants, each, blocks: Cloud(vms=tenants * blocks * each, tenants=tenants, blocks_a_tenant=blocks),
    st.integers(1, 10**7), st.integers(1, 10**6), st.integers(1, 20),
)  # fmt: skip
SIZES = st.integers(8, 24).map(lambda bits: 1 << bits)
SHARES = st.floats(0, 0.95)


def found(vms: int, size: int, **settings: float) -> Plan:
    return plan(Cloud(vms=vms), size, Tcam(**settings))


def test_the_papers_headline_and_what_becomes_of_it() -> None:
    """0.0004 % is one line's rate; 5.49 million lines are asked, and everything passes."""
    at = found(10**12, 16_384)
    assert (at.filters.lines, at.heavy_entries) == (5_490_000, 610_000)
    assert at.paper.chunks_a_line == pytest.approx(11.1, abs=0.05)
    assert at.paper.functions == 18
    assert at.paper.one_line_rate == pytest.approx(4.0e-6, rel=0.02)
    assert at.filters.union_rate > 0.999999
    assert at.filters.unrepaired > 0.9
    assert at.wan.use_wan == pytest.approx(0.6)
    assert (at.wan.use_rehome, at.wan.use_drop) == (0.5, 0.5)


def test_larger_chunks_reach_what_the_paper_claims() -> None:
    assert found(10**12, 65_536).filters.union_rate < 1e-9
    assert found(10**13, 65_536).filters.union_rate > 0.99


def test_the_papers_wan() -> None:
    """Figure 7: a rate of 0.3 takes 3 % of the WAN at 100 Gb/s, 75 % at 2.5 Tb/s."""
    for attack, share in ((100.0, 0.03), (2_500.0, 0.75)):
        load = Load(permitted_gbps=0.0, attack_gbps=attack)
        filters = plan(Cloud(), 16_384, load=load).filters
        use = plan(Cloud(), 16_384, load=load).wan.use_wan
        assert use * 0.3 / filters.union_rate == pytest.approx(share, rel=0.01)


def test_the_papers_tenant_is_relieved_of_its_boxes() -> None:
    relief = plan(Cloud(), 65_536).relief
    assert (relief.vpcs, relief.gateways, relief.peerings) == (12, 16, 2)
    assert Topology(regions=3).peerings == 6


def test_small_clouds_need_no_filter() -> None:
    small, large = found(10**7, 65_536).filters, found(10**12, 65_536).filters
    assert small.exact_fits
    assert small.chunks_a_line == 1
    assert not large.exact_fits
    assert not large.fits_ipv4
    assert plan(Cloud(vms=1_000, tenants=10), 256).filters.fits_ipv4


@given(CLOUDS, SIZES)
def test_chunks_hold_all_vms_and_tenants_share_none(cloud: Cloud, size: int) -> None:
    chunks, blocks = cloud.chunks(size), cloud.tenants * cloud.blocks_a_tenant
    assert chunks * size >= cloud.vms
    assert chunks % blocks == 0
    assert (chunks - blocks) * size < cloud.vms


@given(CLOUDS, SIZES, SHARES)
def test_ours_is_never_better_than_the_papers_reading(cloud: Cloud, size: int, share: float) -> None:
    tcam = Tcam(heavy_share=share)
    _, _, rate = paper(cloud, size, tcam)
    assert filters_of(cloud, size, tcam).union_rate >= rate * (1 - 1e-6) or cloud.chunks(size) <= tcam.lines


@given(CLOUDS, SIZES, SHARES)
def test_shares_are_shares_and_modes_are_ordered(cloud: Cloud, size: int, share: float) -> None:
    at = plan(cloud, size, Tcam(heavy_share=share))
    for value in (at.bypass, at.filters.union_rate, at.filters.one_line_rate, at.filters.unrepaired):
        assert 0 <= value <= 1
    assert at.filters.one_line_rate <= at.filters.union_rate * (1 + 1e-9)
    assert at.wan.permitted == at.wan.use_drop == at.wan.use_rehome <= at.wan.use_wan
    assert at.added_ms == pytest.approx(20 * (1 - at.bypass))


@given(CLOUDS, SIZES)
def test_heavy_hitters_take_from_lines_and_give_to_the_bypass(cloud: Cloud, size: int) -> None:
    few, many = (plan(cloud, size, Tcam(heavy_share=share)) for share in (0.05, 0.5))
    assert few.bypass <= many.bypass
    assert few.filters.lines >= many.filters.lines
    assert few.filters.union_rate <= many.filters.union_rate * (1 + 1e-9) + 1e-300


def test_servers_are_as_many_as_memory_or_traffic_asks_for() -> None:
    cloud, load = Cloud(vms=10**9), Load(permitted_gbps=100.0, attack_gbps=0.0, popularity=Popularity(((1.0, 0.5),)))
    tcam = Tcam(entries=70_000_000)
    by_traffic = plan(cloud, 65_536, tcam, load, Machines(server_gbps=0.001)).servers
    assert by_traffic.because == "traffic"
    assert by_traffic.count == pytest.approx(by_traffic.load_gbps / 0.001, abs=1)
    by_memory = plan(cloud, 65_536, tcam, load, Machines(memory_gb=1)).servers
    assert by_memory.because == "memory"
    assert by_memory.memory_gb == pytest.approx(96.0 + 4.8)
    assert by_memory.count == 101
    assert by_memory.cores == pytest.approx(101 / 4)
    assert by_memory.gateway_cores == 500_000


def test_what_is_suggested_reaches_the_target_and_no_smaller_chunk_does() -> None:
    for vms in (10**12, 2 * 10**12, 10**13):
        cloud, tcam = Cloud(vms=vms), Tcam()
        found = suggest(cloud, tcam, 1e-9)
        assert found.chunk_size is not None
        at = filters_of(cloud, found.chunk_size, replace(tcam, heavy_share=found.heavy_share))
        assert at.union_rate == found.union_rate <= 1e-9
        assert found.heavy_share >= tcam.heavy_share
        assert filters_of(cloud, found.chunk_size // 2, tcam).union_rate > 1e-9
        more = replace(tcam, heavy_share=found.heavy_share + 0.01)
        assert filters_of(cloud, found.chunk_size, more).union_rate > 1e-9


def test_where_nothing_reaches_it_the_entries_that_would_are_told() -> None:
    cloud = Cloud(vms=10**10, tenants=10**8)
    found = suggest(cloud, Tcam(), 1e-9)
    assert found.chunk_size is None
    assert found.entries is not None
    assert suggest(cloud, Tcam(entries=found.entries), 1e-9).chunk_size is not None
    assert suggest(cloud, Tcam(width=2), 1e-9).entries is None


def test_heavy_hitters_give_way_where_chunks_need_their_entries() -> None:
    found = suggest(Cloud(vms=10**12), Tcam(heavy_share=0.9), 1e-9)
    assert found.chunk_size is not None
    tight = suggest(Cloud(vms=10**8, tenants=10**7), Tcam(heavy_share=0.6), 1e-9)
    assert tight.chunk_size is not None
    assert tight.heavy_share < 0.6
    assert "fewer heavy hitters" in tight.because


@pytest.mark.parametrize(
    ("call", "place"),
    [
        (lambda: Cloud(vms=5, tenants=6), "vms"),
        (lambda: Cloud(tenants=0), "tenants"),
        (lambda: Tcam(heavy_share=1.0), "heavy_share"),
        (lambda: Tcam(forwarding_share=-0.1), "forwarding_share"),
        (lambda: Load(wan_gbps=0), "wan_gbps"),
        (lambda: Load(attack_gbps=-1), "attack_gbps"),
        (lambda: Load(attack_gbps=float("nan")), "attack_gbps"),
        (lambda: Machines(memory_gb=0), "memory_gb"),
        (lambda: Machines(server_gbps=float("inf")), "server_gbps"),
        (lambda: plan(Cloud(), 16_000), "chunk_size"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_by_name(call: object, place: str) -> None:
    with pytest.raises(BadInput, match=place):
        call()  # type: ignore[operator]
