"""Read one filter of an Aerleon policy, for one of its targets, as a list.

    header {
      target:: cisco edge-inbound mixed             the list `cisco:edge-inbound`, of both IP versions
    }
    term web {
      destination-address:: WEB_SERVERS             names from the definitions
      destination-port:: WEB_SERVICES
      protocol:: tcp
      action:: accept
    }

Each filter is a list for each platform that its header names, for what a term means depends on the platform. Anything
that a term says besides addresses, protocols, ports, ICMP types and `tcp-established` makes it doubtful.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from orchestrator.errors import BadInput
from orchestrator.policy import spans
from orchestrator.policy.addresses import Family
from orchestrator.policy.formats.aerleon.library import Term
from orchestrator.policy.formats.aerleon.source import TermLines, filters_of
from orchestrator.policy.formats.aerleon.terms import services_of
from orchestrator.policy.formats.assemble import Assembler, Clause, Doubt, marker_in, plain
from orchestrator.policy.formats.lineboxes import EVERYWHERE, Sides, by_version
from orchestrator.policy.formats.lists import Chosen, choose, refuse_two_for_one
from orchestrator.policy.formats.portnames import prefix_spans
from orchestrator.policy.formats.results import Imported, Notes, Options
from orchestrator.policy.model import Action, Direction, check_name
from orchestrator.policy.space import everything

OWN_PLATFORM = "cisco"
OWN_LISTS = frozenset(f"{OWN_PLATFORM}:{direction.value}" for direction in Direction)
"""The platform, and the lists, that our writer writes."""

_A_FILTER = "a filter for a platform"
_DIRECTIONS: Mapping[str, Direction] = {
    **dict.fromkeys(("input", "in", "ingress", "forward"), Direction.INGRESS),
    **dict.fromkeys(("output", "out", "egress"), Direction.EGRESS),
}
_FAMILIES: Mapping[str, tuple[Family, ...]] = {
    "inet": (Family.IPV4,),
    "inet6": (Family.IPV6,),
    "mixed": tuple(Family),
}
_OF_BOTH = frozenset({"k8s"})
"""Platforms whose filters are of both IP versions without a word of it."""

_WITH_POLICY = frozenset({"iptables", "speedway", "ipset", "nftables"})
"""Platforms whose targets say what becomes of the rest of the packets."""

_SIDES = ("source_address", "destination_address", "address")
_DENIES = frozenset({"deny", "reject", "reject-with-tcp-rst"})


@dataclass(frozen=True, slots=True)
class _List:
    """A filter for one of its targets."""

    platform: str
    words: tuple[str, ...]
    terms: tuple[Term, ...]
    lines: TermLines

    @property
    def families(self) -> tuple[Family, ...]:
        found = next((_FAMILIES[word] for word in self.words if word in _FAMILIES), None)
        return found or (tuple(Family) if self.platform in _OF_BOTH else (Family.IPV4,))

    @property
    def says_families(self) -> bool:
        return self.platform in _OF_BOTH or any(word in _FAMILIES for word in self.words)

    @property
    def direction(self) -> Direction | None:
        return next((_DIRECTIONS[word.lower()] for word in self.words if word.lower() in _DIRECTIONS), None)

    @property
    def permits_the_rest(self) -> bool:
        return self.platform in _WITH_POLICY and "ACCEPT" in self.words


def read_aerleon(text: str, name: str, options: Options) -> Imported:
    """Read the filters that the options name, or the only one.

    Raises BadInput, and Missing without the library.
    """
    lists = _list_filters(text, options)
    own = bool(lists) and lists.keys() <= OWN_LISTS and not options.lists
    return _read_lists(_choose_all(lists) if own else choose(lists, options, _A_FILTER), name, options)


def read_all_aerleon(text: str, name: str, options: Options) -> Mapping[str, Imported]:
    """Read every filter for every platform by itself."""
    return {one.name: _read_lists([one], name, options) for one in _choose_all(_list_filters(text, options))}


def _choose_all(lists: Mapping[str, _List]) -> list[Chosen[_List]]:
    return [Chosen(key, found, None) for key, found in lists.items()]


def _list_filters(text: str, options: Options) -> dict[str, _List]:
    filters, lines = filters_of(text, options)
    found: dict[str, _List] = {}
    for one in filters:
        here = lines.of(one)
        for platform, words in one.targets:
            name = wanted = _name(platform, words)
            number = 1
            while name in found:
                number += 1
                name = f"{wanted}.{number}"
            found[name] = _List(platform, words, one.terms, here)
    return found


def _name(platform: str, words: Sequence[str]) -> str:
    """Return the platform and the filter's name there.

    The name is a pair of zones, or the first word that is no IP version.
    """
    if len(words) > 3 and (words[0], words[2]) == ("from-zone", "to-zone"):
        return f"{platform}:{words[1]}>{words[3]}"
    called = next((word for word in words if word not in _FAMILIES), None)
    return platform if called is None else f"{platform}:{called}"


def _read_lists(chosen: Sequence[Chosen[_List]], file: str, options: Options) -> Imported:
    notes = Notes()
    assembler = Assembler(file, notes, max_rules=options.max_rules)
    directions = {one.name: one.direction or one.found.direction or options.direction for one in chosen}
    refuse_two_for_one((one.name, directions[one.name], one.found.families) for one in chosen)
    for direction in Direction:
        for one in chosen:
            if directions[one.name] is direction:
                notes.add(f"{direction.value} is the filter {one.name}")
                assembler.add(list(_make_clauses(one, direction, options, notes)), direction)
    if Direction.EGRESS not in directions.values():
        notes.add("no filter was read for egress: everything may leave")
    egress_default = Action.DENY if Direction.EGRESS in directions.values() else Action.PERMIT
    acl = assembler.acl(egress_default=egress_default)
    return Imported(acl, assembler.losses(), notes.taken_notes())


def _make_clauses(one: Chosen[_List], direction: Direction, options: Options, notes: Notes) -> Iterator[Clause]:
    found = one.found
    if not found.says_families:
        notes.add(f"the target {one.name} names no IP version: it is read for IPv4")
    for term in found.terms:
        line = found.lines.next_of(term.name)
        if _is_for(term, found.platform):
            clauses = _read_term(term, line, found, options, notes)
            if not _is_default(clauses, term, direction):
                yield from clauses
    if found.permits_the_rest:
        every = tuple(everything(family) for family in found.families)
        yield Clause(Action.PERMIT, every, every, (), 0, f"target {one.name}", f"{found.words[0]}.policy")


def _is_for(term: Term, platform: str) -> bool:
    """Whether a term is rendered for a platform at all."""
    if term.verbatim:
        return platform in term.verbatim
    return platform not in term.platforms_except and (not term.platforms or platform in term.platforms)


def _read_term(term: Term, line: int, found: _List, options: Options, notes: Notes) -> list[Clause]:
    if term.actions == ("next",):
        notes.add("a term that goes on to the next one decides nothing", line)
        return []
    action, reasons = _action(term)
    services, more = services_of(term, found.platform, found.words, stateless=options.stateless)
    if any(term.addresses[f"{key}_exclude"] and not term.addresses[key] for key in _SIDES):
        reasons.append("what is excluded from every address depends on the platform: name the addresses")
    reasons += [*more, *(f"'{other.replace('_', '-')}' is not looked at here" for other in term.others)]
    doubts = tuple(Doubt(line, f"term {term.name}", reason) for reason in reasons)
    marker, description = _marker(term)
    clause = Clause(
        action=action,
        sure=(),
        maybe=(),
        doubts=doubts,
        line=line,
        text=f"term {term.name}",
        label=term.name,
        marker=marker,
        description=description,
        log=term.log,
        expires=None if term.expiration is None else dt.datetime.combine(term.expiration, dt.time(), dt.UTC),
    )
    pairs = _pairs(term, _find_families(term, found))
    return list(chain.from_iterable(by_version(clause, services, *pair) for pair in pairs))


def _find_families(term: Term, found: _List) -> tuple[Family, ...]:
    if term.family is None:
        return found.families
    return tuple(family for family in found.families if family in _FAMILIES.get(term.family, ()))


def _action(term: Term) -> tuple[Action, list[str]]:
    """Return the action of a term, with reasons for doubt.

    An unknown action becomes a deny: a permit below must not apply to its packets.
    """
    if term.verbatim:
        return Action.DENY, [f"its lines for {', '.join(term.verbatim)} are not read"]
    if term.actions == ("accept",):
        return Action.PERMIT, []
    if term.actions and _DENIES.issuperset(term.actions):
        return Action.DENY, []
    return Action.DENY, [f"what becomes of a packet is not known: {', '.join(term.actions) or 'no action'}"]


def _pairs(term: Term, families: Sequence[Family]) -> list[tuple[Sides, Sides]]:
    """Return the addresses of both sides, in two alternatives if a term says "either side"."""
    own = [
        _make_side(term.addresses[f"{side}_address"], term.addresses[f"{side}_address_exclude"], families)
        for side in ("source", "destination")
    ]
    if not term.addresses["address"] and not term.addresses["address_exclude"]:
        return [(own[0], own[1])]
    either = _make_side(term.addresses["address"], term.addresses["address_exclude"], families)
    return [(_intersect_sides(own[0], either), own[1]), (own[0], _intersect_sides(own[1], either))]


def _make_side(prefixes: Sequence[str], excluded: Sequence[str], families: Sequence[Family]) -> Sides:
    found = _make_spans(prefixes) if prefixes else EVERYWHERE
    gone = _make_spans(excluded) if prefixes else {}  # from every address: a doubt, and a deny covers them all
    left = {family: spans.minus(found[family], gone.get(family, ())) for family in families if family in found}
    return {family: members for family, members in left.items() if members}


def _make_spans(prefixes: Sequence[str]) -> Sides:
    found: dict[Family, list[spans.Span]] = {}
    for prefix in prefixes:
        family = Family.IPV6 if ":" in prefix else Family.IPV4
        found.setdefault(family, []).extend(prefix_spans(prefix, family))
    return {family: spans.union(members) for family, members in found.items()}


def _intersect_sides(one: Sides, other: Sides) -> Sides:
    common = {family: spans.intersect(one[family], other[family]) for family in one if family in other}
    return {family: members for family, members in common.items() if members}


def _marker(term: Term) -> tuple[str | None, str]:
    """Return a rule's id and description.

    The id is the one that its comment begins with, else the term's name.
    """
    marker, description = marker_in(plain(term.comment))
    if marker is not None or term.name.startswith("_"):
        return marker, description
    try:
        check_name(term.name, "a rule id", place="name")
    except BadInput:
        return None, description
    return term.name, description


def default_marker(direction: Direction) -> str:
    """Return the id of the writer's last term, which states the list's default."""
    return f"{direction.value}.default"


def _is_default(clauses: Sequence[Clause], term: Term, direction: Direction) -> bool:
    """Whether a term is the deny of everything that our writer ends a filter with."""
    if not clauses or any(clause.marker != default_marker(direction) for clause in clauses):
        return False
    return term.actions == ("deny",) and {box for clause in clauses for box in clause.sure} == set(
        map(everything, Family)
    )
