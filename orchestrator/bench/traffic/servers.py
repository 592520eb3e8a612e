"""The servers of a line: lighttpd for httperf, iperf3's own, a UDP echo for netcat.

lighttpd serves a page of one byte from one event loop in C, so that what stands in the middle is what limits; Python's
own HTTP server would be what is measured.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Sequence
from functools import partial

from orchestrator.bench.traffic.addresses import ECHO, SERVER_ADDRESS, THROUGHPUT, UNSERVED, WEB
from orchestrator.bench.traffic.line import SERVER, Line
from orchestrator.errors import Unreachable

PAGE = "/page"
_PATIENCE_S = 10.0


def start(line: Line, also: Sequence[int] = ()) -> None:
    """Start all three, lighttpd on further ports too, and wait until they answer.

    Raises Missing, Unreachable.
    """
    line.start(SERVER, "lighttpd", "-D", "-f", _configure_web(line, also))
    line.start(SERVER, "iperf3", "--server", "--bind", SERVER_ADDRESS, "--port", str(THROUGHPUT))
    ports = (str(ECHO), str(UNSERVED))
    line.start(SERVER, sys.executable, "-m", "orchestrator.bench.traffic.echo", SERVER_ADDRESS, *ports)
    for port in (WEB, THROUGHPUT, *also):
        line.inside(SERVER, partial(until_listening, port))


def _configure_web(line: Line, also: Sequence[int]) -> str:
    folder = line.layout.run_dir / f"{line.name}-web"
    folder.mkdir()
    (folder / PAGE.lstrip("/")).write_text("1")
    settings = folder / "lighttpd.conf"
    settings.write_text(
        f'server.document-root = "{folder}"\n'
        f'server.bind = "{SERVER_ADDRESS}"\n'
        f"server.port = {WEB}\n"
        f'server.errorlog = "{line.layout.logs / line.name}-web.log"\n'
        "server.max-fds = 8192\n"
        "server.listen-backlog = 4096\n"
        + "".join(f'$SERVER["socket"] == "{SERVER_ADDRESS}:{port}" {{}}\n' for port in also)
    )
    return str(settings)


def until_listening(port: int) -> None:
    """Wait until a server answers on a port. Called in its namespace. Raises Unreachable."""
    until = time.monotonic() + _PATIENCE_S
    while True:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as caller:
            if caller.connect_ex((SERVER_ADDRESS, port)) == 0:
                return
        if time.monotonic() > until:
            raise Unreachable(f"nothing answers on port {port} of the server within {_PATIENCE_S:.0f} s")
        time.sleep(0.02)
