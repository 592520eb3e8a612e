"""Settings of a PoP's edge: chunks, lines, and the shares of its TCAM.

    TCAM   | heavy hitters | exceptions | lines |      each part with a budget of its own, in entries

A part that needs more than its budget is refused before anything is published, with what would fit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from orchestrator.edge.chunks import Chunking
from orchestrator.edge.occupancy import best_k, exact, union
from orchestrator.errors import BadInput, TooLarge
from orchestrator.policy.addresses import Family

WIDEST_LINE = 288
"""Bits of a line that a switch can hold: nine registers."""
MOST_LINES = 30_000
"""Each line has a priority of its own, in each IP version."""
MOST_ENTRIES = 1_000_000
MOST_FUNCTIONS = 64
"""Each function is two actions of every packet that meets the lines."""
MOST_TRIES = 32


@dataclass(frozen=True, slots=True)
class EdgeSettings:
    """The settings of an edge. Raises BadInput with the field's name.

    `ipv4_chunk` and `ipv6_chunk` are the leading bits that addresses of a chunk share. Lines have `width` bits; of
    these each of their at most `per_line` chunks sets `functions`; before a build is given up, `tries` draws of
    functions are looked at. `most_heavy`, `most_exceptions` and `most_lines` are the parts of the TCAM. Lines are
    built anew when `rebuild_share` of the chunks that they hold are nobody's any more. `allow_misdirected`: chunks
    for which there are no exceptions left may reach a wrong server, which deals with them as it is told; otherwise
    that is refused.
    """

    ipv4_chunk: int = 24
    ipv6_chunk: int = 48
    width: int = WIDEST_LINE
    functions: int = 16
    per_line: int = 8
    tries: int = 4
    most_heavy: int = 256
    most_exceptions: int = 1024
    most_lines: int = 4096
    rebuild_share: float = 0.1
    allow_misdirected: bool = False

    def __post_init__(self) -> None:
        _check_between(1, self.width, WIDEST_LINE, "width", "bits a line")
        if self.functions > self.width:
            suits = min(best_k(self.width, max(self.per_line, 1)), MOST_FUNCTIONS)
            raise BadInput(
                f"{self.functions} functions in a line of {self.width} bits: every chunk would set them all; for "
                f"{self.per_line} chunks a line take {suits}",
                place="functions",
            )
        _check_between(1, self.functions, MOST_FUNCTIONS, "functions", "hash functions")
        _check_between(1, self.per_line, self.width, "per_line", "chunks a line")
        _check_between(1, self.tries, MOST_TRIES, "tries", "draws")
        _check_between(0, self.most_heavy, MOST_ENTRIES, "most_heavy", "entries of heavy hitters")
        _check_between(0, self.most_exceptions, MOST_ENTRIES, "most_exceptions", "exceptions")
        _check_between(1, self.most_lines, MOST_LINES, "most_lines", "lines")
        if not 0.0 < self.rebuild_share <= 1.0:
            raise BadInput(f"{self.rebuild_share} is not a share above 0 and up to 1", place="rebuild_share")
        for family in Family:
            try:
                self.chunking(family)
            except BadInput as error:
                raise BadInput(error.reason, place=f"ipv{family.value}_chunk") from None

    def chunking(self, family: Family) -> Chunking:
        """How addresses of an IP version are cut."""
        return Chunking(family, self.ipv4_chunk if family is Family.IPV4 else self.ipv6_chunk)

    def check_lines(self, lines: int, chunks: int) -> None:
        """Raises TooLarge for more lines than there are entries, with what would fit."""
        if lines <= self.most_lines:
            return
        fits = -(-chunks // self.most_lines) + 1
        denser = f"a line of {self.width} bits holds no {fits} chunks, as they would take"
        if fits <= self.width:
            rate = union(exact(self.width, self.functions, fits), self.most_lines)
            denser = (
                f"with {fits} chunks a line they would fit, and a share of {rate:.2g} of nobody's addresses would pass"
            )
        larger = 1 << math.ceil(math.log2(lines / self.most_lines))
        raise TooLarge(
            f"{chunks} chunks take {lines} lines of {self.per_line}, and there are entries for {self.most_lines}: "
            f"{denser}; or take larger chunks, {larger} times as large where they are neighbours",
            place="most_lines",
        )

    def check_heavy(self, entries: int) -> None:
        """Raises TooLarge for more entries of heavy hitters than there is room for."""
        if entries > self.most_heavy:
            raise TooLarge(
                f"the heavy hitters take {entries} entries, and there is room for {self.most_heavy}", place="most_heavy"
            )


def _check_between(low: int, value: int, high: int, place: str, what: str) -> None:
    if not low <= value <= high:
        raise BadInput(f"{value} {what}: there can be {low} to {high}", place=place)
