"""The words of an iptables-save line: separated by blanks, with quotes as iptables-restore takes them."""

from __future__ import annotations

import re

from orchestrator.errors import BadInput

_WORD = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"(?=\s|$)|([^\s"]+)(?=\s|$))')
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
            raise BadInput("a quote does not end, or stands inside a word")
        place = found.end()
        words.append(found[2] if found[1] is None else Quoted(_ESCAPED.sub(r"\1", found[1])))
    return words
