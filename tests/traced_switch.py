"""A real Open vSwitch that holds compiled rows: rows sent and read back as raw bytes, packets traced through them."""

from __future__ import annotations

import re
import socket
import struct
import subprocess
from pathlib import Path
from typing import NamedTuple

from enforce.dummy_ovs import DummyOvs

from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.openflow import oxm
from orchestrator.compile.openflow.meters import meter_in
from orchestrator.compile.pipelines.host import Table
from orchestrator.enforce.drivers.openflow.resolve import resolve
from orchestrator.policy.addresses import Family, format_address
from orchestrator.policy.model import Endpoint, Packet
from orchestrator.policy.protocols import ICMP, ICMPV6, TCP, WITH_PORTS, format_protocol
from orchestrator.program.flows import Flow
from orchestrator.program.program import Program, Tier

UPLINK, PORT_A, PORT_B = 1, 2, 3
MAC_A, MAC_B = "02:00:00:00:00:0a", "02:00:00:00:00:0b"
GATEWAY = "0a:ac:1f:00:00:01"
FLOW_REMOVED_ALL = struct.pack(">QQBBHHHIIIHHHH4x", 0, 0, 0xFF, 3, 0, 0, 0, *(0xFFFFFFFF,) * 3, 0, 0, 1, 4)


class Held(NamedTuple):
    """A row as the switch describes it."""

    table: int
    priority: int
    match: bytes
    instructions: bytes
    cookie: int


class Bridge:
    """OpenFlow 1.5 by hand, over the bridge's management socket: sends rows and reads them back as raw bytes."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(path))
        self._xid = 0
        self._send(0, b"")
        self._receive()

    def close(self) -> None:
        self._socket.close()

    def hold(self, rows: list[Flow]) -> None:
        """Replace every row of the bridge, and every meter by those that the rows declare."""
        self._send(14, FLOW_REMOVED_ALL)
        self._send(29, struct.pack(">HHI", 2, 0, 0xFFFFFFFF))
        for row in rows:
            if row.table == Table.METERS:
                meter = meter_in(row.match)
                assert meter is not None
                self._send(29, struct.pack(">HHI HHII4x", 0, 6, meter.number, 1, 16, meter.rate, meter.burst))
        for row in rows:
            length = 4 + len(row.match)
            match = struct.pack(">HH", 1, length) + row.match + bytes(-length % 8)
            head = (row.cookie, 0, row.table, 0, 0, 0, row.priority, *(0xFFFFFFFF,) * 3, 0, 0)
            self._send(14, struct.pack(">QQBBHHHIIIHH", *head) + match + row.instructions)
        barrier = self._send(20, b"")
        kind, xid, body = self._receive()
        assert (kind, xid) == (21, barrier), f"the switch refused: {body[:80].hex()}"

    def rows(self) -> list[Held]:
        """Every row that the switch describes."""
        everything = struct.pack(">HHIB3xII4xQQHH4x", 1, 0, 0, 0xFF, 0xFFFFFFFF, 0xFFFFFFFF, 0, 0, 1, 4)
        self._send(18, everything)
        found: list[Held] = []
        more = True
        while more:
            _, _, body = self._receive()
            more = bool(struct.unpack_from(">H", body, 2)[0] & 1)
            entries = body[8:]
            while entries:
                (length,) = struct.unpack_from(">H", entries)
                found.append(self._row(entries[:length]))
                entries = entries[length:]
        return found

    @staticmethod
    def _row(entry: bytes) -> Held:
        table, priority, cookie = struct.unpack_from(">4xBxH8xQ", entry)
        (match_length,) = struct.unpack_from(">H", entry, 26)
        statistics = 24 + (match_length + 7) // 8 * 8
        (statistics_length,) = struct.unpack_from(">H", entry, statistics + 2)
        instructions = entry[statistics + (statistics_length + 7) // 8 * 8 :]
        return Held(table, priority, entry[28 : 24 + match_length], instructions, cookie)

    def _send(self, kind: int, body: bytes) -> int:
        self._xid += 1
        self._socket.sendall(struct.pack(">BBHI", 6, kind, 8 + len(body), self._xid) + body)
        return self._xid

    def _receive(self) -> tuple[int, int, bytes]:
        _, kind, length, xid = struct.unpack(">BBHI", self._exactly(8))
        return kind, xid, self._exactly(length - 8)

    def _exactly(self, length: int) -> bytes:
        found = b""
        while len(found) < length:
            piece = self._socket.recv(length - len(found))
            assert piece, "the switch hung up"
            found += piece
        return found


def rows_of(program: Program, ports: dict[str, int]) -> list[Flow]:
    """A program as the switch must hold it, its stamp included."""
    stamp = Flow(
        table=Table.STAMP,
        priority=0,
        match=oxm.stamp_match(program.digest),
        instructions=b"",
        cookie=Cookie(Tier.HOST, Kind.STAMP, program.generation).pack(),
    )
    return [*resolve(program.flows, program.ports, {"up0": UPLINK} | ports, "up0").rows(), stamp]


class Tracer:
    """Asks the switch what it would do with a packet."""

    def __init__(self, ovs: DummyOvs) -> None:
        self._target = str(ovs.directory / "ovs-vswitchd.ctl")

    def actions(self, *flow: str) -> str:
        """The datapath actions, without spaces, for a flow or for a port and a frame in hexadecimal."""
        return self._line(flow, "Datapath actions").replace(" ", "")

    def megaflow(self, *flow: str) -> str:
        return self._line(flow, "Megaflow")

    def _line(self, flow: tuple[str, ...], name: str) -> str:
        words = ["ovs-appctl", f"--target={self._target}", "ofproto/trace", "br0", *flow]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        found = re.search(rf"^{name}: (.*)$", done.stdout, re.MULTILINE)
        assert found, done.stdout
        return found.group(1)


def out_of(actions: str) -> str:
    """The port at the end of some datapath actions; "drop" if there is none. Reports are no way out."""
    return (
        re.sub(r"sample\(sample=100.0%,actions\(meter\(\d+\),userspace\([^()]*\([^()]*\)\)\)\),?", "", actions).rsplit(
            ",", 1
        )[-1]
        or "drop"
    )


def flow_of(packet: Packet, sender: Endpoint | None, numbers: dict[str, int]) -> str:
    """A packet as `ofproto/trace` reads it, from its endpoint's port or from outside."""
    mac = ":".join(f"{byte:02x}" for byte in sender.mac.to_bytes(6, "big")) if sender else GATEWAY
    six = packet.family is Family.IPV6
    kind, side = ("0x86dd", "ipv6") if six else ("0x0800", "nw")
    words = {
        "in_port": numbers[sender.port] if sender else UPLINK, "dl_src": mac, "dl_dst": GATEWAY, "dl_type": kind,
        f"{side}_src": format_address(packet.family, packet.source),
        f"{side}_dst": format_address(packet.family, packet.destination), "nw_proto": packet.protocol,
        "nw_tos": packet.dscp << 2,
    }  # fmt: skip
    if packet.later_fragment:
        words["nw_frag"] = "later"
    elif packet.protocol in WITH_PORTS:
        name = format_protocol(packet.protocol)
        words |= {f"{name}_src": packet.source_port, f"{name}_dst": packet.destination_port}
        words |= {"tcp_flags": f"{packet.tcp_flags:#x}"} if packet.protocol == TCP else {}
    elif packet.protocol == (ICMPV6 if six else ICMP):
        name = format_protocol(packet.protocol)
        words |= {f"{name}_type": packet.icmp_type, f"{name}_code": packet.icmp_code}
    return ",".join(f"{name}={value}" for name, value in words.items())
