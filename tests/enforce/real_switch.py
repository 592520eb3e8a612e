"""One bridge of a real Open vSwitch, for tests that send frames through it.

It is a bridge of a `DummyOvs`, whose ports take frames from, and give frames to, the test over control sockets and
capture files instead of a network. Everything above them is the real switch.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path

from enforce.dummy_ovs import DummyOvs
from patience import PATIENCE_S

from orchestrator.enforce.drivers.openflow import messages
from orchestrator.enforce.drivers.openflow.channel import HEADER, StreamChannel
from orchestrator.enforce.drivers.openflow.messages import Type

PORTS = ("vm1", "vm2", "vm3", "wan0")
"""Interfaces of the bridge, numbered from 1."""

MOST_AT_ONCE = 90
"""So many frames may wait in a port's queue; Open vSwitch's own limit is 100."""

SENTINEL = bytes.fromhex("02000000000202000000000188b5") + b"aclflow sentinel".ljust(50, b".")


class Control:
    """The control socket of a daemon: what `ovs-appctl` speaks, without starting a process for each word."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(path))
        self._decoder = json.JSONDecoder()

    def __call__(self, method: str, *params: str) -> str:
        self._socket.sendall(json.dumps({"method": method, "params": params, "id": 0}).encode())
        text = ""
        while True:
            text += self._socket.recv(1 << 16).decode()
            with contextlib.suppress(json.JSONDecodeError):
                answer, _ = self._decoder.raw_decode(text)
                break
        assert answer["error"] is None, f"{method} {' '.join(params)[:200]}: {answer['error']}"
        return str(answer["result"])

    def close(self) -> None:
        self._socket.close()


class RealSwitch:
    """One bridge `br0` in secure mode, waiting for a controller on a unix socket."""

    def __init__(self, folder: Path, ports: tuple[str, ...] = PORTS) -> None:
        self.folder = folder
        self.ports = {name: number for number, name in enumerate(ports, 1)}
        self._read = dict.fromkeys(ports, 24)  # the capture file's own header
        self.epochs = count(1, 10)
        """For controllers to claim it with: it remembers the newest epoch that it has heard."""
        self.ovs = DummyOvs(folder)
        self.ovs.add_bridge("br0", datapath_id=0xAB)
        self.control = Control(folder / "ovs-vswitchd.ctl")
        for name, number in self.ports.items():
            self.ovs.add_port("br0", name, number, capture=folder / f"{name}.pcap")
        self.ovs.vsctl("set-controller", "br0", f"punix:{folder}/br0.controller")
        self._start_clock()

    def _start_clock(self) -> None:
        """A second bridge that passes sentinels on."""
        self.ovs.add_bridge("clock", datapath_id=0xC1)
        for number, name in enumerate(("clock-in", "clock-out"), 1):
            self.ovs.add_port("clock", name, number, capture=self.folder / f"{name}.pcap")
        self.ovs.ofctl("add-flow", "clock", "priority=65535,in_port=1,actions=output:2")

    def stop(self) -> None:
        self.control.close()
        self.ovs.close()

    def vsctl(self, *words: str) -> str:
        return self.ovs.vsctl(*words)

    def ofctl(self, command: str, *words: str) -> str:
        return self.ovs.ofctl(command, "br0", *words)

    def reset(self) -> None:
        """As a bridge that nobody has touched yet: no flows, no connections, fragments as by default, no limits."""
        self.ofctl("del-flows")
        self.ofctl("del-groups")
        self.ofctl("del-meters")
        self.ofctl("set-frags", "normal")
        self.control("dpctl/flush-conntrack")
        self.vsctl("--", "clear", "bridge", "br0", "flow_tables")

    def limit(self, table: int, flows: int) -> None:
        """Let a table hold no more than so many flows."""
        self.vsctl("--", "--id=@t", "create", "flow_table", f"flow_limit={flows}", "overflow_policy=refuse",
                   "--", "set", "bridge", "br0", f"flow_tables:{table}=@t")  # fmt: skip

    def connect(self) -> SocketLink:
        return SocketLink(self.folder / "br0.controller")

    def settle(self) -> None:
        """Bring the flows' counters up to date with the packets forwarded so far.

        Entries of the cache that a thread of the daemon looks at just then are passed over, so it is emptied twice.
        """
        for _ in range(2):
            self.control("revalidator/purge")

    def forward(self, frame: bytes, port: str) -> list[tuple[str, bytes]]:
        """Put a frame into a port; what comes out of which ports.

        The daemon polls its ports in turns. A sentinel put into another bridge afterwards comes out in the turn in
        which our frame is polled, or a later one; when a second one is out, ours has been decided for certain.
        """
        self.control("netdev-dummy/receive", port, frame.hex())
        for _ in range(2):
            self._sentinel()
        return [(name, out) for name in self.ports for out in self._captured(name)]

    def forward_many(self, frames: Mapping[str, Sequence[bytes]]) -> list[tuple[str, bytes]]:
        """Put frames into ports, at most `MOST_AT_ONCE` into each; what comes out of which ports.

        Frames of one port go in their order, those of several ports beside each other.
        """
        most = max(map(len, frames.values()), default=0)
        assert most <= MOST_AT_ONCE, "a port drops what does not fit into its queue"
        for port, those in frames.items():
            if those:
                self.control("netdev-dummy/receive", port, *(each.hex() for each in those))
        for many in (max(most, 1), 1):
            self._sentinel(many)
        return [(name, out) for name in self.ports for out in self._captured(name)]

    def _sentinel(self, many: int = 1) -> None:
        """Wait until so many turns of the daemon are over: in each it takes one frame from each port."""
        capture = self.folder / "clock-out.pcap"
        awaited = capture.stat().st_size + many * (16 + len(SENTINEL))
        self.control("netdev-dummy/receive", "clock-in", *[SENTINEL.hex()] * many)
        ends = time.monotonic() + PATIENCE_S
        while capture.stat().st_size < awaited:
            assert time.monotonic() < ends, "the switch stands still"
            time.sleep(0.0001)

    def _captured(self, name: str) -> Iterator[bytes]:
        """Frames that left by a port since the last look."""
        data = (self.folder / f"{name}.pcap").read_bytes()
        at = self._read[name]
        while at < len(data):
            (length,) = struct.unpack_from("=8xI", data, at)
            yield data[at + 16 : at + 16 + length]
            at += 16 + length
        self._read[name] = at


class SocketLink:
    """A controller's end of one connection, with a thread that reads: the plainest channel there can be."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(path))
        self._socket.sendall(messages.hello(1) + messages.features_request(2) + messages.port_desc_request(3))
        self._rest = b""
        features, ports = self._handshake()
        self.channel = StreamChannel(messages.read_datapath_id(features), ports, self._socket.sendall)
        self._reader = threading.Thread(target=self._read_on, daemon=True)
        self._reader.start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._reader.join(PATIENCE_S)
        self._socket.close()

    def _handshake(self) -> tuple[bytes, Mapping[str, int]]:
        features, ports = b"", b""
        for message in self._messages():
            kind = HEADER.unpack_from(message)[1]
            assert kind != Type.ERROR, str(messages.read_error(message))
            features = message if kind == Type.FEATURES_REPLY else features
            ports = message if kind == Type.MULTIPART_REPLY else ports
            if features and ports:
                break
        return features, {name: number for name, number in messages.read_ports([ports]).items() if number < 0xFF00}

    def _messages(self) -> Iterator[bytes]:
        while True:
            while len(self._rest) >= 8 and len(self._rest) >= (length := HEADER.unpack_from(self._rest)[2]):
                message, self._rest = self._rest[:length], self._rest[length:]
                yield message
            data = self._socket.recv(1 << 20)
            if not data:
                return
            self._rest += data

    def _read_on(self) -> None:
        with contextlib.suppress(OSError):
            for message in self._messages():
                _, kind, _, xid = HEADER.unpack_from(message)
                if kind == Type.ECHO_REQUEST:
                    self._socket.sendall(messages.message(Type.ECHO_REPLY, xid, message[8:]))
                else:
                    self.channel.deliver(message)
        self.channel.close()
