"""A VNF-ACL in the middle of a line: Open vSwitch with a compiled program.

It is driven as the controller drives it, over OpenFlow by our driver, and what it holds is read back. The switch's own
numbers say what the traffic cost it: upcalls, entries of its cache, CPU time of its process.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from orchestrator.bench.benchlab import wait_connected
from orchestrator.bench.traffic.line import LEFT, MIDDLE, RIGHT, Line
from orchestrator.enforce import gap
from orchestrator.enforce.changing import FEW_ROWS, finish
from orchestrator.enforce.driver import Hits
from orchestrator.enforce.drivers.openflow.app import SwitchObserver
from orchestrator.enforce.drivers.openflow.channel import Channel
from orchestrator.enforce.drivers.openflow.driver import Switch
from orchestrator.enforce.drivers.openflow.launcher import Launcher, Listen
from orchestrator.errors import Drifted, Missing, Refused
from orchestrator.hosts.ovs import join_commands
from orchestrator.hosts.switch import prefix_tracking
from orchestrator.lab import processes
from orchestrator.lab.ovs import POLLING_CORE, Allocator, OpenVSwitch, Ports
from orchestrator.lab.processes import Process
from orchestrator.program.delta import Delta
from orchestrator.program.program import Program

_BRIDGE = "vnf"
_DATAPATH = 0xAC1F00000200
_CONTROLLER = "127.0.0.1"
_SETTLE_S = 0.3
"""After a table was replaced, the switch still frees the old one for a while."""
_PATIENCE_S = 30.0
"""A switch that is flooded answers its controller late."""


@dataclass(frozen=True, slots=True)
class Work:
    """The switch's work so far: packets that missed its cache, CPU nanoseconds."""

    upcalls: int
    cpu_ns: int


class VnfAcl:
    """A running switch, made by `vnf_acl`.

    One that `polls` uses a core whether there is traffic or not.
    """

    def __init__(
        self, switch: OpenVSwitch, channels: Mapping[int, Channel], running: list[Process], *, polls: bool
    ) -> None:
        self.polls = polls
        self.switch = switch
        self._channels = channels
        self._running = running
        self._generation = 0
        self._take_over()

    def _take_over(self) -> None:
        """Command the daemon that has connected. Raises Refused."""
        self._channel = self._channels[_DATAPATH]
        self._device = Switch(self._channel, uplink=LEFT)
        self._clock = ~self._running[-1].pid << 3 | 2  # a process' CPU clock, as clock_getcpuclockid(3) makes it
        if not self._device.claim(1):
            raise Refused("the switch has another master")

    def restart(self, program: Program) -> None:
        """Kill the daemon, start another, and give it a program once it has connected.

        Raises Unreachable.
        """
        processes.kill(self._running.pop())
        self._running.append(self.switch.start_switch())
        processes.wait_until(lambda: self._channels[_DATAPATH] is not self._channel, "the switch does not connect")
        self._take_over()
        self.change(gap.correction(self._device.observe(), program, self._device.resolve), program)

    def modify(self, row: str) -> None:
        """Give a row other actions, in the words of `ovs-ofctl`; empty the cache."""
        self.switch.ofctl("mod-flows", _BRIDGE, row, options=["--strict"])
        self.forget()

    def load(self, program: Program) -> None:
        """Write this program anew, with an empty cache.

        Raises Drifted.
        """
        self.switch.ofctl("del-flows", _BRIDGE)
        time.sleep(_SETTLE_S)
        observed = self._device.observe()
        self.change(gap.correction(observed, program, self._device.resolve), program)
        wrong = gap.mismatch(
            self._device.observe(), self._device.resolve(program.flows, program.ports), gap.stamp_of(program)
        )
        if wrong is not None:
            raise Drifted(wrong.text)
        self.forget()

    def change(self, delta: Delta, program: Program) -> None:
        """Apply a change in one bundle, as the loop does.

        Returns at the last barrier. Raises Drifted where rows of a few are not what they should be.
        """
        if len(delta.removed) + len(delta.added) > FEW_ROWS:
            self._device.apply(delta, gap.stamp_of(program))
            return
        changed = finish(self._device.change(delta, gap.stamp_of(program)))
        if set(changed.found) != set(changed.wanted):
            raise Drifted(f"of {len(changed.wanted)} rows that were put in, {len(changed.found)} are read back")

    def forget(self) -> None:
        """Empty the cache of the switch."""
        self.switch.forget()

    def forget_connections(self) -> None:
        """Forget the connections that it has tracked."""
        self.switch.appctl("dpctl/flush-conntrack")

    def count_cached(self) -> int:
        """How many megaflows the cache holds."""
        return megaflows(self.switch.appctl("dpctl/show"))

    def hits(self) -> Hits:
        """Empty the cache, which adds what it counted, and read all counters."""
        self.forget()
        return self._device.hits()

    def work(self) -> Work:
        """Return the work so far."""
        upcalls = missed_packets(self.switch.appctl("dpif-netdev/pmd-stats-show"))
        return Work(upcalls, time.clock_gettime_ns(self._clock))


@contextmanager
def vnf_acl(
    line: Line,
    ports: Ports,
    *,
    neighbours: Sequence[str] = (),
    allocator: Allocator = Allocator.JEMALLOC,
    tracks_prefixes: bool = False,
) -> Iterator[VnfAcl]:
    """Run a switch in the middle of a line, connected to us.

    One at a time. Raises Missing, Refused, Unreachable.

    `neighbours` are further ports that it has, with nobody behind: each is one more that the switch looks after.
    `tracks_prefixes`: its tables are set up as those of a host's switch, for lists that ask about a first packet.
    """
    folder, logs = line.layout.run_dir / f"{line.name}-ovs", line.layout.logs / f"{line.name}-ovs"
    logs.mkdir()
    switch = OpenVSwitch(folder, line.namespace(MIDDLE), mark=line.layout.run_dir, logs=logs, allocator=allocator)
    switch.create()
    line.route(False)
    running = [switch.start_database()]
    try:
        running.append(switch.start_switch())
        if not allocator.used_by(running[-1].pid):
            raise Missing(f"the library {allocator.value} is not installed: apt-get install libjemalloc2")
        _build_bridge(switch, ports, neighbours)
        if tracks_prefixes:
            switch.vsctl(*join_commands(prefix_tracking(_BRIDGE, {})))
        with wait_connected(lambda observer: _launcher(line, switch, observer), {_DATAPATH}) as channels:
            yield VnfAcl(switch, channels, running, polls=ports is Ports.AF_XDP)
    finally:
        processes.stop(running)
        line.route(True)


def megaflows(text: str) -> int:
    """Read the number of cache entries from `dpctl/show`."""
    return _find_number(r"^\s*flows: (\d+)", text)


def handled_packets(text: str) -> int:
    """Return the handled packets of `dpctl/show`.

    A packet that missed the cache counts once its entry was made.
    """
    found = re.search(r"^\s*lookups: hit:(\d+) missed:(\d+) lost:(\d+)", text, re.MULTILINE)
    if found is None:
        raise _make_refusal(text)
    return sum(map(int, found.groups()))


def missed_packets(text: str) -> int:
    """Sum the packets that no cache knew, from `dpif-netdev/pmd-stats-show`."""
    found = re.findall(r"^\s*miss with (?:success|failed) upcall: (\d+)", text, re.MULTILINE)
    if not found:
        raise Refused("the switch does not say how many packets its cache missed")
    return sum(map(int, found))


def _find_number(pattern: str, text: str) -> int:
    match = re.search(pattern, text, re.MULTILINE)
    if match is None:
        raise _make_refusal(text)
    return int(match[1])


def _make_refusal(text: str) -> Refused:
    return Refused(f"the switch said something else: {text[:200]!r}")


def _build_bridge(switch: OpenVSwitch, ports: Ports, neighbours: Sequence[str]) -> None:
    if ports is Ports.AF_XDP:
        switch.configure(POLLING_CORE)
    switch.add_bridge(_BRIDGE, _DATAPATH)
    for port in neighbours:
        switch.vsctl("add-port", _BRIDGE, port, "--", "set", "interface", port, "type=internal")
    for port in (LEFT, RIGHT):
        switch.open_port(_BRIDGE, port, ports)


def _launcher(line: Line, switch: OpenVSwitch, observer: SwitchObserver) -> Launcher:
    """Make a launcher that listens inside the middle, where the switch connects."""
    launcher = line.inside(MIDDLE, lambda: Launcher(Listen(_CONTROLLER, 0), observer, patience_s=_PATIENCE_S))
    switch.vsctl("set-controller", _BRIDGE, f"tcp:{_CONTROLLER}:{launcher.port}")
    return launcher
