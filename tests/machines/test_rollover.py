"""The authority is rolled over: points that run are carried along, those that were away have to enrol again."""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from served import Served, served

from orchestrator.cli.run import main
from orchestrator.client import Client
from orchestrator.enforce.enrolment import Admission, Membership, obtain_admission
from orchestrator.enforce.identity import Renewal
from orchestrator.enforce.state import StateDir
from orchestrator.errors import Conflict, Unauthenticated, Unreachable
from orchestrator.identity.authority import is_signed_by
from orchestrator.identity.files import AuthorityDir, Rollover, read_certificate
from orchestrator.lab.ports import free_port

PEM = Encoding.PEM


@dataclass
class Point:
    """A firewall's agent as far as its identity goes, in the same process all the while."""

    folder: Path
    name: str
    admission: Admission
    renewal: Renewal

    @classmethod
    def enrol(cls, url: str, folder: Path, name: str, admin: Client) -> Point:
        state = StateDir(folder / name)
        membership = Membership(url, folder / name, name, token=admin.invite_enforcer("pop1"))
        admission = obtain_admission(membership, "nftables", state, threading.Event())
        assert admission is not None
        renewal = Renewal(
            admission.identity,
            admission.credentials,
            admission.service,
            admission.connect_anew,
            laid_down_after_s=0.0,
        )
        admission.service.close()
        return cls(folder, name, admission, renewal)

    def look(self) -> None:
        self.renewal.look()
        self.admission.service.close()  # the service is stopped soon, and would wait for this connection

    def speak(self) -> None:
        self.admission.service.new_epoch("pop1", self.admission.credentials.enforcer)
        self.admission.service.close()


@dataclass
class Site:
    """A service that is started again with the same files at the same port."""

    folder: Path
    port: int

    @property
    def place(self) -> AuthorityDir:
        return AuthorityDir(self.folder / "authority")

    @contextmanager
    def up(self) -> Iterator[Served]:
        with served(self.folder, tls=True, listen_port=self.port) as running:
            yield running

    def rotate(self, *options: str, code: int = 0) -> None:
        assert main(["certificates", "rotate", *options]) == code


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setenv("ACLFLOW_STATE_DIR", str(tmp_path / "service"))
    return Site(tmp_path / "service", free_port())


def test_points_that_run_are_carried_along_and_others_are_told_to_enrol_again(
    site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with site.up() as service, service.client() as admin:
        admin.create_domain("pop1")
        runs, heard, away = (Point.enrol(service.url, tmp_path, name, admin) for name in ("runs", "heard", "away"))
        early = admin.invite_enforcer("pop1")
    old = read_certificate(site.place.certificate)
    stolen = shutil.copytree(site.place.path, tmp_path / "thief" / "authority").parent
    site.rotate()
    with site.up():
        for point in (runs, heard, away):
            point.speak()
        for point in (runs, heard):
            point.look()
        assert is_signed_by(runs.admission.identity.certificate().public_bytes(PEM).decode(), old), "not yet"
    site.rotate()
    assert not site.place.next_key.exists()
    with site.up() as service:
        runs.look()
        assert runs.renewal.is_switching
        runs.look()
        runs.speak()
        heard.speak()
        with pytest.raises(Unreachable, match="rolled over while this machine was away, enrol it again"):
            away.speak()
        membership = Membership(service.url, tmp_path / "early", "early", token=early)
        with pytest.raises(Unreachable):  # a token that pins the former authority, which shows itself no more
            _once(membership, tmp_path / "early")
    assert not is_signed_by(runs.admission.identity.certificate().public_bytes(PEM).decode(), old)
    capsys.readouterr()
    site.rotate("--finish", code=1)
    said = capsys.readouterr()
    assert re.findall(r"(\w+) \([0-9a-f]{40}\)", said.err) == ["away", "heard"]
    site.rotate("--finish", "--despite")
    with site.up():
        runs.look()
        runs.speak()
        with pytest.raises((Unauthenticated, Unreachable), match="enrol again with a new token"):
            heard.speak()
        with pytest.raises(Unreachable, match="enrol it again"):
            away.speak()
    assert runs.admission.identity.state.authority_file.read_text() == site.place.certificate.read_text()
    with served(stolen, tls=True, listen_port=site.port), pytest.raises(Unreachable, match="not the service"):
        runs.speak()  # with the process that believed the former authority when it began


def _once(membership: Membership, folder: Path) -> None:
    """Enrol without waiting for a service that cannot be reached."""

    class Never(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            raise Unreachable("it would try again")

    obtain_admission(membership, "nftables", StateDir(folder), Never())


def test_a_roll_over_that_was_cut_off_goes_on(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    with site.up():
        pass
    old = site.place.certificate.read_text()
    coming = site.place.announce("second", read_certificate(site.place.certificate).not_valid_before_utc)
    with pytest.raises(Conflict):
        site.place.announce("third", read_certificate(site.place.certificate).not_valid_before_utc)
    with monkeypatch.context() as patched:
        patched.setattr(AuthorityDir, "load", _die)
        patched.setattr(Path, "unlink", _die)
        with pytest.raises(KeyboardInterrupt):
            site.place.take_over()
    assert site.place.stage is Rollover.ANNOUNCED
    assert site.place.take_over().pem == coming.pem
    assert site.place.former_certificate.read_text() == old
    assert site.place.read_believed() == coming.pem + old
    site.place.forget_former()
    with pytest.raises(Conflict):
        site.place.forget_former()


def _die(*_: object, **__: object) -> None:
    raise KeyboardInterrupt
