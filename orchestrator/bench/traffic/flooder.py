"""A steady flood of datagrams: `python -m orchestrator.bench.traffic.flooder SECONDS PER_S ADDRESS PORT SOURCE...`.

The sources, which are addresses of the namespace that it runs in, send in turn. When it begins it says so in a line; it
ends by itself, and prints how many datagrams it sent and how long that took.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice

from orchestrator.bench.traffic.addresses import SERVER_ADDRESS
from orchestrator.bench.traffic.line import CLIENT, Line
from orchestrator.errors import Refused

_PAYLOAD = bytes(100)
_ROUND_S = 0.002
_GRACE_S = 30.0
_BEGUN = "sending\n"


@dataclass(slots=True)
class Sent:
    """The result of a flood: datagrams and seconds; empty until it has ended."""

    datagrams: int = 0
    seconds: float = 0.0


@contextmanager
def flooding(line: Line, sources: Sequence[str], port: int, *, seconds: float, per_s: int) -> Iterator[Sent]:
    """Flood a port of the server from the line's client during the block.

    Raises Refused where it fails.
    """
    module = [sys.executable, "-m", "orchestrator.bench.traffic.flooder"]
    command = [*module, str(seconds), str(per_s), SERVER_ADDRESS, str(port), *sources]
    pipe = subprocess.PIPE
    begin = partial(subprocess.Popen, command, stdout=pipe, stderr=pipe, text=True, env=line.environment())
    sent = Sent()
    with line.inside(CLIENT, begin) as process:
        try:
            assert process.stdout is not None
            begun = process.stdout.readline() == _BEGUN
            if begun:
                yield sent
            text, complaint = process.communicate(timeout=seconds + _GRACE_S)
        finally:
            process.kill()
    if process.returncode or not begun:
        raise Refused(f"the flood failed: {complaint.strip()[-500:]}")
    found = json.loads(text)
    sent.datagrams, sent.seconds = int(found["sent"]), float(found["seconds"])


def send(sockets: Sequence[socket.socket], to: tuple[str, int], seconds: float, per_s: int) -> Sent:
    """Send from some sockets in turn until the time is over.

    Packets that the kernel refuses are not counted.
    """
    sent, tried, began = 0, 0, time.monotonic()
    turns = cycle(sockets)
    while (now := time.monotonic() - began) < seconds:
        due = int(now * per_s) - tried
        for each in islice(turns, due):
            with suppress(BlockingIOError, ConnectionRefusedError):
                each.sendto(_PAYLOAD, to)
                sent += 1
        tried += due
        time.sleep(_ROUND_S)
    return Sent(sent, time.monotonic() - began)


def _main(seconds: str, per_s: str, address: str, port: str, *sources: str) -> None:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for _ in sources]
        for each, source in zip(sockets, sources, strict=True):
            each.setblocking(False)
            each.bind((source, 0))
        sys.stdout.write(_BEGUN)
        sys.stdout.flush()
        done = send(sockets, (address, int(port)), float(seconds), int(per_s))
    sys.stdout.write(json.dumps({"sent": done.datagrams, "seconds": done.seconds}))


if __name__ == "__main__":
    _main(*sys.argv[1:])
