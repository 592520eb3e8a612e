"""A packet, said with options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, TypeVar

import typer

from orchestrator.cli import complete
from orchestrator.errors import AclflowError, BadInput
from orchestrator.policy.addresses import parse_address
from orchestrator.policy.dscp import list_code_points, parse_code_points
from orchestrator.policy.endpointnames import with_addresses
from orchestrator.policy.model import Packet
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
