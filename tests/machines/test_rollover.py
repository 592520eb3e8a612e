"""The authority is rolled over: points that run are carried along, those that were away have to enrol again."""

from __future__ import annotations

import re
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from served import Served, served
from store.postgres_cluster import running

from orchestrator.cli.run import main
from orchestrator.client import Client
from orchestrator.enforce.enrolment import Admission, Membership, obtain_admission
from orchestrator.enforce.identity import Renewal
from orchestrator.enforce.state import StateDir
from orchestrator.errors import Conflict, Unauthenticated, Unreachable
from orchestrator.identity.authority import is_signed_by
from orchestrator.identity.files import AuthorityDir, Rollover, read_certificate
from orchestrator.lab.processes import free_port
from orchestrator.store.migrate import upgrade

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
        membership = Membership(url, folder / name, name, token=admin.enrolment.invite("pop1"))
        admission = obtain_admission(membership, "nftables", state, threading.Event())
        assert admission is not None
        renewal = Renewal(
            admission.identity,
            admission.credentials,
            admission.service.points,
            admission.service.enrolment.read_authority,
            admission.connect_anew,
            laid_down_after_s=0.0,
        )
        admission.service.close()
        return cls(folder, name, admission, renewal)

    def look(self) -> None:
        self.renewal.look()
        self.admission.service.close()  # the service is stopped soon, and would wait for this connection

    def speak(self) -> None:
        self.admission.service.points.begin_epoch("pop1", self.admission.credentials.enforcer)
        self.admission.service.close()


@dataclass
class Site:
    """A service that is started again with the same files at the same port."""

    folder: Path
    port: int
    database_url: str = ""

    @property
    def place(self) -> AuthorityDir:
        return AuthorityDir(self.folder / "authority")

    @contextmanager
    def up(self) -> Iterator[Served]:
        with served(self.folder, tls=True, listen_port=self.port, database_url=self.database_url) as service:
            yield service

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
        admin.domains.create("pop1")
        runs, heard, away = (Point.enrol(service.url, tmp_path, name, admin) for name in ("runs", "heard", "away"))
        early = admin.enrolment.invite("pop1")
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


class Balancer:
    """A port in front of services: each connection goes on to the one that it `leads_to` by then."""

    def __init__(self) -> None:
        self.leads_to = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._pass_on, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        self._listener.close()

    def _pass_on(self) -> None:
        with suppress(OSError):
            while True:
                came, _ = self._listener.accept()
                led = socket.create_connection(("127.0.0.1", self.leads_to))
                for ends in ((came, led), (led, came)):
                    threading.Thread(target=_pass_bytes, args=ends, daemon=True).start()


def _pass_bytes(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    for each in (source, target):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


@dataclass
class Replica:
    """One of several services of a database, which is restarted beside the others."""

    site: Site
    life: ExitStack = field(default_factory=ExitStack)

    def restart(self) -> Served:
        self.life.close()
        return self.life.enter_context(self.site.up())

    def take_files_of(self, first: Replica) -> None:
        """Have the same authorities as the first service, and none that it has no more."""
        self.site.place.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in ("authority.key", "authority.pem", "next.key", "next.pem", "former.pem"):
            here = self.site.place.path / name
            here.unlink(missing_ok=True)
            if (first.site.place.path / name).exists():
                shutil.copy(first.site.place.path / name, here)


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with running() as cluster:
        url = cluster.create_database("rolled")
        upgrade(url)
        monkeypatch.setenv("ACLFLOW_DATABASE_URL", url)
        yield url


@dataclass
class Pair:
    """Two services of one database behind one address, and points that find the one or the other."""

    first: Replica
    second: Replica
    balancer: Balancer
    capsys: pytest.CaptureFixture[str]
    points: list[Point] = field(default_factory=list)

    @property
    def replicas(self) -> tuple[Replica, Replica]:
        return self.first, self.second

    def lead_to(self, replica: Replica) -> None:
        self.balancer.leads_to = replica.site.port

    def enrol(self, folder: Path) -> None:
        """Start both services, and enrol a point at each."""
        with self.first.restart().client() as admin:
            self.second.take_files_of(self.first)
            self.second.restart()
            admin.domains.create("pop1")
            for replica, name in zip(self.replicas, ("fw1", "fw2"), strict=True):
                self.lead_to(replica)
                self.points.append(Point.enrol(f"https://127.0.0.1:{self.balancer.port}", folder, name, admin))

    def look(self) -> None:
        for point in self.points:
            point.look()

    def speak_to_both(self) -> None:
        for replica in self.replicas:
            self.lead_to(replica)
            for point in self.points:
                point.speak()

    def step(self, *options: str) -> None:
        """Take a step at the first service, while the second is where it was."""
        at = [word for each in self.replicas for word in ("--service", f"https://127.0.0.1:{each.site.port}")]
        self.first.site.rotate(*options, *at)
        self.first.restart()
        self.speak_to_both()
        stage, _ = self.first.site.place.stage, self.capsys.readouterr()
        self.first.site.rotate(*at, code=1)  # the next step
        said = f"127.0.0.1:{self.second.site.port} does not believe the authorities that are here"
        assert said in self.capsys.readouterr().err
        assert self.first.site.place.stage is stage, "nothing was done"

    def follow(self) -> None:
        """Have the second service take the step, too."""
        self.second.take_files_of(self.first)
        self.second.restart()
        self.speak_to_both()


@pytest.fixture
def pair(site: Site, database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Pair]:
    first = Replica(Site(site.folder, site.port, database))
    second = Replica(Site(tmp_path / "second", free_port(), database))
    with first.life, second.life, closing(Balancer()) as balancer:
        made = Pair(first, second, balancer, capsys)
        made.enrol(tmp_path)
        yield made


def test_services_of_one_database_are_rolled_over_one_after_the_other(pair: Pair) -> None:
    """Points find one service or the other at each step, also while only the first one has taken it."""
    first, second, points = pair.first, pair.second, pair.points
    old = read_certificate(first.site.place.certificate)
    pair.step()
    pair.follow()
    pair.look()
    pair.step()
    pair.lead_to(first)
    points[0].look()
    assert points[0].renewal.is_switching, "the first service signs by the new authority"
    pair.lead_to(second)
    points[1].look()
    assert not points[1].renewal.is_switching, "the second one does not yet"
    pair.speak_to_both()
    pair.follow()
    for _ in range(2):  # renew, and lay the old certificate down
        pair.look()
    assert not any(is_signed_by(_pem_of(point), old) for point in points)
    pair.step("--finish")
    pair.follow()
    here = first.site.place.certificate.read_text()
    assert [replica.site.place.read_believed() for replica in pair.replicas] == [here, here]
    pair.look()
    pair.speak_to_both()


def _pem_of(point: Point) -> str:
    return point.admission.identity.certificate().public_bytes(PEM).decode()


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
