"""The suite: what is measured, in which order, and where.

Every round takes every way at every number of rules, so that all meet the machine at all times; each time the list is
installed afresh and its verdicts are checked. AF_XDP comes in rounds of its own, for its polling thread takes a core
from whatever else is measured beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from orchestrator.bench.acl_size.outcome import conclude
from orchestrator.bench.acl_size.sizes import Sizes
from orchestrator.bench.acl_size.ways import (
    AF_XDP_WAYS,
    FAMILIES,
    KERNEL_WAYS,
    LAST_MATCH,
    SWITCH_WAYS,
    VNF_ACL,
    VNF_ACL_AF_XDP,
    Way,
)
from orchestrator.bench.progress import Progress, Steps
from orchestrator.bench.results import Results
from orchestrator.bench.traffic.addresses import Clients
from orchestrator.bench.traffic.gauges import Gauges, Sample
from orchestrator.bench.traffic.httperf import compiled
from orchestrator.bench.traffic.measured import Measured
from orchestrator.bench.traffic.planes import KernelPlane, Plane, SwitchPlane
from orchestrator.bench.traffic.site import served, site
from orchestrator.bench.traffic.vnf import Ports, vnf_acl
from orchestrator.errors import Missing, Refused, Unreachable
from orchestrator.lab.layout import Layout


def run(*, quick: bool, progress: Progress) -> Results:
    """Measure. `quick` takes fewer rounds of fewer numbers of rules."""
    return measured(Sizes.quick() if quick else Sizes.full(), progress)


def measured(sizes: Sizes, progress: Progress, layout: Layout | None = None) -> Results:
    """Measure. Raises Missing where a tool is not installed, Drifted where a list is not enforced."""
    settings = {"rounds": sizes.rounds, "pairs": sizes.pairs, "counts": list(sizes.counts)}
    results = Results("acl-size", {**settings, "connections": sizes.load.connections, "at_once": sizes.load.at_once})
    with site(layout) as place:
        bench = _Bench(place, sizes, Gauges(sizes.load, compiled(place.run_dir)), Steps(progress, _steps(sizes)))
        bench.kernel_and_switch()
        bench.af_xdp(results)
    conclude(results, bench.curves, bench.pairs, sizes.counts)
    results.notes += _NOTES
    return results


def _steps(sizes: Sizes) -> int:
    ways = (*KERNEL_WAYS, *SWITCH_WAYS, *AF_XDP_WAYS)
    families = {way.family for way in ways}
    return sizes.rounds * (len(ways) * len(sizes.counts) + len(families)) + sizes.pairs * len(_headlines(sizes))


def _headlines(sizes: Sizes) -> Sequence[tuple[Way, int]]:
    """What takes turns for the two headline figures, each once."""
    least, most = min(sizes.counts), max(sizes.counts)
    ours, theirs = Way(VNF_ACL), LAST_MATCH
    return tuple(dict.fromkeys([(ours, 0), (theirs, 0), (ours, least), (ours, most), (theirs, most)]))


@dataclass(slots=True)
class _Bench:
    """What is measured so far, and with what."""

    place: Layout
    sizes: Sizes
    gauges: Gauges
    steps: Steps
    curves: Measured = field(default_factory=Measured)
    pairs: Measured = field(default_factory=Measured)

    def kernel_and_switch(self) -> None:
        """Packet filters and the VNF-ACL on system ports, in turns."""
        with ExitStack() as stack:
            planes: dict[str, Plane] = {
                family: KernelPlane(stack.enter_context(served(self.place, kind.value)), kind)
                for kind, family in FAMILIES.items()
            }
            planes[VNF_ACL] = stack.enter_context(_switch(self.place, Ports.SYSTEM))
            self.curves.join(self._rounds(planes, (*KERNEL_WAYS, *SWITCH_WAYS)))
            for turn in range(self.sizes.pairs):
                for way, rules in _headlines(self.sizes):
                    self.steps.next(f"headlines, round {turn + 1} of {self.sizes.pairs}: {way}, {rules} rules")
                    planes[way.family].load(way.listed(rules))
                    self.pairs.add(way.named(rules), rules, self.gauges.packets(planes[way.family]))

    def af_xdp(self, results: Results) -> None:
        """The VNF-ACL on AF_XDP ports, where this machine can do it."""
        try:
            with _switch(self.place, Ports.AF_XDP) as plane:
                self.curves.join(self._rounds({VNF_ACL_AF_XDP: plane}, AF_XDP_WAYS))
        except (Missing, Refused, Unreachable) as error:
            figure = f"vnf_acl_af_xdp_pps_{max(self.sizes.counts)}_vs_{min(self.sizes.counts)}"
            results.absent[figure] = f"AF_XDP ports do not work here: {error}"

    def _rounds(self, planes: Mapping[str, Plane], ways: Sequence[Way]) -> Measured:
        """Every round: each family without rules, then each way at every number of rules."""
        found = Measured()
        turns = [(Way(family), 0) for family in planes] + [(way, rules) for rules in self.sizes.counts for way in ways]
        for turn in range(self.sizes.rounds):
            for way, rules in turns:
                self.steps.next(f"round {turn + 1} of {self.sizes.rounds}: {way.named(rules)}, {rules} rules")
                plane = planes[way.family]
                plane.load(way.listed(rules))
                found.add(way.named(rules), rules, self._sample(plane, way.clients))
        return found

    def _sample(self, plane: Plane, clients: Clients) -> Sample:
        """Of many clients only what depends on whose packets they are."""
        http = self.gauges.requests(plane, clients)
        if clients is not Clients.ONE:
            return http
        return {**http, **self.gauges.packets(plane), **self.gauges.round_trips(plane, Clients.OUTSIDE)}


@contextmanager
def _switch(place: Layout, ports: Ports) -> Iterator[SwitchPlane]:
    with served(place, f"vnf-{ports.value}") as line, vnf_acl(line, ports) as vnf:
        yield SwitchPlane(line, vnf)


_NOTES = (
    "the clock covers traffic only: every list is installed afresh before each measurement, its verdicts are checked, "
    "and a switch's cache is emptied",
    "requests: httperf in a closed loop, one request a connection, a page of one octet from lighttpd; packets: UDP "
    "datagrams of 1472 octets by iperf3 as fast as it can, counted at the server's interface; round trips: netcat "
    "against a UDP echo",
    "iptables forwards in the kernel, in the sender's own time; the VNF-ACL is Open vSwitch in user space (the paper's "
    "had the kernel's module), so a family is compared with its own speed without rules",
    "client, firewall and server share this machine's cores: on two of them the rates of a firewall alone cannot be "
    "seen, and neighbours' load moves all rates",
)
