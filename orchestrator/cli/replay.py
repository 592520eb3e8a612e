"""`aclflow replay`: what an access list would have decided about recorded traffic."""

from __future__ import annotations

import glob
import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.classify.captures import STDIN, Capture, open_capture
from orchestrator.classify.cluster import Question, replay_on
from orchestrator.classify.devices.choice import C, choose_device
from orchestrator.classify.devices.guarded import OnDevice
from orchestrator.classify.listdecider import Deciding
from orchestrator.classify.live import LiveCapture
from orchestrator.classify.overlay import MakeSearch
from orchestrator.classify.replay import Replay
from orchestrator.classify.replay import replay as replayed
from orchestrator.classify.search import Search
from orchestrator.cli.exitcodes import ANSWER_IS_NO
from orchestrator.cli.files import Read, read_files, whole
from orchestrator.cli.options import Reading, prefix_of, refuse_tracked, taking
from orchestrator.cli.replayreport import TABLES, draw_times, replay_json, replay_parts
from orchestrator.cli.tables import Line, Report
from orchestrator.cli.terminal import are, at_work, counting, remark, several
from orchestrator.errors import BadInput, Missing
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.model import Acl, Direction, ReturnTraffic

_MOST = 20
"""Lines of each table of the report."""


@dataclass(frozen=True, slots=True)
class ListReading(Reading):
    """How lists are read, where `--acl` names the list itself."""

    access_list: Annotated[
        list[str] | None,
        typer.Option("--list", help="Of several lists in a file, one to read, as NAME or NAME=egress."),
    ] = None


@dataclass(frozen=True, slots=True)
class Asking:
    """The tenant of the traffic, and how lists are asked about it."""

    own: Annotated[
        list[str] | None,
        typer.Option("--for", "--own", help="A prefix of the tenant's: packets to it are ingress, from it egress."),
    ] = None
    way: Annotated[
        Direction | None,
        typer.Option("--way", help="Of all packets, where no prefix of the tenant's is given; by default ingress."),
    ] = None
    return_traffic: Annotated[
        ReturnTraffic,
        typer.Option(
            "--return-traffic",
            callback=refuse_tracked,
            help="How the domain lets replies in; `explicit` judges the list by itself.",
        ),
    ] = ReturnTraffic.EXPLICIT

    def prefixes(self) -> tuple[Prefix, ...]:
        """The tenant's own. Raises BadInput."""
        return tuple(prefix_of(text, "--for") for text in self.own or ())

    def check(self) -> None:
        """Check that the options fit together. Raises BadInput."""
        if self.prefixes() and self.way is not None:
            raise BadInput("--for tells which way each packet goes: give one of the two", place="--way")

    def not_asked(self, read: Read) -> Iterator[str]:
        """Notes about rules that no packet is put to."""
        way = self.way or Direction.INGRESS
        left = [] if self.own else [rule for rule in read.acl.rules if rule.direction is not way]
        if left:
            other = left[0].direction.value
            rules = f"{several(len(left), f'{other} rule')} {are(len(left))} not asked"
            yield f"{read.name}: {rules} without --for or --way {other}"

    def question(self, acl: Acl, against: Acl | None) -> Question:
        """Lists and how they are asked, for workers elsewhere."""
        return Question(acl, against, self.prefixes(), self.way or Direction.INGRESS, self.return_traffic)

    def of(self, acl: Acl, searching: MakeSearch) -> Deciding:
        """A list that is ready to be asked."""
        return Deciding(
            acl,
            own=self.prefixes(),
            way=self.way or Direction.INGRESS,
            returns=self.return_traffic,
            searching=searching,
        )


@dataclass(frozen=True, slots=True)
class Live:
    """Traffic as it comes."""

    interface: Annotated[
        str | None,
        typer.Option("--interface", help="Listen to this interface instead of reading captures; needs root."),
    ] = None
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, help="How long to listen; Ctrl-C ends it before.")] = (
        10.0
    )

    def check(self, captures: Sequence[str]) -> None:
        """Raises BadInput unless either captures are named or an interface."""
        if bool(captures) is (self.interface is not None):
            raise BadInput("name captures, or an interface to listen to", place="CAPTURE")


@dataclass(frozen=True, slots=True)
class Engine:
    """The classifier of the packets."""

    device: Annotated[
        str,
        typer.Option(
            "--device", help="The device that searches: c, opencl, cuda or auto; `aclflow devices` lists them."
        ),
    ] = C
    dask: Annotated[
        str | None,
        typer.Option(
            "--dask",
            metavar="SCHEDULER",
            help="Replay on a Dask cluster, whose workers read captures by the same paths.",
        ),
    ] = None

    def check(self, live: Live, captures: Sequence[str]) -> None:
        """Raises BadInput for what no cluster can do."""
        if self.dask is None:
            return
        if self.device != C:
            raise BadInput("workers of a cluster search on their processors", place="--device")
        if live.interface is not None or STDIN in captures:
            raise BadInput("workers read captures from files", place="--dask")


@dataclass(frozen=True, slots=True)
class Showing:
    """The parts of a replay that are shown, and how."""

    report: Report
    most: Annotated[
        int | None,
        typer.Option("--most", min=0, help="Lines of each table, 0 for all; 20, and all of one that --table names."),
    ] = None
    by_time: Annotated[
        bool, typer.Option("--by-time", help="Show how many packets each interval of time has, by fate.")
    ] = False
    plot: Annotated[Path | None, typer.Option("--plot", metavar="DIR", help="Draw packets by time and fate there.")] = (
        None
    )

    def show(self, found: Replay) -> None:
        """Write tables, or the document.

        Raises Missing where there is nothing to draw a plot with.
        """
        plots = [] if self.plot is None else draw_times(found, self.plot)
        most = self.most if self.most is not None else _MOST if self.report.table is None else 0
        document = replay_json(found, most) | {"plots": [*map(str, plots)]} if self.report.is_document else None
        drawn = (Line(f"drawn: {path}") for path in plots)
        self.report.say(document, itertools.chain(replay_parts(found, most, by_time=self.by_time), drawn))


@taking
def replay(
    acl: Annotated[str, typer.Option("--acl", help="The access list; - is standard input.")],
    reading: ListReading,
    asking: Asking,
    live: Live,
    engine: Engine,
    showing: Showing,
    captures: Annotated[
        list[str] | None,
        typer.Argument(metavar="CAPTURE", help="pcap, pcapng or IPFIX, packed with gzip or not; - is standard input."),
    ] = None,
    against: Annotated[
        str | None, typer.Option("--against", help="The list that is in force: show what --acl would change.")
    ] = None,
) -> None:
    """Show what a list would have decided about recorded traffic, or decides about an interface's.

    Counts packets and bytes that it permits and denies, by rule, and the flows that it denies. A frame that is not IP,
    or of which too little was captured, is not decided, but counted apart. With --against it shows what would change,
    and ends with 1 if any packet's fate does.
    """
    names = [acl] if against is None else [acl, against]
    if [*names, *(captures or ())].count(STDIN) > 1:
        raise BadInput("standard input can be read only once")
    asking.check()
    showing.report.check(TABLES)
    files = _files(captures or ())
    live.check(files)
    engine.check(live, files)
    read = read_files(names, reading)
    lists = [whole(each, reading) for each in read]
    if engine.dask is not None:
        found = _on_cluster(engine.dask, files, asking.question(*lists, *([] if against else [None])))
    else:
        found = _here(files, live, lists, asking, engine.device)
    found.remarks[:0] = [text for each in read for text in asking.not_asked(each)]
    for each in found.remarks:
        remark(each)
    showing.show(found)
    if found.changed:
        raise typer.Exit(ANSWER_IS_NO)


def _files(patterns: Sequence[str]) -> list[str]:
    """Return the captures of names and of patterns such as `day-*.pcap.gz`.

    Raises Missing for a pattern that matches none.
    """
    found: list[str] = []
    for pattern in patterns:
        is_pattern = glob.has_magic(pattern) and not Path(pattern).exists()
        found += sorted(glob.glob(pattern, recursive=True)) if is_pattern else [pattern]
        if is_pattern and not found:
            raise Missing("no capture is called so", place=pattern)
    return found


def _here(files: Sequence[str], live: Live, lists: Sequence[Acl], asking: Asking, device: str) -> Replay:
    """Replay in this process."""
    on_device = _on_device(device)
    searching = Search if on_device is None else on_device.search
    with at_work(f"making {' and '.join(several(len(each.rules), 'rule') for each in lists)} ready"):
        deciding, *others = [asking.of(each, searching) for each in lists]
    against = others[0] if others else None
    if live.interface is None:
        found = _replay_files(files, deciding, against)
    else:
        with at_work(f"listening to {live.interface} for {live.seconds:g} s"):
            found = replayed([LiveCapture(live.interface, live.seconds)], deciding, against)
    found.remarks += [f"{device}: {why}" for why in (on_device.reasons() if on_device else ())]
    return found


def _on_cluster(scheduler: str, files: Sequence[str], question: Question) -> Replay:
    """Replay on a Dask cluster."""
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what fails is said by this command
    whole = sum(map(_size, files))
    with counting("replaying", total=100) as told:
        return replay_on(scheduler, files, question, told=partial(_tell, told, 0, whole))


def _on_device(name: str) -> OnDevice | None:
    """Return the maker of rows on a named device; None for C.

    Raises BadInput and Missing.
    """
    if name == C:
        return None
    device = choose_device(name)
    return None if device is None else OnDevice(device)


def _replay_files(names: Sequence[str], deciding: Deciding, against: Deciding | None) -> Replay:
    sizes = [_size(name) for name in names]
    whole = sum(sizes)
    with counting("replaying", total=100) if all(sizes) else _at_work("replaying") as told:

        def open_captures() -> Iterator[Capture]:
            for number, name in enumerate(names):
                behind = sum(sizes[:number])
                with open_capture(name, partial(_tell, told, behind, whole)) as capture:
                    yield capture

        return replayed(open_captures(), deciding, against)


@contextmanager
def _at_work(what: str) -> Iterator[Callable[[int], None]]:
    """Show that work goes on, without a count.

    It is for inputs of unknown length, as of a pipe.
    """
    with at_work(what):
        yield lambda _: None


def _tell(told: Callable[[int], None], behind: int, whole: int, read: int) -> None:
    """How far the replay is, in percent."""
    if whole:
        told(100 * (behind + read) // whole)


def _size(name: str) -> int:
    """Bytes of a file for the progress bar; 0 where that is not known."""
    try:
        return 0 if name == STDIN else Path(name).stat().st_size
    except (OSError, ValueError):
        return 0
