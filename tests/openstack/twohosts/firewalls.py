"""Firewall VNFs that Heat boots, in the path of a project: a spreading switch between the router and the hosts.

    outside ── router ═ leg3 ═ eth-out ┤ spread ├ eth-in ═ leg4 ═ router ── hosts
                                   sw-left │ │ sw-right
                                        firewalls, on flat networks of ML2/OVS

The router sends into it what comes for the project from outside, and all that the project's instances send; everything
else goes as before. On `spread` runs what docs/spreading.md says: a bridge, its controller and `aclflow passage run`.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from allinone import running

from orchestrator.compile.pipelines.host import GATEWAY_MAC
from orchestrator.compile.pipelines.spread import INSIDE_PORT, OUTSIDE_PORT
from orchestrator.errors import NotFound
from orchestrator.hosts.switch import datapath_of
from orchestrator.lab import namespaces
from orchestrator.lab.ovs import OpenVSwitch
from orchestrator.lab.processes import stop
from orchestrator.policy.addresses import format_mac
from twohosts.addresses import (
    DOMAIN,
    FROM_SPREAD,
    HOSTS,
    OUTSIDE,
    PROJECTS,
    PROJECTS6,
    RANGES,
    ROUTER,
    SIDES,
    SPREAD,
    TO_SPREAD,
    leg_of,
)
from twohosts.cloud import Cloud
from twohosts.hosts import ACLFLOW
from twohosts.provider import BOOTS_S, MANAGEMENT_PREFIX, make_network, provided, write_cloud

BRIDGE = "br-spread"
_IMAGE = "firewall-vnf"
_PROGRAMS = ("passage", "spread-controller")
_NETWORKS = {"left": ("192.0.2.0/25", ("192.0.2.2", "192.0.2.99")),
             "right": ("192.0.2.128/25", ("192.0.2.130", "192.0.2.199"))}  # fmt: skip
_PATIENCE = ("build_s=2400", "load_s=600", "prove_s=300", "spread_s=300", "silent_s=30")
"""Guests without hardware support take so long."""
_TABLES = (50, 51)


@dataclass(frozen=True, slots=True)
class Fleet:
    """The fleet of the cloud's domain, in the path."""

    cloud: Cloud
    operator: Any

    def resize(self, size: int) -> None:
        """Have so many firewalls; all carry traffic when this returns, and no other. Raises NotStartedError."""
        patience = [word for each in _PATIENCE for word in ("--patience", each)]
        ask_service(self.cloud, "fleet", "set", DOMAIN, "--size", str(size), "--spread", "--stateless", *patience)
        running.wait_for(f"{size} firewalls in the path", lambda: len(self.carrying()) == size, BOOTS_S)

    def carrying(self) -> list[str]:
        """The firewalls that carry traffic, as the spreading switch was read back to."""
        with self.cloud.control.client() as client:
            try:
                seen = client.spread.read(DOMAIN)
            except NotFound:
                return []
        return list(seen.carrying) if seen.enforced >= seen.generation else []

    def server(self, name: str) -> Any:
        """The instance of a firewall."""
        return next(each for each in self.operator.compute.servers(details=True) if each.name.endswith(name))


def ask_service(cloud: Cloud, *words: str) -> Any:
    """Ask the service by the command line, as an operator does; return its JSON. Raises NotStartedError."""
    done = subprocess.run(
        (*ACLFLOW, *words, "--json"),
        env={**os.environ, **cloud.control.settings},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise running.NotStartedError(f"{' '.join(words)}: {done.stdout}{done.stderr}")
    return json.loads(done.stdout)


@contextmanager
def firewalls(cloud: Cloud, image: Path, project: str) -> Iterator[Fleet]:
    """Put a fleet with one firewall into the path of a project during the block."""
    with provided(cloud, _IMAGE, image) as operator:
        for name, (cidr, pool) in _NETWORKS.items():
            make_network(operator, name, cidr, pool)
        try:
            _know_cloud(cloud)
            with _spreading(cloud), _steered(cloud, PROJECTS[project], PROJECTS6[project]):
                fleet = Fleet(cloud, operator)
                fleet.resize(1)
                yield fleet
        finally:
            ask_service(cloud, "fleet", "set", DOMAIN, "--size", "0")
            running.wait_for("the fleet's end", lambda: not _firewalls_of(operator), BOOTS_S)


def _firewalls_of(operator: Any) -> list[Any]:
    image = operator.image.find_image(_IMAGE).id
    return [each for each in operator.compute.servers(details=True) if each.image and each.image["id"] == image]


def _know_cloud(cloud: Cloud) -> None:
    """Start the service anew with the cloud that its fleets are made in, and a token for these."""
    place = cloud.place
    file = write_cloud(
        place,
        {
            "image": _IMAGE, "flavor": _IMAGE, "management_network": "management",
            "management_prefix": MANAGEMENT_PREFIX, "left_network": "left", "right_network": "right",
            "tenant_ranges": ",".join(RANGES), "placement": "soft-anti-affinity",
        },
    )  # fmt: skip
    with file.open("a") as more:
        more.writelines(f"{side}_port: sw-{side}\n" for side in SIDES)
    tokens = place.root / "tokens"
    tokens.mkdir(mode=0o700, exist_ok=True)
    with cloud.control.client() as client:
        found = client.enrolment.invite_group(DOMAIN, DOMAIN, kind="nftables")
    (tokens / f"{DOMAIN}.token").write_text(found.token)
    cloud.control.stop("service")
    cloud.control.start_service()
    with cloud.control.client() as client:
        running.wait_for("aclflow's service", client.is_ready)


@contextmanager
def _spreading(cloud: Cloud) -> Iterator[None]:
    """Run the spreading switch, its controller, and what leads packets into it, during the block."""
    place, datapath = cloud.place, datapath_of(DOMAIN, SPREAD)
    namespace = cloud.prefix + SPREAD
    switch = OpenVSwitch(place.root / "spread", namespace, mark=place.root, logs=place.root / "log")
    switch.create()
    processes = [switch.start_database()]
    try:
        switch.vsctl("--no-wait", "set", "Open_vSwitch", ".", "other_config:userspace-tso-enable=true")
        processes.insert(0, switch.start_switch())
        switch.vsctl("add-br", BRIDGE, "--", "set", "bridge", BRIDGE, "datapath_type=netdev", "fail_mode=secure",
                     "protocols=OpenFlow15", f"other_config:datapath-id={datapath:016x}")  # fmt: skip
        for port in (OUTSIDE_PORT, INSIDE_PORT):
            switch.vsctl("add-port", BRIDGE, port, "--", "set", "interface", port, "type=internal",
                         f'mac="{format_mac(GATEWAY_MAC)}"')  # fmt: skip
        for side in SIDES:
            switch.vsctl("add-port", BRIDGE, f"sw-{side}")
        switch.vsctl("set-controller", BRIDGE, "tcp:127.0.0.1:6653")
        _route(cloud)
        inside = ("ip", "netns", "exec", namespace)
        with cloud.control.client() as client:
            invitation = client.enrolment.invite(DOMAIN, kind="openflow")
        settings = {"ACLFLOW_STATE_DIR": str(place.root / "spread-controller"), "ACLFLOW_URL": cloud.control.url,
                    "ACLFLOW_TOKEN": invitation}  # fmt: skip
        command = ("controller", "--name", "spread", "--spreads", f"{datapath:016x}", "--listen", "127.0.0.1:6653")
        running.start(place, "spread-controller", (*inside, *ACLFLOW, *command), settings)
        ranges = [word for each in RANGES for word in ("--range", each)]
        passage = ("passage", "run", "--outside", "eth-out", "--inside", "eth-in", *ranges)
        running.start(place, "passage", (*inside, *ACLFLOW, *passage), {})
        yield
    finally:
        running.stop(place, _PROGRAMS)
        stop(processes)


def _route(cloud: Cloud) -> None:
    """Give the machine of the switch the routes that a routing daemon would learn.

    What its bridges pass between firewalls and switch is none of its packets: the guard would drop it.
    """
    for family in ("iptables", "ip6tables"):
        cloud.run_in(SPREAD, "sysctl", "-qew", f"net.bridge.bridge-nf-call-{family}=0")
    for family, place in (("-4", 0), ("-6", 1)):
        out, back = TO_SPREAD.router[place], FROM_SPREAD.router[place]
        cloud.run_in(SPREAD, "ip", family, "route", "replace", "default", "via", out)
        cloud.run_in(SPREAD, "ip", family, "route", "replace", RANGES[place], "via", back)


@contextmanager
def _steered(cloud: Cloud, *prefixes: str) -> Iterator[None]:
    """Have the router send into the switch, during the block, what is for prefixes from outside, and from them."""
    legs = [leg_of(host).name for host in HOSTS]
    rules = []
    for prefix in prefixes:
        family, place = ("-6", 1) if ":" in prefix else ("-4", 0)
        rules.append((family, "iif", OUTSIDE, "to", prefix, "table", str(_TABLES[0])))
        rules += [(family, "iif", leg, "from", prefix, "table", str(_TABLES[1])) for leg in legs]
        for table, way in zip(_TABLES, (TO_SPREAD, FROM_SPREAD), strict=True):
            cloud.run_in(
                ROUTER, "ip", family, "route", "replace", "default", "via", way.host[place], "table", str(table)
            )
    quiet = {f"net/ipv4/conf/{name}/rp_filter": "0" for name in ("all", OUTSIDE, *legs, "leg3", "leg4")}
    namespaces.inside(cloud.prefix + ROUTER, partial(namespaces.set_kernel, quiet))
    for family, *words in rules:
        cloud.run_in(ROUTER, "ip", family, "rule", "add", *words)
    try:
        yield
    finally:
        for family, *words in rules:
            cloud.run_in(ROUTER, "ip", family, "rule", "delete", *words)
