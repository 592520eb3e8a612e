"""Programs, deltas and edits as bytes, from the control plane to enforcement points.

    ┌──────┬─────────┬──────┬─────────┬────────────────┬──────────────────────────────────────────┐
    │ ACLF │ version │ kind │ packing │ length of body │ body, as it is (packing 0) or zlib's (1) │
    │ 4    │ 1       │ 1    │ 1       │ 8              │                                          │
    └──────┴─────────┴──────┴─────────┴────────────────┴──────────────────────────────────────────┘

    program   domain, tier, generation, digest, ports, flows
    delta     base, target, generation, ports, the base's ports where they differ, removed, added
    edits     the same, with recipes for texts (`edits.py`): for those alone who say that they can read them
    flows     counts, instruction lists, then column after column; matches are transposed, the first byte of every match
              together, for like bytes side by side compress ten times as well and faster

A small body, as that of one changed rule, goes as it is: unpacking it would cost more than its way. Edits are always
compressed, for an agent has one domain, and the service sends them to a thousand.

A stream of these is each behind its length (4 bytes, big-endian); a length of 0 says only that the stream is alive.

Numbers are little-endian. Anything that cannot be read whole and consistent is BadInput; nothing is trusted, least of
all lengths.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from orchestrator.errors import BadInput
from orchestrator.program.blocks import Blocks
from orchestrator.program.delta import Delta
from orchestrator.program.edits import Edits
from orchestrator.program.flows import FewFlows, Flow, FlowTable
from orchestrator.program.program import Program, Tier

PROGRAM_MEDIA_TYPE = "application/vnd.aclflow.program"
DELTA_MEDIA_TYPE = "application/vnd.aclflow.delta"
STREAM_MEDIA_TYPE = "application/vnd.aclflow.stream"
EDITS_MEDIA_TYPE = "application/vnd.aclflow.edits"
"""Accepted beside a stream: its deltas may be edits. Older services pass over it, older enforcement points never say
it."""

MOST_BYTES = 1 << 30
"""A body that says it is longer is not unpacked."""

SMALL_BYTES = 4096
"""A body up to this long is not compressed."""

FEW_ROWS = 64
"""So many rows are read one by one."""

_MAGIC, _VERSION = b"ACLF", 2
_PROGRAM, _DELTA, _EDITS = 1, 2, 3
_KINDS = {_PROGRAM: "a program", _DELTA: "a delta", _EDITS: "edits"}
_PLAIN, _PACKED = 0, 1
_LENGTH_BYTES = 4
_HEAD = struct.Struct("<4sBBBQ")
_NUMBER = struct.Struct("<Q")
_TIERS = {Tier.HOST: 1, Tier.SERVER: 2, Tier.EDGE: 3, Tier.SPREAD: 4}
_TIER_OF = {number: tier for tier, number in _TIERS.items()}
_COLUMNS = {"table": "B", "priority": "H", "cookie": "Q", "tenant": "I", "match_length": "B", "instructions": "I"}
"""The columns but `match` in the order of the wire, with their types as `struct` and NumPy call them."""

_NO_FLOWS = FlowTable.of(())
_NO_LIST = "a row points to an instruction list that is not there"
_NO_MATCH = "a match does not have the length that it says"

Read = TypeVar("Read")

Received = Program | Delta | Edits
"""One body of a stream."""


def encode_program(program: Program) -> bytes:
    """A program as bytes."""
    body = _Writer()
    body.text(program.domain)
    body.number(_TIERS[program.tier])
    body.number(program.generation)
    body.blob(program.digest)
    body.texts(program.ports)
    body.flows(program.flows)
    return body.seal_frame(_PROGRAM)


def decode_program(data: bytes) -> Program:
    """The program that `encode_program` wrote. Raises BadInput."""
    return _decode_frame(data, _PROGRAM, _read_program)


def encode_delta(delta: Delta) -> bytes:
    """A delta as bytes."""
    if delta.wire is not None:
        return delta.wire
    return _write_change(delta).seal_frame(_DELTA)


def written(delta: Delta) -> Delta:
    """Return a delta with its bytes at hand."""
    ready = replace(delta)
    object.__setattr__(ready, "wire", encode_delta(delta))
    return ready


def decode_delta(data: bytes) -> Delta:
    """The delta that `encode_delta` wrote. Raises BadInput."""
    delta = _decode_frame(data, _DELTA, lambda body: Delta(*_read_change(body)))
    object.__setattr__(delta, "wire", data)
    return delta


def encode_edits(edits: Edits) -> bytes:
    """Edits as bytes."""
    return _write_change(edits).seal_frame(_EDITS, small_bytes=0)


def decode_edits(data: bytes) -> Edits:
    """The edits that `encode_edits` wrote. Raises BadInput."""
    return _decode_frame(data, _EDITS, lambda body: Edits(*_read_change(body)))


def decode(data: bytes) -> Received:
    """Decode a program, a delta or edits, whichever it is. Raises BadInput."""
    kind = data[5:6]
    if kind == bytes((_EDITS,)):
        return decode_edits(data)
    return decode_delta(data) if kind == bytes((_DELTA,)) else decode_program(data)


def frame_body(body: bytes = b"") -> bytes:
    """Frame a program or delta for a stream; nothing is a sign of life."""
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


def frames(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the frames of a stream of chunks.

    Raises BadInput for one that is too long.

    An incomplete frame at the end is dropped.
    """
    waiting = bytearray()
    for chunk in chunks:
        waiting += chunk
        while len(waiting) >= _LENGTH_BYTES:
            length = int.from_bytes(waiting[:_LENGTH_BYTES], "big")
            if length > MOST_BYTES:
                raise BadInput(f"a frame says that it is {length} bytes long, over {MOST_BYTES}")
            if len(waiting) < _LENGTH_BYTES + length:
                break
            yield bytes(waiting[_LENGTH_BYTES : _LENGTH_BYTES + length])
            del waiting[: _LENGTH_BYTES + length]


def _read_program(body: _Reader) -> Program:
    domain = body.text()
    tier = _TIER_OF.get(body.number())
    if tier is None:
        raise BadInput("the program is for a tier that we do not know", place="tier")
    generation, digest, ports = body.number(), body.blob(), body.texts()
    return Program(domain, tier, generation, digest, Blocks.of(body.flows()), ports)


def _write_change(change: Delta | Edits) -> _Writer:
    body = _Writer()
    body.blob(change.base)
    body.blob(change.target)
    body.number(change.generation)
    body.texts(change.ports)
    body.number(0 if change.base_ports is None else 1)
    body.texts(change.base_ports or ())
    body.flows(change.removed)
    body.flows(change.added)
    return body


def _read_change(
    body: _Reader,
) -> tuple[bytes, bytes, int, FlowTable, FlowTable, tuple[str, ...], tuple[str, ...] | None]:
    base, target, generation, ports = body.blob(), body.blob(), body.number(), body.texts()
    moved, base_ports = body.number(), body.texts()
    return base, target, generation, body.flows(), body.flows(), ports, base_ports if moved else None


def _decode_frame(data: bytes, kind: int, read: Callable[[_Reader], Read]) -> Read:
    body = _Reader(_open_frame(data, kind))
    found = read(body)
    body.finish()
    return found


def _open_frame(data: bytes, kind: int) -> bytes:
    """The body behind a right head, unpacked to exactly the length that the head says."""
    if len(data) < _HEAD.size:
        raise BadInput("shorter than the head of a program or delta")
    magic, version, found, packing, length = _HEAD.unpack_from(data)
    if (magic, version, found) != (_MAGIC, _VERSION, kind):
        raise BadInput(f"does not begin like {_KINDS[kind]} of version {_VERSION}")
    if length > MOST_BYTES:
        raise BadInput(f"says that it unpacks to {length} bytes, over {MOST_BYTES}")
    body = _decompress(data[_HEAD.size :], length) if packing == _PACKED else data[_HEAD.size :]
    if len(body) != length or packing not in (_PLAIN, _PACKED):
        raise BadInput(f"does not hold the {length} bytes that it says, or holds them in a way that is not known here")
    return body


def _decompress(packed: bytes, length: int) -> bytes:
    """Decompress bytes that must become so many.

    Raises BadInput unless it is complete and of the right length.
    """
    unpacker = zlib.decompressobj()
    try:
        body = unpacker.decompress(packed, length + 1)
    except zlib.error as error:
        raise BadInput(f"cannot be unpacked: {error}") from None
    if not unpacker.eof or unpacker.unused_data:
        raise BadInput(f"does not unpack to the {length} bytes that it says")
    return body


class _Writer:
    """Builds a body piece by piece."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def number(self, value: int) -> None:
        self._pieces.append(_NUMBER.pack(value))

    def blob(self, value: bytes) -> None:
        self.number(len(value))
        self._pieces.append(value)

    def text(self, value: str) -> None:
        self.blob(value.encode())

    def texts(self, values: tuple[str, ...]) -> None:
        self.number(len(values))
        self.blob("\0".join(values).encode())

    def flows(self, table: FlowTable) -> None:
        flows = table.compact_sets()
        width = int(flows.match_length.max(initial=0))
        self.number(len(flows))
        self.number(width)
        self.number(len(flows.instruction_set))
        for each in flows.instruction_set:
            self.blob(each)
        for name, kind in _COLUMNS.items():
            self._pieces.append(getattr(flows, name).astype(f"<{kind}", copy=False).tobytes())
        self._pieces.append(flows.match[:, :width].T.tobytes())

    def seal_frame(self, kind: int, *, small_bytes: int | None = None) -> bytes:
        body = b"".join(self._pieces)
        packing = _PLAIN if len(body) <= (SMALL_BYTES if small_bytes is None else small_bytes) else _PACKED
        head = _HEAD.pack(_MAGIC, _VERSION, kind, packing, len(body))
        return head + (body if packing == _PLAIN else zlib.compress(body, 1))


class _Reader:
    """Takes a body apart; every piece must be there."""

    def __init__(self, body: bytes) -> None:
        self._rest = memoryview(body)

    def take(self, length: int) -> memoryview:
        if length > len(self._rest):
            raise BadInput(f"ends early: {length} bytes are wanted where {len(self._rest)} are left")
        piece, self._rest = self._rest[:length], self._rest[length:]
        return piece

    def finish(self) -> None:
        if self._rest:
            raise BadInput(f"{len(self._rest)} bytes too long")

    def number(self) -> int:
        (value,) = _NUMBER.unpack(self.take(_NUMBER.size))
        return int(value)

    def blob(self) -> bytes:
        return bytes(self.take(self.number()))

    def text(self) -> str:
        try:
            return self.blob().decode()
        except UnicodeDecodeError:
            raise BadInput("holds text that is not UTF-8") from None

    def texts(self) -> tuple[str, ...]:
        count, joined = self.number(), self.text()
        found = tuple(joined.split("\0")) if count else ()
        if len(found) != count or (joined and not count):
            raise BadInput(f"holds {len(found)} names where it says {count}")
        return found

    def flows(self) -> FlowTable:
        count, width, lists = self.number(), self.number(), self.number()
        if width > 255 or lists > count:
            raise BadInput(f"{count} rows cannot have {lists} instruction lists and matches of {width} bytes")
        instruction_set = tuple(self.blob() for _ in range(lists))
        if count <= FEW_ROWS:
            return self._few_flows(count, width, instruction_set)
        columns = {name: self._column(count, np.dtype(f"<{kind}")) for name, kind in _COLUMNS.items()}
        match = np.frombuffer(self.take(count * width), np.uint8).reshape(width, count).T.copy()
        lengths = columns["match_length"]
        if int(columns["instructions"].max()) >= lists:
            raise BadInput(_NO_LIST)
        if int(lengths.max()) > width or match[np.arange(width) >= lengths[:, None]].any():
            raise BadInput(_NO_MATCH)
        return FlowTable(**columns, match=match, instruction_set=instruction_set)

    def _few_flows(self, count: int, width: int, instruction_set: tuple[bytes, ...]) -> FlowTable:
        """Read a few rows one by one.

        It is quicker than setting columns up.
        """
        if not count:
            return _NO_FLOWS
        kinds = [f"<{count}{kind}" for kind in _COLUMNS.values()]
        columns = [struct.unpack(kind, self.take(struct.calcsize(kind))) for kind in kinds]
        match = bytes(self.take(count * width))
        rows = []
        for row, (table, priority, cookie, tenant, length, index) in enumerate(zip(*columns, strict=True)):
            data = match[row::count]
            if index >= len(instruction_set):
                raise BadInput(_NO_LIST)
            if length > width or data[length:].strip(b"\0"):
                raise BadInput(_NO_MATCH)
            rows.append(Flow(table, priority, data[:length], instruction_set[index], cookie, tenant))
        return FewFlows.of(rows)

    def _column(self, count: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """One column, in this machine's order of bytes."""
        return np.frombuffer(self.take(count * dtype.itemsize), dtype).astype(dtype.newbyteorder("="))
