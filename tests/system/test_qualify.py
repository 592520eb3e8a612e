"""A qualification for real: a client and a server with an sshd each, and between them a firewall with a list.

The commands are given from the namespace in the middle, which reaches both over SSH. What is sent from there is not
forwarded, so the list does not decide about it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.bench.traffic import filters
from orchestrator.bench.traffic.addresses import SERVER_ADDRESS, Clients, alone
from orchestrator.bench.traffic.filters import Filter
from orchestrator.bench.traffic.line import CLIENT, MIDDLE, SERVER, Line, site
from orchestrator.lab.layout import Layout
from orchestrator.policy.formats.native import acl_from_json

CLIENT_ADDRESS = Clients.ONE.address
REFUSED = 8081
RULES = [
    {"id": "iperf", "action": "permit", "protocol": "tcp", "destination_ports": "5201"},
    {"id": "datagrams", "action": "permit", "protocol": "udp", "destination_ports": "5201"},
    {"id": "web", "action": "permit", "protocol": "tcp", "destination_ports": "8080"},
    {"id": "back", "direction": "egress", "action": "permit"},
]
SSHD = "/usr/sbin/sshd"
ANSIBLE = Path(__file__).parents[2] / ".venv-ansible"


@dataclass
class Yard:
    """The line, and what `aclflow` is given."""

    line: Line
    folder: Path
    key: Path

    def inventory(self, **server: object) -> dict[str, Any]:
        options = f"-o UserKnownHostsFile={self.folder}/known -o StrictHostKeyChecking=accept-new"
        shared = {"ansible_ssh_private_key_file": str(self.key), "ansible_ssh_common_args": options}
        web1 = {"ansible_host": SERVER_ADDRESS, "aclflow_bench_refused_port": REFUSED} | server
        groups = {
            "bench_clients": {"hosts": {"alice": {"ansible_host": CLIENT_ADDRESS}}},
            "bench_servers": {"hosts": {"web1": web1}},
        }
        return {"all": {"vars": shared, "children": groups}}

    def permit(self, rules: list[dict[str, object]]) -> None:
        """Have the firewall hold a list."""
        policy = alone(acl_from_json({"rules": rules}))
        filters.load(self.line, Filter.NFTABLES, filters.text_of(Filter.NFTABLES, policy))

    def bench(
        self, inventory: dict[str, Any], limits: dict[str, Any] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """`aclflow bench --inventory`, in the middle."""
        (self.folder / "hosts.yml").write_text(yaml.safe_dump(inventory))
        (self.folder / "limits.yml").write_text(yaml.safe_dump(limits or {}))
        words = ["--inventory", str(self.folder / "hosts.yml"), "--limits", str(self.folder / "limits.yml"), "--quick"]
        command = [sys.executable, "-m", "orchestrator.cli", "bench", *words, "--out", str(self.folder / "report")]
        return self.line.inside(
            MIDDLE, lambda: subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
        )

    def results(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.folder / "report/results.json").read_text())
        return document


@pytest.fixture(scope="module")
def yard(layout: Layout, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    if not Path(SSHD).exists():
        pytest.skip("sshd is not installed: apt-get install openssh-server")
    folder = tmp_path_factory.mktemp("qualify")
    for name in ("key", "host", "other"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    (folder / "authorized").write_text((folder / "key.pub").read_text())
    Path("/run/sshd").mkdir(exist_ok=True)
    with site(layout) as place, Line(place, "qualify") as line:
        line.run(MIDDLE, "ip", "address", "add", "192.0.2.1/32", "dev", "left")
        for role in (CLIENT, SERVER):
            settings = folder / f"{role}.conf"
            settings.write_text(
                f"HostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized\nStrictModes no\n"
                f"PidFile none\nPasswordAuthentication no\nPermitRootLogin prohibit-password\n"
            )
            line.start(role, SSHD, "-D", "-e", "-f", str(settings))
        yield Yard(line, folder, folder / "key")


def test_every_figure_of_a_pair_is_measured_and_held_against_its_limit(yard: Yard) -> None:
    yard.permit(RULES)
    kept = {
        "tcp_mbit_s": {"at_least": 0.01},
        "packets_per_s": {"at_least": 1},
        "requests_per_s": {"at_least": 1},
        "connect_ms": {"at_most": 60_000},
        "refused_answered": {"at_most": 0},
    }
    done = yard.bench(yard.inventory(), kept)
    assert done.returncode == 0, done.stderr
    figures = yard.results()["figures"]
    measured = {name.split()[0] for name in figures}
    assert measured == {*kept, "packets_lost_percent", "connection_ms"}
    assert {name.partition(" ")[2] for name in figures} == {"alice web1"}
    assert figures["refused_answered alice web1"]["median"] == 0
    page = (yard.folder / "report/report.html").read_text()
    assert "Passed: every limit is kept." in page
    assert "<svg" not in page, "one round is no course"
    assert "cores" in str(yard.results()["settings"]["web1"])
    assert _left_behind(yard) == []


@pytest.mark.long
def test_a_limit_that_is_missed_is_named_and_the_answer_is_no(yard: Yard) -> None:
    yard.permit([*RULES, {"id": "hole", "action": "permit", "protocol": "tcp", "destination_ports": str(REFUSED)}])
    done = yard.bench(yard.inventory(), {"refused_answered": {"at_most": 0}, "connect_ms": {"at_most": 60_000}})
    assert done.returncode == 1
    assert "not passed: refused_answered alice web1" in done.stderr
    assert "connect_ms alice web1" not in done.stderr
    assert "Not passed: refused_answered alice web1." in (yard.folder / "report/report.html").read_text()


@pytest.mark.long
def test_what_the_list_does_not_permit_is_not_measured_and_says_why(yard: Yard) -> None:
    yard.permit([rule for rule in RULES if rule["id"] != "web"])
    done = yard.bench(yard.inventory())
    assert done.returncode == 1
    absent = yard.results()["absent"]
    assert set(absent) == {f"{name} alice web1" for name in ("requests_per_s", "connect_ms", "connection_ms")}
    assert all("does the tenant's list permit it?" in reason for reason in absent.values())
    assert "tcp_mbit_s alice web1" in yard.results()["figures"]


def test_machines_that_are_not_ready_are_all_named_with_what_to_do(yard: Yard) -> None:
    yard.permit(RULES)
    wrong = yard.inventory(ansible_ssh_private_key_file=str(yard.folder / "other"))
    wrong["all"]["children"]["bench_clients"]["hosts"]["bob"] = {"ansible_host": CLIENT_ADDRESS, "ansible_port": 2222}
    done = yard.bench(wrong)
    assert done.returncode == 3
    assert f"web1 ({SERVER_ADDRESS}): cannot be reached over SSH: the machine does not take the key" in done.stderr
    assert "ansible_ssh_private_key_file" in done.stderr
    assert f"bob ({CLIENT_ADDRESS}): cannot be reached over SSH: nothing listens for SSH there" in done.stderr


def test_programs_that_are_not_installed_are_named(yard: Yard) -> None:
    shim = yard.folder / "bench.py"
    shim.write_text(
        "import sys\nfrom orchestrator.bench.qualify import suite\nfrom orchestrator.cli import main\n"
        "suite._NEEDS['server'] = (*suite._NEEDS['server'], 'iperf33')\nsys.exit(main(sys.argv[1:]))\n"
    )
    (yard.folder / "hosts.yml").write_text(yaml.safe_dump(yard.inventory()))
    command = [sys.executable, str(shim), "bench", "--inventory", str(yard.folder / "hosts.yml"), "--quick"]
    done = yard.line.inside(
        MIDDLE, lambda: subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    )
    assert done.returncode == 3
    assert f"web1 ({SERVER_ADDRESS}): iperf33 not installed: apt-get install iperf3 httperf lighttpd" in done.stderr


@pytest.mark.long
def test_the_playbook_measures_the_machines_of_the_inventory(yard: Yard) -> None:
    if not (ANSIBLE / "bin/ansible-playbook").exists():
        pytest.skip("there is no Ansible here: make ansible")
    yard.permit(RULES)
    (yard.folder / "hosts.yml").write_text(yaml.safe_dump(yard.inventory()))
    (yard.folder / "limits.yml").write_text("refused_answered: {at_most: 0}\n")
    said = {
        "aclflow_apt": False,
        "aclflow_reports_dir": str(yard.folder / "reports"),
        "aclflow_bench_quick": True,
        "aclflow_bench_limits": str(yard.folder / "limits.yml"),
        "aclflow_program": [sys.executable, "-m", "orchestrator.cli"],
        "ansible_python_interpreter": sys.executable,
    }
    command = [str(ANSIBLE / "bin/ansible-playbook"), "-i", str(yard.folder / "hosts.yml"), "-e", json.dumps(said)]
    settings = os.environ | {"ANSIBLE_COLLECTIONS_PATH": str(ANSIBLE / "collections"), "ANSIBLE_NOCOLOR": "1"}
    command.append("aclflow.cloud.benchmark")
    done = yard.line.inside(
        MIDDLE,
        lambda: subprocess.run(command, env=settings, capture_output=True, text=True, check=False, timeout=280),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    written = yaml.safe_load((yard.folder / "reports/machines.yml").read_text())
    assert written["bench_servers"]["hosts"]["web1"]["aclflow_bench_refused_port"] == REFUSED
    assert "Passed: every limit is kept." in (yard.folder / "reports/report.html").read_text()


def _left_behind(yard: Yard) -> list[str]:
    """What listens on the server beside its sshd."""
    lines = yard.line.run(SERVER, "ss", "-Hltn").splitlines()
    return [line for line in lines if not line.split()[3].endswith(":22")]
