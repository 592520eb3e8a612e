"""Who looks after open connections: when it looks, and whom it cuts off."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable

import pytest

from orchestrator import serving
from orchestrator.errors import Busy
from orchestrator.serving import Certified, Guard


class Connection(Certified):
    """One that is open, with a certificate or without."""

    def __init__(self, fingerprint: bytes | None) -> None:
        self.fingerprint = fingerprint
        self.is_cut = False

    def end(self) -> None:
        self.is_cut = True


class Book:
    """Which certificates stand for nobody, and how often that was asked."""

    def __init__(self, counts: bool = True) -> None:
        self.gone: set[bytes] = set()
        self.changes: int | None = 0 if counts else None
        self.asked: list[set[bytes]] = []
        self.fault: Exception | None = None

    def revoke(self, fingerprint: bytes) -> None:
        self.gone.add(fingerprint)
        if self.changes is not None:
            self.changes += 1

    def invalid(self, fingerprints: Iterable[bytes]) -> Collection[bytes]:
        if self.fault is not None:
            raise self.fault
        self.asked.append(set(fingerprints))
        return self.gone & self.asked[-1]


def looked(guard: Guard, *connections: object) -> int:
    return asyncio.run(guard.look(connections))


def test_every_connection_of_who_is_revoked_is_cut_and_no_other() -> None:
    book = Book()
    guard = Guard(book.invalid, lambda: book.changes)
    revoked, too, other, anonymous = Connection(b"a"), Connection(b"a"), Connection(b"b"), Connection(None)
    book.revoke(b"a")
    assert looked(guard, revoked, too, other, anonymous, object()) == 2
    assert [each.is_cut for each in (revoked, too, other, anonymous)] == [True, True, False, False]
    assert book.asked == [{b"a", b"b"}]


def test_where_nobody_else_revokes_it_looks_when_somebody_was() -> None:
    book = Book()
    guard = Guard(book.invalid, lambda: book.changes)
    held = Connection(b"a")
    for _ in range(3):
        looked(guard, held)
    assert len(book.asked) == 1
    book.revoke(b"b")
    looked(guard, held)
    assert len(book.asked) == 2


def test_now_and_then_it_looks_anyhow_for_certificates_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "_GUARD_ANYHOW_S", 0.0)
    book = Book()
    guard = Guard(book.invalid, lambda: book.changes)
    held = Connection(b"a")
    looked(guard, held)
    book.gone.add(b"a")
    looked(guard, held)
    assert held.is_cut


def test_where_others_revoke_too_it_looks_every_time() -> None:
    book = Book(counts=False)
    guard = Guard(book.invalid, lambda: book.changes)
    held = Connection(b"a")
    looked(guard, held)
    book.revoke(b"a")
    looked(guard, held)
    assert held.is_cut


def test_a_look_that_failed_is_not_taken_for_one() -> None:
    book = Book()
    guard = Guard(book.invalid, lambda: book.changes)
    held = Connection(b"a")
    book.revoke(b"a")
    book.fault = Busy("locked")
    with pytest.raises(Busy):
        looked(guard, held)
    book.fault = None
    looked(guard, held)
    assert held.is_cut


@pytest.mark.parametrize("fault", [Busy("locked"), ValueError("a fault of ours")])
def test_watching_goes_on_while_looking_fails(monkeypatch: pytest.MonkeyPatch, fault: Exception) -> None:
    monkeypatch.setattr(serving, "GUARD_EVERY_S", 0.0)
    book = Book()
    book.fault = fault
    held = Connection(b"a")
    book.revoke(b"a")

    async def watched() -> None:
        task = asyncio.create_task(Guard(book.invalid, lambda: book.changes).watch([held]))
        for _ in range(50):
            await asyncio.sleep(0)
        assert not task.done()
        book.fault = None
        while not held.is_cut:
            await asyncio.sleep(0.001)
        task.cancel()

    asyncio.run(asyncio.wait_for(watched(), 20))
