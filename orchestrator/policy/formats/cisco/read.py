"""Choose lists of a configuration and read them as one access list.

A configuration may hold hundreds of lists; `Options.lists` names those to read. Lists of both IP versions, and one for
each direction, may be read together, for what no line of a list matches is denied, as by our defaults. The lists that
our own writers make are known by their names and read all at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from orchestrator.errors import BadInput
from orchestrator.policy.addresses import Family
from orchestrator.policy.formats.assemble import Assembler, Clause, Doubt, shown
from orchestrator.policy.formats.cisco import asa_entry
from orchestrator.policy.formats.cisco.accesslist import AccessList, AsaList, Config, Kind
from orchestrator.policy.formats.cisco.config import parse
from orchestrator.policy.formats.cisco.entry import clause_of
from orchestrator.policy.formats.cisco.fieldwords import GIVE_THE_CONFIGURATION
from orchestrator.policy.formats.cisco.write import FRAGMENTS_MARKER, NAMES, default_marker
from orchestrator.policy.formats.lists import Chosen, choose, name_and_direction, refuse_two_for_one
from orchestrator.policy.formats.results import Effect, Imported, Loss, Notes, Options
from orchestrator.policy.model import Acl, Action, Direction
from orchestrator.policy.space import LATER, WHOLE, Box, everything

AnyList = AccessList | AsaList
_A_LIST = "an access list for IP packets"

SHOWN_LIST = re.compile(r"^[ \t]*((Standard|Extended) IP|IPv6|IP|ipv4) [Aa]ccess [Ll]ist \S", re.MULTILINE)
"""How a list begins in what `show access-lists` prints, which is no configuration."""


def read_cisco(text: str, name: str, options: Options) -> Imported:
    """Read the lists that the options name, or the only one.

    Raises BadInput, with a place such as ``line 12``.
    """
    config = _parse_config(text)
    return _read_lists(config, _chosen(config, options), name, options)


def read_all_cisco(text: str, name: str, options: Options) -> Mapping[str, Imported]:
    """Read every list of a configuration by itself, by name, in the options' direction.

    A list that is not about IP packets is refused as a whole, by a loss.
    """
    config = _parse_config(text)
    if not config.lists:
        raise BadInput(f"there is not {_A_LIST} in it")
    return {
        found.name: _read_lists(config, [Chosen(found.name, found, options.direction)], name, options)
        if found.kind is not Kind.FOREIGN
        else Imported(Acl(), (Loss(name, found.line, f"access list {found.name}", found.reason, Effect.REFUSED),))
        for found in config.lists.values()
    }


def _parse_config(text: str) -> Config:
    config = parse(text)
    shown_list = None if config.lists else SHOWN_LIST.search(text)
    if shown_list is not None:
        place = f"line {text.count(chr(10), 0, shown_list.start()) + 1}"
        raise BadInput(f"this is what `show access-lists` prints; {GIVE_THE_CONFIGURATION}", place=place)
    return config


def _read_lists(config: Config, chosen: Sequence[Chosen[AnyList]], file: str, options: Options) -> Imported:
    notes = Notes()
    assembler = Assembler(file, notes, max_rules=options.max_rules)
    wanted = [one.direction or NAMES.get(one.name, options.direction) for one in chosen]
    refuse_two_for_one(
        (one.name, its, _find_families(one.found, config))
        for one, its in zip(chosen, wanted, strict=True)
        if not _is_asked_after_all(one.found, config)
    )
    for direction in Direction:
        here = [one.found for one, its in zip(chosen, wanted, strict=True) if its is direction]
        for found in sorted(here, key=lambda found: _is_asked_after_all(found, config)):
            notes.add(f"{direction.value} is the access list {found.name}{_describe_bound(found, config)}")
            assembler.add(_clauses(found, config, notes), direction)
    if Direction.EGRESS not in wanted:
        notes.add("no list was read for egress: everything may leave")
    egress_default = Action.DENY if Direction.EGRESS in wanted else Action.PERMIT
    acl = assembler.acl(egress_default=egress_default)
    return Imported(acl, assembler.losses(), notes.taken_notes())


def _describe_bound(found: AnyList, config: Config) -> str:
    places = config.bound.get(found.name, ())
    return f" ({', '.join(places)})" if places else ""


def _is_asked_after_all(found: AnyList, config: Config) -> bool:
    """Return whether a list is an ASA's global list.

    It decides packets that the interface's list leaves undecided.
    """
    return found.kind is Kind.ASA and "global" in config.bound.get(found.name, ())


def _find_families(found: AnyList, config: Config) -> tuple[Family, ...]:
    if found.kind is Kind.ASA:
        return tuple(Family) if config.unified else (Family.IPV4,)
    return (Family.IPV6,) if found.kind is Kind.IPV6 else (Family.IPV4,)


def _clauses(found: AnyList, config: Config, notes: Notes) -> list[Clause]:
    """The lines of a list; without what our writers add for the device's sake."""
    if isinstance(found, AsaList):
        return _asa_clauses(found, config, notes)
    clauses = [clause_of(entry, found.kind, found.name, config.groups) for entry in found.in_order()]
    if not clauses:
        return [_empty(found)]
    if found.kind is Kind.IPV6 and not _is_everything(clauses[-1]):
        notes.add("routers permit neighbour discovery at the end of an IPv6 list; these rules do not", found.line)
    if _is_default(clauses[-1:], found.name):
        clauses.pop()
    block = [clause for clause in clauses if clause.marker == FRAGMENTS_MARKER]
    rest = clauses[len(block) :]
    if block and clauses[: len(block)] == block and _list_decisions(block) == _says_of_fragments(rest):
        return [_without_hidden(clause) for clause in rest]
    for clause in clauses:
        if clause.action is Action.PERMIT and any(box.fragments == WHOLE for box in clause.sure):
            notes.add("IOS lets later fragments pass here by their addresses alone; these rules do not", clause.line)
    return clauses


def _asa_clauses(found: AsaList, config: Config, notes: Notes) -> list[Clause]:
    """The lines of a list of an ASA, one clause for each IP version."""
    clauses: list[Clause] = []
    for entry in found.in_order():
        of_line = asa_entry.clauses_of(entry, found.name, config)
        clauses += of_line
        if entry.words[-1] == asa_entry.INACTIVE:
            notes.add("inactive lines are passed over, as the ASA does", entry.line)
        elif not of_line:
            notes.add("left out: no packet has such addresses and protocol at once", entry.line)
    if _is_default(clauses[-2:], found.name):
        del clauses[-2:]
    notes.add("an ASA asks a list about the first packet of a connection; replies need the domain's return traffic")
    if not config.unified:
        notes.add("before version 9.0 an ASA's `any` means IPv4 only")
    return clauses


def _empty(found: AccessList) -> Clause:
    """A list without lines: IOS permits everything by it, and it is safer not to."""
    everywhere = (everything(Family.IPV6 if found.kind is Kind.IPV6 else Family.IPV4),)
    text = f"access list {found.name}"
    doubt = Doubt(found.line, text, "a list without a line permits everything in IOS, and nothing here")
    return Clause(Action.PERMIT, (), everywhere, (doubt,), found.line, text, found.name)


def _is_default(clauses: Sequence[Clause], name: str) -> bool:
    """Whether clauses are the deny of everything that our writers end a list with."""
    return bool(clauses) and all(
        clause.marker == default_marker(name)
        and clause.action is Action.DENY
        and clause.exact
        and _is_everything(clause)
        for clause in clauses
    )


def _is_everything(clause: Clause) -> bool:
    """Whether a line takes every packet of an IP version."""
    return bool(clause.sure) and clause.sure == (everything(clause.sure[0].family),)


def _list_decisions(clauses: Sequence[Clause]) -> list[tuple[Action, Box]]:
    return [(clause.action, box) for clause in clauses for box in clause.maybe]


def _says_of_fragments(clauses: Sequence[Clause]) -> list[tuple[Action, Box]]:
    """Return a list's actions for later fragments.

    They are the lines that match fragments, cut down to them, and the deny at the end.
    """
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


def _list_readable(config: Config) -> dict[str, AnyList]:
    return {name: found for name, found in config.lists.items() if found.kind is not Kind.FOREIGN}


def _chosen(config: Config, options: Options) -> Sequence[Chosen[AnyList]]:
    """The lists that are named, the only one, or all that our own writers named."""
    available = _list_readable(config)
    for text in options.lists:
        found = config.lists.get(text) or config.lists.get(name_and_direction(text)[0])
        if found is not None and found.kind is Kind.FOREIGN:
            raise BadInput(f"{shown(found.name)} is not {_A_LIST}: {found.reason}", place=f"line {found.line}")
    if not options.lists and available and available.keys() <= NAMES.keys():
        return [Chosen(name, found, None) for name, found in available.items()]
    if not available and config.lists:
        reasons = [f"{name} (line {found.line}): {found.reason}" for name, found in config.lists.items()]
        raise BadInput(f"there is not {_A_LIST} in it, but {shown('; '.join(reasons), 2000)}")
    return choose(available, options, _A_LIST)
