"""Windows of firewall servers: nobody waits longer, nobody is served more often, nothing is forgotten."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.control.serverwindows import NEVER, Windows

_EXACT = 1e-9
changes = st.lists(
    st.tuples(st.sampled_from(("s1", "s2", "s3")), st.sampled_from((0.0, 0.01, 0.04, 0.05, 0.3))), max_size=60
)
window = st.sampled_from((0.0, 0.05, 1.0))


@given(changes, window)
def test_every_change_is_served_within_a_window_and_nobody_more_often_than_once_in_it(
    noted: list[tuple[str, float]], window_s: float
) -> None:
    windows, now = Windows(window_s), 0.0
    waiting: dict[str, float] = {}
    served: dict[str, list[float]] = {"s1": [], "s2": [], "s3": []}

    def serve_up_to(end: float) -> None:
        while windows.next_at <= end:
            at = windows.next_at
            for server in windows.take(at):
                assert at - waiting.pop(server) <= window_s + _EXACT
                served[server].append(at)

    for server, after in noted:
        serve_up_to(now + after)
        now += after
        windows.note(server, now)
        waiting.setdefault(server, now)
    serve_up_to(now + window_s + _EXACT)
    assert not waiting
    assert windows.next_at == NEVER
    for times in served.values():
        assert all(later - earlier >= window_s - _EXACT for earlier, later in pairwise(times))


def test_who_was_not_served_for_long_is_served_at_once() -> None:
    windows = Windows(10.0)
    windows.note("s1", 5.0)
    assert windows.take(5.0) == ["s1"]
    windows.note("s1", 6.0)
    assert (windows.take(14.9), windows.next_at) == ([], 15.0)
    assert windows.take(15.0) == ["s1"]
    windows.note("s1", 100.0)
    assert windows.take(100.0) == ["s1"]
