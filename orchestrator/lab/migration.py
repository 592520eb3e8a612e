"""Move an endpoint between hosts of a domain, as live migration does.

    old host's bridge ─ port    ──▶    new host's bridge ─ port       then the edge sends there what is for it

The program of a domain is the same on every host and names the port by a symbol, so nobody has to tell the service: the
controller sees the port come, and the switch gets the rows that wait for it. Until then the new host lets nothing in or
out by that port. How long that takes is measured from the endpoint itself: it asks for its gateway all the time, which
a switch answers only where the endpoint's rows are.
"""

from __future__ import annotations

import select
import struct
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType

from orchestrator.compile.pipelines.host import GATEWAY_IPV4, GATEWAY_IPV6, GATEWAY_MAC
from orchestrator.enforce.drivers.openflow import frames
from orchestrator.errors import Conflict, Unreachable
from orchestrator.lab.pop import Lab
from orchestrator.lab.spec import EndpointSpec
from orchestrator.lab.wire import raw_socket
from orchestrator.policy.addresses import Family, parse_address

_EVERY_S = 0.001
_PATIENCE_S = 30.0
_SETTLED = 20
"""So many answers in a row, and the endpoint is where it is."""
_BROADCAST = (1 << 48) - 1
_ASKED = {Family.IPV4: parse_address(GATEWAY_IPV4)[1], Family.IPV6: parse_address(GATEWAY_IPV6)[1]}


@dataclass(frozen=True, slots=True)
class Migration:
    """An endpoint's move.

    `gap_s`: seconds without a gateway; `took_s`: seconds of the whole move.
    """

    endpoint: str
    before: str
    after: str
    gap_s: float
    took_s: float


def migrate(lab: Lab, endpoint: str, host: str) -> Migration:
    """Move an endpoint to a host.

    Raises NotFound, Conflict where it is there already, and Unreachable where its switch does not answer it: before, so
    that nothing is moved, or after.
    """
    moving = lab.spec.endpoint(endpoint)
    target = lab.spec.host(host)
    if moving.host == target.name:
        raise Conflict(f"{endpoint} is on {host} already", place="host")
    with Pulse(lab, moving) as pulse:
        pulse.wait(_SETTLED, f"{moving.host} does not answer {endpoint}: it is not under control")
        began = time.monotonic()
        pulse.begin()
        lab.move_endpoint(endpoint, host)
        pulse.wait(_SETTLED, f"{host} does not answer {endpoint}, which is there now")
        lab.wait_for_routes()
        return Migration(endpoint, moving.host, host, pulse.longest_s, time.monotonic() - began)


@dataclass
class Pulse:
    """Asks for the gateway as an endpoint every millisecond; keeps the longest silence."""

    lab: Lab
    endpoint: EndpointSpec
    longest_s: float = 0.0
    _answers: int = 0
    _last: float = field(default_factory=time.monotonic)
    _stopping: bool = False

    def __enter__(self) -> Pulse:
        self._changed = threading.Condition()
        self._socket = self.lab.inside(self.endpoint.name, raw_socket)
        self._thread = threading.Thread(target=self._send_until_stopped, name="pulse", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping = True
        self._thread.join()
        self._socket.close()

    def begin(self) -> None:
        """Measure gaps from now on."""
        with self._changed:
            self.longest_s, self._last = 0.0, time.monotonic()

    def wait(self, answers: int, otherwise: str) -> None:
        """Wait until `answers` further requests were answered. Raises Unreachable."""
        with self._changed:
            wanted = self._answers + answers
            if not self._changed.wait_for(lambda: self._answers >= wanted, _PATIENCE_S):
                raise Unreachable(otherwise)

    def _send_until_stopped(self) -> None:
        request = _request(self.endpoint)
        while not self._stopping:
            with suppress(OSError):  # the other end of its link is on its way to another host
                self._socket.send(request)
            until = time.monotonic() + _EVERY_S
            while (left := until - time.monotonic()) > 0 and select.select([self._socket], [], [], left)[0]:
                if self._socket.recv(2048)[6:12] == GATEWAY_MAC.to_bytes(6, "big"):
                    self._note_answer()

    def _note_answer(self) -> None:
        now = time.monotonic()
        with self._changed:
            self.longest_s, self._last = max(self.longest_s, now - self._last), now
            self._answers += 1
            self._changed.notify_all()


def _request(endpoint: EndpointSpec) -> bytes:
    """Return an ARP request, or a neighbour solicitation without IPv4, for the gateway."""
    own = endpoint.addresses[0]
    asked = _ASKED[own.family]
    if own.family is Family.IPV4:
        return frames.ethernet(
            endpoint.mac, _BROADCAST, frames.ARP, frames.arp(frames.ARP_REQUEST, endpoint.mac, own.network, 0, asked)
        )
    option = frames.link_address(frames.SOURCE_LINK_ADDRESS, endpoint.mac)
    pseudo = frames.pseudo_v6(own.network, asked)
    solicitation = frames.neighbour(frames.SOLICITATION, 0, asked, option, pseudo)
    multicast = 0x333300000000 | struct.unpack("!I", asked.to_bytes(16, "big")[-4:])[0]
    return frames.ethernet(endpoint.mac, multicast, frames.IPV6, frames.ipv6(own.network, asked, 58, solicitation))
