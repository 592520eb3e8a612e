"""Sets of packets on their way through chains: certain ones, possible ones, and reasons."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.policy.formats.assemble import Doubt
from orchestrator.policy.space import Box, remaining

Region = tuple[Box, ...]


@dataclass(frozen=True, slots=True)
class Way:
    """The packets that come to a place, surely and perhaps, and why the two differ."""

    sure: Region
    maybe: Region
    doubts: tuple[Doubt, ...] = ()

    @property
    def exact(self) -> bool:
        return self.sure is self.maybe or self.sure == self.maybe


NOWHERE = Way((), ())


def both(way: Way, own: Way) -> Way:
    """The packets on a way that are also on another."""
    maybe = cross(way.maybe, own.maybe)
    if way.exact and own.exact:
        return Way(maybe, maybe)
    sure = cross(way.sure, own.sure)
    return Way(maybe, maybe) if sure == maybe else Way(sure, maybe, _each_once(way.doubts, own.doubts))


def without(here: Way, gone: Way) -> Way:
    """The packets on a way that have not gone another."""
    if here.exact and gone.exact:
        maybe = remaining(here.maybe, gone.maybe)
        return Way(maybe, maybe)
    doubts = here.doubts if gone.exact else _each_once(here.doubts, gone.doubts)
    return Way(remaining(here.sure, gone.maybe), remaining(here.maybe, gone.sure), doubts)


def work(left: Region, right: Region) -> int:
    """Return the steps to compare two regions.

    One for each pair of boxes, more where these list many addresses.
    """
    return (len(right) * _spans_of(left) + len(left) * _spans_of(right)) // 4


def _spans_of(region: Region) -> int:
    return sum(len(box.source) + len(box.destination) for box in region)


def cross(left: Region, right: Region) -> Region:
    """The packets in both regions."""
    pieces = (one.intersect(other) for one in left for other in right)
    return tuple(piece for piece in pieces if piece is not None)


def _each_once(first: tuple[Doubt, ...], second: tuple[Doubt, ...]) -> tuple[Doubt, ...]:
    return tuple(dict.fromkeys((*first, *second)))
