"""A lab's routed fabric: a plain Linux router between edge and hosts.

    clients ─ edge bridge ─ to-router ══ edge ┆ router ┆ leg1 ══ fabric ┆ kernel of host1 ┆ up0 ─ bridge ─ endpoints
                                              ┆  BIRD  ┆ leg2 ══ fabric ┆ kernel of host2 ┆ up0 ─ bridge ─ endpoints

Each host is a namespace with an Open vSwitch of its own, `aclflow uplink run`, and BIRD with the example that the
project ships. The router knows nothing of aclflow: BIRD tells it which host has an address. All else goes to
the edge bridge; so does everything that hosts send where firewalls stand in the path, for the edge to steer.
"""

from __future__ import annotations

import shutil
import socket
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyroute2 import IPRoute

from orchestrator.compile.pipelines.host import GATEWAY_IPV4, GATEWAY_IPV6, GATEWAY_MAC
from orchestrator.errors import Missing, Unreachable
from orchestrator.lab import namespaces, network
from orchestrator.lab.layout import Layout
from orchestrator.lab.network import Management
from orchestrator.lab.spec import ROUTER, ROUTER_MAC, ROUTER_PORT, PopSpec
from orchestrator.policy.addresses import Family, Prefix, format_address, format_mac

HOST_LEG = "fabric"
"""The name of a host's interface towards the router, inside the host."""
ROUTER_AS = 65009
_HOST_AS = 65100
_EDGE_LEG = "edge"
_LEGS = 0x647F4D00  # 100.127.77.0/24, in blocks of four addresses
_STEERED_TABLE = 100
_MAIN_TABLE = 254
_PATIENCE_S = 60.0
_EXAMPLE = Path("routing", "bird.conf")
_INSTALLED, _CHECKOUT = Path(sys.prefix) / "share" / "aclflow", Path(__file__).parents[2] / "packaging"
_FORWARDING = {
    "net/ipv4/ip_forward": "1", "net/ipv6/conf/all/forwarding": "1",
    "net/ipv4/conf/all/rp_filter": "0", "net/ipv4/conf/default/rp_filter": "0",
    "net/ipv4/conf/all/send_redirects": "0", "net/ipv4/conf/default/send_redirects": "0",
}  # fmt: skip
_QUIET = {f"net/ipv6/conf/default/{name}": value for name, value in network.QUIET_IPV6.items()}


@dataclass(frozen=True, slots=True)
class Leg:
    """A router's link to a host, and the addresses (IPv4, IPv6) at both ends."""

    name: str
    host_as: int
    router: tuple[str, str]
    host: tuple[str, str]

    @classmethod
    def nth_leg(cls, number: int) -> Leg:
        """The leg of a lab's host, counted from 1."""
        first = _LEGS + 4 * number
        near, far = (format_address(Family.IPV4, first + place) for place in (1, 2))
        return cls(
            f"leg{number}", _HOST_AS + number, (near, f"fd77:{number:x}::1"), (far, f"fd77:{number:x}::2")
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class FabricProcess:
    """A process of the fabric: its name in the lab, its namespace, and its command."""

    name: str
    namespace: str
    command: tuple[str, ...]


def check_possible() -> None:
    """Raises Missing where the routing daemon is not installed."""
    if shutil.which("bird") is None:
        raise Missing("the program 'bird' is not installed: apt-get install bird2")


def create(layout: Layout, spec: PopSpec, service: Management) -> None:
    """Create links, addresses and routes of router and hosts, and BIRD's files.

    Their namespaces are there. Controllers listen on the root end of `service`.
    """
    router = layout.namespace(ROUTER)
    for name in (router, *(layout.bridge_namespace(host) for host in spec.hosts)):
        namespaces.inside(name, partial(namespaces.set_kernel, {**_FORWARDING, **_QUIET}))
    namespaces.inside(layout.ovs_namespace, partial(_create_edge_link, router))
    namespaces.inside(router, _route_to_edge)
    for number, host in enumerate(spec.hosts, 1):
        name, leg = layout.bridge_namespace(host), Leg.nth_leg(number)
        namespaces.inside(router, partial(_create_leg, leg, name))
        namespaces.inside(name, partial(_address, HOST_LEG, leg.host))
        if spec.steers_hosts:
            namespaces.inside(router, partial(_steer, leg.name))
        mine = network.create_management(name, layout.host_link(number))
        if mine.controller != service.controller:
            namespaces.inside(name, partial(_route_to_controller, service.controller, mine.controller))
        _name_file(layout, host.name, "conf").write_text(host_text(leg), encoding="utf-8")
    legs = [Leg.nth_leg(number) for number, _ in enumerate(spec.hosts, 1)]
    own = format_address(Family.IPV4, _LEGS)
    _name_file(layout, ROUTER, "conf").write_text(router_text(own, legs, ranges(spec)), encoding="utf-8")


def commands(layout: Layout, spec: PopSpec) -> tuple[FabricProcess, ...]:
    """Return the processes of router and hosts, in the order in which they start."""
    declared = [word for prefix in ranges(spec) for word in ("--range", str(prefix))]
    uplinks = (
        FabricProcess(
            f"uplink-{host.name}",
            layout.bridge_namespace(host),
            (
                *(sys.executable, "-m", "orchestrator.cli", "uplink", "run", "--bridge", host.name),
                *("--run-dir", str(layout.ovs_dir(host)), "--fabric", HOST_LEG, *declared),
            ),
        )
        for host in spec.hosts
    )
    return (*uplinks, *(_make_bird(layout, name) for name in (ROUTER, *(host.name for host in spec.hosts))))


def ranges(spec: PopSpec) -> tuple[Prefix, ...]:
    """Return the addresses that endpoints may have."""
    return tuple(prefix for tenant in spec.tenants for prefix in tenant.prefixes)


def wait_for_routes(layout: Layout, spec: PopSpec) -> None:
    """Wait until router and hosts know where each endpoint is, and nothing else.

    Raises Unreachable, naming what lacks.
    """
    until = time.monotonic() + _PATIENCE_S
    while wrong := tuple(_wrong_routes(layout, spec)):
        if time.monotonic() > until:
            raise Unreachable(f"{', '.join(wrong)}: see {layout.logs}/uplink-*.log and bird-*.log")
        time.sleep(0.02)


def _wrong_routes(layout: Layout, spec: PopSpec) -> Iterator[str]:
    """Yield what is wrong with the routes of router and hosts, in words."""
    learned = namespaces.inside(layout.namespace(ROUTER), _routes)
    for number, host in enumerate(spec.hosts, 1):
        leg = Leg.nth_leg(number).name
        own = namespaces.inside(layout.bridge_namespace(host), _routes)
        for endpoint in spec.endpoints:
            for prefix in endpoint.addresses:
                if endpoint.host == host.name and (prefix, leg) not in learned:
                    yield f"the router has no route to {prefix} by {host.name}"
                if endpoint.host != host.name and (prefix, host.uplink) in own:
                    yield f"{host.name} still has {prefix}"


def router_text(router_id: str, legs: Sequence[Leg], accepted: Iterable[Prefix]) -> str:
    """Return BIRD's configuration of a plain router that takes from hosts addresses inside `accepted` alone."""
    found: dict[Family, list[str]] = {family: [] for family in Family}
    for prefix in accepted:
        found[prefix.family].append(f"{prefix}+")
    lines = [f"router id {router_id}; log stderr all;", "protocol device { scan time 10; }"]
    for family in Family:
        word, everything = f"ipv{family.value}", "0.0.0.0/0" if family is Family.IPV4 else "::/0"
        within = f"if net ~ [ {', '.join(found[family])} ] then accept; " if found[family] else ""
        lines += [
            f"protocol kernel {{ {word} {{ export where source = RTS_BGP; }}; }}",
            f"protocol static d{family.value} {{ {word}; route {everything} unreachable; }}",
            f"filter e{family.value} {{ {within}reject; }}",
        ]
    lines += [
        f"template bgp host {{ local as {ROUTER_AS}; hold time 9; connect retry time 1; connect delay time 1;",
        "  error wait time 1, 4; graceful restart on; }",
    ]
    for family in Family:
        channel = f'import filter e{family.value}; export where proto = "d{family.value}"; next hop self;'
        lines.append(f"template bgp host{family.value} from host {{ ipv{family.value} {{ {channel} }}; }}")
    return "\n".join((*lines, *_write_sessions(legs), ""))


def _write_sessions(legs: Sequence[Leg]) -> Iterator[str]:
    for leg in legs:
        for family, address in zip(Family, leg.host, strict=True):
            name = f"{leg.name}v{family.value}"
            yield f"protocol bgp {name} from host{family.value} {{ neighbor {address} as {leg.host_as}; }}"


def host_text(leg: Leg) -> str:
    """Return BIRD's configuration of a host: the shipped example with this host's own numbers."""
    text = ((_INSTALLED if _INSTALLED.is_dir() else _CHECKOUT) / _EXAMPLE).read_text(encoding="utf-8")
    changes = {
        "10.0.1.2": leg.host[0], "10.0.1.1": leg.router[0], "fd00:1::1": leg.router[1],
        "65001": str(leg.host_as), "log syslog all": "log stderr all",
    }  # fmt: skip
    for theirs, ours in changes.items():
        text = text.replace(theirs, ours)
    return text


def _make_bird(layout: Layout, node: str) -> FabricProcess:
    files = (_name_file(layout, node, ending) for ending in ("conf", "ctl", "pid"))
    words = (word for option, path in zip(("-c", "-s", "-P"), files, strict=True) for word in (option, str(path)))
    return FabricProcess(f"bird-{node}", layout.namespace(node), ("bird", "-f", *words))


def _name_file(layout: Layout, node: str, ending: str) -> Path:
    return layout.run_dir / f"bird-{node}.{ending}"


def _create_edge_link(router: str) -> None:
    """The link between edge bridge and router. Called inside the switches' namespace."""
    with IPRoute() as switches, network.descriptor(router) as inside:
        peer = {"ifname": _EDGE_LEG, "net_ns_fd": inside, "address": format_mac(ROUTER_MAC)}
        switches.link("add", ifname=ROUTER_PORT, kind="veth", peer=peer)
        switches.link("set", index=switches.link_lookup(ifname=ROUTER_PORT)[0], state="up")
    network.without_offloads(ROUTER_PORT)


def _route_to_edge() -> None:
    """Send to the edge what is for no host. Called inside the router."""
    network.without_offloads(_EDGE_LEG)
    with IPRoute() as router:
        index = router.link_lookup(ifname=_EDGE_LEG)[0]
        for each in (router.link_lookup(ifname="lo")[0], index):
            router.link("set", index=each, state="up")
        for family, gateway in ((socket.AF_INET, GATEWAY_IPV4), (socket.AF_INET6, GATEWAY_IPV6)):
            mac = format_mac(GATEWAY_MAC)
            router.neigh("add", dst=gateway, lladdr=mac, ifindex=index, state="permanent", family=family)
            for table in (_MAIN_TABLE, _STEERED_TABLE):
                everything = "0.0.0.0/0" if family == socket.AF_INET else "::/0"
                router.route(
                    "add", dst=everything, gateway=gateway, oif=index, flags=["onlink"], family=family, table=table
                )


def _steer(leg: str) -> None:
    """Send all that a host sends to the edge. Called inside the router."""
    with IPRoute() as router:
        for family in (socket.AF_INET, socket.AF_INET6):
            router.rule("add", iifname=leg, table=_STEERED_TABLE, priority=_STEERED_TABLE, family=family)


def _create_leg(leg: Leg, host: str) -> None:
    """The link to a host, and the router's addresses there. Called inside the router."""
    with IPRoute() as router, network.descriptor(host) as inside:
        router.link("add", ifname=leg.name, kind="veth", peer={"ifname": HOST_LEG, "net_ns_fd": inside})
    _address(leg.name, leg.router)


def _address(name: str, addresses: tuple[str, str]) -> None:
    """Give an interface its addresses, and set it up."""
    with IPRoute() as links:
        index = links.link_lookup(ifname=name)[0]
        for address, length in zip(addresses, (30, 64), strict=True):
            links.addr("add", index=index, address=address, prefixlen=length)
        links.link("set", index=index, state="up")
        links.link("set", index=links.link_lookup(ifname="lo")[0], state="up")


def _route_to_controller(controller: str, gateway: str) -> None:
    """Add a route to the controller. Called inside a host."""
    with IPRoute() as host:
        host.route("add", dst=f"{controller}/32", gateway=gateway)


def _routes() -> frozenset[tuple[Prefix, str]]:
    """Each prefix of the main table, with the interface it leads to.

    Called inside router or host.
    """
    found = set()
    with IPRoute(strict_check=True) as kernel:
        names = {link["index"]: str(link.get_attr("IFLA_IFNAME")) for link in kernel.get_links()}
        for family in Family:
            for route in kernel.get_routes(family=family.socket_family, table=_MAIN_TABLE):
                address = route.get_attr("RTA_DST") or format_address(family, 0)
                place = names.get(route.get_attr("RTA_OIF"), "")
                found.add((Prefix.parse(f"{address}/{route['dst_len']}"), place))
    return frozenset(found)
