"""`aclflow acl trace`: which rule of a list in a file decides a packet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from orchestrator.cli.files import Files, Read, read_files, whole
from orchestrator.cli.options import AsJson, Reading, Report, taking
from orchestrator.cli.packets import PacketOptions
from orchestrator.cli.terminal import say, say_json
from orchestrator.policy.describe import packet_json, packet_text
from orchestrator.policy.formats.native import rule_to_json
from orchestrator.policy.model import Acl, Action, Direction, Packet, ReturnTraffic, Rule
from orchestrator.policy.oracle import Step, ask, matches

_ANSWER_IS_NO = 1


@dataclass(frozen=True, slots=True)
class Asking:
    """How the list is asked."""

    way: Annotated[Direction, typer.Option("--way", help="Seen from the tenant: ingress is to it.")] = Direction.INGRESS
    return_traffic: Annotated[
        ReturnTraffic, typer.Option("--return-traffic", help="How the domain lets replies in.")
    ] = ReturnTraffic.EXPLICIT


@dataclass(frozen=True, slots=True)
class Answer:
    """What one list says of the packet."""

    file: str
    step: Step
    matching: tuple[Rule, ...]


@taking
def trace(
    names: Files,
    packet_options: PacketOptions,
    asking: Asking,
    reading: Reading,
    report: Report = False,
    as_json: AsJson = False,
) -> None:
    """Show which rule of a list decides a packet.

    A TCP packet opens a connection unless you name its --flags. --report lists every rule that matches, not only the
    first. Ends with 1 if any of the lists denies the packet.
    """
    packet = packet_options.packet()
    answers = [_answer(one, whole(one, reading), packet, asking) for one in read_files(names, reading)]
    if as_json:
        say_json({"packet": packet_json(packet), "answers": [_json(answer) for answer in answers]})
    else:
        say(packet_text(packet))
        for answer in answers:
            _say(answer, report=report)
    if any(answer.step.action is Action.DENY for answer in answers):
        raise typer.Exit(_ANSWER_IS_NO)


def _answer(read: Read, acl: Acl, packet: Packet, asking: Asking) -> Answer:
    step = ask(acl, packet, asking.way, asking.return_traffic)
    listed = (rule for rule in acl.rules if rule.direction is asking.way and matches(rule, packet, acl.groups))
    return Answer(read.name, step, tuple(listed))


def _json(answer: Answer) -> dict[str, object]:
    return {
        "file": answer.file,
        "action": answer.step.action.value,
        "rule": answer.step.rule,
        "matching": [rule_to_json(rule) for rule in answer.matching],
    }


def _say(answer: Answer, *, report: bool) -> None:
    action = answer.step.action
    by = f"rule '{answer.step.rule}'" if answer.step.rule else "the default"
    say(f"{answer.file}: {action.value}, by {by}", colour="green" if action is Action.PERMIT else "red")
    for rule in answer.matching if report else ():
        say(f"  {rule.action.value} {rule.id}" + (f": {rule.description}" if rule.description else ""))
