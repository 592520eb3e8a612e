"""Verify an audit trail: each chain's entries, and anchors kept outside the database.

    changed     an entry's hash is not that of its words after the entry before it
    deleted     numbers are missing between two entries
    reordered   an entry stands before one with a lower number
    truncated   an anchor names an entry that is not there any more
    rewritten   an anchor names another hash than the entry has: all up to it may have been written anew

The oldest entries of a chain may be missing where an anchor vouches for the last of them, and an entry `audit.pruned`
says that entries as old as that anchor were taken out. An anchor must vouch for that entry, too: whoever has the
database can add entries to a chain whose process has ended. Entries after the newest anchor of a chain could be cut off
without a trace.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from orchestrator.identity.auditkey import is_signed
from orchestrator.wire.audit import AuditAnchor, AuditEntry, genesis

PRUNED = "audit.pruned"
"""The kind of entry that says up to which time older ones were taken out."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that is wrong with a chain, and at which of its entries."""

    chain: str
    number: int
    reason: str


@dataclass(frozen=True, slots=True)
class Verified:
    """The result: entries checked, faults, and each chain's last anchored entry."""

    entries: int
    chains: int
    anchors: int
    faults: tuple[Fault, ...]
    keys: frozenset[str]
    """Keys of anchors that are signed, and that nobody has said to be right."""
    unanchored: int
    """Entries after the newest anchor of their chain: they could be cut off without a trace."""


@dataclass(slots=True)
class _ChainState:
    """A chain as far as it was read."""

    first: int
    before: AuditAnchor | None
    """The anchor of the entry before the first; None: there is none, or the chain is whole."""
    number: int = 0
    hash: bytes = b""


@dataclass(slots=True)
class Verifier:
    """Reads a trail once, from its oldest entry on.

    `keys` are the public keys to believe; none: any.
    """

    anchors: Iterable[AuditAnchor]
    keys: Collection[str] = ()
    _faults: list[Fault] = field(default_factory=list)
    _anchored: dict[str, dict[int, list[AuditAnchor]]] = field(default_factory=dict)
    _chains: dict[str, _ChainState] = field(default_factory=dict)
    _pruned: dt.datetime | None = None
    _unknown: set[str] = field(default_factory=set)
    _entries: int = 0
    _count: int = 0

    def __post_init__(self) -> None:
        for anchor in self.anchors:
            self._count += 1
            if not is_signed(anchor):
                self._fault(anchor.chain, anchor.number, "an anchor of it has a wrong signature")
            elif self.keys and anchor.key not in self.keys:
                self._fault(anchor.chain, anchor.number, "an anchor of it is signed by a key that is not believed")
            else:
                self._unknown.update([] if self.keys else [anchor.key])
                self._anchored.setdefault(anchor.chain, {}).setdefault(anchor.number, []).append(anchor)

    def read(self, entry: AuditEntry) -> None:
        """Take the next entry."""
        self._entries += 1
        chain = self._chains.get(entry.chain)
        if chain is None:
            chain = self._chains[entry.chain] = self._begin_chain(entry)
        elif entry.number <= chain.number:
            self._fault(entry.chain, entry.number, f"stands after entry {chain.number}: moved, or there twice")
            return
        elif entry.number > chain.number + 1:
            self._fault(entry.chain, chain.number + 1, f"is missing, up to entry {entry.number - 1}")
            chain.hash = b""
        is_linked = not chain.hash or entry.link(chain.hash).hex() == entry.hash
        if not is_linked:
            self._fault(entry.chain, entry.number, "was changed: its hash is another one")
        elif entry.kind == PRUNED and chain.hash and entry.number <= max(self._anchored.get(entry.chain, (0,))):
            self._take_pruned(entry)
        chain.number, chain.hash = entry.number, bytes.fromhex(entry.hash)
        for anchor in self._anchored.get(entry.chain, {}).get(entry.number, ()):
            if anchor.hash != entry.hash:
                when = anchor.time.isoformat()
                self._fault(entry.chain, entry.number, f"is not what was anchored at {when}: it was written anew")

    def result(self) -> Verified:
        """Return what was found, when all entries were read."""
        unanchored = 0
        for name, chain in self._chains.items():
            if chain.first > 1:
                self._check_beginning(name, chain.first, chain.before)
            newest = max(self._anchored.get(name, {0: []}))
            unanchored += max(0, chain.number - max(newest, chain.first - 1))
        for name, numbers in self._anchored.items():
            self._check_end(name, numbers)
        return Verified(
            self._entries, len(self._chains), self._count, tuple(self._faults), frozenset(self._unknown), unanchored
        )

    def _begin_chain(self, entry: AuditEntry) -> _ChainState:
        if entry.number == 1:
            return _ChainState(1, None, 0, genesis(entry.chain))
        anchors = self._anchored.get(entry.chain, {}).get(entry.number - 1, [])
        before = anchors[0] if anchors else None
        return _ChainState(
            entry.number, before, entry.number - 1, bytes.fromhex(before.hash) if before is not None else b""
        )

    def _take_pruned(self, entry: AuditEntry) -> None:
        try:
            before = dt.datetime.fromisoformat(str(entry.detail.get("before")))
        except ValueError:
            return
        self._pruned = before if self._pruned is None else max(before, self._pruned)

    def _check_beginning(self, chain: str, first: int, before: AuditAnchor | None) -> None:
        """Whether the entries before a chain's first were taken out because they were old."""
        missing = f"is missing, up to entry {first - 1}"
        if before is None:
            self._fault(chain, 1, f"{missing}: no anchor vouches for what stood before entry {first}")
        elif self._pruned is None or before.time > self._pruned:
            self._fault(chain, 1, f"{missing}: nothing says that so young entries were taken out")

    def _check_end(self, chain: str, numbers: dict[int, list[AuditAnchor]]) -> None:
        """Whether the newest entry that was anchored is there."""
        last, state = max(numbers), self._chains.get(chain)
        when = numbers[last][0].time
        if state is None:
            if self._pruned is None or when > self._pruned:
                self._fault(chain, 1, f"is missing, up to entry {last}, anchored at {when.isoformat()}: all of it")
        elif state.number < last:
            self._fault(
                chain,
                state.number + 1,
                f"is missing, up to entry {last}, anchored at {when.isoformat()}: the end is cut",
            )

    def _fault(self, chain: str, number: int, reason: str) -> None:
        """Note what is wrong with an entry of a chain."""
        self._faults.append(Fault(chain, number, reason))
