"""What the real kernel says of packets under a ruleset: a process of its own in a network namespace without a name.

A raw socket gives the kernel any IPv4 or IPv6 packet; it passes the hook `output`, and `sendto` fails with EPERM
exactly if the ruleset drops it. So each packet costs one system call, and nothing leaves the namespace.

    with Kernel() as kernel:
        loaded = kernel.load(text)              JSON or nft's own words; None if nft refuses it, else what it lists
        kernel.verdicts(packets)                True: it passed; None: the kernel would not send it at all
"""

from __future__ import annotations

import errno
import json
import socket
import struct
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

SETUP = (
    "ip link add sink type veth peer name drain",
    "ip link set drain up",
    "ip link set sink arp off up",
    "ip address add 198.18.0.1/32 dev sink",
    "ip route add default dev sink",
    "ip -6 address add 2001:2::1/128 dev sink nodad",
    "ip -6 route add default dev sink",
)


class Kernel:
    """The namespace and the process in it."""

    def __enter__(self) -> Kernel:
        command = ["unshare", "--net", sys.executable, str(Path(__file__))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()
        self._process.wait(timeout=60)

    def load(self, ruleset: str) -> str | None:
        return self._ask({"ruleset": ruleset})

    def verdicts(self, packets: Iterable[Any]) -> list[bool | None]:
        return self._ask({"packets": [(packet.family.value, bytes_of(packet).hex()) for packet in packets]})

    def _ask(self, question: dict[str, Any]) -> Any:
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


def bytes_of(packet: Any) -> bytes:
    """A packet as it is on the wire, checksums left out. A later IPv6 fragment hides udp."""
    body = _transport(packet)
    if packet.family.value == 4:
        offset = 185 if packet.later_fragment else 0
        head = struct.pack("!BBHHHBBH", 0x45, packet.dscp << 2, 20 + len(body), 1, offset, 64, packet.protocol, 0)
        return head + packet.source.to_bytes(4, "big") + packet.destination.to_bytes(4, "big") + body
    protocol = packet.protocol
    if packet.later_fragment:
        protocol, body = 44, struct.pack("!BBHI", 17, 0, 185 << 3, 1) + body
    head = struct.pack("!IHBB", 6 << 28 | packet.dscp << 22, len(body), protocol, 64)
    return head + packet.source.to_bytes(16, "big") + packet.destination.to_bytes(16, "big") + body


def _transport(packet: Any) -> bytes:
    ports = struct.pack("!HH", packet.source_port, packet.destination_port)
    if packet.later_fragment or packet.protocol not in (1, 6, 17, 58, 132):
        return bytes(16)
    if packet.protocol == 6:
        return ports + struct.pack("!IIBBHHH", 0, 0, 0x50, packet.tcp_flags, 1024, 0, 0)
    if packet.protocol in (1, 58):
        return struct.pack("!BBHI", packet.icmp_type, packet.icmp_code, 0, 0)
    return ports + (struct.pack("!HH", 8, 0) if packet.protocol == 17 else bytes(8))


def _load(ruleset: str) -> str | None:
    subprocess.run(["nft", "flush", "ruleset"], check=True)
    form = ["-j"] if ruleset.startswith("{") else []
    loaded = subprocess.run(["nft", *form, "-f", "-"], input=ruleset, text=True, capture_output=True, check=False)
    if loaded.returncode:
        return None
    listed = subprocess.run(["nft", "-j", "list", "ruleset"], text=True, capture_output=True, check=False)
    return listed.stdout if listed.returncode == 0 else ruleset  # nft 1.0.6 aborts over some rules that it took


def _send(family: int, packet: bytes, sockets: dict[int, socket.socket]) -> bool | None:
    if family == 4:
        target: tuple[Any, ...] = (socket.inet_ntop(socket.AF_INET, packet[16:20]), 0)
    else:
        target = (socket.inet_ntop(socket.AF_INET6, packet[24:40]), 0, 0, 0)
    try:
        sockets[family].sendto(packet, target)
    except OSError as error:
        return False if error.errno == errno.EPERM else None
    return True


def main() -> None:
    for command in SETUP:
        subprocess.run(command.split(), check=True)
    sockets = {
        4: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW),
        6: socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_RAW),
    }
    sockets[4].setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    for line in sys.stdin:
        question = json.loads(line)
        if "ruleset" in question:
            answer: Any = _load(question["ruleset"])
        else:
            answer = [_send(family, bytes.fromhex(packet), sockets) for family, packet in question["packets"]]
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
