"""One change of a switch as one ordered, atomic bundle, with errors by flow.

    xids   0     1 .. r      r+1              r+2 .. r+1+a   r+2+a     r+3+a             r+4+a
           open  deletes     delete stamps    adds           barrier   commit/discard    barrier
           └──────────────────── filling ───────────────────────────┘
           └──────────────────── whole ──────────────────────────────────────────────────────┘

Groups stand between the flows that led to them and those that will: deleted after flows, added before them. One that
is deleted and added in the same change is changed in place, and the number of its deletion stays unused.

A switch leaves a message that it cannot read out of a bundle and would commit the rest, so the bundle is filled,
checked for complaints, and only then committed. Errors at commit are reported under the xid of the flow's own message,
which is why the second exchange listens to all numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from orchestrator.enforce.drivers.openflow import flowmods, groupmods, messages
from orchestrator.enforce.drivers.openflow.flowmods import Command, Encoded
from orchestrator.enforce.drivers.openflow.groupmods import GroupCommand
from orchestrator.enforce.drivers.openflow.messages import BundleControl, ErrorMessage
from orchestrator.errors import Refused
from orchestrator.program.flows import GROUPS, Flow, FlowTable

_NO_ROWS = FlowTable.of(())


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
class _Part:
    """Messages of one kind: the one numbered ``first + i`` carries ``rows[encoded.rows[i]]``."""

    rows: FlowTable
    encoded: Encoded
    first: int

    def flow(self, xid: int) -> Flow | None:
        """The row that a message carries."""
        inside = 0 <= xid - self.first < len(self.rows)
        return self.rows.row(int(self.encoded.rows[xid - self.first])) if inside else None


@dataclass(frozen=True, slots=True)
class Bundle:
    """Deletes `removed` (by key), then whatever `replaced` matches, then adds `added`."""

    number: int
    xids: range
    removed: FlowTable
    replaced: CookieMatch
    added: FlowTable
    _deletes: tuple[_Part, _Part] = field(init=False)
    _adds: tuple[_Part, _Part] = field(init=False)

    def __post_init__(self) -> None:
        flows_out, groups_out = _part_rows(self.removed)
        flows_in, groups_in = _part_rows(self.added)
        groups_out = _without(groups_out, groups_in)
        first, then = self.xids[1], self.xids[2 + len(self.removed)]
        object.__setattr__(
            self,
            "_deletes",
            (
                self._add_flows(Command.DELETE_STRICT, flows_out, first),
                self._add_groups(GroupCommand.DELETE, groups_out, first + len(flows_out)),
            ),
        )
        object.__setattr__(
            self,
            "_adds",
            (
                self._add_groups(GroupCommand.ADD_OR_MODIFY, groups_in, then),
                self._add_flows(Command.ADD, flows_in, then + len(groups_in)),
            ),
        )

    @property
    def filling(self) -> range:
        """The numbers of the first exchange, its barrier last."""
        return self.xids[:-2]

    def fill(self) -> Iterator[bytes]:
        """Open the bundle and put everything in; the barrier is the caller's."""
        old = self.replaced
        xid = self.xids[1 + len(self.removed)]
        yield messages.bundle_control(self.xids[0], self.number, BundleControl.OPEN)
        for part in self._deletes:
            yield from part.encoded.parts()
        yield flowmods.bundled_delete(old.table, old.cookie, old.mask, bundle=self.number, xid=xid)
        for part in self._adds:
            yield from part.encoded.parts()

    def close(self, what: BundleControl) -> bytes:
        """Return the messages that commit or discard the bundle."""
        return messages.bundle_control(self.xids[-2], self.number, what)

    def explain_errors(self, errors: Sequence[ErrorMessage]) -> Refused:
        """Turn the switch's errors into Refused, at the first flow they name."""
        return explain_errors(errors, self.flow)

    def flow(self, xid: int) -> Flow | None:
        """The flow or group that the message with a number carries."""
        found = (part.flow(xid) for part in (*self._deletes, *self._adds))
        return next((flow for flow in found if flow is not None), None)

    def _add_flows(self, command: Command, rows: FlowTable, first: int) -> _Part:
        return _Part(rows, flowmods.bundle_flows(command, rows, bundle=self.number, first_xid=first), first)

    def _add_groups(self, command: GroupCommand, rows: FlowTable, first: int) -> _Part:
        return _Part(rows, groupmods.bundle_groups(command, rows, bundle=self.number, first_xid=first), first)


def _part_rows(rows: FlowTable) -> tuple[FlowTable, FlowTable]:
    """The flows, and the groups."""
    are_groups = rows.are_groups()
    return (rows.take(~are_groups), rows.take(are_groups)) if are_groups.any() else (rows, _NO_ROWS)


def _without(groups: FlowTable, others: FlowTable) -> FlowTable:
    """The groups that are not among others, by number."""
    kept = {row.match for row in others.rows()}
    return FlowTable.of(row for row in groups.rows() if row.match not in kept)


def explain_errors(errors: Sequence[ErrorMessage], flow_of: Callable[[int], Flow | None]) -> Refused:
    """Turn errors about messages into Refused.

    `flow_of` returns a message's flow by its number.
    """
    for error in errors:
        flow = flow_of(error.xid)
        if flow is not None:
            others = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
            return Refused(f"the switch refused it, {error}{others}", place=_name_flow(flow))
    return Refused(f"the switch refused the change, {errors[0]}")


def _name_flow(flow: Flow) -> str:
    if flow.table == GROUPS:
        return f"group {int.from_bytes(flow.match, 'big')}"
    return f"flow {flow.cookie:#018x} in table {flow.table} at priority {flow.priority}"
