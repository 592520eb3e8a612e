"""An IOS configuration as an access list: which of its lists is meant, and everything put together.

A configuration may hold hundreds of lists; `Options.acls` names those to read. A list is for one IP version; those of
both versions, and one for each direction, may be read together, for what no line of an IOS list matches is denied, as
by our defaults. The lists that our own writer makes are known by their names and read all at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from orchestrator.errors import BadInput
from orchestrator.policy.addresses import Family
from orchestrator.policy.formats.assemble import Assembler, Clause, Doubt, shown
from orchestrator.policy.formats.cisco.config import AccessList, Config, Kind, parse
from orchestrator.policy.formats.cisco.entry import clause_of
from orchestrator.policy.formats.cisco.write import FRAGMENTS_MARKER, NAMES, default_marker
from orchestrator.policy.formats.results import Imported, Notes, Options
from orchestrator.policy.model import Acl, Action, Direction
from orchestrator.policy.space import LATER, WHOLE, Box, everything

_SHOWN_NAMES = 2000

Chosen = Sequence[tuple[AccessList, Direction]]


def read_cisco(text: str, name: str, options: Options) -> Imported:
    """Read the lists that the options name, or the only one. Raises BadInput, with a place such as ``line 12``."""
    config = parse(text)
    chosen = _named(config, options) if options.acls else _only(config, options)
    return _read(config, chosen, name, options)


def read_all_cisco(text: str, name: str, options: Options) -> Mapping[str, Imported]:
    """Read every IP list of a configuration by itself, by name, in the direction of the options."""
    config = parse(text)
    return {found.name: _read(config, [(found, options.direction)], name, options) for found in _readable(config)}


def _read(config: Config, chosen: Chosen, file: str, options: Options) -> Imported:
    notes = Notes()
    assembler = Assembler(file, notes, max_rules=options.max_rules)
    directions = {direction for _, direction in chosen}
    for direction in Direction:
        for found, wanted in chosen:
            if wanted is direction:
                notes.add(f"{direction.value} is the access list {found.name}")
                assembler.add(_clauses(found, config, notes), direction)
    if Direction.EGRESS not in directions:
        notes.add("no list was read for egress: everything may leave")
    egress_default = Action.DENY if Direction.EGRESS in directions else Action.PERMIT
    acl = Acl(assembler.rules(), ingress_default=Action.DENY, egress_default=egress_default)
    return Imported(acl, assembler.losses(), notes.taken())


def _clauses(found: AccessList, config: Config, notes: Notes) -> list[Clause]:
    """The lines of a list; without what our writer adds for IOS' sake."""
    clauses = [clause_of(entry, found.kind, found.name, config.groups) for entry in found.in_order()]
    if not clauses:
        return [_empty(found)]
    if _is_default(clauses[-1], found.name):
        clauses.pop()
    block = [clause for clause in clauses if clause.marker == FRAGMENTS_MARKER]
    rest = clauses[len(block) :]
    if block and clauses[: len(block)] == block and _says(block) == _says_of_fragments(rest):
        return [_without_hidden(clause) for clause in rest]
    for clause in clauses:
        if clause.action is Action.PERMIT and any(box.fragments == WHOLE for box in clause.sure):
            notes.add("IOS lets later fragments pass here by their addresses alone; these rules do not", clause.line)
    return clauses


def _empty(found: AccessList) -> Clause:
    """A list without lines: IOS permits everything by it, and it is safer not to."""
    everywhere = (everything(Family.IPV6 if found.kind is Kind.IPV6 else Family.IPV4),)
    text = f"access list {found.name}"
    doubt = Doubt(found.line, text, "a list without a line permits everything in IOS, and nothing here")
    return Clause(Action.PERMIT, (), everywhere, (doubt,), found.line, text, found.name)


def _is_default(clause: Clause, name: str) -> bool:
    """Whether a line is the deny of everything that our writer ends a list with."""
    if clause.marker != default_marker(name) or clause.action is Action.PERMIT or not clause.exact:
        return False
    return clause.sure == (everything(clause.sure[0].family),)


def _says(clauses: Sequence[Clause]) -> list[tuple[Action, Box]]:
    return [(clause.action, box) for clause in clauses for box in clause.maybe]


def _says_of_fragments(clauses: Sequence[Clause]) -> list[tuple[Action, Box]]:
    """What a list says of later fragments: its lines that match them, cut down to them, and the deny at its end."""
    if not clauses or not clauses[0].maybe:
        return []
    later = everything(clauses[0].maybe[0].family)._replace(fragments=LATER)
    cut = [(clause.action, box.intersect(later)) for clause in clauses for box in clause.sure]
    end = (Action.DENY, later.intersect(later))
    return [(action, box) for action, box in (*cut, end) if box is not None]


def _without_hidden(clause: Clause) -> Clause:
    """A line that no later fragment comes to any more."""
    if clause.exact or not all(doubt.only for doubt in clause.doubts):
        return clause
    return replace(clause, maybe=clause.sure, doubts=())


def _readable(config: Config) -> list[AccessList]:
    return [found for found in config.lists.values() if found.kind is not Kind.FOREIGN]


def _only(config: Config, options: Options) -> Chosen:
    """The only list of a configuration, or all that our own writer named."""
    found = _readable(config)
    if found and all(one.name in NAMES for one in found):
        return [(one, NAMES[one.name]) for one in found]
    if len(found) == 1:
        return [(found[0], options.direction)]
    if found:
        names = ", ".join(one.name for one in found)
        raise BadInput(f"it holds {len(found)} access lists; name the one to read: {names[:_SHOWN_NAMES]}")
    foreign = ", ".join(config.lists)[:_SHOWN_NAMES]
    if foreign:
        raise BadInput(f"its access lists are not in the syntax of IOS for IP packets: {foreign}")
    raise BadInput("there is no access list in it")


def _named(config: Config, options: Options) -> Chosen:
    chosen = []
    for text in options.acls:
        name, equals, direction_text = (
            text.rpartition("=") if text.endswith(("=ingress", "=egress")) else (text, "", "")
        )
        found = config.lists.get(name)
        if found is None:
            names = ", ".join(one.name for one in _readable(config))
            raise BadInput(f"there is no access list {shown(name)}; there are {names[:_SHOWN_NAMES]}")
        if found.kind is Kind.FOREIGN:
            raise BadInput(
                f"{shown(name)} is not in the syntax of IOS for IP packets (`access-list 1-199`, `ip access-list "
                f"standard|extended NAME` or `ipv6 access-list NAME`)",
                place=f"line {found.line}",
            )
        chosen.append((found, Direction(direction_text) if equals else NAMES.get(name, options.direction)))
    return chosen
