"""The whole cloud of a directory: begin it, and end it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from allinone import running
from allinone.configs import words_of
from allinone.contents import PROJECT, connect, wait_until_ready
from allinone.place import Place
from allinone.programs import SERVICES
from allinone.stack import AllInOne

from orchestrator.lab.fabric import router_text
from orchestrator.policy.addresses import Prefix
from twohosts import image, network, projects
from twohosts.addresses import (
    HOSTS,
    MANAGEMENT,
    OUTSIDE,
    OUTSIDE_ADDRESS,
    PREFIX,
    RANGES,
    ROUTER,
    ROUTER_OUTSIDE,
    leg_of,
)
from twohosts.control import Control, authority_of
from twohosts.hosts import ComputeHost
from twohosts.terminal import Terminal

NAME, NAMED = "www.example.test", OUTSIDE_ADDRESS
"""The one name that the cloud's resolver knows."""
_CONTROL = tuple(name for name in SERVICES if name != "nova-compute")
_BESIDE = (f"bird-{ROUTER}", "resolver", "web80", "web81")


@dataclass(frozen=True, slots=True)
class Cloud:
    """The cloud whose files are, or will be, in a directory."""

    stack: AllInOne
    prefix: str

    @classmethod
    def in_directory(cls, directory: Path, prefix: str = PREFIX) -> Cloud:
        """The management network is made, for the services' ports are looked for there."""
        return cls(AllInOne(Place.at(directory, MANAGEMENT, str(authority_of(directory)))), prefix)

    @property
    def place(self) -> Place:
        return self.stack.place

    @property
    def control(self) -> Control:
        return Control(self.place)

    @property
    def hosts(self) -> dict[str, ComputeHost]:
        return {name: ComputeHost(self.place, self.prefix, name) for name in HOSTS}

    def begin(self) -> None:
        """Start everything. Raises NotStartedError."""
        self._start_outside()
        self.control.start()
        kernel, disk = image.make(self.place.root / "guest")
        self.stack.begin_services(_CONTROL)
        for host in self.hosts.values():
            host.make_files(words_of(self.place))
            host.start_switch()
            host.configure_switch(self.control.url, self.control.invite_switch(host.name))
            host.start_routing()
            host.start_compute()
        wait_until_ready(self.place, len(HOSTS))
        if not (self.place.root / "instances").exists():
            image.upload(connect(self.place, "admin", PROJECT), kernel, disk)
            projects.make(self.place)
            (self.place.root / "instances").touch()

    def end(self) -> None:
        """Stop everything, and remove the network."""
        for host in self.hosts.values():
            host.end()
        self.stack.end()
        self.control.stop()
        running.stop(self.place, _BESIDE)
        network.remove(self.prefix)

    def kill(self, *names: str) -> None:
        """Kill some of the processes."""
        running.kill(self.place, names)

    def _start_outside(self) -> None:
        """Start what runs in the router, and two web servers beyond it."""
        text = router_text(ROUTER_OUTSIDE, list(map(leg_of, HOSTS)), map(Prefix.parse, RANGES))
        run = self.place.root / "run"
        config = self.place.config(ROUTER)
        config.write_text(text)
        self._start(ROUTER, f"bird-{ROUTER}", "bird", "-f", "-c", str(config), "-s", str(run / "bird-router.ctl"))
        self._start(
            ROUTER, "resolver", "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--pid-file=",
            "--no-resolv", "--no-hosts", "--bind-interfaces", f"--listen-address={ROUTER_OUTSIDE}", "--user=root",
            f"--address=/{NAME}/{NAMED}",
        )  # fmt: skip
        pages = self.place.root / "pages"
        pages.mkdir(exist_ok=True)
        (pages / "index.html").write_text("outside\n")
        for port in ("80", "81"):
            self._start(OUTSIDE, f"web{port}", "/usr/bin/python3", "-m", "http.server", port, "--directory", str(pages))

    def _start(self, node: str, name: str, *command: str) -> None:
        running.start(self.place, name, ("ip", "netns", "exec", self.prefix + node, *command), {})

    # -------------------------------------------------------------------------------------------------------- to look

    def run_in(self, node: str, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the router or outside."""
        inside = ("ip", "netns", "exec", self.prefix + node)
        return subprocess.run((*inside, *command), capture_output=True, text=True, check=False)

    def announced(self) -> dict[str, str]:
        """The addresses that the router heard of, each with the host it sends packets for it to."""
        legs = {leg_of(host).name: host for host in HOSTS}
        shown = (self.run_in(ROUTER, "ip", family, "route", "show", "proto", "bird").stdout for family in ("-4", "-6"))
        found = (line.split() for text in shown for line in text.splitlines())
        return {words[0]: legs.get(words[words.index("dev") + 1], "") for words in found if "dev" in words}

    @contextmanager
    def terminal(self, host: str, instance: str) -> Iterator[Terminal]:
        """Sit down at an instance, by the name that libvirt has for it."""
        path = self.hosts[host].run("virsh", "-c", "qemu:///system", "ttyconsole", instance).strip()
        with Terminal(path) as opened:
            yield opened
