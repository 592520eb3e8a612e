"""A lab for suites, with plain bridges beside the hosts' for baselines.

The baselines run in the same Open vSwitch daemon as ours, on bridges without a controller, so that both meet the same
machine at the same time.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from orchestrator.enforce.drivers.openflow.app import SwitchObserver
from orchestrator.enforce.drivers.openflow.channel import Channel
from orchestrator.enforce.drivers.openflow.launcher import Launcher, Listen
from orchestrator.errors import Refused, Unreachable
from orchestrator.lab import pop
from orchestrator.lab.layout import Layout
from orchestrator.lab.pop import Lab
from orchestrator.lab.spec import PopSpec

PREFIX = "aclbench-"
BASELINE_BRIDGES = ("base1", "base2")
_PATIENCE_S = 10.0
_SETTLE_S = 0.3
"""After flows are removed, the daemon still frees them for a while."""


@contextmanager
def ground(spec: PopSpec) -> Iterator[Lab]:
    """Run a lab with the baselines' bridges during the block."""
    layout = Layout(PREFIX)
    pop.down(layout)
    lab = pop.up(layout, spec)
    try:
        for bridge in BASELINE_BRIDGES:
            lab.ovs.vsctl("add-br", bridge, "--", "set", "bridge", bridge, "datapath_type=netdev", "fail_mode=secure",
                          "protocols=OpenFlow15")  # fmt: skip
        yield lab
    finally:
        pop.down(layout)


def clear(lab: Lab, bridges: Sequence[str]) -> None:
    """Remove every flow of some bridges and let the daemon come to rest."""
    for bridge in bridges:
        lab.ovs_of(bridge).ofctl("del-flows", bridge)
    settle()


def settle() -> None:
    """Let the daemon come to rest."""
    time.sleep(_SETTLE_S)


def ofctl_add(lab: Lab, bridge: str, flows: Path) -> float:
    """Return the seconds of `ovs-ofctl --bundle add-flows`, as a process.

    Raises Refused.
    """
    target = f"unix:{lab.ovs_of(bridge).run_dir / bridge}.mgmt"
    command = ["ovs-ofctl", "-OOpenFlow15", "--bundle", "add-flows", target, str(flows)]
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - started
    if done.returncode:
        raise Refused(f"ovs-ofctl: {done.stderr.strip()}")
    return seconds


def flows_as_text(lab: Lab, bridge: str, path: Path) -> int:
    """Write a bridge's flows for `ovs-ofctl add-flows`; return their number."""
    lines = lab.ovs_of(bridge).ofctl("dump-flows", bridge, options=["--no-stats", "--no-names"]).splitlines()
    flows = [line.strip() for line in lines if "actions=" in line]
    path.write_text("\n".join(flows) + "\n", encoding="utf-8")
    return len(flows)


def resident_mib(pid: int) -> float:
    """Return a running process's resident memory in MiB.

    Raises Unreachable for one that is gone.
    """
    with suppress(FileNotFoundError, ProcessLookupError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    raise Unreachable(f"process {pid} is gone")


def processor_s(process: int) -> float:
    """Return CPU seconds of a process's present threads, to a microsecond."""
    tasks = Path(f"/proc/{process}/task").iterdir()
    return sum(int((task / "schedstat").read_text(encoding="ascii").split()[0]) for task in tasks) / 1e9


def ran_s(process: int, *, with_children: bool = False) -> float:
    """Return CPU seconds of a process with ended threads (and children), to a tick."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return sum(map(int, fields[11 : 15 if with_children else 13])) / os.sysconf("SC_CLK_TCK")


class _Arrivals:
    """Keeps the channels of switches that have connected."""

    def __init__(self) -> None:
        self.channels: dict[int, Channel] = {}
        self.changed = threading.Condition()

    def switch_connected(self, channel: Channel) -> None:
        with self.changed:
            self.channels[channel.datapath_id] = channel
            self.changed.notify_all()

    def switch_disconnected(self, channel: Channel) -> None:
        """The suite's next exchange says so."""

    def ports_changed(self, channel: Channel) -> None:
        """No port changes while a suite runs."""

    def links_changed(self, channel: Channel) -> None:
        """No link changes while a suite runs."""

    def switch_demoted(self, channel: Channel) -> None:
        """Do nothing: nobody else commands the lab's switches."""

    def seen(self, channel: Channel, message: bytes) -> None:
        """No rule of a suite logs."""


@contextmanager
def channels(lab: Lab) -> Iterator[dict[str, Channel]]:
    """Connections to every host's switch, as the controller has them: by host name."""
    address, port = lab.controller_address
    wanted = {int(host.datapath_id, 16): host.name for host in lab.spec.hosts}
    with wait_connected(lambda observer: Launcher(Listen(address, port), observer), wanted) as found:
        yield {name: found[number] for number, name in wanted.items()}


@contextmanager
def wait_connected(
    listening: Callable[[SwitchObserver], Launcher], wanted: Collection[int]
) -> Iterator[Mapping[int, Channel]]:
    """Connections to switches by datapath id, once those of some ids are there. Raises Unreachable.

    One that connects anew has its new connection there.
    """
    arrivals = _Arrivals()
    launcher = listening(arrivals)
    launcher.start()
    try:
        with arrivals.changed:
            if not arrivals.changed.wait_for(lambda: set(wanted) <= arrivals.channels.keys(), _PATIENCE_S):
                raise Unreachable(f"the switches did not connect within {_PATIENCE_S:.0f} s")
        yield arrivals.channels
    finally:
        launcher.stop()
