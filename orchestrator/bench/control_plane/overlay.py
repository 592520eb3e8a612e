"""Against OVN: the same rules from its northbound database and from our REST call.

Like against like: OVN has one hypervisor, so the domain has one host; both have two ports; both switches are bridges of
one daemon. Ours and theirs take turns, so that both meet the same machine at the same time, and a figure is the median
of the pairs' ratios.

Both are measured as clouds have them by default, where answers come back without a rule of the tenant's: OVN with the
rules that Neutron makes of security groups, which track connections, ours with TCP flags. And both are measured with
lists that say themselves which answers may come: those are the rules that OVN is fastest with (`.._stateless`).

Single rules come in short series, and each side is quiet before the other's begins. A turn for every rule would charge
us for what OVN does in between: it works for so long, and touches so much, that our programs begin with cold caches.
The first of each series does so all the same, for both; ours is told by itself, too.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence

from orchestrator.bench.benchlab import settle
from orchestrator.bench.control_plane.rest import PATIENCE_S, more_rules, time_write
from orchestrator.bench.control_plane.sizes import TENANT, Sizes, name_of
from orchestrator.bench.ovn import HIGHEST_PRIORITY, Ovn, ovn
from orchestrator.bench.results import Figure, Results, Series, Target
from orchestrator.bench.rulesets import synthetic
from orchestrator.client import Client
from orchestrator.errors import Missing
from orchestrator.lab.pop import Lab
from orchestrator.lab.service import ControlPlane
from orchestrator.policy.formats.native import acl_to_json
from orchestrator.policy.model import Acl, ReturnTraffic

_BULK = Target(6.0, at_most=False)
_ONE_RULE = Target(30.0, at_most=False)
_SUFFIX = {ReturnTraffic.ESTABLISHED: "", ReturnTraffic.EXPLICIT: "_stateless"}
"""The endings of the names of figures."""
_SERIES = 5
"""So many single rules go one after the other before it is the other side's turn."""


def measure(lab: Lab, results: Results, sizes: Sizes, returns: ReturnTraffic, progress: Callable[[str], None]) -> None:
    """Write whole lists and single rules into OVN and ours, in turns.

    `lab` has one host.
    """
    try:
        with ovn(lab, returns) as baseline:
            plane = ControlPlane(lab)
            plane.start({TENANT: Acl()}, returns, progress=progress)
            with plane.client() as client:
                pair = _Pair(client.waiting(PATIENCE_S), baseline, results, sizes, returns)
                pair.whole(progress)
                pair.single(progress)
    except Missing as missing:
        for name in ("bulk_speedup_vs_ovn", "one_rule_speedup_vs_ovn"):
            results.absent[f"{name}{_SUFFIX[returns]}"] = str(missing)


class _Pair:
    """Ours and OVN, side by side."""

    def __init__(self, client: Client, baseline: Ovn, results: Results, sizes: Sizes, returns: ReturnTraffic) -> None:
        self._client = client
        self._baseline = baseline
        self._results = results
        self._sizes = sizes
        self._size = name_of(sizes.rules)
        self._suffix = _SUFFIX[returns]
        self._has_targets = returns is ReturnTraffic.ESTABLISHED

    def whole(self, progress: Callable[[str], None]) -> None:
        """A whole list where there was none."""
        acl, rounds = synthetic(self._sizes.rules), self._sizes.rounds
        body = json.dumps(acl_to_json(acl)).encode()
        ours, theirs = [], []
        for turn in range(rounds + 1):
            progress(f"against OVN, round {turn} of {rounds}")
            time_write(self._client.acls.put, TENANT, Acl())
            self._baseline.clear()
            settle()
            seconds, _ = time_write(self._client.acls.put, TENANT, body)
            settle()
            slow = self._baseline.replace(acl)
            if turn:  # a first round warms both sides up
                ours.append(seconds)
                theirs.append(slow)
        self._results.notes.append(
            f"OVN{self._suffix}: {len(acl.rules)} ACLs of one logical switch on one hypervisor became"
            f" {self._baseline.flows()} flows;"
            f" its databases, northd and ovn-controller hold {self._baseline.resident_mib():.0f} MiB"
        )
        self._record("bulk_speedup_vs_ovn", ("one_host_", "ovn_"), ("s", 1), ours, theirs, _BULK)

    def single(self, progress: Callable[[str], None]) -> None:
        """Measure one more rule in a list: anywhere in ours, at the end of OVN's."""
        rules, changes = self._sizes.rules, self._sizes.changes
        progress(f"against OVN, single rules among {rules}")
        draw = random.Random(rules)  # noqa: S311  (no secret: the same places every time)
        ours, theirs, firsts = [], [], []
        more = list(enumerate(more_rules(rules, changes)))
        for start in range(0, changes, _SERIES):
            series = more[start : start + _SERIES]
            settle()
            ours += [
                time_write(self._client.acls.insert_rule, TENANT, rule, position=draw.randrange(rules))[0]
                for _, rule in series
            ]
            settle()
            theirs += [self._baseline.insert(rule, HIGHEST_PRIORITY - rules - number) for number, rule in series]
            firsts.append(1000 * ours[start])
        first = f"one_host_first_rule_{self._size}_ms{self._suffix}"
        self._results.figures[first] = Figure.of(firsts, "ms")
        self._results.notes.append(
            f"OVN{self._suffix}: single rules in series of {_SERIES}, ours and OVN's in turns, after a pause of both;"
            f" the first of each of ours is in {first}"
        )
        names = ("one_host_one_rule_", "ovn_one_rule_")
        self._record("one_rule_speedup_vs_ovn", names, ("ms", 1000), ours, theirs, _ONE_RULE)

    def _record(
        self,
        name: str,
        sides: tuple[str, str],
        unit: tuple[str, int],
        ours: Sequence[float],
        theirs: Sequence[float],
        target: Target,
    ) -> None:
        """Record the ratio of the pairs and both sides.

        `unit` has its name and how many there are in a second.
        """
        word, scale = unit
        ratios = [slow / fast for fast, slow in zip(ours, theirs, strict=True)]
        turns = tuple(float(turn) for turn in range(1, len(ours) + 1))
        for side, label, values in zip(sides, ("aclflow", "OVN"), (ours, theirs), strict=True):
            scaled = tuple(scale * each for each in values)
            self._results.figures[f"{side}{self._size}_{word}{self._suffix}"] = Figure.of(scaled, word)
            chart = f"{name}{self._suffix}".replace("_", " ")
            self._results.series.append(Series(label, turns, scaled, "round", f"{chart} ({word})"))
        wanted = target if self._has_targets else None
        self._results.figures[f"{name}{self._suffix}"] = Figure.of(ratios, "ratio", wanted)
