"""Round trips by netcat: a line of text comes back from the server's UDP echo.

netcat is started before the clock is, and for UDP its start sends nothing. So its first round trip is that of a flow
whose packets the firewall has not met before, in either direction; the later ones are those of a flow that it knows.
"""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

from orchestrator.bench.traffic.addresses import ECHO, SERVER_ADDRESS, Clients
from orchestrator.bench.traffic.line import CLIENT, Line
from orchestrator.errors import Missing, Unreachable

_ANSWER_S = 2.0
_GRACE_S = 0.02
_SETTLE_S = 0.1
"""From here on netcat has opened its socket and waits for input, on a machine that has other things to do."""
_MESSAGE = b"?\n"


def round_trips(line: Line, source: str, count: int) -> list[float]:
    """Return the milliseconds of `count` round trips in one flow that the firewall knows.

    Raises Missing, and Unreachable where no answer comes.
    """
    with _netcats(line, [(source, ECHO)]) as (netcat,):
        return [_measure_round_trip(netcat) for _ in range(count + 1)][1:]


def first_round_trips(line: Line, sources: Sequence[str]) -> list[float]:
    """Milliseconds of the first round trip of each source address. Raises as `round_trips`."""
    with _netcats(line, [(source, ECHO) for source in sources]) as netcats:
        return [_measure_round_trip(netcat) for netcat in netcats]


def reached_sources(line: Line, doubtful: Sequence[tuple[str, int]]) -> list[bool]:
    """Which of some sources hear the server's echo on a port each.

    They ask before somebody does whom every list permits, and whose answer proves that the way is open: what the
    firewall lets through is there by then. Raises as `round_trips`.
    """
    certain = (Clients.ONE.address, ECHO)
    with _netcats(line, [*doubtful, certain]) as (*asking, last):
        for netcat in asking:
            _send_byte(netcat)
        _measure_round_trip(last)
        return [_is_heard(netcat, _GRACE_S) for netcat in asking]


@contextmanager
def _netcats(line: Line, ends: Sequence[tuple[str, int]]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """One netcat for each source address and port of the server, each waiting for input."""
    with ExitStack() as stack:
        netcats = []
        for source, port in ends:
            netcat = line.inside(CLIENT, partial(_start_client, line, source, port))
            netcats.append(stack.enter_context(netcat))
            stack.callback(netcat.kill)
        time.sleep(_SETTLE_S)
        yield netcats


def _start_client(line: Line, source: str, port: int) -> subprocess.Popen[bytes]:
    command = ["nc", "-u", "-n", "-s", source, SERVER_ADDRESS, str(port)]
    pipe = subprocess.PIPE
    try:
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, env=line.environment(), bufsize=0)
    except FileNotFoundError:
        raise Missing("the program 'nc' is not installed: apt-get install netcat-openbsd") from None


def _measure_round_trip(netcat: subprocess.Popen[bytes]) -> float:
    began = time.perf_counter()
    _send_byte(netcat)
    if not _is_heard(netcat, _ANSWER_S):
        raise Unreachable(f"netcat heard no answer within {_ANSWER_S:g} s")
    return (time.perf_counter() - began) * 1000


def _send_byte(netcat: subprocess.Popen[bytes]) -> None:
    assert netcat.stdin is not None
    os.write(netcat.stdin.fileno(), _MESSAGE)


def _is_heard(netcat: subprocess.Popen[bytes], patience_s: float) -> bool:
    assert netcat.stdout is not None
    coming = netcat.stdout.fileno()
    return bool(select.select([coming], [], [], patience_s)[0] and os.read(coming, 64))
