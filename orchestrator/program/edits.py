"""Edits: deltas that carry only the new parts of texts.

They name the rows that they remove, and make each added text from a removed one.

The instructions of a filter's row are text (`compile/filters/filterrows.py`). One changed rule removes a map of a
thousand elements and adds one that differs in a line, so a delta carries both texts whole. Edits carry neither: an
enforcement point that holds the base has the removed rows, and makes each added text by a recipe from the text of one
of them.

    removed   the base's rows without their instructions
    added     rows whose instructions are recipes

    recipe    length of the text ── source ── piece ── piece ── ...       source   0: none, n: the n-th removed row
    piece     2 x length, the bytes themselves       or       2 x length + 1, where in the source's text they begin

Numbers are of seven bits a byte, the lowest first, the upper bit set where more follow. The result is a delta like
every other: it applies to its base alone, and the program's digest is checked as always.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from orchestrator.errors import BadInput, Stale
from orchestrator.program.delta import Delta
from orchestrator.program.flows import FlowTable
from orchestrator.program.program import Program

MOST_ROWS = 1024
"""A delta of more rows travels as it is: what it removes would be looked for row by row."""

LEAST_TEXT = 512
"""A delta whose removed rows have less text than this travels as it is, as do those of switches."""

MOST_TEXT = 1 << 26
"""Recipes that come to more bytes of text are refused; a delta of more travels as it is."""

_MOST_SHARED = 16
"""A line of more removed texts, as every map has, does not say which of them a text is like."""

_LEAST_COPY = 8
"""A line of fewer bytes is written down; naming its place takes as many."""


@dataclass(frozen=True, slots=True)
class Edits:
    """A delta with recipes for the instructions of its added rows.

    Its removed rows have no instructions.
    """

    base: bytes
    target: bytes
    generation: int
    removed: FlowTable
    added: FlowTable
    ports: tuple[str, ...]
    base_ports: tuple[str, ...] | None = None

    @classmethod
    def of(cls, delta: Delta) -> Edits | None:
        """The edits of a delta; None where they would save nothing."""
        if sum(map(len, delta.removed.instruction_set)) < LEAST_TEXT:  # of all rows, so of those that are meant too
            return None
        removed, added = delta.removed.compact_sets(), delta.added.compact_sets()
        if len(removed) + len(added) > MOST_ROWS or sum(map(len, removed.instruction_set)) < LEAST_TEXT:
            return None
        if sum(map(len, added.instruction_set)) > MOST_TEXT:
            return None
        texts = [removed.instruction_set[index] for index in removed.instructions.tolist()]
        sources = _Sources(texts)
        return cls(
            delta.base,
            delta.target,
            delta.generation,
            replace(removed, instructions=np.zeros(len(removed), np.uint32), instruction_set=(b"",)),
            replace(added, instruction_set=tuple(map(sources.write_recipe, added.instruction_set))),
            delta.ports,
            delta.base_ports,
        )

    def delta_from(self, program: Program) -> Delta:
        """Return the delta, given the program that it starts from.

        Raises Stale where the program is another or lacks a row, BadInput for recipes that come to no text.
        """
        if program.digest != self.base:
            raise Stale(f"these edits start from {self.base.hex()}, but the program is {program.digest.hex()}")
        removed = program.blocks.find_rows(self.removed)
        texts, room, found = [row.instructions for row in removed.rows()], MOST_TEXT, []
        for recipe in self.added.instruction_set:
            found.append(_follow_recipe(recipe, texts, room))
            room -= len(found[-1])
        added = replace(self.added, instruction_set=tuple(found))
        return Delta(self.base, self.target, self.generation, removed, added, self.ports, self.base_ports)


class _Sources:
    """The texts of removed rows, by their lines."""

    def __init__(self, texts: Sequence[bytes]) -> None:
        self._texts = texts
        self._rows: defaultdict[bytes, list[int]] = defaultdict(list)
        """In which texts a line stands."""
        self._places: dict[int, dict[bytes, int]] = {}
        for row, text in enumerate(texts):
            for line in set(text.splitlines(keepends=True)):
                if len(line) >= _LEAST_COPY:
                    self._rows[line].append(row)

    def write_recipe(self, text: bytes) -> bytes:
        """Return the recipe of a text, from the removed text with most lines in common."""
        lines = text.splitlines(keepends=True)
        alike = (self._rows.get(line, ()) for line in lines)
        shared = Counter(row for rows in alike if len(rows) <= _MOST_SHARED for row in rows)
        if not shared:
            return b"".join([*map(_encode_number, (len(text), 0, 2 * len(text))), text])
        row = min(shared, key=lambda each: (-shared[each], each))
        pieces = _pieces(lines, self._texts[row], self._places_of(row))
        return b"".join([_encode_number(len(text)), _encode_number(row + 1), *pieces])

    def _places_of(self, row: int) -> dict[bytes, int]:
        """Where in a text each of its lines begins."""
        if row not in self._places:
            at = 0
            places: dict[bytes, int] = {}
            for line in self._texts[row].splitlines(keepends=True):
                places.setdefault(line, at)
                at += len(line)
            self._places[row] = places
        return self._places[row]


def _pieces(lines: Sequence[bytes], source: bytes, places: dict[bytes, int]) -> Iterator[bytes]:
    """Yield the pieces that make up some lines: runs of the source, and new bytes."""
    begin = end = 0  # the run of the source that is copied next
    written = b""
    for line in lines:
        if end > begin and source.startswith(line, end):
            end += len(line)
            continue
        if end > begin:
            yield _encode_number(2 * (end - begin) + 1) + _encode_number(begin)
            begin = end = 0
        place = places.get(line) if len(line) >= _LEAST_COPY else None
        if place is None:
            written += line
            continue
        if written:
            yield _encode_number(2 * len(written)) + written
            written = b""
        begin, end = place, place + len(line)
    if end > begin:
        yield _encode_number(2 * (end - begin) + 1) + _encode_number(begin)
    if written:
        yield _encode_number(2 * len(written)) + written


def _follow_recipe(recipe: bytes, texts: Sequence[bytes], room: int) -> bytes:
    """The text of a recipe. Raises BadInput."""
    length, at = _read_number(recipe, 0)
    source, at = _read_number(recipe, at)
    if length > room or source > len(texts):
        raise BadInput(f"a recipe for {length} bytes from the removed row {source} cannot be followed")
    text, found = texts[source - 1] if source else b"", bytearray()
    while at < len(recipe):
        size, at = _read_number(recipe, at)
        size, is_copied = size >> 1, size & 1
        if is_copied:
            begin, at = _read_number(recipe, at)
            piece = text[begin : begin + size]
        else:
            piece = recipe[at : at + size]
            at += size
        if len(piece) != size or len(found) + size > length:
            raise BadInput("a recipe takes what is not there, or more than it says")
        found += piece
    if len(found) != length:
        raise BadInput(f"a recipe comes to {len(found)} bytes where it says {length}")
    return bytes(found)


def _encode_number(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _read_number(data: bytes, at: int) -> tuple[int, int]:
    """A number and where the next one begins. Raises BadInput."""
    value = 0
    for shift in range(0, 35, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise BadInput("a recipe has a number that does not end")
