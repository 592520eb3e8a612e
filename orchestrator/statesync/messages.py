"""Messages between members: one connection's state, or its confirmation, in 80 bytes.

    0        1     2       3     4      5       6        8           16        24
    version  kind  sender  lane  flags  answer  ahead    slot        sequence  key (40: addresses, ports, protocol)
    64       72
    word     mac

All numbers have their lowest byte first, as in the kernel's maps. `word` is the connection's state, its ends and its
version. `mac` is SipHash-2-4 (Aumasson and Bernstein, 2012) under the cluster's key of the 72 bytes before it, the
first eight last: these change on the way, and the hash of the others need not be made anew. A sender counts the
messages of each lane: 0 is its program in the kernel, 1 its process. A packet that is held travels behind the message,
and is not trusted.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from orchestrator.statesync.states import State

VERSION = 3
_BODY = struct.Struct("<6BHQQ40sQ")
_MAC = struct.Struct("<Q")
MESSAGE_BYTES = _BODY.size + _MAC.size
_KEY = struct.Struct("<4Q2H4B")
KEY_BYTES = _KEY.size
_OPENER, _CLOSER, _PENDING, _VERSION_AT = 1 << 8, 1 << 9, 1 << 10, 32

_MASK = (1 << 64) - 1


def siphash(key: bytes, data: bytes) -> int:
    """Return the hash of bytes under a 16-byte key.

    Raises ValueError for a key of another length.
    """
    if len(key) != 16:
        raise ValueError(f"a SipHash key has 16 bytes, not {len(key)}")
    first, second = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")
    v = [
        first ^ 0x736F6D6570736575, second ^ 0x646F72616E646F6D,
        first ^ 0x6C7967656E657261, second ^ 0x7465646279746573,
    ]  # fmt: skip
    whole = len(data) & ~7
    last = len(data) << 56 & _MASK | int.from_bytes(data[whole:], "little")
    for word in (*(int.from_bytes(data[at : at + 8], "little") for at in range(0, whole, 8)), last):
        v[3] ^= word
        _mix(v, 2)
        v[0] ^= word
    v[2] ^= 0xFF
    _mix(v, 4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def _mix(v: list[int], rounds: int) -> None:
    """Do so many SipHash rounds on the state."""
    v0, v1, v2, v3 = v
    for _ in range(rounds):
        v0 = v0 + v1 & _MASK
        v1 = (v1 << 13 | v1 >> 51) & _MASK ^ v0
        v0 = (v0 << 32 | v0 >> 32) & _MASK
        v2 = v2 + v3 & _MASK
        v3 = (v3 << 16 | v3 >> 48) & _MASK ^ v2
        v0 = v0 + v3 & _MASK
        v3 = (v3 << 21 | v3 >> 43) & _MASK ^ v0
        v2 = v2 + v1 & _MASK
        v1 = (v1 << 17 | v1 >> 47) & _MASK ^ v2
        v2 = (v2 << 32 | v2 >> 32) & _MASK
    v[:] = v0, v1, v2, v3


class MessageKind(IntEnum):
    """The purpose of a message."""

    WRITE = 1
    PREPARE = 2
    COMMIT = 3
    CONFIRM = 4
    CLOSINGS = 5
    """Many connections that closed: entries of 48 bytes behind the message. `word` counts them, `slot` is their MAC."""


WANTS_CONFIRMATION = 1
"""The flag of a message whose receiver must answer."""
IN_TURN = 2
"""The flag of a message that goes from member to member, and comes back to its sender as all members' confirmation."""


@dataclass(frozen=True, slots=True)
class Key:
    """The two ends of a connection, the lower first, and the IP protocol.

    Ends are addresses of 128 bits (IPv4: mapped) and ports.

    An ICMP echo has its identifier in place of both ports.
    """

    low: int
    high: int
    low_port: int
    high_port: int
    protocol: int

    def pack(self) -> bytes:
        """The 40 bytes that messages and maps hold."""
        halves = (part for address in (self.low, self.high) for part in divmod(address, 1 << 64))
        return _KEY.pack(*halves, self.low_port, self.high_port, self.protocol, 0, 0, 0)

    @classmethod
    def unpack(cls, packed: bytes) -> Key:
        """The key in 40 bytes."""
        low_high, low_low, high_high, high_low, low_port, high_port, protocol, *_ = _KEY.unpack(packed)
        return cls(low_high << 64 | low_low, high_high << 64 | high_low, low_port, high_port, protocol)


@dataclass(frozen=True, slots=True)
class Word:
    """A connection's state with its ends: True is the upper end of the key.

    `pending`: not all members have it yet.
    """

    state: State
    opener: bool = False
    closer: bool = False
    version: int = 0
    pending: bool = False

    def pack(self) -> int:
        """The 64 bits that messages and maps hold."""
        bits = _OPENER * self.opener | _CLOSER * self.closer | _PENDING * self.pending
        return self.state | bits | self.version << _VERSION_AT

    @classmethod
    def unpack(cls, packed: int) -> Word:
        """The word in 64 bits. Raises ValueError for a state that is none."""
        opener, closer, pending = (bool(packed & bit) for bit in (_OPENER, _CLOSER, _PENDING))
        return cls(State(packed & 0xFF), opener, closer, packed >> _VERSION_AT, pending)


@dataclass(frozen=True, slots=True)
class Message:
    """One message.

    `answer` is the kind that a confirmation confirms; `slot` names the held packet, 0 for none.

    `ahead` has a bit for each member to whom a message that goes in turn has yet to go.
    """

    kind: MessageKind
    sender: int
    lane: int
    sequence: int
    key: bytes
    word: int
    slot: int = 0
    flags: int = 0
    answer: int = 0
    ahead: int = 0

    def seal(self, secret: bytes) -> bytes:
        """The 80 bytes, with their MAC under the cluster's key."""
        body = _BODY.pack(
            VERSION, self.kind, self.sender, self.lane, self.flags, self.answer, self.ahead, self.slot,
            self.sequence, self.key, self.word,
        )  # fmt: skip
        return body + _seal_body(body, secret)


def open_sealed(packed: bytes, secret: bytes) -> Message | None:
    """Open the message in the first 80 bytes.

    None if they are too few, have another MAC or are of another version.
    """
    body, mac = packed[: _BODY.size], packed[_BODY.size : MESSAGE_BYTES]
    if len(packed) < MESSAGE_BYTES or _seal_body(body, secret) != mac or body[0] != VERSION:
        return None
    _, kind, sender, lane, flags, answer, ahead, slot, sequence, key, word = _BODY.unpack(body)
    try:
        return Message(MessageKind(kind), sender, lane, sequence, key, word, slot, flags, answer, ahead)
    except ValueError:
        return None


def _seal_body(body: bytes, secret: bytes) -> bytes:
    """The MAC of all but the MAC."""
    return _MAC.pack(siphash(secret, body[8:] + body[:8]))
