"""Bodies about points of presence: layout, edges, and the ways of packets."""

from __future__ import annotations

import datetime as dt
from dataclasses import asdict, fields
from typing import Annotated, Literal

from pydantic import Field

from api.schemas.common import BIGGEST, Incoming, Name, Outgoing
from api.schemas.domains import Host, Interface, Mac
from orchestrator.control.pops.edges import EdgeReport
from orchestrator.control.pops.traffic import PopTraffic
from orchestrator.edge.settings import EdgeSettings
from orchestrator.edge.upkeep import LinesReport
from orchestrator.errors import BadInput
from orchestrator.placement.heavy import HeavyChoice, HeavySettings
from orchestrator.policy.model import Policy
from orchestrator.policy.prefilter import Misdirect
from orchestrator.store.pops.poprecords import Counted, NewServer, Pop, PopServer, PopSettings, ServerState

_EDGE, _HEAVY = EdgeSettings(), HeavySettings()
StateWord = Literal["serving", "draining", "lost"]
Count = Annotated[int, Field(ge=-BIGGEST, le=BIGGEST)]


class PopLayout(Incoming):
    """How a PoP is laid out. A field that is left out has its default."""

    outside: list[Interface] = Field(max_length=64, description="the edge switches' ports towards the outside")
    ipv4_chunk: Count = Field(default=_EDGE.ipv4_chunk, description="leading bits that addresses of a chunk share")
    ipv6_chunk: Count = Field(default=_EDGE.ipv6_chunk, description="the same in IPv6, up to 48")
    width: Count = Field(default=_EDGE.width, description="bits a line, up to 288")
    functions: Count = Field(default=_EDGE.functions, description="hash functions (k)")
    per_line: Count = Field(default=_EDGE.per_line, description="chunks a line, at most")
    tries: Count = Field(default=_EDGE.tries, description="draws of functions before a build is given up")
    most_heavy: Count = Field(default=_EDGE.most_heavy, description="TCAM entries for heavy hitters")
    most_exceptions: Count = Field(default=_EDGE.most_exceptions, description="TCAM entries for single chunks")
    most_lines: Count = Field(default=_EDGE.most_lines, description="TCAM entries for lines, an IP version")
    rebuild_share: float = Field(default=_EDGE.rebuild_share, description="stale share at which lines are built anew")
    allow_misdirected: bool = Field(default=False, description="let chunks reach a wrong server where entries run out")
    heavy_interval_s: float = Field(default=_HEAVY.interval_s, description="how often to choose; 0: when asked")
    heavy_least_packets: Count = Field(default=_HEAVY.least_packets, description="packets a rule needs in that time")
    heavy_hysteresis: float = Field(default=_HEAVY.hysteresis, description="how much better another rule must be")
    misdirect: Misdirect = Field(
        default=Misdirect.REHOME,
        strict=False,
        description="what a server does with a packet whose tenant it does not serve",
    )
    classify: bool = Field(default=False, description="give servers whole lists for a classifier in tc-BPF, too")
    window_ms: float = Field(
        default=PopSettings(("any",)).window_ms,
        description="the longest that changes are gathered for a server that does not hold the program before yet",
    )
    tenant_updates_s: float = Field(default=0.0, description="how often a second a tenant's list may change; 0: any")

    def settings(self) -> PopSettings:
        """Return the settings of the edge. Raises BadInput with the field's name."""
        edge = EdgeSettings(**{each.name: getattr(self, each.name) for each in fields(EdgeSettings)})
        try:
            heavy = HeavySettings(self.heavy_interval_s, self.heavy_least_packets, self.heavy_hysteresis)
        except BadInput as error:
            raise BadInput(error.reason, place=f"heavy_{error.place}") from None
        return PopSettings(
            tuple(self.outside), edge, heavy, self.misdirect, self.classify, self.window_ms, self.tenant_updates_s
        )

    @classmethod
    def of(cls, settings: PopSettings) -> PopLayout:
        heavy = {f"heavy_{name}": value for name, value in asdict(settings.heavy).items()}
        return cls(
            outside=list(settings.outside),
            misdirect=settings.misdirect,
            classify=settings.classify,
            window_ms=settings.window_ms,
            tenant_updates_s=settings.tenant_updates_s,
            **asdict(settings.edge),
            **heavy,
        )


class NewPop(PopLayout):
    """A PoP to be made for a domain."""

    name: Name
    domain: Name


class NewServerBody(Incoming):
    """A firewall server that may get tenants.

    `name` is the firewall's, `port` the edge switches' port towards it, and `mac` the MAC address of its interface
    there.
    """

    name: Name
    port: Interface
    mac: Mac

    def record(self) -> NewServer:
        return NewServer(self.name, self.port, int(self.mac.replace(":", ""), 16))


class ServerChange(Incoming):
    """States of a server."""

    state: StateWord


class PlacesChange(Incoming):
    """Which server serves some tenants, by their names."""

    places: dict[Name, Name] = Field(max_length=10_000)


class ServerBody(Outgoing):
    """A firewall server of a PoP."""

    name: str
    number: int
    port: str
    mac: str
    state: StateWord

    @classmethod
    def of(cls, server: PopServer) -> ServerBody:
        mac = server.mac.to_bytes(6, "big").hex(":")
        return cls(name=server.name, number=server.number, port=server.port, mac=mac, state=server.state.value)


class LinesBody(Outgoing):
    """The lines of one IP version."""

    chunks: int = Field(description="chunks that are somebody's")
    in_lines: int
    lines: int
    exceptions: int
    stale: int = Field(description="chunks that lines hold and that are nobody's any more")
    misdirected: int = Field(description="chunks that reach a wrong server")
    fill: float
    union_rate: float = Field(description="probability that an address that is nobody's passes")
    draw: int = Field(description="how often lines were built anew")

    @classmethod
    def of(cls, report: LinesReport) -> LinesBody:
        return cls(**asdict(report))


class HeavyBody(Outgoing):
    """A rule that is a heavy hitter.

    `form` is null for one that cannot be moved now, and `stays` says why.
    """

    tenant: str
    rule: str
    since: dt.datetime
    packets: int
    because: str
    form: str | None
    stays: str


class PopBody(Outgoing):
    """A PoP, and what stands at its edge."""

    name: str
    domain: str
    version: int
    settings: PopLayout
    edges: list[Host]
    servers: list[ServerBody]
    places: dict[str, str] = Field(description="the server of each tenant")
    lines: dict[Literal["ipv4", "ipv6"], LinesBody]
    over_allocated: dict[str, int] = Field(description="addresses of a tenant's IPv4 chunks that are nobody's")
    heavy: list[HeavyBody]
    heavy_entries: int

    @classmethod
    def of(cls, pop: Pop, policy: Policy, report: EdgeReport | None) -> PopBody:
        names = {tenant.number: str(tenant.id) for tenant in policy.tenants}
        servers = {server.number: server.name for server in pop.servers}
        lines = {} if report is None else {f"ipv{family.value}": each for family, each in report.lines.items()}
        over = next(iter(report.over.values())) if report is not None else {}
        return cls(
            name=pop.name,
            domain=pop.domain,
            version=pop.version,
            settings=PopLayout.of(pop.settings),
            edges=[Host.of(edge) for edge in pop.edges],
            servers=[ServerBody.of(server) for server in pop.servers],
            places={names[tenant]: servers[number] for tenant, number in pop.places.items()
                    if tenant in names and number in servers},
            lines={name: LinesBody.of(each) for name, each in lines.items()},  # type: ignore[misc]
            over_allocated={names[tenant]: addresses for tenant, addresses in over.items() if tenant in names},
            heavy=_list_heavy(pop, report),
            heavy_entries=0 if report is None else len(report.heavy.rows),
        )  # fmt: skip


def _list_heavy(pop: Pop, report: EdgeReport | None) -> list[HeavyBody]:
    lifts = {} if report is None else {lift.rule: lift for lift in report.heavy.lifts}
    found = []
    for each in pop.heavy:
        lift = lifts.get(each.rule)
        found.append(
            HeavyBody(
                tenant=each.rule.tenant,
                rule=each.rule.rule,
                since=each.since,
                packets=each.packets,
                because=each.because,
                form=lift.form.value if lift is not None and lift.form is not None else None,
                stays=lift.because if lift is not None and lift.form is None else "",
            )
        )
    return found


class WrittenPop(Outgoing):
    """A PoP just written, and the generation at which its edge holds what it should."""

    name: str
    version: int
    generation: int


class WrittenServer(ServerBody):
    """A server just brought in, and the generation at which it has its tenants."""

    generation: int


class Moved(Outgoing):
    """The generation at which a change is enforced."""

    generation: int


class ChosenBody(Outgoing):
    """A rule that a round has chosen."""

    tenant: str
    rule: str
    packets: int
    because: str

    @classmethod
    def of(cls, choice: HeavyChoice) -> ChosenBody:
        rule = choice.rule
        return cls(tenant=rule.tenant, rule=rule.rule, packets=choice.packets, because=choice.because)


class RoundBody(Outgoing):
    """The result of a round of choosing heavy hitters.

    `had` is false where another process had one just then.
    """

    had: bool
    chosen: list[ChosenBody]
    generation: int


class CountBody(Outgoing):
    """Packets and bytes."""

    packets: int
    bytes: int

    @classmethod
    def of(cls, counted: Counted) -> CountBody:
        return cls(packets=counted.packets, bytes=counted.bytes)


class HeavyTraffic(CountBody):
    """Traffic that went straight to the WAN by one rule."""

    tenant: str
    rule: str


class ServerTrafficBody(Outgoing):
    """The program that a server was sent, and the tenants that it serves."""

    lines: CountBody
    exceptions: CountBody
    tenants: list[str]


class TenantTrafficBody(Outgoing):
    """A tenant's packets, and the share of them that went past the servers.

    The share is null where there was no packet.
    """

    server: str | None
    bypassed: CountBody
    served: CountBody
    bypass_share: float | None


class TrafficBody(Outgoing):
    """Where packets from outside went."""

    heavy: list[HeavyTraffic]
    gone: CountBody = Field(description="of heavy hitters that are no rule any more")
    servers: dict[str, ServerTrafficBody]
    nobody: CountBody = Field(description="dropped: no tenant's")
    spoofed: CountBody = Field(description="dropped: from outside with a tenant's address")
    tenants: dict[str, TenantTrafficBody]

    @classmethod
    def of(cls, traffic: PopTraffic) -> TrafficBody:
        return cls(
            heavy=[
                HeavyTraffic(tenant=rule.tenant, rule=rule.rule, packets=counted.packets, bytes=counted.bytes)
                for rule, counted in sorted(traffic.heavy.items())
            ],
            gone=CountBody.of(traffic.gone),
            servers={
                name: ServerTrafficBody(
                    lines=CountBody.of(each.lines), exceptions=CountBody.of(each.exceptions), tenants=list(each.tenants)
                )
                for name, each in traffic.servers.items()
            },
            nobody=CountBody.of(traffic.nobody),
            spoofed=CountBody.of(traffic.spoofed),
            tenants={
                name: TenantTrafficBody(
                    server=each.server,
                    bypassed=CountBody.of(each.bypassed),
                    served=CountBody.of(each.served),
                    bypass_share=each.bypass_share,
                )
                for name, each in traffic.tenants.items()
            },
        )


def state_of(word: StateWord) -> ServerState:
    """A state from its word."""
    return ServerState(word)
