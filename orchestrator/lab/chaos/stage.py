"""A chaos run's surroundings: a filling disk, a jumping clock, a stopping database.

run directory/service      a small disk (tmpfs); `fill` leaves nothing free on it
run directory/controller   another one
run directory/clock        what the clocks of service, controller and agents say more than the machine's
run directory/postgres     a PostgreSQL server of the lab's own, where the store is not SQLite
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import Missing
from orchestrator.lab import pop, processes
from orchestrator.lab.chaos.relay import Mode, Relay, Relays
from orchestrator.lab.chaos.steps import STEP_FILE
from orchestrator.lab.chaos.world import FIRST, TENANTS, World
from orchestrator.lab.layout import Layout
from orchestrator.lab.ovs import run_program
from orchestrator.lab.pop import CONTROLLER_PORT, Lab, Progress
from orchestrator.lab.processes import Process, free_port
from orchestrator.lab.service import CONTROLLER, SERVICE, Around, ControlPlane

SQLITE, POSTGRESQL = "sqlite", "postgresql"
STORES = (SQLITE, POSTGRESQL)
POSTGRES = "postgres"
_CLOCK_SOURCE = Path(__file__).with_name("_native") / "clock.c"
_SECONDS = struct.Struct("=q")
_DISK = "size=192m,mode=755"
_BALLAST = "ballast"
_CHUNK = bytes(4096)
_PATIENCE_S = 30.0
STEPPED = (sys.executable, "-m", "orchestrator.lab.chaos.steps")


class Database:
    """Where the service keeps its state, and what can befall it."""

    def __init__(self, lab: Lab, kind: str) -> None:
        self._lab = lab
        self._folder = lab.layout.run_dir / POSTGRES
        self._server: Process | None = None
        self._lock: sqlite3.Connection | None = None
        if kind == POSTGRESQL:
            self._create_cluster()

    @property
    def url(self) -> str:
        """How the service is told; empty for SQLite in its own folder."""
        if self._server is None:
            return ""
        return f"postgresql+psycopg://aclflow@/aclflow?host={self._folder}"

    def take_away(self, *, at_once: bool) -> None:
        """Kill the server, or have it answer nothing; of SQLite, hold the writer's lock."""
        if self._server is None:
            self._lock = sqlite3.connect(self._lab.layout.run_dir / SERVICE / "aclflow.db", timeout=_PATIENCE_S)
            self._lock.isolation_level = None
            self._lock.execute("BEGIN IMMEDIATE")
        elif at_once:
            for each in self._processes():
                processes.kill(each)
        else:
            self._send_signal(signal.SIGSTOP)

    def bring_back(self) -> None:
        """Mend what was done to the database server, whatever it was."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None
        if self._server is not None:
            self._send_signal(signal.SIGCONT)
            if not processes.alive(self._server):
                for each in self._processes():
                    processes.kill(each)
                self._start_server()

    def _processes(self) -> list[Process]:
        """The server and its workers, which have its folder's mark."""
        return [each for each in processes.marked_processes(self._lab.layout.run_dir) if each.name == POSTGRES]

    def _send_signal(self, number: signal.Signals) -> None:
        for each in self._processes():
            processes.send(each, number)

    def _create_cluster(self) -> None:
        account = pwd.getpwnam("postgres")
        self._lab.layout.run_dir.chmod(0o711)
        self._folder.mkdir()
        os.chown(self._folder, account.pw_uid, account.pw_gid)
        options = ["-U", "aclflow", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"]
        self._run_as_postgres(str(_programs() / "initdb"), "-D", str(self._folder / "data"), *options)
        self._start_server()
        command = [str(_programs() / "createdb"), "-h", str(self._folder), "-U", "aclflow", "aclflow"]
        self._wait_until(lambda: subprocess.run(command, capture_output=True, check=False).returncode == 0)

    def _start_server(self) -> None:
        (self._folder / "data" / "postmaster.pid").unlink(missing_ok=True)
        settings = {"listen_addresses": "", "unix_socket_directories": str(self._folder), "max_connections": "60"}
        words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        run = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", str(_programs() / POSTGRES)]
        self._server = self._lab.start(POSTGRES, [*run, "-D", str(self._folder / "data"), *words])
        ready = [str(_programs() / "pg_isready"), "-q", "-h", str(self._folder), "-U", "aclflow", "-d", "postgres"]
        self._wait_until(lambda: subprocess.run(ready, capture_output=True, check=False).returncode == 0)

    def _run_as_postgres(self, *command: str) -> None:
        run_program(["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", *command])

    def _wait_until(self, condition: Callable[[], bool]) -> None:
        log = self._lab.layout.logs / f"{POSTGRES}.log"
        processes.wait_until(condition, f"PostgreSQL is not ready: see {log}", _PATIENCE_S, every_s=0.05)


@dataclass(frozen=True, slots=True)
class Stage:
    """A running lab with all that can befall it."""

    lab: Lab
    plane: ControlPlane
    database: Database
    relays: Relays
    to_service: Relay
    from_enforcers: Relay
    to_controller: Relay

    @property
    def step_file(self) -> Path:
        """Where a process reads at which step it ends."""
        return self.lab.layout.run_dir / "step"

    def url(self) -> str:
        """Where the writer finds the service: behind a relay."""
        host, port = self.to_service.at
        return f"http://{host}:{port}"

    def set(self, relay: Relay, mode: Mode) -> None:
        """Change what a relay does."""
        self.relays.set(relay, mode)

    def move_clock(self, seconds: int) -> None:
        """Have the clocks say so much more than the machine's."""
        with (self.lab.layout.run_dir / "clock").open("r+b") as clock:
            clock.write(_SECONDS.pack(seconds))

    def pause(self, name: str) -> None:
        """Stop a process where it is, in the middle of whatever it does."""
        processes.send(self.lab.state.process(name), signal.SIGSTOP)

    def resume(self) -> None:
        """Let every process go on that was stopped."""
        for each in self.lab.state.processes:
            processes.send(each, signal.SIGCONT)

    def fill(self, disk: str) -> None:
        """Leave nothing free on a disk."""
        with (self.lab.layout.run_dir / disk / _BALLAST).open("wb", buffering=0) as ballast, suppress(OSError):
            while ballast.write(_CHUNK):
                pass

    def empty(self, disk: str) -> None:
        """Free the room that a full disk was filled with."""
        (self.lab.layout.run_dir / disk / _BALLAST).unlink(missing_ok=True)

    def heal(self) -> None:
        """Undo everything that befell it, and start again what has ended."""
        self.step_file.unlink(missing_ok=True)
        for relay in (self.to_service, self.from_enforcers, self.to_controller):
            self.set(relay, Mode.CARRY)
        for disk in (SERVICE, CONTROLLER):
            self.empty(disk)
        self.move_clock(0)
        self.resume()
        self.database.bring_back()
        self.plane.supervise()


@contextmanager
def raise_stage(
    layout: Layout, world: World, store: str, progress: Progress, command: Sequence[str] = STEPPED
) -> Iterator[Stage]:
    """Bring a lab up with its surroundings, every tenant at its first list.

    It is removed at the end.
    """
    if store == POSTGRESQL:
        _programs()
    with ExitStack() as stack:
        lab = stack.enter_context(pop.temporary(layout, world.spec, progress))
        stack.callback(_unmount, layout)
        for disk in (SERVICE, CONTROLLER):
            (layout.run_dir / disk).mkdir(mode=0o700)
            run_program(["mount", "-t", "tmpfs", "-o", _DISK, f"{layout.prefix}{disk}", str(layout.run_dir / disk)])
        database = Database(lab, store)
        relays = stack.enter_context(Relays())
        host, port = lab.state.management.controller, free_port()
        from_enforcers, inner = (host, free_port()), (host, free_port())
        around = Around(inner[1], f"http://{host}:{from_enforcers[1]}", database.url, port, _environment(layout))
        plane = ControlPlane(lab, command, around=around)
        stage = Stage(
            lab,
            plane,
            database,
            relays,
            to_service=relays.open((host, free_port()), (host, port)),
            from_enforcers=relays.open(from_enforcers, (host, port)),
            to_controller=relays.open((host, CONTROLLER_PORT), inner),
        )
        plane.start(dict.fromkeys(TENANTS, FIRST), progress=progress)
        yield stage


def _environment(layout: Layout) -> Mapping[str, str]:
    """The environment of processes that can be ended, and whose clock can be moved.

    Raises Missing, Refused.
    """
    clock, library = layout.run_dir / "clock", layout.run_dir / "clock.so"
    clock.write_bytes(_SECONDS.pack(0))
    run_program(["gcc", "-O2", "-shared", "-fPIC", "-o", str(library), str(_CLOCK_SOURCE)])
    return {STEP_FILE: str(layout.run_dir / "step"), "CHAOS_CLOCK": str(clock), "LD_PRELOAD": str(library)}


def _unmount(layout: Layout) -> None:
    for disk in (SERVICE, CONTROLLER):
        subprocess.run(["umount", "--lazy", str(layout.run_dir / disk)], capture_output=True, check=False)


def _programs() -> Path:
    """Where PostgreSQL's programs are. Raises Missing."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    if on_path is None:
        raise Missing("PostgreSQL is not installed: apt-get install postgresql")
    return Path(on_path).parent
