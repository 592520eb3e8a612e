"""Namespaces that are plugged into a host's switch as os-vif plugs an instance, and datagrams between them.

QEMU without hardware support would hide what a switch does; a namespace sends and hears at once.
"""

from __future__ import annotations

import itertools
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from patience import until
from twohosts.cloud import Cloud

from orchestrator.lab import namespaces

PORT = 9
"""The UDP port at which datagrams are heard."""
_EVERY_S, _CLOSED_S = 0.002, 0.5
_SETTLED = 1000
"""So many datagrams after a change was taken, every host has it: agents look each two seconds."""
_SO_NO_CHECK = 11
"""Without a checksum: a switch that forwards in its daemon passes on what the kernel leaves open."""


@dataclass(frozen=True, slots=True)
class Plugged:
    """A port of Neutron's with a namespace behind it."""

    namespace: str
    address: str


@contextmanager
def plugged(cloud: Cloud, host: str, bridge: str, port: Any, gateway: str = "") -> Iterator[Plugged]:
    """Plug a namespace into a bridge of a host by a port that Neutron bound; it goes when the block ends."""
    tap, namespace = f"tap{port.id}"[:14], f"{cloud.prefix}{port.id[:8]}"
    address = port.fixed_ips[0]["ip_address"]
    namespaces.create(namespace)
    try:
        _ip("-n", cloud.prefix + host, "link", "add", tap, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        _ip("-n", cloud.prefix + host, "link", "set", tap, "up")
        _ip("-n", namespace, "link", "set", "eth0", "address", port.mac_address, "up")
        _ip("-n", namespace, "address", "add", f"{address}/{32 if gateway else 24}", "dev", "eth0")
        if gateway:
            _ip("-n", namespace, "route", "add", "default", "via", gateway, "dev", "eth0", "onlink")
        known = {"iface-id": port.id, "iface-status": "active", "attached-mac": f'"{port.mac_address}"'}
        words = [f"external_ids:{name}={value}" for name, value in known.items()]
        cloud.hosts[host].run("ovs-vsctl", "add-port", bridge, tap, "--", "set", "Interface", tap, *words)
        yield Plugged(namespace, address)
    finally:
        with suppress(Exception):
            cloud.hosts[host].run("ovs-vsctl", "--if-exists", "del-port", bridge, tap)
        namespaces.remove(namespace)


@dataclass(slots=True)
class Stream:
    """Datagrams from one namespace to another: the number of each that came, and when."""

    came: list[float] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)

    def is_open(self) -> bool:
        """Whether one came a moment ago."""
        return bool(self.came) and time.monotonic() - self.came[-1] < _CLOSED_S

    def opened_after_s(self, change: Callable[[], object]) -> float:
        """Make a change that opens the way; return how long after its beginning the first datagram came."""
        until(lambda: not self.is_open())
        before, begun = len(self.came), time.monotonic()
        change()
        until(lambda: len(self.came) > before)
        return self.came[before] - begun

    def lost_while(self, change: Callable[[], object]) -> int:
        """Make a change while the way is open; return how many datagrams were lost from before it to after it."""
        until(self.is_open)
        before = len(self.numbers)
        change()
        after = len(self.numbers)
        until(lambda: len(self.numbers) > after + _SETTLED)
        numbers = self.numbers[before:]
        return numbers[-1] - numbers[0] + 1 - len(set(numbers))


@contextmanager
def streaming(sender: Plugged, receiver: Plugged) -> Iterator[Stream]:
    """Send a datagram each two milliseconds until the block ends."""
    found, stopping = Stream(), threading.Event()

    def send() -> None:
        namespaces.enter(sender.namespace)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
            opened.setsockopt(socket.SOL_SOCKET, _SO_NO_CHECK, 1)
            for number in itertools.count():
                if stopping.wait(_EVERY_S):
                    break
                with suppress(OSError):
                    opened.sendto(number.to_bytes(8, "big"), (receiver.address, PORT))

    def hear() -> None:
        namespaces.enter(receiver.namespace)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
            opened.bind(("", PORT))
            opened.settimeout(0.1)
            while not stopping.is_set():
                with suppress(TimeoutError):
                    number = int.from_bytes(opened.recv(64), "big")
                    found.came.append(time.monotonic())
                    found.numbers.append(number)

    with ThreadPoolExecutor(2) as pool:
        tasks = [pool.submit(hear), pool.submit(send)]
        try:
            yield found
        finally:
            stopping.set()
    for each in tasks:
        each.result()


def _ip(*words: str) -> None:
    subprocess.run(("ip", *words), check=True)
