"""iptables-save as an access list: which chain becomes which direction, and everything put together.

iptables speaks of IPv4 only and ip6tables of IPv6 only, so every rule names its version, and the policy ACCEPT becomes
a last rule that permits that version; both defaults of the list are deny. The lists read from an iptables and an
ip6tables file can therefore simply be put one after the other.

iptables-restore takes what people write by hand as well: `-I`, `-N` and `-P` beside `-A`, and chains of the kernel's
own that are not declared. Of those nobody knows the policy: it is what the machine had before.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from orchestrator.errors import AclflowError, BadInput
from orchestrator.policy.addresses import Family
from orchestrator.policy.formats.assemble import Assembler, Doubt, shown
from orchestrator.policy.formats.chains import follow
from orchestrator.policy.formats.iptables.ruleline import for_whole_packets, read_line, words_of
from orchestrator.policy.formats.results import NOT_SAID, Effect, Imported, Interfaces, Loss, Notes, Options
from orchestrator.policy.formats.tables import NOT_GIVEN, Chain, Line, decides
from orchestrator.policy.model import Action, Direction


def read_iptables(text: str, name: str, options: Options) -> Imported:
    """Read iptables-save. Raises BadInput or TooLarge with a place such as ``line 12``."""
    return _read_tables(text, name, options, Family.IPV4)


def read_ip6tables(text: str, name: str, options: Options) -> Imported:
    """Read ip6tables-save. Raises BadInput or TooLarge with a place such as ``line 12``."""
    return _read_tables(text, name, options, Family.IPV6)


def _read_tables(text: str, name: str, options: Options, family: Family) -> Imported:
    notes = Notes()
    table = parse(text, family, notes, options.interfaces)
    for taken in options.interfaces.notes():
        notes.add(taken)
    chosen = _named_chains(table.chains, options.chains) if options.chains else _usual_chains(table.chains, notes)
    assembler = Assembler(name, notes, max_rules=options.max_rules)
    for direction, chain in chosen.items():
        notes.add(f"{direction.value} is the chain {chain.name}")
        clauses = follow(table.chains, [chain], family, notes, stateless=options.stateless)
        assembler.add(clauses, direction)
    if Direction.EGRESS not in chosen:
        notes.add("no chain was read for egress: everything may leave")
    elsewhere = [Loss(name, doubt.line, shown(doubt.text), doubt.reason, Effect.REFUSED) for doubt in table.elsewhere]
    egress_default = Action.DENY if Direction.EGRESS in chosen else Action.PERMIT
    acl = assembler.acl(egress_default=egress_default)
    losses = sorted([*assembler.losses(), *elsewhere], key=lambda loss: loss.line)
    return Imported(acl, tuple(losses), notes.taken_notes())


def _usual_chains(chains: Mapping[str, Chain], notes: Notes) -> Mapping[Direction, Chain]:
    """FORWARD into ingress, or INPUT where only that one decides about anything; OUTPUT into egress."""
    chosen = {}
    candidates = [chains[name] for name in ("FORWARD", "INPUT") if name in chains]
    deciding = [chain for chain in candidates if decides(chains, chain)]
    if candidates:
        ingress = (deciding or candidates)[0]
        chosen[Direction.INGRESS] = ingress
        for other in deciding:
            if other is not ingress:
                notes.add(f"the chain {other.name} ({len(other.lines)} lines) is left out: choose it with its name")
    if "OUTPUT" in chains:
        chosen[Direction.EGRESS] = chains["OUTPUT"]
    if not chosen:
        raise BadInput("the filter table has none of the chains FORWARD, INPUT and OUTPUT")
    return chosen


def _named_chains(chains: Mapping[str, Chain], wanted: tuple[str, ...]) -> Mapping[Direction, Chain]:
    """The chains that the caller named, as ``NAME=ingress``; the kernel's own need no direction."""
    chosen: dict[Direction, Chain] = {}
    for text in wanted:
        name, _, direction_text = text.partition("=")
        direction = _read_direction(direction_text or ("egress" if name == "OUTPUT" else "ingress"))
        if name not in chains:
            raise BadInput(f"there is no chain {shown(name)}; there are {shown(', '.join(chains))}")
        if direction in chosen:
            raise BadInput(f"both {chosen[direction].name} and {name} are chosen for {direction.value}: name one chain")
        chosen[direction] = chains[name]
    return chosen


def _read_direction(text: str) -> Direction:
    found = next((direction for direction in Direction if direction.value == text), None)
    if found is None:
        raise BadInput(f"'{shown(text)}' is not a direction: ingress or egress")
    return found


_CHAIN = re.compile(r":(\S+)\s+(?:(ACCEPT|DROP)(?:\s+\[\d+:\d+\])?\s*|-(?:\s.*)?)\Z")
_COUNTERS = re.compile(r"\[\d+:\d+\]\s+")
_POLICIES = frozenset({"ACCEPT", "DROP"})
_OF_THE_KERNEL = frozenset({"INPUT", "FORWARD", "OUTPUT"})
_JUMPS = frozenset({"-j", "--jump"})


@dataclass(frozen=True, slots=True)
class Filter:
    """The filter table, and drops in other tables, which no filter table carries over."""

    chains: Mapping[str, Chain]
    elsewhere: tuple[Doubt, ...]


@dataclass(frozen=True, slots=True)
class _Raw:
    """A rule of a chain: what stands behind the chain's name, and where."""

    words: list[str]
    number: int
    text: str


@dataclass(slots=True)
class _Table:
    name: str
    number: int
    family: Family
    interfaces: Interfaces
    declared: dict[str, tuple[int, str | None]] = field(default_factory=dict)
    rules: dict[str, list[_Raw]] = field(default_factory=dict)
    committed: bool = False


def parse(text: str, family: Family, notes: Notes, interfaces: Interfaces = NOT_SAID) -> Filter:
    """Read the whole text.

    Raises BadInput, with the line as its place, where it is no iptables-save text.
    """
    found: _Table | None = None
    table: _Table | None = None
    elsewhere: list[Doubt] = []
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        try:
            if line.startswith("*"):
                table = _open_table(line, number, table, found, family, interfaces)
                found = table if table.name == "filter" else found
            elif table is None or table.committed:
                raise BadInput("this is no line of iptables-save: a table such as *filter must come first")
            elif line == "COMMIT":
                table.committed = True
            elif table.name == "filter":
                _read(line, number, table)
            else:
                _look_at(line, number, table, elsewhere, notes)
        except AclflowError as error:
            raise error.within(f"line {number}") from None
    if found is None:
        raise BadInput("there is no *filter table in it")
    if table is not None and not table.committed:
        raise BadInput(f"*{table.name} has no COMMIT: is the file cut off?", place=f"line {table.number}")
    return Filter(_make_chains(found), tuple(elsewhere))


def _open_table(
    line: str, number: int, table: _Table | None, found: _Table | None, family: Family, interfaces: Interfaces
) -> _Table:
    name = line[1:].strip()
    if table is not None and not table.committed:
        raise BadInput(f"*{name} begins before the COMMIT of *{table.name}")
    if name == "filter" and found is not None:
        raise BadInput(f"a second *filter table; the first is on line {found.number}")
    return _Table(name, number, family, interfaces)


def _read(line: str, number: int, table: _Table) -> None:
    """Read a line of the filter table: a chain declaration, or a command for iptables-restore."""
    if line.startswith(":"):
        declared = _CHAIN.match(line)
        if declared is None:
            raise BadInput(f"'{shown(line)}' is no chain: write :NAME ACCEPT|DROP|- [0:0]")
        table.rules.pop(declared[1], None)  # iptables-restore empties a chain where it is declared
        _declare_chain(table, declared[1], number, declared[2])
        return
    words = words_of(_COUNTERS.sub("", line, count=1) if line.startswith("[") else line)
    command = _COMMANDS.get(words[0]) if len(words) > 1 else None
    if command is None:
        raise BadInput(f"'{shown(line)}' is no line of iptables-save: rules start with -A CHAIN")
    command(table, words[1], _Raw(words[2:], number, line))


def _declare_chain(table: _Table, chain: str, number: int, policy: str | None) -> None:
    known = NOT_GIVEN if chain in _OF_THE_KERNEL else None
    table.declared[chain] = (number, known if policy is None else policy)


def _append(table: _Table, chain: str, rule: _Raw) -> None:
    """`-A CHAIN MATCH...`"""
    _rules_of(table, chain, rule.number).append(rule)


def _insert(table: _Table, chain: str, rule: _Raw) -> None:
    """`-I CHAIN [NUMBER] MATCH...`: before the rule of this number, or before all."""
    rules = _rules_of(table, chain, rule.number)
    place = 1
    if rule.words and rule.words[0].isdecimal():
        place, rule = int(rule.words[0][:10]), replace(rule, words=rule.words[1:])
    if not 1 <= place <= len(rules) + 1:
        raise BadInput(f"there is no place {place} in {shown(chain)}: it has {len(rules)} rules before this line")
    rules.insert(place - 1, rule)


def _new(table: _Table, chain: str, rule: _Raw) -> None:
    """`-N CHAIN`"""
    if chain in table.declared or rule.words:
        raise BadInput(f"'{shown(rule.text)}' declares no new chain")
    _declare_chain(table, chain, rule.number, None)


def _set_policy(table: _Table, chain: str, rule: _Raw) -> None:
    """`-P CHAIN ACCEPT|DROP`"""
    if chain not in _OF_THE_KERNEL or not _POLICIES.issuperset(rule.words) or len(rule.words) != 1:
        raise BadInput(f"'{shown(rule.text)}' is no policy: write -P INPUT|FORWARD|OUTPUT ACCEPT|DROP")
    _declare_chain(table, chain, rule.number, rule.words[0])


_COMMANDS: Mapping[str, Callable[[_Table, str, _Raw], None]] = MappingProxyType(
    {
        "-A": _append,
        "--append": _append,
        "-I": _insert,
        "--insert": _insert,
        "-N": _new,
        "--new-chain": _new,
        "-P": _set_policy,
        "--policy": _set_policy,
    }
)


def _rules_of(table: _Table, chain: str, number: int) -> list[_Raw]:
    """Return the rules so far of the chain that a line names.

    Raises BadInput for a chain that does not exist.
    """
    if chain not in table.declared:
        if chain not in _OF_THE_KERNEL:
            raise BadInput(f"the chain {shown(chain)} is not declared")
        _declare_chain(table, chain, number, None)
    return table.rules.setdefault(chain, [])


def _lines(rules: list[_Raw], table: _Table) -> Iterator[Line]:
    """The rules of a chain as lines; two that say one thing together are one."""
    place = 0
    while place < len(rules):
        rule, pair = rules[place], rules[place : place + 2]
        both = None
        if table.family is Family.IPV6 and len(pair) == 2:
            both = for_whole_packets(pair[0].words, pair[1].words)
        if both is not None:
            rule = replace(pair[1], words=both)
        yield read_line(rule.words, rule.number, rule.text, table.family, table.interfaces)
        place += 1 if both is None else 2


def _look_at(line: str, number: int, table: _Table, elsewhere: list[Doubt], notes: Notes) -> None:
    """A line of another table: it cannot permit, but it may drop."""
    if line.startswith(":"):
        policy = line.split()[1:2]
        drops = policy == ["DROP"]
    else:
        words = words_of(line)
        notes.add(f"the table {shown(table.name)} is no filter: its rules are left out", number)
        drops = any(one in _JUMPS and other in ("DROP", "REJECT") for one, other in itertools.pairwise(words))
    if drops:
        elsewhere.append(Doubt(number, line, f"a drop in the table {shown(table.name)} is not carried over"))


def _make_chains(table: _Table) -> Mapping[str, Chain]:
    chains = {
        name: Chain(name, name, number, policy, tuple(_lines(table.rules.get(name, []), table)))
        for name, (number, policy) in table.declared.items()
    }
    return MappingProxyType(chains)
