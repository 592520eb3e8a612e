"""`aclflow acl blame` and `bisect`: which version of a list opened or closed a packet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from orchestrator.cli import complete
from orchestrator.cli.acl.trace import Asking, PacketOptions, endpoint_addresses
from orchestrator.cli.connection import service
from orchestrator.cli.exitcodes import ANSWER_IS_NO
from orchestrator.cli.files import LiveList, read_file, whole
from orchestrator.cli.options import AsJson, Reading, taking
from orchestrator.cli.terminal import at_work, remark, say, say_json
from orchestrator.client import Client
from orchestrator.client.records import Json
from orchestrator.errors import BadInput
from orchestrator.policy.describe import bisected_json, blame_json, name_decider, packet_json, packet_text
from orchestrator.policy.history import Asked, Verdict, bisect, permits
from orchestrator.policy.history import blame as blame_of
from orchestrator.policy.model import Acl, Action, Packet

_DONE = {Action.PERMIT: "permitted", Action.DENY: "denied"}

Versions = Annotated[
    list[str],
    typer.Argument(
        metavar="LIST...",
        help="Versions of one list from the oldest to the newest: files, or TENANT@VERSION. TENANT: all its versions.",
        autocompletion=complete.lists,
    ),
]


@taking
def blame(
    names: Versions,
    packet_options: PacketOptions,
    asking: Asking,
    reading: Reading,
    as_json: AsJson = False,
) -> None:
    """Show which version of a list opened or closed a packet.

    Reads from the newest version back to the one that said otherwise. Ends with 1 if they all say the same.
    """
    tenant = _whole_history(names)
    if tenant is not None:
        packet, told = _ask_service(
            tenant, packet_options, reading, lambda client, packet: client.acls.blame(tenant, packet, asking.way)
        )
        rest = "" if told["before"] else "every version that is kept says the same"
        _say_found(packet, told, {"now": "now", "after": "since", "before": "before"}, rest, as_json=as_json)
        return
    asked = _read_question(names, packet_options, asking)
    found = blame_of(((name, _load_list(name, reading)) for name in reversed(names)), asked)
    if as_json:
        say_json({"packet": packet_json(asked.packet), **blame_json(found)})
    else:
        say(packet_text(asked.packet))
        if found.before:
            _say_answer(found.before, "before")
            _say_answer(found.after, "since")
        else:
            _say_answer(found.after, "in all versions that are given, from")
        if found.now != found.after:
            _say_answer(found.now, "now")
    if found.before is None:
        raise typer.Exit(ANSWER_IS_NO)


@taking
def bisect_versions(
    names: Versions,
    packet_options: PacketOptions,
    asking: Asking,
    reading: Reading,
    decided_by: Annotated[
        str | None,
        typer.Option("--decided-by", help="Of files: ask whether this rule decides, not whether the packet may pass."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find two neighbouring versions that disagree about a packet, reading few of many.

    Halves what lies between the oldest and the newest. Where the answer went back and forth, what is found is one of
    several changes. Ends with 1 if the oldest and the newest agree.
    """
    tenant = _whole_history(names)
    if tenant is not None:
        if decided_by is not None:
            raise BadInput("the service looks for verdicts only", place="--decided-by")
        packet, told = _ask_service(
            tenant, packet_options, reading, lambda client, packet: client.acls.bisect(tenant, packet, asking.way)
        )
        rest = f"{told['looked_at']} of {told['of']} versions were read"
        _say_found(packet, told, {"before": "before", "after": "after"}, rest, as_json=as_json)
        return
    asked = _read_question(names, packet_options, asking)

    def is_wanted(verdict: Verdict[str]) -> bool:
        return permits(verdict) if decided_by is None else verdict.rule == decided_by

    found = bisect(names, lambda name: _load_list(name, reading), asked, is_wanted)
    if as_json:
        say_json({"packet": packet_json(asked.packet), "change": bisected_json(found) if found else None})
    elif found is None:
        say(packet_text(asked.packet))
        say(f"{names[0]} and {names[-1]} give the same answer; what lies between was not looked at")
    else:
        say(packet_text(asked.packet))
        _say_answer(found.before, "before")
        _say_answer(found.after, "since")
        if found.looked_at < found.of:
            remark(f"{found.looked_at} of {found.of} versions were looked at: it may have changed more often")
    if found is None:
        raise typer.Exit(ANSWER_IS_NO)


def _whole_history(names: list[str]) -> str | None:
    """Return the tenant whose whole history is meant; None for single versions."""
    live = LiveList.from_name(names[0]) if len(names) == 1 else None
    return live.tenant if live is not None and live.version is None else None


def _ask_service(
    tenant: str, packet_options: PacketOptions, reading: Reading, ask: Callable[[Client, Packet], Json]
) -> tuple[Packet, Json]:
    """Ask the service about a packet, which may name endpoints."""
    packet = packet_options.with_endpoints(lambda: endpoint_addresses(tenant, reading.url)).packet()
    with service(reading.url) as client, at_work("reading versions"):
        return packet, ask(client, packet)


def _say_found(packet: Packet, found: Json, verdicts: Mapping[str, str], rest: str, *, as_json: bool) -> None:
    """Print the service's verdicts about a packet, each under its name.

    Ends with 1 where nothing changed.
    """
    if as_json:
        say_json(found)
    else:
        say(packet_text(packet))
        for name, when in verdicts.items():
            if found[name] is not None:
                _say_verdict(when, found[name])
        if rest:
            say(f"  {rest}")
    if found["before"] is None:
        raise typer.Exit(ANSWER_IS_NO)


def _say_verdict(when: str, verdict: Any) -> None:
    by = name_decider(verdict["rule"] or None, "rule '{}'")
    say(f"  {when}: version {verdict['version']}: {verdict['action']}, by {by}")


def _read_question(names: list[str], packet_options: PacketOptions, asking: Asking) -> Asked:
    again = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if again is not None:
        raise BadInput("it is given twice: each version is a file of its own", place=again)
    return Asked(packet_options.packet(), asking.way, asking.return_traffic)


def _load_list(name: str, reading: Reading) -> Acl:
    return whole(read_file(name, reading), reading)


def _say_answer(verdict: Verdict[str], when: str) -> None:
    by = name_decider(verdict.rule or None, "rule '{}'")
    colour = "green" if verdict.action is Action.PERMIT else "red"
    say(f"{when} {verdict.version}: {_DONE[verdict.action]}, by {by}", colour=colour)
