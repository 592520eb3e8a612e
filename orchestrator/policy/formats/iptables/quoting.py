"""The words of an iptables-save line: separated by blanks, with quotes as iptables-restore takes them."""

from __future__ import annotations

import re

from orchestrator.errors import BadInput

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
