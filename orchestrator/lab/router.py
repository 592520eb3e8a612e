"""A router between two ends, in three namespaces, to load and try packet filters.

    left ── eth0 ══ left ─ router ─ right ══ eth0 ── right

The kernel of `router` forwards whatever comes from one end to the other, whoever it is addressed to; the ends have raw
sockets and nobody speaks by himself. Packets that do not come out were dropped by the filter (or no router forwards
them).
"""

from __future__ import annotations

import os
import select
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, TypeVar

from pyroute2 import IPRoute, netns

from orchestrator.enforce.drivers.filters.command import Run
from orchestrator.enforce.drivers.openflow import frames
from orchestrator.enforce.drivers.queue.machine import Batching, LinuxMachine, Lost, PacketQueue
from orchestrator.errors import Missing, Refused
from orchestrator.lab import namespaces
from orchestrator.lab.network import INTERFACE
from orchestrator.lab.wire import raw_socket
from orchestrator.policy.addresses import format_mac
from orchestrator.policy.model import Packet

Result = TypeVar("Result")

LEFT, ROUTER, RIGHT = "left", "router", "right"
_MACS = {LEFT: 0x02AC1F000001, RIGHT: 0x02AC1F000002}
_ROUTER_MACS = {LEFT: 0x02AC1F000011, RIGHT: 0x02AC1F000012}
_NEXT_HOPS = {socket.AF_INET: "169.254.1.2", socket.AF_INET6: "fe80::2"}
_MAIN_TABLE, _BACK_TABLE = 254, 100
"""The routing table of what comes from the right."""
_OTHER = {LEFT: RIGHT, RIGHT: LEFT}
_BATCH = 64
_QUIET_S = 0.1
_COUNTS = Path("/proc/thread-self/net/dev")
_MAGIC = b"aclfw\xf1"
_FORWARDING = {
    "net/ipv4/ip_forward": "1", "net/ipv6/conf/all/forwarding": "1",
    "net/ipv4/conf/all/rp_filter": "0", "net/ipv4/conf/default/rp_filter": "0",
    "net/ipv4/conf/all/send_redirects": "0", "net/ipv6/conf/default/dad_transmits": "0",
    "net/ipv6/conf/default/accept_ra": "0", "net/ipv4/icmp_ratelimit": "0",
}  # fmt: skip


class Router:
    """The three namespaces, up for as long as the `with` block runs. Needs root."""

    def __init__(self, prefix: str) -> None:
        self._names = {role: f"{prefix}{role}" for role in (LEFT, ROUTER, RIGHT)}
        self.sockets: dict[str, socket.socket] = {}
        self._sent = 0
        self._run = os.urandom(4)

    def __enter__(self) -> Router:
        self._remove_namespaces()
        try:
            for name in self._names.values():
                namespaces.create(name)
            self.inside(ROUTER, self._link)
            self.sockets = {role: self.inside(role, raw_socket) for role in (LEFT, RIGHT)}
        except BaseException:
            self._remove_namespaces()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in self.sockets.values():
            each.close()
        self._remove_namespaces()

    def _remove_namespaces(self) -> None:
        for name in self._names.values():
            namespaces.remove(name)

    def _link(self) -> None:
        """Add both links, and routes between them. Called inside the router."""
        namespaces.set_kernel(_FORWARDING)
        with IPRoute() as routes:
            routes.link("set", index=routes.link_lookup(ifname="lo")[0], state="up")  # routes need some local address
            for role in (LEFT, RIGHT):
                descriptor = netns.getnsfd(self._names[role])
                try:
                    peer = {"ifname": INTERFACE, "net_ns_fd": descriptor, "address": format_mac(_MACS[role])}
                    routes.link("add", ifname=role, kind="veth", address=format_mac(_ROUTER_MACS[role]), peer=peer)
                finally:
                    os.close(descriptor)
                routes.link("set", index=routes.link_lookup(ifname=role)[0], state="up")
                self.inside(role, _up)
            for role, table in ((RIGHT, _MAIN_TABLE), (LEFT, _BACK_TABLE)):
                index = routes.link_lookup(ifname=role)[0]
                for family, gateway in _NEXT_HOPS.items():
                    routes.neigh("add", dst=gateway, lladdr=format_mac(_MACS[role]), ifindex=index, state="permanent",
                                 family=family)  # fmt: skip
                    everywhere = "::/0" if family == socket.AF_INET6 else "0.0.0.0/0"
                    routes.route("add", dst=everywhere, gateway=gateway, oif=index, flags=["onlink"], family=family,
                                 table=table)  # fmt: skip
            for family in _NEXT_HOPS:
                routes.rule("add", iifname=RIGHT, table=_BACK_TABLE, family=family)

    def inside(self, role: str, call: Callable[[], Result]) -> Result:
        """Call a function inside one of the namespaces and return its result."""
        return namespaces.inside(self._names[role], call)

    def run(self, *command: str, text: str = "") -> str:
        """Run a command in the router's namespace; return its output.

        Raises Missing, or Refused with its error output.
        """
        try:
            done = self.inside(
                ROUTER, lambda: subprocess.run(command, input=text, capture_output=True, text=True, check=False)
            )
        except FileNotFoundError:
            raise Missing(f"there is no program '{command[0]}' here") from None
        if done.returncode:
            raise Refused(f"{command[0]}: {done.stderr.strip()[:2000]}")
        return done.stdout

    def fire(self, packets: Sequence[Packet], sender: str = LEFT) -> list[bool]:
        """Send each packet once from an end; return which arrived at the other end."""
        return self.fire_frames([partial(frame_packet, packet, sender=sender) for packet in packets], sender)

    def fire_frames(self, crafts: Sequence[Callable[[bytes], bytes]], sender: str = LEFT) -> list[bool]:
        """Send frames, each made around its marker; return which arrived."""
        first, self._sent = self._sent, self._sent + len(crafts)
        seen = [False] * len(crafts)
        for start in range(0, len(crafts), _BATCH):
            for index, craft in enumerate(crafts[start : start + _BATCH], start):
                self.sockets[sender].send(craft(_MAGIC + self._run + struct.pack("!I", first + index)))
            self._collect(seen, first, 0.0, _OTHER[sender])
        while self._collect(seen, first, _QUIET_S, _OTHER[sender]):
            pass
        return seen

    def delays_us(self, packets: Sequence[Packet]) -> list[float]:
        """Send packets one by one; how long each took from left to right, in microseconds.

        Those that did not come out are left out.
        """
        found = []
        for packet in packets:
            first, self._sent = self._sent, self._sent + 1
            frame = frame_packet(packet, _MAGIC + self._run + struct.pack("!I", first))
            began = time.perf_counter_ns()
            self.sockets[LEFT].send(frame)
            seen = [False]
            if self._collect(seen, first, _QUIET_S) and seen[0]:
                found.append((time.perf_counter_ns() - began) / 1e3)
        return found

    def flood(self, seconds: float, *options: str) -> Flood:
        """Have hping3 send to LEFT's neighbour at full speed.

        Options name the destination and its port.

        Raises Missing where there is no hping3.
        """
        before = self._count_carried()
        try:
            self.inside(LEFT, lambda: _run_hping3(seconds, options))
        except FileNotFoundError:
            raise Missing("hping3 is not installed") from None
        time.sleep(_QUIET_S)
        sent, came = (after - ago for after, ago in zip(self._count_carried(), before, strict=True))
        return Flood(sent, came, seconds)

    def address_left(self, address: str, destination: str) -> None:
        """Give LEFT an address, and make the router its neighbour for a destination.

        hping3 needs both.
        """
        mac = format_mac(_ROUTER_MACS[LEFT])
        for words in (
            ("address", "replace", f"{address}/32", "dev", INTERFACE),
            ("route", "replace", f"{destination}/32", "dev", INTERFACE),
            ("neighbour", "replace", destination, "lladdr", mac, "dev", INTERFACE, "nud", "permanent"),
        ):
            self.inside(LEFT, partial(subprocess.run, ("ip", *words), check=True))

    def _count_carried(self) -> tuple[int, int]:
        """Packets that LEFT has sent, and those that RIGHT has got."""
        return self.inside(LEFT, _count_packets)[1], self.inside(RIGHT, _count_packets)[0]

    def cpu_ns(self, packets: Sequence[Packet]) -> float:
        """Measure CPU nanoseconds a packet from left to right, sending included.

        The kernel does all of the forwarding in the thread that sends, so that thread's clock is read.
        """
        crafted = [frame_packet(packet, _MAGIC) for packet in packets]
        left, spent = self.sockets[LEFT], 0
        for start in range(0, len(crafted), _BATCH):
            batch = crafted[start : start + _BATCH]
            before = time.thread_time_ns()
            for frame in batch:
                left.send(frame)
            spent += time.thread_time_ns() - before
            self._collect([], 0, 0.0)
        return spent / len(crafted)

    def _collect(self, seen: list[bool], first: int, patience_s: float, role: str = RIGHT) -> bool:
        """Take what has arrived at an end; whether there was anything."""
        stem = _MAGIC + self._run
        arrived = False
        while select.select([self.sockets[role]], [], [], patience_s)[0]:
            frame = self.sockets[role].recv(2048)
            at = frame.find(stem)
            if at < 0:
                continue
            index = struct.unpack_from("!I", frame, at + len(stem))[0] - first
            if 0 <= index < len(seen):
                seen[index] = arrived = True
            patience_s = 0.0
        return arrived


class Flood(NamedTuple):
    """Packets that were sent and that came through, in so many seconds."""

    sent: int
    came: int
    seconds: float


class RouterMachine:
    """The router's kernel as a classifier sees it: its queues and packet filter."""

    def __init__(self, router: Router) -> None:
        self._router = router

    @property
    def run(self) -> Run:
        """See `Machine.run`."""
        return lambda command, text: self._router.run(*command, text=text)

    def open(self, queue: int, batching: Batching) -> PacketQueue:
        """See `Machine.open`."""
        return self._router.inside(ROUTER, partial(LinuxMachine().open, queue, batching))

    def lost(self) -> Mapping[int, Lost]:
        """See `Machine.lost`."""
        return self._router.inside(ROUTER, LinuxMachine().lost)


def _run_hping3(seconds: float, options: Sequence[str]) -> None:
    command = ("hping3", "-q", "-I", INTERFACE, "--flood", *options)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as flooding:
        try:
            flooding.wait(seconds)
        except subprocess.TimeoutExpired:
            flooding.kill()


def _count_packets() -> tuple[int, int]:
    """Packets that this end has got and sent."""
    line = next(line for line in _COUNTS.read_text().splitlines() if line.strip().startswith(f"{INTERFACE}:"))
    fields = line.partition(":")[2].split()
    return int(fields[1]), int(fields[9])


def ethernet(kind: int, payload: bytes, sender: str = LEFT) -> bytes:
    """A frame from an end to the router around what it carries."""
    return frames.ethernet(_MACS[sender], _ROUTER_MACS[sender], kind, payload)


def frame_packet(packet: Packet, payload: bytes, *, sender: str = LEFT) -> bytes:
    """A frame from an end to the router around a packet with a payload."""
    return frames.frame(packet, src_mac=_MACS[sender], dst_mac=_ROUTER_MACS[sender], payload=payload)


def _up() -> None:
    """Set up an end of a link that sends nothing by itself.

    Called inside the end's namespace.
    """
    namespaces.set_kernel({"net/ipv6/conf/all/disable_ipv6": "1"})
    with IPRoute() as end:
        end.link("set", index=end.link_lookup(ifname=INTERFACE)[0], state="up")
