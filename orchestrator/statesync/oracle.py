"""The meaning of each packet for a connection, in plain Python.

The program in the kernel must agree with it.

No connection is picked up in the middle: TCP begins with a SYN without ACK, ICMP echo with a request. A packet of a
known connection that its state does not expect is dropped and changes nothing. Sequence numbers are not looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from orchestrator.statesync.states import TIMEOUT_S, State


class Kind(Enum):
    """The kind of a packet for its connection.

    BAD has TCP flags that no TCP stack sends together.
    """

    SYN = "syn"
    SYN_ACK = "syn-ack"
    ACK = "ack"
    FIN = "fin"
    RST = "rst"
    BAD = "bad"
    DATAGRAM = "datagram"
    REQUEST = "request"
    REPLY = "reply"


FIN, SYN, RST, ACK = 1, 2, 4, 16


def tcp_kind(flags: int) -> Kind:
    """Return the kind of a TCP segment by its flags.

    PSH, URG, ECE and CWR do not matter.
    """
    of_flags = {SYN: Kind.SYN, SYN | ACK: Kind.SYN_ACK, ACK: Kind.ACK, FIN | ACK: Kind.FIN, RST: Kind.RST}
    return {**of_flags, RST | ACK: Kind.RST}.get(flags & (FIN | SYN | RST | ACK), Kind.BAD)


@dataclass(frozen=True, slots=True)
class Connection:
    """One connection: its state, and when its last packet passed, in seconds.

    Its two ends are called False and True, in whatever order its key has them: `opener` sent the first packet, `closer`
    the first FIN.
    """

    state: State
    opener: bool
    closer: bool
    seen_s: float


def step(
    known: Connection | None,
    kind: Kind,
    sender: bool,
    now_s: float,
    timeouts_s: Mapping[State, float] = TIMEOUT_S,
) -> Connection | None:
    """Return the connection after a packet from one end; None drops it without change."""
    if known is not None and now_s - known.seen_s > timeouts_s[known.state]:
        known = None
    if known is None or (kind is Kind.SYN and known.state in (State.TIME_WAIT, State.CLOSED)):
        return _begin_connection(kind, sender, now_s)
    after = _closing(known, kind, sender) if _has_fin(known.state) else _opening(known, kind, sender)
    if after is None:
        return None
    closer = sender if after is State.FIN_WAIT and not _has_fin(known.state) else known.closer
    return Connection(after, known.opener, closer, now_s)


def _begin_connection(kind: Kind, sender: bool, now_s: float) -> Connection | None:
    if kind is Kind.SYN:
        return Connection(State.SYN_SENT, sender, False, now_s)
    if kind in (Kind.DATAGRAM, Kind.REQUEST):
        return Connection(State.ONE_WAY, sender, False, now_s)
    return None


def _has_fin(state: State) -> bool:
    return state in (State.FIN_WAIT, State.LAST_ACK, State.TIME_WAIT)


def _opening(known: Connection, kind: Kind, sender: bool) -> State | None:
    """The state after a packet while no end has sent a FIN; None: not expected."""
    state, from_opener = known.state, sender == known.opener
    if kind is Kind.RST and state in (State.SYN_SENT, State.SYN_RECEIVED, State.ESTABLISHED, State.CLOSED):
        return State.CLOSED
    expected: dict[tuple[State, bool, Kind], State] = {
        (State.SYN_SENT, True, Kind.SYN): State.SYN_SENT,
        (State.SYN_SENT, False, Kind.SYN_ACK): State.SYN_RECEIVED,
        (State.SYN_SENT, False, Kind.ACK): State.SYN_SENT,  # it holds an older connection (RFC 9293, 3.5.1)
        (State.SYN_RECEIVED, True, Kind.SYN): State.SYN_RECEIVED,
        (State.SYN_RECEIVED, False, Kind.SYN_ACK): State.SYN_RECEIVED,
        (State.SYN_RECEIVED, True, Kind.ACK): State.ESTABLISHED,
        (State.SYN_RECEIVED, False, Kind.ACK): State.SYN_RECEIVED,
        (State.SYN_RECEIVED, True, Kind.FIN): State.FIN_WAIT,
        (State.SYN_RECEIVED, False, Kind.FIN): State.FIN_WAIT,
        (State.ESTABLISHED, True, Kind.SYN): State.ESTABLISHED,
        (State.ESTABLISHED, False, Kind.SYN_ACK): State.ESTABLISHED,
        (State.ESTABLISHED, True, Kind.ACK): State.ESTABLISHED,
        (State.ESTABLISHED, False, Kind.ACK): State.ESTABLISHED,
        (State.ESTABLISHED, True, Kind.FIN): State.FIN_WAIT,
        (State.ESTABLISHED, False, Kind.FIN): State.FIN_WAIT,
        (State.ONE_WAY, True, Kind.DATAGRAM): State.ONE_WAY,
        (State.ONE_WAY, False, Kind.DATAGRAM): State.BOTH_WAYS,
        (State.BOTH_WAYS, True, Kind.DATAGRAM): State.BOTH_WAYS,
        (State.BOTH_WAYS, False, Kind.DATAGRAM): State.BOTH_WAYS,
        (State.ONE_WAY, True, Kind.REQUEST): State.ONE_WAY,
        (State.ONE_WAY, False, Kind.REPLY): State.BOTH_WAYS,
        (State.BOTH_WAYS, True, Kind.REQUEST): State.BOTH_WAYS,
        (State.BOTH_WAYS, False, Kind.REPLY): State.BOTH_WAYS,
    }
    return expected.get((state, from_opener, kind))


def _closing(known: Connection, kind: Kind, sender: bool) -> State | None:
    """The state after a packet once an end has sent a FIN; None: not expected."""
    if kind is Kind.RST:
        return State.CLOSED
    if known.state is not State.TIME_WAIT and kind is (Kind.SYN if sender == known.opener else Kind.SYN_ACK):
        return known.state if kind is Kind.SYN else State.SYN_RECEIVED  # its ends begin anew
    if kind not in (Kind.ACK, Kind.FIN):
        return None
    from_closer = sender == known.closer
    if known.state is State.FIN_WAIT and kind is Kind.FIN and not from_closer:
        return State.LAST_ACK
    if known.state is State.LAST_ACK and kind is Kind.ACK and from_closer:
        return State.TIME_WAIT
    return known.state
