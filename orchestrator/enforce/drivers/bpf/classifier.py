"""The classifier's program in the kernel: given rows, of which it makes bit vectors; docs/firewall-servers.md.

    chosen       one place: the head of a set, or nothing
    intervals    for each half of it: the addresses of IPv4
    intervals6   for each half: the addresses of IPv6
    classes      for each half: ports and protocol of IPv4, then of IPv6
    vectors      for each half: the axes of IPv4, then those of IPv6
    outcomes     for each half: the rows of IPv4, then of IPv6

The tables of a set go into the half that the set before it does not use; then the set is put into its place.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from orchestrator.compile.filters.cacherows import CacheRow
from orchestrator.compile.servers.bitvectors import Axis, bit_vectors, in_order
from orchestrator.enforce.drivers.bpf import classifierlayout as layout
from orchestrator.enforce.drivers.bpf import libbpf
from orchestrator.enforce.drivers.bpf.layout import FlowSet
from orchestrator.enforce.drivers.bpf.program import ONLY, KernelProgram, Kind
from orchestrator.policy.addresses import Family

OBJECT = Path(__file__).parent / "classifier.bpf.o"
_ROOT = "chosen"
_KIND = Kind(lambda: OBJECT, 0xAD, _ROOT)
_MAPS = ("intervals", "intervals6", "classes", "vectors", "outcomes")
"""The maps of maps in which a set's tables are."""
_CLASSES, _VECTORS, _AXES, _ADDRESSES = 6, 10, 5, 2


class KernelClassifier(KernelProgram):
    """The classifier of the network namespace that its methods are called in, at some interfaces.

    `remembers`: rows are remembered by flow, which makes of it a flow cache before a classifier.
    """

    def __init__(self, interfaces: Sequence[str], *, remembers: bool = True) -> None:
        super().__init__(_KIND, interfaces)
        self._remembers = remembers
        self._held: tuple[int, FlowSet] | None = None

    def open(self, held: FlowSet) -> None:
        """Decide by these rows from now on, at every interface. Raises TooLarge, Refused, Missing, Unreachable."""
        loaded = self._make_room(cookie for row in held.rows for cookie in row.counts)
        half = 1 - self._half(loaded)
        serial = int.from_bytes(os.urandom(8), "little") | 1
        with made_tables(half, held.rows, self._place) as made:
            head = layout.rule_set(held, serial, half, remembers=self._remembers)
            made[_ROOT] = {ONLY: _table(_ROOT, head)}
            for name, maps in made.items():
                libbpf.stand(loaded.maps[name], maps)
        self._held = serial, held

    def read(self) -> FlowSet | None:
        """Return the active set.

        None while it is closed, where an interface lacks it, or if another process opened it.
        """
        loaded = self._find_program()
        if loaded is None or self._held is None or not self._is_attached_everywhere(loaded):
            return None
        serial, held = self._held
        chosen = self._read_chosen(loaded)
        return held if chosen is not None and layout.serial_of(chosen) == serial else None

    def _half(self, loaded: libbpf.Loaded) -> int:
        """The half that is in use; the second if none is."""
        chosen = self._read_chosen(loaded)
        return 1 if chosen is None else layout.half_of(chosen)

    def _read_chosen(self, loaded: libbpf.Loaded) -> bytes | None:
        current = libbpf.inner(loaded.maps[_ROOT], ONLY)
        if current is None:
            return None
        try:
            return libbpf.value(current, ONLY, layout.RULE_SET_BYTES)
        finally:
            os.close(current)


@contextmanager
def made_tables(
    half: int, rows: Sequence[CacheRow], counter: Callable[[int], int]
) -> Iterator[dict[str, dict[int, int]]]:
    """Make the tables of a set in one half; yield descriptors by map and place.

    They are closed at the end, with those that were added. A map of maps keeps what was put into it. `counter`: the
    place of a cookie's counter. Raises TooLarge, Refused, Missing.
    """
    made: dict[str, dict[int, int]] = {name: {} for name in _MAPS}
    try:
        for place, (family, those) in enumerate(in_order(rows)):
            _fill(made, half, place, family, bit_vectors(those).axes)
            outcomes = layout.outcomes(those, counter)
            made["outcomes"][half * len(Family) + place] = _table("outcomes", outcomes)
        yield made
    finally:
        for maps in made.values():
            for descriptor in maps.values():
                os.close(descriptor)


def _fill(made: dict[str, dict[int, int]], half: int, place: int, family: Family, axes: Sequence[Axis]) -> None:
    """The tables of one IP version's axes, at their places in the maps of maps."""
    for number, axis in enumerate(axes):
        vectors = libbpf.new_long_array("vectors", layout.VECTOR_BYTES, layout.vectors(axis))
        made["vectors"][half * _VECTORS + place * _AXES + number] = vectors
        if number >= _ADDRESSES:
            behind = half * _CLASSES + place * (_AXES - _ADDRESSES) - _ADDRESSES
            made["classes"][behind + number] = _table("classes", layout.classes(axis))
        elif family is Family.IPV6:
            made["intervals6"][half * _ADDRESSES + number] = _table("intervals6", layout.intervals6(axis))
        else:
            made["intervals"][half * _ADDRESSES + number] = _table("intervals", layout.intervals(axis))


def _table(name: str, data: bytes) -> int:
    """A map with one value."""
    made = libbpf.new_array(name, len(data))
    libbpf.put(made, ONLY, data)
    return made
