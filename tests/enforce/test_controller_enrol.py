"""Enrolling happens once: afterwards, and without the service, the credentials on the disk serve."""

from __future__ import annotations

import datetime as dt
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from orchestrator.enforce.enrolment import Membership, obtain_credentials
from orchestrator.enforce.state import Credentials, StateDir
from orchestrator.enforce.watch import Patience
from orchestrator.errors import Missing, NotFound, Unauthenticated, Unreachable
from orchestrator.wire.enrolment import Enrolment

ME = Credentials("pop1", 3, "bearer", 7, "c1")


class Office:
    """A service that enrols whoever comes with the right token, once it is there."""

    def __init__(self, *absences: Exception) -> None:
        self.absences = list(absences)
        self.asked: list[tuple[str, str, str]] = []
        self.expires: dt.datetime | None = None

    def connect(self, url: str, trust: ssl.SSLContext | None) -> Office:
        assert (url, trust) == ("http://service", None)
        return self

    def close(self) -> None:
        pass

    def read_authority(self) -> str:
        raise NotFound("there is none")

    def enrol(
        self, token: str, *, name: str, kind: str, csr: str | None = None, instance: str | None = None
    ) -> Enrolment:
        assert (csr, instance) == (None, None)
        self.asked.append((token, name, kind))
        if self.absences:
            raise self.absences.pop(0)
        known = {"enforcer": 3, "domain": "pop1", "token": "bearer", "epoch": 7, "name": name, "expires": self.expires}
        return Enrolment(certificate="", authority="", **known)  # type: ignore[arg-type]


def membership(folder: Path, token: str = "once") -> Membership:
    patience = Patience(retry_s=0.001, longest_retry_s=0.001)
    return Membership("http://service", folder, "c1", token=token, patience=patience)


def enrol(office: Office, folder: Path, token: str = "once") -> Credentials | None:
    return obtain_credentials(
        membership(folder, token), "openflow", StateDir(folder), office.connect, threading.Event()
    )


def test_it_enrols_once_in_its_life(tmp_path: Path) -> None:
    office = Office()
    assert enrol(office, tmp_path) == ME
    assert enrol(office, tmp_path) == ME
    assert enrol(office, tmp_path, token="") == ME
    assert office.asked == [("once", "c1", "openflow")]


def test_where_its_token_has_ended_it_enrols_again_with_another_one(tmp_path: Path) -> None:
    """With the token that was used up it goes on with what it has, for its clock may be wrong."""
    office = Office()
    office.expires = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=1)
    assert enrol(office, tmp_path) == ME
    assert enrol(office, tmp_path, token="") == ME
    office.absences = [Unauthenticated("the token was used")]
    assert enrol(office, tmp_path) == ME
    office.absences = [Unreachable("away")]
    assert enrol(office, tmp_path) == ME
    assert StateDir(tmp_path).credentials() == ME
    office.expires = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
    assert enrol(office, tmp_path, token="new") == ME
    assert enrol(office, tmp_path, token="new") == ME
    assert [token for token, *_ in office.asked] == ["once", "once", "once", "new"]


def test_it_waits_for_a_service_that_is_still_away(tmp_path: Path) -> None:
    office = Office(Unreachable("away"), Unreachable("away"))
    assert enrol(office, tmp_path) == ME
    assert len(office.asked) == 3


def test_waiting_ends_when_it_is_told_to(tmp_path: Path) -> None:
    stopping = threading.Event()
    stopping.set()
    assert obtain_credentials(membership(tmp_path), "openflow", StateDir(tmp_path), Office().connect, stopping) is None


def test_without_credentials_it_needs_a_token(tmp_path: Path) -> None:
    with pytest.raises(Missing, match="token: there are no credentials yet"):
        enrol(Office(), tmp_path, token="")


def test_a_used_token_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(Unauthenticated):
        enrol(Office(Unauthenticated("the token was used")), tmp_path)
    assert StateDir(tmp_path).credentials() is None


def test_a_token_is_not_used_up_for_credentials_that_cannot_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", cast("Callable[[int], None]", full))
    office = Office()
    with pytest.raises(Missing, match="No space left"):
        enrol(office, tmp_path)
    assert office.asked == []
