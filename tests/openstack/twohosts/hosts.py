"""A compute host: namespaces of its own, and in them what an operator runs on such a machine."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from string import Template

from allinone import running
from allinone.place import Place
from allinone.programs import environment, python_main

from orchestrator.compile.pipelines.host import SERVICES_PORT
from orchestrator.hosts.switch import ROUTED_PORT
from orchestrator.lab.fabric import HOST_LEG, host_text
from twohosts.addresses import (
    DOMAIN,
    FLAT,
    HOSTS,
    MANAGEMENT,
    OPENFLOW_PORT,
    PROJECTS,
    PROJECTS6,
    RANGES,
    ROUTER_OUTSIDE,
    leg_of,
    management_of,
)

ACLFLOW = (sys.executable, "-m", "orchestrator.cli")
POLLING_S = 2
"""How often ML2/OVS' agent looks at its switch, where it runs."""
_HERE = Path(__file__).parent
_OWN = (
    "run", "etc/libvirt", "etc/ssh", "var/lib/libvirt", "var/lib/nova", "var/cache/libvirt", "var/log/libvirt",
)  # fmt: skip
"""Directories of the machine that each host has to itself."""
_ENTER = """hostname "$1"; root=$2; shift 2
for own in {own}; do mount --bind "$root/$own" "/$own" || exit 1; done
exec "$@"
""".format(own=" ".join(_OWN))
_PROGRAMS = ("neutron-agent", "nova-compute", "libvirtd", "sshd", "services", "uplink", "bird")
"""What runs on a host beside its switch, in the order in which they end."""
_SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema"
_QUIET = ("-vconsole:off", "-vsyslog:off")


def _program_of(pid: str) -> str:
    """The program that a process runs; empty where it has ended."""
    with suppress(OSError):
        return Path("/proc", pid, "comm").read_text().strip()
    return ""


@dataclass(frozen=True, slots=True)
class ComputeHost:
    """One compute host of a place, known by its name."""

    place: Place
    prefix: str
    name: str

    @property
    def root(self) -> Path:
        """Where the directories lie that the host has to itself."""
        return self.place.root / "hosts" / self.name

    def enter(self, *command: str) -> tuple[str, ...]:
        """A command as it is run on the host."""
        inside = ("ip", "netns", "exec", f"{self.prefix}{self.name}", "unshare", "--mount", "--uts")
        return (*inside, "sh", "-c", _ENTER, "sh", self.name, str(self.root), *command)

    def run(self, *command: str) -> str:
        """Run a command on the host; return its output. Raises NotStartedError with what it said."""
        done = subprocess.run(self.enter(*command), capture_output=True, text=True, check=False)
        if done.returncode:
            raise running.NotStartedError(f"{self.name}: {' '.join(command)}: {done.stdout}{done.stderr}")
        return done.stdout

    def start(self, name: str, command: Sequence[str], settings: Mapping[str, str] | None = None) -> None:
        """Start a program of the host, unless it runs."""
        running.start(self.place, f"{name}-{self.name}", self.enter(*command), settings or {})

    def stop(self, *names: str) -> None:
        """Stop programs of the host."""
        running.stop(self.place, [f"{name}-{self.name}" for name in names])

    def processes(self, program: str) -> list[int]:
        """The processes of a program that run on the host, whoever started them."""
        inside = ("ip", "netns", "pids", f"{self.prefix}{self.name}")
        listed = subprocess.run(inside, capture_output=True, text=True, check=True).stdout
        return [int(pid) for pid in listed.split() if _program_of(pid) == program]

    # ------------------------------------------------------------------------------------------------------ processes

    def make_files(self, words: Mapping[str, str]) -> None:
        """Write what libvirtd, nova-compute and BIRD read; `words` are those of the place."""
        for own in (*_OWN, "run/openvswitch", "run/lock", "run/sshd", "var/lib/nova/instances"):
            (self.root / own).mkdir(parents=True, exist_ok=True)
        self.root.chmod(0o711)
        own = self.place.config(f"nova-compute-{self.name}")
        known = {
            **words, "host": self.name, "management": management_of(self.name),
            "uuid": str(uuid.uuid5(uuid.NAMESPACE_DNS, self.name)), "base": str(self.place.config("nova")),
            "own": str(own), "polling": str(POLLING_S),
            "names": "\n".join(f"Host {each}\nHostName {management_of(each)}" for each in HOSTS),
            "mappings": ",".join(f"{link}:{bridge}" for link, bridge in FLAT.items()),
        }  # fmt: skip
        libvirt = self.root / "etc/libvirt"
        ssh = self.root / "etc/ssh"
        files = {
            "libvirtd.conf": libvirt / "libvirtd.conf",
            "qemu.conf": libvirt / "qemu.conf",
            "nova-compute.conf": own,
            "neutron-agent.conf": self.place.config(f"neutron-agent-{self.name}"),
            "sshd.conf": ssh / "sshd_config",
            "ssh.conf": ssh / "ssh_config",
        }
        for source, target in files.items():
            target.write_text(Template((_HERE / "etc" / source).read_text()).substitute(known))
        (self.root / "bird.conf").write_text(host_text(leg_of(self.name)))
        self._take_key(ssh)

    def _take_key(self, folder: Path) -> None:
        """Take the key by which compute hosts know each other: one for all of a place, made by the first."""
        key = self.place.root / "etc" / "hosts-key"
        if not key.exists():
            subprocess.run(("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(key)), check=True)
        public = key.with_suffix(".pub")
        shutil.copy(key, folder / "key")
        shutil.copy(public, folder / "key.pub")
        names = ",".join(map(management_of, HOSTS))
        (folder / "known_hosts").write_text(f"{names} {public.read_text()}")

    def start_switch(self) -> None:
        """Start Open vSwitch; its daemon has followed the database when this returns."""
        database = self.root / "run/openvswitch/conf.db"
        if not database.exists():
            self.run("ovsdb-tool", "create", "/run/openvswitch/conf.db", _SCHEMA)
        log = str(self.place.root / "log")
        listening = ("--remote=punix:/run/openvswitch/db.sock", "--pidfile", f"--log-file={log}/ovsdb-{self.name}.log")
        self.start("ovsdb", ("ovsdb-server", "/run/openvswitch/conf.db", *listening, *_QUIET))
        running.wait_for(f"the database of {self.name}'s switch", self._succeeds("ovs-vsctl", "--no-wait", "init"))
        files = ("--pidfile", f"--log-file={log}/vswitchd-{self.name}.log")
        self.start("vswitchd", ("ovs-vswitchd", *files, *_QUIET), {"LD_PRELOAD": "libjemalloc.so.2"})
        running.wait_for(f"the switch of {self.name}", self._succeeds("ovs-appctl", "version"))

    def configure_switch(self, url: str, token: str) -> None:
        """Get the switch its certificate with a one-time token, and make it that of a host of the domain."""
        folder, file = self.root / "tls", self.root / "enrol.token"
        file.touch(mode=0o600)
        file.write_text(token)
        self.run(*ACLFLOW, "host", "enrol", DOMAIN, self.name, "--folder", str(folder), "--enrol-file", str(file),
                 "--url", url)  # fmt: skip
        self._configure()

    def switch_on_offloads(self) -> None:
        """Have the switch deal with checksums and segments that stock guests leave to it; it starts anew."""
        self._configure("--offloads")
        running.kill(self.place, [f"vswitchd-{self.name}"])
        self.start_switch()

    def _configure(self, *more: str) -> None:
        folder = self.root / "tls"
        own, authority = str(folder / "switch.pem"), str(folder / "authority.pem")
        controller = f"ssl:{MANAGEMENT}:{OPENFLOW_PORT}"
        files = ("--tls-key", own, "--tls-certificate", own, "--tls-authority", authority)
        wanted = ("--controller", controller, "--datapath", "netdev", *files, *more)
        self.run(*ACLFLOW, "host", "configure", DOMAIN, self.name, *wanted)

    def start_routing(self) -> None:
        """Start what keeps the routes of endpoints, what announces them, and what serves endpoints."""
        (self.root / "run/bird").mkdir(exist_ok=True)
        self.start("bird", ("bird", "-f", "-c", str(self.root / "bird.conf"), "-s", "/run/bird/bird.ctl"))
        ranges = [word for text in RANGES for word in ("--range", text)]
        self.start("uplink", (*ACLFLOW, "uplink", "run", "--fabric", HOST_LEG, *ranges))
        subnets = [word for text in (*PROJECTS.values(), *PROJECTS6.values()) for word in ("--subnet", text)]
        self.start("services", (*ACLFLOW, "host", "services", "run", *subnets, "--dns", ROUTER_OUTSIDE))

    def start_compute(self) -> None:
        """Start libvirtd, nova-compute, and what other hosts' reach them by."""
        self.start("sshd", ("/usr/sbin/sshd", "-D", "-e"))
        self.start("libvirtd", ("libvirtd",))
        running.wait_for(f"libvirtd of {self.name}", self._succeeds("virsh", "-c", "qemu:///system", "version"))
        files = [word for name in ("nova", f"nova-compute-{self.name}")
                 for word in ("--config-file", str(self.place.config(name)))]  # fmt: skip
        log = str(self.place.root / "log" / f"nova-compute-{self.name}.log")
        command = python_main("nova.cmd.compute", "nova-compute", *files, "--log-file", log)
        self.start("nova-compute", command, environment(self.place))

    def start_neutron_agent(self) -> None:
        """Start ML2/OVS' agent, which nothing of aclflow needs: it serves other networks, on bridges of its own."""
        for link, bridge in FLAT.items():
            self.run("ovs-vsctl", "--may-exist", "add-br", bridge, "--", "set", "bridge", bridge,
                     "datapath_type=netdev", "--", "--may-exist", "add-port", bridge, link)  # fmt: skip
        name = f"neutron-agent-{self.name}"
        log = str(self.place.root / "log" / f"{name}.log")
        command = python_main(
            "neutron.cmd.eventlet.plugins.ovs_neutron_agent", "neutron-openvswitch-agent",
            "--config-file", str(self.place.config(name)), "--log-file", log,
        )  # fmt: skip
        self.start("neutron-agent", command, environment(self.place))

    def stop_neutron_agent(self) -> None:
        """Stop it, and remove its bridges."""
        self.stop("neutron-agent")
        self.run(
            "ovs-vsctl",
            *[word for each in ("br-int", *FLAT.values()) for word in ("--", "--if-exists", "del-br", each)],
        )

    def end(self) -> None:
        """Stop every program of the host, and instances that are left."""
        self.stop(*_PROGRAMS)
        self._kill_instances()
        self.stop("vswitchd", "ovsdb")
        shutil.rmtree(self.root / "run", ignore_errors=True)

    def lose_power(self) -> None:
        """Cut the host off and kill everything on it; its kernel forgets what it was told, its disk keeps all."""
        inside = ("ip", "-n", f"{self.prefix}{self.name}", "link")
        for link in (HOST_LEG, "mgmt"):
            subprocess.run((*inside, "set", link, "down"), check=True)
        running.kill(self.place, [f"{name}-{self.name}" for name in (*_PROGRAMS, "vswitchd", "ovsdb")])
        self._kill_instances()
        shutil.rmtree(self.root / "run/libvirt")
        for port in (ROUTED_PORT, SERVICES_PORT):
            subprocess.run((*inside, "delete", port), check=True)

    def start_again(self) -> None:
        """Start the host after it lost its power."""
        for link in (HOST_LEG, "mgmt"):
            subprocess.run(("ip", "-n", f"{self.prefix}{self.name}", "link", "set", link, "up"), check=True)
        self.start_switch()
        self.start_routing()
        self.start_compute()

    def _kill_instances(self) -> None:
        for file in (self.root / "run/libvirt/qemu").glob("*.pid"):
            with suppress(OSError, ValueError):
                os.kill(int(file.read_text()), signal.SIGKILL)

    def _succeeds(self, *command: str) -> Callable[[], bool]:
        return lambda: subprocess.run(self.enter(*command), capture_output=True, check=False).returncode == 0
