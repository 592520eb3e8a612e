"""The measured edge: Open vSwitch with a world's program, its counters, and the firewall servers."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np

from orchestrator.bench.benchlab import wait_connected
from orchestrator.bench.pop.links import EDGE, OUT, UPLINK, Links, server
from orchestrator.bench.pop.world import World
from orchestrator.bench.traffic.vnf import handled_packets, megaflows, missed_packets
from orchestrator.compile.edgeprogram import Edge, FamilyLines, edge_program, packets_of_lines
from orchestrator.compile.pipelines.edge import EdgeTable
from orchestrator.compile.servers.programs import Ask, Peer, ServerCompiler
from orchestrator.compile.servers.tenants import TenantCompiler
from orchestrator.edge.lines import I64
from orchestrator.enforce import gap
from orchestrator.enforce.drivers.nftables.served import ServedDriver, served_driver
from orchestrator.enforce.drivers.openflow.app import SwitchObserver
from orchestrator.enforce.drivers.openflow.driver import Switch
from orchestrator.enforce.drivers.openflow.launcher import Launcher, Listen
from orchestrator.errors import Drifted, Refused
from orchestrator.lab import processes
from orchestrator.lab.bridges import rehome_addresses
from orchestrator.lab.ovs import POLLING_CORE, OpenVSwitch, Ports
from orchestrator.policy.prefilter import Misdirect
from orchestrator.program.flows import U64, FlowTable
from orchestrator.program.program import Program, Tier

_BRIDGE = "pop"
_DATAPATH = 0xAC1F00000300
_CONTROLLER = "127.0.0.1"
_PATIENCE_S = 30.0
_NONE = FlowTable.of(())


class EdgeSwitch:
    """A running edge. Made by `edge_switch`."""

    def __init__(self, switch: OpenVSwitch, device: Switch) -> None:
        self._switch = switch
        self._device = device
        self._program: Program | None = None
        self._world: World | None = None

    def load(self, world: World, links: Links, heavy: FlowTable = _NONE) -> None:
        """Load a world's program alone, with zero counters and an empty cache.

        Raises Drifted.
        """
        owned = tuple(prefix for tenant in world.tenants for prefix in tenant.prefixes)
        families = (FamilyLines(world.grid.chunking, world.lines),)
        program = edge_program(Edge((OUT,), links.ways(), owned, families, heavy), domain="bench", generation=1)
        self._switch.ofctl("del-flows", _BRIDGE)
        self._device.apply(gap.correction(self._device.observe(), program, self._device.resolve), gap.stamp_of(program))
        held = self._device.resolve(program.flows, program.ports)
        wrong = gap.mismatch(self._device.observe(), held, gap.stamp_of(program))
        if wrong is not None:
            raise Drifted(wrong.text)
        self._program, self._world = program, world
        self.forget()

    def forget(self) -> None:
        """Empty the cache; counters of rows then hold everything."""
        self._switch.forget()

    def packets_of_lines(self) -> I64:
        """Return each line's counter, in the lines' order."""
        flows, packets = self._read_counters()
        assert self._world is not None
        return packets_of_lines(flows, packets, self._world.grid.family, len(self._world.lines))

    def packets_of(self, table: EdgeTable) -> int:
        """Return the sum of a table's counters without its last row."""
        flows, packets = self._read_counters()
        return int(packets[(flows.table == table) & (flows.priority > 0)].sum())

    def count_handled(self) -> int:
        """Return the packets handled so far.

        Packets that the switch has taken from its ports may still be on their way.
        """
        return handled_packets(self._switch.appctl("dpctl/show"))

    def upcalls(self) -> int:
        """Packets that no cache entry knew, so far."""
        return missed_packets(self._switch.appctl("dpif-netdev/pmd-stats-show"))

    def count_cached(self) -> int:
        """Count the entries of the switch's cache."""
        return megaflows(self._switch.appctl("dpctl/show"))

    def _read_counters(self) -> tuple[FlowTable, U64]:
        """The rows as the switch holds them, and the packets of each."""
        if self._program is None:
            raise Refused("the switch holds no program")
        self.forget()
        flows = self._device.resolve(self._program.flows, self._program.ports)
        keys, hits = self._device.counter_keys(flows), self._device.hits()
        assert keys is not None
        order = np.argsort(hits.key)
        place = np.minimum(np.searchsorted(hits.key[order], keys), len(order) - 1)
        if not (hits.key[order][place] == keys).all():
            raise Drifted("the switch does not hold what was put into it")
        return flows, hits.packets[order][place]


@contextmanager
def edge_switch(links: Links, ports: Ports = Ports.SYSTEM, *, name: str = "ovs") -> Iterator[EdgeSwitch]:
    """A switch at the edge, connected to us; `name` tells those after one another apart.

    Raises Missing, Refused, Unreachable.
    """
    folder, logs = (folder / f"{links.name}-{name}" for folder in (links.layout.run_dir, links.layout.logs))
    logs.mkdir()
    switch = OpenVSwitch(folder, links.namespace(EDGE), mark=links.layout.run_dir, logs=logs)
    switch.create()
    running = [switch.start_database()]
    try:
        running.append(switch.start_switch())
        _build_bridge(switch, links, ports)
        with wait_connected(lambda observer: _launcher(links, switch, observer), {_DATAPATH}) as channels:
            device = Switch(channels[_DATAPATH], uplink=UPLINK, tier=Tier.EDGE, timeout_s=_PATIENCE_S)
            if not device.claim(1):
                raise Refused("the switch has another master")
            yield EdgeSwitch(switch, device)
    finally:
        processes.stop(running)


def _launcher(links: Links, switch: OpenVSwitch, observer: SwitchObserver) -> Launcher:
    """Make a launcher that listens inside the edge, where the switch connects."""
    launcher = links.inside(EDGE, lambda: Launcher(Listen(_CONTROLLER, 0), observer))
    switch.vsctl("set-controller", _BRIDGE, f"tcp:{_CONTROLLER}:{launcher.port}")
    return launcher


def _build_bridge(switch: OpenVSwitch, links: Links, ports: Ports) -> None:
    if ports is Ports.AF_XDP:
        switch.configure(POLLING_CORE)
    switch.add_bridge(_BRIDGE, _DATAPATH)
    for port in (OUT, UPLINK, *(way.port for way in links.ways())):
        switch.open_port(_BRIDGE, port, ports)


class FirewallServers:
    """All servers of a point of presence, each a forwarding kernel in a namespace."""

    def __init__(self, links: Links) -> None:
        self._links = links
        tenants = TenantCompiler()
        self._compilers = {number: ServerCompiler(server(number), tenants) for number in links.numbers}
        self._drivers = {number: served_driver() for number in links.numbers}
        self._generation = 0

    def load(self, world: World, misdirect: Misdirect) -> None:
        """Load every server's share of the world.

        Raises Drifted where one does not hold it in the end.
        """
        self._generation += 1
        peers = list(map(_peer, self._links.numbers))
        for number, driver in self._drivers.items():
            others = tuple(peer for peer in peers if peer.number != number)
            asked = Ask(world.share(number, misdirect), others)
            program, _ = self._compilers[number].program(world.policy, asked, self._generation)
            wrong = self._links.inside(server(number), partial(_put, driver, program))
            if wrong is not None:
                raise Drifted(f"server {number}: {wrong}")


def _peer(number: int) -> Peer:
    """A server where servers meet, in both IP versions."""
    return Peer(number, tuple(ipaddress.ip_address(address) for address, _ in rehome_addresses(number)))


def _put(driver: ServedDriver, program: Program) -> str | None:
    """Bring a server to a program; what it does not hold afterwards."""
    stamp = gap.stamp_of(program)
    driver.apply(gap.correction(driver.observe(), program, driver.resolve), stamp)
    wrong = gap.mismatch(driver.observe(), driver.resolve(program.flows, program.ports), stamp)
    return None if wrong is None else wrong.text
