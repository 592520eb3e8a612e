"""The suite: what is measured, in which order, and where.

Every round takes every number of rules at every size and rate, then every number of firewalls, so that all meet the
machine at all times.
"""

from __future__ import annotations

from orchestrator.bench.fw_vnf import alone
from orchestrator.bench.fw_vnf.vnfoutcome import Values, conclude
from orchestrator.bench.fw_vnf.vnfsizes import PAPER_OCTETS, Sizes
from orchestrator.bench.fw_vnf.yard import STREAMS, yard
from orchestrator.bench.progress import Progress, Steps
from orchestrator.bench.results import Results
from orchestrator.bench.traffic.filters import Filter
from orchestrator.bench.traffic.site import site
from orchestrator.lab import processes
from orchestrator.lab.layout import Layout

_OVER = 1.6
"""What is offered where firewalls are to be full, in shares of what they may carry: buckets are not quite equal."""


def run(*, quick: bool, progress: Progress) -> Results:
    """Run the suite. `quick` takes fewer rounds of fewer numbers of everything."""
    return measure(Sizes.quick() if quick else Sizes.full(), progress)


def measure(sizes: Sizes, progress: Progress, layout: Layout | None = None) -> Results:
    """Run the suite with these sizes.

    Raises Missing where a tool is not installed, Drifted where the switch spreads otherwise.
    """
    results = Results(
        "fw-vnf",
        {"rounds": sizes.rounds, "rules": list(sizes.rules), "octets": list(sizes.lengths), "rates": list(sizes.rates),
         "vnfs": list(sizes.vnfs), "cap_mbps": sizes.cap, "offered": list(sizes.offered), "seconds": sizes.seconds},
    )  # fmt: skip
    values, steps = Values(), Steps(progress, _count_steps(sizes))
    with site(layout) as place:
        with alone.alone(place) as line:
            for turn in range(sizes.rounds):
                for rules in sizes.rules:
                    steps.next(f"round {turn + 1} of {sizes.rounds}: one VNF, {rules} rules")
                    alone.load(line, rules)
                    for length in sizes.lengths:
                        found = alone.measure_firewall(line, size=length, seconds=sizes.seconds)
                        values.by_size.setdefault((rules, length), []).append(found)
                    for rate in sizes.rates:
                        found = alone.measure_firewall(line, size=PAPER_OCTETS, seconds=sizes.seconds, rate=rate)
                        values.by_rate.setdefault((rules, rate), []).append(found)
                for rules in sizes.lists:
                    steps.next(f"round {turn + 1} of {sizes.rounds}: one VNF with nftables, {rules} rules")
                    alone.load(line, rules, Filter.NFTABLES)
                    for length in sizes.lengths:
                        found = alone.measure_firewall(line, size=length, seconds=sizes.seconds)
                        values.nftables.setdefault((rules, length), []).append(found)
        with yard(place, max(sizes.vnfs)) as ground:
            ground.load(max(sizes.rules), sizes.cap)
            for turn in range(sizes.rounds):
                for count in sizes.vnfs:
                    steps.next(f"round {turn + 1} of {sizes.rounds}: {count} VNFs")
                    ground.spread(count)
                    for rate in sizes.offered:
                        carried = ground.measure_carried(count, rate, sizes.seconds)
                        values.together.setdefault((count, rate), []).append(carried)
                    full = ground.measure_carried(count, round(count * sizes.cap * _OVER), sizes.seconds)
                    values.full.setdefault(count, []).append(full)
    conclude(results, values, sizes)
    results.notes += _write_notes(sizes)
    return results


def _count_steps(sizes: Sizes) -> int:
    return sizes.rounds * (len(sizes.rules) + len(sizes.lists) + len(sizes.vnfs))


def _write_notes(sizes: Sizes) -> list[str]:
    return [
        "one VNF: iptables (legacy backend), stateless, one line a rule, only the last of them permits; iperf3 sends "
        "UDP datagrams, what arrives is counted at the receiver's interface; rates are of datagrams without headers",
        "offloads are off on every link: with them forty packets pass the rules as one",
        "on a veth pair the sender's own time pays for forwarding: a slow firewall slows the generator down, where the "
        "paper's, on another machine, lost packets; so transmission falls with the rules here, and with it reception",
        f"several VNFs: each link is capped at {sizes.cap} Mb/s (tbf), for two cores cannot run five firewalls beside "
        f"generators and receivers; with {max(sizes.rules)} rules; so five against one tests how well traffic is "
        f"spread. As many generators as VNFs, {STREAMS} flows each; at saturation {_OVER} times the caps is offered; "
        f"the switch goes before all others on the processors (priority {processes.FIRST})",
        "one VNF with nftables: the same list as aclflow writes it for the agents of a fleet, whose rules are looked "
        "up, not gone through; datagrams as fast as the generator can",
        "capacity, of either filter: times of a packet fitted to the medians by rules and size; its error is the 90th "
        "percentile of predicting each measurement from the others",
    ]
