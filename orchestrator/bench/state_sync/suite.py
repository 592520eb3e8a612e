"""The suite: cost and gain of shared connections, beside the alternatives."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from types import MappingProxyType

from orchestrator.bench.progress import Expected, Progress, Steps
from orchestrator.bench.results import Figure, Results, Target
from orchestrator.bench.state_sync import clustercuts, copies, failover, losses, matrix
from orchestrator.bench.state_sync.peers import Peers
from orchestrator.bench.state_sync.programs import Programs, Sharing, Spent
from orchestrator.bench.state_sync.syncworld import AT_ONCE, ENDS, MEMBERS, Between, Sizes, World
from orchestrator.bench.traffic.downloads import Downloads, Web
from orchestrator.bench.traffic.journal import Journal
from orchestrator.bench.traffic.talks import Cut
from orchestrator.errors import Drifted, Missing, Refused, Unreachable
from orchestrator.lab.layout import Layout
from orchestrator.lab.namespaces import need_root
from orchestrator.statesync.states import Confirmation, Context, Level


def run(*, quick: bool, progress: Progress, journal: Path | None = None) -> Results:
    """Run the suite.

    `quick` is shorter, with every setting; a run continues from its `journal`. Raises Missing for anybody but root.
    """
    return measure_suite(Sizes.quick() if quick else Sizes.full(), progress, journal=journal)


def expect_length(*, quick: bool) -> Expected:
    """How long a run is."""
    sizes = Sizes.quick() if quick else Sizes.full()
    settings = 3 * len(Context) * len(Confirmation) * len(MEMBERS) * len(AT_ONCE) + 4 * len(MEMBERS)
    copied = (len(MEMBERS) + 1) * _COPIES_AS + _LOST_AS * len(matrix.SYN_KINDS) * len(AT_ONCE)
    failed = 3 + _LOSSES_AS * len(losses.SETTINGS)
    return Expected(sizes.runs * (settings + 1 + len(_BESIDE) + copied) + failed * sizes.failovers, _EACH_S[quick])


def _count_steps(sizes: Sizes) -> int:
    return 5 * sizes.runs + 4 * sizes.failovers


def measure_suite(sizes: Sizes, progress: Progress, prefix: str = "ssb-", *, journal: Path | None = None) -> Results:
    """Measure. Raises Missing where a program is not installed."""
    need_root()
    settings = {**asdict(sizes), "members": list(MEMBERS)}
    results = Results("state-sync", settings)
    numbers = {each.name for kind in _ROWS for each in fields(kind)}
    numbers |= {*copies.NUMBERS, *copies.SWEPT_NUMBERS}
    kept = Journal(journal, {"suite": results.suite, **settings}, numbers)
    steps = Steps(progress, _count_steps(sizes))
    with ExitStack() as stack:
        world = stack.enter_context(World(MEMBERS[-1], prefix, between=Between.CABLES))
        programs = stack.enter_context(Programs(world))
        web = stack.enter_context(Web(world, _make_folder(stack), ENDS))
        matrix.conclude(results, matrix.measure(programs, web, sizes, steps, kept))
        matrix.measure_lost_syns(results, world, programs, web, sizes, steps, kept)
        others = stack.enter_context(World(MEMBERS[0], f"{prefix}p", between=Between.CABLES))
        folder = _make_folder(stack)
        peers = Peers(others, stack.enter_context(Web(others, folder, ENDS)), folder)
        _beside_peers(results, programs, web, peers, sizes, steps, kept)
        try:
            copies.measure(results, copies.Copies(others, folder), sizes, steps, kept)
        except (Missing, Refused) as error:
            results.absent["copies"] = str(error)
        try:
            clustercuts.measure(results, others, sizes, steps, kept)
        except (Missing, Drifted, Unreachable) as error:
            results.absent |= dict.fromkeys(clustercuts.FIGURES, str(error))
    try:
        losses.measure(results, f"{prefix}l", sizes, steps, kept)
    except (Missing, Refused, Unreachable) as error:
        results.absent |= dict.fromkeys(losses.FIGURES, str(error))
    try:
        failover.measure(results, sizes, steps, Layout(prefix), kept)
    except (Missing, Refused, Unreachable) as error:
        left = [each for each in (*failover.FIGURES, *failover.SCALING_FIGURES) if each not in results.figures]
        results.absent |= dict.fromkeys(left, str(error))
    results.notes += _NOTES
    return results


def _make_folder(stack: ExitStack) -> Path:
    return Path(stack.enter_context(tempfile.TemporaryDirectory()))


def _beside_peers(
    results: Results, programs: Programs, web: Web, peers: Peers, sizes: Sizes, steps: Steps, journal: Journal
) -> None:
    """Compare FULL, synchronous, in a cluster of three with what others offer; ways take turns."""
    found: dict[str, list[Downloads]] = {}
    order = random.Random(sizes.runs)  # noqa: S311  (an order to measure in)
    programs.share(Sharing(Level.FULL, Context.DIRTY, Confirmation.SYNCHRONOUS, MEMBERS[0]))
    for turn in range(sizes.runs):
        steps.next(f"conntrackd and Redis, run {turn + 1} of {sizes.runs}")
        for way in order.sample([_OURS, *peers.ways], 1 + len(peers.ways)):
            if way in results.absent:
                continue
            measure = web.download if way == _OURS else partial(peers.download, way)
            try:
                run = Downloads.recall_or_measure(
                    journal, f"{way} {turn}", partial(measure, sizes.downloads, AT_ONCE[0])
                )  # fmt: skip
            except (Missing, Refused, Unreachable) as error:
                results.absent[way] = str(error)
                continue
            found.setdefault(way, []).append(run)
    for way, (name, target) in _BESIDE.items():
        if way in results.absent:
            results.absent[f"vs_{name}_cpu"] = results.absent.pop(way)
            continue
        pairs = list(zip(found[_OURS], found[way], strict=True))
        ratios = [mine.cpu_each_us / other.cpu_each_us for mine, other in pairs]
        results.figures[f"vs_{name}_cpu"] = Figure.of(ratios, "1", target)
        ratios = [mine.setup_median_us / other.setup_median_us for mine, other in pairs]
        results.figures[f"vs_{name}_setup"] = Figure.of(ratios, "1")


_COPIES_AS = 25
"""A cluster of the database takes as long as so many other measurements."""
_LOST_AS, _LOSSES_AS = 3, 8
"""So many measurements does one with a lost SYN take, which waits a second, and one setting's losses."""
_EACH_S = {False: 0.8, True: 0.8}
"""How long a measurement takes, by whether the run is quick."""
_ROWS = (Downloads, Spent, failover.Seen, failover.Scaling, losses.Loss, Cut)
"""The records whose fields a journal keeps."""
_OURS = "ours"
_BESIDE: Mapping[str, tuple[str, Target | None]] = MappingProxyType(
    {
        "conntrack": ("conntrack_alone", None),
        "ftfw": ("conntrackd", Target(0.5)),
        "notrack": ("conntrackd_notrack", None),
        "redis": ("redis", None),
    }
)
"""Ways of others, their names in figures, and what the figure of processor time must reach."""
_NOTES = (
    "client, server (lighttpd, a page of one byte) and all members share this machine, and one of its processors: a "
    "message costs the owner, the virtual cable and the member, and all of it is in a connection's processor time",
    "ratios are of runs that follow each other, those of dirty writes to transactions of one round; NONE is measured "
    "once more for each context, confirmation and size",
    "full_sync_added_us: median set-up time of one download after another, FULL less NONE; the SYN-ACK is held. Here "
    "the server does not take the processor from the client that it wakes (SCHED_BATCH)",
    "..._program_us: microseconds a connection for which the programs ran (kernel.bpf_stats_enabled), on the owner and "
    "on all members together; the rest of what sharing costs is the kernel's, which carries messages",
    "full_sync_..._cpu_us: what sharing adds to a connection's processor time (FULL less NONE), divided. "
    "each_member: nine members add more than three, and a sixth of that is what one of the six further members takes; "
    "members: as many of these as there are beside the owner; owner: the rest; members_kernel: members' less the time "
    "for which their programs ran",
    "conntrackd (FTFW, NOTRACK: two firewalls) and Redis (a primary and two copies, WAIT 2) are Debian's, and counted "
    "with their processes; the firewall before Redis has only packets with SYN, FIN or RST wait, four of a connection",
    "copies_by_...: where the paper's oddities are looked for. A firewall keeps its connections in Erlang's database "
    "(Mnesia), with a copy in each member, all on one processor; a connection is three packets, each a transaction "
    "that looks it up and writes its state; synchronous, unless a figure says otherwise. by_key: looked up by the "
    "table's key; by_attribute: by something else, for which the database locks the whole table. restarts_...: how "
    "often a connection's transactions were begun again, after a pause, because another one had the lock",
    f"copies_swept, _unswept: tables that hold {copies.HELD:,} open connections, three members, means of 25 at once, "
    "looked up by the key; the table with half-open connections is read whole, in one activity, again and again "
    "(swept), or not. A packet that writes into a table which a transaction reads begins anew after a pause "
    "(swept_restarts, for each connection). At NONE that table has the open connections, too, at ESTABLISHED they have "
    "one of their own. swept_dirty: the same without transactions, which lock nothing",
    "lost_syns_...: mean set-up time (FULL, transactions, synchronous) of larger clusters in times of that of three "
    f"members whose firewall loses one SYN of {matrix.LOST_OF:,}; its client sends it again after a second. "
    "no_lost_syns_...: the same where it loses none",
    "lost_none, lost_established_..., lost_full_...: connections lost with their firewall, of 1,000 of which others "
    "had been told what the setting tells them, and of those of 100 more that opened while its messages were lost. The "
    "target is what the setting may lose: NONE all, asynchronous the 100, synchronous none",
    "failover: a lab with a spreading switch and three firewalls; 10,000 TCP connections are open, a connection begins "
    "every 20 ms and datagrams of 24 clients are answered every 4 ms; then a firewall neither forwards nor answers. "
    "detect_ms: until the switch's log has both of its ports down; gap_ms: until the last of these clients is "
    "answered again; takeover_ms: the difference. The switch's threads are real-time. The dead firewall's links stay "
    "up, so that nothing but its silence tells",
    "scaling: under the same load a fourth firewall starts empty, takes all connections and gets its part of the "
    "traffic (scale_out_s: until then), gives it back and leaves (scale_in_s); scaling_gap_ms: the longest time that a "
    "client waited for an answer meanwhile",
    "cut_10k_cluster: connections through one of three members, half of which speak from the server; new lists forbid "
    "a random tenth. _ms: from the file of lists to the last byte that one of these says and the other end hears, each "
    "speaking every 100 ms; members look at their file every quarter of a second, which is not in it. missed: "
    "forbidden ones that are heard in the last fifth of the time since then, which ends 5 s after the edit; lost: "
    "permitted ones that are not heard after the cut",
    "members' processes are not in the matrix: they do nothing for a connection unless a message is lost",
)
