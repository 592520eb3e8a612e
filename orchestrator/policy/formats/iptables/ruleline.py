"""Lines of iptables-save: their words, and what they match as boxes of packet space.

Words are separated by blanks, with quotes as iptables-restore takes them. An option that is not in the table of
`options` is a doubt, never an error: whether a doubt costs anything depends on where the line stands and what it does.

Whole packets take two lines in ip6tables: one for unfragmented packets, one for first fragments. ip6tables finds the
protocol of a later fragment too, so `-p esp` alone matches them, and it has no match for "not a later fragment":
together these two lines say it.
"""

from __future__ import annotations

import re

from orchestrator.errors import AclflowError, BadInput
from orchestrator.policy.addresses import Family
from orchestrator.policy.formats.assemble import Doubt, marker_in, plain
from orchestrator.policy.formats.draft import Draft, boxes_of_draft
from orchestrator.policy.formats.iptables.options import OPTIONS, STATES, Option, is_known_module, load_module
from orchestrator.policy.formats.results import Interfaces
from orchestrator.policy.formats.tables import PASSING, UNCLEAR, Line, Match

_WORD = re.compile(r'\s*(?:([^\s"]*)"((?:[^"\\]|\\.)*)"|([^\s"]+))(?=\s|$)')
_ESCAPED = re.compile(r"\\(.)")


class Quoted(str):
    """A word that stood in quotes: a value, never an option."""

    __slots__ = ()


def words_of(text: str) -> list[str]:
    """Split a line. Raises BadInput for a quote that does not end."""
    if '"' not in text:
        return text.split()
    words: list[str] = []
    place = 0
    end = len(text.rstrip())
    while place < end:
        found = _WORD.match(text, place)
        if found is None:
            raise BadInput("a quote does not end, or something follows it without a blank")
        place = found.end()
        before, quoted, bare = found.groups()
        if bare is not None:
            words.append(bare)
        else:  # as in --log-prefix="in: "
            value = _ESCAPED.sub(r"\1", quoted)
            words.append(before + value if before else Quoted(value))
    return words


UNFRAGMENTED = ("-m", "ipv6header", "!", "--header", "ipv6-frag", "--soft")
FIRST_FRAGMENT = ("-m", "frag", "--fragfirst")


def for_whole_packets(one: list[str], other: list[str]) -> list[str] | None:
    """Return the words of the single line that two lines are equal to, or None.

    The result starts with ``! -f``, which reads as "no later fragments" in either IP version.
    """
    for first, second in ((UNFRAGMENTED, FIRST_FRAGMENT), (FIRST_FRAGMENT, UNFRAGMENTED)):
        rest = _leave_out(one, first)
        if rest is not None and rest == _leave_out(other, second):
            return ["!", "-f", *rest]
    return None


def _leave_out(words: list[str], part: tuple[str, ...]) -> list[str] | None:
    size = len(part)
    for start in range(len(words) - size + 1):
        found = words[start : start + size]
        if tuple(found) == part and not any(isinstance(word, Quoted) for word in found):
            return words[:start] + words[start + size :]
    return None


def read_line(words: list[str], number: int, text: str, family: Family, interfaces: Interfaces) -> Line:
    """Read the words after ``-A CHAIN``.

    Matches that cannot be carried over become doubts of the line; nothing is an error.
    """
    draft = Draft(family, interfaces)
    if not _read_words(words, draft) and not draft.target:
        draft.target = UNCLEAR  # the word that is not known may be one
    boxes, hidden = boxes_of_draft(draft)
    match = Match(
        boxes=boxes,
        hidden=hidden,
        states=None if draft.states == STATES else draft.states,
        doubts=tuple(Doubt(number, text, reason) for reason in dict.fromkeys(draft.reasons)),
    )
    marker, description = marker_in(plain(draft.comment))
    return Line(number, text, match, draft.target, draft.goto, marker, description)


def _read_words(words: list[str], draft: Draft) -> bool:
    """Put the options on the draft; whether each of them is known."""
    words = list(words)
    place = 0
    negated = False
    all_known = True
    while place < len(words):
        if not isinstance(words[place], Quoted):
            words[place : place + 1] = _taken_apart(words[place])
        word = words[place]
        place += 1
        if _is_negation(word):
            negated = not negated
            continue
        option = None if isinstance(word, Quoted) else OPTIONS.get(word)
        if option is None:
            if not _belongs_to(draft.target, word):
                draft.reasons.append(f"'{plain(word, 40)}' is not known here")
                all_known = False
            place = _next_option(words, place)
        else:
            if option.values and place < len(words) and _is_negation(words[place]):  # the old spelling: --dport ! 80
                negated, place = not negated, place + 1
            values = words[place : place + option.values]
            place += option.values
            _apply_option(option, word, values, negated, draft)
            if option.read is load_module and not is_known_module(*values):
                place = _skip_module(words, place)
        negated = False
    return all_known


def _is_negation(word: str) -> bool:
    return word == "!" and not isinstance(word, Quoted)


def _taken_apart(word: str) -> list[str]:
    """An option and its value: `--dport=22` is two words."""
    name, equals, value = word.partition("=")
    return [name, value] if equals and name.startswith("--") and name in OPTIONS else [word]


def _belongs_to(target: str, word: str) -> bool:
    """Return whether an unknown word can be an option of the target before it."""
    return target in PASSING or (target, word) == ("REJECT", "--reject-with")


def _apply_option(option: Option, word: str, values: list[str], negated: bool, draft: Draft) -> None:
    try:
        if len(values) < option.values:
            raise BadInput(f"{word} lacks its value")
        option.read(draft, values, negated)
    except AclflowError as error:
        draft.reasons.append(error.reason)


def _next_option(words: list[str], place: int) -> int:
    """Return where the next option starts.

    The values of an unknown option are skipped.
    """
    while place < len(words) and (isinstance(words[place], Quoted) or not _starts_option(words[place])):
        place += 1
    return place


def _skip_module(words: list[str], place: int) -> int:
    """Skip the options of an unsupported match.

    Stops at the next match, target or short option.
    """
    while place < len(words):
        option = None if isinstance(words[place], Quoted) else OPTIONS.get(_taken_apart(words[place])[0])
        if option is not None and option.ends_module:
            if _is_negation(words[place - 1]):
                place -= 1
            return place
        place += 1
    return place


def _starts_option(word: str) -> bool:
    return word == "!" or (word.startswith("-") and not word[1:2].isdigit())
