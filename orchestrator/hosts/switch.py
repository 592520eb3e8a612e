"""The wanted and actual switch of a host, and the `ovs-vsctl` commands between. Pure.

    look (ovs.py) ──▶ Seen ──┐
                             ├──▶ refusal(...)  why it must not be touched, and what to change
    the operator ──▶ Wanted ─┘──▶ steps(...)    the words of one transaction; none where all is as wanted

A bridge is made with `fail_mode=secure` in the transaction that makes it, its ports come in the same one, and nothing
ever sets another mode: without flows such a bridge forwards nothing. To release it, take the bridge away, or the
controllers first: with the last controller Open vSwitch forgets all flows. So there is no moment without a filter.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from hashlib import blake2b
from types import MappingProxyType

from orchestrator.compile.pipelines.host import GATEWAY_MAC, SERVICES_MAC, SERVICES_PORT, Table
from orchestrator.errors import BadInput
from orchestrator.hosts.polling import Device, Uplink, check_cores, poll_uplink, refuse_polling
from orchestrator.policy.addresses import format_mac
from orchestrator.wire.domains import MAX_IDLE_MS

OLDEST = (3, 1)
"""The oldest Open vSwitch that programs were tried on: bundles, conjunctions and groups of OpenFlow 1.5."""
OWNER, MADE = "aclflow-domain", "aclflow-made"
"""External ids of a bridge of ours: its domain, and whether we made it."""

ROUTED_PORT = "up0"
"""The internal port that is a host's uplink where the kernel of the machine routes (`aclflow uplink run`)."""

_TARGET = re.compile(r"(?:tcp|ssl):(?:\[([0-9a-fA-F:.]+)\]|([0-9.]+)):([0-9]{1,5})\Z")
_INTERFACE = re.compile(r"[^\s/\"',;={}%-][^\s/\"',;={}%]{0,14}\Z")
"""A name that neither `ovs-vsctl` nor Ansible takes for anything else."""
TRACKED: Mapping[Table, tuple[str, ...]] = MappingProxyType(
    {
        Table.SOURCES: ("nw_src", "ipv6_src"),
        Table.OPERATOR: ("nw_src", "nw_dst", "ct_nw_src"),
        Table.EGRESS: ("nw_src", "nw_dst", "ct_nw_dst"),
        Table.INGRESS: ("nw_src", "nw_dst", "ct_nw_src"),
    }
)
"""Fields whose prefixes a table tracks, three at most: those that Open vSwitch tracks by itself, and what lists ask of
a stranger where they ask about the packet that opened a connection."""
_CONTROLLER = {"connection_mode": "out-of-band", "max_backoff": "1000", "inactivity_probe": "5000"}


class Datapath(Enum):
    """Where a switch forwards packets: in the kernel, or in its own process."""

    SYSTEM = "system"
    NETDEV = "netdev"


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files on the host: the switch's certificate and key, and the authority it trusts."""

    key: str
    certificate: str
    authority: str


HOST_TLS = Tls("/etc/aclflow/tls/switch.pem", "/etc/aclflow/tls/switch.pem", "/etc/aclflow/tls/authority.pem")
"""Where the role `certificates` puts a machine's files: key and certificate in one."""


OFFLOADS = "userspace-tso-enable"
"""The switch's setting; Open vSwitch reads it once, when its daemon starts."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A host's switch as it must be. Raises BadInput, naming the field."""

    domain: str
    host: str
    uplink: str
    controllers: tuple[str, ...]
    bridge: str = "br-aclflow"
    datapath_id: int = 0
    """0 takes `datapath_of(domain, host)`."""
    datapath: Datapath = Datapath.SYSTEM
    max_idle_ms: int = MAX_IDLE_MS
    """How long the datapath keeps a cache entry that no packet meets."""
    offloads: bool | None = None
    """Whether a daemon that forwards itself finishes checksums and cuts segments that guests leave open, from its next
    start on; None: as it is."""
    polling_cores: tuple[int, ...] = ()
    """Cores that do nothing but poll the uplink, by AF_XDP, where a daemon forwards itself; none: as it is."""
    tls: Tls | None = None
    ports: tuple[str, ...] = ()
    """Other interfaces that the bridge must hold; endpoints' come and go without anybody saying so here."""
    is_routed: bool = False
    """Whether the uplink is an internal port of the bridge, with the gateway's MAC address, that the kernel routes to;
    else a port towards a switch that takes and gives frames from gateway to gateway."""
    is_serving: bool = False
    """Whether the bridge has a port behind which the machine serves endpoints (`aclflow host services run`)."""
    adopt: bool = False
    """Whether a bridge that carries somebody's flows may be taken over; what it forwards then ends at once."""

    def __post_init__(self) -> None:
        named = (("uplink", self.uplink), ("bridge", self.bridge), *(("ports", port) for port in self.ports))
        for place, name in named:
            if not _INTERFACE.match(name):
                raise BadInput(f"'{name}' cannot be an interface's name", place=place)
        if not self.controllers:
            raise BadInput("name at least one controller, as in tcp:192.0.2.1:6653", place="controllers")
        for index, target in enumerate(self.controllers):
            if not _is_target(target):
                raise BadInput(
                    f"'{target}' is not as tcp:ADDRESS:PORT or ssl:ADDRESS:PORT, the address in numbers and IPv6 "
                    "in brackets",
                    place=f"controllers[{index}]",
                )
            if target.startswith("ssl:") and self.tls is None:
                raise BadInput("a controller over TLS needs key, certificate and authority", place="tls")
        if not 1 <= self.max_idle_ms <= 86_400_000:
            raise BadInput(f"{self.max_idle_ms} ms is not between 1 and a day", place="max_idle_ms")
        self._check_polling()
        if not self.datapath_id:
            object.__setattr__(self, "datapath_id", datapath_of(self.domain, self.host))

    def _check_polling(self) -> None:
        """Raise BadInput where no core can poll the uplink."""
        if not self.polling_cores:
            return
        check_cores(self.polling_cores)
        if self.datapath is not Datapath.NETDEV:
            raise BadInput(
                "cores poll the uplink of a daemon that forwards itself (datapath 'netdev'), not that of the kernel's "
                "datapath",
                place="polling_cores",
            )
        if self.is_routed:
            raise BadInput(
                f"no core can poll {self.uplink}, an internal port that the kernel routes to: name an interface of the "
                "machine as the uplink",
                place="polling_cores",
            )


@dataclass(frozen=True, slots=True)
class Bridge:
    """A bridge's state.

    `columns` holds its settings as text; `strange_flows` are flows that aclflow did not write.
    """

    columns: Mapping[str, str]
    other_config: Mapping[str, str]
    external_ids: Mapping[str, str]
    ports: frozenset[str]
    controllers: Mapping[str, Mapping[str, str]]
    strange_flows: int
    tracked: Mapping[int, frozenset[str]] = field(default_factory=lambda: MappingProxyType({}))
    """By table, the address fields that cache entries hold by as few bits as tell them apart."""

    @property
    def owner(self) -> str | None:
        return self.external_ids.get(OWNER)


@dataclass(frozen=True, slots=True)
class Seen:
    """A machine's Open vSwitch as it is."""

    version: str
    other_config: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    tls: Tls | None = None
    bridge: Bridge | None = None
    place_of_uplink: str | None = None
    """The bridge that holds the uplink, if one does."""
    uplink: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """The type and MAC address that the uplink's interface is configured with, if it is one of the switch's."""
    services: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """The same of the port of the services."""
    uplink_options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Options of the uplink's interface."""
    device: Device | None = None
    """The machine's interface that the uplink names, where there is one."""
    interface_types: frozenset[str] = frozenset()
    """What interfaces this Open vSwitch can open."""
    cores: frozenset[int] = frozenset()
    """Numbers of the machine's cores that are online."""


def datapath_of(domain: str, host: str) -> int:
    """Return the datapath id of a host, always the same and never zero.

    A replaced machine is thus known again.
    """
    return int.from_bytes(blake2b(f"{domain}/{host}".encode(), digest_size=8).digest(), "big") or 1


def _is_target(text: str) -> bool:
    """Return whether Open vSwitch can reach a controller by a target.

    It accepts others too, and connects to nothing.
    """
    found = _TARGET.match(text)
    if found is None:
        return False
    six, four, port = found.groups()
    try:
        ipaddress.IPv6Address(six) if six else ipaddress.IPv4Address(four)
    except ValueError:
        return False
    return 1 <= int(port) <= 65535


def refusal(seen: Seen, wanted: Wanted) -> str | None:
    """Return why the machine must not be changed and what to do, or None."""
    numbers = re.match(r"(\d+)\.(\d+)", seen.version)
    if numbers is None or (int(numbers[1]), int(numbers[2])) < OLDEST:
        return (
            f"Open vSwitch {seen.version} is too old: {OLDEST[0]}.{OLDEST[1]} or later is needed (Debian 12 has it); "
            "upgrade it, restart ovs-vswitchd, and repeat"
        )
    reason = _refuse_uplink(seen, wanted)
    if reason is None and wanted.polling_cores:
        reason = refuse_polling(wanted.polling_cores, _uplink_of(seen, wanted), seen.interface_types, seen.cores)
    if reason is not None:
        return reason
    bridge = seen.bridge
    if bridge is None or bridge.owner == wanted.domain:
        return None
    if bridge.owner is not None:
        return f"the bridge '{wanted.bridge}' belongs to the domain '{bridge.owner}': remove the host there first"
    if not wanted.adopt and (bridge.strange_flows or bridge.ports or bridge.controllers):
        return (
            f"the bridge '{wanted.bridge}' is in use: {bridge.strange_flows} flows of somebody, "
            f"{len(bridge.ports)} ports, {len(bridge.controllers)} controllers. Name another bridge, or say that it "
            "may be taken over (adopt): what it forwards then ends at once"
        )
    return None


def _refuse_uplink(seen: Seen, wanted: Wanted) -> str | None:
    if seen.place_of_uplink not in (None, wanted.bridge):
        return (
            f"the uplink {wanted.uplink} is a port of the bridge '{seen.place_of_uplink}': take it out there "
            f"(ovs-vsctl del-port {wanted.uplink}), or name that bridge"
        )
    if wanted.is_routed and seen.place_of_uplink and seen.uplink.get("type") != "internal":
        return (
            f"the bridge's port {wanted.uplink} is an interface of the machine, and cannot be the one that the kernel "
            f"routes to: name another (--uplink {ROUTED_PORT})"
        )
    return None


def _uplink_of(seen: Seen, wanted: Wanted) -> Uplink:
    return Uplink(wanted.uplink, seen.uplink.get("type", ""), seen.uplink_options, seen.device)


def steps(seen: Seen, wanted: Wanted) -> tuple[tuple[str, ...], ...]:
    """The commands of one `ovs-vsctl` transaction; empty where everything is as wanted."""
    bridge = seen.bridge
    known = bridge or Bridge({}, {}, {}, frozenset(), {}, 0)
    commands: list[tuple[str, ...]] = []
    if bridge is None:
        commands.append(("add-br", wanted.bridge))
    changes = [*_list_columns(known, wanted), *_list_maps(bridge, known, wanted)]
    if changes:
        commands.append(("set", "bridge", wanted.bridge, *changes))
    commands += prefix_tracking(wanted.bridge, known.tracked)
    if wanted.tls is not None and seen.tls != wanted.tls:
        commands.append(("set-ssl", wanted.tls.key, wanted.tls.certificate, wanted.tls.authority))
    commands += _controllers(known, wanted)
    serving = (SERVICES_PORT,) if wanted.is_serving else ()
    lacking = (port for port in (wanted.uplink, *serving, *wanted.ports) if port not in known.ports)
    commands += (("add-port", wanted.bridge, port) for port in lacking)
    if wanted.is_routed:
        commands += _internal(wanted.uplink, GATEWAY_MAC, seen.uplink)
    if wanted.is_serving:
        commands += _internal(SERVICES_PORT, SERVICES_MAC, seen.services)
    if wanted.polling_cores:
        commands += poll_uplink(wanted.polling_cores, _uplink_of(seen, wanted), seen.other_config)
    commands += _list_daemon_settings(seen, wanted)
    return tuple(commands)


def _list_daemon_settings(seen: Seen, wanted: Wanted) -> Iterator[tuple[str, ...]]:
    """Yield the commands for settings of the whole switch."""
    config = {"max-idle": str(wanted.max_idle_ms)}
    if wanted.offloads is not None and (wanted.offloads or OFFLOADS in seen.other_config):
        config[OFFLOADS] = "true" if wanted.offloads else "false"
    for key, value in config.items():
        if seen.other_config.get(key) != value:
            yield ("set", "Open_vSwitch", ".", f"other_config:{key}={value}")


def _internal(port: str, mac: int, configured: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """Yield the command that makes a port an internal one with a MAC address.

    Nothing is yielded where it is so already.
    """
    wanted = {"type": "internal", "mac": f'"{format_mac(mac)}"'}
    changes = [f"{key}={value}" for key, value in wanted.items() if configured.get(key) != value.strip('"')]
    if changes:
        yield ("set", "interface", port, *changes)


def _list_columns(known: Bridge, wanted: Wanted) -> Iterator[str]:
    columns = {"datapath_type": wanted.datapath.value, "fail_mode": "secure", "protocols": "OpenFlow15"}
    if wanted.datapath is Datapath.SYSTEM and not known.columns.get("datapath_type"):
        columns.pop("datapath_type")  # an empty one means the kernel's
    yield from (f"{name}={value}" for name, value in columns.items() if known.columns.get(name) != value)


def _list_maps(bridge: Bridge | None, known: Bridge, wanted: Wanted) -> Iterator[str]:
    config = {"datapath-id": f"{wanted.datapath_id:016x}", "disable-in-band": "true"}
    yield from (f"other_config:{key}={value}" for key, value in config.items() if known.other_config.get(key) != value)
    if known.owner != wanted.domain:
        yield f"external_ids:{OWNER}={wanted.domain}"
        yield f"external_ids:{MADE}={'true' if bridge is None else 'false'}"


def prefix_tracking(
    bridge: str, tracked: Mapping[int, frozenset[str]], wanted: Mapping[Table, tuple[str, ...]] = TRACKED
) -> Iterator[tuple[str, ...]]:
    """Yield the commands for tables that strangers' addresses are asked for.

    Else Open vSwitch 3.1 would hold all bits of them: an entry of its cache for each stranger. It tracks no prefixes of
    IPv6 by itself, nor those of the packet that opened a connection.
    """
    for table, fields in wanted.items():
        if tracked.get(table) != frozenset(fields):
            name = f"@{bridge}-{table.value}"
            yield (f"--id={name}", "create", "Flow_Table", f"prefixes={','.join(fields)}")
            yield ("set", "bridge", bridge, f"flow_tables:{table.value}={name}")


def _controllers(known: Bridge, wanted: Wanted) -> Iterator[tuple[str, ...]]:
    """Yield commands that replace all controllers, in one transaction, where any differs.

    Open vSwitch keeps its flows when some controllers remain.
    """
    same = known.controllers.keys() == set(wanted.controllers)
    if same and all(
        row.get(name) == value for row in known.controllers.values() for name, value in _CONTROLLER.items()
    ):
        return
    words = [f"{name}={value}" for name, value in _CONTROLLER.items()]
    for index, target in enumerate(wanted.controllers):
        yield (f"--id=@c{index}", "create", "controller", f'target="{target}"', *words)
    rows = ",".join(f"@c{index}" for index in range(len(wanted.controllers)))
    yield ("set", "bridge", wanted.bridge, f"controller=[{rows}]")


def release(seen: Seen, bridge: str, domain: str) -> tuple[tuple[str, ...], ...]:
    """Return the commands that give a host's switch back, closed.

    A bridge that we made is deleted; one that existed before keeps its ports and `fail_mode=secure`, and loses its
    controllers and with them every flow. Raises BadInput for a bridge of somebody else.
    """
    known = seen.bridge
    if known is None or known.owner is None:
        return ()
    if known.owner != domain:
        raise BadInput(f"the bridge '{bridge}' belongs to the domain '{known.owner}'", place="bridge")
    if known.external_ids.get(MADE) == "true":
        return (("del-br", bridge),)
    forget = [("remove", "bridge", bridge, "external_ids", key) for key in (OWNER, MADE)]
    tables = (table.value for table in TRACKED if known.tracked.get(table))
    forget += (("remove", "bridge", bridge, "flow_tables", str(table)) for table in tables)
    return (("set", "bridge", bridge, "fail_mode=secure"), ("del-controller", bridge), *forget)
