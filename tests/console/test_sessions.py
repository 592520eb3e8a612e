"""Who is signed in: browsers with one token share it, the last one gives it back, and nobody is idle for ever."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from api.console import sessions as console_sessions
from api.console.sessions import IDLE_S, LASTS_S, Bearer, Sessions
from orchestrator.errors import Unauthenticated

made: list[FakeClient] = []


class FakeClient:
    """A client of a service that knows every token but one."""

    def __init__(self, _url: str, token: str, **_more: object) -> None:
        self.token = token
        self.is_closed = False
        self.tokens = self
        made.append(self)

    def read_own(self) -> object:
        if self.token == "wrong":
            raise Unauthenticated("unknown")
        return SimpleNamespace(tenant="blue", role="member")

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def now() -> list[float]:
    return [0.0]


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch, now: list[float]) -> Sessions:
    monkeypatch.setattr(console_sessions, "Client", FakeClient)
    made.clear()
    return Sessions("http://service", clock=lambda: now[0])


def test_browsers_with_one_token_share_it_until_the_last_has_gone(sessions: Sessions) -> None:
    first, second, other = (sessions.sign_in(token) for token in ("a", " a ", "b"))
    assert [sessions.of(each).client for each in (first, second, other)] == [made[0], made[0], made[2]]  # type: ignore[union-attr]
    assert [each.is_closed for each in made] == [False, True, False], "one client is enough for a token"
    sessions.sign_out(first)
    assert (sessions.of(first), made[0].is_closed) == (None, False)
    sessions.sign_out(second)
    assert made[0].is_closed
    sessions.close()
    assert all(each.is_closed for each in made)


def test_who_is_idle_is_forgotten(sessions: Sessions, now: list[float]) -> None:
    idle, busy = sessions.sign_in("a"), sessions.sign_in("b")
    now[0] = IDLE_S
    assert sessions.of(busy) is not None
    now[0] += 1.0
    sessions.sign_in("c")
    assert [each.is_closed for each in made] == [True, False, False]
    assert (sessions.of(idle), sessions.of("made up"), sessions.of(None)) == (None, None, None)
    assert sessions.of(busy) is not None


def test_a_session_ends_after_its_time_whatever_is_done_in_it(sessions: Sessions, now: list[float]) -> None:
    """Pages that are still open hold the session: they read nothing more, also where others have the same token."""
    first = sessions.sign_in("a")
    held = sessions.of(first)
    assert held is not None
    while now[0] <= LASTS_S - IDLE_S:
        now[0] += IDLE_S
        assert sessions.of(first) is held
    second = sessions.of(sessions.sign_in("a"))
    assert second is not None
    now[0] = LASTS_S + 1.0
    with pytest.raises(Unauthenticated):
        _ = held.client
    assert sessions.of(first) is None
    assert second.client is made[0]  # type: ignore[comparison-overlap]


def test_an_open_page_reads_nothing_after_its_session_was_signed_out(sessions: Sessions) -> None:
    first, second = sessions.sign_in("a"), sessions.sign_in("a")
    held, other = sessions.of(first), sessions.of(second)
    assert held is not None
    assert other is not None
    sessions.sign_out(first)
    with pytest.raises(Unauthenticated):
        _ = held.client
    assert other.client is made[0]  # type: ignore[comparison-overlap]


def test_a_wrong_token_begins_nothing(sessions: Sessions) -> None:
    with pytest.raises(Unauthenticated):
        sessions.sign_in("wrong")
    assert made[0].is_closed
    assert not sessions.by_secret


def test_who_signs_in_while_the_last_one_with_the_token_signs_out_can_read(sessions: Sessions) -> None:
    first = sessions.sign_in("a")
    leaves = threading.Thread(target=sessions.sign_out, args=(first,))

    class Meanwhile(dict[bytes, Bearer]):
        def setdefault(self, key: bytes, bearer: Bearer) -> Bearer:  # type: ignore[override]
            found = super().setdefault(key, bearer)
            leaves.start()
            leaves.join(0.2)
            return found

    sessions.bearers = Meanwhile(sessions.bearers)
    session = sessions.of(sessions.sign_in("a"))
    leaves.join()
    assert session is not None
    assert session.client is made[0]  # type: ignore[comparison-overlap]
    assert not made[0].is_closed
