"""A real Open vSwitch with OVS's own dummy datapath: every OpenFlow table is real, no packet leaves the process.

It needs neither root nor a namespace, and several may run side by side: everything lives in one directory.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
from pathlib import Path

from patience import PATIENCE_S, until

SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")


def missing() -> str | None:
    """Why there can be no such switch here; None if there can."""
    absent = [name for name in ("ovs-vswitchd", "ovsdb-server", "ovs-vsctl", "ovs-ofctl") if not shutil.which(name)]
    return f"needs {', '.join(absent)}" if absent else None


def accepts(path: Path) -> bool:
    """Whether somebody listens at a unix socket: a daemon needs a moment after its start."""
    with socket.socket(socket.AF_UNIX) as sock:
        try:
            sock.connect(str(path))
        except OSError:
            return False
        return True


_OWN = re.compile("table=253|pkt_mark=")


class DummyOvs:
    """One ovsdb-server and one ovs-vswitchd of our own in `directory`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._environment = {**os.environ, "OVS_RUNDIR": str(directory), "OVS_LOGDIR": str(directory)}
        self._database = directory / "db.sock"
        self._switch: subprocess.Popen[bytes] | None = None
        self._run("ovsdb-tool", "create", str(directory / "conf.db"), str(SCHEMA))
        self._server = self._daemon(
            "ovsdb-server", str(directory / "conf.db"), f"--remote=punix:{self._database}", "--log-file"
        )
        until(lambda: accepts(self._database))
        self.vsctl("--no-wait", "init")
        self.start_switch()

    def start_switch(self) -> None:
        """Start ovs-vswitchd; it builds its bridges from the database."""
        self._switch = self._daemon(
            "ovs-vswitchd", f"unix:{self._database}", "--enable-dummy=override", "--disable-system", "--log-file"
        )

    def kill_switch(self) -> None:
        """ovs-vswitchd dies without a word, and with it every flow."""
        assert self._switch is not None
        self._switch.send_signal(signal.SIGKILL)
        self._switch.wait()
        self._switch = None

    def freeze_switch(self) -> None:
        """ovs-vswitchd stops answering, but its connections stay."""
        assert self._switch is not None
        self._switch.send_signal(signal.SIGSTOP)

    def thaw_switch(self) -> None:
        """ovs-vswitchd goes on."""
        assert self._switch is not None
        self._switch.send_signal(signal.SIGCONT)

    def add_bridge(self, name: str, *, datapath_id: int, ports: tuple[str, ...] = ()) -> None:
        """A bridge in secure mode; `ports` are numbered 1, 2, ..."""
        self.vsctl(
            *("add-br", name, "--", "set", "bridge", name, "datapath_type=dummy", "fail_mode=secure"),
            *("protocols=OpenFlow10,OpenFlow15", f"other-config:datapath-id={datapath_id:016x}"),
        )
        for number, port in enumerate(ports, 1):
            self.add_port(name, port, number)

    def add_port(self, bridge: str, port: str, number: int, *, capture: Path | None = None) -> None:
        """A port of the dummy kind with a number of our choice; what leaves by it may be captured in a file (pcap)."""
        captured = (f"options:tx_pcap={capture}",) if capture is not None else ()
        self.vsctl("add-port", bridge, port, "--", "set", "interface", port, "type=dummy", f"ofport_request={number}",
                   *captured)  # fmt: skip

    def set_controllers(self, bridge: str, *targets: str) -> None:
        """Controllers that the bridge dials. Version 3.1 waits up to 8 s between attempts, whatever `max_backoff` is;
        it dials at once when a target changes."""
        rows = [
            word
            for index, target in enumerate(targets)
            for word in ("--", f"--id=@c{index}", "create", "controller", f'target="{target}"', "max_backoff=1000",
                         "connection_mode=out-of-band")
        ]  # fmt: skip
        references = ",".join(f"@c{index}" for index in range(len(targets)))
        self.vsctl(*rows, "--", "set", "bridge", bridge, f"controller=[{references}]")

    def vsctl(self, *arguments: str) -> str:
        """ovs-vsctl on this instance."""
        return self._run("ovs-vsctl", f"--db=unix:{self._database}", *arguments)

    def ofctl(self, command: str, bridge: str, *arguments: str) -> str:
        """ovs-ofctl on one bridge, in OpenFlow 1.5."""
        return self._run("ovs-ofctl", "-OOpenFlow15", command, str(self.directory / f"{bridge}.mgmt"), *arguments)

    def flows(self, bridge: str) -> list[str]:
        """Every flow without counters, sorted; the driver's own rows aside."""
        until(lambda: accepts(self.directory / f"{bridge}.mgmt"))
        lines = self.ofctl("dump-flows", bridge, "--no-stats", "--no-names").splitlines()
        return sorted(line.strip() for line in lines if "actions=" in line and not _OWN.search(line))

    def close(self) -> None:
        """End both daemons."""
        if self._switch is not None:
            self.kill_switch()
        self._server.kill()
        self._server.wait()

    def _daemon(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [program, *arguments, f"--unixctl={self.directory / (program + '.ctl')}"]
        quiet = subprocess.DEVNULL
        return subprocess.Popen(command, env=self._environment, cwd=self.directory, stdout=quiet, stderr=quiet)

    def _run(self, *command: str) -> str:
        done = subprocess.run(
            command, env=self._environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        if done.returncode:
            raise AssertionError(f"{' '.join(command)}: {done.stderr}")
        return done.stdout
