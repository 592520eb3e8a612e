"""The costs of a growing set: memory, loading, adding, looking up.

A look-up's CPU time is that of a router, from end to end. The same packets go through every router, in three patterns:
between *few* pairs, as the paper's one stream was; between a *thousand* in turn; and *spread* over a set, so that
hardly any element is in the processor's caches. The list of a large set begins with that of a small one, so what is
looked up is the same too.

Pairs of IPv6 are in a hash set of their own, few and many. A key has 32 bytes instead of 8, so an element takes more
memory and a look-up hashes and compares more; that it costs the same at any size is asked as for IPv4, with the same
packets through both sets in turn.
"""

from __future__ import annotations

import enum
import re
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from orchestrator.bench.firewall_server.pairs import (
    MARKED_ONLY,
    HashSet,
    evenly,
    interval_packets,
    intervals,
    packets,
    pairs,
    typed_interval,
    typed_pair,
)
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

_COUNTED = re.compile(r"^(SUnreclaim|VmallocUsed):\s+(\d+) kB", re.MULTILINE)
_LOOK_S = 1.0
_STILL_LOOKS = 3
_MOST_LOOKS = 60
_STILL_OCTETS = 1 << 20
"""By less than so much in a second it changes by itself."""
_FEW, _THOUSAND = 16, 1_000
_EACH_ROUND = 1_024
_ASKED = 64
NO_SET = 0
"""The number of pairs of a router without a set: everything passes."""
_SOURCES = Prefix.parse("2001:db8:ffff::/48").network
_DESTINATIONS = Prefix.parse("2001:db8:100::/48").network
_A_SOURCE = 256
_ASKED_SIXES = 32
_PORTS = (40_000, 9)


def grown_by(load: Callable[[], object]) -> tuple[int, float]:
    """Return the bytes of kernel memory that loading something takes, and its seconds."""
    before, began = _octets_at_rest(), time.perf_counter()
    load()
    took_s = time.perf_counter() - began
    return _octets_at_rest() - before, took_s


def _octets_at_rest() -> int:
    """Return the unreclaimable memory, slabs and large arrays, once stable or after a minute.

    The memory of millions of pairs is given back some seconds after their namespace went, and then bit by bit.
    """
    held, still = _read_memory_bytes(), 0
    for _ in range(_MOST_LOOKS):
        time.sleep(_LOOK_S)
        before, held = held, _read_memory_bytes()
        still = still + 1 if abs(held - before) < _STILL_OCTETS else 0
        if still == _STILL_LOOKS:
            break
    return held


def _read_memory_bytes() -> int:
    text = Path("/proc/meminfo").read_text(encoding="ascii")
    return sum(int(number) * 1024 for _, number in _COUNTED.findall(text))


@dataclass(frozen=True, slots=True)
class Growth:
    """Costs of a set with `count` elements: memory, seconds of loading, times to add.

    `one_us` is the median of elements added one at a time by our messages, `batch_us` an element of a batch, `typed_ms`
    the median by the command line tool. None where it was not measured.
    """

    count: int
    load_s: float
    memory_bytes: float | None
    one_us: float | None
    batch_us: float | None
    typed_ms: float


def hash_set(router: Router, held: HashSet, count: int, sizes: Sizes) -> Growth:
    """Fill a hash set afresh with `count` pairs, which it then holds. Raises Missing, Refused."""
    router.run("nft", "-f", "-", text=MARKED_ONLY)
    router.inside(ROUTER, held.create)
    keys = pairs(count)
    memory_bytes, load_s = grown_by(lambda: router.inside(ROUTER, lambda: held.load(keys)))
    one_us = router.inside(ROUTER, lambda: _singles_us(held, count, sizes.singles))
    batch_us = router.inside(ROUTER, lambda: _batch_us(held, count, sizes.batch))
    return Growth(count, load_s, memory_bytes, one_us, batch_us, _typed_ms(router, map(typed_pair, range(sizes.typed))))


def interval_set(router: Router, count: int, sizes: Sizes) -> Growth:
    """Fill an interval set afresh with `count` ranges, which it then holds. Raises Missing, Refused."""
    script = intervals(count)
    load_s = _time_call(lambda: router.run("nft", "-f", "-", text=script))
    typed_ms = _typed_ms(router, map(typed_interval, range(sizes.typed)))
    return Growth(count, load_s, None, None, None, typed_ms)


def _singles_us(held: HashSet, count: int, singles: int) -> float:
    """Return the median microseconds to add one pair.

    So many are added one after the other, and removed again.
    """
    new = pairs(singles, count)
    taken = [_time_call(partial(held.add_one, key.tobytes())) for key in new]
    held.remove(new)
    return statistics.median(taken) * 1e6


def _batch_us(held: HashSet, count: int, batch: int) -> float:
    """Microseconds a pair of a batch, in one transaction; taken away again."""
    new = pairs(batch, count)
    seconds = _time_call(lambda: held.add(new))
    held.remove(new)
    return seconds / batch * 1e6


def _typed_ms(router: Router, commands: Iterable[tuple[str, ...]]) -> float:
    """Milliseconds that `nft` takes to add one element, from its start to its end."""
    return statistics.median(_time_call(partial(router.run, *typed)) for typed in commands) * 1000


def _time_call(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


class Pattern(enum.Enum):
    """Between how many pairs packets go."""

    FEW = f"{_FEW} pairs"
    THOUSAND = f"{_THOUSAND:,} pairs"
    SPREAD = "spread over the set"


@dataclass(slots=True)
class Lookups:
    """CPU nanoseconds a packet, by number of pairs and pattern, in order of rounds.

    Interval sets are apart.
    """

    hashed: dict[tuple[int, Pattern], list[float]] = field(default_factory=dict)
    ranged: dict[int, list[float]] = field(default_factory=dict)

    def of(self, count: int, pattern: Pattern) -> Sequence[float]:
        return self.hashed.get((count, pattern), ())


def check_lookups(router: Router, count: int) -> None:
    """Raises Drifted unless pairs of the set pass and others do not."""
    passing = router.fire(packets(evenly(count, _ASKED)))
    strange = router.fire(packets(pairs(_ASKED, count)))
    if not all(passing) or any(strange):
        raise Drifted(f"of {count} pairs {sum(passing)} of {len(passing)} pass, and {sum(strange)} that are none")


def measure_lookups(
    routers: Mapping[int, Router], ranged: Mapping[int, Router], rounds: int, spread: int, step: Callable[[str], None]
) -> Lookups:
    """Measure some rounds after a warm-up.

    `routers` by number of pairs; `ranged` those of interval sets.
    """
    found = Lookups()
    largest = max(routers)
    sent = {
        Pattern.FEW: _repeat_packets(packets(pairs(_FEW))),
        Pattern.THOUSAND: _repeat_packets(packets(pairs(_THOUSAND))),
    }
    wide = packets(evenly(largest, spread))
    for turn in range(rounds + 1):
        step(f"look-ups, round {turn} of {rounds}")
        for count, router in routers.items():
            patterns = {**sent, Pattern.SPREAD: wide} if count in (NO_SET, largest) else sent
            for pattern, each in patterns.items():
                spent = router.cpu_ns(each)
                if turn:
                    found.hashed.setdefault((count, pattern), []).append(spent)
        for count, router in ranged.items():
            spent = router.cpu_ns(_repeat_packets(interval_packets(count, _FEW)))
            if turn:
                found.ranged.setdefault(count, []).append(spent)
    return found


def _repeat_packets(some: list[Packet]) -> list[Packet]:
    """Repeated until a round is long enough for a clock."""
    return some * -(-_EACH_ROUND // len(some))


@dataclass(slots=True)
class Sixes:
    """Results by number of pairs: bytes, loading seconds, microseconds to add, nanoseconds a packet."""

    memory_bytes: dict[int, float] = field(default_factory=dict)
    load_s: dict[int, float] = field(default_factory=dict)
    one_us: dict[int, list[float]] = field(default_factory=dict)
    packet_ns: dict[int, list[float]] = field(default_factory=dict)


def ipv6_pairs(count: int, first: int = 0) -> Keys:
    """`count` pairs from number `first` on: a longer list begins as a shorter one does."""
    number = np.arange(first, first + count, dtype=np.uint64)
    source, destination = number // _A_SOURCE, number % _A_SOURCE + np.uint64(1)
    heads = [np.full(count, base >> 64, np.uint64) for base in (_SOURCES, _DESTINATIONS)]
    columns = np.stack([heads[0], source, heads[1], destination], axis=1)
    return np.ascontiguousarray(columns.astype(">u8")).view(np.uint8).reshape(count, HOSTS6.key_bytes)


def ipv6_packets(keys: Keys) -> list[Packet]:
    """A datagram for each pair."""
    halves = keys.view(">u8").reshape(-1, 4).tolist()
    return [Packet(Family.IPV6, a << 64 | b, c << 64 | d, UDP, *_PORTS) for a, b, c, d in halves]


def measure_sixes(place: Layout, sizes: Sizes, step: Callable[[str], None]) -> Sixes:
    """Load each set, compare what passes with it, then look up. Raises Missing, Refused, Drifted."""
    found = Sixes()
    with ExitStack() as stack:
        routers: dict[int, Router] = {}
        for count in sizes.sixes:
            step(f"hash set of {count:,} pairs of IPv6")
            routers[count] = stack.enter_context(Router(f"{place.prefix}six{count}-"))
            _load_sixes(found, routers[count], count, sizes.singles)
            _check_sixes(routers[count], count)
        sent = ipv6_packets(ipv6_pairs(_FEW)) * (_EACH_ROUND // _FEW)
        for turn in range(sizes.lookups + 1):
            for count, router in routers.items():
                spent = router.cpu_ns(sent)
                if turn:  # a first round warms everything up
                    found.packet_ns.setdefault(count, []).append(spent)
    return found


def count_sixes_steps(sizes: Sizes) -> int:
    """Return how many steps `measure_sixes` tells of."""
    return len(sizes.sixes)


def record_sixes(results: Results, found: Sixes, sizes: Sizes) -> None:
    """Put the figures among a suite's."""
    least, most = min(sizes.sixes), max(sizes.sixes)
    results.figures[f"ipv6_gb_{most}"] = Figure.of([found.memory_bytes[most] / 1e9], "GB")
    results.figures[f"ipv6_octets_an_element_{most}"] = Figure.of([found.memory_bytes[most] / most], "octets")
    results.figures[f"ipv6_load_s_{most}"] = Figure.of([found.load_s[most]], "s")
    for count, taken in found.one_us.items():
        results.figures[f"ipv6_add_one_us_{count}"] = Figure.of([statistics.median(taken)], "us")
    same = ratios(found.packet_ns[most], found.packet_ns[least])
    results.figures[f"ipv6_lookup_cpu_{most}_vs_{least}"] = Figure.of(same, "ratio")


def _load_sixes(found: Sixes, router: Router, count: int, singles: int) -> None:
    router.run("nft", "-f", "-", text=MARKED_ONLY.replace("table ip ", "table ip6 "))
    table = PairTable()
    router.inside(ROUTER, table.create)
    keys = ipv6_pairs(count)
    found.memory_bytes[count], found.load_s[count] = grown_by(
        lambda: router.inside(ROUTER, lambda: table.load(HOSTS6, keys))
    )
    found.one_us[count] = router.inside(ROUTER, lambda: _sixes_singles_us(table, ipv6_pairs(singles, count)))


def _sixes_singles_us(table: PairTable, new: Keys) -> list[float]:
    """Measure the microseconds of pairs that are added one by one, and remove them again."""
    taken = []
    for key in new:
        began = time.perf_counter()
        table.add_one(HOSTS6, key.tobytes())
        taken.append(1e6 * (time.perf_counter() - began))
    table.change({}, {HOSTS6: new})
    return taken


def _check_sixes(router: Router, count: int) -> None:
    """Check that pairs of the set pass and others do not. Raises Drifted."""
    passing, strange = (
        router.fire(ipv6_packets(ipv6_pairs(_ASKED_SIXES, first))) for first in (count - _ASKED_SIXES, count)
    )
    if not all(passing) or any(strange):
        raise Drifted(f"of IPv6 {sum(passing)} of {_ASKED_SIXES} pairs pass, and {sum(strange)} that are none")
