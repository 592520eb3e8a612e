"""The queue driver's tool: rows for the engine, and the kernel rule that queues packets.

    program's rows  ingress_7 rule 17, ...  ──▶ the engine's lists, which are gone with this process
    FORWARD         policy DROP, -j QUEUE   ──▶ iptables -A FORWARD -j NFQUEUE --queue-balance 0:1

What the kernel has is read back each time. It counts as FORWARD only if it is our rule, for our queues, without a
bypass, and each queue has its worker; anything else is shown as it stands, so it differs from the program and is put
right. A process that begins has no rows and no stamp, and what the kernel may still lead to its queues is dropped.
"""

from __future__ import annotations

import enum
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.compile.filters.filterrows import CLOSED, FILTERS
from orchestrator.compile.filters.iptables import FORWARD
from orchestrator.compile.filters.legs import NO_LEGS, Legs
from orchestrator.compile.filters.queuerows import QUEUE, QueueRow, read_name, read_row
from orchestrator.enforce.driver import Stamp
from orchestrator.enforce.drivers.filters.driver import Count, FilterDriver, Holding, Key, Objects
from orchestrator.enforce.drivers.filters.nflog import Seen
from orchestrator.enforce.drivers.iptables.listing import SavedTable, normal_rule, read_saved
from orchestrator.enforce.drivers.queue.engine import Engine, Setup
from orchestrator.enforce.drivers.queue.machine import LinuxMachine, Machine
from orchestrator.errors import BadInput, Refused
from orchestrator.policy.addresses import Family
from orchestrator.wire.firewalls import Plane

_MINE = FILTERS[Plane.QUEUE]
_FAMILIES = {of: family for family, of in _MINE.items()}
_PROGRAMS = {Family.IPV4: "iptables", Family.IPV6: "ip6tables"}
_LOCK_WAIT_S = "10"
_RULE = re.compile(r"(?:-s \S+ )?(?:-i \S+ )?-j (?:DROP|QUEUE)\Z")
"""The only rules that FORWARD may hold: no packet passes that is not queued."""


class Hook(enum.Enum):
    """The kernel's chains whose packets can be queued."""

    INPUT = "INPUT"
    OUTPUT = "OUTPUT"


_SIDES = {Hook.INPUT: "-i", Hook.OUTPUT: "-o"}


@dataclass(frozen=True, slots=True)
class Led:
    """Which packets the kernel leads to the queues, beside those that it forwards."""

    hooks: tuple[Hook, ...] = ()
    """Packets to or from this machine itself, ..."""
    interfaces: tuple[str, ...] = ()
    """... of these interfaces: others, such as the one to the service, stay as they are."""

    def __post_init__(self) -> None:
        if self.hooks and not self.interfaces:
            raise BadInput("name the interfaces whose packets to or from this machine are queued", place="--interface")


class QueueTool:
    """Reads and writes the engine's lists and the kernel's rule."""

    filters = frozenset(_MINE.values())

    def __init__(self, machine: Machine, setup: Setup, led: Led, variant: str = "") -> None:
        """`variant`: which iptables, as for `iptables_driver`.

        Raises Missing where the kernel has no queues, or somebody else listens to ours.
        """
        suffix = f"-{variant}" if variant else ""
        self._programs = {family: f"{name}{suffix}" for family, name in _PROGRAMS.items()}
        self._run, self._led = machine.run, led
        self._target = f"-j NFQUEUE {_spell_queues(setup.queues)}"
        self.engine = Engine(machine, setup)
        self._held: dict[Key, str] = {}
        self._rows: dict[Key, QueueRow] = {}
        self._numbers: dict[Key, int] = {}
        self._life = os.urandom(8).hex()

    def read(self) -> Holding:
        """The rows in force, and what the kernel leads to them."""
        objects = dict(self._held)
        for family, of in _MINE.items():
            text = self._forward(self._read_saved(family))
            if text != CLOSED:
                objects[Key(of, FORWARD)] = text
        return Holding(objects, self.engine.lists.stamp, tuple(self._counts()))

    def write(self, before: Objects, after: Objects, stamp: Stamp) -> None:  # noqa: ARG002
        """Make new lists, correct the kernel's rule, then enforce the lists.

        Raises Refused for objects that cannot be read or would forward what no rule permits; then nothing is changed.
        """
        held = {key: text for key, text in after.items() if key.name != FORWARD}
        rows = {key: _row(key, text) for key, text in held.items() if self._held.get(key) != text}
        gone = {key: row for key, row in self._rows.items() if held.get(key) != self._held[key]}
        lists = self.engine.lists.exchange_rows(
            self._number_rows(gone), self._number_rows(rows), len(self._numbers), stamp
        )
        wanted = {family: _check_forward(after.get(Key(of, FORWARD), CLOSED)) for family, of in _MINE.items()}
        for family, forward in wanted.items():
            saved = self._read_saved(family)
            if self._forward(saved) != forward:
                self._restore(family, saved, forward.splitlines()[1:])
        self._held = held
        self._rows = {key: rows[key] if key in rows else self._rows[key] for key in held}
        self.engine.put(lists)

    def normal(self, name: str, text: str) -> str:
        """Rows are listed as they were written, FORWARD in the words of iptables-save."""
        if name != FORWARD:
            return text
        return "\n".join(line if line == CLOSED else normal_rule(line)[0] for line in text.splitlines())

    def _number_rows(self, rows: Mapping[Key, QueueRow]) -> dict[int, QueueRow]:
        """Give each row a number by its key.

        A key that comes back counts on under its number, so numbers are never given away.
        """
        return {self._numbers.setdefault(key, len(self._numbers)): row for key, row in rows.items()}

    def _counts(self) -> Iterator[Count]:
        """Yield the counts of each row since this process started."""
        packets, byte_counts = self.engine.counts().tolist()
        for (of, name), number in self._numbers.items():
            counted = number < len(packets)
            listed = read_name(name)
            assert listed is not None  # `write` takes no other
            yield Count(
                f"{self._life} {of} {name}",
                listed[2],
                packets[number] if counted else 0,
                byte_counts[number] if counted else 0,
            )

    # ------------------------------------------------------------------------------------------ the kernel's rule

    def _read_saved(self, family: Family) -> SavedTable:
        return read_saved(self._run((f"{self._programs[family]}-save", "-c", "-t", "filter"), ""))

    def _forward(self, table: SavedTable) -> str:
        """Write FORWARD as the program has it.

        Its policy and rules, with QUEUE for our queues while they are heard.
        """
        rules = [rule.words for rule in table.chains.get(FORWARD, [])]
        if rules and self.engine.listens:
            rules = [re.sub(f"{re.escape(self._target)}\\Z", QUEUE, rule) for rule in rules]
            rules += [f"{hook.value} is not queued" for hook in self._led.hooks if not self._leads(table, hook)]
        return "\n".join((f"policy {table.policies.get(FORWARD, 'ACCEPT')}", *rules))

    def _leads(self, table: SavedTable, hook: Hook) -> bool:
        """Whether a hook begins with our rules."""
        wanted = self._make_hook_rules(hook)
        return [rule.words for rule in table.chains.get(hook.value, [])[: len(wanted)]] == wanted

    def _make_hook_rules(self, hook: Hook) -> list[str]:
        return [f"{_SIDES[hook]} {interface} {self._target}" for interface in self._led.interfaces]

    def _restore(self, family: Family, saved: SavedTable, rules: Sequence[str]) -> None:
        """Write FORWARD, and what leads from other hooks once there is a program."""
        lines = ["*filter", f":{FORWARD} DROP [0:0]", f"-F {FORWARD}"]
        for hook in self._led.hooks if rules else ():
            there = [rule.words for rule in saved.chains.get(hook.value, [])]
            wanted = self._make_hook_rules(hook)
            lines += [f"-D {hook.value} {rule}" for rule in there if rule in wanted]
            lines += [f"-I {hook.value} {place} {rule}" for place, rule in enumerate(wanted, 1)]
        lines += [f"-A {FORWARD} {rule.replace(QUEUE, self._target)}" for rule in rules]
        command = (f"{self._programs[family]}-restore", "--noflush", "-w", _LOCK_WAIT_S)
        self._run(command, "\n".join([*lines, "COMMIT", ""]))


class QueueDriver(FilterDriver):
    """The driver of a firewall that classifies in this process.

    It forwards nothing once the process ends.
    """

    def __init__(self, tool: QueueTool, legs: Legs = NO_LEGS) -> None:
        super().__init__(tool, legs)
        self.engine = tool.engine

    @property
    def is_built(self) -> bool:
        """Whether all rows are built where they are to be searched."""
        return self.engine.lists.changed_rows == 0

    def trouble(self) -> str | None:
        """Describe faults in words."""
        return self.engine.trouble()

    def report_to(self, seen: Seen) -> None:
        """Tell of packets of rules that log, from now on."""
        self.engine.reports.seen = seen

    def stop(self) -> None:
        """End the workers. Everything that is queued is dropped from then on."""
        self.engine.stop()


def queue_driver(
    setup: Setup, led: Led, variant: str = "", machine: Machine | None = None, legs: Legs = NO_LEGS
) -> QueueDriver:
    """The driver of this network namespace's queues. Raises Missing."""
    return QueueDriver(QueueTool(machine or LinuxMachine(), setup, led, variant), legs)


def _spell_queues(queues: Sequence[int]) -> str:
    return f"--queue-num {queues[0]}" if len(queues) == 1 else f"--queue-balance {queues[0]}:{queues[-1]}"


def _check_forward(forward: str) -> str:
    """Check the word that stands for FORWARD's verdict.

    Raises Refused for one that would not drop what no row permits.
    """
    first, *rules = forward.splitlines() or [""]
    if first != CLOSED or not all(map(_RULE.match, rules)):
        raise Refused(f"the program's {FORWARD} does not drop all that '{QUEUE}' does not let pass")
    return forward


def _row(key: Key, text: str) -> QueueRow:
    """The row of an object. Raises Refused."""
    if read_name(key.name) is None:
        raise Refused(f"the program has an object '{key.name[:40]}', which is not one of ours")
    try:
        return read_row(_FAMILIES[key.filter], key.name, text.splitlines())
    except BadInput as error:
        raise Refused(str(error)) from None
