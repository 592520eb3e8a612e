"""Test machines: Debian with systemd and sshd in namespaces of their own, reached over SSH from a namespace `ops`.

    ops ──────┐  bridge `lan` in the namespace `net`          10.77.0.0/24
    service ──┤
    host1 ────┤   every machine has eth0 there; nothing leads out, so nothing of the world is reached from inside
    ...  ─────┘

All names begin with the prefix; `Machines.close` removes whatever has it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from deployment.image import base, run

SCRIPT = Path(__file__).with_name("machine.sh")
OPS_ADDRESS = "10.77.0.1"


def control_groups() -> Path:
    """Where control groups (version 2) are mounted on this machine."""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(place)
    raise AssertionError("no cgroup2 is mounted")


@dataclass
class Machine:
    """One machine. Its disk outlives a kill, not a `wipe`."""

    name: str
    prefix: str
    directory: Path
    address: str
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def namespace(self) -> str:
        return f"{self.prefix}{self.name}"

    @property
    def group(self) -> Path:
        return control_groups() / self.namespace

    def start(self, key: str) -> None:
        """Start it, and wait until somebody with `key` can log in."""
        for part in ("upper", "work", "root"):
            (self.directory / part).mkdir(parents=True, exist_ok=True)
        keys = self.directory / "upper/root/.ssh"
        keys.mkdir(parents=True, exist_ok=True, mode=0o700)
        (keys / "authorized_keys").write_text(key)
        fresh = self.directory / "upper/var/lib/apt/periodic"
        fresh.mkdir(parents=True, exist_ok=True)
        (fresh / "update-success-stamp").touch()
        self.group.mkdir(exist_ok=True)
        command = [
            "nsenter",
            f"--net=/run/netns/{self.namespace}",
            str(SCRIPT),
            self.name,
            str(self.directory),
            str(base()),
        ]
        with (self.directory / "console.log").open("ab") as log:
            self.process = subprocess.Popen(
                ["bash", "-c", f'echo $$ > {self.group}/cgroup.procs; exec "$@"', "machine", *command],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self._until_up()

    def _until_up(self) -> None:
        until = time.monotonic() + 120
        while time.monotonic() < until:
            assert self.process is not None
            assert self.process.poll() is None, (self.directory / "console.log").read_text()
            with suppress(AssertionError):
                if "active" in self.run("systemctl", "is-active", "ssh"):
                    return
            time.sleep(0.2)
        raise AssertionError(f"{self.name} does not come up: {(self.directory / 'console.log').read_text()}")

    @property
    def pid(self) -> int:
        """Its process 1, as the outside numbers it."""
        assert self.process is not None
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        assert children, f"{self.name} has no process 1"
        return int(children[0])

    def run(self, *command: str, text: str | None = None) -> str:
        """What a program prints inside."""
        return run(
            "nsenter", "--target", str(self.pid), "--all", "--root", "--", "env", "--chdir=/", *command, text=text
        )

    def kill(self) -> None:
        """As if the power went."""
        if self.process is not None:
            with suppress(AssertionError, ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self.process.kill()
            self.process.wait(30)
            self.process = None
        until = time.monotonic() + 30
        while self._rest() and time.monotonic() < until:
            time.sleep(0.1)

    def _rest(self) -> bool:
        """Whether anything of it is left; its control groups are removed from the innermost on."""
        if not self.group.exists():
            return False
        for folder in sorted(self.group.rglob("*"), reverse=True):
            if folder.is_dir():
                with suppress(OSError):
                    folder.rmdir()
        with suppress(OSError):
            self.group.rmdir()
        return self.group.exists()

    def wipe(self) -> None:
        """Forget its disk."""
        shutil.rmtree(self.directory, ignore_errors=True)


class Machines:
    """Machines under one prefix, and the namespace `ops` that reaches them."""

    def __init__(self, prefix: str, directory: Path) -> None:
        self.prefix = prefix
        self.directory = directory
        self._all: dict[str, Machine] = {}
        self.key_file = directory / "key"
        for name in (f"{prefix}net", f"{prefix}ops"):
            run("ip", "netns", "add", name)
        in_net = ("ip", "-n", f"{prefix}net")
        run(*in_net, "link", "add", "lan", "type", "bridge")
        run(*in_net, "link", "set", "lan", "up")
        self._join(f"{prefix}ops", "ops", OPS_ADDRESS)
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.key_file))

    def __getitem__(self, name: str) -> Machine:
        return self._all[name]

    def add(self, name: str) -> Machine:
        """A machine that was not there, or one that takes the place of one that was lost."""
        known = self._all.get(name)
        address = known.address if known else f"10.77.0.{10 + len(self._all)}"
        machine = Machine(name, self.prefix, self.directory / name, address)
        run("ip", "netns", "add", machine.namespace)
        self._join(machine.namespace, name, address)
        self._all[name] = machine
        return machine

    def start(self, name: str) -> Machine:
        """Start a machine that was added."""
        self._all[name].start(self.key_file.with_suffix(".pub").read_text())
        return self._all[name]

    def lose(self, name: str) -> None:
        """The machine burns."""
        machine = self._all[name]
        machine.kill()
        machine.wipe()
        run("ip", "netns", "del", machine.namespace)

    def _join(self, namespace: str, name: str, address: str) -> None:
        net = f"{self.prefix}net"
        with suppress(AssertionError):  # the end of a machine that was there before
            run("ip", "-n", net, "link", "del", f"m-{name}")
        # follows from the address, so that no neighbour table is wrong when a machine is replaced
        mac = f"0a:00:00:00:77:{int(address.rpartition('.')[2]):02x}"
        peer = ("peer", "name", "eth0", "address", mac, "netns", namespace)
        run("ip", "-n", net, "link", "add", f"m-{name}", "type", "veth", *peer)
        run("ip", "-n", net, "link", "set", f"m-{name}", "master", "lan", "up")
        run("ip", "-n", namespace, "address", "add", f"{address}/24", "dev", "eth0")
        for link in ("lo", "eth0"):
            run("ip", "-n", namespace, "link", "set", link, "up")

    def close(self) -> None:
        """Remove everything."""
        for machine in self._all.values():
            machine.kill()
        for line in run("ip", "netns", "list").splitlines():
            name = line.split()[0]
            if name.startswith(self.prefix):
                run("ip", "netns", "del", name)
        shutil.rmtree(self.directory, ignore_errors=True)
