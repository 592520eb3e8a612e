"""What cloud-init has a firewall VNF do with its sides: packets go on between them, its own go as before."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml
from patience import until

from orchestrator.compile.pipelines.host import GATEWAY_IPV4, GATEWAY_MAC
from orchestrator.lab import namespaces
from orchestrator.lab.layout import Layout
from orchestrator.policy.addresses import Family, format_mac

CONFIG = Path(__file__).parents[2] / "heat-templates/firewall-vnf.cloud-config"
RANGES = "198.51.100.0/24,2001:db8::/48"
CLIENT = {Family.IPV4: "192.0.2.7", Family.IPV6: "fd00:9::7"}
TENANT = {Family.IPV4: "198.51.100.10", Family.IPV6: "2001:db8::10"}
SIDES = {"left": ("client", CLIENT, TENANT), "right": ("tenant", TENANT, CLIENT)}
"""What is behind each side: its node, its addresses, and those that it sends to."""
_LENGTHS = {Family.IPV4: 32, Family.IPV6: 128}


class Site:
    """A client, a VNF and a tenant's machine in a row; both ends have the gateway's MAC address."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def run(self, node: str, *command: str) -> str:
        """Run a program inside a node; it must succeed."""
        words = ("ip", "netns", "exec", self._layout.namespace(node), *command)
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
        return done.stdout

    def build(self) -> None:
        """Make nodes and cables."""
        for node in ("client", "vnf", "tenant"):
            namespaces.create(self._layout.namespace(node))
            self.run(node, "ip", "link", "set", "lo", "up")
        self.run("vnf", "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
        for side, (node, own, others) in SIDES.items():
            self.run("vnf", "ip", "link", "add", side, "type", "veth", "peer", "name", "eth0", "netns",
                     self._layout.namespace(node))  # fmt: skip
            self.run("vnf", "ip", "link", "set", side, "up")
            self.run(node, "ip", "link", "set", "eth0", "address", format_mac(GATEWAY_MAC), "up")
            mac = self.run("vnf", "cat", f"/sys/class/net/{side}/address").strip()
            for family, length in _LENGTHS.items():
                more = ["nodad"] if family is Family.IPV6 else []
                gateway = "fe80::2" if family is Family.IPV6 else GATEWAY_IPV4
                self.run(node, "ip", "address", "add", f"{own[family]}/{length}", "dev", "eth0", *more)
                self.run(node, "ip", "neighbour", "replace", gateway, "lladdr", mac, "dev", "eth0", "nud", "permanent")
                onlink = ["onlink"] if family is Family.IPV4 else []
                self.run(
                    node, "ip", "route", "add", f"{others[family]}/{length}", "via", gateway, "dev", "eth0", *onlink
                )

    def pings(self, node: str, address: str) -> bool:
        """Whether a node hears from an address."""
        words = ("ip", "netns", "exec", self._layout.namespace(node), "ping", "-c", "1", "-W", "1", address)
        return subprocess.run(words, capture_output=True, check=False).returncode == 0

    def sides(self, ranges: str) -> None:
        """Run what cloud-init runs."""
        config = yaml.safe_load("write_files:\n" + CONFIG.read_text(encoding="utf-8"))
        (script,) = (each["content"] for each in config["write_files"] if each["path"].endswith("/aclflow-sides"))
        self.run("vnf", "sh", "-c", script, "sh", ranges)


@pytest.fixture
def site(layout: Layout) -> Iterator[Site]:
    made = Site(layout)
    made.build()
    yield made
    for node in ("client", "vnf", "tenant"):
        namespaces.remove(layout.namespace(node))


def test_what_enters_by_one_side_leaves_by_the_other_and_the_machines_own_goes_as_before(site: Site) -> None:
    site.sides("")
    for family in Family:
        assert not site.pings("client", TENANT[family]), "without ranges nothing is done"
    before = site.run("vnf", "ip", "route", "show", "table", "main")
    site.sides(RANGES)
    for family in Family:
        until(partial(site.pings, "client", TENANT[family]))
        until(partial(site.pings, "tenant", CLIENT[family]))
    assert site.run("vnf", "ip", "route", "show", "table", "main") == before
    for family in Family:
        assert not site.pings("vnf", TENANT[family]), "its own packets have other ways"
