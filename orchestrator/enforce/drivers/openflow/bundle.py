"""One change of a switch as one ordered, atomic bundle: its messages, their numbers, and who is to blame.

    xids   0     1 .. r      r+1              r+2 .. r+1+a   r+2+a     r+3+a             r+4+a
           open  deletes     delete stamps    adds           barrier   commit/discard    barrier
           └──────────────────── filling ───────────────────────────┘
           └──────────────────── whole ──────────────────────────────────────────────────────┘

A switch leaves a message that it cannot read out of a bundle and would commit the rest, so the bundle is filled,
checked for complaints, and only then committed. What fails at commit is complained about under the xid of the flow's
own message, which is why the second exchange listens to all numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from orchestrator.enforce.drivers.openflow import flowmods, messages
from orchestrator.enforce.drivers.openflow.flowmods import Command, Encoded
from orchestrator.enforce.drivers.openflow.messages import BundleControl, ErrorMessage
from orchestrator.errors import Refused
from orchestrator.program.flows import Flow, FlowTable


def numbers_needed(removed: FlowTable, added: FlowTable) -> int:
    """How many xids a bundle takes."""
    return len(removed) + len(added) + 5


@dataclass(frozen=True, slots=True)
class CookieMatch:
    """The flows of one table whose cookie is `cookie` under `mask`."""

    table: int
    cookie: int
    mask: int


@dataclass(frozen=True, slots=True)
class Bundle:
    """Deletes `removed` (by key), then whatever `replaced` matches, then adds `added`."""

    number: int
    xids: range
    removed: FlowTable
    replaced: CookieMatch
    added: FlowTable
    _deletes: Encoded = field(init=False)
    _adds: Encoded = field(init=False)

    def __post_init__(self) -> None:
        deletes = flowmods.bundled(
            Command.DELETE_STRICT, self.removed, bundle=self.number, first_xid=self._first_delete
        )
        adds = flowmods.bundled(Command.ADD, self.added, bundle=self.number, first_xid=self._first_add)
        object.__setattr__(self, "_deletes", deletes)
        object.__setattr__(self, "_adds", adds)

    @property
    def filling(self) -> range:
        """The numbers of the first exchange, its barrier last."""
        return self.xids[:-2]

    @property
    def _first_delete(self) -> int:
        return self.xids[1]

    @property
    def _first_add(self) -> int:
        return self.xids[2 + len(self.removed)]

    def fill(self) -> bytes:
        """Open the bundle and put everything in; the barrier is the caller's."""
        old = self.replaced
        return b"".join(
            (
                messages.bundle_control(self.xids[0], self.number, BundleControl.OPEN),
                self._deletes.data,
                flowmods.bundled_delete(old.table, old.cookie, old.mask, bundle=self.number, xid=self._first_add - 1),
                self._adds.data,
            )
        )

    def close(self, what: BundleControl) -> bytes:
        """Commit or discard it."""
        return messages.bundle_control(self.xids[-2], self.number, what)

    def refused(self, errors: Sequence[ErrorMessage]) -> Refused:
        """What the switch's complaints amount to, with the first flow it complains about as the place."""
        return refused(errors, self._flow)

    def _flow(self, xid: int) -> Flow | None:
        """The flow that a message carries."""
        for table, encoded, first in (
            (self.removed, self._deletes, self._first_delete),
            (self.added, self._adds, self._first_add),
        ):
            if 0 <= xid - first < len(table):
                return table.row(int(encoded.rows[xid - first]))
        return None


def refused(errors: Sequence[ErrorMessage], flow_of: Callable[[int], Flow | None]) -> Refused:
    """What complaints about messages amount to, given the flow that the message with a number carried."""
    for error in errors:
        flow = flow_of(error.xid)
        if flow is not None:
            others = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
            return Refused(f"the switch refused it, {error}{others}", place=_name(flow))
    return Refused(f"the switch refused the change, {errors[0]}")


def _name(flow: Flow) -> str:
    return f"flow {flow.cookie:#018x} in table {flow.table} at priority {flow.priority}"
