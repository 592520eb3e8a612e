"""UDP datagrams by iperf3 at the client's maximum, counted at the server's interface.

iperf3's server is not asked how many arrived: at high rates it is what loses them, behind the interface, and the
firewall would be blamed.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

from orchestrator.bench.traffic.addresses import SERVER_ADDRESS, THROUGHPUT, Clients
from orchestrator.bench.traffic.line import CLIENT, SERVER, Line
from orchestrator.errors import Refused, Unreachable
from orchestrator.lab.network import INTERFACE

DATAGRAM_BYTES = 1472
"""As in the paper: the largest that an Ethernet frame carries."""
_BUSY = "server is busy"
_BUSY_S = 10.0
"""So long a server may take to end a test."""
_AGAIN_S = 0.2


@dataclass(frozen=True, slots=True)
class Datagrams:
    """A flood's result: datagrams sent, frames at the server's interface, and seconds."""

    sent: int
    arrived: int
    seconds: float

    @property
    def per_s(self) -> float:
        """Packets a second that got through."""
        return self.arrived / self.seconds


def read(text: str) -> tuple[int, float]:
    """Datagrams sent and seconds, of iperf3's JSON. Raises Refused for a run that failed."""
    try:
        document = json.loads(text)
        if "error" in document:
            raise Refused(f"iperf3: {document['error']}")
        total = document["end"]["sum"]
        return int(total["packets"]), float(total["seconds"])
    except (ValueError, KeyError, TypeError) as error:
        raise Refused(f"iperf3 reported something else: {error}: {text.strip()[:200]!r}") from None


def flood(line: Line, *, seconds: int, size: int = DATAGRAM_BYTES, bits_per_s: int = 0) -> Datagrams:
    """Send datagrams of one size in one flow, at the maximum or at a rate.

    Raises Missing, Refused; Unreachable if nothing arrives.
    """
    before, text = _run_client(line, "--length", str(size), "--bitrate", str(bits_per_s), "--time", str(seconds))
    sent, took = read(text)
    arrived = _count_received(line) - before
    if not arrived or not sent:
        raise Unreachable("none of iperf3's datagrams reached the server")
    return Datagrams(sent, arrived, took)


def _run_client(line: Line, *options: str) -> tuple[int, str]:
    """Run iperf3's client; return the frames at the server before it, and its output.

    The server takes one test at a time: while it still ends the last one, the client is run again.
    """
    address = ("--client", SERVER_ADDRESS, "--port", str(THROUGHPUT), "--bind", Clients.ONE.address)
    until_s = time.monotonic() + _BUSY_S
    while True:
        before = _count_received(line)
        try:
            return before, line.run(CLIENT, "iperf3", *address, "--udp", *options, "--json")
        except Refused as error:
            if _BUSY not in str(error) or time.monotonic() > until_s:
                raise
        time.sleep(_AGAIN_S)


def received_frames(text: str, interface: str) -> int:
    """Return an interface's received frames from /proc/net/dev.

    Raises Refused without the interface.
    """
    for line in text.splitlines():
        name, colon, numbers = line.partition(":")
        if colon and name.strip() == interface:
            return int(numbers.split()[1])
    raise Refused(f"there is no interface '{interface}'")


def _count_received(line: Line) -> int:
    text = line.inside(SERVER, lambda: Path("/proc/thread-self/net/dev").read_text(encoding="ascii"))
    return received_frames(text, INTERFACE)
