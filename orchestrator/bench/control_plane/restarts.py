"""The cost of a switch that forgets its connections.

Connections talk through a switch, half of them from the end that opened them and half from the other end alone. Then
the switch forgets: its daemon is killed and started again (`restart`), or it loses what it tracks and nothing else
(`moved`: so does a connection find the switch to which its endpoint has moved). The list and one row of the program say
how it goes on:

    cut          TCP of no known connection that is no SYN is dropped, as aclflow's programs do
    resume       for so long as the window is open such a segment asks the lists, as a first packet does, and is
                 remembered if they permit it: a bounded resume by the original direction
    stateless    the connections' rules are stateless in both directions, and nothing has to be remembered

aclflow does not resume; this says what it would be worth, and what passes meanwhile: a `stray` is an ACK of nobody's.
"""

from __future__ import annotations

import itertools
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial

from orchestrator.bench.results import Figure, Results
from orchestrator.bench.traffic.addresses import SERVER, SERVER_ADDRESS, Clients, policy
from orchestrator.bench.traffic.line import CLIENT, RIGHT, Line, site
from orchestrator.bench.traffic.line import SERVER as SERVER_END
from orchestrator.bench.traffic.rules import Listed
from orchestrator.bench.traffic.vnf import VnfAcl, vnf_acl
from orchestrator.compile.hostprogram import compile_host
from orchestrator.compile.pipelines.host import Table
from orchestrator.compile.pipelines.tracked import MIDSTREAM_PRIORITY
from orchestrator.enforce.drivers.openflow import frames
from orchestrator.errors import Drifted, Missing
from orchestrator.lab.layout import Layout
from orchestrator.lab.ovs import Ports
from orchestrator.policy.addresses import Addresses, parse_address
from orchestrator.policy.model import Acl, Action, Direction, ReturnTraffic, Rule, RuleId
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import TCP
from orchestrator.program.program import Program

TALK = PortRange(7001, 7001)
CONNECTIONS = 50
"""Half of which the opener speaks on, and half the other end."""
_RULES = 1_000
_EVERY_S = 0.02
_BEFORE_S, _AFTER_S = 0.5, 1.0
_PATIENCE_S = 10.0
WINDOW_S = 3.0
"""For so long TCP of no known connection may be taken up, where it is resumed at all."""
WAYS = CUT, RESUME, STATELESS = "cut", "resume", "stateless"
_EVENTS: dict[str, Callable[[VnfAcl, Program], None]] = {
    "restart": VnfAcl.restart,
    "moved": lambda vnf, _: vnf.forget_connections(),
}
_RETRANSMITTED = 100
"""The place of `tcpi_total_retrans` in the kernel's `struct tcp_info`."""
_ACK, _RST = 0x10, 0x04


def make_programs() -> dict[str, Program]:
    """Return the programs of one list by way: its connections tracked, or their rules stateless."""
    server = Addresses((SERVER,))
    talk = Rule(RuleId("talk"), Action.PERMIT, protocol=TCP, destination=server, destination_ports=(TALK,))
    back = Rule(RuleId("back"), Action.PERMIT, Direction.EGRESS, protocol=TCP, source=server, source_ports=(TALK,))
    alone = tuple(replace(each, stateless=True) for each in (talk, back))
    others = Listed(_RULES).acl().rules
    lists = {CUT: (talk,), RESUME: (talk,), STATELESS: alone}
    return {
        way: compile_host(
            replace(
                policy(Acl((*others, *rules), egress_default=Action.DENY), server_port=RIGHT),
                return_traffic=ReturnTraffic.TRACKED,
            ),
            domain="bench",
            generation=generation,
        )
        for generation, (way, rules) in enumerate(lists.items(), 1)
    }


def measure(results: Results, rounds: int, progress: Callable[[str], None], layout: Layout | None = None) -> None:
    """Measure each way after each event, round by round."""
    try:
        found = _measure_rounds(rounds, progress, layout)
    except (Missing, Drifted) as error:
        results.absent["restart_cut_kept"] = str(error)
        return
    for (event, way), runs in found.items():
        for name, unit in _UNITS.items():
            values = [value for run in runs if (value := getattr(run, name)) is not None]
            if values:
                results.figures[f"{event}_{way}_{name}"] = Figure.of(values, unit)
    results.notes.append(
        f"restart, moved: {CONNECTIONS} connections through a list of {_RULES} rules, a segment every"
        f" {1e3 * _EVERY_S:.0f} ms; the clock begins when the daemon is killed, or its connections are flushed."
        " kept: connections on which the opener speaks, of all such; kept_answering: those on which only the other end"
        " speaks; gap_ms: the longest silence of a kept connection; resent: segments sent again, of each; new_ms:"
        f" until a connection opens; strays: of three ACKs of no connection, those that pass in the {WINDOW_S:.0f} s in"
        " which resume takes connections up; strays_after: once these are over"
    )


def _measure_rounds(
    rounds: int, progress: Callable[[str], None], layout: Layout | None
) -> dict[tuple[str, str], list[Forgotten]]:
    programs = make_programs()
    found: dict[tuple[str, str], list[Forgotten]] = {}
    with (
        site(layout) as place,
        Line(place, "restarts") as line,
        vnf_acl(line, Ports.SYSTEM, tracks_prefixes=True) as vnf,
    ):
        for turn in range(rounds):
            for event in _EVENTS:
                for way, program in programs.items():
                    progress(f"connections that a switch forgets: {event}, {way}, round {turn + 1} of {rounds}")
                    found.setdefault((event, way), []).append(_measure_one(line, vnf, event, way, program))
    return found


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The fate of the connections of one run; None where nothing says so."""

    kept: float
    kept_answering: float
    gap_ms: float | None
    resent: float | None
    new_ms: float
    strays: float
    strays_after: float


_UNITS = {
    "kept": "ratio", "kept_answering": "ratio", "gap_ms": "ms", "resent": "1", "new_ms": "ms", "strays": "1",
    "strays_after": "1",
}  # fmt: skip


def _measure_one(line: Line, vnf: VnfAcl, event: str, way: str, program: Program) -> Forgotten:
    vnf.load(program)
    vnf.forget_connections()
    with ExitStack() as stack:
        talks = _Talks(line, stack)
        talking = threading.Thread(target=talks.go_on)
        talking.start()
        try:
            time.sleep(_BEFORE_S)
            if not all(talk.heard for talk in talks.all):
                raise Drifted("a connection is silent before anything happened")
            resent = [talk.count_resent() for talk in talks.all]
            talks.began_s = time.monotonic()
            _EVENTS[event](vnf, program)
            if way == RESUME:
                _take_up(vnf, True)
            time.sleep(WINDOW_S / 2)
            strays = _count_strays(line, 1)
            time.sleep(WINDOW_S / 2)
            if way == RESUME:
                _take_up(vnf, False)
            strays_after = _count_strays(line, 11)
            time.sleep(_AFTER_S)
        finally:
            talks.ended.set()
            talking.join()
        return _conclude(talks, resent, strays, strays_after)


def _take_up(vnf: VnfAcl, on: bool) -> None:
    """Have segments of no known connection ask the lists, or dropped as programs do."""
    then = f"goto_table:{Table.LIFTED.value}" if on else "drop"
    for version in ("tcp", "tcp6"):
        row = f"table={Table.STATE.value},priority={MIDSTREAM_PRIORITY},ct_state=+new+trk,{version} actions={then}"
        vnf.modify(row)


def _count_strays(line: Line, first: int) -> float:
    """Count which of three ACKs of no connection reach the server.

    Its kernel answers each with a reset. They come from the `first` port and the next two.
    """
    source, server = parse_address(Clients.ONE.address)[1], parse_address(SERVER_ADDRESS)[1]
    pseudo, ports = frames.pseudo_v4(source, server), range(first, first + 3)
    asked = {number: frames.tcp(number, TALK.low, _ACK, b"", pseudo) for number in ports}
    with line.inside(CLIENT, partial(socket.socket, socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP)) as raw:
        raw.bind((Clients.ONE.address, 0))
        for segment in asked.values():
            raw.sendto(segment, (SERVER_ADDRESS, 0))
        answered, until = set(), time.monotonic() + 0.3
        while (left := until - time.monotonic()) > 0 and select.select([raw], [], [], left)[0]:
            packet = raw.recv(2048)
            segment = packet[(packet[0] & 0xF) * 4 :]
            if segment[13] & _RST:
                answered.add(int.from_bytes(segment[2:4], "big"))
    return float(len(answered & asked.keys()))


# ------------------------------------------------------------------------------------------------------- connections


@dataclass(slots=True, eq=False)
class _Talk:
    """A connection: one end speaks, the other hears, and when."""

    speaker: socket.socket
    hearer: socket.socket
    opener_speaks: bool
    heard: list[float] = field(default_factory=list)

    def count_resent(self) -> int:
        """Segments that the speaker has sent again."""
        told = self.speaker.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RETRANSMITTED + 4)
        return int(struct.unpack_from("I", told, _RETRANSMITTED)[0])


class _Talks:
    """Connections that talk until `ended`; from `began_s` on others are tried, until one opens."""

    def __init__(self, line: Line, stack: ExitStack) -> None:
        self._line, self._stack = line, stack
        self.ended = threading.Event()
        self.began_s: float | None = None
        self.opened_s: float | None = None
        self._tried: list[socket.socket] = []
        door = stack.enter_context(line.inside(SERVER_END, self._listen))
        self.all = [self._connect(door, opener_speaks=bool(number % 2)) for number in range(CONNECTIONS)]

    @staticmethod
    def _listen() -> socket.socket:
        return socket.create_server((SERVER_ADDRESS, TALK.low), backlog=1024)

    def _connect(self, door: socket.socket, *, opener_speaks: bool) -> _Talk:
        """Open a connection through the switch; one of its two ends will speak."""
        near = self._stack.enter_context(
            self._line.inside(
                CLIENT, partial(socket.create_connection, (SERVER_ADDRESS, TALK.low), timeout=_PATIENCE_S)
            )
        )
        far = self._stack.enter_context(door.accept()[0])
        for end in (near, far):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            end.setblocking(False)
        return _Talk(*((near, far) if opener_speaks else (far, near)), opener_speaks)

    def go_on(self) -> None:
        """Talk, until it is ended."""
        of = {talk.hearer: talk for talk in self.all}
        while not self.ended.is_set():
            until = time.monotonic() + _EVERY_S
            for talk in self.all:
                with suppress(OSError):  # a buffer takes minutes of this
                    talk.speaker.send(b"speaking")
            if self.began_s is not None and self.opened_s is None:
                self._try_another()
            while (left := until - time.monotonic()) > 0:
                for end in select.select(list(of), [], [], left)[0]:
                    if _hears(end):
                        of[end].heard.append(time.monotonic())
                    else:
                        del of[end]

    def _try_another(self) -> None:
        """See whether a connection that was tried is open, and try one more."""
        if self._tried and select.select([], self._tried, [], 0)[1]:
            self.opened_s = time.monotonic()
            return
        another = self._stack.enter_context(
            self._line.inside(CLIENT, partial(socket.socket, socket.AF_INET, socket.SOCK_STREAM))
        )
        another.setblocking(False)
        another.connect_ex((SERVER_ADDRESS, TALK.low))
        self._tried.append(another)


def _hears(end: socket.socket) -> bool:
    """Take what has come; False if the connection is over."""
    try:
        return bool(end.recv(1 << 16))
    except OSError:
        return False


def _conclude(talks: _Talks, resent: list[int], strays: float, strays_after: float) -> Forgotten:
    """Reckon which connections were kept, and their longest silence."""
    ended_s, began_s = time.monotonic(), talks.began_s
    if began_s is None or talks.opened_s is None:
        raise Drifted("no connection opens after the switch has forgotten those before")
    kept = [talk for talk in talks.all if talk.heard[-1] > ended_s - _AFTER_S / 2]
    times = [[each for each in talk.heard if each > began_s - _BEFORE_S / 2] for talk in kept]
    gaps = [max(after - ago for ago, after in itertools.pairwise(each)) for each in times]
    again = [talk.count_resent() - before for talk, before in zip(talks.all, resent, strict=True) if talk in kept]
    half = CONNECTIONS / 2
    return Forgotten(
        kept=sum(talk.opener_speaks for talk in kept) / half,
        kept_answering=sum(not talk.opener_speaks for talk in kept) / half,
        gap_ms=1e3 * max(gaps) if gaps else None,
        resent=sum(again) / len(kept) if kept else None,
        new_ms=1e3 * (talks.opened_s - began_s),
        strays=strays,
        strays_after=strays_after,
    )
