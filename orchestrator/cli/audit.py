"""`aclflow audit`: who did what, and whether anybody has touched the record of it."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import orjson
import typer

from orchestrator.cli import complete
from orchestrator.cli.connection import service
from orchestrator.cli.exitcodes import ANSWER_IS_NO
from orchestrator.cli.options import AsJson, Url, taking, time_of
from orchestrator.cli.tables import Shown
from orchestrator.cli.terminal import complain, remark, say, say_json
from orchestrator.client import Client
from orchestrator.errors import BadInput, Missing
from orchestrator.identity.trail import Verified, Verifier
from orchestrator.wire.audit import AuditAnchor, AuditEntry
from orchestrator.wire.codec import decode, encode

_ANCHOR = '{"anchor":'


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which entries."""

    tenant: Annotated[
        str | None,
        typer.Option("--tenant", "-t", help="Only what is about this one.", autocompletion=complete.tenants),
    ] = None
    who: Annotated[str | None, typer.Option("--who", help="Only by this one: admin:1, member:7, service.")] = None
    kind: Annotated[str | None, typer.Option("--kind", help="Only of this kind.", autocompletion=complete.kinds)] = None
    subject: Annotated[str | None, typer.Option("--subject", help="Only what was done to this one.")] = None
    since: Annotated[str | None, typer.Option("--since", help="From then on: 2026-11-24 12:00, yesterday.")] = None
    until: Annotated[str | None, typer.Option("--until", help="Only before then.")] = None

    @property
    def query(self) -> dict[str, str | None]:
        """The filters as the service takes them. Raises BadInput."""
        since = None if self.since is None else time_of(self.since, "--since").isoformat()
        until = None if self.until is None else time_of(self.until, "--until").isoformat()
        return {
            "tenant": self.tenant,
            "who": self.who,
            "kind": self.kind,
            "subject": self.subject,
            "since": since,
            "until": until,
        }


@taking
def list_all(
    chosen: Chosen,
    shown: Shown,
    last: Annotated[int, typer.Option("--last", min=1, max=100_000, help="So many of the newest.")] = 50,
    url: Url = None,
) -> None:
    """List entries of the audit trail, oldest first.

    Administrators see all, members those about their tenant.
    """
    with service(url) as client:
        found = _newest(client, chosen, last)
    shown.say(
        found,
        ("entry", "time", "who", "address", "what", "on what", "result", "detail"),
        (
            (
                one.id,
                f"{one.time:%Y-%m-%d %H:%M:%S}",
                one.who,
                one.address,
                one.kind,
                one.subject,
                one.result,
                ", ".join(f"{name} {value}" for name, value in one.detail.items() if name != "by"),
            )
            for one in found
        ),
    )


@taking
def show(
    entry: Annotated[int, typer.Argument(metavar="ENTRY", min=1, help="Its number, of `aclflow audit list`.")],
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show one entry of the audit trail with its digests and chain."""
    with service(url) as client:
        one = client.audit.read_entry(entry)
    if as_json:
        say_json(one)
        return
    say(f"{one.who} from {one.address or 'nowhere'}, {one.time:%Y-%m-%d %H:%M:%S} UTC: {one.kind} {one.subject}")
    say(f"result   {one.result}")
    for name, value in one.detail.items():
        say(f"{name:8} {value}")
    say(f"before   {one.before or '-'}")
    say(f"after    {one.after or '-'}")
    say(f"chain    {one.chain}, entry {one.number}, hash {one.hash}")


@taking
def export(
    file: Annotated[Path | None, typer.Argument(help="Where to; without it, standard output.")] = None,
    chosen: Chosen = Chosen(),
    url: Url = None,
) -> None:
    """Write the audit trail as lines of JSON: anchors, then entries.

    Without filters it can be verified anywhere.
    """
    query = chosen.query
    with service(url) as client:
        anchors = [] if any(query.values()) else [*client.audit.read_anchors()]
        lines = itertools.chain(
            (b'{"anchor":' + encode(each) + b"}\n" for each in anchors),
            (b'{"entry":' + encode(each) + b"}\n" for each in client.audit.read_entries(query)),
        )
        if file is None:
            sys.stdout.buffer.writelines(lines)
            return
        try:
            with file.open("wb") as out:
                out.writelines(lines)
        except OSError as error:
            raise Missing(f"cannot be written: {error.strerror}", place=str(file)) from None


@taking
def verify(
    file: Annotated[
        Path | None, typer.Argument(help="A file that `aclflow audit export` wrote; without it, the service is asked.")
    ] = None,
    anchors: Annotated[
        list[Path] | None,
        typer.Option(
            "--anchors", help="The anchors that the sink has: the file of anchors, or a collector's log; repeat it."
        ),
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option("--key", help="A service's public key, or its key.pub, to believe alone; repeat it."),
    ] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Find out whether entries of the audit trail were tampered with, and where.

    They may have been changed, moved, deleted or cut off. Anchors from the sink make the result worth much: those
    that the database has were in the same hands.
    """
    outside = [anchor for path in anchors or () for anchor in anchors_in(path)]
    keys = frozenset(_key(text) for text in key or ())
    if file is not None:
        result = _verify_entries([*outside, *anchors_in(file)], keys, _read_entries(file))
    else:
        with service(url) as client:
            inside = [*client.audit.read_anchors()]
            result = _verify_entries([*outside, *inside], keys, client.audit.read_entries())
    _say_result(result, is_outside=bool(outside), as_json=as_json)
    if result.faults:
        raise typer.Exit(ANSWER_IS_NO)


def _newest(client: Client, chosen: Chosen, last: int) -> list[AuditEntry]:
    """Return the newest entries, oldest first."""
    found: list[AuditEntry] = []
    marker: int | None = None
    while len(found) < last:
        page = client.audit.read_page(chosen.query, marker=marker, limit=min(1000, last - len(found)), newest=True)
        found += page.items
        marker = page.next
        if marker is None:
            break
    return found[::-1]


def _verify_entries(anchors: Iterable[AuditAnchor], keys: frozenset[str], entries: Iterable[AuditEntry]) -> Verified:
    verifier = Verifier(anchors, keys)
    for entry in entries:
        verifier.read(entry)
    return verifier.result()


def _say_result(result: Verified, *, is_outside: bool, as_json: bool) -> None:
    if as_json:
        say_json(result)
        return
    for fault in result.faults:
        complain(f"chain {fault.chain}, entry {fault.number}: {fault.reason}")
    words = f"{result.entries} entries in {result.chains} chains, {result.anchors} anchors"
    say(f"{words}: {'no fault' if not result.faults else f'{len(result.faults)} faults'}")
    if result.unanchored:
        remark(
            f"not verified: whether something followed the newest {result.unanchored} entries; no anchor is after them"
        )
    if not is_outside:
        remark("not verified: whether the anchors are the sink's; they came from where the entries are (--anchors)")
    for unknown in sorted(result.keys):
        remark(f"not verified: whose key {unknown} is (--key)")


def _read_lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            yield from enumerate(lines, 1)
    except OSError as error:
        raise Missing(f"cannot be read: {error.strerror}", place=str(path)) from None


def anchors_in(path: Path) -> Iterator[AuditAnchor]:
    """Yield the anchors of a file, each from the end of its line.

    A collector may write words of its own before them; other lines are passed over.
    """
    for number, line in _read_lines(path):
        begin = line.rfind(_ANCHOR)
        if begin >= 0:
            place = f"{path}:{number}"
            yield decode(AuditAnchor, _read_document(line[begin:], place)["anchor"])


def _read_entries(path: Path) -> Iterator[AuditEntry]:
    for number, line in _read_lines(path):
        if line.rfind(_ANCHOR) != 0:
            document = _read_document(line, f"{path}:{number}")
            if "entry" not in document:
                raise BadInput("neither an entry nor an anchor", place=f"{path}:{number}")
            yield decode(AuditEntry, document["entry"])


def _read_document(text: str, place: str) -> dict[str, object]:
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise BadInput(f"not JSON: {error}", place=place) from None
    if not isinstance(found, dict):
        raise BadInput("neither an entry nor an anchor", place=place)
    return found


def _key(text: str) -> str:
    """Return a public key that is given itself or as a file. Raises BadInput, Missing."""
    found = text
    if Path(text).exists():
        found = Path(text).read_text(encoding="utf-8", errors="replace").strip()
    if len(found) != 64 or not all(letter in "0123456789abcdef" for letter in found):
        raise BadInput("it is 64 hexadecimal digits, or a file with them (STATE_DIR/audit/key.pub)", place="--key")
    return found
