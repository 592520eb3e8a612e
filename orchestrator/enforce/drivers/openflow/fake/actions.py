"""Instructions of the fake switch: apply-actions, goto-table, and our programs' actions.

A flow's instructions are read in whole before they are checked against its match and table, as Open vSwitch does; when
there are several mistakes, that decides which one is complained about.

The multipath action hashes as Open vSwitch 3.1 without SSE 4.2. A symmetric hash takes in the two addresses and the two
ports exclusive-or'ed, so that it is the same for both directions: MurmurHash3's mixing over 32-bit words in this
machine's (little-endian) order of bytes. Of a single field it is Bob Jenkins' hash, as in
`orchestrator/edge/hashing.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.edge import hashing
from orchestrator.enforce.drivers.openflow.fake import fields, tracking
from orchestrator.enforce.drivers.openflow.fake.complaint import Complaint, Reason
from orchestrator.enforce.drivers.openflow.fake.fields import BY_NAME, Match
from orchestrator.enforce.drivers.openflow.fake.tracking import Track
from orchestrator.policy.protocols import SCTP, TCP

IN_PORT, LOCAL, PORTS_END = 0xFFFFFFF8, 0xFFFFFFFE, 0xFF00
"""Output ports: back where the packet came from; the switch itself; the first number that is no ordinary port."""


GOTO_TABLE, APPLY_ACTIONS = 1, 4
OUTPUT, GROUP, SET_FIELD, COPY_FIELD, METER, EXPERIMENTER = 0, 22, 25, 28, 29, 0xFFFF
NICIRA_VENDOR, OUTPUT_REGISTER, CONJUNCTION, MULTIPATH = 0x00002320, 15, 34, 10
CONTROLLER = 37
RESUBMIT_TABLE, _SAME_IN_PORT = 14, 0xFFF8
"""The subtype of resubmit, and the input port that leaves the packet's own."""
STACK_PUSH, STACK_POP = 27, 28
CLAUSES = range(2, 65)
"""How many clauses a conjunction may have."""

_UNKNOWN_INSTRUCTIONS = {
    EXPERIMENTER: Reason.UNKNOWN_EXPERIMENTER_INSTRUCTION,
    **dict.fromkeys((2, 3, 5, 6), Reason.UNSUPPORTED_INSTRUCTION),
}

_OF_CONNECTIONS = ("ct_state", "ct_mark", *(name for name, field in BY_NAME.items() if field.of_connection))
READ_ONLY = frozenset({"conj_id", "eth_type", "ip_frag", "ip_proto", "tcp_flags", *_OF_CONNECTIONS})
"""Fields that no action can change."""


@dataclass(frozen=True, slots=True)
class Output:
    """Send the packet out of a port."""

    port: int


@dataclass(frozen=True, slots=True)
class OutputRegister:
    """Send the packet out of the port that a register holds."""

    register: str


@dataclass(frozen=True, slots=True)
class ToGroup:
    """Have a group do something with a copy of the packet."""

    number: int


@dataclass(frozen=True, slots=True)
class SetField:
    """Write `value` into the bits of a field that `mask` looks at."""

    field: str
    value: int
    mask: int


@dataclass(frozen=True, slots=True)
class CopyField:
    """Copy `bits` bits of a field from bit `source_at` to another's bit `target_at`."""

    source: str
    source_at: int
    target: str
    target_at: int
    bits: int


@dataclass(frozen=True, slots=True)
class Push:
    """Push `bits` bits of a field, from bit `at` on, onto the packet's stack."""

    field: str
    at: int
    bits: int


@dataclass(frozen=True, slots=True)
class Pop:
    """Pop what was pushed last into `bits` bits of a field, from bit `at` on."""

    field: str
    at: int
    bits: int


@dataclass(frozen=True, slots=True)
class Multipath:
    """Write a packet's hash, modulo a number, into a register's `bits` lower bits.

    `hash_fields` says how.
    """

    fields: int
    basis: int
    modulo: int
    register: str
    bits: int


@dataclass(frozen=True, slots=True)
class Conjunction:
    """The packet meets clause `clause`, counted from 0, of the `clauses` of conjunction `number`."""

    number: int
    clause: int
    clauses: int


@dataclass(frozen=True, slots=True)
class Resubmit:
    """Look the packet up in a table, apply what it finds, and go on."""

    table: int


@dataclass(frozen=True, slots=True)
class Report:
    """Show the packet's first `size` bytes to the controller, limited by a meter."""

    meter: int
    size: int


@dataclass(frozen=True, slots=True)
class Limit:
    """Drop the packet beyond a meter's rate.

    The fake has no clock: here every packet is within it.
    """

    meter: int


Action = (
    Output
    | ToGroup
    | OutputRegister
    | SetField
    | CopyField
    | Push
    | Pop
    | Conjunction
    | Multipath
    | Resubmit
    | Report
    | Limit
    | Track
)


@dataclass(frozen=True, slots=True)
class Instructions:
    """The instructions for a packet; `data` is how the switch describes them.

    `conjunctions` are the clauses that it meets: who has some does nothing else.
    """

    actions: tuple[Action, ...]
    goto: int | None
    data: bytes
    conjunctions: tuple[Conjunction, ...] = ()


def read_instructions(data: bytes, *, match: Match, table: int) -> Instructions:
    """Take instructions apart; `match` and `table` are the flow's own, for what must agree.

    Raises Complaint.
    """
    if len(data) % 8:
        raise Complaint(Reason.BAD_LENGTH)
    found: dict[int, bytes] = {}
    for kind, whole in _split_structures(data, Reason.BAD_INSTRUCTION_LENGTH):
        if kind not in (GOTO_TABLE, APPLY_ACTIONS):
            raise Complaint(_UNKNOWN_INSTRUCTIONS.get(kind, Reason.UNKNOWN_INSTRUCTION))
        if kind in found:
            raise Complaint(Reason.DUPLICATE_INSTRUCTION)
        found[kind] = whole
    applied = found.get(APPLY_ACTIONS, b"")
    listed, actions = [], []
    for kind, whole in _split_structures(applied[8:], Reason.BAD_ACTION_LENGTH):
        actions.append(_read_action(kind, whole))
        listed.append((kind, whole))
    conjunctions = tuple(action for action in actions if isinstance(action, Conjunction))
    if conjunctions and (len(conjunctions) < len(actions) or GOTO_TABLE in found):
        raise Complaint(Reason.BAD_CONJUNCTION)
    values = {name: bits.value for name, bits in match.items()}
    if any(map(reads_connection, actions)) and not fields.is_of_connection(match):
        raise Complaint(Reason.ACTION_CONTRADICTS_MATCH)
    if not all(is_possible(action, values) for action in actions) or not fields.is_of_one_version(match):
        raise Complaint(Reason.ACTION_CONTRADICTS_MATCH)
    goto = found[GOTO_TABLE][4] if GOTO_TABLE in found else None
    if goto is not None and goto <= table:
        raise Complaint(Reason.BAD_GOTO)
    return Instructions(tuple(actions), goto, _describe_instructions(listed, goto), conjunctions)


def read_actions(data: bytes) -> tuple[Action, ...]:
    """Take a list of actions apart, as a group's bucket has one. Raises Complaint."""
    return tuple(_read_action(kind, whole) for kind, whole in _split_structures(data, Reason.BAD_ACTION_LENGTH))


def _describe_instructions(actions: Sequence[tuple[int, bytes]], goto: int | None) -> bytes:
    """The instructions as the switch writes them: actions first, and padding that is zero."""
    body = b"".join(whole[:10] + bytes(6) if kind == OUTPUT else whole for kind, whole in actions)
    applied = struct.pack("!HH4x", APPLY_ACTIONS, 8 + len(body)) + body if body else b""
    return applied + (struct.pack("!HHB3x", GOTO_TABLE, 8, goto) if goto is not None else b"")


def _split_structures(data: bytes, wrong: Reason) -> Iterator[tuple[int, bytes]]:
    """(type, whole structure) of everything with a type and a length, multiples of eight bytes."""
    at = 0
    while at < len(data):
        kind, length = struct.unpack_from("!HH", data, at)
        if length < 8 or length % 8 or at + length > len(data):
            raise Complaint(wrong)
        yield kind, data[at : at + length]
        at += length


def _read_action(kind: int, whole: bytes) -> Action:
    if kind == OUTPUT:
        (port,) = struct.unpack_from("!I", whole, 4)
        if port >= PORTS_END and port not in (IN_PORT, LOCAL):
            raise Complaint(Reason.BAD_OUT_PORT)
        return Output(port)
    if kind == METER:
        return Limit(*struct.unpack_from("!I", whole, 4))
    if kind == GROUP:
        return ToGroup(*struct.unpack_from("!I", whole, 4))
    if kind == SET_FIELD:
        return _read_set_field(whole)
    if kind == COPY_FIELD:
        return _read_copy_field(whole)
    if kind == EXPERIMENTER:
        return _read_experimenter(whole)
    raise Complaint(Reason.UNKNOWN_ACTION)


def _read_set_field(whole: bytes) -> SetField:
    known = fields.read_header(whole[4:])
    if known is None:
        raise Complaint(Reason.BAD_SET_TYPE)
    field, masked = known
    value = int.from_bytes(whole[8 : 8 + field.size], "big")
    mask = int.from_bytes(whole[8 + field.size : 8 + 2 * field.size], "big") if masked else field.ones
    if field.name in READ_ONLY or not field.can_be(value):
        raise Complaint(Reason.BAD_SET_ARGUMENT)
    return SetField(field.name, value, mask)


def _read_copy_field(whole: bytes) -> CopyField:
    bits, source_at, target_at = struct.unpack_from("!HHH", whole, 4)
    source, target = fields.read_header(whole[12:]), fields.read_header(whole[16:])
    if source is None or target is None:
        raise Complaint(Reason.BAD_FIELD)
    for (field, _), at in ((source, source_at), (target, target_at)):
        if not bits or at + bits > field.bits:
            raise Complaint(Reason.BAD_SET_LENGTH)
    if target[0].name in READ_ONLY:
        raise Complaint(Reason.BAD_SET_ARGUMENT)
    return CopyField(source[0].name, source_at, target[0].name, target_at, bits)


def _read_stack(whole: bytes) -> Push | Pop:
    subtype, at, bits = struct.unpack_from("!HH4xH", whole, 8)
    known = fields.read_header(whole[12:])
    if known is None:
        raise Complaint(Reason.BAD_FIELD)
    if any(whole[18:]):
        raise Complaint(Reason.BAD_ARGUMENT)
    field, _ = known
    if not bits or at + bits > field.bits:
        raise Complaint(Reason.BAD_SET_LENGTH)
    if subtype == STACK_PUSH:
        return Push(field.name, at, bits)
    if field.name in READ_ONLY:
        raise Complaint(Reason.BAD_SET_ARGUMENT)
    return Pop(field.name, at, bits)


def _read_experimenter(whole: bytes) -> Action:
    vendor, subtype = struct.unpack_from("!IH", whole, 4)
    if vendor != NICIRA_VENDOR:
        raise Complaint(Reason.BAD_EXPERIMENTER)
    if subtype == CONJUNCTION:
        return _read_conjunction(whole)
    if subtype == tracking.CT and len(whole) >= 24:
        return tracking.read_track(whole)
    length, read = _OF_ONE_LENGTH.get(subtype, (0, None))
    if read is None or len(whole) != length:
        raise Complaint(Reason.BAD_EXPERIMENTER_TYPE)
    return read(whole)


def _read_multipath(whole: bytes) -> Multipath:
    hashes, basis, algorithm, highest, _, bit_range = struct.unpack_from("!HH2xHHI2xH", whole, 10)
    known = fields.read_header(whole[28:])
    if hashes not in KNOWN or algorithm != MODULO_N:
        raise Complaint(Reason.BAD_ARGUMENT)
    if known is None or known[0] not in fields.REGISTERS or highest >= 1 << (bit_range & 0x3F) + 1 or bit_range >> 6:
        raise Complaint(Reason.BAD_SET_ARGUMENT)
    return Multipath(hashes, basis, highest + 1, known[0].name, bit_range + 1)


def _read_resubmit(whole: bytes) -> Resubmit:
    in_port, table = struct.unpack_from("!HB", whole, 10)
    if in_port != _SAME_IN_PORT or any(whole[13:]):
        raise Complaint(Reason.BAD_ARGUMENT)
    return Resubmit(table)


def _read_report(whole: bytes) -> Report:
    """Read a report action: of Open vSwitch's properties those that our programs have, in order."""
    size_property, _, size, metered, length, meter = struct.unpack_from("!HHH2xHHI", whole, 16)
    if any(whole[10:16]) or (size_property, metered, length) != (0, 5, 8):
        raise Complaint(Reason.BAD_ARGUMENT)
    return Report(meter, size)


def _read_conjunction(whole: bytes) -> Conjunction:
    if len(whole) != 16:
        raise Complaint(Reason.BAD_ACTION_LENGTH)
    clause, clauses, number = struct.unpack_from("!BBI", whole, 10)
    if clauses not in CLAUSES or clause >= clauses:
        raise Complaint(Reason.BAD_CONJUNCTION)
    return Conjunction(number, clause, clauses)


def _read_output_register(whole: bytes) -> OutputRegister:
    (bit_range,) = struct.unpack_from("!H", whole, 10)
    known = fields.read_header(whole[12:])
    if known is None or known[0] not in fields.REGISTERS or bit_range != fields.REGISTER_BITS - 1:
        raise Complaint(Reason.BAD_SET_ARGUMENT)
    if any(whole[18:]):
        raise Complaint(Reason.BAD_ARGUMENT)
    return OutputRegister(known[0].name)


_OF_ONE_LENGTH: Mapping[int, tuple[int, Callable[[bytes], Action]]] = {
    OUTPUT_REGISTER: (24, _read_output_register),
    MULTIPATH: (32, _read_multipath),
    RESUBMIT_TABLE: (16, _read_resubmit),
    CONTROLLER: (32, _read_report),
    STACK_PUSH: (24, _read_stack),
    STACK_POP: (24, _read_stack),
}
"""By subtype: the length of an action of Nicira's, and what reads it."""


def is_possible(action: Action, values: Mapping[str, int]) -> bool:
    """Whether what has these values has the fields that an action needs."""
    if isinstance(action, SetField):
        return fields.is_there(BY_NAME[action.field], values)
    if isinstance(action, CopyField):
        return all(fields.is_there(BY_NAME[name], values) for name in (action.source, action.target))
    if isinstance(action, Push | Pop):
        return fields.is_there(BY_NAME[action.field], values)
    return tracking.can_track(values) if isinstance(action, Track) else True


def reads_connection(action: Action) -> bool:
    """Return whether an action reads a field of the packet's connection."""
    source = action.source if isinstance(action, CopyField) else action.field if isinstance(action, Push) else None
    return source is not None and BY_NAME[source].of_connection


ETH_SRC, SYMMETRIC_L3L4 = 0, 2
MODULO_N = 0
KNOWN = frozenset({ETH_SRC, SYMMETRIC_L3L4})

_IPV4, _IPV6 = 0x0800, 0x86DD
_ONES = 0xFFFFFFFF


def hash_fields(fields: int, basis: int, values: Mapping[str, int]) -> int:
    """The hash of a packet with these header values."""
    if fields == ETH_SRC:
        return int(hashing.hash_keys(np.array([values.get("eth_src", 0)], np.uint64), basis)[0])
    return _symmetric_l3l4(basis, values)


def _symmetric_l3l4(basis: int, values: Mapping[str, int]) -> int:
    """`flow_hash_symmetric_l3l4` of Open vSwitch's lib/flow.c; of what is no IP packet, the basis alone."""
    kind, protocol = values.get("eth_type", 0), values.get("ip_proto", 0)
    if kind == _IPV4:
        words = _words(values.get("ipv4_src", 0) ^ values.get("ipv4_dst", 0), 4)
    elif kind == _IPV6:
        words = _words(values.get("ipv6_src", 0) ^ values.get("ipv6_dst", 0), 16)
    else:
        return basis
    words.append(protocol)
    for number, name in ((TCP, "tcp"), (SCTP, "sctp")):
        if protocol == number:
            words += _words(values.get(f"{name}_src", 0) ^ values.get(f"{name}_dst", 0), 2)
    state = basis
    for word in words:
        state = _mix_word(state, word)
    return _finish_hash(state ^ basis)


def _words(value: int, size: int) -> list[int]:
    """A field's bytes, which lie in network order, as words of this machine."""
    data = value.to_bytes(size, "big")
    return [int.from_bytes(data[at : at + 4], "little") for at in range(0, size, 4)]


def _mix_word(state: int, word: int) -> int:
    word = _rotate_word(word * 0xCC9E2D51 & _ONES, 15) * 0x1B873593 & _ONES
    return (_rotate_word(state ^ word, 13) * 5 + 0xE6546B64) & _ONES


def _finish_hash(state: int) -> int:
    state ^= state >> 16
    state = state * 0x85EBCA6B & _ONES
    state ^= state >> 13
    state = state * 0xC2B2AE35 & _ONES
    return state ^ state >> 16


def _rotate_word(word: int, bits: int) -> int:
    return (word << bits | word >> 32 - bits) & _ONES
