"""A filter with a file of lists beside it, for what shares the firewall's connections.

    the new lists in the file ──▶ the filter changes ──▶ the same lists in the file once more

`aclflow statesync run --lists FILE` closes connections that the file's lists forbid: all that it knows, each time the
file is replaced. The first writing is for what the new lists permit: no connection that the changed filter lets begin
is ever held to lists that forbid it. The second is for what they forbid: a connection that began before the filter had
changed, and after the first look, is found by the second one. So none outlives the filter that let it begin by more
than the time of one look (`statesync/lists.py`).

A file that cannot be written keeps no filter from changing, for there packets are denied; the step fails afterwards,
and is tried again. The file is read back like the filter: what somebody changed in it, or took away, is written anew.
Without lists in the program there is no file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from orchestrator.compile.filters.clusterlists import LISTS, OPERATOR, list_row, tenant_row, write_rules
from orchestrator.enforce.changing import Changing, change_wholly
from orchestrator.enforce.driver import Hits, Observed, Stamp
from orchestrator.enforce.standing import Device
from orchestrator.errors import Missing
from orchestrator.identity.files import write_file
from orchestrator.program.delta import Delta
from orchestrator.program.flows import U64, Flow, FlowTable

NO_LISTS = "the program has no lists for what shares connections: the domain's traffic is not spread `synchronised`"
_MODE = 0o640
"""The group of its folder reads it."""

_Texts = Mapping[bytes, Flow]
"""Rows of lists by name."""


class WithListsFile:
    """A filter and a file of lists: one device."""

    def __init__(self, device: Device, file: Path) -> None:
        self._device = device
        self._file = file
        self._held: _Texts | None = None

    def claim(self, epoch: int) -> bool:
        """Claim the filter for an epoch."""
        return self._device.claim(epoch)

    def resolve(self, flows: FlowTable, symbols: tuple[str, ...]) -> FlowTable:
        """The filter's rows, and the lists."""
        return FlowTable.join_tables([self._device.resolve(flows, symbols), FlowTable.of(_lists_of(flows))])

    def observe(self, cookies: U64 | None = None) -> Observed:
        """Read both back; a file of another generation than the filter's counts as empty."""
        found = self._device.observe(cookies)
        self._held = _read_file(self._file, found.stamp)
        rows = FlowTable.of(self._held.values())
        if cookies is not None:
            rows = rows.take(np.flatnonzero(np.isin(rows.cookie, cookies)))
        return Observed(FlowTable.join_tables([found.flows, rows]), found.stamp, found.ports)

    def apply(self, delta: Delta, stamp: Stamp) -> None:
        """Write the file, change the filter, and write the file again if any row changed.

        Raises Missing where the file cannot be written, after the filter has changed.
        """
        after = self._rows_after(delta)
        self._held = None
        failure: Missing | None = None
        try:
            self._write(after, stamp)
        except Missing as error:
            failure = error
        self._device.apply(delta, stamp)
        if failure is not None or len(delta.removed) or len(delta.added):
            self._write(after, stamp)
        self._held = after

    def _rows_after(self, delta: Delta) -> _Texts:
        if self._held is None:
            self.observe()
        gone = {row.match for row in _lists_of(delta.removed)}
        kept = {name: row for name, row in (self._held or {}).items() if name not in gone}
        return kept | {row.match: row for row in _lists_of(delta.added)}

    def change(self, delta: Delta, stamp: Stamp) -> Changing:
        """Apply a change and read it back; counters are read right before."""
        return change_wholly(self, delta, stamp)

    def counter_keys(self, flows: FlowTable) -> U64 | None:
        """Return the filter's counter keys."""
        return self._device.counter_keys(flows)

    def hits(self) -> Hits:
        """The filter's counters."""
        return self._device.hits()

    def trouble(self) -> str | None:
        """Say that there are no lists to write."""
        return NO_LISTS if self._held is not None and not self._held else None

    def _write(self, rows: _Texts, stamp: Stamp) -> None:
        """Replace the file, or remove it where there are no lists."""
        texts = {row.match.decode(): row.instructions.decode() for row in rows.values()}
        operator = texts.pop(OPERATOR, None)
        try:
            if operator is None:
                self._file.unlink(missing_ok=True)
            else:
                tenants = ",\n".join(texts[name] for name in sorted(texts))
                text = f'{{"generation":{stamp.generation},"operator":{operator},"tenants":[\n{tenants}\n]}}\n'
                self._replace(text.encode())
        except OSError as error:
            raise Missing(f"cannot be written: {error.strerror}", place=str(self._file)) from None

    def _replace(self, data: bytes) -> None:
        """Replace the file at once, readable by its group whatever our umask is."""
        beside = self._file.with_name(f"{self._file.name}.new")
        write_file(beside, data, _MODE)
        beside.chmod(_MODE)
        beside.replace(self._file)


def _lists_of(flows: FlowTable) -> Iterator[Flow]:
    """Yield the rows of lists, as they are read back."""
    for row in flows.take(np.flatnonzero(flows.table == LISTS)).rows():
        yield list_row(row.match.decode(), row.instructions.decode())


def _read_file(file: Path, stamp: Stamp | None) -> _Texts:
    """Return a file's rows; none if it is broken, or of another generation."""
    with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
        document = orjson.loads(file.read_bytes())
        if stamp is not None and document["generation"] == stamp.generation:
            return {row.match: row for row in _rows_of(document)}
    return {}


def _rows_of(document: Mapping[str, Any]) -> Iterator[Flow]:
    yield list_row(OPERATOR, write_rules(document["operator"]))
    for tenant in document["tenants"]:
        yield tenant_row(tenant)
