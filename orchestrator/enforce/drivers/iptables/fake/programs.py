"""`iptables-restore` and `iptables-save` over tables in memory that decide packets."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence

from orchestrator.enforce.drivers.filters.driver import STATISTICS
from orchestrator.enforce.drivers.filters.fakeconnections import FakeConnections
from orchestrator.enforce.drivers.iptables.fake.walk import Rule, Table
from orchestrator.errors import Refused
from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Packet

_KERNELS_OWN = ("INPUT", "FORWARD", "OUTPUT")
_TARGETS = ("ACCEPT", "DROP", "RETURN", "NFLOG", "NFQUEUE")


class FakeIptables:
    """A machine.

    `fails` makes the next restores that are not tests end with its words, nothing changed.
    """

    def __init__(self) -> None:
        self.tables = {Family.IPV4: Table.fresh(), Family.IPV6: Table.fresh()}
        self.connections = FakeConnections()
        self.fails: list[str] = []

    def forward(self, packet: Packet, size: int = 100, *, came_by: str = "", quoted: Packet | None = None) -> bool:
        """Return whether a packet that came by an interface is forwarded.

        An ICMP error quotes another packet.
        """
        if self.connections.drops(packet, quoted):
            return False
        seen = self.connections.look_up(packet, quoted)
        accepted = self.tables[packet.family].send(packet, size=size, came_by=came_by, seen=seen).accepted
        return accepted and self.connections.remember(packet, seen)

    def run(self, command: Sequence[str], text: str) -> str:
        """Run a command for the driver (`filters.command.Run`)."""
        if tuple(command) == ("cat", STATISTICS):
            return self.connections.statistics()
        program, *options = command
        family = Family.IPV6 if program.startswith("ip6") else Family.IPV4
        if program.endswith("-save"):
            return "\n".join(_save_lines(self.tables[family])) + "\n"
        if not program.endswith("-restore"):
            raise Refused(f"iptables: not done here: {' '.join(command)}")
        after = restore_table(self.tables[family], text, is_flushed="--noflush" not in options)
        if "--test" not in options:
            if self.fails:
                raise Refused(f"iptables-restore: {self.fails.pop(0)}")
            self.tables[family] = after
        return ""


def table_of(text: str) -> Table:
    """Return a fresh machine's table after a full restore."""
    return restore_table(Table.fresh(), text, is_flushed=True)


def restore_table(before: Table, text: str, *, is_flushed: bool) -> Table:
    """A table after a restore. Raises Refused for a text that would not be taken."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    if lines[:1] != ["*filter"] or lines[-1:] != ["COMMIT"]:
        raise Refused("iptables-restore: not the text of one filter table")
    table = Table.fresh() if is_flushed else copy.deepcopy(before)
    for line in lines[1:-1]:
        _take_line(table, line)
    for name, rules in table.chains.items():
        for rule in rules:
            led_to = [word for option, word in zip(rule.words, rule.words[1:], strict=False) if option in ("-j", "-g")]
            if any(word not in _TARGETS and word not in table.chains for word in led_to):
                raise Refused(f"iptables-restore: {name} leads to a chain that is not there: {rule.text}")
    return table


def _take_line(table: Table, line: str) -> None:
    word, _, rest = line.partition(" ")
    if word.startswith(":"):
        name, policy = word[1:], rest.split()[0]
        if name in _KERNELS_OWN:
            table.policies[name] = policy
            table.chains.setdefault(name, [])
        else:
            table.chains[name] = []
    elif word == "-A":
        name, _, rule = rest.partition(" ")
        if name not in table.chains:
            raise Refused(f"iptables-restore: no chain {name}")
        table.chains[name].append(Rule(rule))
    elif word == "-F":
        table.chains[rest].clear()
    elif word == "-X":
        del table.chains[rest]
    else:
        raise Refused(f"iptables-restore: not taken here: {line}")


def _save_lines(table: Table) -> Iterator[str]:
    yield "*filter"
    for name in table.chains:
        yield f":{name} {table.policies.get(name, '-')} [0:0]"
    for name, rules in table.chains.items():
        yield from (f"[{rule.packets}:{rule.bytes}] -A {name} {rule.text}" for rule in rules)
    yield "COMMIT"
