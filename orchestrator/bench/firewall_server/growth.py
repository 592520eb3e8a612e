"""The cost of a growing set: memory, loading, adding one element or a batch."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from orchestrator.bench.firewall_server.kernelmemory import grown_by
from orchestrator.bench.firewall_server.pairs import (
    MARKED_ONLY,
    HashSet,
    intervals,
    pairs,
    typed_interval,
    typed_pair,
)
from orchestrator.bench.firewall_server.sizes import Sizes
from orchestrator.lab.router import ROUTER, Router


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
    load_s = _seconds(lambda: router.run("nft", "-f", "-", text=script))
    typed_ms = _typed_ms(router, map(typed_interval, range(sizes.typed)))
    return Growth(count, load_s, None, None, None, typed_ms)


def _singles_us(held: HashSet, count: int, singles: int) -> float:
    """Return the median microseconds to add one pair.

    So many are added one after the other, and removed again.
    """
    new = pairs(singles, count)
    taken = [_seconds(partial(held.add_one, key.tobytes())) for key in new]
    held.remove(new)
    return statistics.median(taken) * 1e6


def _batch_us(held: HashSet, count: int, batch: int) -> float:
    """Microseconds a pair of a batch, in one transaction; taken away again."""
    new = pairs(batch, count)
    seconds = _seconds(lambda: held.add(new))
    held.remove(new)
    return seconds / batch * 1e6


def _typed_ms(router: Router, commands: Iterable[tuple[str, ...]]) -> float:
    """Milliseconds that `nft` takes to add one element, from its start to its end."""
    return statistics.median(_seconds(partial(router.run, *typed)) for typed in commands) * 1000


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
