"""One firewall under datagrams of a size and rate: sent and received."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from orchestrator.bench.fw_vnf.vnfsizes import MEGABIT
from orchestrator.bench.fw_vnf.worstcase import filter_text
from orchestrator.bench.traffic import filters, iperf
from orchestrator.bench.traffic.addresses import THROUGHPUT
from orchestrator.bench.traffic.filters import Filter
from orchestrator.bench.traffic.line import SERVER, Line
from orchestrator.bench.traffic.servers import until_listening
from orchestrator.lab.layout import Layout


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates: sent and arrived in Mb/s of datagrams, and packets a second that arrived."""

    sent: float
    arrived: float
    pps: float


@contextmanager
def alone(layout: Layout) -> Iterator[Line]:
    """A line whose middle is the firewall, and whose server receives."""
    with Line(layout, "alone") as line:
        line.start(SERVER, "iperf3", "--server", "--port", str(THROUGHPUT))
        line.inside(SERVER, partial(until_listening, THROUGHPUT))
        yield line


def load(line: Line, rules: int, kind: Filter = Filter.IPTABLES_LEGACY) -> None:
    """Have the firewall hold the worst-case list; without rules, no filter at all."""
    unload(line)
    if rules:
        filters.load(line, kind, filter_text(rules, kind))


def unload(line: Line) -> None:
    """Have it forward everything, whichever filter held a list."""
    for kind in (Filter.IPTABLES_LEGACY, Filter.NFTABLES):
        filters.clear(line, kind)


def measure_firewall(line: Line, *, size: int, seconds: int, rate: int = 0) -> Rates:
    """Send datagrams of a size at `rate` Mb/s, or at full speed."""
    found = iperf.flood(line, seconds=seconds, size=size, bits_per_s=rate * MEGABIT)
    bits = size * 8 / found.seconds / MEGABIT
    return Rates(found.sent * bits, found.arrived * bits, found.per_s)
