"""One-byte downloads through the firewalls: connection set-up times and CPU time.

Client and server run on one processor, so their processor time is nearly all that a download costs: on virtual cables
the sender's kernel carries a packet through every firewall, and messages between members with it.
"""

from __future__ import annotations

import math
import os
import statistics
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import NamedTuple, Protocol, TypeVar

from orchestrator.bench.benchlab import processor_s
from orchestrator.bench.traffic.ccompiler import compile_source
from orchestrator.bench.traffic.journal import Journal
from orchestrator.errors import Missing, Refused
from orchestrator.lab.processes import wait_until

Result = TypeVar("Result")

PORT = 80
MANY_PORTS: Mapping[str, str] = MappingProxyType(
    {"net/ipv4/ip_local_port_range": "1024 65535", "net/ipv4/tcp_tw_reuse": "1"}
)
"""Settings of a namespace whose client makes more connections than it has ports otherwise."""
_SOURCE = Path(__file__).with_name("_native") / "downloads.c"
_PATIENCE_S = 60.0
_NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Downloads:
    """One run: CPU time in all, and set-up times.

    `failed` counts downloads without their byte.
    """

    count: int
    cpu_us: float
    setup_median_us: float
    setup_mean_us: float
    failed: int

    @property
    def cpu_each_us(self) -> float:
        """Processor time of a connection."""
        return self.cpu_us / self.count

    @classmethod
    def recall_or_measure(cls, journal: Journal, name: str, measure: Callable[[], Downloads]) -> Downloads:
        """Return a run that a journal has, or that is made now."""
        row = journal.row(name, lambda: asdict(measure()))
        setups = row["setup_median_us"], row["setup_mean_us"]
        return cls(int(row["count"]), row["cpu_us"], *setups, int(row["failed"]))


class Place(Protocol):
    """Namespaces by their names."""

    def inside(self, name: str, call: Callable[[], Result], /) -> Result:
        """Call a function inside one of them and return its result."""
        ...


class Ends(NamedTuple):
    """The namespaces of a client and of a server, and the server's address."""

    client: str
    server: str
    address: str


class Web:
    """A web server with a page of one byte, and a client.

    Use it with `with`. Both are bound to one processor. Raises Missing where there is no lighttpd.
    """

    def __init__(self, place: Place, folder: Path, ends: Ends) -> None:
        self._place = place
        self._ends = ends
        self._client = compile_source(_SOURCE, folder / "downloads")
        self._folder = folder
        self.processor = max(os.sched_getaffinity(0))

    def __enter__(self) -> Web:
        (self._folder / "index.html").write_text("1")
        settings = self._folder / "lighttpd.conf"
        settings.write_text(
            f'server.document-root = "{self._folder}"\nserver.bind = "{self._ends.address}"\nserver.port = {PORT}\n'
            f'server.errorlog = "{self._folder / "web.log"}"\nserver.max-fds = 8192\nserver.listen-backlog = 4096\n'
        )
        command = ["taskset", "--cpu-list", str(self.processor), "lighttpd", "-D", "-f", str(settings)]
        try:
            self._server = self._place.inside(self._ends.server, lambda: subprocess.Popen(command))
        except FileNotFoundError:
            raise Missing("there is no lighttpd here: apt-get install lighttpd") from None
        try:
            wait_until(self._is_answering, "the web server does not answer")
        except BaseException:
            self._end_server()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end_server()

    def download(self, count: int, at_once: int, settings: Mapping[str, str] = _NOTHING) -> Downloads:
        """Download so many times; the client has some more `settings` in its environment.

        One after the other, the server takes the processor from no client that it wakes: what it did before the client
        looks at the clock would be set-up time. Raises Refused where downloads hang.
        """
        policy = os.SCHED_BATCH if at_once == 1 else os.SCHED_OTHER
        os.sched_setscheduler(self._server.pid, policy, os.sched_param(0))
        before = processor_s(self._server.pid)
        lines = self._run_load(count, at_once, settings).splitlines()
        served_us = (processor_s(self._server.pid) - before) * 1e6
        cpu_us, failed = map(int, lines[0].split())
        times = [float(line) for line in lines[1:]] or [math.nan]
        return Downloads(count, cpu_us + served_us, statistics.median(times), statistics.fmean(times), failed)

    def _run_load(self, count: int, at_once: int, settings: Mapping[str, str]) -> str:
        words = [str(self._client), self._ends.address, str(PORT), str(count), str(at_once)]
        command = ["taskset", "--cpu-list", str(self.processor), *words]
        run = partial(subprocess.run, env={**os.environ, **settings}, timeout=_PATIENCE_S)
        done = self._place.inside(
            self._ends.client,
            lambda: run(command, capture_output=True, text=True, check=False),
        )
        if done.returncode:
            raise Refused(f"downloads: {done.stderr.strip()[:500]}")
        return done.stdout

    def _is_answering(self) -> bool:
        if self._server.poll() is not None:
            raise Missing(f"lighttpd ended at once: {(self._folder / 'web.log').read_text()[-500:]}")
        try:
            return not self.download(1, 1).failed
        except Refused:
            return False

    def _end_server(self) -> None:
        self._server.terminate()
        self._server.wait()
