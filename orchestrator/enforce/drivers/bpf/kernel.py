"""The flow cache's program in the kernel: found or loaded, attached, given a set of rows, read back, its counters.

Nothing is kept in files. What is attached to an interface holds the program, the program holds its maps, and so whoever
comes next (this process after a kill) finds all of it by asking tc what is attached:

    interface ── tc ──▶ program ──▶ current     one place: the set of rows, or nothing
                                    counters    packets and octets, for each CPU
                                    owners      whose counter is at which place
                                    flows4, flows6

A set is a map of its own, filled first and then put into its place, so packets meet all of it or none of it.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from orchestrator.enforce.drivers.bpf import libbpf
from orchestrator.enforce.drivers.bpf.layout import COUNTER, MOST_COUNTERS, SET_BYTES, FlowSet, pack, unpack
from orchestrator.errors import Drifted, Missing, Refused, Unreachable
from orchestrator.program.flows import U64

OBJECT = Path(__file__).parent / "flowcache.bpf.o"
PRIORITY = 0xAC
"""Our place among the programs that see an interface's packets."""

_ONLY = 0
_KEPT = ("counters", "owners")


@dataclass(frozen=True, slots=True)
class Counted:
    """What counters say: the cookie each counts for, packets and octets. `epoch` is another after they began anew."""

    epoch: int
    cookie: U64
    packets: U64
    bytes: U64


class KernelCache:
    """The cache of the network namespace that its methods are called in, at some interfaces.

    One that is found at other interfaces, where somebody attached it before, is closed and taken away with it.
    """

    def __init__(self, interfaces: Sequence[str]) -> None:
        self._interfaces = tuple(interfaces)
        self._loaded: libbpf.Loaded | None = None
        self._is_ours = False
        self._places: dict[int, int] = {}

    def close(self) -> None:
        """Decide nothing from now on, at no interface. Does nothing where no program of ours is attached."""
        for loaded in _loaded_as(set(_attached().values())):
            try:
                libbpf.take_out(loaded.maps["current"], _ONLY)
            finally:
                loaded.close()

    def open(self, held: FlowSet) -> None:
        """Decide by these rows from now on, at every interface. Raises Refused, Missing, Unreachable."""
        loaded = self._ready()
        if len({cookie for row in held.rows for cookie in row.counts} - self._places.keys()) > self._room:
            loaded = self._replace(_load({}))  # no place is left for their counters: all begin again
        self._attach(loaded.program)
        octets = pack(held, int.from_bytes(os.urandom(8), "little") | 1, self._place)
        filled = libbpf.new_array("flow_set", SET_BYTES)
        try:
            libbpf.put(filled, _ONLY, octets)
            libbpf.put(loaded.maps["current"], _ONLY, filled.to_bytes(4, sys.byteorder))
        finally:
            os.close(filled)

    def read(self) -> FlowSet | None:
        """What it decides by; None while it is closed, or where an interface lacks it. Raises Drifted."""
        loaded = self._known()
        if loaded is None or not self._is_everywhere(loaded):
            return None
        current = libbpf.inner(loaded.maps["current"], _ONLY)
        if current is None:
            return None
        try:
            return unpack(libbpf.value(current, _ONLY, SET_BYTES), {place: c for c, place in self._places.items()})
        except ValueError as error:
            raise Drifted(f"the flow cache holds what nobody of ours wrote: {error}") from None
        finally:
            os.close(current)

    def counted(self) -> Counted:
        """Every counter that was ever given to a cookie; nothing where the program is not attached."""
        loaded = self._known()
        if loaded is None:
            nothing = np.empty(0, np.uint64)
            return Counted(0, nothing, nothing, nothing)
        used, cpus = len(self._places), libbpf.processors()
        octets = libbpf.first_values(loaded.maps["counters"], used, COUNTER.size * cpus)
        sums = np.frombuffer(octets, "<u8").reshape(used, cpus, 2).sum(axis=1)
        epoch = libbpf.identity(loaded.maps["counters"])
        return Counted(epoch, np.array(list(self._places), np.uint64), sums[:, 0], sums[:, 1])

    def detach(self) -> None:
        """Take it away from every interface, with all that it counted."""
        self.close()
        for number in _attached():
            libbpf.detach(number, PRIORITY)
        self._let_go()

    # -------------------------------------------------------------------------------------------------------- inside

    @property
    def program(self) -> int:
        """The descriptor of the program that decides. Raises Refused before there is one."""
        if self._loaded is None:
            raise Refused("no program of the flow cache is loaded")
        return self._loaded.program

    @property
    def _room(self) -> int:
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
        wanted, mine = {_number(interface) for interface in self._interfaces}, libbpf.identity(program)
        found = _attached()
        for number in found.keys() - wanted:
            libbpf.detach(number, PRIORITY)
        for number in wanted:
            if found.get(number) != mine:
                libbpf.attach(number, program, PRIORITY)

    def _is_everywhere(self, loaded: libbpf.Loaded) -> bool:
        mine, found = libbpf.identity(loaded.program), _attached()
        return all(found.get(_number(interface)) == mine for interface in self._interfaces)

    def _known(self) -> libbpf.Loaded | None:
        """The program, if this process or one before it has loaded it; with whose counters are where."""
        if self._loaded is None:
            here = {_number(interface) for interface in self._interfaces}
            found = _loaded_as({program for number, program in _attached().items() if number in here})
            if found:
                self._take(found[0])
            for other in found[1:]:
                other.close()
        return self._loaded

    def _take(self, loaded: libbpf.Loaded) -> None:
        self._loaded = loaded
        owners = np.frombuffer(libbpf.first_values(loaded.maps["owners"], MOST_COUNTERS, 8), "<u8").tolist()
        self._places = {cookie: place for place, cookie in enumerate(owners) if cookie}

    def _ready(self) -> libbpf.Loaded:
        """The program of this version of ours. One of another version is replaced, and its counters are kept."""
        known = self._known()
        if known is not None and self._is_ours:
            return known
        new = _load({} if known is None else {name: known.maps[name] for name in _KEPT})
        if known is not None and libbpf.tag(new.program) == libbpf.tag(known.program):
            new.close()
            self._is_ours = True
            return known
        return self._replace(new)

    def _replace(self, new: libbpf.Loaded) -> libbpf.Loaded:
        self._let_go()
        self._take(new)
        self._is_ours = True
        return new

    def _let_go(self) -> None:
        if self._loaded is not None:
            self._loaded.close()
        self._loaded, self._is_ours, self._places = None, False, {}


def _attached() -> dict[int, int]:
    """The programs that have our place, by interface, of this network namespace."""
    found = {number: libbpf.attached(number, PRIORITY) for number, _ in socket.if_nameindex()}
    return {number: program for number, program in found.items() if program is not None}


def _loaded_as(programs: Iterable[int]) -> list[libbpf.Loaded]:
    """Those of some programs that are flow caches."""
    found = [libbpf.loaded_as(program) for program in programs]
    return [each for each in found if each is not None and "current" in each.maps]


def _load(kept: Mapping[str, int]) -> libbpf.Loaded:
    if sys.byteorder != "little":
        raise Missing("the flow cache is written for machines with the lowest octet first")
    if not OBJECT.exists():
        raise Missing(f"{OBJECT.name} was not built: install clang and libbpf-dev, then install aclflow again")
    return libbpf.load(OBJECT, kept)


def _number(interface: str) -> int:
    try:
        return socket.if_nametoindex(interface)
    except OSError:
        raise Unreachable(f"there is no interface '{interface}' here") from None
