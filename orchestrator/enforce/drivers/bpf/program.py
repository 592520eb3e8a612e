"""A tc program of ours in the kernel: found or loaded, attached, and its counters.

Nothing is kept in files. An attachment to an interface holds the program, the program holds its maps, and so whoever
comes next (this process after a kill) finds all of it by asking tc what is attached:

    interface ── tc ──▶ program ──▶ root        one place: what it decides by, or nothing
                                    counters    packets and bytes, for each CPU
                                    owners      whose counter is at which place
                                    flows4, flows6
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from orchestrator.enforce.drivers.bpf import libbpf
from orchestrator.enforce.drivers.bpf.layout import COUNTER, MOST_COUNTERS
from orchestrator.errors import Missing, Refused
from orchestrator.program.flows import U64

ONLY = 0
"""The place in a map with one."""
_KEPT = ("counters", "owners")


@dataclass(frozen=True, slots=True)
class Counted:
    """Counters: each one's cookie, packets and bytes.

    `epoch` is another after they began anew.
    """

    epoch: int
    cookie: U64
    packets: U64
    bytes: U64


@dataclass(frozen=True, slots=True)
class Kind:
    """A program: object file, tc priority, and the map of maps with its rows.

    The rows are in the map's only place.
    """

    file: Callable[[], Path]
    priority: int
    root: str


class KernelProgram:
    """One kind of program at interfaces of the current network namespace.

    One that is found at other interfaces, where somebody attached it before, is closed and taken away with it.
    """

    def __init__(self, kind: Kind, interfaces: Sequence[str]) -> None:
        self._kind = kind
        self._interfaces = tuple(interfaces)
        self._loaded: libbpf.Loaded | None = None
        self._is_ours = False
        self._places: dict[int, int] = {}

    def close(self) -> None:
        """Stop deciding at every interface.

        Does nothing where no program of ours is attached.
        """
        for loaded in self._loaded_as(set(self._find_attached().values())):
            try:
                libbpf.take_out(loaded.maps[self._kind.root], ONLY)
            finally:
                loaded.close()

    def read_counters(self) -> Counted:
        """Return every counter ever assigned to a cookie; none where nothing is attached."""
        loaded = self._find_program()
        if loaded is None:
            nothing = np.empty(0, np.uint64)
            return Counted(0, nothing, nothing, nothing)
        used, cpus = len(self._places), libbpf.processors()
        data = libbpf.first_values(loaded.maps["counters"], used, COUNTER.size * cpus)
        sums = np.frombuffer(data, "<u8").reshape(used, cpus, 2).sum(axis=1)
        epoch = libbpf.identity(loaded.maps["counters"])
        return Counted(epoch, np.array(list(self._places), np.uint64), sums[:, 0], sums[:, 1])

    def detach(self) -> None:
        """Take it away from every interface, with all that it counted."""
        self.close()
        for number in self._find_attached():
            libbpf.detach(number, self._kind.priority)
        self._close_loaded()

    # -------------------------------------------------------------------------------------------------------- inside

    @property
    def program(self) -> int:
        """The descriptor of the program that decides. Raises Refused before there is one."""
        if self._loaded is None:
            raise Refused("no such program is loaded")
        return self._loaded.program

    def _make_room(self, cookies: Iterable[int]) -> libbpf.Loaded:
        """The program, with places for the counters of some cookies."""
        loaded = self._ready()
        if len(set(cookies) - self._places.keys()) > self._room:
            loaded = self._replace_loaded(self.load({}))  # no place is left for them: all begin again
        self._attach(loaded.program)
        return loaded

    @property
    def _room(self) -> int:
        """How many more counters fit."""
        return MOST_COUNTERS - len(self._places)

    def _place(self, cookie: int) -> int:
        """The place of a cookie's counter; a new cookie gets the next one."""
        if cookie not in self._places:
            assert self._loaded is not None
            libbpf.put(self._loaded.maps["owners"], len(self._places), cookie.to_bytes(8, sys.byteorder))
            self._places[cookie] = len(self._places)
        return self._places[cookie]

    def _attach(self, program: int) -> None:
        """Let the program see what comes in by our interfaces, and by no others."""
        wanted, mine = self._here(), libbpf.identity(program)
        found = self._find_attached()
        for number in found.keys() - wanted:
            libbpf.detach(number, self._kind.priority)
        for number in wanted:
            if found.get(number) != mine:
                libbpf.attach(number, program, self._kind.priority)

    def _is_attached_everywhere(self, loaded: libbpf.Loaded) -> bool:
        mine, found = libbpf.identity(loaded.program), self._find_attached()
        return all(found.get(number) == mine for number in self._here())

    def _find_program(self) -> libbpf.Loaded | None:
        """Return the program, if this process or an earlier one loaded it.

        With the places of its counters.
        """
        if self._loaded is None:
            here = self._here()
            found = self._loaded_as({program for number, program in self._find_attached().items() if number in here})
            if found:
                self._take_loaded(found[0])
            for other in found[1:]:
                other.close()
        return self._loaded

    def _take_loaded(self, loaded: libbpf.Loaded) -> None:
        self._loaded = loaded
        owners = np.frombuffer(libbpf.first_values(loaded.maps["owners"], MOST_COUNTERS, 8), "<u8").tolist()
        self._places = {cookie: place for place, cookie in enumerate(owners) if cookie}

    def _ready(self) -> libbpf.Loaded:
        """Return this version's program; an older one is replaced, with its counters kept."""
        known = self._find_program()
        if known is not None and self._is_ours:
            return known
        new = self.load({} if known is None else {name: known.maps[name] for name in _KEPT})
        if known is not None and libbpf.tag(new.program) == libbpf.tag(known.program):
            new.close()
            self._is_ours = True
            return known
        return self._replace_loaded(new)

    def _replace_loaded(self, new: libbpf.Loaded) -> libbpf.Loaded:
        self._close_loaded()
        self._take_loaded(new)
        self._is_ours = True
        return new

    def _close_loaded(self) -> None:
        if self._loaded is not None:
            self._loaded.close()
        self._loaded, self._is_ours, self._places = None, False, {}

    def _here(self) -> set[int]:
        """Return our existing interfaces.

        A missing one gets no packets, and no policy waits for it.
        """
        there = {name: number for number, name in socket.if_nameindex()}
        return {there[interface] for interface in self._interfaces if interface in there}

    def _find_attached(self) -> dict[int, int]:
        """The programs that have our place, by interface, of this network namespace."""
        found = {number: libbpf.attached_program(number, self._kind.priority) for number, _ in socket.if_nameindex()}
        return {number: program for number, program in found.items() if program is not None}

    def _loaded_as(self, programs: Iterable[int]) -> list[libbpf.Loaded]:
        """Open those of some programs that are of our kind."""
        found = [libbpf.loaded_as(program) for program in programs]
        return [each for each in found if each is not None and self._kind.root in each.maps]

    def load(self, kept: Mapping[str, int]) -> libbpf.Loaded:
        file = self._kind.file()
        if sys.byteorder != "little":
            raise Missing("programs of ours in the kernel are written for machines with the lowest byte first")
        if not file.exists():
            raise Missing(f"{file.name} was not built: install clang and libbpf-dev, then install aclflow again")
        return libbpf.load(file, kept)
