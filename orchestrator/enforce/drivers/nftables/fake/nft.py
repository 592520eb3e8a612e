"""`nft` for the driver, over tables in memory that decide packets."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence

from orchestrator.compile.nftables.words import IP
from orchestrator.enforce.drivers.filters.driver import STATISTICS
from orchestrator.enforce.drivers.filters.fakeconnections import FakeConnections
from orchestrator.enforce.drivers.nftables.fake.tables import FAMILIES, Chain, Counted, Set, Table, element
from orchestrator.enforce.drivers.nftables.fake.walk import Ruleset
from orchestrator.enforce.drivers.nftables.words import elements
from orchestrator.errors import Refused
from orchestrator.policy.addresses import Family
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
        key, comment, rest = _split_at(each.text, ' comment "')
        before, colon, verdict = (rest or key).partition(" : ")
        counter = f" {_write_counter(each)}" if held.is_counting else ""
        yield f"{key if comment else before}{counter}{comment}{before if comment else ''}{colon}{verdict}"


def _split_at(text: str, at: str) -> tuple[str, str, str]:
    before, found, behind = text.partition(at)
    return before, found, behind if found else ""


def _listed_rules(chain: Chain) -> Iterator[str]:
    if chain.hook is not None:
        hook, priority, policy = chain.hook
        yield f"type filter hook {hook} priority {priority}; policy {policy};"
    for rule in chain.rules:
        words = [_write_counter(rule) if word == "counter" else word for word in rule.text.split(" ")]
        yield f"{' '.join(words)} # handle {rule.handle}"


def _write_counter(counted: Counted) -> str:
    return f"counter packets {counted.packets} bytes {counted.bytes}"


def ruleset(script: str) -> Ruleset:
    """Return the ruleset of a machine without tables after a script."""
    return after(Ruleset(), script)


def after(before: Ruleset, script: str) -> Ruleset:
    """Return the ruleset after a script.

    Raises Refused for one that nft or the kernel would not take.
    """
    changing = _Script(copy.deepcopy(before), [line.strip() for line in script.splitlines() if line.strip()])
    changing.run()
    for table in changing.made.tables.values():
        table.close()
    return changing.made


class _Script:
    """A script under way."""

    def __init__(self, made: Ruleset, lines: list[str]) -> None:
        self.made = made
        self._lines = [line for line in lines if not line.startswith("#")]
        self._place = 0
        self._tables = max((table.handle for table in made.tables.values()), default=0)

    def run(self) -> None:
        """Carry out every line of the script."""
        while self._place < len(self._lines):
            line = self._lines[self._place]
            self._place += 1
            words = line.split()
            if words[0] == "table":
                self._read_table(FAMILIES[words[1]], words)
            else:
                self._run_command(words, line)

    def _read_table(self, family: Family, words: list[str]) -> None:
        key = family, words[2]
        if key not in self.made.tables:
            self._tables += 1
            self.made.tables[key] = Table(family, self._tables)
        if words[-1] == "{":
            self._read_declarations(self.made.tables[key])

    def _read_declarations(self, table: Table) -> None:
        """Read declarations up to the table's closing brace."""
        while (line := self._lines[self._place]) != "}":
            kind, name = line.split()[:2]
            body = self._body()
            if kind == "chain":
                chain = table.chains.setdefault(name, Chain(table.next_handle()))
                for each in body:
                    table.add_line(chain, each)
            elif "elements = {" in body:
                split = body.index("elements = {")
                table.sets[name] = Set(kind, body[:split], table.next_handle())
                table.sets[name].elements += (element(each.removesuffix(",")) for each in body[split + 1 : -1])
            else:
                table.sets[name] = Set(kind, body, table.next_handle())
        self._place += 1

    def _body(self) -> list[str]:
        """The lines of the object that begins here; goes behind it."""
        depth, start = 0, self._place
        while True:
            line = self._lines[self._place]
            depth += line.endswith("{") - (line == "}")
            self._place += 1
            if not depth:
                return self._lines[start + 1 : self._place - 1]

    def _run_command(self, words: list[str], line: str) -> None:
        verb, kind, family, name = *words[:3], words[4] if len(words) > 4 else ""
        key = FAMILIES[family], words[3]
        table = self.made.tables.get(key)
        if table is None:
            raise Refused(f"nft: No such file or directory: {line}")
        if (verb, kind) == ("delete", "table"):
            del self.made.tables[key]
            return
        commands: Mapping[tuple[str, str], Callable[[Table, str, str], None]] = {
            ("add", "chain"): _add_chain,
            ("add", "map"): _add_map,
            ("add", "rule"): _add_rule,
            ("add", "element"): _add_elements,
            ("delete", "chain"): _delete_chain,
            ("delete", "map"): _delete_map,
            ("flush", "chain"): _flush_chain,
        }
        commands[verb, kind](table, name, line)


def _add_chain(table: Table, name: str, _line: str) -> None:
    table.chains.setdefault(name, Chain(table.next_handle()))


def _add_map(table: Table, name: str, line: str) -> None:
    statements = [each.strip() for each in _brace_line(line).split(";") if each.strip()]
    table.sets.setdefault(name, Set("map", statements, table.next_handle()))


def _add_rule(table: Table, name: str, line: str) -> None:
    table.add_line(table.chain(name), line.split(maxsplit=5)[5])


def _add_elements(table: Table, name: str, line: str) -> None:
    table.set(name).elements += map(element, elements(_brace_line(line)))


def _delete_chain(table: Table, name: str, _line: str) -> None:
    table.chain(name)
    del table.chains[name]


def _delete_map(table: Table, name: str, _line: str) -> None:
    table.set(name)
    del table.sets[name]


def _flush_chain(table: Table, name: str, _line: str) -> None:
    table.chain(name).rules.clear()


def _brace_line(line: str) -> str:
    return line.partition("{")[2].rpartition("}")[0].strip()
