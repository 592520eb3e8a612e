"""The firewall-server suite: pairs, what qperf says, and how values become figures."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.bench.firewall_server import general, qperf, suite
from orchestrator.bench.firewall_server.growth import NO_SET, Growth, Lookups, Pattern
from orchestrator.bench.firewall_server.pairs import evenly, interval_packets, intervals, packets, pairs, traffic
from orchestrator.bench.firewall_server.qperf import Bandwidth
from orchestrator.bench.firewall_server.streams import ROUTING, TUNNEL, Streams, hash_set
from orchestrator.bench.results import Results
from orchestrator.bench.traffic.addresses import SERVER, Clients, alone
from orchestrator.bench.traffic.rules import Listed
from orchestrator.compile.filters.cacherows import Verdict
from orchestrator.errors import Missing, Refused


@given(st.integers(1, 3_000), st.integers(1, 3_000))
def test_a_longer_list_of_pairs_begins_as_a_shorter_one(some: int, more: int) -> None:
    whole = pairs(some + more)
    assert (whole[:some] == pairs(some)).all()
    assert (whole[some:] == pairs(more, some)).all()
    assert len({row.tobytes() for row in whole}) == some + more


def test_a_pairs_packet_is_from_its_source_to_its_destination() -> None:
    (packet,) = packets(traffic())
    assert (packet.source, packet.destination) == (Clients.ONE.value.network, SERVER.network)
    assert len({(each.source, each.destination) for each in packets(evenly(10_000, 500))}) == 500
    assert {row.tobytes() for row in evenly(40, 500)} == {row.tobytes() for row in pairs(40)}


def test_ranges_do_not_join() -> None:
    assert "10.128.0.0, 10.128.0.2, 10.128.0.4 " in intervals(3)
    assert [packet.source & 0xFF for packet in interval_packets(3, 10)] == [0, 2, 4]


def test_qperfs_numbers_are_read() -> None:
    assert qperf.read("tcp_bw:\n    bw  =  2490826752 bytes/sec\n", "tcp_bw") == 2490826752
    assert qperf.read("tcp_lat:\n    latency  =  2663.56 ns\n", "tcp_lat") == 2663.56
    for text in ("", "tcp_lat:\n    latency  =  2.6 us\n", "tcp_bw:\n failed to connect"):
        with pytest.raises(Refused, match="something else"):
            qperf.read(text, "tcp_lat")


def test_growth_becomes_the_figures_of_the_largest_set() -> None:
    results = Results("firewall-server", {})
    hashed = {10: [Growth(10, 0.1, 900.0, 4.0, 0.5, 8.0)], 100: [Growth(100, 1.0, 9_000.0, 5.0, 0.6, 9.0)]}
    suite.conclude_growth(results, hashed, {10: Growth(10, 0.1, None, None, None, 7.0)})
    medians = {name: figure.median for name, figure in results.figures.items()}
    assert medians == {
        "gb_100": 9e-6, "octets_an_element_100": 90.0, "load_s_100": 1.0, "add_one_us_10": 4.0, "add_one_us_100": 5.0,
        "add_batch_us_an_element_100": 0.6, "interval_set_add_one_ms_10": 7.0,
    }  # fmt: skip
    assert [figure for figure, each in results.figures.items() if each.target] == [
        "gb_100", "load_s_100", "add_one_us_100",
    ]  # fmt: skip
    adding = {line.name: line.y for line in results.series if line.y_label.startswith("figure 15")}
    assert adding == {
        "hash set, our messages": (0.004, 0.005), "hash set, the nft command": (8.0, 9.0),
        "interval set, the nft command": (7.0,),
    }  # fmt: skip


def test_lookups_are_compared_round_by_round() -> None:
    results = Results("firewall-server", {})
    found = Lookups({
        (NO_SET, Pattern.FEW): [100.0, 200.0], (10, Pattern.FEW): [110.0, 220.0], (99, Pattern.FEW): [121.0, 242.0],
        (NO_SET, Pattern.THOUSAND): [100.0], (10, Pattern.THOUSAND): [110.0], (99, Pattern.THOUSAND): [165.0],
        (NO_SET, Pattern.SPREAD): [100.0], (99, Pattern.SPREAD): [400.0],
    })  # fmt: skip
    suite.conclude_lookups(results, found, (10, 99))
    medians = {name: figure.median for name, figure in results.figures.items()}
    assert medians["lookup_cpu_99_vs_10"] == pytest.approx(1.1)
    assert medians["lookup_ns_99"] == pytest.approx(31.5)
    assert medians["lookup_cpu_99_vs_10_thousand_pairs"] == pytest.approx(1.5)
    assert medians["lookup_ns_99_spread"] == 300.0


def streams(**ways: float) -> Streams:
    return Streams(
        {name: [Bandwidth(1e9 / 8, cost, 0.5)] for name, cost in ways.items()}, {name: [7.0] for name in ways}
    )


def test_streams_stand_beside_the_tunnel() -> None:
    results = Results("firewall-server", {})
    found = streams(**{ROUTING: 1.0, hash_set(10): 1.5, hash_set(99): 2.0, TUNNEL: 40.0})
    suite.conclude_streams(results, found, (10, 99))
    assert results.figures["cpu_per_byte_vs_ipsec"].median == pytest.approx(0.05)
    assert results.figures["hash_set_of_99_mbit_s"].median == pytest.approx(1_000)
    lines = {(line.y_label, line.name): line.y for line in results.series}
    assert lines["figure 11 processors busy during a stream (%)", "hash set"] == (50.0, 50.0)
    assert lines["figure 13 latency (us)", TUNNEL] == (7.0, 7.0)


def test_without_a_tunnel_the_reason_is_told() -> None:
    results = Results("firewall-server", {})
    found = streams(**{ROUTING: 1.0, hash_set(10): 1.5})
    found.absent = "strongSwan is not installed"
    suite.conclude_streams(results, found, (10,))
    assert results.absent == {"cpu_per_byte_vs_ipsec": "strongSwan is not installed"}


def test_general_rules_are_named_by_their_number_and_classified_with_their_order() -> None:
    assert list(general.figures(10_000)) == [
        "bpf_10k_general_vs_routing", "bpf_10k_cached_vs_routing", "iptables_10k_vs_routing",
    ]  # fmt: skip
    rows = general.classifier_rows(alone(Listed(40).acl()))
    assert {row.verdict for row in rows} == {Verdict.PERMIT, Verdict.DENY}
    results = Results("firewall-server", {})
    general.absent(results, 50, Missing("there is no clang"))
    assert set(results.absent) == set(general.figures(50))
    general.record(
        results,
        general.Rates(50, {way: [value] for way, value in zip(general.WAYS, (8.0, 4.0, 7.0, 1.0), strict=True)}),
    )
    assert [each.median for each in results.figures.values()] == [0.5, 0.875, 0.125]
