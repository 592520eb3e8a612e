"""`nft` for the driver, over tables in memory that decide packets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from orchestrator.compile.nftables.words import IP
from orchestrator.enforce.drivers.filters.fakeconnections import FakeConnections
from orchestrator.enforce.drivers.filters.room import STATISTICS
from orchestrator.enforce.drivers.nftables.fake.scripts import after
from orchestrator.enforce.drivers.nftables.fake.tables import FAMILIES, Chain, Counted, Set, Table
from orchestrator.enforce.drivers.nftables.fake.walk import Ruleset
from orchestrator.errors import Refused
from orchestrator.policy.model import Packet


class FakeNft:
    """A machine.

    `fails` makes the next runs of `nft -f` end with its words, nothing changed.
    """

    def __init__(self) -> None:
        self.ruleset = Ruleset()
        self.connections = FakeConnections()
        self.fails: list[str] = []

    def forward(self, packet: Packet, size: int = 100, *, came_by: str = "", quoted: Packet | None = None) -> bool:
        """Return whether a packet that came by an interface is forwarded.

        An ICMP error quotes another packet.
        """
        if self.ruleset.untracks(packet):
            return self.ruleset.send(packet, size=size, came_by=came_by).accepted
        if self.connections.drops(packet, quoted):
            return False
        seen = self.connections.look_up(packet, quoted)
        accepted = self.ruleset.send(packet, size=size, came_by=came_by, seen=seen).accepted
        return accepted and self.connections.remember(packet, seen)

    def run(self, command: Sequence[str], text: str) -> str:
        """Run a command for the driver (`filters.command.Run`)."""
        if tuple(command) == ("nft", "-f", "-"):
            if self.fails:
                raise Refused(f"nft: {self.fails.pop(0)}")
            self.ruleset = after(self.ruleset, text)
            return ""
        if tuple(command) == ("cat", STATISTICS):
            return self.connections.statistics()
        *options, family, name = command
        if tuple(options) != ("nft", "-nn", "-a", "list", "table"):
            raise Refused(f"nft: not done here: {' '.join(command)}")
        table = self.ruleset.tables.get((FAMILIES[family], name))
        if table is None:
            raise Refused("nft: Error: No such file or directory")
        return "\n".join(_list_lines(name, table)) + "\n"


def _list_lines(named: str, table: Table) -> Iterator[str]:
    yield f"table {IP[table.family]} {named} {{ # handle {table.handle}"
    for name, held in table.sets.items():
        yield f"\t{held.kind} {name} {{ # handle {held.handle}"
        yield from (f"\t\t{line}" for line in held.declared)
        if held.elements:
            yield f"\t\telements = {{ {', '.join(_listed_elements(held))} }}"
        yield "\t}"
    for name, chain in table.chains.items():
        yield f"\tchain {name} {{ # handle {chain.handle}"
        yield from (f"\t\t{line}" for line in _listed_rules(chain))
        yield "\t}"
    yield "}"


def _listed_elements(held: Set) -> Iterator[str]:
    for each in held.elements:
        key, comment, rest = _split(each.text, ' comment "')
        before, colon, verdict = (rest or key).partition(" : ")
        counter = f" {_counter(each)}" if held.is_counting else ""
        yield f"{key if comment else before}{counter}{comment}{before if comment else ''}{colon}{verdict}"


def _split(text: str, at: str) -> tuple[str, str, str]:
    before, found, behind = text.partition(at)
    return before, found, behind if found else ""


def _listed_rules(chain: Chain) -> Iterator[str]:
    if chain.hook is not None:
        hook, priority, policy = chain.hook
        yield f"type filter hook {hook} priority {priority}; policy {policy};"
    for rule in chain.rules:
        words = [_counter(rule) if word == "counter" else word for word in rule.text.split(" ")]
        yield f"{' '.join(words)} # handle {rule.handle}"


def _counter(counted: Counted) -> str:
    return f"counter packets {counted.packets} bytes {counted.bytes}"
