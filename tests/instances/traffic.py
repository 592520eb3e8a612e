"""Packets that lists permit and that they forbid, sent all the time, and where each kind was seen.

    outside ── ping, a page without end at port 80 ──▶ instance        permitted
    outside ── tcp 81, udp 80 ──▶ instance                             forbidden
    another instance ── tcp 80 ──▶ instance                            forbidden
    instance ── tcp 81, a false address ──▶ outside                    forbidden

Packets are seen on every interface of both hosts, and outside.
"""

from __future__ import annotations

import re
import signal
import socket
import struct
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise

from instances.looking import LONG_S, typed
from patience import until
from twohosts.addresses import HOSTS, OUTSIDE, OUTSIDE_ADDRESS
from twohosts.cloud import Cloud
from twohosts.example import Instance

from orchestrator.lab import namespaces
from orchestrator.policy.protocols import ICMP, ICMPV6, TCP, UDP

FALSE = "198.51.100.50"
"""An address that is nobody's."""
_EVERY_S = 0.02
_ALL, _IPV4, _IPV6, _OUTGOING = 3, 0x0800, 0x86DD, 4
_PACKET, _STATISTICS = 263, 6
_CLOCK = (
    "mkdir -p /www/cgi-bin; printf '#!/bin/sh\\necho Content-type: text/plain; echo; "
    "n=0; while true; do echo $n; n=$((n+1)); usleep 50000; done\\n' >/www/cgi-bin/clock; chmod +x /www/cgi-bin/clock"
)
_ATTEMPTS = (
    f"ip address replace {FALSE}/32 dev eth0",
    f"(while true; do ping -c 1 -W 1 -I {FALSE} {OUTSIDE_ADDRESS}; sleep 1; done) >/dev/null 2>&1 & true",
    f"(while true; do nc -w 1 {OUTSIDE_ADDRESS} 81 </dev/null; sleep 1; done) >/dev/null 2>&1 & true",
)


@dataclass(frozen=True, slots=True)
class Seen:
    """A kind of packet, and where it was seen. `port` is that of the receiver, or the type of ICMP."""

    node: str
    interface: str
    to_interface: bool
    source: str
    destination: str
    protocol: int
    port: int


@dataclass(slots=True)
class Sniffer:
    """Counts the IP packets on all interfaces of a namespace, by kind."""

    cloud: Cloud
    node: str
    seen: Counter[Seen] = field(default_factory=Counter, init=False)

    def run(self, stopping: threading.Event) -> None:
        namespaces.enter(self.cloud.prefix + self.node)
        with _open() as opened:
            while not stopping.is_set():
                with suppress(TimeoutError):
                    self._count(*opened.recvfrom(128))
            dropped = struct.unpack("=II", opened.getsockopt(_PACKET, _STATISTICS, 8))[1]
            assert not dropped, f"{dropped} packets were overlooked in {self.node}"

    def _count(self, packet: bytes, origin: tuple[str, int, int]) -> None:
        if origin[1] == _IPV4:
            family, protocol, at, payload = socket.AF_INET, packet[9], (12, 16, 20), packet[4 * (packet[0] & 15) :]
        elif origin[1] == _IPV6:
            family, protocol, at, payload = socket.AF_INET6, packet[6], (8, 24, 40), packet[40:]
        else:
            return
        port = int.from_bytes(payload[:1] if protocol in (ICMP, ICMPV6) else payload[2:4], "big")
        source, destination = (socket.inet_ntop(family, packet[start:end]) for start, end in pairwise(at))
        self.seen[Seen(self.node, origin[0], origin[2] == _OUTGOING, source, destination, protocol, port)] += 1


def _open() -> socket.socket:
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ALL))
    opened.setsockopt(socket.SOL_SOCKET, 33, 1 << 25)  # SO_RCVBUFFORCE
    opened.settimeout(0.2)
    return opened


@dataclass(slots=True)
class Traffic:
    """All of it about one instance, while a `with` statement of `traffic` lasts."""

    cloud: Cloud
    instance: Instance
    sniffers: list[Sniffer]
    pinged: list[float] = field(default_factory=list)
    """When each answer came."""
    numbers: list[int] = field(default_factory=list)
    """What the stream brought."""

    @property
    def seen(self) -> Counter[Seen]:
        """What was seen so far, on both hosts and outside."""
        return sum((Counter(dict(each.seen)) for each in self.sniffers), Counter())

    def wrong(self) -> dict[Seen, int]:
        """Packets that no list permits: delivered to the instance, or come from it to the outside."""
        return {kind: count for kind, count in self.seen.items() if self._is_wrong(kind)}

    def _is_wrong(self, kind: Seen) -> bool:
        if kind.node == OUTSIDE:
            is_its_own = kind.source == self.instance.address
            return kind.source == FALSE or (is_its_own and (kind.protocol, kind.port) == (TCP, 81))
        if not (kind.interface.startswith("tap") and kind.to_interface):
            return False
        if kind.destination != self.instance.address:
            return kind.destination == FALSE
        if kind.source == OUTSIDE_ADDRESS:
            return (kind.protocol, kind.port) not in ((ICMP, 8), (TCP, 80))
        return (kind.protocol, kind.port) != (UDP, 68)

    def delivered(self, host: str) -> int:
        """How many pings a host delivered to the instance."""
        return sum(
            count for kind, count in self.seen.items()
            if (kind.node, kind.to_interface, kind.protocol, kind.destination, kind.interface[:3])
            == (host, True, ICMP, self.instance.address, "tap")
        )  # fmt: skip

    def attempted(self, host: str) -> bool:
        """Whether the instance tried on a host what it may not."""
        tried = {
            (kind.source == FALSE, kind.port == 81) for kind in self.seen
            if kind.node == host and kind.interface.startswith("tap") and not kind.to_interface
        }  # fmt: skip
        return any(false for false, _ in tried) and any(port for _, port in tried)

    @property
    def outage_ms(self) -> int:
        """The longest time without an answer to a ping; one is sent each 20 ms."""
        return round(1000 * max(after - before for before, after in pairwise(self.pinged)))

    def wait_until_it_flows(self, host: str) -> None:
        """Return when the instance is pinged on a host, its stream goes on, and it tries there what it may not."""
        pinged, numbers, delivered = len(self.pinged), len(self.numbers), self.delivered(host)
        until(
            lambda: self.delivered(host) > delivered + 20 and len(self.pinged) > pinged + 20
            and len(self.numbers) > numbers + 20 and self.attempted(host),
            what=lambda: (host, len(self.pinged), len(self.numbers), self.delivered(host), self.attempted(host)),
        )  # fmt: skip

    # ------------------------------------------------------------------------------------------------------- threads

    def ping(self, stopping: threading.Event) -> None:
        """Ping the instance from outside; note when it answers."""
        namespaces.enter(self.cloud.prefix + OUTSIDE)
        command = ("ping", "-D", "-n", "-i", str(_EVERY_S), self.instance.address)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as pinging:
            threading.Thread(target=lambda: (stopping.wait(), pinging.send_signal(signal.SIGINT))).start()
            assert pinging.stdout is not None
            for line in pinging.stdout:
                if found := re.match(r"\[(\d+\.\d+)\].*icmp_seq=", line):
                    self.pinged.append(float(found[1]))

    def listen(self, stopping: threading.Event) -> None:
        """Read a page of the instance that has no end: numbers, one after the other."""
        namespaces.enter(self.cloud.prefix + OUTSIDE)
        with socket.create_connection((self.instance.address, 80), LONG_S) as opened:
            opened.sendall(b"GET /cgi-bin/clock HTTP/1.0\r\n\r\n")
            opened.settimeout(0.2)
            heard = b""
            while not stopping.is_set():
                with suppress(TimeoutError):
                    more = opened.recv(4096)
                    assert more, f"the stream ended: {heard!r}"
                    *lines, heard = (heard + more).split(b"\n")
                    self.numbers.extend(int(each) for each in lines if each.strip().isdigit())

    def shoot(self, stopping: threading.Event) -> None:
        """Send from outside what the instance's list forbids."""
        namespaces.enter(self.cloud.prefix + OUTSIDE)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
            while not stopping.wait(_EVERY_S):
                datagrams.sendto(b"forbidden", (self.instance.address, 80))
                with socket.socket() as attempt:
                    attempt.setblocking(False)
                    attempt.connect_ex((self.instance.address, 81))


@contextmanager
def traffic(cloud: Cloud, instance: Instance, other: Instance) -> Iterator[Traffic]:
    """Send everything that the module's text shows until the block ends. Raises AssertionError where packets were
    overlooked."""
    for command in (_CLOCK, *_ATTEMPTS):
        typed(cloud, instance, command)
    attempts = f"while true; do nc -w 1 {instance.address} 80 </dev/null; sleep 1; done"
    typed(cloud, other, f"({attempts}) >/dev/null 2>&1 & echo $! >/pid")
    found = _traffic_of(cloud, instance)
    try:
        with _running(found, found.ping, found.listen, found.shoot):
            yield found
    finally:
        typed(cloud, other, "kill $(cat /pid)")


@contextmanager
def traffic_from_outside(cloud: Cloud, instance: Instance) -> Iterator[Traffic]:
    """Send pings and what is forbidden from outside alone: the instance may go and come."""
    found = _traffic_of(cloud, instance)
    with _running(found, found.ping, found.shoot):
        yield found


@contextmanager
def nothing_but_sniffing(cloud: Cloud, instance: Instance) -> Iterator[Traffic]:
    """Look at all packets on the hosts and outside; send none."""
    found = _traffic_of(cloud, instance)
    with _running(found):
        yield found


def _traffic_of(cloud: Cloud, instance: Instance) -> Traffic:
    return Traffic(cloud, instance, [Sniffer(cloud, node) for node in (OUTSIDE, *HOSTS)])


@contextmanager
def _running(found: Traffic, *tasks: Callable[[threading.Event], None]) -> Iterator[None]:
    stopping = threading.Event()
    everything = (*(each.run for each in found.sniffers), *tasks)
    with ThreadPoolExecutor(len(everything)) as pool:
        futures = [pool.submit(task, stopping) for task in everything]
        try:
            yield
        finally:
            stopping.set()
    for each in futures:
        each.result()
