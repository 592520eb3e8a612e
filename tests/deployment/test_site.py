"""The collection for real: from machines with SSH keys to a running domain, upgraded, broken, repaired, removed.

One story; every part begins where the one before ended. Machines are Debian with systemd in namespaces (`machines.py`),
between them lies a switch (`fabric.py`), and while things happen packets are sent (`traffic.py`).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from deployment.fabric import ALICE, DB1, ENDPOINTS, SHOP, WEB1, Fabric
from deployment.guest import RULE, Guest
from deployment.image import KEPT, wheel
from deployment.machines import Machines
from deployment.site import ANSIBLE, DOMAIN, EDGE, FIREWALLS, HOSTS, PATIENCE_S, SERVICE, Ops, changes
from deployment.traffic import STREAMS, Traffic
from patience import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(6 * 3600)]

PREFIX = os.environ.get("ACLFLOW_TEST_PREFIX", "actest-")
CUT_EVERY = int(os.environ.get("ACLFLOW_CUT_EVERY", "20"))
"""Runs are killed at every so-manieth task; 1 takes hours."""
ROLES = ("database", "service", "controller", "console", "ovs_host", "firewall_vnf", "edge")
OLD, NEW = "0.1.0", "0.1.1"
MACHINES = (SERVICE, *HOSTS, *FIREWALLS, EDGE)
AS_WORDS = (
    "aclflow_tls=yes aclflow_apt=true aclflow_backups=on aclflow_wait_enforced=True aclflow_adopt=no "
    "aclflow_firewall_flow_cache=false"
)
RULES = [{"id": "web", "action": "permit", "protocol": "udp", "source": ALICE.address, "destination_ports": "80",
          "destination": WEB1.address}]  # fmt: skip

LOOK_AT_CONSOLE = """
import ssl, urllib.request as web
believed = ssl.create_default_context(cafile="/etc/aclflow/tls/authority.pem")
print(web.urlopen("https://10.77.0.10:8421/login", context=believed).status)
"""


@dataclass
class Site:
    """The machines and what is between them."""

    machines: Machines
    fabric: Fabric
    ops: Ops
    old: Path
    new: Path

    def aclflow(self, *words: str) -> str:
        """The command line, as an administrator on the service's machine."""
        service = self.machines[SERVICE]
        token = service.run("cat", "/etc/aclflow/admin.token").strip()
        url = f"ACLFLOW_URL=https://{service.address}:8420"
        authority = "ACLFLOW_AUTHORITY=/etc/aclflow/tls/authority.pem"
        return service.run("env", url, authority, f"ACLFLOW_TOKEN={token}", "/opt/aclflow/bin/aclflow", *words)

    def module(self, name: str, **arguments: object) -> dict[str, object]:
        """One of the collection's modules, run on the service's machine."""
        service = self.machines[SERVICE]
        asked = {
            "url": f"https://{service.address}:8420",
            "token": service.run("cat", "/etc/aclflow/admin.token").strip(),
            "authority": "/etc/aclflow/tls/authority.pem",
            **arguments,
        }
        command = [
            "nsenter", f"--net=/run/netns/{PREFIX}ops", "ansible", "-i", str(self.ops.inventory), SERVICE, "--one-line",
            "-m", f"aclflow.cloud.{name}", "-a", json.dumps(asked),
        ]  # fmt: skip
        done = subprocess.run(command, env=self.ops.environment(), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout.partition("=> ")[2])


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    if os.geteuid():
        pytest.skip("needs root: machines are namespaces")
    if shutil.which("debootstrap") is None or not (ANSIBLE / ".ready").exists():
        pytest.skip("needs debootstrap and Ansible: `make test-ansible` installs both")
    directory = KEPT / f"run-{PREFIX}{os.getpid()}"
    directory.mkdir(parents=True)
    old, new = (wheel(version, directory / "wheels") for version in (OLD, NEW))
    machines = Machines(PREFIX, directory)
    fabric = None
    try:
        for name in MACHINES:
            machines.add(name)
            machines.start(name)
        fabric = Fabric(machines)
        for name in FIREWALLS:
            fabric.connect_firewall(name)
        for name in HOSTS:
            fabric.connect_host(name)
        fabric.connect_edge(EDGE)
        fabric.steer()
        ops = Ops(machines)
        ops.describe(old)
        yield Site(machines, fabric, ops, old, new)
    finally:
        if fabric is not None:
            fabric.close()
        machines.close()


def _cut_off_everywhere(site: Site, playbook: str, *words: str) -> None:
    """Runs that are killed at one task after the other, until one comes to its end."""
    tasks = 1 + CUT_EVERY // 2
    while site.ops.cut_off(playbook, tasks, *words):
        tasks += CUT_EVERY


def _switches(site: Site) -> dict[str, str]:
    """The valid certificate of every switch, by name."""
    issued = json.loads(site.aclflow("certificates", "list", "--json"))
    return {each["name"]: each["serial"] for each in issued if each["valid"] and each["usage"] == "switch"}


def _connected(site: Site, name: str) -> bool:
    """Whether a switch has its controller, which believes its certificate."""
    said = site.machines[name].run("ovs-vsctl", "--bare", "--columns=is_connected", "list", "controller")
    return said.strip() == "true"


def _failed(site: Site, machine: str, *words: str) -> str:
    """What the task says that fails."""
    steps = site.ops.follow("site", "--limit", machine, *words)
    return next(step["message"] for step in steps if step["state"] == "failed")


def test_a_dry_run_on_bare_machines_changes_nothing(site: Site) -> None:
    said = site.ops.play("site", "--check", "--diff")
    assert changes(said)[SERVICE] > 0, "it should say what it would do"
    for name in MACHINES:
        assert site.machines[name].run("ls", "/opt", "/etc/systemd/system").count("aclflow") == 0


def test_another_wheel_than_the_one_meant_is_refused(site: Site) -> None:
    said = _failed(site, HOSTS[0], "--tags", "ovs_host", "-e", f"aclflow_wheel_sha256={'0' * 64}")
    assert "asks for 0000" in said
    assert "aclflow-" not in site.machines[HOSTS[0]].run("ls", "/opt"), "nothing of it was installed"


def test_from_nothing_to_a_running_domain_by_runs_that_are_cut_off(site: Site) -> None:
    for role in ROLES:
        _cut_off_everywhere(site, "site", "--tags", role)
    site.ops.play("site")
    seen = json.loads(site.aclflow("domain", "show", DOMAIN, "--json"))
    assert {host["name"] for host in seen["hosts"]} == set(HOSTS)
    assert seen["enforced"]
    firewalls = json.loads(site.aclflow("firewall", "list", DOMAIN, "--json"))
    assert {each["name"] for each in firewalls} == set(FIREWALLS)
    (edge,) = json.loads(site.aclflow("pop", "show", DOMAIN, "--json"))["edges"]
    assert (edge["name"], edge["uplink"]) == (EDGE, "wan")
    issued = json.loads(site.aclflow("certificates", "list", "--json"))
    valid = {(each["usage"], each["name"]) for each in issued if each["valid"]}
    assert valid == {("switch", name) for name in (*HOSTS, EDGE)} | {("enforcer", name) for name in FIREWALLS} | {
        ("controller", name) for name in (SERVICE, EDGE)
    }, "everybody is known by a certificate of the service's own authority"
    timers = site.machines[SERVICE].run("systemctl", "is-active", "aclflow-backup.timer")
    assert timers.strip() == "active"
    site.machines[SERVICE].run("systemctl", "start", "aclflow-backup.service")
    assert ".backup" in site.machines[SERVICE].run("ls", "/var/backups/aclflow")
    flows = site.machines[EDGE].run("ovs-ofctl", "-OOpenFlow15", "dump-flows", "br-edge")
    assert flows.count("cookie=0xac3") > 3, "the edge switch holds a program of its tier"
    engine = site.machines[SERVICE].run(
        "runuser", "-u", "postgres", "--", "psql", "-Atc", "select id from domains", "aclflow"
    )
    assert engine.split() == [DOMAIN], "the service's database is PostgreSQL"
    assert site.machines[SERVICE].run("/opt/aclflow/bin/python", "-c", LOOK_AT_CONSOLE).strip() == "200"


def test_a_second_run_changes_nothing_and_would_change_nothing(site: Site) -> None:
    """Also where what is a yes or no by default is said with `-e`, as a word."""
    for words in ((), ("--check", "--diff", "-e", AS_WORDS)):
        said = site.ops.play("site", *words)
        assert changes(said) == dict.fromkeys(MACHINES, 0), said[-8000:]


def test_a_tenants_list_is_a_task(site: Site) -> None:
    tenant = {"tenant": "shop", "domain": DOMAIN, "prefixes": [SHOP]}
    assert site.module("aclflow_prefix", **tenant)["changed"]
    assert not site.module("aclflow_prefix", **tenant)["changed"]
    for endpoint in ENDPOINTS:
        site.fabric.plug_endpoint(endpoint)
        words = (
            "--tenant",
            "shop",
            "--port",
            endpoint.name,
            "--mac",
            endpoint.mac,
            "--prefix",
            f"{endpoint.address}/32",
        )
        site.aclflow("domain", "endpoint", "add", DOMAIN, endpoint.name, *words)
    assert site.module("aclflow_acl", tenant="shop", rules=RULES, wait_s=PATIENCE_S)["changed"]
    assert not site.module("aclflow_acl", tenant="shop", rules=RULES, wait_s=PATIENCE_S)["changed"]


def _enough(traffic: Traffic) -> None:
    assert not any(traffic.wrong.values()), {
        f"{key.source.name}>{key.target.name}:{key.port}": number for key, number in traffic.wrong.items()
    }
    assert all(count.sent > 20 for count in traffic.counts.values())


def test_packets_are_filtered(site: Site) -> None:
    site.aclflow("domain", "wait", DOMAIN, "--timeout", str(PATIENCE_S))
    with Traffic(site.fabric) as traffic:
        traffic.carry(200)
    _enough(traffic)


def test_upgraded_while_packets_flow(site: Site) -> None:
    """Switches' certificates are made anew by the way, as if their 825 days were nearly over."""
    site.ops.describe(site.new)
    before = _switches(site)
    with Traffic(site.fabric) as traffic:
        said = site.ops.play("upgrade", "-e", "aclflow_certificates_renew_days=830")
        site.aclflow("domain", "wait", DOMAIN, "--timeout", str(PATIENCE_S))
    _enough(traffic)
    after = _switches(site)
    assert after.keys() == before.keys()
    assert not set(after.values()) & set(before.values())
    until(lambda: all(_connected(site, name) for name in (*HOSTS, EDGE)), what=lambda: "a controller refuses a switch")
    assert all(number > 0 for number in changes(said).values())
    for name in MACHINES:
        there = site.machines[name].run("ls", "/opt").split()
        assert {f"aclflow-{OLD}", f"aclflow-{NEW}"} <= set(there), "both versions are there, to go back"
        assert site.machines[name].run("readlink", "/opt/aclflow").strip() == f"/opt/aclflow-{NEW}"
    running = site.machines[FIREWALLS[0]].run(
        "bash", "-c", "cat /proc/$(systemctl show -p MainPID --value aclflow-agent)/cmdline"
    )
    assert "aclflow" in running


def test_a_host_is_lost_and_replaced_by_runs_that_are_cut_off(site: Site) -> None:
    """The rest of the domain goes on. The new machine's disk is full first; then runs are killed at one task after the
    other, and repeated."""
    with Traffic(site.fabric) as traffic:
        site.machines.lose("host2")
        site.machines.add("host2")
        site.ops.hang_up()
        site.fabric.connect_host("host2")
        machine = site.machines.start("host2")
        machine.run("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", "/opt")
        assert "make room" in _failed(site, "host2")
        machine.run("mount", "-o", "remount,size=48m", "/opt")
        assert "No space left on device" in _failed(site, "host2", "-e", "aclflow_room_mb=1")
        machine.run("umount", "/opt")
        _cut_off_everywhere(site, "site", "--limit", "host2")
        site.fabric.plug_endpoint(DB1)
        site.aclflow("domain", "wait", DOMAIN, "--timeout", str(PATIENCE_S))
    _enough(traffic)
    said = site.ops.play("site", "--limit", "host2")
    assert changes(said)["host2"] == 0


def test_a_machine_is_onboarded_over_rest_and_given_back(site: Site) -> None:
    """The service logs in with Ansible; what goes wrong on the way is said, and the same call goes on from there."""
    guest = Guest(site.machines, site.fabric, site.aclflow)
    guest.is_refused_until_all_is_right()
    guest.is_added()
    with Traffic(site.fabric, guest.streams) as traffic:
        site.module("aclflow_acl", tenant="shop", rules=[*RULES, RULE], wait_s=PATIENCE_S)
        guest.is_given_back()
    refused, permitted = (traffic.counts[stream].arrived for stream in guest.streams)
    assert permitted, "it was a host before"
    assert not refused
    site.module("aclflow_acl", tenant="shop", rules=RULES, wait_s=PATIENCE_S)


def test_taken_apart_without_a_moment_in_which_packets_pass_unfiltered(site: Site) -> None:
    with Traffic(site.fabric) as traffic:
        _cut_off_everywhere(site, "remove", "-e", "aclflow_remove_data=true")
    for stream in STREAMS:
        if not stream.permitted:
            assert not traffic.counts[stream].arrived
    for name in MACHINES:
        left = site.machines[name].run("ls", "/opt", "/etc", "/etc/systemd/system", "/var/lib")
        assert "aclflow" not in left, (name, left)
    for name in (*HOSTS, EDGE):
        assert site.machines[name].run("ovs-vsctl", "list-br").split() == []
    with Traffic(site.fabric) as silence:
        silence.carry(50)
    assert not any(count.arrived for count in silence.counts.values())
