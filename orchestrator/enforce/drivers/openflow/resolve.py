"""From a program's port symbols to one switch's port numbers.

A program names ports by symbol (`orchestrator.program.flows.SYMBOL_BASE`) in three places: as the value of `in_port` at
the beginning of a match, as the port of an output action, and as what a set-field action writes into the output-port
register. `resolve` puts the switch's own numbers there and leaves out the rows whose port the switch does not have;
rows without a symbol, nearly all of a program, are only looked at by column.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from orchestrator.compile.openflow import groups, oxm
from orchestrator.compile.openflow.instructions import instructions as instruction_list
from orchestrator.compile.openflow.symbols import SERVICES_SYMBOL
from orchestrator.compile.pipelines import host as pipeline
from orchestrator.program.flows import SYMBOL_BASE, U8, Flow, FlowTable
from orchestrator.program.program import UPLINK

_SYMBOL_END = 0xFF000000
_IN_PORT = oxm.IN_PORT.header.to_bytes(4, "big")
_SYMBOLIC_IN_PORT = _IN_PORT + (SYMBOL_BASE >> 24).to_bytes(1, "big")
_OUTPUT_PORT = pipeline.OUTPUT_PORT.field.header.to_bytes(4, "big")
_WRITE_ACTIONS, _APPLY_ACTIONS = 3, 4
_OUTPUT, _SET_FIELD = 0, 25


@dataclass(frozen=True, slots=True)
class PortNumbers:
    """The port numbers of a program's symbols on one switch.

    `uplink` is the interface that the symbol of that name means.
    """

    ports: Mapping[str, int]
    symbols: tuple[str, ...]
    uplink: str

    def number(self, value: int) -> int | None:
        """Return the number of a port symbol.

        None if the port or the symbol is missing.
        """
        if value == SERVICES_SYMBOL:
            return self.ports.get(pipeline.SERVICES_PORT)
        index = value - SYMBOL_BASE
        if index >= len(self.symbols):
            return None
        symbol = self.symbols[index]
        return self.ports.get(self.uplink if symbol == UPLINK else symbol)


def resolve(flows: FlowTable, symbols: tuple[str, ...], ports: Mapping[str, int], uplink: str) -> FlowTable:
    """The rows of a program as one switch holds them.

    `symbols` are the program's ports, `ports` the switch's numbers by interface name, `uplink` the name of the
    interface towards the edge. Rows that need an absent port are left out; tenants, which no switch knows, become 0.
    """
    numbers = PortNumbers(ports, symbols, uplink)
    match, matchable = _resolved_matches(flows, numbers)
    used = set(np.unique(flows.instructions).tolist())
    lists = [
        _resolved_instructions(each, numbers) if index in used else each
        for index, each in enumerate(flows.instruction_set)
    ]
    doable = np.array([each is not None for each in lists] or [True], np.bool_)
    resolved = replace(
        flows,
        tenant=np.zeros(len(flows), np.uint32),
        match=match,
        instruction_set=tuple(each if each is not None else b"" for each in lists),
    )
    keep = matchable & doable[flows.instructions]
    return resolved if keep.all() else resolved.take(keep)


def resolve_row(flow: Flow, numbers: PortNumbers) -> Flow | None:
    """Return one row as a switch holds it; None without its port.

    See `resolve`.
    """
    match, instructions = flow.match, flow.instructions
    if match.startswith(_SYMBOLIC_IN_PORT) and len(match) >= 8:
        number = numbers.number(int.from_bytes(match[4:8], "big"))
        if number is None:
            return None
        match = _IN_PORT + number.to_bytes(4, "big") + match[8:]
    if _port_places(instructions):
        resolved = _resolved_instructions(instructions, numbers)
        if resolved is None:
            return None
        instructions = resolved
    return Flow(flow.table, flow.priority, match, instructions, flow.cookie)


def _resolved_matches(flows: FlowTable, numbers: PortNumbers) -> tuple[U8, npt.NDArray[np.bool_]]:
    """The matches with numbers for symbols, and which rows have a port there."""
    keep = np.ones(len(flows), np.bool_)
    width = flows.match.shape[1]
    if width < 8:
        return flows.match, keep
    rows = np.flatnonzero((flows.match[:, :5] == np.frombuffer(_SYMBOLIC_IN_PORT, np.uint8)).all(axis=1))
    if not len(rows):
        return flows.match, keep
    match = flows.match.copy()
    values = np.ascontiguousarray(match[rows, 4:8]).view(">u4").ravel()
    for row, value in zip(rows.tolist(), values.tolist(), strict=True):
        number = numbers.number(value)
        if number is None:
            keep[row] = False
        else:
            match[row, 4:8] = np.frombuffer(number.to_bytes(4, "big"), np.uint8)
    return match, keep


def _resolved_instructions(instructions: bytes, numbers: PortNumbers) -> bytes | None:
    """Replace symbols of an instruction list by numbers; None without a port.

    A group does not go for want of one port: its buckets that would use it drop.
    """
    if groups.is_group_body(instructions):
        return _resolved_group(instructions, numbers)
    places = _port_places(instructions)
    if not places:
        return instructions
    resolved = bytearray(instructions)
    for place in places:
        (value,) = struct.unpack_from("!I", instructions, place)
        if not SYMBOL_BASE <= value < _SYMBOL_END:
            continue
        number = numbers.number(value)
        if number is None:
            return None
        struct.pack_into("!I", resolved, place, number)
    return bytes(resolved)


def _resolved_group(body: bytes, numbers: PortNumbers) -> bytes:
    """A group's body, each bucket with numbers for symbols."""
    kind, buckets, properties = groups.split_group(body)
    resolved = []
    for number, actions, watched in groups.each_watched_bucket(buckets):
        applied = _resolved_instructions(instruction_list([actions]), numbers)
        watch = watched
        if watched is not None and SYMBOL_BASE <= watched < _SYMBOL_END:
            watch = numbers.number(watched)
        resolved.append(groups.bucket(number, [applied[8:]] if applied else [], watch))
    return groups.group_body(kind, b"".join(resolved), properties)


@lru_cache(maxsize=1 << 12)
def _port_places(instructions: bytes) -> tuple[int, ...]:
    """Return the places of port values in an instruction list.

    In output actions, and written into the output-port register.
    """
    places = []
    for at, kind, end in _walk(instructions, 0, len(instructions)):
        if kind not in (_APPLY_ACTIONS, _WRITE_ACTIONS):
            continue
        for action, action_kind, _ in _walk(instructions, at + 8, end):
            if action_kind == _OUTPUT:
                places.append(action + 4)
            elif action_kind == _SET_FIELD and instructions[action + 4 : action + 8] == _OUTPUT_PORT:
                places.append(action + 8)
    return tuple(places)


def _walk(data: bytes, at: int, end: int) -> list[tuple[int, int, int]]:
    """(start, type, end) of each type-length structure between two places."""
    found = []
    while at + 4 <= end:
        kind, length = struct.unpack_from("!HH", data, at)
        found.append((at, kind, at + length))
        at += max(length, 4)
    return found
