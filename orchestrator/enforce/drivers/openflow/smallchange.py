"""Change a few rows in two exchanges: fill and check, commit and read back.

    filling   open, deletes, delete stamps, adds, barrier                      no complaints? else discard
    closing   counters of what goes, commit, barrier, entries by key, stamp, barrier

A switch works through a connection's messages in order, and the barrier between commit and questions holds it to that,
so the answers show what the commit left. Entries are asked for by table, match and cookie, one question for each row
that went or came: a rule may have ten thousand rows, of which a change touches one. Rows that a match covers are asked
for as well, so answers may hold more than the rows in question; those are picked by key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from orchestrator.enforce.drivers.openflow import flowdesc, flowmods, messages
from orchestrator.enforce.drivers.openflow.bundle import explain_errors
from orchestrator.enforce.drivers.openflow.flowmods import Command
from orchestrator.enforce.drivers.openflow.messages import BundleControl, ErrorMessage
from orchestrator.enforce.drivers.openflow.ownrows import Own
from orchestrator.errors import Refused
from orchestrator.program.flows import Flow

_Question = tuple[int, bytes, int]
"""Table, match and cookie."""


def numbers_needed(removed: Sequence[Flow], added: Sequence[Flow], own: Own) -> int:
    """How many xids a change takes at most."""
    return 3 * len(removed) + 2 * len(added) + len(own.removed) + len(own.added) + 7


@dataclass(frozen=True, slots=True)
class SmallChange:
    """Deletes `removed` (by key), adds `added`, and changes the driver's own rows along with them."""

    number: int
    xids: range
    removed: Sequence[Flow]
    added: Sequence[Flow]
    own: Own
    filling: range = field(init=False)
    """The numbers of the first exchange, its barrier last."""
    counting: range = field(init=False)
    """Those of the questions for what the removed rows have counted."""
    commit: int = field(init=False)
    showing: range = field(init=False)
    """Those of the questions for what is there after the commit."""
    closing: range = field(init=False)
    """All numbers up to the last barrier: what fails at commit is complained about under the row's own."""
    _goes: tuple[Flow, ...] = field(init=False)
    _comes: tuple[Flow, ...] = field(init=False)
    _counted: tuple[_Question, ...] = field(init=False)
    _shown: tuple[_Question, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_goes", (*self.removed, *self.own.removed))
        object.__setattr__(self, "_comes", (*self.added, *self.own.added))
        counted = tuple(dict.fromkeys(map(_make_question, self.removed)))
        shown = tuple(dict.fromkeys(map(_make_question, (*self.removed, *self.added))))
        first = self.xids[0]
        asked = first + len(self._goes) + len(self._comes) + 3
        commit = asked + len(counted)
        last = commit + 2 + len(shown) + 1
        for name, value in (
            ("filling", range(first, asked)),
            ("counting", range(asked, commit)),
            ("commit", commit),
            ("showing", range(commit + 2, last)),
            ("closing", range(first, last + 1)),
            ("_counted", counted),
            ("_shown", shown),
        ):
            object.__setattr__(self, name, value)

    def fill(self) -> bytes:
        """Open the bundle and put everything in, and a barrier."""
        old, xid = self.own.replaced, iter(self.filling)
        packed = partial(flowmods.bundled_row, bundle=self.number)
        return b"".join(
            (
                messages.bundle_control(next(xid), self.number, BundleControl.OPEN),
                *[packed(Command.DELETE_STRICT, row, xid=next(xid)) for row in self._goes],
                flowmods.bundled_delete(old.table, old.cookie, old.mask, bundle=self.number, xid=next(xid)),
                *[packed(Command.ADD, row, xid=next(xid)) for row in self._comes],
                messages.barrier_request(next(xid)),
            )
        )

    def close(self) -> bytes:
        """Ask what was counted, commit, and ask what is there."""
        stamp = self.own.replaced
        return b"".join(
            (
                *[_request_flows(xid, question) for xid, question in zip(self.counting, self._counted, strict=True)],
                messages.bundle_control(self.commit, self.number, BundleControl.COMMIT),
                messages.barrier_request(self.commit + 1),
                *[_request_flows(xid, question) for xid, question in zip(self.showing, self._shown, strict=False)],
                flowdesc.request(self.showing[-1], table=stamp.table, cookie=stamp.cookie, cookie_mask=stamp.mask),
                messages.barrier_request(self.closing[-1]),
            )
        )

    def discard(self) -> bytes:
        """Forget the bundle."""
        return messages.bundle_control(self.commit, self.number, BundleControl.DISCARD) + messages.barrier_request(
            self.closing[-1]
        )

    def explain_errors(self, errors: Sequence[ErrorMessage]) -> Refused:
        """Turn the switch's errors into Refused, at the first flow they name."""
        return explain_errors(errors, self._flow)

    def _flow(self, xid: int) -> Flow | None:
        """The flow that a message carries."""
        place = xid - self.filling[0] - 1
        if 0 <= place < len(self._goes):
            return self._goes[place]
        place -= len(self._goes) + 1
        return self._comes[place] if 0 <= place < len(self._comes) else None


def _make_question(row: Flow) -> _Question:
    return row.table, row.match, row.cookie


def _request_flows(xid: int, question: _Question) -> bytes:
    table, match, cookie = question
    return flowdesc.request(xid, table=table, match=match, cookie=cookie, cookie_mask=flowdesc.EVERY_BIT)
