"""Both firewalls of a cloud behind one interface: aclflow, and ML2/OVS.

aclflow is told by its REST interface, ML2/OVS by Neutron's API. Each side has two ports of one network, near and far,
plugged as os-vif plugs instances. Its list is empty, or it lets in what openings name, after some rules that no packet
of the suite meets.
"""

from __future__ import annotations

import abc
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeVar

from orchestrator.bench.benchlab import processor_s
from orchestrator.bench.cloud.cloudsite import OURS, THEIRS, Boot, CloudSite, Compute
from orchestrator.bench.cloud.plugs import PORT, Plugged, Stream, plug_namespace, streaming
from orchestrator.bench.traffic import iperf
from orchestrator.bench.traffic.downloads import MANY_PORTS, Ends, Web
from orchestrator.bench.traffic.downloads import PORT as WEB_PORT
from orchestrator.client import Client
from orchestrator.errors import Drifted, Missing, Refused, Unreachable
from orchestrator.extras import needs_extra
from orchestrator.lab import namespaces
from orchestrator.lab.network import INTERFACE
from orchestrator.lab.processes import wait_until
from orchestrator.policy.formats.native import acl_from_json, rule_from_json
from orchestrator.policy.model import ReturnTraffic

Result = TypeVar("Result")

_AT_ONCE = 25
_FLOOD_PORT = 5201
_LOOKS_TO_SETTLE = 3
"""So often Neutron's agent looks until a change that it was told of is surely done."""
_PATIENCE_S = 600.0
_NAME = "aclflow-bench"
"""Of everything that the suite makes in the cloud."""


class Opening(NamedTuple):
    """Packets that a list lets in: a protocol, with a port or without."""

    protocol: str
    port: int | None = None


PROBE = (Opening("udp", PORT),)
"""The stream."""
SERVED = (*PROBE, Opening("tcp", WEB_PORT), Opening("tcp", _FLOOD_PORT), Opening("udp", _FLOOD_PORT), Opening("icmp"))
"""Everything that the suite sends."""


class Rate(NamedTuple):
    """Connections or packets a second, and the switch's processor time for each."""

    per_s: float
    cpu_us: float


class Booted(NamedTuple):
    """Seconds from the call until an instance was active, and until it answered.

    None: no answer was waited for.
    """

    active_s: float
    reachable_s: float | None = None


def other_address(number: int) -> str:
    """A sender that none of the suite's packets has."""
    return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}/32"


# ------------------------------------------------------------------------------------------------------------- lists


class Lists(abc.ABC):
    """The list of one side.

    When a call returns, the change is accepted, and not yet enforced.
    """

    @abc.abstractmethod
    def clear(self) -> None:
        """Let nothing in; return when no older change is under way any more."""

    @abc.abstractmethod
    def permit(self, openings: Sequence[Opening], others: int = 0) -> None:
        """Let packets in, after so many other rules, where nothing was let in."""

    @abc.abstractmethod
    def add_other(self, number: int) -> None:
        """Add a rule that no packet meets."""


class OurLists(Lists):
    """The list of a tenant of aclflow."""

    def __init__(self, client: Client, tenant: str) -> None:
        self._client = client
        self._tenant = tenant

    def clear(self) -> None:
        """Put an empty list in force."""
        self._put([])

    def permit(self, openings: Sequence[Opening], others: int = 0) -> None:
        """Put a list that permits these openings in force, behind `others` more rules."""
        probe = openings[0]
        rules = [_make_rule(f"other{number}", probe, other_address(number)) for number in range(others)]
        self._put([*rules, *(_make_rule(f"open{number}", each) for number, each in enumerate(openings))])

    def add_other(self, number: int) -> None:
        """Put a rule about some other address at the list's head."""
        document = _make_rule(f"more{number}", PROBE[0], other_address((1 << 16) + number))
        self._client.acls.insert_rule(self._tenant, rule_from_json(document), position=0)

    def _put(self, rules: list[dict[str, object]]) -> None:
        """Replace the tenant's list by these rules."""
        self._client.acls.put(self._tenant, acl_from_json({"rules": rules}))


def _make_rule(name: str, opening: Opening, source: str | None = None) -> dict[str, object]:
    ports = {} if opening.port is None else {"destination_ports": opening.port}
    return {"id": name, "action": "permit", "protocol": opening.protocol, **ports,
            **({} if source is None else {"source": source})}  # fmt: skip


class TheirLists(Lists):
    """The security group of some ports; `api` is Neutron's.

    Its list is emptied by a new group in its place.
    """

    def __init__(self, api: Any, ports: Sequence[Any], settle_s: float) -> None:
        self._api = api
        self._ports = ports
        self._settle_s = settle_s
        self._group: str | None = None

    @property
    def group(self) -> str | None:
        """The group that the ports are in."""
        return self._group

    def clear(self) -> None:
        made = str(self._api.create_security_group(name=_NAME).id)
        for port in self._ports:
            self._api.update_port(port.id, security_group_ids=[made])
        self.remove()
        self._group = made
        time.sleep(self._settle_s)

    def permit(self, openings: Sequence[Opening], others: int = 0) -> None:
        """Add a rule for each opening to the security group, behind `others` more."""
        rules = [self._make_rule(openings[0], other_address(number)) for number in range(others)]
        list(self._api.create_security_group_rules([*rules, *map(self._make_rule, openings)]))

    def add_other(self, number: int) -> None:
        list(self._api.create_security_group_rules([self._make_rule(PROBE[0], other_address((1 << 16) + number))]))

    def remove(self) -> None:
        """Delete the group, which no port may be in any more."""
        if self._group is not None:
            self._api.delete_security_group(self._group)
            self._group = None

    def _make_rule(self, opening: Opening, source: str | None = None) -> dict[str, object]:
        ports = {} if opening.port is None else {"port_range_min": opening.port, "port_range_max": opening.port}
        return {
            "security_group_id": self._group, "direction": "ingress", "ethertype": "IPv4",
            "protocol": opening.protocol, **ports, **({} if source is None else {"remote_ip_prefix": source}),
        }  # fmt: skip


# ------------------------------------------------------------------------------------------------------------- sides


@dataclass(frozen=True, slots=True)
class Side:
    """A firewall with two plugged ports, a stream and a web server between them."""

    name: str
    network: Any
    lists: Lists
    near: Plugged
    far: Plugged
    stream: Stream
    web: Web


@dataclass(frozen=True, slots=True)
class Cloud:
    """Both sides of a cloud, while a `with` statement of `open_cloud` lasts."""

    site: CloudSite
    connection: Any
    client: Client
    sides: Mapping[str, Side]

    def measure_opening_s(self, name: str, rules: int) -> float:
        """Let the stream in by the last of `rules` rules; measure until its first packet.

        The clock starts with the call.
        """
        side = self.sides[name]
        side.lists.clear()
        return side.stream.measure_opening_s(partial(side.lists.permit, PROBE, rules - 1))

    def count_lost(self, name: str, changes: int) -> int:
        """Change the list so often with packets under way; how many were lost."""
        side = self.sides[name]
        side.lists.clear()
        side.lists.permit(PROBE)
        return sum(side.stream.count_lost(partial(side.lists.add_other, number)) for number in range(changes))

    def serve(self) -> None:
        """Have both sides let in everything that the suite sends."""
        for side in self.sides.values():
            side.lists.clear()
            side.lists.permit(SERVED)
        for side in self.sides.values():
            side.stream.wait_until_open()

    def measure_connections(self, name: str, count: int) -> Rate:
        """Download a page of one byte so often. Raises Drifted where a download failed."""
        side, daemon = self.sides[name], self._forget()
        before, started = processor_s(daemon), time.perf_counter()
        downloads = side.web.download(count, min(count, _AT_ONCE))
        seconds = time.perf_counter() - started
        if downloads.failed:
            raise Drifted(f"{name}: {downloads.failed} of {count} downloads failed")
        return Rate(count / seconds, 1e6 * (processor_s(daemon) - before) / count)

    def measure_packets(self, name: str, seconds: int) -> Rate:
        """Send datagrams of one flow at the sender's maximum. Raises Refused, Unreachable."""
        side, daemon = self.sides[name], self._forget()
        with _flood_server(side.far):
            before, received = processor_s(daemon), _count_received(side.far)
            sent, took_s = iperf.read(_run_inside(
                side.near, "iperf3", "--client", side.far.address, "--port", str(_FLOOD_PORT), "--udp",
                "--length", str(iperf.DATAGRAM_BYTES), "--bitrate", "0", "--time", str(seconds), "--json",
            ))  # fmt: skip
            arrived = _count_received(side.far) - received
            cpu_us = 1e6 * (processor_s(daemon) - before)
        if not sent or not arrived:
            raise Unreachable(f"{name}: none of iperf3's datagrams arrived")
        return Rate(arrived / took_s, cpu_us / arrived)

    @contextmanager
    def returning(self, setting: ReturnTraffic) -> Iterator[None]:
        """Have the domain treat replies so during the block; afterwards as before."""
        before = ReturnTraffic(self.client.domains.read(self.site.service.domain).return_traffic)
        self._set_return_traffic(setting)
        try:
            yield
        finally:
            self._set_return_traffic(before)

    def boot(self, name: str) -> Booted:
        """Boot an instance on a side's network and delete it.

        Raises Refused with what Nova says.
        """
        boot, side = self.site.boot, self.sides[name]
        assert boot is not None
        begun = time.monotonic()
        server = self._create_server(boot, side)
        compute = self.connection.compute
        try:
            wait_until(lambda: compute.get_server(server.id).status != "BUILD", "Nova builds", _PATIENCE_S)
            now = compute.get_server(server.id)
            if now.status != "ACTIVE":
                raise Refused(f"{name}: the instance is {now.status}: {now.fault}")
            active_s = time.monotonic() - begun
            if not boot.reachable:
                return Booted(active_s)
            port = next(iter(self.connection.network.ports(device_id=server.id)))
            address = next(each["ip_address"] for each in port.fixed_ips if ":" not in each["ip_address"])
            wait_until(partial(_is_answering, side.near, address), f"{name}: {address} does not answer", _PATIENCE_S)
            return Booted(active_s, time.monotonic() - begun)
        finally:
            compute.delete_server(server.id)
            compute.wait_for_delete(server, wait=_PATIENCE_S)

    def _create_server(self, boot: Boot, side: Side) -> Any:
        compute, group = self.connection.compute, getattr(side.lists, "group", None)
        groups = {} if group is None else {"security_groups": [{"name": group}]}
        return compute.create_server(
            name=_NAME, image_id=self.connection.image.find_image(boot.image, ignore_missing=False).id,
            flavor_id=compute.find_flavor(boot.flavor, ignore_missing=False).id,
            networks=[{"uuid": side.network.id}], availability_zone=f"nova:{self.site.host.name}", **groups,
        )  # fmt: skip

    def _set_return_traffic(self, setting: ReturnTraffic) -> None:
        domain = self.site.service.domain
        changed = self.client.domains.set_return_traffic(domain, setting)
        if not self.client.domains.wait_until_enforced(domain, changed.generation, timeout_s=60.0).done:
            raise Unreachable(f"the domain {domain} does not enforce that replies are {setting.value}")

    def _forget(self) -> int:
        """Have the switch forget what it has seen; return the process id of its daemon."""
        self.site.host.run("ovs-appctl", "revalidator/purge")
        return int(self.site.host.run("cat", "/run/openvswitch/ovs-vswitchd.pid"))


class _Spaces:
    """Network namespaces by their own names, for a web server and its client."""

    def inside(self, name: str, call: Callable[[], Result]) -> Result:
        """Call something inside a network namespace."""
        return namespaces.inside(name, call)


@contextmanager
def open_cloud(site: CloudSite) -> Iterator[Cloud]:
    """Make ports on both networks and plug them; remove everything when the block ends.

    Raises Missing, Unreachable.
    """
    namespaces.need_root()
    connection, service = _connect(site), site.service
    tenant = connection.session.get_project_id()
    with Client(service.url, service.token, authority=service.authority) as client, ExitStack() as stack:
        kept, quota = client.acls.read(tenant).acl, connection.network.get_quota(tenant).security_group_rules
        stack.callback(lambda: client.acls.put(tenant, kept))
        connection.network.update_quota(tenant, security_group_rules=-1)
        stack.callback(lambda: connection.network.update_quota(tenant, security_group_rules=quota))
        lists: Mapping[str, Callable[[Sequence[Any]], Lists]] = {
            OURS: lambda _: OurLists(client, tenant),
            THEIRS: lambda ports: TheirLists(connection.network, ports, _LOOKS_TO_SETTLE * site.polling_interval_s),
        }
        sides = {name: stack.enter_context(_open_side(site, connection, name, make)) for name, make in lists.items()}
        yield Cloud(site, connection, client, sides)


def _connect(site: CloudSite) -> Any:
    """Sign in. Raises Missing without the library."""
    with needs_extra("openstack", "measuring a cloud"):
        import openstack as sdk  # noqa: PLC0415 -- not everybody measures clouds
    files = None if site.clouds_file is None else [str(site.clouds_file)]
    return sdk.connection.Connection(config=sdk.config.OpenStackConfig(config_files=files).get_one(cloud=site.os_cloud))


@contextmanager
def _open_side(
    site: CloudSite, connection: Any, name: str, make_lists: Callable[[Sequence[Any]], Lists]
) -> Iterator[Side]:
    """Make two ports of a network, plug both, and have a stream between them."""
    api = connection.network
    network = api.find_network(site.networks[name], ignore_missing=False)
    subnet = next(iter(api.subnets(network_id=network.id, ip_version=4)), None)
    if subnet is None:
        raise Missing(f"the network {network.name} has no IPv4 subnet")
    gateway = subnet.gateway_ip if name == OURS else ""
    with ExitStack() as stack:
        ports = [_make_port(stack, api, network, subnet, site.host) for _ in range(2)]
        lists = make_lists(ports)
        near, far = (
            stack.enter_context(plug_namespace(site.host, site.bridges[name], each, gateway)) for each in ports
        )
        wait_until(lambda: all(api.get_port(each.id).status == "ACTIVE" for each in ports),
                   f"{name}: the ports do not become active", _PATIENCE_S)  # fmt: skip
        lists.clear()
        if isinstance(lists, TheirLists):
            stack.callback(partial(_leave_group, api, ports, lists))
        for end in (near, far):
            namespaces.inside(end.namespace, partial(namespaces.set_kernel, MANY_PORTS))
        stream = stack.enter_context(streaming(near, far))
        folder = Path(stack.enter_context(TemporaryDirectory()))
        lists.permit(SERVED)
        web = stack.enter_context(Web(_Spaces(), folder, Ends(near.namespace, far.namespace, far.address)))
        yield Side(name, network, lists, near, far, stream, web)


def _make_port(stack: ExitStack, api: Any, network: Any, subnet: Any, host: Compute) -> Any:
    """Make a port that is bound to a host; it is deleted with the stack."""
    port = api.create_port(
        name=_NAME, network_id=network.id, binding_host_id=host.name, fixed_ips=[{"subnet_id": subnet.id}]
    )
    stack.callback(partial(api.delete_port, port.id))
    return port


def _leave_group(api: Any, ports: Sequence[Any], lists: TheirLists) -> None:
    for port in ports:
        api.update_port(port.id, security_group_ids=[])
    lists.remove()


@contextmanager
def _flood_server(end: Plugged) -> Iterator[None]:
    """Run iperf3's server at an end. Raises Missing where it is not installed."""
    command = ["iperf3", "--server", "--port", str(_FLOOD_PORT)]

    def begin() -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    try:
        server = namespaces.inside(end.namespace, begin)
    except FileNotFoundError:
        raise Missing("there is no iperf3 here: apt-get install iperf3") from None
    try:
        wait_until(partial(_listens, end), "iperf3 does not listen")
        yield
    finally:
        server.terminate()
        server.wait()


def _listens(end: Plugged) -> bool:
    """Whether something listens at the flood's port there."""
    shown = namespaces.inside(end.namespace, lambda: Path("/proc/thread-self/net/tcp6").read_text(encoding="ascii"))
    return f":{_FLOOD_PORT:04X} " in shown


def _count_received(end: Plugged) -> int:
    text = namespaces.inside(end.namespace, lambda: Path("/proc/thread-self/net/dev").read_text(encoding="ascii"))
    return iperf.received_frames(text, INTERFACE)


def _run_inside(end: Plugged, *command: str) -> str:
    run = partial(subprocess.run, command, capture_output=True, text=True, check=False)
    done: subprocess.CompletedProcess[str] = namespaces.inside(end.namespace, run)
    return done.stdout


def _is_answering(end: Plugged, address: str) -> bool:
    """Whether an address answers a ping within a fifth of a second."""

    def ping() -> int:
        command = ("ping", "-c", "1", "-W", "0.2", address)
        return subprocess.run(command, capture_output=True, check=False).returncode

    return namespaces.inside(end.namespace, ping) == 0
