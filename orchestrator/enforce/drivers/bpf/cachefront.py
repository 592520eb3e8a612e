"""The flow cache for the agent's loop: a program's rows before a packet filter.

See `filters/front.py`.

    close ──▶ the filter changes ──▶ open

A policy's rows reach the kernel only behind the policy itself, and leave it before. Where something on the machine
decides about packets that the cache would bypass (see below), it holds no rows, and says why.

Other deciders of packets on this machine that a flow cache would bypass.

The cache sends a packet on before the kernel's IP stack has seen it. Every step there besides our filter must be
repeated by the cache or be absent:

    rp_filter              repeated: how strict is part of the set of rows
    ip_forward             the kernel's own answer to the question for a route says it
    IPv6 forwarding        asked here: in IPv6 the switch for all interfaces decides, and that answer looks at one
    NAT, mangle, raw, ...  must not be there, nor a filter that is not the plane's
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np
import structlog

from orchestrator.compile.filters.cacherows import FLOWCACHE, CacheRow, cache_table, families, read_table
from orchestrator.compile.filters.legs import GUARD_TABLE, NO_LEGS, Legs
from orchestrator.enforce.driver import UNKNOWN_IDLE_S, Hits, Stamp
from orchestrator.enforce.drivers.bpf.kernel import KernelCache
from orchestrator.enforce.drivers.bpf.layout import BY_LEG, FlowSet
from orchestrator.enforce.drivers.bpf.program import Counted
from orchestrator.enforce.drivers.nftables import netlink
from orchestrator.enforce.drivers.nftables.pairs import NAMES as PAIR_TABLES
from orchestrator.enforce.drivers.nftables.scripts import NAMES
from orchestrator.errors import Missing
from orchestrator.policy.addresses import Family
from orchestrator.program.flows import FlowTable
from orchestrator.wire.firewalls import Plane

_OURS: Mapping[Plane, tuple[str, ...]] = {
    Plane.NFTABLES: (*NAMES, *PAIR_TABLES),
    Plane.IPTABLES: ("filter",),
    Plane.QUEUE: ("filter",),
}
"""Names of the tables that the cache repeats; iptables over nftables keeps its tables under the same names."""
Tables = Callable[[], Iterable[tuple[str, str]]]
"""The tables of nftables that there are, by family and name."""
_GUARD = ("inet", GUARD_TABLE)
"""The table that keeps other interfaces' packets from the legs, and those of the legs from the machine."""
_FAMILIES = frozenset({"ip", "ip6"})
_NOT_OF_IP = frozenset({"arp", "bridge"})
_LEGACY = ("ip_tables_names", "ip6_tables_names")
_STRICTNESS = (0, 2, 1)
"""Values of rp_filter, the least strict first."""


@dataclass(frozen=True, slots=True)
class Around:
    """`bystanders` are the tables of packet filters that are not ours; `source_check` the strictest rp_filter."""

    source_check: int
    forwards_ipv6: bool
    bystanders: tuple[str, ...]


def look_around(
    interfaces: Sequence[str], plane: Plane, tables: Tables = netlink.tables, root: Path = Path("/proc")
) -> Around:
    """The namespace that this is called in, whose filter is of one plane."""
    ours = _OURS[plane]
    conf = root / "sys/net/ipv4/conf"
    everywhere = _read_number(conf / "all/rp_filter")
    checks = [max(everywhere, _read_number(conf / interface / "rp_filter")) for interface in interfaces]
    legacy = [
        f"{name.partition('_')[0]}tables {table}"
        for name in _LEGACY
        for table in _legacy_tables(root / "net" / name)
        if plane is Plane.NFTABLES or table not in ours
    ]
    return Around(
        source_check=max(checks, key=_STRICTNESS.index, default=0),
        forwards_ipv6=_read_number(root / "sys/net/ipv6/conf/all/forwarding") == 1,
        bystanders=(*legacy, *_list_bystanders(tables(), ours)),
    )


def _list_bystanders(tables: Iterable[tuple[str, str]], ours: Sequence[str]) -> list[str]:
    return [
        f"nft {family} {name}"
        for family, name in tables
        if family not in _NOT_OF_IP and not (family in _FAMILIES and name in ours) and (family, name) != _GUARD
    ]


def _legacy_tables(path: Path) -> list[str]:
    """Tables of the older iptables. Where they may not be read, there may be any."""
    try:
        return _read_words(path)
    except PermissionError:
        return [f"(unknown: {path} is root's to read)"]


def _read_number(path: Path) -> int:
    text = "".join(_read_words(path))
    return int(text) if text.isdigit() else 0


def _read_words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except FileNotFoundError:  # that version of IP, or that kind of filter, is not there
        return []


log = structlog.get_logger()

NO_STAMP = Stamp(0, bytes(16))
"""For whoever opens a cache without saying of which policy."""


_KEYS = 0xCAC4E << 44


class Kernel(Protocol):
    """The holder of the rows: the kernel, or a fake."""

    def close(self) -> None: ...
    def open(self, held: FlowSet) -> None: ...
    def read(self) -> FlowSet | None: ...
    def read_counters(self) -> Counted: ...


class BpfFront:
    """A flow cache at interfaces of the current network namespace, before a plane's filter."""

    def __init__(
        self,
        interfaces: Sequence[str],
        plane: Plane,
        kernel: Kernel | None = None,
        around: Callable[[Sequence[str], Plane], Around] = look_around,
        table: int = FLOWCACHE,
        *,
        legs: Legs = NO_LEGS,
    ) -> None:
        self._table = table
        self._legs = legs
        self._kernel = kernel or KernelCache(interfaces)
        self._look = partial(around, tuple(interfaces), plane)
        self._around = self._look()
        self._lacks: str | None = None
        self._opened: tuple[tuple[CacheRow, ...], FlowTable] = (), cache_table(())
        """The rows opened last, as a cache's and a program's, where rows that do not meet may share a priority."""

    def close(self) -> None:
        """Decide nothing from now on. An error means that this is not certain."""
        self._kernel.close()

    def open(self, rows: FlowTable, stamp: Stamp = NO_STAMP) -> None:
        """Hold these rows of the stamp's policy and start deciding.

        Without rows stay closed.

        Raises Missing on a machine that lacks what a flow cache needs, and from then on it has no rows here.
        """
        self._around = self._look()
        mine = self.resolve(rows)
        found = read_table(mine)
        if not found:
            return
        try:
            self._kernel.open(FlowSet(found, stamp, self._source_check))
        except Missing as error:
            self._lacks = str(error)
            raise
        self._opened = found, mine

    def observe(self) -> FlowTable:
        """Return the rows read back.

        None while it is closed, or when it would have to be opened anew.
        """
        self._look_for_bystanders()
        held = self._kernel.read()
        if held is None or held.source_check != self._source_check:
            return cache_table(())
        rows, table = self._opened
        return table if held.rows == rows else cache_table(held.rows, self._table)

    def resolve(self, rows: FlowTable) -> FlowTable:
        """Select the rows of a program that the cache would hold here."""
        mine = rows.take(np.flatnonzero(rows.table == self._table))
        if self._around.bystanders or self._lacks:
            return mine.take(np.zeros(len(mine), np.bool_))
        if self._around.forwards_ipv6:
            return mine
        return mine.take(np.flatnonzero(families(mine) == Family.IPV4))

    def hits(self) -> Hits:
        """Return the cache's counts by rule."""
        found = self._kernel.read_counters()
        # A key of a flow cache's counter: nobody else's has this form, and it is another when counters begin anew.
        key = found.cookie ^ np.uint64(_KEYS | found.epoch << 8)
        idle, age = np.full(len(key), UNKNOWN_IDLE_S, np.uint32), np.full(len(key), np.nan)
        return Hits(key, found.cookie, found.packets, found.bytes, idle, age)

    @property
    def _source_check(self) -> int:
        """Return how sources are checked against interfaces: by the kernel, or by declared legs."""
        return BY_LEG if self._legs.names else self._around.source_check

    def _look_for_bystanders(self) -> None:
        before, self._around = self._around, self._look()
        if self._around.bystanders and self._around != before:
            log.warning("flow_cache.stays_closed", would_pass_by=list(self._around.bystanders))
