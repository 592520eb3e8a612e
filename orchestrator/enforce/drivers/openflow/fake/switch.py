"""The fake switch: flow tables and ports, changed by OpenFlow messages, met by real frames.

`FakeSwitch` is the switch itself: `forward` sends a frame through it. A controller talks to it over a `Session`
(`session.py`), which speaks bytes, behind an in-process channel or a TCP connection.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from orchestrator.enforce.drivers.openflow import headers
from orchestrator.enforce.drivers.openflow.fake.actions import ToGroup
from orchestrator.enforce.drivers.openflow.fake.complaint import Complaint, Reason
from orchestrator.enforce.drivers.openflow.fake.fields import Match
from orchestrator.enforce.drivers.openflow.fake.groups import Group, GroupMod
from orchestrator.enforce.drivers.openflow.fake.pipeline import Journey, Trace
from orchestrator.enforce.drivers.openflow.fake.table import Entry, FlowTable, covers
from orchestrator.enforce.drivers.openflow.fake.tracking import Connection, Known
from orchestrator.enforce.drivers.openflow.messages import ALL_TABLES, Fragments, Role

RESET_COUNTS = 1 << 2
TABLES = 254
"""Tables 0..253, as Open vSwitch has."""

Undo = list[Callable[[], object]]


@dataclass(frozen=True, slots=True)
class FlowFilter:
    """Which entries a non-strict deletion or a description means."""

    table: int
    match: Match
    cookie: int
    cookie_mask: int

    def means(self, entry: Entry) -> bool:
        """Whether an entry is among those that are asked for."""
        return (
            self.table in (ALL_TABLES, entry.table)
            and not (entry.cookie ^ self.cookie) & self.cookie_mask
            and covers(self.match, entry.match)
        )


@dataclass(eq=False)
class FakeSwitch:
    """A switch with named ports.

    `clock` gives seconds; `limits` bounds the number of entries by table, `most_connections` that of connections that
    are remembered. `in_kernel`: it refuses to write what Linux'
    datapath does not know, as Open vSwitch does there. Frames and messages may come from different threads.
    """

    ports: dict[str, int]
    datapath_id: int = 0xAB
    clock: Callable[[], float] = time.monotonic
    limits: dict[int, int] = field(default_factory=dict)
    in_kernel: bool = False
    most_connections: int = 3_000_000

    def __post_init__(self) -> None:
        self.lock = threading.RLock()
        self.tables: dict[int, FlowTable] = {}
        self.groups: dict[int, Group] = {}
        self.connections: dict[Connection, Known] = {}
        self.meters: dict[int, bytes] = {}
        self.down_ports: frozenset[str] = frozenset()
        self.fragments = Fragments.NORMAL
        self.generation: int | None = None
        self.port_watchers: list[Callable[[], None]] = []
        self.role_watchers: list[Callable[[Role, object], None]] = []
        self.report_watchers: list[Callable[[Entry, bytes], None]] = []

    def forward(self, frame: bytes, in_port: str) -> list[tuple[str, bytes]]:
        """Send a frame in by a port; return the frames out, by port.

        Counters go up.
        """
        with self.lock:
            trace = self.trace(frame, in_port)
            for entry in trace.entries:
                entry.packets += 1
                entry.byte_count += len(frame)
                entry.used = self.clock()
            self.connections.update((name, known) for name, known in trace.known.items() if known is not None)
            for name in [name for name, known in trace.known.items() if known is None]:
                self.connections.pop(name, None)
            for entry, size in trace.reports:
                for tell in list(self.report_watchers):
                    tell(entry, frame[:size])
            names = {number: name for name, number in self.ports.items()}
            return [(names[port], sent) for port, sent in trace.sent if port in names]

    def trace(self, frame: bytes, in_port: str) -> Trace:
        """Trace a frame without counting."""
        with self.lock:
            room = self.most_connections - len(self.connections)
            seen, port = self._seen(frame), self.ports[in_port]
            return Journey(frame, seen, port, self.groups, self.connections, max(room, 0)).through(self.tables)

    def _seen(self, frame: bytes) -> headers.Headers:
        """Return a frame's headers.

        Unless told to match fragments, a switch sees no ports in any of them.
        """
        seen = headers.parse(frame)
        if self.fragments is Fragments.NX_MATCH or not seen.values.get("ip_frag"):
            return seen
        hidden = ("tcp_src", "tcp_dst", "udp_src", "udp_dst", "sctp_src", "sctp_dst", "icmp_type", "icmp_code",
                  "icmpv6_type", "icmpv6_code")  # fmt: skip
        values = {name: value for name, value in seen.values.items() if name not in hidden}
        return replace(seen, values=values)

    def entries(self) -> Iterator[Entry]:
        """Every flow entry."""
        for table in self.tables.values():
            yield from table

    def set_ports(self, ports: Mapping[str, int]) -> None:
        """Change the ports and tell every controller."""
        with self.lock:
            self.ports = dict(ports)
        for tell in list(self.port_watchers):
            tell()

    def set_down_ports(self, names: Iterable[str]) -> None:
        """Have nobody answer behind some ports, and tell every controller."""
        self.down_ports = frozenset(names)
        for tell in list(self.port_watchers):
            tell()

    def add(self, entry: Entry, undo: Undo) -> None:
        """Add an entry, with counters as the standard says.

        Raises Complaint when the table is full.
        """
        if not self._groups_of(entry) <= self.groups.keys():
            raise Complaint(Reason.BAD_OUT_GROUP)
        table = self.tables.setdefault(entry.table, FlowTable())
        old = table.find(entry.priority, entry.match)
        if old is None and len(table) >= self.limits.get(entry.table, len(table) + 1):
            raise Complaint(Reason.TABLE_FULL)
        if old is not None and not entry.flags & RESET_COUNTS:
            entry.packets, entry.byte_count, entry.used = old.packets, old.byte_count, old.used
        table.put(entry)
        undo.append(lambda: table.put(old) if old is not None else table.remove(entry))

    def delete_strict(self, what: FlowFilter, priority: int, undo: Undo) -> None:
        """Delete the entry of a key, if its cookie matches."""
        for number in self._list_tables(what.table):
            entry = self.tables[number].find(priority, what.match)
            if entry is not None and not (entry.cookie ^ what.cookie) & what.cookie_mask:
                self._take_out(entry, undo)

    def delete(self, what: FlowFilter, undo: Undo) -> None:
        """Take every entry out that is meant."""
        for entry in self.meant(what):
            self._take_out(entry, undo)

    def change_groups(self, change: GroupMod, undo: Undo) -> None:
        """Add, change or delete groups, with entries that use a deleted one.

        Raises Complaint.
        """
        before, self.groups = self.groups, change.after(self.groups)
        undo.append(lambda: setattr(self, "groups", before))
        for entry in [each for each in self.entries() if not self._groups_of(each) <= self.groups.keys()]:
            self._take_out(entry, undo)

    def _groups_of(self, entry: Entry) -> set[int]:
        """The groups that an entry leads to."""
        return {action.number for action in entry.instructions.actions if isinstance(action, ToGroup)}

    def meant(self, what: FlowFilter) -> list[Entry]:
        """The entries that a filter means."""
        return [entry for number in self._list_tables(what.table) for entry in self.tables[number] if what.means(entry)]

    def _list_tables(self, table: int) -> list[int]:
        return [number for number in sorted(self.tables) if table in (ALL_TABLES, number)]

    def _take_out(self, entry: Entry, undo: Undo) -> None:
        table = self.tables[entry.table]
        table.remove(entry)
        undo.append(lambda: table.put(entry))
