"""Connections as a middle firewall sees them: states, shared parts, time-outs.

A firewall sees both ends of a connection, so each of its TCP states stands for a pair of RFC 9293's:

    firewall        the end that opened or closed first   the other end
    LISTEN          CLOSED                                LISTEN           (no connection is known)
    SYN_SENT        SYN-SENT                              LISTEN
    SYN_RECEIVED    SYN-SENT or ESTABLISHED               SYN-RECEIVED
    ESTABLISHED     ESTABLISHED                           ESTABLISHED
    FIN_WAIT        FIN-WAIT-1 or FIN-WAIT-2              CLOSE-WAIT
    LAST_ACK        CLOSING or FIN-WAIT-2                 LAST-ACK
    TIME_WAIT       TIME-WAIT                             CLOSED
    CLOSED          CLOSED                                CLOSED           (by RST)

UDP and ICMP echo have two pseudo-states: ONE_WAY until the other end answers, then BOTH_WAYS.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType


class State(IntEnum):
    """The state of a connection; the numbers are those of the program in the kernel."""

    LISTEN = 0
    SYN_SENT = 1
    SYN_RECEIVED = 2
    ESTABLISHED = 3
    FIN_WAIT = 4
    LAST_ACK = 5
    TIME_WAIT = 6
    CLOSED = 7
    ONE_WAY = 8
    BOTH_WAYS = 9


class Level(IntEnum):
    """How much of a connection's life its firewall tells the other members (paper, *Synchronization Levels*)."""

    NONE = 0
    ESTABLISHED = 1
    FULL = 2


class Context(IntEnum):
    """The write context of a change: at once, or prepared by all members first."""

    DIRTY = 0
    TRANSACTION = 1


class Confirmation(IntEnum):
    """Whether the packet that made the change waits until all members have confirmed it."""

    ASYNCHRONOUS = 0
    SYNCHRONOUS = 1


OPEN: frozenset[State] = frozenset({State.ESTABLISHED, State.FIN_WAIT, State.LAST_ACK, State.BOTH_WAYS})
"""States of connections that both ends have agreed to. They have a table of their own, which evicts nothing."""

ESSENTIAL: frozenset[State] = frozenset({State.ESTABLISHED, State.BOTH_WAYS, State.TIME_WAIT, State.CLOSED})
"""The states that level ESTABLISHED shares: a connection begins, a connection ends."""

HELD: Mapping[Level, frozenset[State]] = MappingProxyType(
    {
        Level.NONE: frozenset(),
        Level.ESTABLISHED: frozenset({State.ESTABLISHED, State.BOTH_WAYS}),
        Level.FULL: frozenset({State.SYN_RECEIVED, State.ONE_WAY}),
    }
)
"""States whose packet is held until members confirm.

At FULL members hold SYN_RECEIVED or ONE_WAY when a connection opens, from which its packets lead them on. A SYN is not
held: until it is answered, its end sends it again, and any member lets it begin. A packet that closes a connection is
never held: a member that misses it keeps an entry until its time-out."""

TIMEOUT_S: Mapping[State, float] = MappingProxyType(
    {
        State.LISTEN: 0.0,
        State.SYN_SENT: 30.0,
        State.SYN_RECEIVED: 60.0,
        State.ESTABLISHED: 4 * 3600.0,
        State.FIN_WAIT: 120.0,
        State.LAST_ACK: 60.0,
        State.TIME_WAIT: 60.0,
        State.CLOSED: 10.0,
        State.ONE_WAY: 30.0,
        State.BOTH_WAYS: 180.0,
    }
)
"""How long a connection without packets stays in each state, in seconds, unless the operator says otherwise."""


def is_shared(state: State, level: Level) -> bool:
    """Whether members are told of a connection that came into this state."""
    return level is Level.FULL or (level is Level.ESTABLISHED and state in ESSENTIAL)
