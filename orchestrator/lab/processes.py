"""A lab's processes: detached from their parent, identified by process id, start time and mark.

A process id alone names nobody for long. To signal a process, the code here first holds it by a descriptor (pidfd) and
then compares the start time, so that a number used again is never hit. Every process carries the lab's run directory in
its environment (`layout.MARK`), so that even one started in the moment its parent was killed is found.
"""

from __future__ import annotations

import os
import secrets
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from orchestrator.errors import Missing, Unreachable
from orchestrator.lab import namespaces
from orchestrator.lab.layout import MARK

FIRST = -15
"""The priority of what goes before all others, as the kernel counts them."""
_PLAIN_HTTP = MappingProxyType({"ACLFLOW_PLAIN_HTTP": "yes"})
_ENDED = frozenset("ZX")
"""State letters in /proc of a process that runs no more."""
_TAKEN_BY_CHANCE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST, _TRIES = 10_000, 200


@dataclass(frozen=True, slots=True)
class Process:
    """A running process: `started` is its start time in clock ticks after boot."""

    name: str
    pid: int
    started: int


def spawn(
    name: str,
    arguments: Sequence[str],
    *,
    mark: Path,
    log: Path,
    namespace: str | None = None,
    settings: Mapping[str, str] | None = None,
    stdin: int | None = None,
) -> Process:
    """Start a program in a session of its own, with both outputs appended to `log`.

    Its input is `stdin`, or empty.

    Of the caller's own settings (``ACLFLOW_...``) it sees none, only `settings`; it may speak plain HTTP, between
    namespaces of one machine. Raises Missing where the program is not installed.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("ACLFLOW_")}
    environment = {**inherited, **_PLAIN_HTTP, **(settings or {}), MARK: str(mark)}
    nothing = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    files = [
        nothing if stdin is None else (os.POSIX_SPAWN_DUP2, stdin, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]

    def start_program() -> int:
        return os.posix_spawnp(arguments[0], list(arguments), environment, file_actions=files, setsid=True)

    try:
        pid = namespaces.inside(namespace, start_program) if namespace else start_program()
    except FileNotFoundError:
        raise Missing(f"the program '{arguments[0]}' is not installed") from None
    return Process(name, pid, _look(pid)[1])


def alive(process: Process) -> bool:
    """Whether this very process still runs. A child of ours that has ended is reaped."""
    state, started = _look(process.pid)
    if started != process.started:
        return False
    if state in _ENDED:
        with suppress(ChildProcessError):
            os.waitpid(process.pid, os.WNOHANG)
        return False
    return True


def describe_end(process: Process) -> str | None:
    """Return how a child of ours ended.

    None while it runs, and where it is none or was reaped.
    """
    try:
        said = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    if said is None:
        return None
    return f"exit code {said.si_status}" if said.si_code == os.CLD_EXITED else f"signal {said.si_status}"


def marked_processes(mark: Path) -> tuple[Process, ...]:
    """Every running process of one lab but the caller.

    A lab inside other namespaces of processes may have the same run directory there, and is another one.
    """
    wanted, here = f"{MARK}={mark}".encode(), _namespace(os.getpid())
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environment = (entry / "environ").read_bytes().split(b"\0")
            name = (entry / "comm").read_text().strip()
            is_here = wanted in environment and _namespace(int(entry.name)) == here
        except OSError:  # it ended meanwhile, or is the kernel's
            continue
        if is_here:
            found.append(Process(name, int(entry.name), _look(int(entry.name))[1]))
    return tuple(found)


def send(process: Process, number: signal.Signals) -> None:
    """Signal this very process; one that is gone is fine."""
    with suppress(ProcessLookupError):
        descriptor = os.pidfd_open(process.pid)
        try:
            if _look(process.pid)[1] == process.started:
                signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)


def put_first(process: Process) -> None:
    """Raise a switch's priority, as if it shared no processor with Python programs."""
    os.setpriority(os.PRIO_PROCESS, process.pid, FIRST)


def make_real_time(process: Process) -> None:
    """Have every thread of a switch run before all that is not real-time.

    One thread of a lower priority would do: it holds the lock that the thread of health checks waits for.
    """
    for thread in Path(f"/proc/{process.pid}/task").iterdir():
        os.sched_setscheduler(int(thread.name), os.SCHED_RR, os.sched_param(1))


def wait(process: Process, patience_s: float) -> bool:
    """Whether the process has ended before patience did."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return True
    try:
        if alive(process):
            select.select([descriptor], [], [], max(patience_s, 0))
    finally:
        os.close(descriptor)
    return not alive(process)


def stop(stopping: Iterable[Process], patience_s: float = 5.0) -> None:
    """Ask processes to end, and end those that have not done so in time."""
    stubborn = tuple(stopping)
    for number, seconds in ((signal.SIGTERM, patience_s), (signal.SIGKILL, 5.0)):
        for process in stubborn:
            send(process, number)
        until = time.monotonic() + seconds
        stubborn = tuple(process for process in stubborn if not wait(process, until - time.monotonic()))


def kill(process: Process) -> None:
    """End a process without a chance to tidy up, as a crash would."""
    send(process, signal.SIGKILL)
    wait(process, 5.0)


def _namespace(pid: int) -> str:
    """Return the name of a process's PID namespace.

    Raises OSError where the process is gone.
    """
    return os.readlink(f"/proc/{pid}/ns/pid")


def _look(pid: int) -> tuple[str, int]:
    """Return a process's state letter and start time; ``X`` and 0 if gone.

    One that is killed is a zombie while its other threads still end, and hold what it held: then it counts as running.
    """
    try:
        text = Path("/proc", str(pid), "stat").read_text()
    except OSError:
        return "X", 0
    fields = text.rpartition(")")[2].split()  # the name before it may hold spaces and parentheses
    state, threads, started = fields[0], int(fields[17]), int(fields[19])
    return "R" if state in _ENDED and threads > 1 else state, started


def wait_until(holds: Callable[[], bool], otherwise: str, within_s: float = 60.0, *, every_s: float = 0.01) -> None:
    """Return when something holds; raise Unreachable with `otherwise` where it does not in time."""
    until = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > until:
            raise Unreachable(f"after {within_s:.0f} s: {otherwise}")
        time.sleep(every_s)


def wait_until_up(process: subprocess.Popen[bytes], is_up: Callable[[], bool], within_s: float = 60.0) -> None:
    """Return when a process is up. Raises Unreachable where it ends or takes longer."""

    def has_come() -> bool:
        if is_up():
            return True
        if process.poll() is not None:
            raise Unreachable(f"{process.args!r} ended at once")
        return False

    wait_until(has_come, f"{process.args!r} is not ready", within_s, every_s=0.05)


def free_port() -> int:
    """Return a free TCP port that no connection takes before a listener does.

    It lies below those that the kernel gives to connections of its own accord: one of them would be anybody's between
    now and the time at which it is listened on. Raises Missing where none is found.
    """
    beyond = int(_TAKEN_BY_CHANCE.read_text().split()[0])
    if beyond <= _LOWEST:
        return _listen_on(0)
    for _ in range(_TRIES):
        try:
            return _listen_on(_LOWEST + secrets.randbelow(beyond - _LOWEST))
        except OSError:
            continue
    raise Missing(f"no TCP port from {_LOWEST} to {beyond - 1} is free on this machine")


def _listen_on(port: int) -> int:
    with socket.create_server(("", port)) as server:
        return int(server.getsockname()[1])
