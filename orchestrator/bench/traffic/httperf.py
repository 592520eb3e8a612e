"""HTTP requests by httperf: one a connection, many connections at once, closed loop.

httperf is asked for sessions that issue one request after another in HTTP/1.0, whose server closes each connection; so
there are as many connections under way as sessions, and the rate is the highest that the line carries (a closed loop,
without the errors of offering more than it does).

httperf has one source address. For many clients a few lines of our own, loaded before the C library, give each of its
connections another one (`_native/sources.c`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from orchestrator.bench.traffic.addresses import SERVER_ADDRESS, WEB, Clients
from orchestrator.bench.traffic.ccompiler import compile_source
from orchestrator.bench.traffic.line import CLIENT, PAGE, Line
from orchestrator.errors import Refused, Unreachable

_SOURCE = Path(__file__).with_name("_native") / "sources.c"
_FIELDS = {
    "replies": r"^Total: connections \d+ requests \d+ replies (\d+)",
    "seconds": r"test-duration ([\d.]+) s",
    "connection_ms": r"^Connection time \[ms\]: min [\d.]+ avg ([\d.]+)",
    "connect_ms": r"^Connection time \[ms\]: connect ([\d.]+)",
    "good": r"^Reply status: 1xx=\d+ 2xx=(\d+)",
    "errors": r"^Errors: total (\d+)",
}
_REPLY_TIMEOUT_S = 10
_STARTED_A_SECOND = 10_000


@dataclass(frozen=True, slots=True)
class Requests:
    """httperf's result: answered requests, their rate, mean times to the answer and the end.

    Times count from a SYN.
    """

    replies: int
    per_s: float
    connect_ms: float
    connection_ms: float


def read(text: str) -> Requests:
    """Read httperf's report.

    Raises Refused for other texts, Unreachable where a request was not answered.
    """
    found: dict[str, float] = {}
    for name, pattern in _FIELDS.items():
        match = re.search(pattern, text, re.MULTILINE)
        if match is None:
            raise Refused(f"httperf did not report {name}: {text.strip()[:200]!r}")
        found[name] = float(match[1])
    if not found["good"] or found["errors"] or found["good"] != found["replies"]:
        raise Unreachable(f"httperf: {found['good']:.0f} good answers and {found['errors']:.0f} errors")
    replies = int(found["replies"])
    return Requests(replies, replies / found["seconds"], found["connect_ms"], found["connection_ms"])


def requests(
    line: Line, clients: Clients, *, connections: int, at_once: int, preload: Path, passed: int = 0, port: int = WEB
) -> Requests:
    """Make connections with one request each from the line's client.

    `preload` is what `compile_library` made. Each of the `at_once` sessions issues its share of the connections. The
    first so many of the clients are `passed` over.
    """
    settings = {
        "LD_PRELOAD": str(preload),
        "ACLBENCH_SOURCES": str(clients.value),
        "ACLBENCH_PASSED": str(passed),
    }
    text = line.run(
        CLIENT,
        *("httperf", "--server", SERVER_ADDRESS, "--port", str(port), "--uri", PAGE, "--http-version=1.0"),
        *("--wsess", f"{at_once},{connections // at_once},0", "--rate", str(_STARTED_A_SECOND)),
        *("--timeout", str(_REPLY_TIMEOUT_S)),
        settings=settings,
    )
    return read(text)


def compile_library(folder: Path) -> Path:
    """The library that gives connections their source addresses, compiled into `folder`. Raises Missing, Refused."""
    return compile_source(_SOURCE, folder / "sources.so", "-shared", "-fPIC", "-ldl")
