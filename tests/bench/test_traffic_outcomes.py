"""From values to figures: the names that others rely on, paired rounds, bands around lines."""

from __future__ import annotations

import pytest

from orchestrator.bench.acl_size import suite as acl_size
from orchestrator.bench.acl_size.suite import LAST_MATCH, VNF_ACL, VNF_ACL_LIBC, Way
from orchestrator.bench.promotion import suite
from orchestrator.bench.promotion.suite import FIRST_MATCH, SYSTEM
from orchestrator.bench.promotion.suite import Way as Lifting
from orchestrator.bench.results import Results
from orchestrator.bench.traffic.addresses import Clients
from orchestrator.bench.traffic.measured import Measured, Metric, ratios


def test_a_line_has_the_median_and_its_band_at_every_number_of_rules() -> None:
    values = Measured()
    for round_ in (1.0, 5.0, 3.0):
        for rules in (250, 2000):
            values.add("ours", rules, {Metric.PACKETS: round_ * rules})
    values.add("only once", 2000, {Metric.PACKETS: 1.0})
    (line,) = values.series()
    assert (line.name, line.x, line.y) == ("ours", (250.0, 2000.0), (750.0, 6000.0))
    assert (line.low, line.high) == ((250.0, 2000.0), (1250.0, 10000.0))
    assert line.document()["low"] == line.low


def test_what_is_measured_apart_joins_in() -> None:
    first, second = Measured(), Measured()
    first.add("a", 1, {Metric.RTT: 1.0})
    second.add("b", 1, {Metric.RTT: 2.0})
    first.join(second)
    assert (list(first.of("a", 1, Metric.RTT)), list(first.of("b", 1, Metric.RTT))) == ([1.0], [2.0])
    assert first.of("c", 1, Metric.RTT) == ()


def test_rounds_are_compared_in_pairs() -> None:
    assert ratios([2.0, 9.0], [1.0, 3.0]) == [2.0, 3.0]
    with pytest.raises(ValueError, match="longer"):
        ratios([1.0], [1.0, 2.0])


def test_acl_size_compares_each_family_with_its_own_speed() -> None:
    pairs, curves = Measured(), Measured()
    ours, theirs = Way(VNF_ACL), LAST_MATCH
    rates = {(ours, 0): 50.0, (theirs, 0): 200.0, (ours, 250): 45.0, (ours, 20_000): 40.0, (theirs, 20_000): 8.0}
    for (way, rules), rate in rates.items():
        curves.add(way.name_of_run(rules), rules, {Metric.PACKETS: rate, Metric.REQUESTS: rate, Metric.RTT: 1 / rate})
    for rules, rate in ((250, 50.0), (20_000, 49.0)):
        pairs.add(ours.name_of_run(rules), rules, {Metric.PACKETS: rate, Metric.PACKET_CPU: 1.0})
        pairs.add(VNF_ACL_LIBC, rules, {Metric.PACKETS: rate, Metric.PACKET_CPU: 1 / rate})
    results = Results("acl-size", {})
    acl_size.conclude(results, curves, pairs, (250, 20_000))
    figures = results.figures
    assert figures["vnf_acl_pps_20000_vs_250"].median == pytest.approx(0.98)
    assert figures["vnf_acl_pps_20000_vs_250_libc_malloc"].median == pytest.approx(0.98)
    assert figures["vnf_acl_cpu_per_packet_20000_vs_250"].median == 1
    assert figures["vnf_acl_cpu_per_packet_20000_vs_250_libc_malloc"].median == pytest.approx(50 / 49)
    assert figures["vnf_acl_vs_iptables_last_20000"].median == pytest.approx((40 / 50) / (8 / 200))
    assert figures["packets_vnf_acl_vs_iptables_last_20000_as_measured"].median == pytest.approx(40 / 8)
    assert figures["iptables_legacy_no_rules_packets"].median == 200
    targets = {name: str(figure.target) for name, figure in figures.items() if figure.target}
    assert targets == {"vnf_acl_pps_20000_vs_250": ">= 0.95", "vnf_acl_vs_iptables_last_20000": ">= 10"}


def test_promotion_takes_the_clients_that_cause_more_upcalls() -> None:
    values = Measured()
    plain = {Metric.REQUESTS: 100.0, Metric.CONNECTION: 10.0, Metric.CPU: 200.0, Metric.PACKETS: 10.0, Metric.RTT: 2.0}
    better = {**plain, Metric.REQUESTS: 160.0, Metric.CONNECTION: 6.0, Metric.CPU: 100.0}
    upcalls = {Clients.OUTSIDE: (0.9, 0.0002), Clients.INSIDE: (0.8, 0.0005), Clients.NEIGHBOURS: (1.0, 0.01)}
    for clients, (unlifted, lifted) in upcalls.items():
        way = Lifting(SYSTEM, clients=clients)
        values.add(str(way), 20_000, {**plain, Metric.UPCALLS: unlifted, Metric.LATER_UPCALLS: unlifted / 2})
        values.add(str(way.with_lift()), 20_000, {**better, Metric.UPCALLS: lifted, Metric.LATER_UPCALLS: lifted / 2})
    values.add(FIRST_MATCH, 20_000, plain)
    results = Results("promotion", {})
    suite.conclude(results, values, 20_000)
    suite.lifts(results, suite.Lifts(9.0, up=[1.0, 2.0, 3.0], down=[0.5]))
    targets = {name: (figure.median, str(figure.target)) for name, figure in results.figures.items() if figure.target}
    assert targets == {
        "requests_lifted_vs_not": (1.6, ">= 1.5"),
        "rtt_lifted_vs_not": (0.6, "<= 0.65"),
        "cpu_lifted_vs_not": (0.5, "<= 0.6"),
        "upcalls_per_connection_lifted": (0.0005, "<= 0.001"),
        "lift_one_rule_ms": (2.0, "<= 5"),
    }
    assert results.figures["first_lift_of_a_list_ms"].median == 9
    assert results.figures["upcalls_per_connection_unlifted"].median == 0.9
    assert results.figures["upcalls_per_connection_lifted_inside_neighbours_tenants"].median == 0.01
    later = "upcalls_per_connection_lifted_inside_neighbours_tenants_later"
    assert results.figures[later].median == 0.005
    assert results.figures["requests_lifted_vs_iptables_first"].median == 1.6
