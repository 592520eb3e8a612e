"""Namespaces in the place of instances, plugged into a host's switch, and datagrams between them.

They are plugged as os-vif plugs an instance. QEMU without hardware support would hide what a switch does; a namespace
sends and hears at once.
"""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from orchestrator.bench.cloud.cloudsite import Compute
from orchestrator.cloud.endpoints import device_of
from orchestrator.errors import AclflowError
from orchestrator.lab import namespaces
from orchestrator.lab.network import INTERFACE, without_offloads
from orchestrator.lab.ovs import run_program
from orchestrator.lab.processes import wait_until

PORT = 9
"""The UDP port at which datagrams are heard."""
_EVERY_S, _CLOSED_S = 0.002, 0.5
_SETTLED = 1000
"""So many datagrams after a change was taken, every host has it: agents look each two seconds."""
_PATIENCE_S = 120.0
_SO_NO_CHECK = 11
"""Without a checksum: a switch that forwards in its daemon passes on what the kernel leaves open."""


@dataclass(frozen=True, slots=True)
class Plugged:
    """A port of Neutron's with a namespace behind it."""

    namespace: str
    address: str


@contextmanager
def plug_namespace(
    host: Compute, bridge: str, port: Any, gateway: str = "", *, prefix: str = "plug-"
) -> Iterator[Plugged]:
    """Plug a namespace into a bridge of a host until the block ends.

    `port` is Neutron's, bound to the host. With a gateway its address stands alone, as on a network of aclflow.
    """
    tap, namespace = device_of(port.id), f"{prefix}{port.id[:8]}"
    address = port.fixed_ips[0]["ip_address"]
    there = ("-n", host.namespace) if host.namespace else ()
    namespaces.create(namespace)
    try:
        _ip(*there, "link", "add", tap, "type", "veth", "peer", "name", INTERFACE, "netns", namespace)
        _ip(*there, "link", "set", tap, "up")
        _ip("-n", namespace, "link", "set", INTERFACE, "address", port.mac_address, "up")
        _ip("-n", namespace, "address", "add", f"{address}/{32 if gateway else 24}", "dev", INTERFACE)
        if gateway:
            _ip("-n", namespace, "route", "add", "default", "via", gateway, "dev", INTERFACE, "onlink")
        namespaces.inside(namespace, partial(without_offloads, INTERFACE))
        _inside(host, partial(without_offloads, tap))
        known = {"iface-id": port.id, "iface-status": "active", "attached-mac": f'"{port.mac_address}"'}
        words = [f"external_ids:{name}={value}" for name, value in known.items()]
        host.run("ovs-vsctl", "add-port", bridge, tap, "--", "set", "Interface", tap, *words)
        yield Plugged(namespace, address)
    finally:
        with suppress(AclflowError):
            host.run("ovs-vsctl", "--if-exists", "del-port", bridge, tap)
        namespaces.remove(namespace)


@dataclass(slots=True)
class Stream:
    """Datagrams from one namespace to another: the number of each that came, and when."""

    came: list[float] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)

    def is_open(self) -> bool:
        """Whether one came a moment ago."""
        return bool(self.came) and time.monotonic() - self.came[-1] < _CLOSED_S

    def wait_until_closed(self) -> None:
        """Return when none comes any more. Raises Unreachable."""
        wait_until(lambda: not self.is_open(), "datagrams still arrive", _PATIENCE_S)

    def wait_until_open(self) -> None:
        """Return when they come. Raises Unreachable."""
        wait_until(self.is_open, "no datagram arrives", _PATIENCE_S)

    def measure_opening_s(self, change: Callable[[], object]) -> float:
        """Make a change that opens the way; measure until the first datagram comes.

        The clock starts with the change. Raises Unreachable where none comes.
        """
        self.wait_until_closed()
        before, begun = len(self.came), time.monotonic()
        change()
        wait_until(lambda: len(self.came) > before, "the change let no datagram in", _PATIENCE_S)
        return self.came[before] - begun

    def count_lost(self, change: Callable[[], object]) -> int:
        """Make a change while the way is open; return how many datagrams were lost.

        They are counted from before the change until all hosts have it. Raises Unreachable where they stay away.
        """
        self.wait_until_open()
        before = len(self.numbers)
        change()
        after = len(self.numbers)
        wait_until(lambda: len(self.numbers) > after + _SETTLED, "datagrams stay away", _PATIENCE_S)
        return count_missing(self.numbers[before:])


def count_missing(numbers: list[int]) -> int:
    """How many numbers are missing between the first and the last of some."""
    return max(numbers) - min(numbers) + 1 - len(set(numbers))


@contextmanager
def streaming(sender: Plugged, receiver: Plugged) -> Iterator[Stream]:
    """Send a datagram each two milliseconds until the block ends."""
    found, stopping = Stream(), threading.Event()
    with ThreadPoolExecutor(2) as pool:
        tasks = [pool.submit(_hear, receiver, found, stopping), pool.submit(_send, sender, receiver, stopping)]
        try:
            yield found
        finally:
            stopping.set()
    for each in tasks:
        each.result()


def _send(sender: Plugged, receiver: Plugged, stopping: threading.Event) -> None:
    """Send numbered datagrams from one plugged end to another until stopped."""
    namespaces.enter(sender.namespace)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        opened.setsockopt(socket.SOL_SOCKET, _SO_NO_CHECK, 1)
        for number in itertools.count():
            if stopping.wait(_EVERY_S):
                break
            with suppress(OSError):
                opened.sendto(number.to_bytes(8, "big"), (receiver.address, PORT))


def _hear(receiver: Plugged, found: Stream, stopping: threading.Event) -> None:
    """Receive numbered datagrams until stopped; note number and time of each."""
    namespaces.enter(receiver.namespace)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        opened.bind(("", PORT))
        opened.settimeout(0.1)
        while not stopping.is_set():
            with suppress(TimeoutError):
                number = int.from_bytes(opened.recv(64), "big")
                found.came.append(time.monotonic())
                found.numbers.append(number)


def _inside(host: Compute, call: Callable[[], None]) -> None:
    """Call a function where a host's interfaces are."""
    if host.namespace:
        namespaces.inside(host.namespace, call)
    else:
        call()


def _ip(*words: str) -> None:
    """Run `ip` with these arguments."""
    run_program(["ip", *words])
