"""A domain's machines and their inventory, and running the collection's playbooks on them as an operator would."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import yaml
from deployment.fabric import LEFT_MACS
from deployment.image import ROOT, base
from deployment.machines import Machines

ANSIBLE = ROOT / ".venv-ansible"
DOMAIN = "pop1"
PIP = "--no-index --find-links /srv/wheels"
SERVICE, HOSTS, FIREWALLS, EDGE = "service", ("host1", "host2"), ("fw1", "fw2"), "edge1"
PATIENCE_S = 600
"""How long something may take on a machine that does much else; only who has found a defect ever waits so long."""
PLAY_S = 2 * 3600
"""How long a playbook may take: minutes on a machine of its own, and tens of them beside much else."""
_CALM = {"ANSIBLE_NOCOLOR": "1", "ANSIBLE_RETRY_FILES_ENABLED": "0", "ANSIBLE_DEPRECATION_WARNINGS": "0"}


class Ops:
    """The machine that playbooks are run on: a namespace with a key, a collection, and an inventory."""

    def __init__(self, machines: Machines) -> None:
        self._machines = machines
        self._directory = machines.directory / "ops"
        self._directory.mkdir()
        host_key = (base() / "etc/ssh/ssh_host_ed25519_key.pub").read_text().split()[:2]
        self._known = self._directory / "known_hosts"
        self._known.write_text(f"10.77.0.* {' '.join(host_key)}\n")
        self.inventory = self._directory / "pop.yml"

    def describe(self, wheel: Path, **everywhere: object) -> None:
        """Write the inventory: every machine that there is, and what it is for."""
        groups = {
            "database": [SERVICE], "service": [SERVICE], "controllers": [SERVICE], "console": [SERVICE],
            "hosts": HOSTS, "firewalls": FIREWALLS, "edges": [EDGE],
        }  # fmt: skip
        mine = {
            "hosts": {"aclflow_uplink": "uplink", "aclflow_datapath": "netdev"},
            "firewalls": {
                "aclflow_firewall_outside": ["left"],
                "aclflow_firewall_inside": ["right"],
                "aclflow_firewall_share_interface": "eth0",
                "aclflow_firewall_share_address": "{{ ansible_host }}",
            },
            "edges": {
                "aclflow_edge_uplink": "wan",
                "aclflow_edge_outside": ["outside"],
                "aclflow_edge_datapath": "netdev",
                "aclflow_edge_servers": [
                    {"name": name, "port": f"to-{name}", "mac": LEFT_MACS[name]} for name in FIREWALLS
                ],
            },
        }
        common = {
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(self._machines.key_file),
            "ansible_python_interpreter": "/usr/bin/python3",
            "aclflow_wheel": str(wheel),
            "aclflow_wheel_sha256": "{{ lookup('ansible.builtin.pipe', 'sha256sum ' ~ aclflow_wheel).split()[0] }}",
            "aclflow_pip_arguments": PIP,
            "aclflow_ssh_key": str(self._machines.key_file),
            "aclflow_domain": DOMAIN,
            "aclflow_enforced_timeout_s": PATIENCE_S,
            "aclflow_started_timeout_s": PATIENCE_S,
            **everywhere,
        }
        children = {
            group: {
                "hosts": {name: {"ansible_host": self._machines[name].address} for name in names},
                "vars": mine.get(group, {}),
            }
            for group, names in groups.items()
        }
        self.inventory.write_text(yaml.safe_dump({"all": {"vars": common, "children": children}}))

    def environment(self, **more: str) -> dict[str, str]:
        """What Ansible runs with."""
        own = {
            "PATH": f"{ANSIBLE}/bin:{os.environ['PATH']}",
            "HOME": str(self._directory),
            "ANSIBLE_COLLECTIONS_PATH": str(ANSIBLE / "collections"),
            "ANSIBLE_SSH_ARGS": f"-o ControlMaster=auto -o ControlPersist=60s -o UserKnownHostsFile={self._known}",
            "ANSIBLE_PIPELINING": "1",
        }
        return {**own, **_CALM, **more}

    def hang_up(self) -> None:
        """Forget connections that are kept, one of which may lead to a machine that is no more."""
        shutil.rmtree(self._directory / ".ansible/cp", ignore_errors=True)

    def start(self, playbook: str, *words: str, **environment: str) -> subprocess.Popen[str]:
        """Run a playbook of the collection, and do not wait."""
        command = [
            "nsenter", f"--net=/run/netns/{self._machines.prefix}ops",
            "ansible-playbook", "-i", str(self.inventory), f"aclflow.cloud.{playbook}", *words,
        ]  # fmt: skip
        return subprocess.Popen(
            command, env=self.environment(**environment), cwd=self._directory, text=True, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def play(self, playbook: str, *words: str) -> str:
        """Run a playbook of the collection to its end; what it said. Raises AssertionError where it failed."""
        running = self.start(playbook, *words)
        said, _ = running.communicate(timeout=PLAY_S)
        assert running.returncode == 0, said[-12000:]
        return said

    def cut_off(self, playbook: str, tasks: int, *words: str) -> bool:
        """Run a playbook and kill it in the middle of its so-manieth task; False where it was done before."""
        running = self.start(playbook, *words)
        assert running.stdout is not None
        said = []
        with running.stdout:
            for line in running.stdout:
                said.append(line)
                tasks -= line.startswith("TASK")
                if tasks == 0:
                    os.killpg(running.pid, signal.SIGKILL)
                    break
        assert running.wait(60) == (-signal.SIGKILL if tasks == 0 else 0), "".join(said)[-12000:]
        return tasks == 0

    def follow(self, playbook: str, *words: str) -> list[dict[str, str]]:
        """Run a playbook with the collection's own callback; every task that was done."""
        running = self.start(playbook, *words, ANSIBLE_STDOUT_CALLBACK="aclflow.cloud.steps")
        said, _ = running.communicate(timeout=PLAY_S)
        return [json.loads(line) for line in said.splitlines() if line.startswith("{")]


def changes(said: str) -> dict[str, int]:
    """How many tasks changed something, by machine, from the end of what a playbook said."""
    recap = said.rpartition("PLAY RECAP")[2].splitlines()[1:]
    return {line.split()[0]: int(line.partition("changed=")[2].split()[0]) for line in recap if "changed=" in line}
