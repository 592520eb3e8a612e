"""Bring a lab up, find it, take it down, or remove a killed one.

`down` trusts names, not memory: namespaces by prefix, processes by the mark in their environment, the management link
by name, then the run directory, in that order, so that a clean-up which is itself killed can be run again.

A lab's state is one JSON file in the run directory, replaced as a whole by renaming, so that other processes can find,
use and remove the lab. Clean-up does not depend on it (names and marks suffice); it is there for `status`, `exec` and
fault tests.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import NoReturn, TypeVar

from orchestrator.errors import Conflict, Missing, NotFound
from orchestrator.hosts.ovs import LocalSwitch, join_commands
from orchestrator.hosts.switch import Datapath, Wanted
from orchestrator.lab import edge, fabric, namespaces, network, processes, vnf
from orchestrator.lab.bridges import EDGE_BRIDGE, join_segment, make_bridges
from orchestrator.lab.layout import DEFAULT_PREFIX, MARK, Layout
from orchestrator.lab.network import Management
from orchestrator.lab.ovs import OpenVSwitch
from orchestrator.lab.processes import Process
from orchestrator.lab.spec import ROUTER, HostSpec, PopSpec
from orchestrator.lab.specfile import dump, parse

CONTROLLER_PORT = 6653
"""The port that Open vSwitch dials when none is given."""

_ROUNDS = 5
"""How often a clean-up looks for processes: one that was found may have been starting another."""

Result = TypeVar("Result")
Progress = Callable[[str], None]
"""Told what is about to be done."""


@dataclass(frozen=True, slots=True)
class State:
    """A lab's present description, with moved endpoints, and the service's URL once it runs."""

    spec: PopSpec
    management: Management
    processes: tuple[Process, ...] = ()
    api: str | None = None

    def process(self, name: str) -> Process:
        """Return a process by its name. Raises NotFound."""
        for process in self.processes:
            if process.name == name:
                return process
        raise NotFound(f"this lab started no process '{name}'")

    def having(self, process: Process) -> State:
        """Return the state with a process started, or started again."""
        others = tuple(other for other in self.processes if other.name != process.name)
        return replace(self, processes=(*others, process))


def _write_state(layout: Layout, state: State) -> None:
    """Write the state file of a lab that is being built."""
    document = {
        "description": dump(state.spec),
        "management": {"controller": state.management.controller, "switches": state.management.switches},
        "processes": [{"name": p.name, "pid": p.pid, "started": p.started} for p in state.processes],
        "api": state.api,
    }
    fresh = layout.state_file.with_suffix(".new")
    fresh.write_text(json.dumps(document, indent=1))
    fresh.replace(layout.state_file)


def _replace_state(layout: Layout, state: State) -> None:
    """Replace the state file at once.

    Raises NotFound where the lab was removed.
    """
    _read_state(layout)
    _write_state(layout, state)


def _read_state(layout: Layout) -> State:
    """Read the state file.

    Raises NotFound where there is no lab, or one killed before it could write.
    """
    try:
        document = json.loads(layout.state_file.read_text())
    except FileNotFoundError:
        raise NotFound(f"there is no lab with the prefix '{layout.prefix}': start one with `aclflow lab up`") from None
    return State(
        spec=parse(document["description"]),
        management=Management(**document["management"]),
        processes=tuple(Process(**process) for process in document["processes"]),
        api=document["api"],
    )


@contextmanager
def _take_turn(layout: Layout) -> Iterator[None]:
    """Let builders and removers take turns on a machine; a killed one's turn ends."""
    layout.runs.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(layout.runs / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Removed:
    """The objects that a clean-up found and removed."""

    namespaces: tuple[str, ...]
    processes: tuple[str, ...]
    files: bool

    @property
    def nothing(self) -> bool:
        return not (self.namespaces or self.processes or self.files)


class Lab:
    """A running lab. Its state is on disk after every change."""

    def __init__(self, layout: Layout, state: State) -> None:
        self.layout = layout
        self._state = state

    @property
    def state(self) -> State:
        return self._state

    @property
    def spec(self) -> PopSpec:
        return self._state.spec

    @property
    def ovs(self) -> OpenVSwitch:
        """The Open vSwitch of the edge bridge and of bridges beside it.

        Where uplinks are not routed, hosts' bridges are on it, too.
        """
        return self._find_ovs(None)

    def _find_ovs(self, host: HostSpec | None) -> OpenVSwitch:
        layout = self.layout
        namespace, name = (layout.bridge_namespace(host), host.name) if host else (layout.ovs_namespace, "")
        return OpenVSwitch(
            layout.ovs_dir(host), namespace, mark=layout.run_dir, logs=layout.logs, host=name
        )  # fmt: skip

    def ovs_of(self, bridge: str) -> OpenVSwitch:
        """Return the Open vSwitch that a bridge is on: a host's own, or the edge's."""
        return next((each for each in self.daemons if each.host == bridge), self.ovs)

    @property
    def daemons(self) -> tuple[OpenVSwitch, ...]:
        """Every Open vSwitch of the lab, each once, the edge's first."""
        return (self.ovs, *(self._find_ovs(host) for host in self.spec.hosts if host.routed))

    @property
    def controller_address(self) -> tuple[str, int]:
        """Where the switches look for their controller: an address of the root namespace."""
        return self._state.management.controller, CONTROLLER_PORT

    @property
    def is_secured(self) -> bool:
        """Whether everybody speaks TLS here: with the service, and switches with their controller."""
        return (self._state.api or "").startswith("https://")

    @property
    def openflow_scheme(self) -> str:
        """Open vSwitch's scheme for the switches' connections to controllers."""
        return "ssl" if self.is_secured else "tcp"

    def inside(self, node: str, call: Callable[[], Result]) -> Result:
        """Run something in a client's or an endpoint's namespace. Raises NotFound for no such node."""
        return namespaces.inside(self.namespace(node), call)

    def namespace(self, node: str) -> str:
        """Where a node or a firewall lives; ``ovs`` is where the switches do. Raises NotFound.

        Hosts with routed uplinks and their router have one, too.
        """
        if node == "ovs":
            return self.layout.ovs_namespace
        if self.spec.routed and node in (ROUTER, *(host.name for host in self.spec.hosts)):
            return self.layout.namespace(node)
        is_firewall = node in (firewall.name for firewall in self.spec.filters)
        return self.layout.namespace(node if is_firewall else self.spec.node(node).name)

    def start(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        namespace: str | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> Process:
        """Start a process of the lab, or start it again.

        Its output goes to a log of its name.
        """
        log = self.layout.logs / f"{name}.log"
        process = processes.spawn(
            name, arguments, mark=self.layout.run_dir, log=log, namespace=namespace, settings=settings
        )
        self._remember_state(self._state.having(process))
        return process

    def kill(self, name: str) -> None:
        """End one of the lab's processes as a crash would. Raises NotFound."""
        processes.kill(self._state.process(name))

    def start_database(self, daemon: OpenVSwitch | None = None) -> None:
        """Start an Open vSwitch's database server (again); the edge's if none is named."""
        self._remember_state(self._state.having((daemon or self.ovs).start_database()))

    def start_switch(self, daemon: OpenVSwitch | None = None) -> None:
        """Start an Open vSwitch's daemon (again); the edge's if none is named.

        The edge's flows are written: Open vSwitch loses flows at a restart.
        """
        started = daemon or self.ovs
        self._remember_state(self._state.having(started.start_switch()))
        if started == self.ovs:
            self._program_edge()

    def restarts(self) -> dict[str, Callable[[], object]]:
        """Return how to start each process of switches and fabric again, by its name."""
        found: dict[str, Callable[[], object]] = {}
        for daemon in self.daemons:
            found[daemon.database_process] = partial(self.start_database, daemon)
            found[daemon.switch_process] = partial(self.start_switch, daemon)
        for each in fabric.commands(self.layout, self.spec) if self.spec.routed else ():
            found[each.name] = partial(self.start, each.name, each.command, namespace=each.namespace)
        return found

    def wait_for_routes(self) -> None:
        """Wait until what is for endpoints finds their hosts. Raises Unreachable, naming what lacks.

        Without routed uplinks it always does.
        """
        if self.spec.routed:
            fabric.wait_for_routes(self.layout, self.spec)

    def redial(self) -> None:
        """Make running switches connect to their controller at once; their flows stay.

        Open vSwitch 3.1 heeds `max_backoff` only after its first success: until then it waits up to 8 s between
        attempts. A target that is written otherwise, with its default port left out or put in, makes it begin anew.
        """
        for host in self.spec.hosts:
            ovs = self.ovs_of(host.name)
            if not processes.alive(self._state.process(ovs.database_process)):
                continue
            target = ovs.vsctl("get", "controller", host.name, "target").strip().strip('"')
            with_port = f"{self.openflow_scheme}:{self.controller_address[0]}:{CONTROLLER_PORT}"
            fresh = with_port.rpartition(":")[0] if target == with_port else with_port
            ovs.vsctl("--no-wait", "set", "controller", host.name, f'target="{fresh}"')

    def move_endpoint(self, name: str, host: str) -> None:
        """Take an endpoint's port from its host's bridge to another's. Raises NotFound."""
        endpoint = self.spec.endpoint(name)
        target = self.spec.host(host)
        unplug, plug = ("del-port", endpoint.host, endpoint.port), ("add-port", target.name, endpoint.port)
        source, destination = self.ovs_of(endpoint.host), self.ovs_of(target.name)
        if source == destination:
            source.vsctl(*join_commands((unplug, plug)))
        else:
            source.vsctl(*unplug)
            network.move_port(endpoint.port, source.namespace, destination.namespace)
            destination.vsctl(*plug)
        moved = dataclasses.replace(endpoint, host=target.name)
        others = tuple(moved if other is endpoint else other for other in self.spec.endpoints)
        self._remember_state(dataclasses.replace(self._state, spec=dataclasses.replace(self.spec, endpoints=others)))
        self._program_edge()

    def execute(self, node: str, command: Sequence[str]) -> NoReturn:
        """Become another program inside a node's namespace. Raises NotFound or Missing."""
        namespaces.enter(self.namespace(node))
        try:
            os.execvpe(command[0], list(command), {**os.environ, MARK: str(self.layout.run_dir)})  # noqa: S606
        except FileNotFoundError:
            raise Missing(f"the program '{command[0]}' is not installed") from None

    def serving_at(self, api: str) -> None:
        """Remember where the service answers."""
        self._remember_state(dataclasses.replace(self._state, api=api))

    def _program_edge(self) -> None:
        self.ovs.ofctl("replace-flows", EDGE_BRIDGE, "-", text=edge.flows(self.spec), options=["--bundle"])

    def _remember_state(self, state: State) -> None:
        _replace_state(self.layout, state)
        self._state = state


def up(layout: Layout, spec: PopSpec, progress: Progress = lambda _: None) -> Lab:
    """Build a lab's network and switches.

    Raises Conflict where there is one, and leaves nothing behind on failure.
    """
    with _take_turn(layout):
        _refuse_second(layout)
        try:
            return _build_lab(layout, spec, progress)
        except BaseException:
            _remove_lab(layout)
            raise


@contextmanager
def temporary(layout: Layout, spec: PopSpec, progress: Progress = lambda _: None) -> Iterator[Lab]:
    """Keep a lab for the length of a `with` statement.

    Raises as `up`; a lab that was there before is not touched.
    """
    is_ours = True
    try:
        yield up(layout, spec, progress)
    except Conflict:
        is_ours = False
        raise
    finally:
        if is_ours:
            down(layout)


def find(layout: Layout) -> Lab:
    """The lab that is up. Raises NotFound."""
    return Lab(layout, _read_state(layout))


def down(layout: Layout) -> Removed:
    """Remove a lab or whatever is left of one. Nothing being there is fine."""
    with _take_turn(layout):
        return _remove_lab(layout)


def _build_lab(layout: Layout, spec: PopSpec, progress: Progress) -> Lab:
    if spec.routed:
        fabric.check_possible()
    layout.run_dir.mkdir(mode=0o700)
    layout.logs.mkdir()
    progress("namespaces and links")
    network.create_namespaces(layout, spec)
    lab = Lab(layout, State(spec, network.create_management(layout.ovs_namespace, layout.management_link)))
    _write_state(layout, lab.state)
    network.create_links(layout, spec)
    vnf.create(layout, spec, lab.state.management)
    for server in spec.servers:
        join_segment(layout, server)
    if spec.routed:
        fabric.create(layout, spec, lab.state.management)
    progress("Open vSwitch")
    for daemon in lab.daemons:
        daemon.create()
        lab.start_database(daemon)
    lab.ovs.vsctl("--no-wait", *join_commands(make_bridges(spec, lab.controller_address)))
    for daemon in lab.daemons:
        lab.start_switch(daemon)
    if spec.routed:
        _begin_routed(lab)
    return lab


def _begin_routed(lab: Lab) -> None:
    """Make each host's switch a host's as an operator does, and start what routes."""
    for host in lab.spec.hosts:
        ports = tuple(endpoint.port for endpoint in lab.spec.endpoints if endpoint.host == host.name)
        controller = "tcp:{}:{}".format(*lab.controller_address)
        wanted = Wanted(
            lab.spec.domain, host.name, host.uplink, (controller,), bridge=host.name, ports=ports, is_routed=True,
            datapath_id=int(host.datapath_id, 16), datapath=Datapath.NETDEV,
        )  # fmt: skip
        LocalSwitch(lab.ovs_of(host.name).run_dir).configure(wanted)
    for each in fabric.commands(lab.layout, lab.spec):
        lab.start(each.name, each.command, namespace=each.namespace)


def _refuse_second(layout: Layout) -> None:
    if layout.run_dir.exists() or namespaces.with_prefix(layout.prefix) or network.has_management(layout):
        option = "" if layout.prefix == DEFAULT_PREFIX else f" --prefix {layout.prefix}"
        raise Conflict(
            f"a lab with the prefix '{layout.prefix}' is up, or something is left of one: "
            f"remove it with `aclflow lab down{option}`"
        )


def _remove_lab(layout: Layout) -> Removed:
    files = layout.run_dir.exists()
    layout.state_file.unlink(missing_ok=True)  # first, for whoever watches over the lab would start again what ends
    stopped: list[str] = []
    for _ in range(_ROUNDS):
        running = processes.marked_processes(layout.run_dir)
        if not running:
            break
        processes.stop(running)
        stopped += [process.name for process in running]
    names = namespaces.with_prefix(layout.prefix)
    network.remove_management(layout)
    for name in names:
        namespaces.remove(name)
    shutil.rmtree(layout.run_dir, ignore_errors=True)
    return Removed(names, tuple(stopped), files)
