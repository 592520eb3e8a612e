"""The collection for real: from machines with SSH keys to a running domain, upgraded, broken, repaired, removed.

One story; every part begins where the one before ended. Machines are Debian with systemd in namespaces (`machines.py`),
between them lies a switch (`fabric.py`), and while things happen packets are sent (`traffic.py`).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from deployment.fabric import ALICE, DB1, ENDPOINTS, SHOP, WEB1, Fabric
from deployment.image import KEPT, wheel
from deployment.machines import Machines
from deployment.site import ANSIBLE, DOMAIN, EDGE, FIREWALLS, HOSTS, SERVICE, Ops, changes
from deployment.traffic import STREAMS, Traffic

from orchestrator.errors import Refused, Unreachable
from orchestrator.hosts.installer import AnsibleInstaller
from orchestrator.hosts.request import Machine as Login
from orchestrator.hosts.request import Onboarding
from orchestrator.hosts.switch import Datapath, Wanted
from orchestrator.lab import namespaces

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

PREFIX = os.environ.get("ACLFLOW_TEST_PREFIX", "actest-")
OLD, NEW = "0.1.0", "0.1.1"
MACHINES = (SERVICE, *HOSTS, *FIREWALLS, EDGE)
RULES = [{"id": "web", "action": "permit", "protocol": "udp", "source": ALICE.address, "destination_ports": "80",
          "destination": WEB1.address}]  # fmt: skip


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


def test_a_dry_run_on_bare_machines_changes_nothing(site: Site) -> None:
    said = site.ops.play("site", "--check", "--diff")
    assert changes(said)[SERVICE] > 0, "it should say what it would do"
    for name in MACHINES:
        assert site.machines[name].run("ls", "/opt", "/etc/systemd/system").count("aclflow") == 0


def test_from_nothing_to_a_running_domain(site: Site) -> None:
    site.ops.play("site")
    seen = json.loads(site.aclflow("domain", "show", DOMAIN, "--json"))
    assert {host["name"] for host in seen["hosts"]} == set(HOSTS)
    assert seen["enforced"]
    firewalls = json.loads(site.aclflow("firewall", "list", DOMAIN, "--json"))
    assert {each["name"] for each in firewalls} == set(FIREWALLS)
    (edge,) = json.loads(site.aclflow("pop", "show", DOMAIN, "--json"))["edges"]
    assert (edge["name"], edge["uplink"]) == (EDGE, "wan")
    flows = site.machines[EDGE].run("ovs-ofctl", "-OOpenFlow15", "dump-flows", "br-edge")
    assert flows.count("cookie=0xac3") > 3, "the edge switch holds a program of its tier"
    engine = site.machines[SERVICE].run(
        "runuser", "-u", "postgres", "--", "psql", "-Atc", "select id from domains", "aclflow"
    )
    assert engine.split() == [DOMAIN], "the service's database is PostgreSQL"
    asking = "import urllib.request as web; print(web.urlopen('http://10.77.0.10:8421/login').status)"
    assert site.machines[SERVICE].run("/opt/aclflow/bin/python", "-c", asking).strip() == "200"


def test_a_second_run_changes_nothing(site: Site) -> None:
    said = site.ops.play("site")
    assert set(changes(said).values()) == {0}, said[-8000:]


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
        site.aclflow("domain", "add-endpoint", DOMAIN, endpoint.name, *words)
    assert site.module("aclflow_acl", tenant="shop", rules=RULES, wait_s=60)["changed"]
    assert not site.module("aclflow_acl", tenant="shop", rules=RULES, wait_s=60)["changed"]


def _enough(traffic: Traffic) -> None:
    assert not any(traffic.wrong.values()), {
        f"{key.source.name}>{key.target.name}:{key.port}": number for key, number in traffic.wrong.items()
    }
    assert all(count.sent > 20 for count in traffic.counts.values())


def test_packets_are_filtered(site: Site) -> None:
    with Traffic(site.fabric) as traffic:
        site.aclflow("domain", "wait", DOMAIN, "--timeout", "60")
    _enough(traffic)


def test_upgraded_while_packets_flow(site: Site) -> None:
    site.ops.describe(site.new)
    with Traffic(site.fabric) as traffic:
        said = site.ops.play("upgrade")
    _enough(traffic)
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
        failed = next(step for step in site.ops.follow("site", "--limit", "host2") if step["state"] == "failed")
        assert "make room" in failed["message"]
        machine.run("umount", "/opt")
        for tasks in (10, 18, 27, 36):
            _cut_off(site, tasks)
        site.ops.play("site", "--limit", "host2")
        site.fabric.plug_endpoint(DB1)
        site.aclflow("domain", "wait", DOMAIN, "--timeout", "60")
    _enough(traffic)
    said = site.ops.play("site", "--limit", "host2")
    assert changes(said)["host2"] == 0


def _cut_off(site: Site, tasks: int) -> None:
    """Run the playbook, and kill it in the middle of a task."""
    running = site.ops.start("site", "--limit", "host2")
    assert running.stdout is not None
    for line in running.stdout:
        tasks -= line.startswith("TASK")
        if tasks == 0:
            break
    os.killpg(running.pid, signal.SIGKILL)
    running.wait(30)
    running.stdout.close()


def test_a_machine_is_onboarded_over_ansible_and_given_back(site: Site) -> None:
    """What the service does for `aclflow host add`, with what goes wrong on the way."""
    site.machines.add("host3")
    machine = site.machines.start("host3")
    run_in = f"{PREFIX}ops"
    asked = Onboarding(
        Login(machine.address),
        Wanted(DOMAIN, "host3", "uplink", (f"tcp:{site.machines[SERVICE].address}:6653",), datapath=Datapath.NETDEV),
    )
    variables = {"aclflow_wheel": str(site.new), "aclflow_pip_arguments": "--no-index --find-links /srv/wheels"}
    told: list[str] = []
    program = str(site.machines.directory / "play")
    settings = "\n".join(f"export {key}={value!r}" for key, value in site.ops.environment().items())
    Path(program).write_text(
        f'#!/bin/bash\n{settings}\nexport ANSIBLE_STDOUT_CALLBACK=aclflow.cloud.steps\nexec ansible-playbook "$@"\n'
    )
    Path(program).chmod(0o755)
    good = AnsibleInstaller(program, site.machines.key_file, variables)

    wrong = site.machines.directory / "wrong"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(wrong)], check=True)
    stranger = AnsibleInstaller(program, wrong, variables)
    with pytest.raises(Unreachable, match="does not take the key"):
        namespaces.inside(run_in, lambda: stranger.prepare(asked, {}, told.append))
    nobody = Onboarding(Login("10.77.0.99"), asked.switch)
    with pytest.raises(Unreachable, match=r"there is no way|does not answer"):
        namespaces.inside(run_in, lambda: good.prepare(nobody, {}, told.append))
    with pytest.raises(Refused, match="cannot use the uplink"):
        namespaces.inside(run_in, lambda: good.prepare(asked, {}, told.append))
    site.fabric.connect_host("host3")
    machine.run(
        "ovs-vsctl",
        "--if-exists",
        "del-br",
        "br-aclflow",
        "--",
        "add-br",
        "br-aclflow",
        "--",
        "set",
        "bridge",
        "br-aclflow",
        "datapath_type=netdev",
    )
    machine.run("ovs-ofctl", "add-flow", "br-aclflow", "priority=7,actions=drop")
    with pytest.raises(Refused, match="1 flows of somebody"):
        namespaces.inside(run_in, lambda: good.prepare(asked, {}, told.append))
    machine.run("ovs-vsctl", "del-br", "br-aclflow")
    namespaces.inside(run_in, lambda: good.prepare(asked, {}, told.append))
    assert any("Configure the switch" in step for step in told)
    assert machine.run("ovs-vsctl", "get", "bridge", "br-aclflow", "fail_mode").strip() == "secure"
    told.clear()
    namespaces.inside(run_in, lambda: good.prepare(asked, {}, told.append))
    assert told == [], "the second time there is nothing to do"
    namespaces.inside(run_in, lambda: good.release(asked, told.append))
    assert machine.run("ovs-vsctl", "list-br").split() == []


def test_taken_apart_without_a_moment_in_which_packets_pass_unfiltered(site: Site) -> None:
    with Traffic(site.fabric) as traffic:
        site.ops.play("remove", "-e", "aclflow_remove_data=true")
    for stream in STREAMS:
        if not stream.permitted:
            assert not traffic.counts[stream].arrived
    for name in MACHINES:
        left = site.machines[name].run("ls", "/opt", "/etc", "/etc/systemd/system", "/var/lib")
        assert "aclflow" not in left, (name, left)
    for name in (*HOSTS, EDGE):
        assert site.machines[name].run("ovs-vsctl", "list-br").split() == []
    with Traffic(site.fabric) as silence:
        site.machines[SERVICE].run("true")
    assert not any(count.arrived for count in silence.counts.values())
