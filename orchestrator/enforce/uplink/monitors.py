"""Threads that notice changes of an uplink: the switch's table, the kernel's port and routes.

The endpoints that a switch delivers to are read back from its table `local`.
"""

from __future__ import annotations

import re
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

import structlog

from orchestrator.compile.cookies import MARK
from orchestrator.compile.pipelines.host import OUTPUT_PORT, Table
from orchestrator.enforce.uplink.routeduplink import ROUTE_PROTOCOL
from orchestrator.errors import Missing
from orchestrator.hosts.ovs import LocalSwitch
from orchestrator.policy.addresses import Prefix

_COOKIE = re.compile(r"\bcookie=0x([0-9a-f]+)")
_DESTINATION = re.compile(r"[, ](?:nw_dst|ipv6_dst)=([^, ]+)")
_DELIVERS = re.compile(rf"set_field:(\w+)->{OUTPUT_PORT.field.name}\b")


def delivered_prefixes(lines: Iterable[str]) -> dict[Prefix, int]:
    """Return the prefixes of local endpoints, each with its port, from printed rows.

    A row that aclflow did not write delivers to nobody of ours. The prefix of all addresses is left out: it is a
    router's, and nothing to be announced.
    """
    found = {}
    for line in lines:
        cookie, destination = _COOKIE.search(line), _DESTINATION.search(line)
        if cookie is None or destination is None or int(cookie[1], 16) >> 56 != MARK:
            continue
        delivers = _DELIVERS.search(line.partition("actions=")[2])
        if delivers is not None:
            found[Prefix.parse(destination[1])] = int(delivers[1], 0)
    return found


@dataclass(frozen=True, slots=True)
class SwitchRows:
    """The switch of this machine, seen through its table `local`."""

    switch: LocalSwitch
    bridge: str

    def read(self) -> dict[Prefix, int]:
        """Read the table back: prefixes, each with the port that it is delivered to.

        Raises Unreachable while the switch does not answer, Missing where there is none.
        """
        return delivered_prefixes(self.switch.flows(self.bridge, Table.LOCAL))

    def count_received(self) -> dict[int, int]:
        """Count the frames that came in by each port. Raises what `read` raises."""
        return self.switch.count_received(self.bridge)


log = structlog.get_logger()

_AGAIN_S = 0.2
_GROUPS = 0x1 | 0x4 | 0x40 | 0x400
"""Of rtnetlink: links, neighbours, IPv4 and IPv6 routes."""
_HEADER = struct.Struct("=IHHII")
_INDEX = struct.Struct("=i")
_LINKS, _ROUTES, _NEIGHBOURS = (16, 17), (24, 25), (28, 29)
"""RTM_NEW... and RTM_DEL... by kind."""
_PROTOCOL_AT, _INDEX_AT = 5, 4
"""In a route's and in a neighbour's message."""


@dataclass(slots=True)
class RowMonitor:
    """A thread that calls a function when the switch's table may have changed.

    It is also called when the switch came or went.
    """

    rows: SwitchRows
    changed: Callable[[], None]
    _stopping: threading.Event = field(default_factory=threading.Event, init=False)
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)

    def start(self) -> None:
        """Start watching. Raises Missing where `ovs-ofctl` is not installed."""
        self._process = self._start_monitor()
        self._thread = threading.Thread(target=self._run, name="uplink-rows", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop, and end the process that was started."""
        self._stopping.set()
        if self._process is not None:
            self._process.kill()
        if self._thread is not None:
            self._thread.join(1.0)

    def _start_monitor(self) -> subprocess.Popen[bytes]:
        command = self.rows.switch.monitor_command(self.rows.bridge, Table.LOCAL)
        try:
            return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        except OSError as error:
            raise Missing(f"the program '{command[0]}' cannot be run: {error.strerror}") from None

    def _run(self) -> None:
        """Tell of each change of the switch's rows; start the monitor again where it ends."""
        while not self._stopping.is_set():
            process = self._process
            if process is None or process.stdout is None:
                return
            for _ in process.stdout:
                self.changed()
            process.wait()
            self.changed()
            while not self._stopping.wait(_AGAIN_S):
                try:
                    self._process = self._start_monitor()
                    break
                except Missing as error:
                    log.warning("uplink.monitor", error=str(error))


@dataclass(slots=True)
class KernelMonitor:
    """A thread that calls a function when links, neighbours or routes change.

    They are those of the port.
    """

    port: str
    changed: Callable[[], None]
    _stopping: threading.Event = field(default_factory=threading.Event, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)

    def start(self) -> None:
        """Start watching, in the network namespace of the calling thread."""
        messages = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        messages.bind((0, _GROUPS))
        messages.settimeout(0.5)
        self._thread = threading.Thread(target=self._run, args=(messages,), name="uplink-kernel", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop watching."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(1.0)

    def _run(self, messages: socket.socket) -> None:
        with messages:
            while not self._stopping.is_set():
                try:
                    if self._concerns(messages.recv(65536)):
                        self.changed()
                except TimeoutError:
                    continue
                except OSError:  # ENOBUFS: messages were lost, and any may have concerned us
                    self.changed()

    def _concerns(self, data: bytes) -> bool:
        """Whether messages may speak of the port or a route of ours."""
        at = 0
        while at + _HEADER.size <= len(data):
            length, kind = _HEADER.unpack_from(data, at)[:2]
            body = at + _HEADER.size
            if kind in _LINKS or (kind in _ROUTES and data[body + _PROTOCOL_AT] == ROUTE_PROTOCOL):
                return True
            if kind in _NEIGHBOURS and _INDEX.unpack_from(data, body + _INDEX_AT)[0] == self._find_index():
                return True
            at += max(length + 3 & ~3, _HEADER.size)
        return False

    def _find_index(self) -> int:
        with suppress(OSError):
            return socket.if_nametoindex(self.port)
        return 0
