"""The content of the table of pairs, cached.

Asking the kernel for all of it takes time that grows with the square.

Every transaction of anybody in a network namespace moves the kernel's number of generation on by one. As long as it is
what our own transactions made it, the sets hold what they held. Otherwise a small table is read; a large one is held to
be unknown, and is made anew by whoever then writes everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from orchestrator.compile.servers.exactpairs import PAIR_SETS, Keys, PairSet, join_keys
from orchestrator.enforce.drivers.nftables.pairs import NAMES, PairTable

READABLE = 50_000
"""So many elements are read back within a tenth of a second or so."""
_LOOSE = 4_096
"""So many changes are kept beside the columns before they are worked in."""
_GENERATIONS = 0xFFFFFFFF

Change = Mapping[PairSet, Keys]


@dataclass(slots=True)
class _Held:
    """One set: elements as a sorted column, and what came and went since."""

    keys: Keys
    added: set[bytes] = field(default_factory=set)
    gone: set[bytes] = field(default_factory=set)

    def change(self, added: Keys, removed: Keys) -> None:
        """Add some keys and remove others; none is in both."""
        come, left = {key.tobytes() for key in added}, {key.tobytes() for key in removed}
        self.added = (self.added | come) - left
        self.gone = (self.gone | left) - come
        if len(self.added) + len(self.gone) > _LOOSE:
            self.settle()

    def settle(self) -> Keys:
        """All of it as a column."""
        if self.added or self.gone:
            width = self.keys.shape[1]
            come, gone = (_join_keys(keys, width) for keys in (self.added, self.gone))
            left = np.setdiff1d(_whole(np.concatenate([self.keys, come])), _whole(gone))
            self.keys = _key_bytes(left, width)
            self.added, self.gone = set(), set()
        return self.keys


class HeldPairs:
    """The pairs in the kernel, by what they were last known to be."""

    def __init__(self) -> None:
        self._table = PairTable()
        self._held: dict[PairSet, _Held] | None = None
        self._generation: int | None = None
        self.label: bytes | None = None
        """The table's label; None: it has none, or nobody knows."""

    @property
    def is_known(self) -> bool:
        """Whether what the sets hold is known for certain now."""
        return self._held is not None and self._generation == self._table.generation()

    def read(self) -> Change | None:
        """All elements; None where they cannot be known without making the table anew."""
        if not self.is_known:
            self._look()
        return None if self._held is None else {kind: held.settle() for kind, held in self._held.items()}

    def anew(self, pairs: Change, label: bytes) -> None:
        """Replace the table by one with these elements.

        It is made beside the old one, which goes then, so that what both permit is never dropped.
        """
        self._held = None
        fresh = PairTable(next(name for name in NAMES if name != self._table.name))
        fresh.remove()
        fresh.create()
        for kind, keys in pairs.items():
            fresh.load(kind, keys)
        fresh.change({}, {}, label)
        self._table.remove()
        self._table.close()
        self._table = fresh
        self._keep_known({kind: pairs.get(kind, join_keys((), kind)) for kind in PAIR_SETS}, label)

    def change(self, added: Change, removed: Change, label: bytes | None) -> None:
        """Add and remove elements and set the label, in one transaction unless large.

        Raises as `PairTable`.

        Only where all is known; an error means that nothing is known any more.
        """
        held, self._held = self._held, None
        assert held is not None
        done = self._table.change(added, removed, label, self.label)
        for kind in {*added, *removed}:
            none = join_keys((), kind)
            held[kind].change(added.get(kind, none), removed.get(kind, none))
        self._held, self.label = held, label
        self.moved_on(done)

    def moved_on(self, transactions: int) -> None:
        """Note that we made so many transactions in this network namespace."""
        if self._generation is not None:
            self._generation = (self._generation + transactions) & _GENERATIONS

    def has(self, kind: PairSet, key: bytes) -> bool:
        """Whether the kernel says that an element is there."""
        return bool(self._table.holds(kind, np.frombuffer(key, np.uint8).reshape(1, -1))[0])

    def kernels_label(self) -> bytes | None:
        """The label, as the kernel has it."""
        return self._table.label()

    # -------------------------------------------------------------------------------------------------------- inside

    def _look(self) -> None:
        """Read the content, if it is one correct table with little in it."""
        self._held = None
        there = [table for table in map(PairTable, NAMES) if table.is_there()]
        if len(there) != 1:
            return
        self._table.close()
        (self._table,) = there
        generation = self._table.generation()
        if not self._table.is_right():
            return
        found = {kind: self._table.elements(kind, READABLE) for kind in PAIR_SETS}
        known = {kind: keys for kind, keys in found.items() if keys is not None}
        label = self._table.label()
        if len(known) == len(PAIR_SETS) and generation == self._table.generation():
            self._keep_known(known, label)

    def _keep_known(self, found: Change, label: bytes | None) -> None:
        self._held = {kind: _Held(_key_bytes(np.unique(_whole(keys)), kind.key_bytes)) for kind, keys in found.items()}
        self.label = label
        self._generation = self._table.generation()


def _whole(keys: Keys) -> npt.NDArray[np.void]:
    """Each element as one value that can be compared."""
    return np.ascontiguousarray(keys).view(f"V{keys.shape[1]}").ravel()


def _key_bytes(whole: npt.NDArray[np.void], width: int) -> Keys:
    return np.frombuffer(whole.tobytes(), np.uint8).reshape(-1, width)


def _join_keys(keys: set[bytes], width: int) -> Keys:
    return np.frombuffer(b"".join(keys), np.uint8).reshape(-1, width)
