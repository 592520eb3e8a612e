"""The driver of a firewall server: filter tables, sets of pairs, routes to others.

    a pair comes or goes   one message to the kernel, with the new label; read back by asking for it and for the label
    anything else          1 pairs that come ── 2 tables, as of every filter ── 3 pairs that go, with the new label

So a pair that becomes part of a list, or the other way round, is permitted throughout, and whatever a packet under way
sees of both, it is permitted only where the old policy or the new one permits it.

The label names the whole program, and the stamp of the tables that it goes with: the tables keep their stamp when only
pairs change. Tables without a label, or with one that goes with other tables, hold nothing that is known for certain.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from orchestrator.compile.filters.legs import NO_LEGS, Legs
from orchestrator.compile.nftables.served import AGAIN_WORDS
from orchestrator.compile.servers.exactpairs import PAIR_SETS, Keys, PairSet, keys_of, pair_rows
from orchestrator.compile.servers.programs import PEERS
from orchestrator.enforce.changing import Changed, Changing, change_wholly
from orchestrator.enforce.driver import Hits, Observed, Stamp
from orchestrator.enforce.drivers.filters.command import Run, run
from orchestrator.enforce.drivers.filters.driver import FilterDriver
from orchestrator.enforce.drivers.nftables.heldpairs import HeldPairs
from orchestrator.enforce.drivers.nftables.peers import Peers
from orchestrator.enforce.drivers.nftables.tool import NftTool, wait_for_packets
from orchestrator.program.canonical import DIGEST_BYTES
from orchestrator.program.delta import Delta
from orchestrator.program.flows import U64, Flow, FlowTable

_PAIR_TABLES = {kind.table: kind for kind in PAIR_SETS}
_LABEL = struct.Struct(f">Q{DIGEST_BYTES}s{DIGEST_BYTES}s")


TWICE = "another firewall server sends packets here for tenants that are not served here: they are dropped"


@dataclass(slots=True)
class _Counted:
    """Runs commands, and counts the transactions among them."""

    run: Run
    transactions: int = 0

    def __call__(self, command: Sequence[str], text: str) -> str:
        answer = self.run(command, text)
        self.transactions += tuple(command[:2]) == ("nft", "-f")
        return answer


class ServedDriver:
    """The firewall server of a network namespace, always ours to write."""

    def __init__(self, commands: Run = run, legs: Legs = NO_LEGS) -> None:
        self.commands = _Counted(commands)
        self.filter = FilterDriver(NftTool(self.commands), legs)
        self.pairs = HeldPairs()
        self._peers = Peers()
        self._tables: Stamp | None = None
        """The stamp of the tables as they were last read or written; None: not known."""
        self._again = (0, 0)
        """Packets that came from another server for nobody here, as counted the last two times."""

    def claim(self, epoch: int) -> bool:  # noqa: ARG002  # nobody else writes here
        """Return True: no other process writes this table, so every epoch may."""
        return True

    def resolve(self, flows: FlowTable, symbols: tuple[str, ...]) -> FlowTable:
        """The rows as they are read back."""
        own = flows.take(np.isin(flows.table, [*_PAIR_TABLES, PEERS]))
        return FlowTable.join_tables(
            [self.filter.resolve(flows, symbols), replace(own, tenant=np.zeros_like(own.tenant))]
        )

    def observe(self, cookies: U64 | None = None) -> Observed:
        """Observe everything, or the objects of some cookies.

        Where the pairs cannot be known there are none, and no stamp.
        """
        found = self.filter.observe(cookies)
        self._tables = found.stamp
        pairs = self.pairs.read()
        rows = [self._peers.read(), *(pair_rows(kind, keys, 0) for kind, keys in (pairs or {}).items())]
        own = FlowTable.join_tables(rows)
        if cookies is not None:
            own = own.take(np.isin(own.cookie, cookies))
        stamp = self._stamp(self.pairs.label) if pairs is not None else None
        return Observed(FlowTable.join_tables([found.flows, own]), stamp)

    def apply(self, delta: Delta, stamp: Stamp) -> None:
        """Change routes, pairs and tables, and write the stamp.

        Where a route cannot be made the rest is done before that is said: what would go there is dropped, and a policy
        must not wait for it.
        """
        try:
            self._peers.write(_select_peer_rows(delta.removed), _select_peer_rows(delta.added))
        finally:
            self._write(delta, stamp)

    def _write(self, delta: Delta, stamp: Stamp) -> None:
        """Change pairs and tables, and write the stamp."""
        added, removed = _read_pairs(delta.added), _read_pairs(delta.removed)
        known = self.pairs.read() is not None
        tables = self._of_tables(delta)
        if known and not len(tables.removed) and not len(tables.added) and self._tables is not None:
            self.pairs.change(added, removed, _pack_label(stamp, self._tables))
            return
        if known:
            self.pairs.change(added, {}, None)
        self._tables, before = None, self.commands.transactions
        self.filter.apply(tables, stamp)
        self._tables = stamp
        self.pairs.moved_on(self.commands.transactions - before)
        if known:
            if removed:
                wait_for_packets()
            self.pairs.change({}, removed, _pack_label(stamp, stamp))
        else:
            self.pairs.anew(added, _pack_label(stamp, stamp))

    def change(self, delta: Delta, stamp: Stamp) -> Changing:
        """Apply and read back: where only pairs change, by asking for those alone."""
        added, removed = delta.added.rows(), delta.removed.rows()
        if self._tables is None or not self.pairs.is_known or not _are_pairs((*added, *removed)):
            return (yield from change_wholly(self, delta, stamp))
        self.pairs.change(_read_pairs(delta.added), _read_pairs(delta.removed), _pack_label(stamp, self._tables))
        wanted = tuple(replace(row, tenant=0) for row in added)
        asked = {row.key: replace(row, tenant=0) for row in (*added, *removed)}
        found = tuple(row for row in asked.values() if self.pairs.has(_PAIR_TABLES[row.table], row.match))
        return Changed(wanted, found, self._stamp(self.pairs.kernels_label()))

    def counter_keys(self, flows: FlowTable) -> U64 | None:
        """None: counters are not those of rows."""
        return self.filter.counter_keys(flows)

    def hits(self) -> Hits:
        """Return the tables' counts; pairs are not counted by rule."""
        found = self.filter.hits()
        self._again = self._again[-1], self.filter.packets_under(AGAIN_WORDS)
        return found

    def trouble(self) -> str | None:
        """Return a fault seen in the last two counts.

        Servers that each think another has a tenant send its packets on, and the second drops them.
        """
        before, now = self._again
        return TWICE if now > before else None

    def _stamp(self, label: bytes | None) -> Stamp | None:
        """Return a label's stamp, if it belongs to the present tables."""
        if label is None or self._tables is None:
            return None
        generation, digest, tables = _LABEL.unpack(label)
        return Stamp(generation, digest) if tables == self._tables.digest else None

    def _of_tables(self, delta: Delta) -> Delta:
        """The part of a delta that is about tables."""
        removed, added = (
            rows.take(~np.isin(rows.table, [*_PAIR_TABLES, PEERS])) for rows in (delta.removed, delta.added)
        )
        return replace(delta, removed=removed, added=added)


def served_driver(commands: Run = run, legs: Legs = NO_LEGS) -> ServedDriver:
    """The driver of this network namespace's firewall server."""
    return ServedDriver(commands, legs)


def _read_pairs(rows: FlowTable) -> Mapping[PairSet, Keys]:
    return {kind: keys for kind in PAIR_SETS if len(keys := keys_of(rows, kind))}


def _select_peer_rows(rows: FlowTable) -> FlowTable:
    return rows.take(rows.table == PEERS)


def _are_pairs(rows: Sequence[Flow]) -> bool:
    return all(row.table in _PAIR_TABLES for row in rows)


def _pack_label(stamp: Stamp, tables: Stamp) -> bytes:
    return _LABEL.pack(stamp.generation, stamp.digest, tables.digest)
