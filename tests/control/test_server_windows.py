"""Windows of firewall servers: a lone change waits for nothing, none longer than a window, none is forgotten."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.control.pops.pacing import NEVER, Windows

_EXACT = 1e-9
SERVERS = ("s1", "s2")
steps = st.lists(
    st.tuples(st.sampled_from(("note", "held", "stale")), st.sampled_from(SERVERS), st.sampled_from((0.0, 0.01, 0.3))),
    max_size=60,
)


class Model:
    """What a manager does with windows, and since when each server waits for something."""

    def __init__(self, window_s: float) -> None:
        self.windows, self.window_s, self.now = Windows(), window_s, 0.0
        self.waiting: dict[str, float] = {}
        self.sent: dict[str, int] = {}
        self.under_way: set[str] = set()
        self.newest = 0

    def serve(self) -> None:
        for server in self.windows.due:
            if self.windows.take(server, self.now):
                assert self.now - self.waiting.pop(server) <= self.window_s + _EXACT
                self.windows.note_sent(server, self.newest, self.now)
                self.sent[server] = self.newest
                self.under_way.add(server)

    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while self.windows.next_at <= end:
            self.now = max(self.now, self.windows.next_at)
            self.serve()
        self.now = end

    def note(self, server: str) -> None:
        self.newest += 1
        self.waiting.setdefault(server, self.now)
        self.windows.note(server, self.now, self.window_s)
        self.serve()
        assert (server in self.waiting) <= (server in self.under_way)

    def held(self, server: str, *, stale: bool) -> None:
        generation = self.sent.get(server, 0) - stale
        is_due = self.windows.note_held(server, generation, self.now)
        if not stale:
            self.under_way.discard(server)
            assert is_due == (server in self.waiting)
        self.serve()


@given(steps, st.sampled_from((0.0, 0.05, 1.0)))
def test_every_change_is_sent_within_a_window_and_at_once_where_nothing_is_under_way(
    happenings: list[tuple[str, str, float]], window_s: float
) -> None:
    model = Model(window_s)
    for what, server, after in happenings:
        model.pass_time(after)
        if what == "note":
            model.note(server)
        else:
            model.held(server, stale=what == "stale")
    model.pass_time(window_s + _EXACT)
    assert not model.waiting
    assert model.windows.next_at == NEVER


def test_many_changes_while_one_is_under_way_are_sent_once() -> None:
    windows = Windows()
    windows.note("s1", 0.0, 10.0)
    assert windows.take("s1", 0.0)
    windows.note_sent("s1", 1, 0.0)
    for number in range(100):
        windows.note("s1", 0.01 * number, 10.0)
        assert not windows.take("s1", 0.01 * number)
    assert windows.note_held("s1", 1, 2.0)
    assert windows.take("s1", 2.0)
    assert not windows.take("s1", 20.0)


def test_a_server_that_is_no_more_is_forgotten() -> None:
    windows = Windows()
    windows.note("s1", 0.0, 10.0)
    windows.forget("s1")
    assert windows.due == []


def test_who_cannot_be_served_is_due_later_and_later_and_at_once_with_a_change() -> None:
    windows, now, waited = Windows(), 0.0, []
    windows.note("s1", now, 10.0)
    for _ in range(9):
        assert windows.take("s1", now)
        windows.note_failure("s1", now)
        waited.append(windows.next_at - now)
        assert not windows.take("s1", windows.next_at - 0.01)
        now = windows.next_at
    assert waited == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    windows.note("s1", now - 30, 10.0)
    assert windows.take("s1", now - 30)
    windows.note_sent("s1", 1, now)
    windows.note("s1", now, 10.0)
    assert windows.next_at == now + 10, "the program before is under way"
    assert windows.note_held("s1", 1, now + 1)
    assert windows.take("s1", now + 1)
    windows.note_failure("s1", now + 1)
    assert windows.next_at == now + 2, "what has been made since is not held against it"
    windows.forget("s1")
    windows.note("s1", now, 10.0)
    assert windows.take("s1", now)
