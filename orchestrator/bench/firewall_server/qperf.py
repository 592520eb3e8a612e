"""TCP bandwidth and latency by qperf, as in the paper, with CPU time.

Two accounts are kept. The *share* is mpstat's: of all processors' time, what was not idle. It counts whatever else runs
on the machine. *Seconds* are those of the processes that take part, and of the kernel's threads for packets; the kernel
does its forwarding in the time of whoever sends, so they hold all work for the traffic and nobody else's.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from orchestrator.bench.benchlab import ran_s
from orchestrator.bench.traffic.line import CLIENT, SERVER, Line
from orchestrator.errors import Refused
from orchestrator.lab.processes import Process, marked_processes

_PATTERNS = {
    "tcp_bw": r"^\s*bw\s+=\s+([\d.]+) bytes/sec",
    "tcp_lat": r"^\s*latency\s+=\s+([\d.]+) ns",
}
_PATIENCE_S, _POLL_S = 5.0, 0.01
_IDLE, _IOWAIT, _STEAL = 3, 4, 7


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """One run's result: bytes a second, CPU nanoseconds a byte by participant, mpstat's share."""

    octets_s: float
    cpu_ns_an_octet: float
    busy_share: float


def start(line: Line) -> None:
    """Start qperf's server; raises Missing."""
    line.start(SERVER, "qperf")


def bandwidth(line: Line, address: str, seconds: int, beside: Iterable[Process] = ()) -> Bandwidth:
    """Send one stream to the server for some seconds; `beside` are processes that carry it.

    Raises Missing, Refused.
    """
    taking_part = [process.pid for process in (*beside, *_servers(line))] + _list_kernel_threads()
    before, machine = _seconds(taking_part) + _childrens(), _machine()
    rate = _run_test(line, address, seconds, "tcp_bw")
    spent, (busy, total) = _seconds(taking_part) + _childrens() - before, _machine()
    transferred = rate * seconds
    return Bandwidth(rate, spent * 1e9 / transferred, (busy - machine[0]) / (total - machine[1]))


def latency_us(line: Line, address: str, seconds: int) -> float:
    """Microseconds one way, half of a round trip, as qperf has it. Raises Missing, Refused."""
    return _run_test(line, address, seconds, "tcp_lat") / 1000


def read(text: str, test: str) -> float:
    """Return the number of a test in qperf's output with unified units.

    Raises Refused where there is none.
    """
    match = re.search(_PATTERNS[test], text, re.MULTILINE)
    if match is None:
        raise Refused(f"qperf reported something else: {text.strip()[:200]!r}")
    return float(match[1])


def _run_test(line: Line, address: str, seconds: int, test: str) -> float:
    options = ("--time", str(seconds), "--unify_units", "--precision", "6")
    text = line.run(CLIENT, "qperf", address, *options, test)
    _until_childless(_servers(line))
    return read(text, test)


def _servers(line: Line) -> list[Process]:
    """Return this site's qperf servers.

    Each has a session of its own; only this line's carries traffic now.
    """
    found = [process for process in marked_processes(line.layout.run_dir) if process.name == "qperf"]
    return [process for process in found if _find_session(process.pid) == process.pid]


def _find_session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


def _until_childless(servers: Iterable[Process]) -> None:
    """Wait until the child of qperf's server ended: then its CPU time is its parent's."""
    until = time.monotonic() + _PATIENCE_S
    while any(Path(f"/proc/{each.pid}/task/{each.pid}/children").read_text() for each in servers):
        if time.monotonic() > until:
            raise Refused("qperf's server does not end its run")
        time.sleep(_POLL_S)


def _list_kernel_threads() -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                name = (entry / "comm").read_text()
            except OSError:
                continue
            if name.startswith("ksoftirqd/"):
                found.append(int(entry.name))
    return found


def _seconds(pids: Iterable[int]) -> float:
    """CPU seconds of processes and of their children that have ended."""
    return sum(ran_s(pid, with_children=True) for pid in pids)


def _childrens() -> float:
    """CPU seconds of our own children that have ended: qperf's client is one."""
    spent = os.times()
    return spent.children_user + spent.children_system


def _machine() -> tuple[float, float]:
    """Read /proc/stat: ticks in which processors worked, and all ticks."""
    fields = [int(text) for text in Path("/proc/stat").read_text().splitlines()[0].split()[1 : _STEAL + 2]]
    total = sum(fields)
    return total - fields[_IDLE] - fields[_IOWAIT], total
