"""`aclflow statesync ...`, `aclflow firewall cluster`: firewalls that share connections."""

from __future__ import annotations

import ipaddress
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from orchestrator.cli import complete
from orchestrator.cli.connection import service
from orchestrator.cli.exitcodes import ANSWER_IS_NO
from orchestrator.cli.options import Url, taking
from orchestrator.cli.tables import Line, Report, Table
from orchestrator.cli.terminal import complain
from orchestrator.errors import AclflowError, BadInput, Conflict, Missing
from orchestrator.logs import configure_logging
from orchestrator.scaling.buckets import BUCKETS
from orchestrator.settings import load
from orchestrator.statesync.kernel import Replicator
from orchestrator.statesync.layout import HIGHEST_MEMBER, MOST_MEMBERS, NOWHERE, Settings
from orchestrator.statesync.lists import read_lists
from orchestrator.statesync.member import Member
from orchestrator.statesync.states import Confirmation, Context, Level
from orchestrator.statesync.status import PROTOCOLS, Status, StatusServer, ask_all, read_place

Choice = TypeVar("Choice", bound=IntEnum)


@dataclass(frozen=True, slots=True)
class Sharing:
    """How much is shared, and how surely."""

    level: Annotated[str, typer.Option("--level", help="none, established or full: what is shared.")] = "full"
    context: Annotated[str, typer.Option("--context", help="dirty (at once) or transaction (in two phases).")] = "dirty"
    confirmation: Annotated[
        str, typer.Option("--confirmation", help="asynchronous, or synchronous: packets wait until all have confirmed.")
    ] = "synchronous"


@dataclass(frozen=True, slots=True)
class Oversight:
    """The state of a member that operators see, and the settings that they give."""

    metrics: Annotated[
        str | None, typer.Option("--metrics", help="ADDRESS:PORT to serve its state at, to operators and Prometheus.")
    ] = None
    lists: Annotated[
        Path | None, typer.Option("--lists", help="JSON file of the tenants' lists: what it forbids is closed at once.")
    ] = None


_FOR_OTHERS = 0o077
_LOOK_S = 0.25
"""So often the file of lists is looked at."""
_DRAIN_S, _QUIET_S = 5.0, 0.2
"""A switch gives a firewall up after 40 ms without an answer; where nothing came for longer, nothing comes any more."""


@taking
def run(
    number: Annotated[int, typer.Option("--self", help="This member's number, 1 to 15.")],
    member: Annotated[list[str], typer.Option("--member", help="NUMBER=ADDRESS of each member, this one too.")],
    interface: Annotated[list[str], typer.Option("--interface", help="An interface whose traffic is filtered.")],
    messages: Annotated[list[str], typer.Option("--messages", help="An interface by which members' messages come.")],
    key_file: Annotated[Path, typer.Option("--key-file", help="The cluster's key: 32 hexadecimal digits.")],
    sharing: Sharing,
    oversight: Oversight,
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="UDP and TCP port of all members.")] = 3781,
    silent_s: Annotated[float, typer.Option("--silent", min=0.1, help="Seconds until a silent member is left.")] = 1.0,
) -> None:
    """Be a member of a firewall cluster until stopped.

    Without it, its programs on interfaces go away. Stopped by SIGTERM it first takes no traffic from its spreading
    switch any more, and goes when none comes.
    """
    addresses = dict(_member(text) for text in member)
    if number not in addresses:
        raise BadInput(f"member {number} itself is not among the members", place="--member")
    settings = Settings(
        number, addresses.pop(number), _key(key_file), _choice(Level, sharing.level, "--level"),
        _choice(Context, sharing.context, "--context"),
        _choice(Confirmation, sharing.confirmation, "--confirmation"), port=port,
    )  # fmt: skip
    mark = None if oversight.lists is None else _mark(oversight.lists)  # before it is read: a later file is another one
    given = None if oversight.lists is None else read_lists(oversight.lists)
    shown_at = None if oversight.metrics is None else read_place(oversight.metrics, "--metrics")
    configure_logging(load())
    kernel = Replicator.new()
    this = Member(settings, addresses, kernel, silent_s=silent_s)
    ended = threading.Event()
    for number_of_signal in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number_of_signal, lambda *_: ended.set())
    server = None if shown_at is None else _shown(shown_at, kernel, this)
    kernel.attach(interface, messages)
    if given is not None:
        this.hold_to(given)
    this.start()
    try:
        _wait(ended, oversight.lists, mark, this)
        _drain(kernel, this)
    finally:
        if server is not None:
            server.close()
        this.stop()  # first, for others wait for it until its sessions end
        kernel.detach(interface, messages)
        kernel.close()


def _wait(ended: threading.Event, lists: Path | None, before: _Mark | None, member: Member) -> None:
    """Wait for the end; until then check connections by the file of lists.

    They are checked whenever the file is another one than `before`.
    """
    while not ended.wait(None if lists is None else _LOOK_S):
        assert lists is not None
        now = _mark(lists)
        if now == before:
            continue
        before = now
        try:
            member.hold_to(read_lists(lists))
        except AclflowError as error:
            complain(f"the lists are as they were: {error}")


_Mark = tuple[int, int, int]


def _mark(file: Path) -> _Mark | None:
    """Follow a file that changes; None: it is not there."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _drain(kernel: Replicator, member: Member) -> None:
    """Tell the switch to send no traffic, and return when none comes.

    It returns after some seconds in any case. Other members hold its connections already, so the switch may give them
    to anybody.
    """
    member.leave()
    until, quiet_since, before = time.monotonic() + _DRAIN_S, time.monotonic(), _packets(kernel)
    while time.monotonic() < min(until, quiet_since + _QUIET_S):
        time.sleep(_QUIET_S / 10)
        if (now := _packets(kernel)) != before:
            before, quiet_since = now, time.monotonic()


def _packets(kernel: Replicator) -> int:
    """Return how many packets the replicator has looked at."""
    counted = kernel.counters()
    return counted["passed"] + counted["changes"]


def _shown(place: tuple[str, int], kernel: Replicator, member: Member) -> StatusServer:
    """Serve a member's status at an address. Raises BadInput where that is taken."""
    try:
        return StatusServer(*place, lambda: Status.of(kernel, member))
    except OSError as error:
        raise BadInput(f"cannot serve at {place[0]}:{place[1]}: {error.strerror}", place="--metrics") from None


@taking
def cluster(
    member: Annotated[list[str], typer.Argument(help="ADDRESS:PORT of each member's --metrics.")],
    report: Report,
    spread: Annotated[
        str | None,
        typer.Option(
            "--spread",
            metavar="DOMAIN",
            help="The domain whose traffic they carry: shows what each owns.",
            autocompletion=complete.domains,
        ),
    ] = None,
    url: Url = None,
) -> None:
    """Show the members of a firewall cluster.

    Shown are who serves, who follows whom, what lags, what is held, and connections by state. Status 1: a member does
    not answer, does not serve, is not whole, or lags.
    """
    found = ask_all(member)
    owned = None if spread is None else _read_owned(spread, url)
    columns: tuple[str, ...] = (
        "at", "member", "serves", "whole", "followers", "messages missing", "held", "open", "brief",
    )  # fmt: skip
    document: dict[str, dict[str, Any]] = {
        where: {"why": each} if isinstance(each, str) else asdict(each) for where, each in found.items()
    }
    rows: list[tuple[object, ...]] = [(where, *_row(each)) for where, each in found.items()]
    if owned is not None:
        columns = (*columns, "owns")
        rows = [(*row, _name_owned(each, owned)) for row, each in zip(rows, found.values(), strict=True)]
        for where, each in found.items():
            if isinstance(each, Status):
                document[where]["buckets"] = owned.get(each.member, 0)
    known = [each for each in found.values() if isinstance(each, Status)]
    kinds = ("protocol", "state", *(f"member {each.member}" for each in known))
    report.say(document, (Table("members", columns, rows), Table("states", kinds, _count_states(known))))
    if not all(isinstance(each, Status) and each.is_well for each in found.values()):
        raise typer.Exit(ANSWER_IS_NO)


def _read_owned(domain: str, url: str | None) -> Mapping[int, int]:
    """Return how many buckets of a domain's traffic each member owns, by its number."""
    with service(url) as client:
        return {each.carrier.number: each.buckets for each in client.spread.read(domain).firewalls}


def _name_owned(status: Status | str, owned: Mapping[int, int]) -> str:
    return "-" if isinstance(status, str) else f"{owned.get(status.member, 0)} of {BUCKETS}"


def _count_states(members: Sequence[Status]) -> list[tuple[object, ...]]:
    """Return a row for each protocol and state, with a column for each member."""
    counts = [{(kind.protocol, kind.state): kind.count for kind in each.states} for each in members]
    found = sorted({kind for each in counts for kind in each})
    return [(*kind, *(each.get(kind, 0) for each in counts)) for kind in found]


def _row(status: Status | str) -> tuple[str, ...]:
    """Return a member's status as a row of a table."""
    if isinstance(status, str):
        return ("-", "does not answer", "-", "-", "-", "-", "-", "-")
    lags = " ".join(f"{each.member}:{each.lag}" for each in status.followed) or "-"
    opened, brief = (status.connections(opened=opened) for opened in (True, False))
    return (
        str(status.member), "yes" if status.serves else "no", "yes" if status.is_whole else "no",
        " ".join(map(str, status.followers)) or "-", lags, str(status.held), str(opened), str(brief),
    )  # fmt: skip


@taking
def show(report: Report) -> None:
    """Show the member that runs here: settings, followers, states by kind, held packets, counters."""
    kernel = Replicator.attached_here()
    settings = kernel.settings()
    states = [(PROTOCOLS.get(each, str(each)), state.name, count) for (each, state), count in kernel.states().items()]
    streams = {number: kernel.stream(number, 0) for number in range(1, 16)}
    found = {
        "member": settings.number,
        "level": settings.level.name.lower(),
        "context": settings.context.name.lower(),
        "confirmation": settings.confirmation.name.lower(),
        "followers": sorted(settings.members),
        "followed": {str(number): stream.missing for number, stream in streams.items() if stream.is_open},
        "held": int((kernel.waiting() != 0).sum()),
        "states": [{"protocol": protocol, "state": state, "count": count} for protocol, state, count in sorted(states)],
        "counters": kernel.counters(),
    }
    shared = f"level {found['level']}, {found['context']}, {found['confirmation']}"
    members = [
        (number, "yes" if number in settings.members else "no", stream.missing if stream.is_open else "-")
        for number, stream in streams.items()
        if number in settings.members or stream.is_open
    ]
    counters = [(name, count) for name, count in kernel.counters().items() if count]
    parts = (
        Line(f"member {settings.number}: {shared}; {found['held']} packets held"),
        Table("members", ("member", "follows", "messages missing"), members),
        Table("states", ("protocol", "state", "connections"), sorted(states)),
        Table("counters", ("counter", "count"), counters),
    )
    report.say(found, parts)


def change(
    level: Annotated[str | None, typer.Option("--level", help="none, established or full.")] = None,
    context: Annotated[str | None, typer.Option("--context", help="dirty or transaction.")] = None,
    confirmation: Annotated[str | None, typer.Option("--confirmation", help="asynchronous or synchronous.")] = None,
) -> None:
    """Change how the member that runs here shares, until it is started again.

    The change counts from the next packet on.
    """
    kernel = Replicator.attached_here()
    settings = kernel.settings()
    kernel.configure(
        replace(
            settings,
            level=settings.level if level is None else _choice(Level, level, "--level"),
            context=settings.context if context is None else _choice(Context, context, "--context"),
            confirmation=(
                settings.confirmation if confirmation is None else _choice(Confirmation, confirmation, "--confirmation")
            ),
        )
    )


def add(
    member: Annotated[list[str], typer.Argument(help="NUMBER=ADDRESS of each member that is to take part.")],
) -> None:
    """Let more members take part, while packets pass.

    Say it to each member that runs, then start the new ones.
    """
    kernel = Replicator.attached_here()
    known = {**kernel.member_addresses(), (own := kernel.settings()).number: own.address}
    new = dict(_member(text) for text in member)
    for number, address in new.items():
        if not 1 <= number <= HIGHEST_MEMBER:
            raise BadInput(f"{number} is not in 1..{HIGHEST_MEMBER}", place="MEMBER")
        if known.get(number, address) != address:
            raise BadInput(f"member {number} is at {known[number]}", place="MEMBER")
    if len(known.keys() | new.keys()) > MOST_MEMBERS:
        raise BadInput(f"a cluster has at most {MOST_MEMBERS} members", place="MEMBER")
    for number in new.keys() - known.keys():
        kernel.set_member(number, new[number])


def remove(
    member: Annotated[list[int], typer.Argument(help="The number of each member that is to take part no more.")],
) -> None:
    """Free the numbers of members that have left, while packets pass.

    Stop these first. Say it to each member that runs: it tries them no more, and others may take their place.
    """
    kernel = Replicator.attached_here()
    known, followers = kernel.member_addresses(), kernel.settings().members
    for number in member:
        if number not in known:
            raise BadInput(f"member {number} is none of this cluster", place="MEMBER")
        if number in followers:
            raise Conflict(f"member {number} takes part: stop it first, so that no packet waits for it", place="MEMBER")
    for number in member:
        kernel.set_member(number, NOWHERE)


def _member(text: str) -> tuple[int, str]:
    """Read `NUMBER=ADDRESS`. Raises BadInput."""
    number, _, address = text.partition("=")
    if not number.isdecimal() or not address:
        raise BadInput(f"'{text}' is not NUMBER=ADDRESS", place="--member")
    try:
        return int(number), str(ipaddress.IPv4Address(address))
    except ValueError:
        raise BadInput(f"'{address}' is not an IPv4 address", place="--member") from None


def _choice(kind: type[Choice], text: str, place: str) -> Choice:
    try:
        return kind[text.upper()]
    except KeyError:
        names = ", ".join(each.name.lower() for each in kind)
        raise BadInput(f"'{text}' is none of {names}", place=place) from None


def _key(path: Path) -> bytes:
    """Read the cluster's key from a file that nobody else may read."""
    try:
        if path.stat().st_mode & _FOR_OTHERS:
            raise BadInput(f"others may read {path}, and who has it is a member: chmod 600", place="--key-file")
        return bytes.fromhex(path.read_text().strip())
    except OSError as error:
        raise Missing(f"{path}: {error.strerror}") from None
    except ValueError:
        raise BadInput(f"{path} does not hold 32 hexadecimal digits", place="--key-file") from None
