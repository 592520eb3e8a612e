"""A packet's way through the fake switch's tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.enforce.drivers.openflow.fake import actions, rewrite, tracking
from orchestrator.enforce.drivers.openflow.fake.actions import (
    Action,
    CopyField,
    Multipath,
    Output,
    OutputRegister,
    Pop,
    Push,
    Report,
    Resubmit,
    SetField,
    ToGroup,
)
from orchestrator.enforce.drivers.openflow.fake.groups import Group
from orchestrator.enforce.drivers.openflow.fake.table import Entry, FlowTable
from orchestrator.enforce.drivers.openflow.fake.tracking import Connection, Found, Known, Track
from orchestrator.enforce.drivers.openflow.headers import Headers


@dataclass(frozen=True, slots=True)
class Trace:
    """The way of a frame: entries met by table, and frames sent by port.

    `reports` are the entries that show it to controllers, and how many bytes of it; `known` is the new state of
    connections, None for one that is over and forgotten.

    The last table had no entry for it if `missed`; then it was dropped there.
    """

    entries: tuple[Entry, ...]
    sent: tuple[tuple[int, bytes], ...]
    missed: bool
    reports: tuple[tuple[Entry, int], ...] = ()
    known: Mapping[Connection, Known | None] = field(default_factory=dict)

    @property
    def cookies(self) -> tuple[int, ...]:
        """The cookies of the entries met."""
        return tuple(entry.cookie for entry in self.entries)


class Journey:
    """A frame on its way: current header fields and registers, and frames sent so far."""

    def __init__(
        self,
        frame: bytes,
        headers: Headers,
        in_port: int,
        groups: Mapping[int, Group],
        connections: Mapping[Connection, Known],
        room: int,
    ) -> None:
        self._frame = frame
        self._headers = headers
        self._in_port = in_port
        self._groups = groups
        self._connections = connections
        self._room = room
        self._values = {**headers.values, "in_port": in_port}
        self._sent: list[tuple[int, bytes]] = []
        self._met: list[Entry] = []
        self._reports: list[tuple[Entry, int]] = []
        self._known: dict[Connection, Known | None] = {}
        self._tables: Mapping[int, FlowTable] = {}
        self._stack: list[int] = []

    def through(self, tables: Mapping[int, FlowTable]) -> Trace:
        """Take the packet through tables, from 0 to the end. Raises `Ambiguous`."""
        self._tables = tables
        missed = not self._visit(0)
        return Trace(
            tuple(self._met), tuple(self._sent), missed=missed, reports=tuple(self._reports), known=self._known
        )

    def _visit(self, table: int | None) -> bool:
        """Walk from a table to the end.

        False where a table had no entry for the packet.
        """
        while table is not None:
            entry = self._tables[table].look_up(self._values) if table in self._tables else None
            if entry is None:
                return False
            self._met.append(entry)
            for action in entry.instructions.actions:
                self._do(action)
            table = entry.instructions.goto
        return True

    def _do(self, action: Action) -> None:
        """Do one action; one that needs a field which the packet lacks does nothing."""
        if not actions.is_possible(action, self._values):
            return
        if isinstance(action, Output):
            self._send(action.port)
        elif isinstance(action, ToGroup):
            self._hand_to(self._groups[action.number])
        elif isinstance(action, OutputRegister):
            self._send(self._values.get(action.register, 0))
        elif isinstance(action, SetField):
            self._values[action.field] = self._values.get(action.field, 0) & ~action.mask | action.value & action.mask
        elif isinstance(action, CopyField):
            self._copy_field(action)
        elif isinstance(action, Push | Pop):
            self._use_stack(action)
        elif isinstance(action, Multipath):
            self._hash_fields(action)
        elif isinstance(action, Resubmit):
            self._visit(action.table)
        elif isinstance(action, Report):
            self._reports.append((self._met[-1], action.size))
        elif isinstance(action, Track):
            self._track(action)

    def _track(self, action: Track) -> None:
        """Look up a copy's connection and go on with it, or remember the connection."""
        if action.mark is not None:
            self._remember_connection(action)
        if action.table is not None:
            before = dict(self._values)
            self._values |= tracking.fields_of(self._look_up_connection(action.zone))
            self._visit(action.table)
            self._values = before

    def _look_up_connection(self, zone: int) -> Found:
        quoted = tracking.quoted_way(self._frame, self._headers.transport_at, self._values)
        if quoted is not None:
            return tracking.look_up_error(quoted, self._find_connection(tracking.connection(zone, quoted)))
        connection = tracking.connection(zone, tracking.way_of(self._values))
        before = self._find_connection(connection)
        found = tracking.look_up(self._values, before)
        if before is not None and not found.state & tracking.INVALID:
            self._known[connection] = found.known
        return found

    def _find_connection(self, connection: Connection) -> Known | None:
        return self._known.get(connection, self._connections.get(connection))

    def _remember_connection(self, action: Track) -> None:
        connection = tracking.connection(action.zone, tracking.way_of(self._values))
        before = tracking.look_up(self._values, self._find_connection(connection)).known
        known = tracking.begin_connection(self._values, action, before)
        if known is not None and (before is not None or self._room):
            self._known[connection] = known

    def _hand_to(self, group: Group) -> None:
        """Have a bucket do its actions; what they write is not seen behind the group."""
        before = dict(self._values)
        for action in group.chosen(before):
            self._do(action)
        self._values = before

    def _copy_field(self, action: CopyField) -> None:
        """Copy bits; of a connection only with packets of it, as Open vSwitch does."""
        if actions.reads_connection(action) and not self._values.get("ct_state", 0) & tracking.OF_CONNECTION:
            return
        bits = self._read_bits(action.source, action.source_at, action.bits)
        self._write_bits(action.target, action.target_at, action.bits, bits)

    def _use_stack(self, action: Push | Pop) -> None:
        """Push or pop bits, of a connection with any packet; an empty stack pops nothing."""
        if isinstance(action, Push):
            self._stack.append(self._read_bits(action.field, action.at, action.bits))
        elif self._stack:
            self._write_bits(action.field, action.at, action.bits, self._stack.pop())

    def _read_bits(self, field: str, at: int, bits: int) -> int:
        return self._values.get(field, 0) >> at & (1 << bits) - 1

    def _write_bits(self, field: str, at: int, bits: int, value: int) -> None:
        ones = (1 << bits) - 1
        self._values[field] = self._values.get(field, 0) & ~(ones << at) | (value & ones) << at

    def _hash_fields(self, action: Multipath) -> None:
        kept = self._values.get(action.register, 0) >> action.bits << action.bits
        found = actions.hash_fields(action.fields, action.basis, self._values) % action.modulo
        self._values[action.register] = kept | found

    def _send(self, port: int) -> None:
        """Send by a port, but never back by the packet's own.

        The reserved number for the own port is the exception.
        """
        if port == actions.IN_PORT:
            port = self._in_port
        elif port == self._in_port:
            return
        self._sent.append((port, rewrite.written(self._frame, self._headers, self._values)))
