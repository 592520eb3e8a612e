"""A packet's way through the fake switch's tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.enforce.drivers.openflow.fake import actions, rewrite
from orchestrator.enforce.drivers.openflow.fake.actions import Action, CopyField, Output, OutputRegister, SetField
from orchestrator.enforce.drivers.openflow.fake.table import Entry, FlowTable
from orchestrator.enforce.drivers.openflow.headers import Headers


@dataclass(frozen=True, slots=True)
class Trace:
    """How a frame went: the entry met in each table, in order, and the frames sent, by port number.

    The last table had no entry for it if `missed`; then it was dropped there.
    """

    entries: tuple[Entry, ...]
    sent: tuple[tuple[int, bytes], ...]
    missed: bool

    @property
    def cookies(self) -> tuple[int, ...]:
        """The cookies of the entries met."""
        return tuple(entry.cookie for entry in self.entries)


class Journey:
    """One frame under way: its header fields and registers as they are now, and what was sent so far."""

    def __init__(self, frame: bytes, headers: Headers, in_port: int) -> None:
        self._frame = frame
        self._headers = headers
        self._in_port = in_port
        self._values = {**headers.values, "in_port": in_port}
        self._sent: list[tuple[int, bytes]] = []

    def through(self, tables: Mapping[int, FlowTable]) -> Trace:
        """From table 0 to the end. Raises `Ambiguous`."""
        met: list[Entry] = []
        table: int | None = 0
        while table is not None:
            entry = tables[table].look_up(self._values) if table in tables else None
            if entry is None:
                return Trace(tuple(met), tuple(self._sent), missed=True)
            met.append(entry)
            for action in entry.instructions.actions:
                self._do(action)
            table = entry.instructions.goto
        return Trace(tuple(met), tuple(self._sent), missed=False)

    def _do(self, action: Action) -> None:
        """Do one action; one that needs a field which the packet lacks does nothing."""
        if not actions.is_possible(action, self._values):
            return
        if isinstance(action, Output):
            self._send(action.port)
        elif isinstance(action, OutputRegister):
            self._send(self._values.get(action.register, 0))
        elif isinstance(action, SetField):
            self._values[action.field] = self._values.get(action.field, 0) & ~action.mask | action.value & action.mask
        elif isinstance(action, CopyField):
            self._copy(action)

    def _copy(self, action: CopyField) -> None:
        ones = (1 << action.bits) - 1
        moved = (self._values.get(action.source, 0) >> action.source_at & ones) << action.target_at
        kept = self._values.get(action.target, 0) & ~(ones << action.target_at)
        self._values[action.target] = kept | moved

    def _send(self, port: int) -> None:
        """A packet never goes back by its own port, unless told so by the reserved number."""
        if port == actions.IN_PORT:
            port = self._in_port
        elif port == self._in_port:
            return
        self._sent.append((port, rewrite.written(self._frame, self._headers, self._values)))
