"""The replicator's programs in the kernel: loaded, attached, set, read.

Nothing is kept in files. An interface holds the program that is attached to it, and the program its maps; so another
process (`aclflow statesync show`) finds all of it by asking tc.
"""

from __future__ import annotations

import mmap
import os
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from orchestrator.enforce.drivers.bpf import libbpf
from orchestrator.errors import Missing, NotFound, Refused
from orchestrator.program.flows import U64
from orchestrator.statesync.layout import (
    BATCH,
    BATCHES,
    CONNECTION_BYTES,
    ENTRY_BYTES,
    HEALTH_BYTES,
    HIGHEST_MEMBER,
    LANES,
    MEMBER_BYTES,
    NOWHERE,
    SETTINGS_BYTES,
    SIZES,
    SLOT_BYTES,
    SLOTS,
    STREAM_BYTES,
    Closings,
    Columns,
    Entry,
    Health,
    Held,
    Settings,
    Stream,
    counter_names,
    pack_member,
    unpack_member,
)
from orchestrator.statesync.lists import Lists
from orchestrator.statesync.messages import KEY_BYTES, Word
from orchestrator.statesync.states import State

FILE = Path(__file__).parent / "statesync.bpf.o"
PRIORITY = 0xAC6
"""Of our programs among those that see an interface's packets."""
_ENDED = (State.LISTEN, State.CLOSED)
_ONLY = 0
_LAST_SEQUENCE, _LAST_SLOT, _PLACES_TAKEN, _BATCHES_SENT = range(4)
TABLES = ("opened", "brief")
"""The maps of connections: those that both ends agreed to, and those that give way."""


def load_replicator(file: Path = FILE) -> libbpf.LoadedPrograms:
    """Load the programs.

    Raises Missing where they were not built or may not be loaded.
    """
    if sys.byteorder != "little":
        raise Missing("state synchronisation is written for machines with the lowest byte first")
    if not file.exists():
        raise Missing(f"{file.name} was not built: install clang and libbpf-dev, then install aclflow again")
    return libbpf.load_programs(file)


class Replicator:
    """The programs' maps, and where the programs are attached.

    Methods that name interfaces are called in the network namespace that has them.
    """

    def __init__(self, maps: Mapping[str, int], programs: Mapping[str, int] | None = None) -> None:
        self._maps = maps
        self._programs = programs or {}
        self._waiting: U64 | None = None

    @classmethod
    def new(cls, file: Path = FILE) -> Replicator:
        """Load the programs."""
        loaded = load_replicator(file)
        return cls(loaded.maps, loaded.programs)

    @classmethod
    def attached_here(cls) -> Replicator:
        """The replicator of this network namespace. Raises NotFound where none is attached."""
        for number, _ in socket.if_nameindex():
            for egress in (False, True):
                program = libbpf.attached_program(number, PRIORITY, egress=egress)
                loaded = None if program is None else libbpf.loaded_as(program)
                if loaded is not None and loaded.maps.keys() >= SIZES.keys():
                    return cls(loaded.maps)
        raise NotFound("no member of a firewall cluster runs in this network namespace")

    def program(self, name: str) -> int:
        """The descriptor of a program."""
        return self._programs[name]

    def attach(self, data: Sequence[str], messages: Sequence[str]) -> None:
        """Watch what goes out by data interfaces, hear messages that come in by others.

        The first two data interfaces are those by which a spread switch may ask whether this firewall is well.
        """
        sides = [socket.if_nametoindex(name) for name in data[:2]]
        libbpf.put(self._maps["healths"], _ONLY, Health((sides[0], sides[1] if len(sides) > 1 else 0)).pack())
        for side in sides:
            libbpf.attach(side, self._programs["beat"], PRIORITY)
        for name in data:
            libbpf.attach(socket.if_nametoindex(name), self._programs["watch"], PRIORITY, egress=True)
        for name in messages:
            libbpf.attach(socket.if_nametoindex(name), self._programs["hear"], PRIORITY)

    def detach(self, data: Sequence[str], messages: Sequence[str]) -> None:
        """Watch and hear nothing any more."""
        for side in data[:2]:
            libbpf.detach(socket.if_nametoindex(side), PRIORITY)
        for name in data:
            libbpf.detach(socket.if_nametoindex(name), PRIORITY, egress=True)
        for name in messages:
            libbpf.detach(socket.if_nametoindex(name), PRIORITY)

    # ------------------------------------------------------------------------------------------------------ settings

    def configure(self, settings: Settings) -> None:
        """Go by these settings from the next packet on."""
        clock = time.time_ns() - time.monotonic_ns()
        libbpf.put(self._maps["configured"], _ONLY, settings.pack(clock))

    def settings(self) -> Settings:
        """The settings in force.

        Raises Refused before it was configured.
        """
        packed = libbpf.value(self._maps["configured"], _ONLY, SETTINGS_BYTES)
        if not any(packed):
            raise Refused("this replicator has no settings yet")
        return Settings.unpack(packed)

    def set_member(self, number: int, address: str) -> None:
        """Set the address to which a member's messages go."""
        libbpf.put(self._maps["members"], number, pack_member(address))

    def member_address(self, number: int) -> str:
        """The address that a member's messages go to."""
        return unpack_member(libbpf.value(self._maps["members"], number, MEMBER_BYTES))

    def member_addresses(self) -> dict[int, str]:
        """The addresses of all members that have one."""
        found = {number: self.member_address(number) for number in range(1, HIGHEST_MEMBER + 1)}
        return {number: address for number, address in found.items() if address != NOWHERE}

    # -------------------------------------------------------------------------------------------------------- health

    def health(self) -> Health:
        """Whether the program answers the switch that asks whether this firewall is well."""
        return Health.unpack(libbpf.value(self._maps["healths"], _ONLY, HEALTH_BYTES))

    def serve(self, serving: bool) -> None:
        """Answer the spread switch, or not.

        The program itself stops once the switch has given it up.
        """
        libbpf.put(self._maps["healths"], _ONLY, replace(self.health(), serving=serving).pack())

    # ------------------------------------------------------------------------------------------------------- streams

    def stream(self, sender: int, lane: int) -> Stream:
        """Return a sender's lane as received."""
        return Stream.unpack(libbpf.value(self._maps["streams"], sender * LANES + lane, STREAM_BYTES))

    def set_stream(self, sender: int, lane: int, stream: Stream) -> None:
        """Forget what came, and believe (or not) what is above the floor."""
        libbpf.put(self._maps["streams"], sender * LANES + lane, stream.pack())

    def last_sequence(self) -> int:
        """The number of the last message of the program's lane."""
        return int.from_bytes(libbpf.value(self._maps["numbers"], _LAST_SEQUENCE, 8), "little")

    def begin_sequences(self, last: int) -> None:
        """Number the next message, and the next packet that is held, `last + 1`.

        A number that was used before the member was started again would let an old confirmation free a packet.
        """
        for number in (_LAST_SEQUENCE, _LAST_SLOT):
            libbpf.put(self._maps["numbers"], number, last.to_bytes(8, "little"))

    def closings(self) -> Closings:
        """How many words of connections that closed wait to be told."""
        packed = libbpf.first_values(self._maps["numbers"], 5, 8)
        places, sent, words = (int.from_bytes(packed[at : at + 8], "little") for at in (16, 24, 32))
        return Closings(sent * BATCH, places, words)

    def read_closed(self, batch: int) -> bytes:
        """The entries of a batch, from a number of batches since the start."""
        return libbpf.value(self._maps["batches"], batch % BATCHES, BATCH * ENTRY_BYTES)

    # -------------------------------------------------------------------------------------------------------- tables

    def connections(self) -> Iterator[Entry]:
        """Yield every known connection, with expired ones that are not removed yet."""
        for name in TABLES:
            for key, value in self.entries(name):
                yield Entry.unpack(key, value)

    def entries(self, name: str) -> Iterator[tuple[bytes, bytes]]:
        """Keys and values of one table as bytes: `opened` or `brief`."""
        keys, values = libbpf.elements(self._maps[name], KEY_BYTES, CONNECTION_BYTES)
        for place in range(len(keys) // KEY_BYTES):
            yield (
                keys[place * KEY_BYTES : (place + 1) * KEY_BYTES],
                values[place * CONNECTION_BYTES : (place + 1) * CONNECTION_BYTES],
            )

    def packed_entries(self) -> list[bytes]:
        """Every connection as messages tell of it: key and word, `ENTRY_BYTES` each."""
        return [key + value[:8] for name in TABLES for key, value in self.entries(name)]

    def columns(self, name: str) -> Columns:
        """One table as columns."""
        return Columns.unpack(*libbpf.elements(self._maps[name], KEY_BYTES, CONNECTION_BYTES))

    def states(self) -> dict[tuple[int, State], int]:
        """How many connections there are, by IP protocol and state."""
        found: dict[tuple[int, State], int] = {}
        for columns in map(self.columns, TABLES):
            kinds, counts = np.unique(columns.protocol.astype(np.uint16) << 8 | columns.state, return_counts=True)
            for kind, count in zip(kinds.tolist(), counts.tolist(), strict=True):
                protocol, state = divmod(kind, 256)
                found[protocol, State(state)] = found.get((protocol, State(state)), 0) + count
        return found

    def connection(self, key: bytes) -> Entry | None:
        """The connection under a key."""
        for name in TABLES:
            value = libbpf.element(self._maps[name], key, CONNECTION_BYTES)
            if value is not None:
                return Entry.unpack(key, value)
        return None

    def put_entry(self, name: str, key: bytes, value: bytes) -> None:
        """Write an entry of a table as bytes."""
        libbpf.put_element(self._maps[name], key, value)

    def forget(self, key: bytes) -> None:
        """Take a connection out of both tables."""
        for name in TABLES:
            libbpf.drop_element(self._maps[name], key)

    def forget_all(self) -> None:
        """Empty both tables, and tell nothing of what closed before."""
        batches = -(-self.closings().places // BATCH)
        libbpf.put(self._maps["numbers"], _PLACES_TAKEN, (batches * BATCH).to_bytes(8, "little"))
        libbpf.put(self._maps["numbers"], _BATCHES_SENT, batches.to_bytes(8, "little"))
        for name in TABLES:
            for key in self.columns(name).each_key():
                libbpf.drop_element(self._maps[name], key)

    def sweep(self) -> int:
        """Take out connections whose time is over, which the program ignores already; returns how many.

        The program itself takes each out, so that one which its ends began anew meanwhile stays.
        """
        timeouts = self.settings().timeouts_s
        swept = 0
        for name in TABLES:
            for key in self.columns(name).over(time.monotonic_ns(), timeouts):
                swept += libbpf.run(self._programs["expire"], bytes(14) + key, 1)[0] == 0
        return swept

    def take(self, key: bytes, word: int) -> bool:
        """Store a connection of a bulk transfer, unless more is known; False: no room.

        The program itself decides, so a message that comes meanwhile is never overwritten by what is older.
        """
        frame = bytes(14) + key + word.to_bytes(8, "little")
        return libbpf.run(self._programs["take"], frame, 1)[0] == 0

    def close_forbidden(self, lists: Lists) -> list[bytes]:
        """Close connections that lists forbid; returns their entries, as messages tell of them.

        A connection that ended by itself, or that nobody knows any more, is left alone.
        """
        closed = []
        for columns in map(self.columns, TABLES):
            forbidden = lists.forbid(columns.packed, columns.opened_by_upper) & ~np.isin(columns.state, _ENDED)
            for place in np.flatnonzero(forbidden).tolist():
                key, word = columns.key(place), Word.unpack(int(columns.word[place]))
                after = replace(word, state=State.CLOSED, version=(word.version + 1) % (1 << 32), pending=False).pack()
                if self.take(key, after):
                    closed.append(key + after.to_bytes(8, "little"))
        return closed

    # --------------------------------------------------------------------------------------------- held and counted

    def waiting(self) -> U64:
        """Return the ids of the packets held now, by slot; 0 for a free one.

        It changes as the program runs.
        """
        if self._waiting is None:
            mapped = mmap.mmap(self._maps["waiting"], SLOTS * 8, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
            self._waiting = np.frombuffer(mapped, np.uint64)
        return self._waiting

    def held_packet(self, held: int) -> Held | None:
        """The packet of an id; None if it is not held any more."""
        place = held % SLOTS
        packed = libbpf.value(self._maps["slots"], place, SLOT_BYTES)
        return Held.unpack(packed) if int(self.waiting()[place]) == held else None

    def let_go(self, held: int) -> None:
        """Give a packet up: its slot is free."""
        if int(self.waiting()[held % SLOTS]) == held:
            self.waiting()[held % SLOTS] = 0

    def counters(self) -> dict[str, int]:
        """Return the counters since the programs were loaded, by name."""
        names, cpus = counter_names(), libbpf.processors()
        packed = libbpf.first_values(self._maps["counters"], len(names), 8 * cpus)
        sums = np.frombuffer(packed, "<u8").reshape(len(names), cpus).sum(axis=1)
        return dict(zip(names, sums.tolist(), strict=True))

    def close(self) -> None:
        """Let go of the descriptors; what is attached stays."""
        for descriptor in (*self._programs.values(), *self._maps.values()):
            os.close(descriptor)
