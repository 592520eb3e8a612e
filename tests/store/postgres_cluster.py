"""A private PostgreSQL cluster for tests: its own directory, its own socket, gone at the end."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from patience import until

_PORT = 54321  # names the socket's file only: the cluster listens on no network


@dataclass(frozen=True)
class Cluster:
    """A running cluster, reached by the socket in `directory`."""

    directory: Path
    pid: int

    def url(self, database: str) -> str:
        """Where a store finds a database of the cluster."""
        return f"postgresql+psycopg://aclflow@/{database}?host={self.directory}&port={_PORT}"

    def connect(self, database: str = "postgres") -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(f"user=aclflow dbname={database} host={self.directory} port={_PORT}", autocommit=True)

    def create_database(self, name: str) -> str:
        """An empty database; returns its address."""
        with self.connect() as connection:
            connection.execute(f"CREATE DATABASE {name} STRATEGY FILE_COPY")
        return self.url(name)

    def drop_database(self, name: str) -> None:
        with self.connect() as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def binaries() -> Path | None:
    """Where the newest installed PostgreSQL server's programs are."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    return Path(on_path).parent if on_path else None


@contextmanager
def running() -> Iterator[Cluster]:
    """Start a cluster as an unprivileged user (the server refuses root) and stop it by its process id.

    Skips the test where no server is installed.
    """
    programs = binaries()
    if programs is None:
        pytest.skip("no PostgreSQL server is installed (Debian: postgresql)")
    directory = Path(tempfile.mkdtemp(prefix="aclflow-pg-"))
    account = _unprivileged()
    try:
        if account is not None:
            os.chown(directory, account.pw_uid, account.pw_gid)
        _initialise(programs, directory, account)
        server = _start(programs, directory, account)
        try:
            _wait(directory, server)
            yield Cluster(directory, server.pid)
        finally:
            server.send_signal(signal.SIGQUIT)  # at once: nothing in it is wanted any more
            server.wait(timeout=30)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


class Server:
    """A server that may be ended and started again, and follow another."""

    def __init__(self, directory: Path, **settings: str) -> None:
        programs = binaries()
        assert programs is not None
        self.directory = directory
        self._programs = programs
        self._account = _unprivileged()
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        if self._account is not None:
            os.chown(directory, self._account.pw_uid, self._account.pw_gid)

    def make(self) -> None:
        """Make an empty cluster."""
        _initialise(self._programs, self.directory, self._account)

    def follow(self, primary: Server) -> None:
        """Make a copy of another server that follows it."""
        command = [self._programs / "pg_basebackup", "-D", self.directory / "data", "-h", primary.directory]
        self._run([*command, "-p", str(_PORT), "-U", "aclflow", "-R", "-X", "stream", "--no-sync", "-c", "fast"])

    def start(self) -> None:
        """Start, and wait until it answers."""
        self._process = _start(self._programs, self.directory, self._account, **self._settings)
        _wait(self.directory, self._process)

    def end(self, how: signal.Signals) -> None:
        """End it: SIGQUIT ends it at once, as a crash would, SIGKILL takes its first process alone."""
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait(timeout=30)

    def promote(self) -> None:
        """Let a copy take writes."""
        self._run([self._programs / "pg_ctl", "promote", "-w", "-D", self.directory / "data"])

    @property
    def cluster(self) -> Cluster:
        """The server as a cluster."""
        assert self._process is not None
        return Cluster(self.directory, self._process.pid)

    def clear(self) -> None:
        """End it if it runs, and remove its directory."""
        if self._process is not None and self._process.poll() is None:
            self.end(signal.SIGQUIT)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _run(self, command: list[Path | str]) -> None:
        subprocess.run(command, check=True, capture_output=True, cwd=self.directory, **_as(self._account))


@contextmanager
def replicated() -> Iterator[tuple[Server, Server]]:
    """A server, and a copy without which it acknowledges no commit."""
    if binaries() is None:
        pytest.skip("no PostgreSQL server is installed (Debian: postgresql)")
    primary, standby = (
        Server(Path(tempfile.mkdtemp(prefix="aclflow-pg-")), wal_level="replica", max_wal_senders="4") for _ in range(2)
    )
    try:
        primary.make()
        primary.start()
        standby.follow(primary)
        standby.start()
        with primary.cluster.connect() as connection:
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            connection.execute("SELECT pg_reload_conf()")
            state = "SELECT 1 FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = 'sync'"
            until(lambda: connection.execute(state).fetchone() is not None)
        yield primary, standby
    finally:
        for server in (primary, standby):
            server.clear()


def url_of(servers: Sequence[Server], database: str) -> str:
    """Where a store finds a database of whichever server takes writes."""
    hosts, numbers = ",".join(str(each.directory) for each in servers), ",".join(str(_PORT) for _ in servers)
    return f"postgresql+psycopg://aclflow@/{database}?host={hosts}&port={numbers}&target_session_attrs=read-write"


def _unprivileged() -> pwd.struct_passwd | None:
    """Whom to run the server as; None: as who we are."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise LookupError("no unprivileged user to run PostgreSQL as")


def _as(account: pwd.struct_passwd | None) -> dict[str, object]:
    if account is None:
        return {}
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def _initialise(programs: Path, directory: Path, account: pwd.struct_passwd | None) -> None:
    """Make the cluster. Its collation is English, not the byte order, on purpose: the store must not depend on it."""
    command = [programs / "initdb", "-D", directory / "data", "-U", "aclflow", "-A", "trust", "-E", "UTF8"]
    subprocess.run(
        [*command, "--locale-provider=icu", "--icu-locale=en", "--locale=C.UTF-8", "--no-sync"],
        check=True, capture_output=True, cwd=directory, **_as(account),
    )  # fmt: skip


def _start(
    programs: Path, directory: Path, account: pwd.struct_passwd | None, **others: str
) -> subprocess.Popen[bytes]:
    settings = {
        "listen_addresses": "",
        "unix_socket_directories": str(directory),
        "port": str(_PORT),
        "fsync": "off",  # the tests kill clients, never the server's machine
        "wal_level": "minimal",
        "max_wal_senders": "0",
        "max_wal_size": "64MB",
        "max_connections": "100",
    } | others
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    return subprocess.Popen(
        [programs / "postgres", "-D", directory / "data", *options],
        cwd=directory, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=(directory / "log").open("wb"), **_as(account),
    )  # fmt: skip


def _wait(directory: Path, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 20
    cluster = Cluster(directory, server.pid)
    while True:
        try:
            cluster.connect().close()
        except psycopg.OperationalError:
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((directory / "log").read_text(errors="replace")) from None
            time.sleep(0.05)
        else:
            return
