"""IPv6 pairs in a hash set, few and many: memory, loading, adding, look-up cost.

A key has 32 bytes instead of 8, so an element takes more memory and a look-up hashes and compares more; that it costs
the same at any size is asked as for IPv4, with the same packets through both sets in turn.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np

from orchestrator.bench.firewall_server.growth import grown_by
from orchestrator.bench.firewall_server.pairs import MARKED_ONLY
from orchestrator.bench.firewall_server.serversizes import Sizes
from orchestrator.bench.results import Figure, Results
from orchestrator.bench.traffic.measured import ratios
from orchestrator.compile.servers.exactpairs import HOSTS6, Keys
from orchestrator.enforce.drivers.nftables.pairs import PairTable
from orchestrator.errors import Drifted
from orchestrator.lab.layout import Layout
from orchestrator.lab.router import ROUTER, Router
from orchestrator.policy.addresses import Family, Prefix
from orchestrator.policy.model import Packet
from orchestrator.policy.protocols import UDP

_SOURCES = Prefix.parse("2001:db8:ffff::/48").network
_DESTINATIONS = Prefix.parse("2001:db8:100::/48").network
_A_SOURCE = 256
_FEW, _EACH_ROUND, _ASKED = 16, 1_024, 32
_PORTS = (40_000, 9)


@dataclass(slots=True)
class Sixes:
    """Results by number of pairs: bytes, loading seconds, microseconds to add, nanoseconds a packet."""

    memory_bytes: dict[int, float] = field(default_factory=dict)
    load_s: dict[int, float] = field(default_factory=dict)
    one_us: dict[int, list[float]] = field(default_factory=dict)
    packet_ns: dict[int, list[float]] = field(default_factory=dict)


def pairs(count: int, first: int = 0) -> Keys:
    """`count` pairs from number `first` on: a longer list begins as a shorter one does."""
    number = np.arange(first, first + count, dtype=np.uint64)
    source, destination = number // _A_SOURCE, number % _A_SOURCE + np.uint64(1)
    heads = [np.full(count, base >> 64, np.uint64) for base in (_SOURCES, _DESTINATIONS)]
    columns = np.stack([heads[0], source, heads[1], destination], axis=1)
    return np.ascontiguousarray(columns.astype(">u8")).view(np.uint8).reshape(count, HOSTS6.key_bytes)


def packets(keys: Keys) -> list[Packet]:
    """A datagram for each pair."""
    halves = keys.view(">u8").reshape(-1, 4).tolist()
    return [Packet(Family.IPV6, a << 64 | b, c << 64 | d, UDP, *_PORTS) for a, b, c, d in halves]


def measure(place: Layout, sizes: Sizes, step: Callable[[str], None]) -> Sixes:
    """Load each set, compare what passes with it, then look up. Raises Missing, Refused, Drifted."""
    found = Sixes()
    with ExitStack() as stack:
        routers: dict[int, Router] = {}
        for count in sizes.sixes:
            step(f"hash set of {count:,} pairs of IPv6")
            routers[count] = stack.enter_context(Router(f"{place.prefix}six{count}-"))
            _load_pairs(found, routers[count], count, sizes.singles)
            _check(routers[count], count)
        sent = packets(pairs(_FEW)) * (_EACH_ROUND // _FEW)
        for turn in range(sizes.lookups + 1):
            for count, router in routers.items():
                spent = router.cpu_ns(sent)
                if turn:  # a first round warms everything up
                    found.packet_ns.setdefault(count, []).append(spent)
    return found


def steps(sizes: Sizes) -> int:
    """How many steps `measured` tells of."""
    return len(sizes.sixes)


def record(results: Results, found: Sixes, sizes: Sizes) -> None:
    """Put the figures among a suite's."""
    least, most = min(sizes.sixes), max(sizes.sixes)
    results.figures[f"ipv6_gb_{most}"] = Figure.of([found.memory_bytes[most] / 1e9], "GB")
    results.figures[f"ipv6_octets_an_element_{most}"] = Figure.of([found.memory_bytes[most] / most], "octets")
    results.figures[f"ipv6_load_s_{most}"] = Figure.of([found.load_s[most]], "s")
    for count, taken in found.one_us.items():
        results.figures[f"ipv6_add_one_us_{count}"] = Figure.of([statistics.median(taken)], "us")
    same = ratios(found.packet_ns[most], found.packet_ns[least])
    results.figures[f"ipv6_lookup_cpu_{most}_vs_{least}"] = Figure.of(same, "ratio")


def _load_pairs(found: Sixes, router: Router, count: int, singles: int) -> None:
    router.run("nft", "-f", "-", text=MARKED_ONLY.replace("table ip ", "table ip6 "))
    table = PairTable()
    router.inside(ROUTER, table.create)
    keys = pairs(count)
    found.memory_bytes[count], found.load_s[count] = grown_by(
        lambda: router.inside(ROUTER, lambda: table.load(HOSTS6, keys))
    )
    found.one_us[count] = router.inside(ROUTER, lambda: _singles_us(table, pairs(singles, count)))


def _singles_us(table: PairTable, new: Keys) -> list[float]:
    """Measure the microseconds of pairs that are added one by one, and remove them again."""
    taken = []
    for key in new:
        began = time.perf_counter()
        table.add_one(HOSTS6, key.tobytes())
        taken.append(1e6 * (time.perf_counter() - began))
    table.change({}, {HOSTS6: new})
    return taken


def _check(router: Router, count: int) -> None:
    """Check that pairs of the set pass and others do not. Raises Drifted."""
    passing, strange = (router.fire(packets(pairs(_ASKED, first))) for first in (count - _ASKED, count))
    if not all(passing) or any(strange):
        raise Drifted(f"of IPv6 {sum(passing)} of {_ASKED} pairs pass, and {sum(strange)} that are none")
