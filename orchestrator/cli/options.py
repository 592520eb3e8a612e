"""Options that several commands share, as one value each, and arguments that name things.

A group of options is a frozen dataclass whose fields are annotated as Typer wants parameters; `taking` turns a
parameter of that type into its options, and hands the command the value:

    @taking
    def check(file: File, reading: Reading, judging: Judging) -> None: ...
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import inspect
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import typer

from orchestrator.cli import complete
from orchestrator.errors import AclflowError, BadInput, Missing, TooLarge
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.native_values import at
from orchestrator.policy.formats.results import DEFAULT_OPTIONS, Interfaces, Options
from orchestrator.policy.model import Action, Direction, ReturnTraffic
from orchestrator.policy.timewords import read_time

Returns = TypeVar("Returns", ReturnTraffic, ReturnTraffic | None)
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Report = Annotated[bool, typer.Option("--report", help="Print what was read and what came of it.")]
BRIDGE = "br-aclflow"
Bridge = Annotated[str, typer.Option("--bridge", help="The bridge that endpoints are ports of.")]
RunDir = Annotated[Path, typer.Option("--run-dir", help="Where Open vSwitch has its sockets.")]
Url = Annotated[
    str | None, typer.Option("--url", help="The service; ACLFLOW_URL by default. Its token: ACLFLOW_TOKEN.")
]


def taking(command: Callable[..., None]) -> Callable[..., None]:
    """Spread the option groups among a command's parameters into options of their own."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name in groups:
            parameters += _spread(groups[name])
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name]))

    @functools.wraps(command)
    def spread_options(**given: Any) -> None:
        for name, kind in groups.items():
            given[name] = _gather(kind, given)
        command(**given)

    spread_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return spread_options


def _spread(kind: Any) -> list[inspect.Parameter]:
    """The parameters of a group of options, and of the groups in it."""
    hints = get_type_hints(kind, include_extras=True)
    found: list[inspect.Parameter] = []
    for field in fields(kind):
        if is_dataclass(hint := hints[field.name]):
            found += _spread(hint)
        else:
            keyword = inspect.Parameter.KEYWORD_ONLY
            found.append(inspect.Parameter(field.name, keyword, default=_find_default(field), annotation=hint))
    return found


def _gather(kind: Any, given: dict[str, Any]) -> Any:
    """The value of a group of options, which are taken out of what is given."""
    hints = get_type_hints(kind, include_extras=True)
    return kind(
        **{
            field.name: _gather(hints[field.name], given) if is_dataclass(hints[field.name]) else given.pop(field.name)
            for field in fields(kind)
        }
    )


def _find_default(field: Field[Any]) -> object:
    return inspect.Parameter.empty if field.default is MISSING else field.default


class SetAction(Enum):
    """Actions for rules of a set that has none."""

    PERMIT = "permit"
    DENY = "deny"
    ALTERNATE = "alternate"


@dataclass(frozen=True, slots=True)
class Reading:
    """How files are read."""

    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            "-f",
            help="The format of the files; by default it is recognised.",
            autocompletion=complete.formats,
        ),
    ] = None
    approximate: Annotated[
        bool,
        typer.Option("--approximate", help="Go on where something cannot be carried over: permit less, deny more."),
    ] = False
    direction: Annotated[
        Direction,
        typer.Option(
            "--direction", help="The direction of lists that do not state one, such as Cisco's and ClassBench's."
        ),
    ] = Direction.INGRESS
    chain: Annotated[
        list[str] | None,
        typer.Option("--chain", help="iptables, nftables: a chain to read, as NAME=ingress or NAME=egress."),
    ] = None
    stateless: Annotated[
        bool,
        typer.Option("--stateless", help="iptables, nftables: read state matches as what a stateless list can say."),
    ] = False
    in_interface: Annotated[
        str, typer.Option("--in-interface", help="iptables, nftables: the interface that packets come in by.")
    ] = ""
    out_interface: Annotated[
        str, typer.Option("--out-interface", help="iptables, nftables: the interface that packets leave by.")
    ] = ""
    access_list: Annotated[
        list[str] | None,
        typer.Option("--list", "--acl", help="Of several lists in a file, one to read, as NAME or NAME=egress."),
    ] = None
    address: Annotated[
        list[str] | None,
        typer.Option("--address", help="The addresses that a name of the file stands for, as NAME=PREFIX,PREFIX."),
    ] = None
    definitions: Annotated[
        str | None, typer.Option("--definitions", help="Aerleon: the folder of its networks and services.")
    ] = None
    includes: Annotated[
        str | None, typer.Option("--includes", help="Aerleon: the folder that the includes of policies are in.")
    ] = None
    action: Annotated[
        SetAction, typer.Option("--action", help="ClassBench: what its rules do, for sets have no actions.")
    ] = SetAction.PERMIT
    url: Url = None

    def options(self) -> Options:
        """Return the readers' options. Raises BadInput, Missing and TooLarge that name the option."""
        return Options(
            chains=tuple(self.chain or ()),
            stateless=self.stateless,
            interfaces=Interfaces(self.in_interface, self.out_interface),
            lists=tuple(self.access_list or ()),
            direction=self.direction,
            addresses=addresses_of(self.address or (), "--address"),
            definitions=texts_under(self.definitions, (".net", ".svc", ".yaml", ".yml"), "--definitions"),
            includes=texts_under(self.includes, (".inc", ".yaml", ".yml"), "--includes"),
            classbench_action=None if self.action is SetAction.ALTERNATE else Action(self.action.value),
        )


def addresses_of(given: Iterable[str], option: str) -> Mapping[str, tuple[Prefix, ...]]:
    """Read the addresses that names stand for. Raises BadInput that names the option.

    A name that is given twice stands for both.
    """
    found: dict[str, tuple[Prefix, ...]] = {}
    for text in given:
        name, equals, prefixes = text.rpartition("=")
        if not equals or not name:
            raise BadInput(f"'{text}' does not say what a name stands for: NAME=PREFIX,PREFIX", place=option)
        added = tuple(prefix_of(prefix, option) for prefix in prefixes.split(",") if prefix)
        found[name] = (*found.get(name, ()), *added)
    return found


def refuse_tracked(chosen: Returns) -> Returns:
    """Return another choice than `tracked`, of which single packets cannot be judged. Raises BadInput."""
    if chosen is ReturnTraffic.TRACKED:
        text = "single packets are judged here, without their connections: choose established or explicit"
        raise BadInput(text, place="--return-traffic")
    return chosen


@dataclass(frozen=True, slots=True)
class Judging:
    """Options of judging lists."""

    own: Annotated[
        list[str] | None, typer.Option("--own", help="A prefix of the tenant's: `any` on its side means these.")
    ] = None
    return_traffic: Annotated[
        ReturnTraffic | None,
        typer.Option(
            "--return-traffic",
            help="How the domain lets replies in. Of a TENANT its domain says it; a file is judged by itself.",
        ),
    ] = None

    def prefixes(self) -> tuple[Prefix, ...]:
        """The tenant's own. Raises BadInput."""
        return tuple(prefix_of(text, "--own") for text in self.own or ())

    @property
    def returns(self) -> ReturnTraffic:
        """How replies get in to a list of a file."""
        return self.return_traffic or ReturnTraffic.EXPLICIT


def prefix_of(text: str, option: str) -> Prefix:
    """A prefix from the command line. Raises BadInput that names the option."""
    try:
        return Prefix.parse(text)
    except AclflowError as error:
        raise error.within(option) from None


def end_of(text: str, option: str) -> dt.datetime:
    """Read a future time in the zone of this machine. Raises BadInput."""
    return at(option, read_time, text, dt.datetime.now(dt.UTC), local_zone())


def local_zone() -> dt.tzinfo:
    """The zone of this machine, which TZ or the system names; UTC where neither does.

    Raises BadInput for a TZ that is not known: a time would be taken for another.
    """
    if name := os.environ.get("TZ", "").removeprefix(":"):
        try:
            return ZoneInfo(name)
        except (OSError, ValueError, ZoneInfoNotFoundError):
            raise BadInput(f"TZ is '{name}', which is no known time zone: write a name such as UTC") from None
    with contextlib.suppress(OSError, ValueError), Path("/etc/localtime").open("rb") as file:
        return ZoneInfo.from_file(file)
    return dt.UTC


def time_of(text: str, option: str) -> dt.datetime:
    """A time from the command line, in UTC where it names no zone. Raises BadInput."""
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError:
        raise BadInput(f"'{text}' is not a time such as 2030-01-31T12:00:00Z", place=option) from None
    return found if found.tzinfo else found.replace(tzinfo=dt.UTC)


MOST_FILES = 10_000


def texts_under(folder: str | None, suffixes: Collection[str], option: str) -> Mapping[str, str]:
    """Return the texts of a folder's files with these suffixes, by path.

    The path is within the folder, with / between its parts. Without a folder there are none.

    Raises Missing for a file that cannot be read, BadInput for one that is no text, TooLarge; they name the option.
    """
    if folder is None:
        return {}
    root = Path(folder)
    if not root.is_dir():
        raise Missing(f"{folder} is not a folder", place=option)
    found: dict[str, str] = {}
    left = DEFAULT_OPTIONS.max_bytes
    for path in sorted(root.rglob("*")):
        if path.suffix not in suffixes or not path.is_file():
            continue
        text = _read_text(path, option)
        left -= len(text)
        found[path.relative_to(root).as_posix()] = text
        if left < 0 or len(found) > MOST_FILES:
            raise TooLarge(
                f"{folder} holds more than {DEFAULT_OPTIONS.max_bytes} bytes, or {MOST_FILES} files", place=option
            )
    return found


def _read_text(path: Path, option: str) -> str:
    try:
        if path.stat().st_size > DEFAULT_OPTIONS.max_bytes:
            raise TooLarge(f"{path} is larger than {DEFAULT_OPTIONS.max_bytes} bytes", place=option)
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise Missing(f"{path} cannot be read: {error.strerror}", place=option) from None
    except UnicodeDecodeError:
        raise BadInput(f"{path} is not UTF-8 text", place=option) from None


def _tell_order(ctx: Any, value: str | None) -> str | None:
    """Answer the old way of naming the tenant with the new one."""
    if value is not None:
        raise BadInput(f"the tenant comes first now: {ctx.command_path} {value} ...", place="--tenant")
    return value


TenantName = Annotated[str, typer.Argument(metavar="TENANT", help="The tenant.", autocompletion=complete.tenants)]
DomainName = Annotated[
    str, typer.Argument(metavar="DOMAIN", help="The security domain.", autocompletion=complete.domains)
]
HostName = Annotated[str, typer.Argument(metavar="HOST", help="The host's name.", autocompletion=complete.hosts)]
GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="The group.", autocompletion=complete.groups)]


@dataclass(frozen=True, slots=True)
class OfTenant:
    """The tenant as the first argument; its old option answers with that."""

    tenant: TenantName
    former: Annotated[str | None, typer.Option("--tenant", "-t", hidden=True, is_eager=True, callback=_tell_order)] = (
        None
    )
