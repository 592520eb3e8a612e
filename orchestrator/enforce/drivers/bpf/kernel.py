"""The flow cache's program in the kernel: given a set of rows, and read back.

    current     one place: the set of rows, or nothing

A set is a map of its own, filled first and then put into its place, so packets meet all of it or none of it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from orchestrator.enforce.drivers.bpf import libbpf
from orchestrator.enforce.drivers.bpf.layout import SET_BYTES, FlowSet, pack, unpack
from orchestrator.enforce.drivers.bpf.program import ONLY, KernelProgram, Kind
from orchestrator.errors import Drifted

OBJECT = Path(__file__).parent / "flowcache.bpf.o"
_ROOT = "current"
_KIND = Kind(lambda: OBJECT, 0xAC, _ROOT)


class KernelCache(KernelProgram):
    """The cache of the network namespace that its methods are called in, at some interfaces."""

    def __init__(self, interfaces: Sequence[str]) -> None:
        super().__init__(_KIND, interfaces)

    def open(self, held: FlowSet) -> None:
        """Decide by these rows from now on, at every interface. Raises Refused, Missing, Unreachable."""
        loaded = self._make_room(cookie for row in held.rows for cookie in row.counts)
        data = pack(held, int.from_bytes(os.urandom(8), "little") | 1, self._place)
        filled = libbpf.new_array("flow_set", SET_BYTES)
        try:
            libbpf.put(filled, ONLY, data)
            libbpf.put(loaded.maps[_ROOT], ONLY, filled.to_bytes(4, sys.byteorder))
        finally:
            os.close(filled)

    def read(self) -> FlowSet | None:
        """Return the active set.

        None while it is closed, or where an interface lacks it. Raises Drifted.
        """
        loaded = self._find_program()
        if loaded is None or not self._is_attached_everywhere(loaded):
            return None
        current = libbpf.inner(loaded.maps[_ROOT], ONLY)
        if current is None:
            return None
        try:
            return unpack(libbpf.value(current, ONLY, SET_BYTES), {place: c for c, place in self._places.items()})
        except ValueError as error:
            raise Drifted(f"the flow cache holds what nobody of ours wrote: {error}") from None
        finally:
            os.close(current)
