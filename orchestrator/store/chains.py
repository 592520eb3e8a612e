"""A transaction's additions to the audit trail: chain heads and digests of rows.

A chain belongs to one store of one process, where one transaction at a time adds to it; so its head is known without
asking the database, until a commit ends without an answer.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from orchestrator.wire.audit import genesis


@dataclass(frozen=True, slots=True)
class Head:
    """The newest entry of a chain: its number and its hash.

    Number 0: the chain has no entry yet.
    """

    number: int
    hash: bytes


class Chain:
    """The chain of this process. Not to be shared between threads without a lock."""

    def __init__(self) -> None:
        self.name = uuid.uuid4().hex
        self.first = Head(0, genesis(self.name))
        self.head: Head | None = self.first
        """None: a commit ended without an answer, so the database has to be asked."""

    def commit(self, head: Head | None) -> None:
        """Take a committed transaction's head; None: it wrote no entry."""
        if head is not None:
            self.head = head

    def doubt(self, head: Head | None) -> None:
        """Forget the head, because nobody knows whether the transaction was committed."""
        if head is not None:
            self.head = None


@dataclass(slots=True)
class EditedRows:
    """Running SHA-256 of the list rows that a piece of work ended and began.

    Each digest takes its rows in the order of the work.
    """

    ended: Any = field(default_factory=hashlib.sha256)
    begun: Any = field(default_factory=hashlib.sha256)
    begun_bytes: int = 0
    """The size of the rows that began, until the tenant's storage was charged with it."""

    def end(self, rows: Iterable[tuple[object, ...]]) -> None:
        """Add rows that ended with this version."""
        self.ended.update(_write_lines(rows))

    def begin(self, rows: Iterable[tuple[object, ...]]) -> None:
        """Add rows that began; the last value of each is its text."""
        listed = list(rows)
        self.begun.update(_write_lines(listed))
        self.begun_bytes += sum([len(str(row[-1])) + ROW_BYTES for row in listed])


def _write_lines(rows: Iterable[tuple[object, ...]]) -> bytes:
    return "".join(["\t".join(map(str, row)) + "\n" for row in rows]).encode()


ROW_BYTES = 128
"""The size of a row beside its text, with its indexes."""
NO_ROWS = hashlib.sha256().digest()
"""The digest of no rows at all."""
