"""The load of a firewall VNF: rates between two readings of its network namespace's counters."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from orchestrator.wire.firewalls import Load

_DEVICES, _PROCESSORS = Path("/proc/net/dev"), Path("/proc/stat")
_CONNECTIONS = Path("/proc/sys/net/netfilter/nf_conntrack_count")
_PERMILLE = 1000
_HIGHEST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class LoadCounters:
    """Counters of this network namespace at one moment (seconds of some clock), of /proc.

    Packets and bytes received on the interfaces, ticks of all processors, how many of these were idle, and connections
    tracked.
    """

    at_s: float
    packets: int
    bytes: int
    ticks: int
    idle_ticks: int
    connections: int


def read_counters(
    now_s: float, interfaces: Collection[str], text: Callable[[Path], str] = Path.read_text
) -> LoadCounters:
    """The counters of now. No interfaces: all but the loopback."""
    packets = byte_count = 0
    for line in text(_DEVICES).splitlines()[2:]:
        name, _, numbers = line.partition(":")
        fields = numbers.split()
        if name.strip() in interfaces or (not interfaces and name.strip() != "lo"):
            byte_count, packets = byte_count + int(fields[0]), packets + int(fields[1])
    ticks = [int(word) for word in text(_PROCESSORS).splitlines()[0].split()[1:9]]
    try:
        connections = int(text(_CONNECTIONS))
    except OSError:  # the kernel tracks none here
        connections = 0
    return LoadCounters(now_s, packets, byte_count, sum(ticks), ticks[3] + ticks[4], connections)


def load_between(before: LoadCounters, now: LoadCounters, trouble: str | None) -> Load:
    """Return the load between two readings.

    Counters that began anew (an interface was replaced) count as 0.
    """
    seconds = max(now.at_s - before.at_s, 1e-3)
    ticks = max(now.ticks - before.ticks, 1)
    busy = ticks - max(now.idle_ticks - before.idle_ticks, 0)
    return Load(
        packets_pps=_compute_rate(now.packets - before.packets, seconds),
        bits_bps=_compute_rate(8 * (now.bytes - before.bytes), seconds),
        cpu_permille=min(max(busy * _PERMILLE // ticks, 0), _PERMILLE),
        connections=now.connections,
        trouble=trouble,
    )


def _compute_rate(moved: int, seconds: float) -> int:
    return min(max(round(moved / seconds), 0), _HIGHEST)
