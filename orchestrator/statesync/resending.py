"""Send messages that the kernel's program does not: repeats, and delayed closings.

A held packet's message goes again where a confirmation is missing, long before a client's own timer would.

The program holds a packet for tens of microseconds. One that is still held when this looks a second time has lost its
message or an answer; it goes again, in a message of this process' own lane, to the members that have not confirmed. A
packet that is not confirmed within `hold_s` is dropped. Where nobody is left to wait for, the packet goes on.

The program tells of connections that closed many at a time. When no more close, this tells of those that wait.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from orchestrator.statesync.kernel import Replicator
from orchestrator.statesync.layout import BATCH, BATCHES, ENTRY_BYTES, Closings, Held, Settings
from orchestrator.statesync.messages import KEY_BYTES, WANTS_CONFIRMATION, Message, MessageKind, siphash

BUSY_S, IDLE_S = 0.004, 0.02
_STAYS_BUSY_S = 1.0
_TRIES = 40
"""Messages without a confirmation, as many as a packet is held for, until a member counts as deaf."""
_LOOKS = 10
"""Closings that wait are told after so many looks, even if more come each time."""
_NO_CHECK = 11
_ETHERNET = 14


@dataclass(frozen=True, slots=True)
class Resent:
    """The counts so far: messages repeated, packets given up, packets passed without members."""

    again: int = 0
    given_up: int = 0
    passed_on: int = 0


class Resending:
    """Resends for held packets.

    It is made in the network namespace of the data interfaces and used by one thread.
    """

    def __init__(self, replicator: Replicator, settings: Settings) -> None:
        self._kernel = replicator
        self._number, self._secret, self._port = settings.number, settings.secret, settings.port
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, _NO_CHECK, 1)
        self._socket.bind((settings.address, settings.port))
        self._names = dict(socket.if_nameindex())
        self._raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        self.last_sequence = time.time_ns()
        self.done = Resent()
        self._before = replicator.waiting().copy()
        self._closings, self._told, self._unchanged = Closings(0, 0, 0), 0, 0
        self._told_batches: dict[int, bytes] = {}
        self._busy_until = self._stuck_until = 0.0
        self._missing: dict[int, tuple[float, int]] = {}
        self._released = 0

    @property
    def pause_s(self) -> float:
        """How long to wait before looking again: little while anything is held."""
        return BUSY_S if time.monotonic() < self._busy_until else IDLE_S

    @property
    def has_told_all(self) -> bool:
        """Whether no word about a connection that closed waits for others."""
        return self._kernel.closings().words == self._told

    def close(self) -> None:
        """Close the sockets."""
        self._socket.close()
        self._raw.close()

    def look(self, followers: frozenset[int]) -> None:
        """Resend for packets held since the last look.

        `followers` are the members to wait for.
        """
        self._tell_closings(followers)
        now = self._kernel.waiting().copy()
        if now.any():
            self._busy_until = time.monotonic() + _STAYS_BUSY_S
        stuck = now[(now != 0) & (now == self._before)]
        self._before = now
        self._look_who_confirms(bool(len(stuck)))
        hold_s = self._kernel.settings().hold_s if len(stuck) else 0.0
        for place in stuck.tolist():
            held = self._kernel.held_packet(place)
            if held is not None:
                self._help(place, held, followers, hold_s)

    def deaf(self, silent_s: float) -> frozenset[int]:
        """Return members without a confirmation for twice `silent_s` while no packet was freed.

        Each is returned once. A member was asked many times meanwhile: where processors are busy, few messages are no
        evidence.
        """
        before = time.monotonic() - 2 * silent_s
        found = {each for each, (since, tries) in self._missing.items() if since < before and tries > _TRIES}
        for each in found:
            del self._missing[each]
        return frozenset(found)

    def _look_who_confirms(self, is_stuck: bool) -> None:
        """Forget missing confirmations, if packets were released or none is stuck for long."""
        if is_stuck:
            self._stuck_until = time.monotonic() + _STAYS_BUSY_S
        if not self._missing:
            return
        released = self._kernel.counters()["released"]
        if released != self._released or time.monotonic() > self._stuck_until:
            self._missing.clear()
        self._released = released

    def _tell_closings(self, followers: frozenset[int]) -> None:
        """Send closings, if none came since the last look, or some wait too long."""
        before, now = self._closings, self._kernel.closings()
        self._closings = now
        self._unchanged = self._unchanged + 1 if now.words != self._told else 0
        if now.words == self._told or (now.words != before.words and self._unchanged < _LOOKS):
            return
        first, last = max(now.sent // BATCH, now.places // BATCH - BATCHES + 1), -(-now.places // BATCH)
        batches = {number: self._kernel.read_closed(number) for number in range(first, last)}
        for number, batch in batches.items():
            before_this = self._told_batches.get(number, bytes(len(batch)))
            places = range(0, min(BATCH, now.places - number * BATCH) * ENTRY_BYTES, ENTRY_BYTES)
            each = [slice(at, at + ENTRY_BYTES) for at in places]
            changed = [batch[entry] for entry in each if batch[entry] != before_this[entry]]
            self._tell(changed, followers)
        self._told_batches = batches
        self._told, self._unchanged = now.words, 0

    def tell(self, entries: Sequence[bytes], followers: frozenset[int]) -> None:
        """Tell followers of any number of connections that closed."""
        for at in range(0, len(entries), BATCH):
            self._tell(entries[at : at + BATCH], followers)

    def _tell(self, entries: Sequence[bytes], followers: frozenset[int]) -> None:
        """Tell followers of connections that closed, in one message each."""
        packed = b"".join(entries)
        digest = siphash(self._secret, packed) if entries else 0
        for member in sorted(followers if entries else ()):
            message = Message(
                MessageKind.CLOSINGS, self._number, 1, self._next(), bytes(KEY_BYTES), len(entries), digest
            )
            self._say(message, packed, member)

    def _help(self, place: int, held: Held, followers: frozenset[int], hold_s: float) -> None:
        """Send again what members have not confirmed; let it go where all have."""
        again, given_up, passed_on = self.done.again, self.done.given_up, self.done.passed_on
        if not held.needed & followers:
            self._kernel.let_go(place)
            name = self._names.get(held.interface) or socket.if_indextoname(held.interface)
            self._raw.sendto(with_checksum(held), (name, 0))
            passed_on += 1
        elif time.monotonic_ns() - held.since_ns > hold_s * 1e9:
            self._kernel.let_go(place)
            given_up += 1
        else:
            missing = held.needed & followers - held.confirmed
            for member in missing:
                since, tries = self._missing.get(member, (time.monotonic(), 0))
                self._missing[member] = (since, tries + 1)
            for member in missing or sorted(held.needed & followers)[:1]:
                self._send(place, held, member)
                again += 1
        self.done = Resent(again, given_up, passed_on)

    def _send(self, place: int, held: Held, member: int) -> None:
        """The message of a held packet, with the packet behind it, to one member."""
        kind, word = MessageKind(held.phase), held.word & ~(1 << 10)
        message = Message(kind, self._number, 1, self._next(), held.key, word, place, WANTS_CONFIRMATION)
        self._say(message, with_checksum(held)[_ETHERNET:], member)

    def _say(self, message: Message, behind: bytes, member: int) -> None:
        """Send a message with what goes behind it."""
        with suppress(OSError):  # there is no way to a member that is gone
            self._socket.sendto(message.seal(self._secret) + behind, (self._kernel.member_address(member), self._port))

    def _next(self) -> int:
        """The number of this process' next message."""
        self.last_sequence += 1
        return self.last_sequence


def with_checksum(held: Held) -> bytes:
    """The held frame as it would be on a wire: its upper layer's checksum complete.

    A machine that leaves checksums to its network card gives them here as the sum of the pseudo header alone.
    """
    frame, at = held.frame, held.checksum_at
    if not at:
        return frame
    is_ipv4 = frame[12:14] == b"\x08\x00"
    start = _ETHERNET + (20 if is_ipv4 else 40)
    total = int.from_bytes(frame[16:18], "big") + _ETHERNET if is_ipv4 else int.from_bytes(frame[18:20], "big") + start
    addresses, protocol = (frame[26:34], frame[23]) if is_ipv4 else (frame[22:54], frame[20])
    pseudo = _fold_words(addresses + protocol.to_bytes(2, "big") + (total - start).to_bytes(2, "big"))
    if int.from_bytes(frame[at : at + 2], "big") != pseudo:
        return frame
    complete = 0xFFFF ^ _fold_words(frame[start:total])
    return frame[:at] + (complete or 0xFFFF).to_bytes(2, "big") + frame[at + 2 :]


def _fold_words(data: bytes) -> int:
    """The ones' complement sum of 16-bit words."""
    words = np.frombuffer(data + bytes(len(data) % 2), ">u2")
    total = int(words.sum(dtype=np.uint64))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total
