"""A playbook installs a wheel if it is the one that the bill of materials beside it names, or whose digest was said."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from deployment.image import ROOT
from deployment.site import ANSIBLE

pytestmark = pytest.mark.skipif(not (ANSIBLE / ".ready").exists(), reason="needs Ansible: `make ansible` installs it")

WHEEL = b"a wheel"
MEANT, OTHER = hashlib.sha256(WHEEL).hexdigest(), "0" * 64
DRIVER = "networking_aclflow-0.1.0-py3-none-any.whl"
NAMES = {
    "package": ("aclflow-0.1.0-py3-none-any.whl", "aclflow_wheel", "aclflow.cdx.json"),
    "neutron_driver": (DRIVER, "aclflow_neutron_wheel", "networking-aclflow.cdx.json"),
}
"""For each role: a wheel, the variable that names it, and the bill of materials beside it."""


def judge(folder: Path, role: str, bill: str | None, said: str | None) -> subprocess.CompletedProcess[str]:
    """The check of a role, of a wheel beside a bill that names a digest, where the inventory says one or none."""
    file, variable, name = NAMES[role]
    wheel = folder / file
    wheel.write_bytes(WHEEL)
    if bill is not None:
        (folder / name).write_text(json.dumps({"metadata": {"component": {"hashes": [{"content": bill}]}}}))
    brought = {
        "aclflow_brought": str(wheel),
        "aclflow_brought_sha256": f"{{{{ {variable}_sha256 }}}}",
        "aclflow_brought_asks": f"{variable}_sha256",
    }
    roles = ROOT / "ansible/roles"
    play = {
        "hosts": "localhost",
        "gather_facts": False,
        "vars_files": [str(roles / role / "defaults/main.yml")],
        "tasks": [{"include_tasks": str(roles / "package/tasks/digest.yml"), "vars": brought}],
    }
    book = folder / "play.yml"
    book.write_text(yaml.safe_dump([play]))
    given = {variable: str(wheel), "ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    if said is not None:
        given[f"{variable}_sha256"] = said
    environment = {"PATH": f"{ANSIBLE}/bin:{os.environ['PATH']}", "HOME": str(folder), "ANSIBLE_NOCOLOR": "1"}
    words = ["ansible-playbook", "-e", json.dumps(given), str(book)]
    return subprocess.run(words, env=environment, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("role", NAMES)
@pytest.mark.parametrize(("bill", "said"), [(MEANT, None), (None, MEANT), (OTHER, MEANT)])
def test_the_wheel_that_was_meant_is_taken(tmp_path: Path, role: str, bill: str | None, said: str | None) -> None:
    done = judge(tmp_path, role, bill, said)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("role", NAMES)
@pytest.mark.parametrize(
    ("bill", "said", "reason"),
    [
        (OTHER, None, f"asks for {OTHER}"),
        (MEANT, OTHER, f"asks for {OTHER}"),
        (None, None, "nothing says which"),
    ],
)
def test_another_wheel_or_one_of_which_nothing_is_said_is_refused(
    tmp_path: Path, role: str, bill: str | None, said: str | None, reason: str
) -> None:
    done = judge(tmp_path, role, bill, said)
    assert done.returncode != 0
    assert reason in " ".join(done.stdout.split()), done.stdout + done.stderr
