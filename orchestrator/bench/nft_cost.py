"""Suite firewall-filter: a packet's cost in iptables lines and nftables look-ups.

A router in namespaces forwards packets that the list permits, each decided by another of its rules, evenly over the
list. The measured value is the CPU time of the sending thread, in which the kernel does all of the forwarding; a router
without rules gives the rest of the way, and the difference is the filter's. Routers take turns, so that all meet the
same machine at the same time. The sending thread's own work (a system call for each packet) is in all of them alike.
"""

from __future__ import annotations

import gzip
import os
import re
import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np

from orchestrator.bench.results import Figure, Results, Series, Target
from orchestrator.bench.rulesets import synthetic
from orchestrator.compile.cost import shapes
from orchestrator.compile.filters.filtercost import firewall_cost
from orchestrator.compile.filters.iptables import iptables_texts
from orchestrator.compile.lists.atoms import atoms
from orchestrator.compile.lists.levels import levels
from orchestrator.compile.nftables import nftables_script, row_by_row
from orchestrator.compile.openflow.encoder import with_port_masks
from orchestrator.lab.aims import aims
from orchestrator.lab.router import Router
from orchestrator.policy.addresses import EVERY_IPV4, EVERY_IPV6, Family
from orchestrator.policy.formats.registry import read
from orchestrator.policy.formats.results import Options
from orchestrator.policy.model import Acl, Action, Policy, ReturnTraffic, Tenant, TenantId

Progress = Callable[[str], None]

CLASSBENCH = ("acl1_1k", "fw1_1k", "ipc1_1k", "acl1_10k", "fw1_10k", "ipc1_10k")
_PACKETS = 400
_BARE, _OURS, _UNCOUNTED = "no rules", "nftables", "nftables not counting"
LINEAR = ("nftables row by row", "iptables-legacy", "iptables-nft")
WAYS = (_BARE, _OURS, _UNCOUNTED, *LINEAR)
_COUNTING = re.compile(r'\bcounter(?: |$)|comment "[^"]+" ?', re.MULTILINE)
_TARGET = Target(1.0)
"""Look-ups must not cost a packet more than asking the same list row by row in nftables."""


def run(*, quick: bool, progress: Progress) -> Results:
    """Run the suite.

    `quick` takes fewer rounds of the same sets. Needs root, `nft` and both kinds of iptables.
    """
    rounds = 5 if quick else 25
    results = Results("firewall-filter", {"rounds": rounds, "packets": _PACKETS})
    costs: dict[str, Mapping[str, float]] = {}
    for name, acl in sets(results):
        progress(f"{name}: {len(acl.rules)} rules")
        costs[name] = _measure(results, name, permitting(acl), rounds)
        results.notes.append(_sizes(name, acl))
    names = list(costs)
    for way in WAYS[1:]:
        sizes, spent = tuple(map(float, range(len(names)))), tuple(costs[name][way] for name in names)
        results.series.append(Series(way, sizes, spent, f"set: {', '.join(names)}", "filter_ns_a_packet (ns)"))
    return results


def sets(results: Results) -> Iterator[tuple[str, Acl]]:
    """Yield the lists by name: a seeded one, and ClassBench's; missing ones are noted."""
    yield "synthetic_1k", synthetic(1_000)
    yield "synthetic_10k", synthetic(10_000)
    folder = Path(os.environ.get("ACLFLOW_DATA", Path(__file__).parents[3] / "shared" / "data")) / "classbench"
    for name in CLASSBENCH:
        plain, packed = folder / f"{name}.rules", folder / f"{name}.rules.gz"
        if plain.exists() or packed.exists():
            text = plain.read_bytes() if plain.exists() else gzip.decompress(packed.read_bytes())
            yield name, read(text, "classbench", name=plain.name, options=Options(classbench_action=None)).acl
        else:
            results.absent[f"{name}_filter_ns"] = "the set is not there: ACLFLOW_DATA names the folder of classbench/"


def permitting(acl: Acl) -> Acl:
    """Return the list with permits only, in the same order, so packets pass."""
    rules = tuple(replace(rule, action=Action.PERMIT) for rule in acl.rules)
    return replace(acl, rules=rules, ingress_default=Action.PERMIT)


def drop_counters(script: str) -> str:
    """A script without its counters and comments, to see what they cost."""
    return _COUNTING.sub("", script)


def owning_all(acl: Acl) -> Policy:
    """A policy of one list, whose tenant owns every address."""
    numbers: dict[str, int] = {rule.id: number for number, rule in enumerate(acl.rules, 1)}
    return Policy((Tenant(TenantId("lab"), 1, (EVERY_IPV4, EVERY_IPV6), acl, numbers),))


def _measure(results: Results, name: str, acl: Acl, rounds: int) -> Mapping[str, float]:
    """Record each way's cost a packet; their medians."""
    packets = [aim.packet for aim in aims(acl, ReturnTraffic.ESTABLISHED, _PACKETS)]
    packets = [packet for packet in packets if packet.family is Family.IPV4]
    spent: dict[str, list[float]] = {way: [] for way in WAYS}
    with ExitStack() as stack:
        routers = {way: stack.enter_context(Router(f"aclbench-{place}-")) for place, way in enumerate(WAYS)}
        _load_lists(routers, owning_all(acl))
        for turn in range(rounds + 1):
            for way, router in routers.items():
                found = router.cpu_ns(packets)
                if turn:  # a first round warms everything up
                    spent[way].append(found)
    bare = spent.pop(_BARE)
    extra = {way: [mine - none for mine, none in zip(each, bare, strict=True)] for way, each in spent.items()}
    for way, values in extra.items():
        results.figures[f"{name}_{_make_word(way)}_ns"] = Figure.of(values, "ns")
    ratios = [ours / theirs for ours, theirs in zip(extra[_OURS], extra[LINEAR[0]], strict=True)]
    results.figures[f"{name}_vs_row_by_row"] = Figure.of(ratios, "ratio", _TARGET)
    return {way: statistics.median(values) for way, values in extra.items()}


def _make_word(way: str) -> str:
    return way.replace(" ", "_").replace("-", "_")


def _load_lists(routers: Mapping[str, Router], policy: Policy) -> None:
    script = nftables_script(policy)
    routers[_OURS].run("nft", "-f", "-", text=script)
    routers[_UNCOUNTED].run("nft", "-f", "-", text=drop_counters(script))
    routers[LINEAR[0]].run("nft", "-f", "-", text=nftables_script(policy, planned=row_by_row))
    text = iptables_texts(policy)[Family.IPV4]
    for way in LINEAR[1:]:
        routers[way].run(f"{way}-restore", text=text)


def _sizes(name: str, acl: Acl) -> str:
    """Describe a list's compiled size, and that of one map a level and shape."""
    table = atoms(acl.rules, acl.groups)
    masked = with_port_masks(table)
    pairs = np.stack((shapes(table, masked), levels(table)[masked.atom].astype(np.uint64)))
    found = firewall_cost(acl)
    return (
        f"{name}: {len(acl.rules)} rules, {found.iptables_lines} iptables lines, {found.nftables_lines} lines of nft "
        f"with {found.nftables_elements} elements; a packet meets at most {found.nftables_lookups} look-ups and "
        f"{found.nftables_rules} rules; a map for each level and shape would be {len(np.unique(pairs, axis=1).T)} maps"
    )
