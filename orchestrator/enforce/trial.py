"""Try a VNF before it gets traffic: real packets through its own kernel.

    raw socket ─▶ acl-t0 ══ acl-t1 ─▶ routing, filter (hook forward), routing ─▶ acl-t2 ══ acl-t3 ─▶ raw socket

Two pairs of interfaces of our own stand for a moment in this network namespace; what enters at acl-t1 is routed to
acl-t2 by a table of its own, whoever it is addressed to, and nothing leaves acl-t3. So the packets meet the filter as
every forwarded packet does, and nobody else's network. They are counted as everybody's are. Which of them should come
through is not known here: the service asks, the agent says what it saw.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

import structlog
from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from orchestrator.client.points import Trial
from orchestrator.enforce.drivers.openflow import frames
from orchestrator.enforce.kernelobjects import set_kernel
from orchestrator.errors import Missing
from orchestrator.policy.model import Packet

log = structlog.get_logger()

_IN, _ENTRY, _EXIT, _OUT = "acl-t0", "acl-t1", "acl-t2", "acl-t3"
_TABLE = 7411
_PRIORITY = 5
_MACS = {_ENTRY: 0x02AC1F0000E1, _OUT: 0x02AC1F0000E3}
_SENDER, _NEXT_HOP = 0x02AC1F0000E0, 0x02AC1F0000E4
"""The next hop's is nobody's, so that no end takes what arrives for its own."""
_NEXT_HOPS = {socket.AF_INET: "169.254.254.2", socket.AF_INET6: "fe80::ac1f:e4"}
_EVERYTHING = {socket.AF_INET: "0.0.0.0/0", socket.AF_INET6: "::/0"}
_SILENT = {"disable_ipv6": "1"}
_ROUTED6 = {"accept_ra": "0", "dad_transmits": "0", "forwarding": "1"}
_MAGIC = b"aclflow-trial"
_EVERY_KIND = 3
"""ETH_P_ALL."""
_TRIES, _QUIET_S = 3, 0.1
_ASK_AGAIN_S = 5.0
"""How often a VNF that has answered asks whether there is another trial, and at last one that nobody wants to try."""
_FIRST_PAUSE_S, _SLOWER = 0.15, 1.25
"""How long one waits that is not asked for anything yet, and how much longer each time."""


class TrialOffice(Protocol):
    """Asks for trials: the service's client."""

    def read_trial(self, domain: str, enforcer: int) -> Trial | None:
        """Return the trial to run now, or None."""
        ...

    def answer_trial(self, domain: str, enforcer: int, generation: int, came: Sequence[bool], held: int) -> None:
        """Tell which packets came through, and which generation was held then."""
        ...


class Trier:
    """Fetches and answers trials.

    `held` says the generation that the filter was last read back at, if any.
    """

    def __init__(
        self,
        office: TrialOffice,
        domain: str,
        enforcer: int,
        held: Callable[[], int | None],
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._office = office
        self._of = domain, enforcer
        self._held = held
        self._ticks = ticks
        self._ask_at = 0.0
        self._pause_s = _FIRST_PAUSE_S

    def look(self) -> None:
        """Fetch and answer a trial.

        Raises what the service's client raises, and Missing where packets cannot be sent here.
        """
        held = self._held()
        if held is None or self._ticks() < self._ask_at:
            return
        asked = self._office.read_trial(*self._of)
        if asked is None:
            self._ask_at = self._ticks() + self._pause_s
            self._pause_s = min(self._pause_s * _SLOWER, _ASK_AGAIN_S)
            return
        if asked.generation > held:
            return
        came = came_through(asked.packets)
        self._office.answer_trial(*self._of, asked.generation, came, held)
        self._pause_s = _ASK_AGAIN_S
        self._ask_at = self._ticks() + self._pause_s
        log.info("trial.answered", generation=held, came=list(came))


def came_through(packets: Sequence[Packet]) -> tuple[bool, ...]:
    """Which packets this network namespace forwards. Raises Missing without the rights to make interfaces."""
    seen = [False] * len(packets)
    with _alley() as (sender, catcher):
        for _ in range(_TRIES):  # one that is not seen may have been lost, or dropped on purpose
            for index, packet in enumerate(packets):
                if not seen[index]:
                    payload = _MAGIC + struct.pack("!I", index)
                    sender.send(frames.frame(packet, src_mac=_SENDER, dst_mac=_MACS[_ENTRY], payload=payload))
            for index in _caught(catcher, len(packets)):
                seen[index] = True
    return tuple(seen)


def _caught(catcher: socket.socket, count: int) -> Iterator[int]:
    """The numbers of the packets that arrive until none does for a while."""
    while select.select([catcher], [], [], _QUIET_S)[0]:
        data = catcher.recv(4096)
        at = data.find(_MAGIC)
        if at >= 0 and len(data) >= at + len(_MAGIC) + 4:
            (index,) = struct.unpack_from("!I", data, at + len(_MAGIC))
            if index < count:
                yield index


@contextmanager
def _alley() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The interfaces and a socket at each end, for the length of a `with` statement."""
    try:
        with IPRoute() as routes:
            _remove(routes)
            try:
                _build_links(routes)
                with _raw_socket(_IN) as sender, _raw_socket(_OUT) as catcher:
                    yield sender, catcher
            finally:
                _remove(routes)
    except (NetlinkError, PermissionError) as error:
        raise Missing(f"packets cannot be sent through this VNF to try it: {error}") from None


def _build_links(routes: IPRoute) -> None:
    for name, peer in ((_IN, _ENTRY), (_EXIT, _OUT)):
        routes.link("add", ifname=name, kind="veth", peer={"ifname": peer})
    for name in (_IN, _OUT):
        _set_kernel_settings(f"net/ipv6/conf/{name}", _SILENT)
    for name in (_ENTRY, _EXIT):
        _set_kernel_settings(f"net/ipv6/conf/{name}", _ROUTED6)
        _set_kernel_settings(f"net/ipv4/conf/{name}", {"rp_filter": "0", "forwarding": "1"})
    places = {name: routes.link_lookup(ifname=name)[0] for name in (_IN, _ENTRY, _EXIT, _OUT)}
    for name, place in places.items():
        if name in _MACS:
            routes.link("set", index=place, address=frames.mac_bytes(_MACS[name]).hex(":"))
        routes.link("set", index=place, state="up")
    for family, gateway in _NEXT_HOPS.items():
        exit_ = places[_EXIT]
        mac = frames.mac_bytes(_NEXT_HOP).hex(":")
        routes.neigh("add", dst=gateway, lladdr=mac, ifindex=exit_, state="permanent", family=family)
        routes.route(
            "add", dst=_EVERYTHING[family], gateway=gateway, oif=exit_, flags=["onlink"], table=_TABLE, family=family
        )
        routes.rule("add", iifname=_ENTRY, table=_TABLE, priority=_PRIORITY, family=family)


def _remove(routes: IPRoute) -> None:
    """Remove whatever is left, also of a killed process; routes go with their interface."""
    for name in (_IN, _EXIT):
        for place in routes.link_lookup(ifname=name):
            routes.link("del", index=place)
    for family in _NEXT_HOPS:
        with suppress(NetlinkError):
            while True:
                routes.rule("del", iifname=_ENTRY, table=_TABLE, priority=_PRIORITY, family=family)


def _raw_socket(interface: str) -> socket.socket:
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_EVERY_KIND))
    made.bind((interface, _EVERY_KIND))
    return made


def _set_kernel_settings(where: str, settings: dict[str, str]) -> None:
    for name, value in settings.items():
        set_kernel(Path("/proc/sys", where, name), value, place=f"{where}/{name}")
