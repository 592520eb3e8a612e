"""The state machine of connections: a life of each protocol, and laws over drawn traces."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.statesync.oracle import ACK, FIN, RST, SYN, Connection, Kind, step, tcp_kind
from orchestrator.statesync.states import ESSENTIAL, HELD, OPEN, TIMEOUT_S, Level, State, is_shared

CLIENT, SERVER = False, True
TCP_KINDS = (Kind.SYN, Kind.SYN_ACK, Kind.ACK, Kind.FIN, Kind.RST, Kind.BAD)
sent = st.tuples(st.sampled_from(TCP_KINDS), st.booleans())
tcp_traces = st.lists(sent, max_size=14)


def play(trace: Sequence[tuple[Kind, bool]], known: Connection | None = None) -> list[State | None]:
    """The state after each packet, None where it was dropped."""
    states: list[State | None] = []
    for kind, sender in trace:
        after = step(known, kind, sender, 1.0)
        states.append(None if after is None else after.state)
        known = after or known
    return states


HANDSHAKE = [(Kind.SYN, CLIENT), (Kind.SYN_ACK, SERVER), (Kind.ACK, CLIENT)]


@pytest.mark.parametrize("closer", [CLIENT, SERVER])
def test_a_tcp_connection_goes_through_the_states_of_the_rfc(closer: bool) -> None:
    other = not closer
    closing = [(Kind.FIN, closer), (Kind.ACK, other), (Kind.FIN, other), (Kind.ACK, closer)]
    assert play([*HANDSHAKE, (Kind.ACK, SERVER), *closing]) == [
        State.SYN_SENT, State.SYN_RECEIVED, State.ESTABLISHED, State.ESTABLISHED,
        State.FIN_WAIT, State.FIN_WAIT, State.LAST_ACK, State.TIME_WAIT,
    ]  # fmt: skip


def test_what_is_sent_again_passes() -> None:
    again = [packet for packet in HANDSHAKE for _ in range(2)]
    assert None not in play(again)


def test_an_end_that_holds_an_older_connection_can_say_so() -> None:
    """Its ACK reaches the end that begins anew, and the RST that follows reaches it (RFC 9293, 3.5.1)."""
    asked = [(Kind.SYN, CLIENT), (Kind.ACK, SERVER), (Kind.RST, CLIENT), *HANDSHAKE]
    assert play(asked) == [
        State.SYN_SENT, State.SYN_SENT, State.CLOSED, State.SYN_SENT, State.SYN_RECEIVED, State.ESTABLISHED,
    ]  # fmt: skip
    assert play([(Kind.SYN, CLIENT), (Kind.ACK, CLIENT)]) == [State.SYN_SENT, None]


@pytest.mark.parametrize("kind", [kind for kind in TCP_KINDS if kind is not Kind.SYN] + [Kind.REPLY])
@pytest.mark.parametrize("sender", [CLIENT, SERVER])
def test_nothing_is_picked_up_in_the_middle(kind: Kind, sender: bool) -> None:
    assert step(None, kind, sender, 0.0) is None


def test_ends_begin_anew_where_one_of_them_has_closed() -> None:
    """The SYN changes nothing, so nobody cuts a connection by it; the SYN-ACK that answers it says that both agree."""
    anew = [(Kind.FIN, CLIENT), (Kind.SYN, CLIENT), (Kind.SYN_ACK, SERVER), (Kind.ACK, CLIENT)]
    closing, begun = State.FIN_WAIT, [State.SYN_RECEIVED, State.ESTABLISHED]
    assert play([*HANDSHAKE, *anew])[3:] == [closing, closing, *begun]
    assert play([*HANDSHAKE, (Kind.FIN, SERVER), *anew])[3:] == [closing, State.LAST_ACK, State.LAST_ACK, *begun]
    held_by_server = [(Kind.FIN, CLIENT), (Kind.SYN, CLIENT), (Kind.ACK, SERVER), (Kind.RST, CLIENT), *HANDSHAKE]
    assert play([*HANDSHAKE, *held_by_server])[3:] == [
        closing, closing, closing, State.CLOSED, State.SYN_SENT, *begun,
    ]  # fmt: skip
    assert play([*HANDSHAKE, (Kind.FIN, CLIENT), (Kind.SYN, SERVER), (Kind.SYN_ACK, CLIENT)])[4:] == [None, None]


def test_pseudo_states_need_an_answer() -> None:
    udp = [(Kind.DATAGRAM, SERVER), (Kind.DATAGRAM, SERVER), (Kind.DATAGRAM, CLIENT), (Kind.DATAGRAM, SERVER)]
    assert play(udp) == [State.ONE_WAY, State.ONE_WAY, State.BOTH_WAYS, State.BOTH_WAYS]
    echo = [(Kind.REQUEST, CLIENT), (Kind.REPLY, CLIENT), (Kind.REQUEST, SERVER), (Kind.REPLY, SERVER)]
    assert play(echo) == [State.ONE_WAY, None, None, State.BOTH_WAYS]


@pytest.mark.parametrize("state", [state for state in State if state is not State.LISTEN])
def test_a_connection_ends_by_its_time_out(state: State) -> None:
    known = Connection(state, CLIENT, CLIENT, 100.0)
    after = step(known, Kind.SYN, SERVER, 100.0 + TIMEOUT_S[state] + 0.001)
    assert after == Connection(State.SYN_SENT, SERVER, False, 100.0 + TIMEOUT_S[state] + 0.001)


@given(tcp_traces)
def test_established_comes_of_a_whole_handshake(trace: list[tuple[Kind, bool]]) -> None:
    states = play(trace)
    if State.ESTABLISHED not in states:
        return
    end = states.index(State.ESTABLISHED)
    passed = [packet for packet, state in zip(trace[:end], states[:end], strict=True) if state is not None]
    opener = trace[end][1]
    assert (Kind.SYN, opener) in passed
    assert (Kind.SYN_ACK, not opener) in passed


@given(tcp_traces)
def test_tcp_never_comes_to_pseudo_states_and_back_from_closing_by_a_handshake_alone(
    trace: list[tuple[Kind, bool]],
) -> None:
    closing = False
    for (kind, _), state in zip(trace, play(trace), strict=True):
        assert state not in (State.ONE_WAY, State.BOTH_WAYS, State.LISTEN)
        if closing and state in (State.SYN_SENT, State.SYN_RECEIVED, State.ESTABLISHED):
            assert kind is (Kind.SYN if state is State.SYN_SENT else Kind.SYN_ACK)
            closing = False
        closing = closing or state in (State.FIN_WAIT, State.CLOSED)


@given(tcp_traces)
def test_the_names_of_the_ends_do_not_matter(trace: list[tuple[Kind, bool]]) -> None:
    assert play(trace) == play([(kind, not sender) for kind, sender in trace])


def test_flags_that_no_stack_sends_are_bad() -> None:
    good = {SYN, SYN | ACK, ACK, FIN | ACK, RST, RST | ACK}
    for flags in range(64):
        assert (tcp_kind(flags) is Kind.BAD) == (flags & (FIN | SYN | RST | ACK) not in good)


def test_levels_share_more_and_more() -> None:
    shared = {level: {state for state in State if is_shared(state, level)} for level in Level}
    assert shared[Level.NONE] == set()
    assert shared[Level.ESTABLISHED] == ESSENTIAL
    assert shared[Level.FULL] == set(State)


@pytest.mark.parametrize("before", sorted(HELD[Level.FULL]))
def test_what_members_hold_at_full_admits_every_packet_of_an_open_connection(before: State) -> None:
    """So the packet that opens a connection need not be held there: a member that misses it goes on all the same."""
    for opener, sender, kind in itertools.product((False, True), (False, True), Kind):
        ahead = step(Connection(before, opener, False, 0.0), kind, sender, 1.0)
        if ahead is None or ahead.state not in OPEN:
            continue
        for next_kind, next_sender in itertools.product(Kind, (False, True)):
            if step(ahead, next_kind, next_sender, 1.0) is not None:
                missed = step(Connection(before, opener, False, 0.0), next_kind, next_sender, 1.0)
                assert missed is not None, (kind, next_kind)
