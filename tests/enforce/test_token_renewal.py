"""The token of an enforcement point without a certificate is renewed in time, and never lost on the way."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from orchestrator.enforce.identity import Identity, TokenRenewal
from orchestrator.enforce.state import Credentials, StateDir
from orchestrator.errors import AclflowError, Missing, NotFound, Unauthenticated, Unreachable
from orchestrator.wire.enrolment import PointToken, RenewedToken

ME = Credentials("pop1", 3, "first", 7, "c1")
BEGIN, END = (dt.datetime(year, 1, 1, tzinfo=dt.UTC) for year in (2030, 2031))


class Registry:
    """A service that knows its tokens, and what it was asked."""

    def __init__(self) -> None:
        self.shown, self.good, self.due = "first", {"first"}, True
        self.asked: list[str] = []
        self.error: AclflowError | None = None

    def read_token(self, domain: str, enforcer: int) -> PointToken:
        self._ask("own")
        return PointToken(created=BEGIN, expires=END, due=self.due)

    def renew_token(self, domain: str, enforcer: int) -> RenewedToken:
        self._ask("renew")
        made = f"token{len(self.asked)}"
        self.good = {self.shown, made}
        return RenewedToken(token=made, expires=END)

    def show_token(self, token: str) -> None:
        self.shown, self.due = token, False

    def lay_down_certificates(self, domain: str, enforcer: int) -> None:
        self._ask("lay down")
        self.good = {self.shown}

    def _ask(self, what: str) -> None:
        if self.error is not None:
            raise self.error
        assert self.shown in self.good
        self.asked.append(what)


@pytest.fixture
def state(tmp_path: Path) -> StateDir:
    made = StateDir(tmp_path / "state")
    made.keep_credentials(ME)
    return made


def on_disk(state: StateDir) -> str:
    credentials = state.credentials()
    assert credentials is not None
    return credentials.token


def test_a_due_token_is_renewed_and_the_old_one_laid_down_later(state: StateDir) -> None:
    registry = Registry()
    renewal = TokenRenewal(state, ME, registry, laid_down_after_s=0.0)
    renewal.look()
    assert registry.shown == on_disk(state) == "token2"
    assert registry.good == {"first", "token2"}, "both hold for a while"
    renewal.look()
    renewal.look()
    assert registry.asked == ["own", "renew", "lay down", "own"]
    assert (registry.good, state.token_ends()) == ({"token2"}, END)


def test_the_old_token_stays_until_nothing_uses_it_any_more(state: StateDir) -> None:
    registry = Registry()
    renewal = TokenRenewal(state, ME, registry)
    for _ in range(3):
        renewal.look()
    assert registry.asked == ["own", "renew"]


def test_the_end_of_a_token_is_learned_before_it_is_due(state: StateDir) -> None:
    registry = Registry()
    registry.due = False
    TokenRenewal(state, ME, registry).look()
    assert (registry.asked, state.token_ends(), on_disk(state)) == (["own"], END, "first")


def test_a_token_that_cannot_be_kept_is_not_asked_for(state: StateDir, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    registry = Registry()
    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", cast("Callable[[int], None]", full))
        with pytest.raises(Missing, match="No space left"):
            TokenRenewal(state, ME, registry).look()
    assert (registry.asked, registry.shown, on_disk(state)) == (["own"], "first", "first")


def test_a_change_of_the_epoch_does_not_bring_an_old_token_back(state: StateDir) -> None:
    """The process still has the credentials that it began with."""
    TokenRenewal(state, ME, Registry()).look()
    state.change_credentials(ME, epoch=8)
    assert state.credentials() == Credentials("pop1", 3, "token2", 8, "c1")
    state.change_credentials(ME, token="token3")
    assert state.credentials() == Credentials("pop1", 3, "token3", 8, "c1")


def test_a_service_that_is_away_or_older_changes_nothing(state: StateDir) -> None:
    registry = Registry()
    renewal = TokenRenewal(state, ME, registry)
    registry.error = NotFound("there is no such path")
    renewal.look()
    registry.error = Unreachable("away")
    with pytest.raises(Unreachable):
        renewal.look()
    assert (registry.asked, on_disk(state)) == ([], "first")
    registry.error = None
    renewal.look()
    assert on_disk(state) == "token2"


def test_a_token_that_has_ended_is_told_with_what_to_do(state: StateDir) -> None:
    registry = Registry()
    registry.error = Unauthenticated("the token is not valid any more")
    with pytest.raises(Unauthenticated, match=r"not valid any more; .*aclflow domain invite"):
        TokenRenewal(state, ME, registry).look()


def test_an_identity_knows_when_its_token_has_ended(state: StateDir) -> None:
    identity, second = Identity(state), dt.timedelta(seconds=1)
    assert not identity.has_ended(END), "nobody has said"
    state.keep_token_ends(END)
    assert [identity.has_ended(now) for now in (END - second, END)] == [False, True]
    state.keep_token_ends(None)
    assert not identity.has_ended(END)
    state.write("token.ends", b"nonsense")
    assert not identity.has_ended(END)
