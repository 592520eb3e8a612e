"""The cost of a growing set: memory, loading, adding one element or a batch."""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from orchestrator.bench.firewall_server.pairs import (
    MARKED_ONLY,
    HashSet,
    intervals,
    pairs,
    typed_interval,
    typed_pair,
)
from orchestrator.bench.firewall_server.serversizes import Sizes
from orchestrator.lab.router import ROUTER, Router

_COUNTED = re.compile(r"^(SUnreclaim|VmallocUsed):\s+(\d+) kB", re.MULTILINE)
_LOOK_S = 1.0
_STILL_LOOKS = 3
_MOST_LOOKS = 60
_STILL_OCTETS = 1 << 20
"""By less than so much in a second it changes by itself."""


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
