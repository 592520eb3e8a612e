"""Permitted datagrams to every tenant's machine under load: answers and round trips."""

from __future__ import annotations

import selectors
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial

from orchestrator.bench.pop.grid import IPV4
from orchestrator.bench.pop.links import OUTSIDE, WAN, Links
from orchestrator.bench.pop.world import PERMITTED_PORT
from orchestrator.errors import Unreachable
from orchestrator.policy.addresses import format_address

_PATIENCE_S = 10.0
_LAST_S = 0.5
"""How long the last answers may take."""
PAYLOAD_OCTETS = 188
_FILLING = bytes(PAYLOAD_OCTETS - 8)


@dataclass(slots=True)
class Answered:
    """Results of one machine: datagrams sent, and milliseconds of each round trip."""

    sent: int = 0
    trips_ms: list[float] = field(default_factory=list)

    @property
    def share(self) -> float:
        return len(self.trips_ms) / self.sent if self.sent else 0.0


def start_echoes(links: Links, machines: Sequence[str]) -> None:
    """Have every machine answer; returns when they do. Raises Unreachable."""
    ports = str(PERMITTED_PORT)
    links.start(WAN, sys.executable, "-m", "orchestrator.bench.traffic.echo", ",".join(machines), ports)
    until = time.monotonic() + _PATIENCE_S
    while not all(each.share for each in probe(links, machines, seconds=0.1, gap_s=0.05).values()):
        if time.monotonic() > until:
            raise Unreachable(f"not every machine answers its client within {_PATIENCE_S:.0f} s")


def probe(links: Links, machines: Sequence[str], *, seconds: float, gap_s: float) -> Mapping[str, Answered]:
    """Send to each machine every `gap_s`; listen until the last possible answer."""
    found = {machine: Answered() for machine in machines}
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        talks = {machine: stack.enter_context(links.inside(OUTSIDE, partial(_socket, machine))) for machine in machines}
        for machine, talk in talks.items():
            selector.register(talk, selectors.EVENT_READ, machine)
        began, turn = time.monotonic(), 0
        while (now := time.monotonic() - began) < seconds + _LAST_S:
            if now < seconds and now >= turn * gap_s:
                turn += 1
                for machine, talk in talks.items():
                    found[machine].sent += 1
                    with suppress(ConnectionRefusedError):  # of an earlier datagram
                        talk.send(time.monotonic_ns().to_bytes(8, "big") + _FILLING)
            wait_s = turn * gap_s - now if now < seconds else _LAST_S / 10
            for key, _ in selector.select(max(wait_s, 0.0)):
                with suppress(ConnectionRefusedError):
                    sent_ns = int.from_bytes(talks[key.data].recv(2048)[:8], "big")
                    found[key.data].trips_ms.append((time.monotonic_ns() - sent_ns) / 1e6)
    return found


def _socket(machine: str) -> socket.socket:
    """The permitted client's, towards one machine. Called outside."""
    talk = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    talk.bind((format_address(IPV4.family, IPV4.client.network), 0))
    talk.connect((machine, PERMITTED_PORT))
    talk.setblocking(False)
    return talk
