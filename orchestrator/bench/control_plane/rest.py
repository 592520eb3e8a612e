"""REST to two switches: whole lists, and single changes of long ones.

The clock starts with the call and stops when both switches were read back and reported to hold the change.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ParamSpec

from orchestrator.bench.benchlab import BASELINE_BRIDGES, clear, flows_as_text, ofctl_add, resident_mib
from orchestrator.bench.control_plane.sizes import TENANT, Sizes, name_of, record_ratio
from orchestrator.bench.control_plane.wire import OFCTL
from orchestrator.bench.results import Figure, Results, Series, Stack, Target
from orchestrator.bench.rulesets import synthetic
from orchestrator.client import Client, Written
from orchestrator.errors import Unreachable
from orchestrator.lab.pop import Lab
from orchestrator.lab.service import SERVICE, ControlPlane
from orchestrator.policy.addresses import Addresses, Family, Prefix
from orchestrator.policy.formats.native import acl_to_json
from orchestrator.policy.model import Acl, Action, AddressGroup, GroupName, Rule, RuleId
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import TCP

P = ParamSpec("P")

_WHOLE_LIST = Target(2.0)
_ONE_RULE_MS = Target(10.0)
_GROWTH = Target(1.3)
_MEMORY_MIB = Target(300)

_GROUP = GroupName("members")
PATIENCE_S = 60
"""How long a write waits until it is enforced."""


def measure(lab: Lab, results: Results, sizes: Sizes, folder: Path, progress: Callable[[str], None]) -> None:
    """Measure whole lists at every size, and single changes of each."""
    plane = ControlPlane(lab)
    plane.start({TENANT: Acl()}, progress=progress)
    stages: dict[str, dict[str, list[float]]] = {}
    with plane.client() as client:
        bench = _Bench(lab, client.waiting(PATIENCE_S), results, sizes, folder, stages)
        for rules in sizes.scales:
            bench.whole(rules, sizes.rounds if rules == sizes.rules else sizes.slow_rounds, progress)
            if rules == sizes.rules:
                memory = resident_mib(lab.state.process(SERVICE).pid)
                results.figures["service_rss_mib"] = Figure.of([memory], "MiB", _MEMORY_MIB)
            bench.changes(rules, progress)
        bench.growth(progress)
        bench.group(progress)
        bench.empty()
    results.stacks.append(stack_stages(stages))


@dataclasses.dataclass(frozen=True, slots=True)
class _Bench:
    """The means of every measurement."""

    lab: Lab
    client: Client
    results: Results
    sizes: Sizes
    folder: Path
    stages: dict[str, dict[str, list[float]]]

    def whole(self, rules: int, rounds: int, progress: Callable[[str], None]) -> None:
        """A whole list into empty switches, against `ovs-ofctl` to two bridges in turn."""
        body, text = json.dumps(acl_to_json(synthetic(rules))).encode(), self.folder / "rest.flows"
        name = f"rest_{name_of(rules)}"
        ours, theirs = [], []
        for turn in range(rounds + 1):
            progress(f"{name}, round {turn} of {rounds}")
            self.empty()
            seconds, _ = time_write(self.client.acls.put, TENANT, body)
            if turn == 0:  # warms both sides up, and gives the baseline its flows
                flows = flows_as_text(self.lab, self.lab.spec.hosts[0].name, text)
                self.results.notes.append(f"{name}: {flows} flows on every switch")
                self._time_baseline(text)
                continue
            ours.append(seconds)
            theirs.append(self._time_baseline(text))
        target = _WHOLE_LIST if rules == self.sizes.rules else None
        record_ratio(self.results, name, ours, theirs, OFCTL, target)

    def changes(self, rules: int, progress: Callable[[str], None]) -> None:
        """One rule added, moved, edited and deleted, again and again, all over the list."""
        taken, stages = self._time_changes(rules, progress)
        size = name_of(rules)
        self.stages[f"one of {size}"] = stages
        for what, milliseconds in taken.items():
            name = f"one_rule_{size}_ms" if what == "added" else f"one_rule_{what}_{size}_ms"
            target = _ONE_RULE_MS if name == f"one_rule_{name_of(self.sizes.rules)}_ms" else None
            self.results.figures[name] = Figure.of(milliseconds, "ms", target)
            turns = tuple(float(turn) for turn in range(1, len(milliseconds) + 1))
            label = f"one rule among {size} milliseconds (ms)"
            self.results.series.append(Series(what, turns, tuple(milliseconds), "change", label))

    def growth(self, progress: Callable[[str], None]) -> None:
        """Measure one rule in the longest list as ratios to the usual one.

        Just before and just after: a machine that is quicker or slower for minutes is so for both.
        """
        usual, longest = self.sizes.rules, max(self.sizes.scales)
        medians = []
        for rules in (usual, *(longest, usual) * self.sizes.rounds):
            time_write(self.client.acls.put, TENANT, synthetic(rules))
            taken, _ = self._time_changes(rules, progress)
            medians.append(statistics.median(taken["added"]))
        ratios = [
            among / statistics.mean((before, after))
            for before, among, after in zip(medians[:-1:2], medians[1::2], medians[2::2], strict=True)
        ]
        self.results.figures[f"one_rule_{name_of(longest)}_vs_{name_of(usual)}"] = Figure.of(ratios, "ratio", _GROWTH)

    def _time_changes(
        self, rules: int, progress: Callable[[str], None]
    ) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
        """Milliseconds of every single change by kind, and the stages' of adding."""
        progress(f"single changes among {rules} rules")
        draw = random.Random(rules)  # noqa: S311  (no secret: the same places every time)
        taken: dict[str, list[float]] = {"added": [], "moved": [], "edited": [], "deleted": []}
        added: list[Mapping[str, float]] = []
        for number, rule in enumerate(more_rules(rules, self.sizes.changes)):
            place = draw.randrange(rules)
            other = dataclasses.replace(rule, destination_ports=(PortRange(number + 1, number + 1),))
            seconds, stages = time_write(self.client.acls.insert_rule, TENANT, rule, position=place)
            taken["added"].append(1000 * seconds)
            elsewhere = draw.randrange(rules)
            taken["moved"].append(1000 * time_write(self.client.acls.move_rule, TENANT, rule.id, position=elsewhere)[0])
            taken["edited"].append(1000 * time_write(self.client.acls.put_rule, TENANT, other)[0])
            taken["deleted"].append(1000 * time_write(self.client.acls.delete_rule, TENANT, rule.id)[0])
            added.append(stages)
        names = dict.fromkeys(itertools.chain.from_iterable(added))  # a stage that a change did not have took no time
        return taken, {name: [1000 * stages.get(name, 0.0) for stages in added] for name in names}

    def group(self, progress: Callable[[str], None]) -> None:
        """Measure one more member in a large address group, again and again."""
        members = self.sizes.members
        progress(f"a group of {members} addresses, one member at a time")
        time_write(self.client.acls.put, TENANT, _list_with_group(members))
        taken = []
        for turn in range(self.sizes.changes):
            more = _members(members + turn + 1)[-1:]
            taken.append(1000 * time_write(self.client.groups.change_members, TENANT, _GROUP, add=more)[0])
        self.results.figures[f"one_member_{name_of(members)}_ms"] = Figure.of(taken, "ms")

    def empty(self) -> None:
        """Take every rule off the switches, ours and the baseline's."""
        time_write(self.client.acls.put, TENANT, Acl())
        clear(self.lab, BASELINE_BRIDGES)

    def _time_baseline(self, text: Path) -> float:
        return sum(ofctl_add(self.lab, bridge, text) for bridge in BASELINE_BRIDGES)


def time_write(write: Callable[P, Written], *arguments: P.args, **named: P.kwargs) -> tuple[float, Mapping[str, float]]:
    """Return seconds of a write until it is enforced, and the service's stages.

    Raises Unreachable.
    """
    started = time.perf_counter()
    written = write(*arguments, **named)
    seconds = time.perf_counter() - started
    if not written.enforced:
        raise Unreachable(f"generation {written.generation} was not enforced within {PATIENCE_S} s")
    return seconds, written.stages


def stack_stages(stages: Mapping[str, Mapping[str, Sequence[float]]]) -> Stack:
    """Stack the median of every stage of adding one rule, a bar a size.

    A stage is shown less those that are parts of it.
    """
    names = dict.fromkeys(stage for parts in stages.values() for stage in parts)
    medians = {name: [statistics.median(parts.get(name, [0.0])) for parts in stages.values()] for name in names}
    heights = {}
    for name, whole in medians.items():
        inside = [medians[other] for other in names if other.startswith(f"{name}.")]
        heights[name] = tuple(value - sum(part[bar] for part in inside) for bar, value in enumerate(whole))
    return Stack("where the time of one rule goes", tuple(stages), heights, "milliseconds, median of each stage")


def more_rules(rules: int, how_many: int) -> Iterator[Rule]:
    """Rules of the same kind that a list of `rules` synthetic ones does not hold."""
    yield from synthetic(rules + how_many).rules[rules:]


def _list_with_group(members: int) -> Acl:
    """Make a list of three rules for one group of addresses."""
    rules = tuple(
        Rule(RuleId(f"r{port}"), Action.PERMIT, protocol=TCP, source=Addresses(groups=(_GROUP,)),
             destination_ports=(PortRange(port, port),))
        for port in (22, 80, 443)
    )  # fmt: skip
    return Acl(rules, {_GROUP: AddressGroup(_GROUP, _members(members))})


def _members(how_many: int) -> tuple[Prefix, ...]:
    """Addresses that do not aggregate."""
    base = Prefix.parse("10.0.0.0/8").network
    return tuple(Prefix(Family.IPV4, base + 2 * index, 32) for index in range(how_many))
