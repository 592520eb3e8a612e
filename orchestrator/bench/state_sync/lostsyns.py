"""Whether lost SYNs explain that a cluster of three is slowest at 25 downloads.

In the paper, transactions of a cluster of three take longest at 25 at once, and shortest at 100. Ours do not. Here the
firewall of a cluster of three loses one SYN of two thousand, as a full queue or a transaction that gave up would, and
larger clusters lose none. The client sends it again after a second, which a mean set-up time shows and a median hides:
half a millisecond, that is much where a set-up takes less, and little at 100 at once, where it takes several.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import product
from typing import NamedTuple

from orchestrator.bench.progress import Steps
from orchestrator.bench.results import Figure, Results
from orchestrator.bench.state_sync.programs import OWNER, Programs, Sharing
from orchestrator.bench.state_sync.syncworld import AT_ONCE, MEMBERS, Sizes, World
from orchestrator.bench.traffic.downloads import Downloads, Web
from orchestrator.bench.traffic.journal import Journal
from orchestrator.errors import Refused
from orchestrator.statesync.states import Confirmation, Context, Level

LOST_OF = 2_000
"""One SYN of so many is lost."""


class Kind(NamedTuple):
    """A cluster of so many members, whose firewall loses SYNs or does not."""

    members: int
    loses: bool


KINDS = (Kind(MEMBERS[0], True), *(Kind(members, False) for members in MEMBERS))


def measure(
    results: Results, world: World, programs: Programs, web: Web, sizes: Sizes, steps: Steps, journal: Journal
) -> None:
    """Record the figures. Raises Refused where downloads fail."""
    found: dict[tuple[Kind, int], list[float]] = {}
    order = random.Random(sizes.runs)  # noqa: S311  (an order to measure in)
    for turn in range(sizes.runs):
        steps.next(f"lost SYNs, run {turn + 1} of {sizes.runs}")
        for at_once in AT_ONCE:
            for kind in order.sample(KINDS, len(KINDS)):
                download = partial(_download, world, programs, web, kind, sizes.downloads, at_once)
                run = Downloads.recall_or_measure(journal, f"lost SYNs {turn}: {kind}, {at_once} at once", download)
                found.setdefault((kind, at_once), []).append(run.setup_mean_us)
    conclude(results, found)


def _download(world: World, programs: Programs, web: Web, kind: Kind, count: int, at_once: int) -> Downloads:
    """Download through a cluster shared in this way. Raises Refused where one fails."""
    programs.share(Sharing(Level.FULL, Context.TRANSACTION, Confirmation.SYNCHRONOUS, kind.members))
    with _counting_syns(world, "drop" if kind.loses else "accept"):
        run = web.download(count, at_once)
    if run.failed:
        raise Refused(f"{run.failed} of {count} downloads failed ({kind}, {at_once} at once)")
    return run


@contextmanager
def _counting_syns(world: World, verdict: str) -> Iterator[None]:
    """Have the firewall count SYNs in the block, and drop or accept one of 2,000.

    So both kinds of a cluster do the same work.
    """
    syn = f"tcp flags & (syn | ack) == syn numgen inc mod {LOST_OF} == 0"
    chain = f"chain f {{ type filter hook forward priority 0; {syn} {verdict}; }}"
    world.run(OWNER, "nft", "-f", "-", text=f"table ip lostsyns {{ {chain}; }}")
    try:
        yield
    finally:
        world.run(OWNER, "nft", "delete", "table", "ip", "lostsyns")


def conclude(results: Results, found: Mapping[tuple[Kind, int], Sequence[float]]) -> None:
    """Record the ratio of larger clusters' mean set-up time to that of three members.

    `found` has the means of each kind by its downloads at once, in the order of rounds.
    """
    for at_once, members, loses in product(AT_ONCE, MEMBERS[1:], (False, True)):
        larger, three = found[Kind(members, False), at_once], found[Kind(MEMBERS[0], loses), at_once]
        ratios = [one / other for one, other in zip(larger, three, strict=True)]
        name = "lost_syns" if loses else "no_lost_syns"
        results.figures[f"{name}_{at_once}_{members}_members_vs_3"] = Figure.of(ratios, "1")
