"""`aclflow acl trace`: which rule decides a packet, in files or in a domain.

The packet is said with options (`PacketOptions`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, TypeVar

import typer

from orchestrator.cli import complete
from orchestrator.cli.connection import service
from orchestrator.cli.exitcodes import ANSWER_IS_NO
from orchestrator.cli.files import Files, LiveList, Read, read_file, read_files, whole, with_hint
from orchestrator.cli.options import AsJson, Reading, Report, refuse_tracked, taking
from orchestrator.cli.terminal import say, say_json
from orchestrator.client import Trace
from orchestrator.errors import AclflowError, BadInput, Missing, NotFound
from orchestrator.policy.addresses import parse_address
from orchestrator.policy.describe import name_decider, packet_json, packet_text
from orchestrator.policy.dscp import list_code_points, parse_code_points
from orchestrator.policy.endpointnames import with_addresses
from orchestrator.policy.formats.native import rule_to_json
from orchestrator.policy.model import Acl, Action, Direction, Packet, ReturnTraffic, Rule
from orchestrator.policy.oracle import Step, ask, matches
from orchestrator.policy.ports import parse_ports
from orchestrator.policy.protocols import TCP, WITH_PORTS, parse_protocol
from orchestrator.policy.space import possible
from orchestrator.policy.tcpflags import TcpFlag

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PacketOptions:
    """The fields of a packet."""

    source: Annotated[
        str,
        typer.Option(
            "--source",
            "-s",
            help="Its source: an address, or an endpoint of the TENANT.",
            autocompletion=complete.places,
        ),
    ]
    destination: Annotated[
        str, typer.Option("--destination", "-d", help="Its destination, as --source.", autocompletion=complete.places)
    ]
    protocol: Annotated[str, typer.Option("--protocol", "-p", help="A name or a number.")] = "tcp"
    source_port: Annotated[int, typer.Option("--source-port", min=0, max=65535)] = 49152
    port: Annotated[
        str | None,
        typer.Option("--port", "--destination-port", help="The destination's: a number, or a name such as https."),
    ] = None
    icmp_type: Annotated[int, typer.Option("--icmp-type", min=0, max=255)] = 8
    icmp_code: Annotated[int, typer.Option("--icmp-code", min=0, max=255)] = 0
    flags: Annotated[str, typer.Option("--flags", help="Of TCP, as in syn,ack; empty for none.")] = "syn"
    dscp: Annotated[str, typer.Option("--dscp", help="A number, or a name such as ef.")] = "0"
    later_fragment: Annotated[bool, typer.Option("--later-fragment", help="It is a fragment but not the first.")] = (
        False
    )

    def with_endpoints(self, known: Callable[[], Mapping[str, Sequence[str]]]) -> PacketOptions:
        """Put addresses that `known` tells in the place of endpoints. Raises BadInput."""
        ends = {"--source": self.source, "--destination": self.destination}
        source, destination = with_addresses(ends, known, "tenant").values()
        return replace(self, source=source, destination=destination)

    def packet(self) -> Packet:
        """The packet. Raises BadInput that names the option."""
        family, source = _read_option("--source", lambda: parse_address(self.source))
        other, destination = _read_option("--destination", lambda: parse_address(self.destination))
        if family is not other:
            raise BadInput(f"it is not of the IP version of '{self.source}'", place="--destination")
        protocol = _read_option("--protocol", lambda: parse_protocol(self.protocol))
        if protocol in WITH_PORTS and self.port is None and not self.later_fragment:
            raise BadInput(f"a packet of {self.protocol} has a destination port: name it", place="--port")
        return possible(
            Packet(
                family=family,
                source=source,
                destination=destination,
                protocol=protocol,
                source_port=self.source_port,
                destination_port=_read_option("--port", lambda: _port(self.port)),
                icmp_type=self.icmp_type,
                icmp_code=self.icmp_code,
                tcp_flags=_read_flags(self.flags) if protocol == TCP else 0,
                dscp=_read_option("--dscp", lambda: _code_point(self.dscp)),
                later_fragment=self.later_fragment,
            )
        )


def _read_option(option: str, read: Callable[[], T]) -> T:
    try:
        return read()
    except AclflowError as error:
        raise error.within(option) from None


def _code_point(text: str) -> int:
    """One DSCP value. Raises BadInput."""
    found = list_code_points(parse_code_points(text))
    if len(found) > 1:
        raise BadInput(f"'{text}' is several values of DSCP: a packet has one")
    return found[0]


def _port(text: str | None) -> int:
    """One port, 0 where none is said. Raises BadInput."""
    if text is None:
        return 0
    found = parse_ports(text)
    if found.low != found.high:
        raise BadInput(f"'{text}' is several ports: a packet has one")
    return found.low


def _read_flags(text: str) -> int:
    found = 0
    for name in filter(None, text.replace("+", ",").split(",")):
        if name.upper() not in TcpFlag.__members__:
            known = ", ".join(flag.lower() for flag in TcpFlag.__members__)
            raise BadInput(f"'{name}' is none of {known}", place="--flags")
        found |= TcpFlag[name.upper()]
    return found


@dataclass(frozen=True, slots=True)
class Asking:
    """How the list is asked."""

    way: Annotated[Direction, typer.Option("--way", help="Seen from the tenant: ingress is to it.")] = Direction.INGRESS
    return_traffic: Annotated[
        ReturnTraffic,
        typer.Option("--return-traffic", callback=refuse_tracked, help="How the domain lets replies in."),
    ] = ReturnTraffic.EXPLICIT


@dataclass(frozen=True, slots=True)
class Answer:
    """One list's answer about the packet."""

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
    tenant: Annotated[
        str | None,
        typer.Option(
            "--tenant",
            help="Trace in one file as if it were this tenant's list at the service.",
            autocompletion=complete.tenants,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show which rule of a list decides a packet.

    For a TENANT the service tells what its domain does with the packet as enforced: administrators are told of all
    lists, a tenant of its own and the operator's. For files and TENANT@VERSION the lists are asked by themselves; with
    --tenant a file stands in the place of that tenant's list, among the others and the operator's rules.

    A TCP packet opens a connection unless you name its --flags. --report lists every rule that matches, not only the
    first. Ends with 1 if any of the lists denies the packet.
    """
    live = LiveList.from_name(names[0]) if len(names) == 1 else None
    owner = tenant or (live.tenant if live is not None else None)
    if owner is not None:
        packet_options = packet_options.with_endpoints(lambda: endpoint_addresses(owner, reading.url))
    packet = packet_options.packet()
    if live is not None and live.version is None and tenant is None:
        _trace_live(names[0], live.tenant, packet, reading.url, as_json=as_json)
        return
    if tenant is not None:
        if len(names) > 1:
            raise BadInput("one draft at a time can stand in a tenant's place", place="--tenant")
        draft = whole(read_file(names[0], reading), reading)
        _trace_live(names[0], tenant, packet, reading.url, draft, as_json=as_json)
        return
    answers = [_decide_packet(one, whole(one, reading), packet, asking) for one in read_files(names, reading)]
    if as_json:
        say_json({"packet": packet_json(packet), "answers": [_write_answer(answer) for answer in answers]})
    else:
        say(packet_text(packet))
        for answer in answers:
            _say_answer(answer, report=report)
    if any(answer.step.action is Action.DENY for answer in answers):
        raise typer.Exit(ANSWER_IS_NO)


def endpoint_addresses(tenant: str, url: str | None) -> dict[str, tuple[str, ...]]:
    """The addresses of a tenant's endpoints, by their names."""
    with service(url) as client:
        return {each.name: each.prefixes for each in client.tenants.read_own_endpoints(tenant)}


def _trace_live(
    name: str, tenant: str, packet: Packet, url: str | None, draft: Acl | None = None, *, as_json: bool
) -> None:
    """Ask the service. Ends with 1 if the packet is denied."""
    try:
        with service(url) as client:
            found = client.acls.trace(tenant, packet, draft)
    except (Missing, NotFound) as error:
        raise with_hint(name, error) from None
    if as_json:
        say_json(found)
    else:
        say(packet_text(packet))
        _say_trace(found)
    if found.action != "permit":
        raise typer.Exit(ANSWER_IS_NO)


def _say_trace(found: Trace) -> None:
    for step in found.steps:
        asked = f"{step.tenant}, {step.direction}" if step.tenant else "operator"
        by = name_decider(step.rule or None, "rule '{}'")
        say(f"  {asked}: {step.action}, by {by}")
    say(found.action, colour="green" if found.action == "permit" else "red", bold=True)


def _decide_packet(read: Read, acl: Acl, packet: Packet, asking: Asking) -> Answer:
    step = ask(acl, packet, asking.way, asking.return_traffic)
    listed = (rule for rule in acl.rules if rule.direction is asking.way and matches(rule, packet, acl.groups))
    return Answer(read.name, step, tuple(listed))


def _write_answer(answer: Answer) -> dict[str, object]:
    return {
        "file": answer.file,
        "action": answer.step.action.value,
        "rule": answer.step.rule,
        "matching": [rule_to_json(rule) for rule in answer.matching],
    }


def _say_answer(answer: Answer, *, report: bool) -> None:
    action = answer.step.action
    by = name_decider(answer.step.rule or None, "rule '{}'")
    say(f"{answer.file}: {action.value}, by {by}", colour="green" if action is Action.PERMIT else "red")
    for rule in answer.matching if report else ():
        say(f"  {rule.action.value} {rule.id}" + (f": {rule.description}" if rule.description else ""))
