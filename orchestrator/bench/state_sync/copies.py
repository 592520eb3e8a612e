"""The paper's oddities: connections in Erlang's database, copied to each member.

The paper's prototype is such a firewall. Ours shows none of its oddities, so this one is measured beside it. A
connection is looked up by the table's key, or by another attribute, for which the database locks the whole table.
`_native/copies.erl` is the firewall; its packets do not leave it, so what is measured is the database alone.

The paper says of level ESTABLISHED, faster than NONE in transactions: "more balanced database tables". So the tables
are also measured with many open connections in them, while something reads the one that has half-open connections,
whole in one transaction, as any firewall does to find those whose time is over: theirs is the shortest. At NONE all
connections are in that table, and every packet of a handshake waits for the reader; at ESTABLISHED those that opened
are in another one, and the reader is through at once.
"""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import product
from pathlib import Path

from orchestrator.bench.progress import Steps
from orchestrator.bench.results import Figure, Results
from orchestrator.bench.state_sync.syncworld import AT_ONCE, MEMBERS, Sizes, World
from orchestrator.bench.traffic.journal import Journal
from orchestrator.errors import Missing, Refused

LEVELS = ("none", "established", "full")
ACTIVITIES = ("transaction", "sync_transaction")
"""The database's words for transactions with asynchronous and with synchronous confirmation."""
LOOK_UPS = ("key", "attribute")
NUMBERS = tuple(
    f"{' '.join(map(str, setting))} {number}"
    for setting in product(LEVELS, ACTIVITIES, LOOK_UPS, AT_ONCE)
    for number in ("us", "restarts")
)
"""Of each setting the median set-up time, and transactions begun again for each connection."""
HELD = 100_000
"""Open connections in the tables while one is swept: as many as the paper's ten runs have downloads."""
_SWEPT_AT_ONCE = 25
SWEPT_NUMBERS = tuple(
    f"{' '.join(map(str, setting))} {_SWEPT_AT_ONCE} {number}"
    for setting in product(LEVELS[:2], ("sync_transaction", "sync_dirty"), ("swept", "unswept"))
    for number in ("us", "restarts")
)
"""Of tables that hold connections, swept or not: the mean set-up time, and transactions begun again."""
_SOURCE = Path(__file__).with_name("_native") / "copies.erl"
_EPMD_PORT = "4370"
_PATIENCE_S = 300.0
_EVERY = 20
"""A connection here for so many downloads of the matrix: the database takes a millisecond for one."""


class Copies:
    """The database in clusters of any size, all in one namespace and on one processor."""

    def __init__(self, world: World, folder: Path) -> None:
        self._world, self._folder = world, folder
        self._processor = max(os.sched_getaffinity(0))
        self._environment = {**os.environ, "HOME": str(folder), "ERL_EPMD_PORT": _EPMD_PORT}
        self._cookie = secrets.token_hex(16)
        try:
            done = subprocess.run(
                ["erlc", "-o", str(folder), str(_SOURCE)], capture_output=True, text=True, check=False
            )  # fmt: skip
        except FileNotFoundError:
            raise Missing("there is no Erlang here: apt-get install erlang-mnesia") from None
        if done.returncode:
            raise Refused(f"erlc: {(done.stdout + done.stderr).strip()[:2000]}")

    def measure(self, members: int, connections: int, seed: int) -> dict[str, float]:
        """Return the numbers of every setting in a cluster of this size. Raises Refused."""
        text = self._run(members, "main", connections, seed)
        return dict(_read(text, connections, NUMBERS))

    def measure_swept(self, members: int, connections: int, seed: int) -> dict[str, float]:
        """Return the numbers of tables that hold connections, swept or not. Raises Refused."""
        text = self._run(members, "swept", connections, seed, HELD)
        return dict(_read(text, connections, SWEPT_NUMBERS))

    def _run(self, members: int, function: str, *numbers: int) -> str:
        with ExitStack() as stack:
            self._start(stack, "epmd", "-port", _EPMD_PORT)
            for number in range(2, members + 1):
                self._start(stack, *self._command(number))
            words = ("-run", "copies", function, str(members), *map(str, numbers))
            run = partial(subprocess.run, env=self._environment, timeout=_PATIENCE_S)
            try:
                done = self._world.inside(
                    1, lambda: run((*self._command(1), *words), capture_output=True, text=True, check=False)
                )
            except subprocess.TimeoutExpired:
                raise Refused(f"copies: {members} members do not end") from None
        if done.returncode:
            raise Refused(f"copies: {(done.stdout + done.stderr).strip()[:1000]}")
        return done.stdout

    def _command(self, number: int) -> tuple[str, ...]:
        """Return the command that starts an Erlang node of this number."""
        name = ("-name", f"m{number}@127.0.0.1", "-setcookie", self._cookie)
        where = ("-start_epmd", "false", "-kernel", "inet_dist_use_interface", "{127,0,0,1}", "-pa", str(self._folder))
        return ("taskset", "--cpu-list", str(self._processor), "erl", "+S", "1:1", "-noinput", *name, *where)

    def _start(self, stack: ExitStack, *command: str) -> None:
        process = self._world.inside(
            1,
            lambda: subprocess.Popen(
                command, env=self._environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            ),
        )
        stack.callback(_end_process, process)


def _end_process(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _read(text: str, connections: int, names: Sequence[str]) -> Iterator[tuple[str, float]]:
    """Read what the program prints, by `names` of numbers.

    Raises Refused where something is missing.
    """
    lines = [line.split() for line in text.splitlines()]
    found = {" ".join(words[:4]): (float(words[4]), float(words[5]) / connections) for words in lines}
    for name in names:
        setting, _, number = name.rpartition(" ")
        if setting not in found:
            raise Refused(f"copies: it says nothing of {setting}: {text[:500]}")
        yield name, found[setting][number == "restarts"]


def measure(results: Results, copies: Copies, sizes: Sizes, steps: Steps, journal: Journal) -> None:
    """Record the figures."""
    found: dict[int, list[Mapping[str, float]]] = {members: [] for members in MEMBERS}
    for turn in range(sizes.runs):
        steps.next(f"a database with copies, run {turn + 1} of {sizes.runs}")
        for members in MEMBERS:
            run = partial(copies.measure, members, max(sizes.downloads // _EVERY, *AT_ONCE), turn)
            found[members].append(journal.row(f"copies {turn}: {members} members", run))
    for look_up, at_once in product(LOOK_UPS, AT_ONCE):
        _conclude(results, found, look_up, at_once)
    swept: list[Mapping[str, float]] = []
    for turn in range(sizes.runs):
        steps.next(f"a database whose tables are swept, run {turn + 1} of {sizes.runs}")
        run = partial(copies.measure_swept, MEMBERS[0], max(sizes.downloads // _EVERY, *AT_ONCE), turn)
        swept.append(journal.row(f"copies {turn}: swept", run))
    conclude_swept(results, swept)


def conclude_swept(results: Results, runs: Sequence[Mapping[str, float]]) -> None:
    """Record the time of ESTABLISHED in times of NONE.

    With sweeps, without, and with sweeps that lock nothing.
    """
    for what, activity, sweeps in (
        ("swept", "sync_transaction", "swept"),
        ("unswept", "sync_transaction", "unswept"),
        ("swept_dirty", "sync_dirty", "swept"),
    ):
        essential, alone = (f"{level} {activity} {sweeps} {_SWEPT_AT_ONCE}" for level in ("established", "none"))
        ratios = [run[f"{essential} us"] / run[f"{alone} us"] for run in runs]
        results.figures[f"copies_{what}_established_vs_none"] = Figure.of(ratios, "1")
    for level in LEVELS[:2]:
        restarts = [run[f"{level} sync_transaction swept {_SWEPT_AT_ONCE} restarts"] for run in runs]
        results.figures[f"copies_swept_restarts_{level}"] = Figure.of(restarts, "1")


def _conclude(results: Results, found: Mapping[int, Sequence[Mapping[str, float]]], look_up: str, at_once: int) -> None:
    name, runs = f"copies_by_{look_up}_{at_once}", found[MEMBERS[0]]
    late, sure, essential, alone = (
        f"{level} {activity} {look_up} {at_once}"
        for level, activity in (
            ("full", "transaction"), ("full", "sync_transaction"), ("established", "sync_transaction"),
            ("none", "sync_transaction"),
        )
    )  # fmt: skip

    def add(what: str, values: Sequence[float]) -> None:
        results.figures[f"{name}_{what}"] = Figure.of(values, "1")

    add("sync_vs_async", [run[f"{sure} us"] / run[f"{late} us"] for run in runs])
    add("restarts_async", [run[f"{late} restarts"] for run in runs])
    add("restarts_sync", [run[f"{sure} restarts"] for run in runs])
    add("established_vs_none", [run[f"{essential} us"] / run[f"{alone} us"] for run in runs])
    for members in MEMBERS[1:]:
        pairs = zip(found[members], runs, strict=True)
        add(f"{members}_members_vs_3", [larger[f"{sure} us"] / run[f"{sure} us"] for larger, run in pairs])
