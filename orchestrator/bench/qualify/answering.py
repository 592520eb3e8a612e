"""The servers of the suite: iperf3, lighttpd with one page, and a refused port.

All of it ends with the SSH connections that it was started over.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from orchestrator.bench.qualify.remote import Remote
from orchestrator.bench.traffic.servers import PAGE
from orchestrator.errors import Refused, Unreachable

_PATIENCE_S = 20.0


@contextmanager
def answering(server: Remote) -> Iterator[None]:
    """Run the servers during the block.

    Raises Refused where one of them does not start, Unreachable, Missing.
    """
    host = server.host
    with ExitStack() as stack:
        folder = server.run("mktemp", "-d", "-t", "aclflow-bench-XXXXXX").strip()
        stack.callback(server.run, "rm", "-rf", folder)
        server.run("tee", f"{folder}{PAGE}", text="1")
        iperf = ("iperf3", "--server", "--bind", host.traffic, "--port", str(host.iperf_port))
        listening: dict[int, tuple[str, ...]] = {host.iperf_port: iperf}
        for port in filter(None, (host.http_port, host.refused_port)):
            settings = f"{folder}/web-{port}.conf"
            server.run("tee", settings, text=_web(folder, host.traffic, port))
            listening[port] = ("lighttpd", "-D", "-f", settings)
        for port, words in listening.items():
            process = stack.enter_context(server.running(*words))
            _until_listening(server, process, port, words[0])
        yield


def _web(folder: str, address: str, port: int) -> str:
    return (
        f'server.document-root = "{folder}"\n'
        f'server.bind = "{address}"\n'
        f"server.port = {port}\n"
        f'server.errorlog = "{folder}/web-{port}.log"\n'
        "server.max-fds = 8192\n"
        "server.listen-backlog = 4096\n"
    )


def _until_listening(server: Remote, process: subprocess.Popen[bytes], port: int, program: str) -> None:
    place = f"{server.host.name} ({server.host.address})"
    until = time.monotonic() + _PATIENCE_S
    while process.poll() is None and time.monotonic() < until:
        if server.run("ss", "-Hltn", f"sport = :{port}").strip() and process.poll() is None:
            return
        time.sleep(0.1)
    if process.poll() is None:
        raise Unreachable(f"{program} does not listen on port {port} after {_PATIENCE_S:.0f} s", place=place)
    assert process.stderr is not None
    raise Refused(f"{program} ended: {process.stderr.read().decode(errors='replace').strip()[-500:]}", place=place)
