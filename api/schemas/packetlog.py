"""Packets that rules with `log` decided."""

from __future__ import annotations

import datetime as dt
from typing import Literal

from pydantic import Field

from api.schemas.common import BIGGEST, Incoming, Name, Outgoing
from api.schemas.inspection import PacketBody
from orchestrator.errors import BadInput
from orchestrator.policy.addresses import format_address
from orchestrator.policy.loglimit import MOST_A_SECOND, LogLimit
from orchestrator.program.sightings import MOST_AT_ONCE, Sighting, Sightings
from orchestrator.store.packetlog import LoggedPacket

ActionWord = Literal["permit", "deny"]


class LogLimitBody(Incoming):
    """The limit of a switch's reports about each tenant's logged packets.

    `rate` is packets a second, `burst` packets at once after a silence.
    """

    rate: int = Field(ge=1, le=MOST_A_SECOND)
    burst: int = Field(ge=1, le=MOST_A_SECOND)

    @classmethod
    def of(cls, limit: LogLimit) -> LogLimitBody:
        return cls(rate=limit.rate, burst=limit.burst)


class LoggedPacketBody(Outgoing):
    """A packet, and the rule that decided it.

    `tenant` is null where an operator's rule did.
    """

    id: int
    time: dt.datetime
    tenant: str | None
    rule: str
    action: ActionWord
    direction: Literal["ingress", "egress"] | None
    host: str
    source: str
    destination: str
    protocol: int
    source_port: int
    destination_port: int
    icmp_type: int
    icmp_code: int
    tcp_flags: int
    dscp: int
    later_fragment: bool
    octets: int = Field(description="the packet's length on the link")

    @classmethod
    def of(cls, record: LoggedPacket) -> LoggedPacketBody:
        packet = record.packet
        return cls(
            id=record.id,
            time=record.time,
            tenant=record.tenant,
            rule=record.rule,
            action=record.action.value,
            direction=None if record.direction is None else record.direction.value,
            host=record.host,
            source=format_address(packet.family, packet.source),
            destination=format_address(packet.family, packet.destination),
            protocol=packet.protocol,
            source_port=packet.source_port,
            destination_port=packet.destination_port,
            icmp_type=packet.icmp_type,
            icmp_code=packet.icmp_code,
            tcp_flags=packet.tcp_flags,
            dscp=packet.dscp,
            later_fragment=packet.later_fragment,
            octets=record.length,
        )


class PacketLogBody(Outgoing):
    """Records, oldest first. To follow the log, ask for what is `after` the last id."""

    items: list[LoggedPacketBody]


class SightingBody(Incoming):
    """A packet as an enforcement point saw it.

    The cookie is that of the row that decided it.
    """

    host: Name
    at: int = Field(ge=0, le=BIGGEST, description="microseconds since 1970, UTC")
    cookie: str = Field(pattern=r"^[0-9a-f]{16}$")
    octets: int = Field(ge=0, le=1 << 20)
    packet: PacketBody


class SightingsBody(Incoming):
    """A report. Its number grows from report to report of an enforcement point."""

    number: int = Field(ge=0, le=BIGGEST)
    lost: int = Field(default=0, ge=0, le=BIGGEST, description="packets that were thrown away since the report before")
    seen: list[SightingBody] = Field(max_length=MOST_AT_ONCE)

    def report(self) -> Sightings:
        """The report. Raises BadInput with the place."""
        return Sightings(
            self.number, tuple(_make_sighting(each, f"seen[{at}]") for at, each in enumerate(self.seen)), self.lost
        )


class SightingsTaken(Outgoing):
    """How many records a report made; 0 for one that was taken before."""

    records: int


def _make_sighting(body: SightingBody, place: str) -> Sighting:
    try:
        return Sighting(body.host, body.at, int(body.cookie, 16), body.packet.packet(), body.octets)
    except BadInput as error:
        raise error.within(f"{place}.packet") from None
