"""A playbook installs a wheel if it is the one that the bill of materials beside it names, or whose digest was said."""

from __future__ import annotations

import hashlib
import json
import os
import re
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


CASES: dict[str, tuple[str | None, str | None, str | None]] = {
    "as_the_bill_says": (MEANT, None, None),
    "as_the_inventory_says": (None, MEANT, None),
    "as_the_inventory_says_against_the_bill": (OTHER, MEANT, None),
    "another_than_the_bill_says": (OTHER, None, f"asks for {OTHER}"),
    "another_than_the_inventory_says": (MEANT, OTHER, f"asks for {OTHER}"),
    "nothing_is_said": (None, None, "nothing says which"),
}
"""For each case: the digest that the bill names, the one that the inventory says, why the wheel is refused if it is."""


def lay_out(folder: Path, role: str, bill: str | None, said: str | None) -> dict[str, object]:
    """Put a wheel and its bill into a folder; return the variables of a machine that is to install it."""
    file, variable, name = NAMES[role]
    folder.mkdir()
    (folder / file).write_bytes(WHEEL)
    if bill is not None:
        (folder / name).write_text(json.dumps({"metadata": {"component": {"hashes": [{"content": bill}]}}}))
    given: dict[str, object] = {variable: str(folder / file), "brought": str(folder / file)}
    return given if said is None else {**given, f"{variable}_sha256": said}


def play_of(role: str) -> dict[str, object]:
    """The check of a role, on every machine of its group."""
    variable = NAMES[role][1]
    brought = {
        "aclflow_brought": "{{ brought }}",
        "aclflow_brought_sha256": f"{{{{ {variable}_sha256 }}}}",
        "aclflow_brought_asks": f"{variable}_sha256",
    }
    return {
        "hosts": role,
        "gather_facts": False,
        "tasks": [{"include_tasks": str(ROOT / "ansible/roles/package/tasks/digest.yml"), "vars": brought}],
    }


@pytest.fixture(scope="module")
def said_of(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What one run of both checks said of each machine that it refused; machines are cases of a role."""
    folder = tmp_path_factory.mktemp("digests")
    groups: dict[str, object] = {}
    for role in NAMES:
        machines = {f"{role}.{case}": lay_out(folder / f"{role}.{case}", role, bill, said)
                    for case, (bill, said, _) in CASES.items()}  # fmt: skip
        defaults = yaml.safe_load((ROOT / "ansible/roles" / role / "defaults/main.yml").read_text())
        groups[role] = {"hosts": machines, "vars": defaults}  # weaker than a machine's own, as a role's defaults are
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    (folder / "inventory.yml").write_text(yaml.safe_dump({"all": {"children": groups, "vars": local}}))
    (folder / "play.yml").write_text(yaml.safe_dump([play_of(role) for role in NAMES]))
    environment = {
        "PATH": f"{ANSIBLE}/bin:{os.environ['PATH']}", "HOME": str(folder), "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_LOCALHOST_WARNING": "0", "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default",
    }  # fmt: skip
    words = ["ansible-playbook", "-i", "inventory.yml", "play.yml"]
    done = subprocess.run(words, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    told = re.findall(r"^fatal: \[(\S+)\]: FAILED! => (.*)$", done.stdout, re.MULTILINE)
    counts = re.findall(r"^(\S+) +: ok=\d+ .*failed=(\d)", done.stdout, re.MULTILINE)
    assert len(counts) == len(NAMES) * len(CASES), done.stdout + done.stderr
    return {**dict.fromkeys((machine for machine, _ in counts), ""), **dict(told)}


@pytest.mark.parametrize("role", NAMES)
@pytest.mark.parametrize("case", CASES)
def test_a_wheel_is_installed_if_it_is_the_one_that_was_meant(said_of: dict[str, str], role: str, case: str) -> None:
    reason, said = CASES[case][2], said_of[f"{role}.{case}"]
    if reason is None:
        assert said == ""
    else:
        assert reason in said
