"""A line of three namespaces: a client, a firewall in the middle, a server.

    client ── eth0 ══ left ─ middle ─ right ══ eth0 ── server

The kernel of `middle` routes, unless it is told not to: a switch in user space gets copies, and the kernel would pass
the packets on beside it. Segments are not joined or split by any interface, so that every packet meets the firewall, as
on a wire. Neighbours are fixed.

The server answers httperf by lighttpd, iperf3, and netcat by a UDP echo. lighttpd serves a page of one byte from one
event loop in C, so that what stands in the middle is what limits; Python's own HTTP server would be what is measured.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from pyroute2 import IPRoute

from orchestrator.bench.benchlab import PREFIX
from orchestrator.bench.traffic.addresses import (
    CLIENT_MAC,
    ECHO,
    EXCLUDED,
    NEXT_HOP_MAC,
    SERVER_ADDRESS,
    SERVER_MAC,
    THROUGHPUT,
    UNSERVED,
    WEB,
    Clients,
)
from orchestrator.compile.pipelines.host import GATEWAY_IPV4, GATEWAY_MAC
from orchestrator.errors import Missing, Refused, Unreachable
from orchestrator.lab import namespaces, pop, processes
from orchestrator.lab.interrupts import Interrupts
from orchestrator.lab.layout import MARK, Layout
from orchestrator.lab.namespaces import need_root
from orchestrator.lab.network import INTERFACE, descriptor, without_offloads
from orchestrator.lab.processes import Process
from orchestrator.policy.addresses import format_mac

Result = TypeVar("Result")

CLIENT, MIDDLE, SERVER = "client", "middle", "server"
LEFT, RIGHT = "left", "right"
"""The middle's interfaces."""

_ROLES = (CLIENT, MIDDLE, SERVER)
_CLIENT_HOP = "169.254.1.2"
_PATIENCE_S = 180
_LOCAL_TABLE = 255
"""The kernel's own table of addresses that are here."""
_QUIET = {"net/ipv6/conf/all/disable_ipv6": "1", "net/ipv6/conf/default/disable_ipv6": "1"}
_FORWARDING = "net/ipv4/ip_forward"
_ROUTING = {
    "net/ipv4/conf/all/rp_filter": "0", "net/ipv4/conf/default/rp_filter": "0", "net/ipv4/conf/all/send_redirects": "0",
}  # fmt: skip
_MANY_CONNECTIONS = {"net/ipv4/ip_local_port_range": "1024 65535", "net/ipv4/tcp_tw_reuse": "1"}


class Line:
    """The three namespaces during the `with` block, with everything started in them.

    `name` tells the lines of one site from each other.
    """

    def __init__(self, layout: Layout, name: str) -> None:
        self.layout = layout
        self.name = name
        self._names = {role: f"{layout.namespace(name)}-{role}" for role in _ROLES}
        self._running: list[Process] = []

    def __enter__(self) -> Line:
        try:
            for name in self._names.values():
                namespaces.create(name)
            self.inside(MIDDLE, self._link)
            self.route(True)
        except BaseException:
            self._remove_namespaces()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove_namespaces()

    def namespace(self, role: str) -> str:
        return self._names[role]

    def inside(self, role: str, call: Callable[[], Result]) -> Result:
        """Call a function inside one of the namespaces and return its result."""
        return namespaces.inside(self._names[role], call)

    def route(self, on: bool) -> None:
        """Whether the middle's kernel passes packets on."""
        self.inside(MIDDLE, lambda: namespaces.set_kernel({_FORWARDING: "1" if on else "0"}))

    def start(self, role: str, *command: str) -> None:
        """Start a program that runs until the line is taken down. Raises Missing."""
        name = f"{self.name}-{Path(command[0]).name}"
        log = self.layout.logs / f"{name}.log"
        mark, namespace = self.layout.run_dir, self._names[role]
        self._running.append(processes.spawn(name, command, mark=mark, log=log, namespace=namespace))

    def run(self, role: str, *command: str, text: str = "", settings: Mapping[str, str] | None = None) -> str:
        """Run a program, with input `text`; return its output.

        Raises Missing, or Refused with its error output.
        """
        environment = self.environment(settings)

        def run_there() -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                command, input=text, capture_output=True, text=True, check=False, env=environment, timeout=_PATIENCE_S
            )

        try:
            done = self.inside(role, run_there)
        except FileNotFoundError:
            raise Missing(f"the program '{command[0]}' is not installed") from None
        except subprocess.TimeoutExpired:
            raise Refused(f"{command[0]} did not end within {_PATIENCE_S} s") from None
        if done.returncode:
            raise Refused(f"{command[0]}: {(done.stderr or done.stdout).strip()[:2000]}")
        return done.stdout

    def environment(self, settings: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the programs' environment, with the mark that identifies them."""
        return {**os.environ, **(settings or {}), MARK: str(self.layout.run_dir)}

    def _remove_namespaces(self) -> None:
        processes.stop(self._running)
        for name in self._names.values():
            namespaces.remove(name)

    def _link(self) -> None:
        """Add both links and the middle's routes. Called inside the middle."""
        namespaces.set_kernel({**_QUIET, **_ROUTING})
        with IPRoute() as routes:
            routes.link("set", index=_find_index(routes, "lo"), state="up")
            for side, role, mac, end_mac in (
                (LEFT, CLIENT, NEXT_HOP_MAC, CLIENT_MAC),
                (RIGHT, SERVER, GATEWAY_MAC, SERVER_MAC),
            ):
                with descriptor(self._names[role]) as namespace:
                    peer = {"ifname": INTERFACE, "net_ns_fd": namespace, "address": format_mac(end_mac)}
                    routes.link("add", ifname=side, kind="veth", address=format_mac(mac), peer=peer)
                routes.link("set", index=_find_index(routes, side), state="up")
            left, right = _find_index(routes, LEFT), _find_index(routes, RIGHT)
            for address, index, mac in ((_CLIENT_HOP, left, CLIENT_MAC), (SERVER_ADDRESS, right, SERVER_MAC)):
                _add_fixed_neighbour(routes, address, mac, index)
            self.inside(CLIENT, _configure_client)
            self.inside(SERVER, _configure_server)
            routes.route("add", dst=f"{SERVER_ADDRESS}/32", oif=right)
            routes.route("add", dst="10.0.0.0/8", gateway=_CLIENT_HOP, oif=left, flags=["onlink"])
        without_offloads(LEFT, RIGHT)


def _configure_client() -> None:
    """Every client's address. Called inside the client's namespace."""
    with IPRoute() as routes:
        _configure_end(routes, NEXT_HOP_MAC, Clients.ONE.address)
        lo = _find_index(routes, "lo")
        for block in (EXCLUDED, Clients.OUTSIDE.value, Clients.INSIDE.value, Clients.NEIGHBOURS.value):
            routes.route("add", dst=str(block), oif=lo, type="local", table=_LOCAL_TABLE, scope="host")


def _configure_server() -> None:
    """Configure the server. Called inside its namespace."""
    with IPRoute() as routes:
        _configure_end(routes, GATEWAY_MAC, SERVER_ADDRESS)


def _configure_end(routes: IPRoute, next_hop_mac: int, address: str) -> None:
    namespaces.set_kernel({**_QUIET, **_MANY_CONNECTIONS})
    without_offloads(INTERFACE)
    index = _find_index(routes, INTERFACE)
    for each in (_find_index(routes, "lo"), index):
        routes.link("set", index=each, state="up")
    routes.addr("add", index=index, address=address, prefixlen=32)
    _add_fixed_neighbour(routes, GATEWAY_IPV4, next_hop_mac, index)
    routes.route("add", dst="0.0.0.0/0", gateway=GATEWAY_IPV4, oif=index, flags=["onlink"])


def _add_fixed_neighbour(routes: IPRoute, address: str, mac: int, index: int) -> None:
    routes.neigh("add", dst=address, lladdr=format_mac(mac), ifindex=index, state="permanent", family=socket.AF_INET)


def _find_index(routes: IPRoute, name: str) -> int:
    return int(routes.link_lookup(ifname=name)[0])


PAGE = "/page"
_SERVERS_PATIENCE_S = 10.0


def start_servers(line: Line, also: Sequence[int] = ()) -> None:
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
    until = time.monotonic() + _SERVERS_PATIENCE_S
    while True:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as caller:
            if caller.connect_ex((SERVER_ADDRESS, port)) == 0:
                return
        if time.monotonic() > until:
            raise Unreachable(f"nothing answers on port {port} of the server within {_SERVERS_PATIENCE_S:.0f} s")
        time.sleep(0.02)


@contextmanager
def site(layout: Layout | None = None) -> Iterator[Layout]:
    """Provide names and folders during the block; remove everything at its end, or at Ctrl-C.

    To be used in the main thread. Raises Missing for anybody but root.
    """
    need_root()
    place = Layout(PREFIX) if layout is None else layout
    with Interrupts() as interrupts:
        try:
            pop.down(place)
            place.run_dir.mkdir(mode=0o700)
            place.logs.mkdir()
            yield place
        finally:
            interrupts.ignore()
            pop.down(place)


@contextmanager
def serve_line(layout: Layout, name: str, also: Sequence[int] = ()) -> Iterator[Line]:
    """Provide a line whose server answers all tools, and HTTP on further ports.

    Raises Missing, Unreachable.
    """
    with Line(layout, name) as line:
        start_servers(line, also)
        yield line
