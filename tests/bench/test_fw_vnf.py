"""The suite of firewall VNFs, without its traffic: its lists, its figures, its capacity model."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.bench.fw_vnf.manyfirewalls import PAPER_OCTETS, Sizes, filter_text, worst_case
from orchestrator.bench.fw_vnf.suite import Rates, Values, conclude
from orchestrator.bench.report import write
from orchestrator.bench.results import Results
from orchestrator.bench.traffic.addresses import SERVER, Clients, alone
from orchestrator.cli.fleet import measurements_in
from orchestrator.policy.model import Action, Packet
from orchestrator.policy.oracle import decide
from orchestrator.policy.protocols import UDP
from orchestrator.wire.firewalls import Plane

SIZES = Sizes((0, 500, 2000), (64, PAPER_OCTETS), (100, 900), (1, 5), cap=10, offered=(10, 50), rounds=3, seconds=1)


@pytest.mark.parametrize("rules", [1, 250, 2000])
def test_only_the_last_rule_permits_what_generators_send(rules: int) -> None:
    acl = worst_case(rules)
    assert len(acl.rules) == rules
    packet = Packet(SERVER.family, Clients.ONE.value.network, SERVER.network, UDP, 40000, 5203)
    decision = decide(alone(acl), packet)
    assert decision.action is Action.PERMIT
    assert [step.rule for step in decision.steps] == [acl.rules[-1].id]
    lines = filter_text(rules).splitlines()
    assert sum(line.startswith("-A ingress_1 ") for line in lines) >= rules


def test_without_rules_there_is_no_list() -> None:
    assert not worst_case(0).rules


def values(spread: float = 1.0) -> Values:
    """A VNF that takes 5 us a packet and 10 ns a rule; five of them carry `spread` of five times one."""
    found = Values()
    for rules in SIZES.rules:
        pps = 1 / (5e-6 + 1e-8 * rules)
        for length in SIZES.lengths:
            rate = pps * length * 8 / 1e6
            found.by_size[rules, length] = [Rates(rate, rate, pps)] * SIZES.rounds
            looked_up = 1 / 6e-6
            at = max(1, rules), length
            found.nftables[at] = [Rates(looked_up * length * 8 / 1e6, looked_up * length * 8 / 1e6, looked_up)] * 3
        for rate in SIZES.rates:
            found.by_rate[rules, rate] = [Rates(rate, min(rate, pps * 8192 / 1e6), pps)] * SIZES.rounds
    for count in SIZES.vnfs:
        full = 10.0 * (1 if count == 1 else count * spread)
        found.full[count] = [full] * SIZES.rounds
        for rate in SIZES.offered:
            found.together[count, rate] = [min(rate, full)] * SIZES.rounds
    return found


def concluded(spread: float = 1.0) -> Results:
    results = Results("fw-vnf", {"rounds": SIZES.rounds})
    conclude(results, values(spread), SIZES)
    return results


@pytest.mark.parametrize(("spread", "meets"), [(1.0, True), (0.92, True), (0.8, False)])
def test_five_against_one(spread: float, meets: bool) -> None:
    figure = concluded(spread).figures["five_vnfs_vs_one"]
    assert figure.median == pytest.approx(5 * spread)
    assert figure.target is not None
    assert figure.target.met(figure.median) is meets


def test_the_capacity_model_is_that_of_the_measurements() -> None:
    results = concluded()
    figures = {name: figure.median for name, figure in results.figures.items()}
    assert figures["capacity_base_ns"] == pytest.approx(5000)
    assert figures["capacity_per_rule_ns"] == pytest.approx(10)
    assert figures["capacity_per_octet_ns"] == pytest.approx(0, abs=1e-6)
    assert figures["capacity_prediction_error"] == pytest.approx(0, abs=1e-6)
    assert figures["reception_2000_rules_vs_none"] == pytest.approx(5 / 25)
    assert figures["capacity_nftables_base_ns"] == pytest.approx(6000)
    assert figures["capacity_nftables_per_rule_ns"] == pytest.approx(0, abs=1e-6)
    assert figures["reception_nftables_2000_rules_vs_none"] == pytest.approx(5 / 6)
    kept = results.settings["capacity"]
    assert isinstance(kept, dict)
    assert {"rules": 2000, "octets": 64, "pps": pytest.approx(40_000)} in kept["iptables"]
    assert {"rules": 1, "octets": 64, "pps": pytest.approx(1 / 6e-6)} in kept["nftables"]


def test_what_the_suite_writes_is_what_fleets_are_told(tmp_path: Path) -> None:
    """Of either filter: a fleet that was told nothing of its own goes on saying that nobody has measured it."""
    write(concluded(), tmp_path)
    found = measurements_in(tmp_path / "results.json", Plane.NFTABLES)
    assert found.keys() == {plane.value for plane in (Plane.NFTABLES, Plane.IPTABLES)}
    assert found["nftables"][0].pps == pytest.approx(1 / 6e-6)
    assert found["iptables"][-1].rules == 2000


def test_lines_are_those_of_the_papers_figures() -> None:
    series = concluded().series
    labels = list(dict.fromkeys(line.y_label.split(" (")[0] for line in series))
    assert labels == [
        "transmission rate of one VNF",
        "reception rate of one VNF",
        "reception rate of one VNF at 1024 octets",
        "reception rate of VNFs of 10 Mb/s each",
    ]
    (five,) = [line for line in series if line.name == "5 VNFs"]
    assert (five.x, five.y) == ((10.0, 50.0), (10.0, 50.0))
