"""A lab's own Open vSwitch in one namespace, with a run directory of its own.

The datapath is OVS's own (`datapath_type=netdev`), so nothing is shared with a switch that the machine itself runs.
All talk goes over the run directory's Unix sockets, which do not care about namespaces.
"""

from __future__ import annotations

import enum
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from orchestrator.errors import Missing, Refused, Unreachable
from orchestrator.hosts import polling
from orchestrator.hosts.ovs import join_commands
from orchestrator.lab.processes import Process, alive, spawn

DATABASE = "ovsdb-server"
SWITCH = "ovs-vswitchd"

_SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
_PATIENCE_S = 15.0
_COUNT_AGE_S = 0.15
"""For longer than the daemon goes by a count of its cache's entries before it counts again (0.1 s)."""
_NOTHING: Mapping[str, str] = MappingProxyType({})


class Allocator(enum.Enum):
    """The switch daemon's memory allocator: a library loaded before the C library, if any.

    Packets that the daemon forwards itself lie in buffers that are made and freed for every batch. The C library's
    allocator looks for room among what freed flows left behind, so that a packet costs more the longer the lists were;
    jemalloc keeps buffers of one size together.
    """

    JEMALLOC = "libjemalloc.so.2"
    """Open vSwitch's own documentation advises it. Where it is not installed the C library's is used."""
    LIBC = ""

    def used_by(self, process: int) -> bool:
        """Whether a running process has it."""
        mapped = Path(f"/proc/{process}/maps").read_text(encoding="utf-8")
        return self.value in mapped if self.value else Allocator.JEMALLOC.value not in mapped


class Ports(enum.Enum):
    """The switch's access to its interfaces: packet sockets, or AF_XDP rings with a polling core."""

    SYSTEM = "system"
    AF_XDP = polling.AF_XDP


POLLING_CORE = f"{polling.POLLERS}=0x2"
"""The daemon's setting by which the machine's second core polls AF_XDP ports."""


@dataclass(frozen=True, slots=True)
class OpenVSwitch:
    """Where one instance lives. Its processes are the caller's to remember.

    `host` names the host whose bridge it has to itself; its processes and logs are called after it.
    """

    run_dir: Path
    namespace: str
    mark: Path
    logs: Path
    allocator: Allocator = Allocator.JEMALLOC
    host: str = ""

    @property
    def database_process(self) -> str:
        """The name of its database server among a lab's processes."""
        return self._name_process(DATABASE)

    @property
    def switch_process(self) -> str:
        """The name of its switch daemon among a lab's processes."""
        return self._name_process(SWITCH)

    def _name_process(self, program: str) -> str:
        return f"{program}-{self.host}" if self.host else program

    def create(self) -> None:
        """Make the run directory and an empty database.

        Raises Missing where Open vSwitch is not installed.
        """
        if not _SCHEMA.exists():
            raise Missing("Open vSwitch is not installed: apt-get install openvswitch-switch")
        self.run_dir.mkdir(mode=0o700)
        run_program(["ovsdb-tool", "create", str(self.run_dir / "conf.db"), str(_SCHEMA)])

    def start_database(self) -> Process:
        """Start the database server and wait until it answers."""
        process = self._spawn_program(
            DATABASE,
            str(self.run_dir / "conf.db"),
            f"--remote=punix:{self._database_socket}",
        )
        self._wait_until_ready(process, self._database_socket)
        self.vsctl("--no-wait", "init")
        return process

    def start_switch(self) -> Process:
        """Start the switch daemon; wait until it applied the database and every bridge answers."""
        first = {"LD_PRELOAD": self.allocator.value} if self.allocator.value else {}
        process = self._spawn_program(SWITCH, f"unix:{self._database_socket}", settings=first)
        self._wait_until_ready(process, self._find_control_socket(SWITCH))
        self.vsctl("set", "Open_vSwitch", ".", f"external_ids:started={process.started}")  # a change, so it waits
        for bridge in self.vsctl("list-br").split():
            self._wait_until_ready(process, self.run_dir / f"{bridge}.mgmt")
        return process

    def add_bridge(self, name: str, datapath: int) -> None:
        """Make a bridge that forwards nothing unless told to."""
        self.vsctl(*join_commands(bridge_commands(name, f"{datapath:016x}")))

    def configure(self, setting: str) -> None:
        """Give the daemon a setting of its own, as ``name=value``."""
        self.vsctl("set", "Open_vSwitch", ".", f"other_config:{setting}")

    def open_port(self, bridge: str, port: str, access: Ports) -> None:
        """Have a bridge open an interface, its port already or not, by this access.

        Raises Unreachable where the daemon cannot.
        """
        opened = ("set", "interface", port, f"type={access.value}")
        self.vsctl(*join_commands((("--may-exist", "add-port", bridge, port), opened)))
        complaint = self.vsctl("get", "interface", port, "error").strip()
        if complaint != "[]":
            raise Unreachable(f"{access.value} port {port}: {complaint}")

    def vsctl(self, *arguments: str) -> str:
        """Run `ovs-vsctl`; it returns when the switch daemon has followed (unless ``--no-wait``)."""
        return run_program(["ovs-vsctl", "--timeout=15", f"--db=unix:{self._database_socket}", *arguments])

    def ofctl(self, command: str, bridge: str, *arguments: str, text: str = "", options: Sequence[str] = ()) -> str:
        """Run `ovs-ofctl` in OpenFlow 1.5 against one bridge; `text` is its standard input."""
        target = f"unix:{self.run_dir / bridge}.mgmt"
        return run_program(["ovs-ofctl", "--timeout=30", "-OOpenFlow15", *options, command, target, *arguments], text)

    def appctl(self, *arguments: str) -> str:
        """Ask the switch daemon itself."""
        return run_program(["ovs-appctl", "--timeout=15", f"--target={self._find_control_socket(SWITCH)}", *arguments])

    def forget(self) -> None:
        """Empty the daemon's cache and wait until it knows.

        While an old count is over its limit, it makes no entries. Counters of rows hold everything at once.

        Entries that a thread of the daemon looks at just then are passed over, so it is done twice.
        """
        self.appctl("revalidator/purge")
        time.sleep(_COUNT_AGE_S)
        self.appctl("revalidator/purge")

    def _spawn_program(self, program: str, *arguments: str, settings: Mapping[str, str] = _NOTHING) -> Process:
        name = self._name_process(program)
        return spawn(
            name,
            [
                program,
                *arguments,
                f"--unixctl={self._find_control_socket(program)}",
                f"--pidfile={self.run_dir / program}.pid",
                "-vconsole:off",
                "-vsyslog:off",
                f"--log-file={self.logs / name}.log",
            ],
            mark=self.mark,
            log=self.logs / f"{name}.out",
            namespace=self.namespace,
            settings={**settings, "OVS_RUNDIR": str(self.run_dir), "OVS_DBDIR": str(self.run_dir)},
        )

    @property
    def _database_socket(self) -> Path:
        return self.run_dir / "db.sock"

    def _find_control_socket(self, program: str) -> Path:
        return self.run_dir / f"{program}.ctl"

    def _wait_until_ready(self, process: Process, path: Path) -> None:
        until = time.monotonic() + _PATIENCE_S
        while time.monotonic() < until:
            if not alive(process):
                raise Missing(f"{process.name} ended at once: see {self.logs / process.name}.log")
            if path.exists() and answers(path):
                return
            time.sleep(0.01)
        raise Unreachable(f"{process.name} did not come up within {_PATIENCE_S:.0f} s")


def bridge_commands(name: str, datapath_id: str) -> list[Sequence[str]]:
    """Return the `ovs-vsctl` commands for a bridge that forwards nothing unless told to."""
    settings = ("protocols=OpenFlow15", f"other_config:datapath-id={datapath_id}", "other_config:disable-in-band=true")
    return [("add-br", name), ("set", "bridge", name, "datapath_type=netdev", "fail_mode=secure", *settings)]


def control_commands(bridge: str, target: str) -> list[Sequence[str]]:
    """Return the `ovs-vsctl` commands that have a bridge dial a controller, and try again soon."""
    patient = ("connection_mode=out-of-band", "max_backoff=1000", "inactivity_probe=5000")
    return [("set-controller", bridge, target), ("set", "controller", bridge, *patient)]


def answers(path: Path) -> bool:
    """Whether somebody listens: a killed server leaves its socket file behind."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


def run_program(command: list[str], text: str = "") -> str:
    """Run one of Open vSwitch's programs; return its output.

    `text` is its standard input. Raises Missing, Refused.
    """
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise Missing(f"the program '{command[0]}' is not installed: apt-get install openvswitch-switch") from None
    if done.returncode:
        raise Refused(f"{command[0]}: {done.stderr.strip() or f'exit status {done.returncode}'}")
    return done.stdout
