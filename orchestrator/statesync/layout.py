"""The maps of the replicator's program as bytes, and back. `_native/statesync.h` declares the same."""

from __future__ import annotations

import ipaddress
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from orchestrator.errors import BadInput
from orchestrator.program.flows import U64
from orchestrator.statesync.messages import KEY_BYTES, Key, Word
from orchestrator.statesync.states import TIMEOUT_S, Confirmation, Context, Level, State

MOST_MEMBERS = 9
NOWHERE = str(ipaddress.IPv4Address(0))
"""The address of a number that no member has."""
HIGHEST_MEMBER = 15
LANES = 2
SLOTS = 1024
BATCH, BATCHES = 24, 64
"""Words of connections that closed are told so many at a time; the kernel keeps so many batches."""
CARRIED_MOST = 1408
NANOSECONDS = 1_000_000_000

_SETTINGS = struct.Struct("<4B4sII2s6x16sQQ10Q48x")
_MEMBER = struct.Struct("<4sIQ6s6s4x")
_STREAM = struct.Struct("<4xIQQQ128s")
_WINDOW = 1024
_ASKED_S = 3.0
"""A switch asks a firewall that it does not use every second."""
_PROTOCOL_AT = 36
_HEALTH = struct.Struct("<I4xQIIQIIQ")
_SLOT = struct.Struct(f"<QIIIIHH4x40sQ{CARRIED_MOST}s")
_CONNECTION = struct.Struct("<QQQI4x")
SETTINGS_BYTES, MEMBER_BYTES, STREAM_BYTES = _SETTINGS.size, _MEMBER.size, _STREAM.size
SLOT_BYTES, CONNECTION_BYTES = _SLOT.size, _CONNECTION.size
ENTRY_BYTES, HEALTH_BYTES = KEY_BYTES + 8, _HEALTH.size

SIZES: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        "configured": (4, SETTINGS_BYTES),
        "members": (4, MEMBER_BYTES),
        "streams": (4, STREAM_BYTES),
        "slots": (4, SLOT_BYTES),
        "healths": (4, HEALTH_BYTES),
        "batches": (4, BATCH * ENTRY_BYTES),
        "opened": (KEY_BYTES, CONNECTION_BYTES),
        "brief": (KEY_BYTES, CONNECTION_BYTES),
    }
)
"""Bytes of key and value of the maps that are packed here."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How a member shares its connections. All of it may change while packets pass.

    `members` are the others' numbers that are sent messages, `waited` those whose confirmation is waited for.
    """

    number: int
    address: str
    secret: bytes = field(repr=False)
    level: Level = Level.FULL
    context: Context = Context.DIRTY
    confirmation: Confirmation = Confirmation.SYNCHRONOUS
    members: frozenset[int] = frozenset()
    waited: frozenset[int] = frozenset()
    port: int = 3781
    hold_s: float = 0.2
    timeouts_s: Mapping[State, float] = field(default_factory=lambda: TIMEOUT_S)

    def __post_init__(self) -> None:
        if not 1 <= self.number <= HIGHEST_MEMBER or not all(1 <= each <= HIGHEST_MEMBER for each in self.members):
            raise BadInput(f"a member's number is 1 to {HIGHEST_MEMBER}", place="member")
        if len(self.members | {self.number}) > MOST_MEMBERS:
            raise BadInput(f"a cluster has at most {MOST_MEMBERS} members", place="member")
        if self.number in self.members or not self.waited <= self.members:
            raise BadInput("a member does not wait for itself, nor for those that it sends nothing", place="member")
        if len(self.secret) != 16:
            raise BadInput(f"a key has 16 bytes, not {len(self.secret)}", place="key")

    def pack(self, clock_ns: int) -> bytes:
        """Return the bytes of the map `configured`.

        `clock_ns` is the time of day less the kernel's monotonic clock.
        """
        timeouts = [int(self.timeouts_s[state] * NANOSECONDS) for state in State]
        return _SETTINGS.pack(
            self.level, self.context, self.confirmation, self.number, ipaddress.IPv4Address(self.address).packed,
            _bits(self.members), _bits(self.waited), self.port.to_bytes(2, "big"), self.secret, clock_ns,
            int(self.hold_s * NANOSECONDS), *timeouts,
        )  # fmt: skip

    @classmethod
    def unpack(cls, packed: bytes) -> Settings:
        """Read the settings of a program in the kernel."""
        level, context, confirmation, number, address, active, waited, port, secret, _, hold, *timeouts = (
            _SETTINGS.unpack(packed)
        )
        return cls(
            number, str(ipaddress.IPv4Address(address)), secret, Level(level), Context(context),
            Confirmation(confirmation), _numbers(active), _numbers(waited), int.from_bytes(port, "big"),
            hold / NANOSECONDS, {state: timeouts[state] / NANOSECONDS for state in State},
        )  # fmt: skip


def _bits(numbers: frozenset[int]) -> int:
    """Return numbers as the bits of one."""
    return sum(1 << each for each in numbers)


def _numbers(bits: int) -> frozenset[int]:
    """Return the numbers of the bits that are set."""
    return frozenset(each for each in range(HIGHEST_MEMBER + 1) if bits >> each & 1)


def pack_member(address: str) -> bytes:
    """A member's place in the map, for the program to find the way to."""
    return _MEMBER.pack(ipaddress.IPv4Address(address).packed, 0, 0, b"", b"")


def unpack_member(packed: bytes) -> str:
    """A member's address."""
    return str(ipaddress.IPv4Address(packed[:4]))


@dataclass(frozen=True, slots=True)
class Stream:
    """One sender's lane as received: the highest number, and how many since the floor."""

    is_open: bool
    floor: int = 0
    highest: int = 0
    received: int = 0
    seen: bytes = bytes(_WINDOW // 8)

    @property
    def missing(self) -> int:
        """How many messages before the highest have not come (yet)."""
        return self.highest - self.floor - self.received

    def missing_before(self, sequence: int) -> int:
        """Count missing messages up to a number, not far below the highest."""
        bits = int.from_bytes(self.seen, "little")
        above = range(max(sequence + 1, self.highest - _WINDOW + 64), self.highest + 1)
        return self.missing - sum(not bits >> each % _WINDOW & 1 for each in above)

    def pack(self) -> bytes:
        """The bytes of its place in the map, with nothing seen above the floor."""
        return _STREAM.pack(self.is_open, self.floor, self.highest, self.received, self.seen)

    @classmethod
    def unpack(cls, packed: bytes) -> Stream:
        """Read a place of the map."""
        is_open, floor, highest, received, seen = _STREAM.unpack(packed)
        return cls(bool(is_open), floor, highest, received, seen)


@dataclass(frozen=True, slots=True)
class Held:
    """A packet that waits for confirmations, as a frame.

    `since_ns` is by the kernel's monotonic clock.
    """

    since_ns: int
    confirmed: frozenset[int]
    needed: frozenset[int]
    phase: int
    interface: int
    checksum_at: int
    key: bytes
    word: int
    frame: bytes

    @classmethod
    def unpack(cls, packed: bytes) -> Held:
        """Read a slot's packet, present or past."""
        since, confirmed, needed, phase, interface, length, checksum, key, word, frame = _SLOT.unpack(packed)
        return cls(
            since, _numbers(confirmed), _numbers(needed), phase, interface, checksum, key, word, frame[:length]
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Closings:
    """Places of words about closed connections.

    Those before `sent` the program has sent, those from `places` on are free. `words` counts what was written, also
    over what waited.
    """

    sent: int
    places: int
    words: int


@dataclass(frozen=True, slots=True)
class Health:
    """Whether the program answers the switch that asks whether this firewall is well.

    `sides` are the interfaces by which it asks, `heard_ns` when it did last, by the kernel's monotonic clock.
    `patience_s`: how long either side may be silent.
    """

    sides: tuple[int, int]
    serving: bool = False
    heard_ns: tuple[int, int] = (0, 0)
    patience_s: float = 0.02

    def is_asked(self, now_ns: int) -> bool:
        """Return whether a switch asks by both data interfaces, or none asks at all."""
        heard = [at for side, at in zip(self.sides, self.heard_ns, strict=True) if side]
        return all(now_ns - each < _ASKED_S * NANOSECONDS for each in heard) or not any(heard)

    def pack(self) -> bytes:
        """The bytes of the map `healths`, as if the switch had sent no traffic yet."""
        first, second = zip(self.sides, self.heard_ns, strict=True)
        return _HEALTH.pack(
            self.serving, int(self.patience_s * NANOSECONDS), first[0], 0, first[1], second[0], 0, second[1]
        )

    @classmethod
    def unpack(cls, packed: bytes) -> Health:
        """Read the map."""
        serving, patience, left, _, left_ns, right, _, right_ns = _HEALTH.unpack(packed)
        return cls((left, right), bool(serving), (left_ns, right_ns), patience / NANOSECONDS)


@dataclass(frozen=True, slots=True)
class Entry:
    """A connection as a member's tables hold it. `seen_ns` is by the kernel's monotonic clock."""

    key: Key
    word: Word
    seen_ns: int

    @classmethod
    def unpack(cls, key: bytes, value: bytes) -> Entry:
        """The connection under a key."""
        word, seen, _, _ = _CONNECTION.unpack(value)
        return cls(Key.unpack(key), Word.unpack(word), seen)


_COLUMNS = np.dtype([("word", "<u8"), ("seen", "<u8"), ("told", "<u8"), ("version", "<u8")])


@dataclass(frozen=True, slots=True)
class Columns:
    """A table of connections as columns of equal length."""

    packed: bytes = field(repr=False)
    protocol: npt.NDArray[np.uint8]
    word: U64
    seen_ns: U64

    @classmethod
    def unpack(cls, keys: bytes, values: bytes) -> Columns:
        """All keys and all values of a table."""
        columns = np.frombuffer(values, _COLUMNS)
        protocol = np.frombuffer(keys, np.uint8).reshape(-1, KEY_BYTES)[:, _PROTOCOL_AT]
        return cls(keys, protocol, columns["word"], columns["seen"])

    @property
    def state(self) -> npt.NDArray[np.uint16]:
        """The number of each connection's state."""
        return (self.word & np.uint64(0xFF)).astype(np.uint16)

    @property
    def opened_by_upper(self) -> npt.NDArray[np.bool_]:
        """Whether the upper end of each key has opened the connection."""
        opener = np.uint64(Word(State.LISTEN, opener=True).pack())
        return (self.word & opener).astype(np.bool_)

    def each_key(self) -> Iterator[bytes]:
        """Each connection's key."""
        return (self.key(place) for place in range(len(self.word)))

    def over(self, now_ns: int, timeouts_s: Mapping[State, float]) -> Iterator[bytes]:
        """The keys of those whose time is over."""
        most = np.array([timeouts_s[state] * NANOSECONDS for state in State])
        late = now_ns - self.seen_ns.astype(np.int64) > most[np.minimum(self.state, len(State) - 1)]
        return (self.key(place) for place in np.flatnonzero(late).tolist())

    def key(self, place: int) -> bytes:
        """The key of one connection."""
        return self.packed[place * KEY_BYTES : (place + 1) * KEY_BYTES]


def shift_seen(value: bytes, by_ns: int) -> bytes:
    """Return a table's value with its last packet earlier, even before the machine's start."""
    word, seen, told, version = _CONNECTION.unpack(value)
    return _CONNECTION.pack(word, (seen - by_ns) % (1 << 64), told, version)


@cache
def counter_names() -> tuple[str, ...]:
    """The counters' names in their order, as the program's header declares them."""
    header = (Path(__file__).parent / "_native" / "statesync.h").read_text()
    return tuple(
        re.findall(r"_\((\w+)\)", header.partition("#define EVERY_COUNTER(_)")[2].partition("#define NAME")[0])
    )
