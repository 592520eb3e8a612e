"""The roles carry a roll-over of the authority: real Ansible and openssl here, above folders that are thrown away."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from deployment.site import ANSIBLE, changes
from served import served

from orchestrator.identity.authority import is_signed_by
from orchestrator.identity.files import read_certificate
from orchestrator.lab.processes import free_port

PLAYBOOKS = Path(__file__).parents[2] / "ansible" / "playbooks"
STEP = """
- name: A step
  hosts: service
  gather_facts: false
  tasks:
    - name: Take the step
      ansible.builtin.include_role: {name: aclflow.cloud.service, tasks_from: rollover}
      when: aclflow_rollover_step != ''
- name: What everybody is given after it
  ansible.builtin.import_playbook: site.yml
"""
SITE = """
- name: What everybody is given of certificates
  hosts: service
  gather_facts: false
  tasks:
    - name: Bring the authorities
      ansible.builtin.include_role: {name: aclflow.cloud.certificates}
    - name: Have a console's certificate
      ansible.builtin.include_role: {name: aclflow.cloud.certificates, tasks_from: console}
"""
APART = """
set -e
for folder in etc var/lib opt; do
    mkdir -p "$1/$folder/above" "$1/$folder/work"
    mount -t overlay overlay -o "lowerdir=/$folder,upperdir=$1/$folder/above,workdir=$1/$folder/work" "/$folder"
done
grep -q ^aclflow: /etc/group || echo aclflow:x:64990: >> /etc/group
grep -q ^aclflow-console: /etc/passwd || echo aclflow-console:x:64991:64991::/:/bin/false >> /etc/passwd
grep -q ^aclflow-console: /etc/group || echo aclflow-console:x:64991: >> /etc/group
mkdir -p /etc/aclflow/tls /opt/aclflow/bin
ln -sf "$2" /opt/aclflow/bin/aclflow
shift 2
exec "$@"
"""
"""Runs a command with folders of the machine that keep nothing of it: what it writes lies above them, in a folder."""


@dataclass(frozen=True)
class Machine:
    """This machine, with folders of its own above its folders."""

    folder: Path
    aclflow: Path

    @property
    def tls(self) -> Path:
        return self.folder / "layers/etc/above/aclflow/tls"

    def run(self, *words: str) -> str:
        layers = str(self.folder / "layers")
        command = ["unshare", "--mount", "bash", "-c", APART, "bash", layers, str(self.aclflow), *words]
        done = subprocess.run(
            command, env=self.environment, cwd=self.folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-6000:]
        return done.stdout

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": f"{ANSIBLE}/bin:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "ANSIBLE_COLLECTIONS_PATH": str(ANSIBLE / "collections"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_PIPELINING": "1",
            "ACLFLOW_STATE_DIR": "/var/lib/aclflow",
        }

    def play(self, playbook: str, **said: object) -> int:
        """Run a playbook; how many tasks changed something."""
        said = {"aclflow_as_service": ["env", str(self.aclflow)], **said}
        told = self.run("ansible-playbook", "-i", "site.json", playbook, "-e", json.dumps(said))
        return changes(told)["machine"]

    def step(self, step: str) -> int:
        """Take a step, or none, and bring everybody what follows; how many tasks changed something."""
        return self.play("step.yml", aclflow_rollover_step=step)

    def believed(self) -> int:
        """Count the authorities that the machine's clients believe."""
        return (self.tls / "authority.pem").read_text().count("BEGIN CERTIFICATE")

    def shown(self) -> str:
        """The console's certificate, with its key."""
        return (self.tls / "console.pem").read_text()

    def signed_by_present(self) -> bool:
        """Whether the console's certificate is by the authority that signs."""
        own = self.shown()
        pem = own[own.index("-----BEGIN CERTIFICATE") :]
        return is_signed_by(pem, read_certificate(self.tls / "signing.pem"))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    if os.geteuid() or not (ANSIBLE / ".ready").exists():
        pytest.skip("needs root, and Ansible: `make test-ansible` installs it")
    (tmp_path / "layers").mkdir()
    (tmp_path / "step.yml").write_text(STEP)
    (tmp_path / "site.yml").write_text(SITE)
    shutil.copy(PLAYBOOKS / "rollover.yml", tmp_path)
    aclflow = Path(sys.executable).with_name("aclflow")
    said = {
        "aclflow_console_names": ["console.example"],
        "aclflow_rollover_heard_s": 0,
        "aclflow_rollover_services": [],
        "ansible_connection": "local",
        "ansible_python_interpreter": "/usr/bin/python3",
    }
    hosts = {"all": {"vars": said, "children": {"service": {"hosts": {"machine": {}}}}}}
    (tmp_path / "site.json").write_text(json.dumps(hosts))
    made = Machine(tmp_path, aclflow)
    made.run(str(aclflow), "db", "upgrade")
    made.run(str(aclflow), "certificates", "init")
    return made


@pytest.mark.long  # seven runs of Ansible
@pytest.mark.timeout(1800)
def test_each_step_is_carried_to_clients_and_consoles_and_repeated_without_a_change(machine: Machine) -> None:
    assert machine.step("") > 0
    assert (machine.believed(), machine.signed_by_present()) == (1, True)
    former, signing = machine.shown(), (machine.tls / "signing.pem").read_text()

    machine.step("announce")
    assert (machine.believed(), machine.shown()) == (2, former)
    assert (machine.tls / "signing.pem").read_text() == signing, "nobody renews before the new one signs"
    assert machine.step("announce") == 0, "what was cut off goes on where it was"

    machine.step("take_over")
    assert machine.believed() == 2
    assert (machine.tls / "signing.pem").read_text() != signing
    renewed = machine.shown()
    assert renewed != former
    assert machine.signed_by_present()

    machine.step("finish")
    assert (machine.believed(), machine.shown()) == (1, renewed)
    assert machine.step("") == 0


@pytest.mark.long  # four plays of a site
@pytest.mark.timeout(1800)
def test_the_playbook_takes_all_steps_and_leaves_one_authority(machine: Machine) -> None:
    machine.play("site.yml")
    signing = (machine.tls / "signing.pem").read_text()
    shown = machine.shown()
    assert machine.play("rollover.yml") > 0
    assert (machine.believed(), machine.signed_by_present()) == (1, True)
    assert (machine.tls / "signing.pem").read_text() != signing
    assert machine.shown() != shown
    assert machine.play("site.yml") == 0


@pytest.mark.long  # three runs of Ansible
@pytest.mark.timeout(1800)
def test_no_step_is_taken_while_a_service_has_not_followed_the_one_before(machine: Machine, tmp_path: Path) -> None:
    """Here it is one that has an authority of its own."""
    machine.step("")
    former = machine.shown()
    with served(tmp_path / "other", tls=True) as other:
        for url in (other.url, f"https://127.0.0.1:{free_port()}"):
            with pytest.raises(AssertionError, match=url):
                machine.play("step.yml", aclflow_rollover_step="announce", aclflow_rollover_services=[url])
    assert machine.step("") == 0
    assert (machine.believed(), machine.shown()) == (1, former)
