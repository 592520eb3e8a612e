"""A rule and its place, said with options: shared by tenants' rules and the operator's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

import typer

from orchestrator.cli import complete
from orchestrator.cli.options import end_of
from orchestrator.errors import AclflowError, BadInput, NotFound
from orchestrator.policy.endpointnames import with_references
from orchestrator.policy.formats.native import rule_from_json, rule_to_json
from orchestrator.policy.model import Direction, Rule, RuleId

_NEVER = "never"
_OPTIONS: Mapping[str, str] = {
    "id": "RULE",
    "action": "--permit",
    "source": "--source",
    "destination": "--destination",
    "source_ports": "--source-port",
    "destination_ports": "--port",
    "icmp_type": "--icmp-type",
    "icmp_code": "--icmp-code",
    "expires": "--ends",
}
"""How the options are called that say a member of a rule, where that is not its name."""

RuleName = Annotated[str, typer.Argument(metavar="RULE", help="The rule's id.", autocompletion=complete.rules)]
_Several = "Several: with commas, or repeat it."


@dataclass(frozen=True, slots=True)
class RuleOptions:
    """Options that say a rule; None: not said."""

    permit: Annotated[
        bool | None,
        typer.Option(
            "--permit/--deny", "--allow/--drop", help="Whether the rule permits or denies.", show_default=False
        ),
    ] = None
    direction: Annotated[
        Direction | None, typer.Option("--direction", help="Seen from the tenant; ingress of a new rule.")
    ] = None
    protocol: Annotated[str | None, typer.Option("--protocol", "--proto", "-p", help="A name, a number, or any.")] = (
        None
    )
    source: Annotated[
        list[str] | None,
        typer.Option(
            "--source", "-s", help=f"A prefix, endpoint, @group, or any. {_Several}", autocompletion=complete.places
        ),
    ] = None
    destination: Annotated[
        list[str] | None, typer.Option("--destination", "-d", help="As --source.", autocompletion=complete.places)
    ] = None
    port: Annotated[
        list[str] | None,
        typer.Option(
            "--port", "--destination-port", "--dport", help=f"Of the destination: 443, https, 80-88, any. {_Several}"
        ),
    ] = None
    source_port: Annotated[
        list[str] | None, typer.Option("--source-port", "--sport", help="As --port, of the source.")
    ] = None
    icmp_type: Annotated[int | None, typer.Option("--icmp-type", min=0, max=255)] = None
    icmp_code: Annotated[int | None, typer.Option("--icmp-code", min=0, max=255)] = None
    dscp: Annotated[list[str] | None, typer.Option("--dscp", help=f"46, ef, 8-15, any. {_Several}")] = None
    established: Annotated[
        bool | None,
        typer.Option(
            "--established/--not-established",
            help="Only packets that answer: those with ACK or RST.",
            show_default=False,
        ),
    ] = None
    ends: Annotated[
        str | None, typer.Option("--ends", "--expires", help="in 2h, tomorrow 18:00, 2030-01-31, or never.")
    ] = None
    log: Annotated[
        bool | None, typer.Option("--log/--no-log", help="Report packets that it decides.", show_default=False)
    ] = None
    stateless: Annotated[
        bool | None,
        typer.Option(
            "--stateless/--stateful",
            help="Where connections are tracked: decide by the rule's own match, without a connection.",
            show_default=False,
        ),
    ] = None
    description: Annotated[str | None, typer.Option("--description", help="The purpose of the rule.")] = None
    owner: Annotated[str | None, typer.Option("--owner", help="The person or team that answers for the rule.")] = None

    def new_rule(self, name: str) -> Rule:
        """Make a new rule of the options. Raises BadInput and BadPolicy naming the option.

        The options that open most must be given.
        """
        if self.permit is None:
            raise BadInput("say --permit or --deny")
        for option, value in (("--source", self.source), ("--destination", self.destination)):
            if value is None:
                raise BadInput("say it; `any` is every address", place=option)
        return _read_rule(with_references({"id": name, **self._list_said()}))

    def apply_to(self, rule: Rule) -> Rule:
        """Return the rule with the given options, and all else as it was.

        Raises BadInput and BadPolicy that name the option.
        """
        said = self._list_said()
        if not said:
            raise BadInput("say what is to change, such as --port 8443")
        return _read_rule({**rule_to_json(rule), **with_references(said)})

    def _list_said(self) -> dict[str, object]:
        said: dict[str, object] = {
            "action": None if self.permit is None else "permit" if self.permit else "deny",
            "direction": self.direction.value if self.direction else None,
            "protocol": int(self.protocol) if self.protocol and self.protocol.isdecimal() else self.protocol,
            "source": _split_words(self.source),
            "destination": _split_words(self.destination),
            "destination_ports": _split_words(self.port),
            "source_ports": _split_words(self.source_port),
            "icmp_type": self.icmp_type,
            "icmp_code": self.icmp_code,
            "dscp": _split_words(self.dscp),
            "established": self.established,
            "expires": self.ends if self.ends in (None, _NEVER) else end_of(self.ends, "--ends").isoformat(),
            "log": self.log,
            "stateless": self.stateless,
            "description": self.description,
            "owner": self.owner,
        }
        return {name: value for name, value in said.items() if value is not None}


def _split_words(given: Iterable[str] | None) -> object:
    """Return words as the native form has them: one word, or a list."""
    if given is None:
        return None
    words = [word.strip() for text in given for word in text.split(",")]
    return words[0] if len(words) == 1 else words


def _read_rule(document: Mapping[str, object]) -> Rule:
    said = {name: value for name, value in document.items() if (name, value) != ("expires", _NEVER)}
    try:
        return rule_from_json(said)
    except AclflowError as error:
        if error.place:
            member = error.place.partition("[")[0]
            error.place = _OPTIONS.get(member, f"--{member}")
        raise


@dataclass(frozen=True, slots=True)
class PlaceOptions:
    """Where a rule goes."""

    before: Annotated[
        str | None, typer.Option("--before", help="Just before this rule.", autocompletion=complete.rules)
    ] = None
    after: Annotated[
        str | None, typer.Option("--after", help="Just after this rule.", autocompletion=complete.rules)
    ] = None
    position: Annotated[int | None, typer.Option("--position", min=1, help="At this place; 1 is the top.")] = None
    last: Annotated[bool, typer.Option("--last", help="To the end.")] = False

    @property
    def is_said(self) -> bool:
        """Whether any place is named. Raises BadInput for more than one."""
        named = [self.before, self.after, self.position, self.last or None]
        if named.count(None) < len(named) - 1:
            raise BadInput("name one place only: --before, --after, --position or --last")
        return named.count(None) < len(named)

    def index(self, others: list[RuleId]) -> int:
        """Return the index among the other rules of the list.

        Raises NotFound for a neighbour that is not there.
        """
        neighbour = self.before if self.before is not None else self.after
        if neighbour is None:
            return len(others) if self.position is None else min(self.position - 1, len(others))
        if neighbour not in others:
            raise NotFound(f"the list has no rule '{neighbour}'", place="--before" if self.before else "--after")
        return others.index(RuleId(neighbour)) + (self.before is None)


@contextmanager
def naming_rules(rules: Sequence[Rule]) -> Iterator[None]:
    """Name rules by their ids in errors of the block: ``rules[3].source`` is ``rule 'web', source``."""
    try:
        yield
    except AclflowError as error:
        found = re.fullmatch(r"rules\[(\d+)\](?:\.(.+))?", error.place or "")
        if found is not None and int(found[1]) < len(rules):
            error.place = ", ".join(filter(None, (f"rule '{rules[int(found[1])].id}'", found[2])))
        raise
