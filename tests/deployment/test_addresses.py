"""Where a machine listens and is asked, from what an inventory says of it: an address of either kind, or a name."""

from __future__ import annotations

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

ROLES = ("package", "service", "controller", "console", "ovs_host")
ASKED = (
    "aclflow_url", "aclflow_controllers", "aclflow_listen", "aclflow_openflow_listen", "aclflow_console_listen",
    "aclflow_rollover_services",
)  # fmt: skip


def defaults(
    folder: Path, name: str, said: dict[str, str], others: dict[str, dict[str, str]] | None = None
) -> dict[str, object]:
    """The variables in question as roles have them by default, on a machine that does everything.

    `others` have services, too.
    """
    inventory, book = folder / "inventory.json", folder / "play.yml"
    groups = {group: {"hosts": {name: said}} for group in ("service", "controllers", "console")}
    groups["service"]["hosts"].update(others or {})
    shared = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    inventory.write_text(json.dumps({"all": {"children": groups, "vars": shared}}))
    values = f"{{{{ dict({list(ASKED)} | zip([{', '.join(ASKED)}])) | to_json }}}}"
    tasks = [
        *({"include_vars": str(ROOT / f"ansible/roles/{role}/defaults/main.yml")} for role in ROLES),
        {"copy": {"content": values, "dest": f"{folder}/said"}},
    ]
    book.write_text(yaml.safe_dump([{"hosts": name, "gather_facts": False, "tasks": tasks}]))
    environment = {"PATH": f"{ANSIBLE}/bin:{os.environ['PATH']}", "HOME": str(folder), "ANSIBLE_NOCOLOR": "1"}
    words = ["ansible-playbook", "-i", str(inventory), str(book)]
    done = subprocess.run(words, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(json.loads((folder / "said").read_text()))


@pytest.mark.parametrize(
    ("name", "said", "asked", "listens"),
    [
        ("control1", {"ansible_host": "192.0.2.2"}, "192.0.2.2", "192.0.2.2"),
        ("control1", {"ansible_host": "2001:db8::2"}, "[2001:db8::2]", "2001:db8::2"),
        ("192.0.2.2", {}, "192.0.2.2", "192.0.2.2"),
        ("c1.example.org", {}, "c1.example.org", "0.0.0.0"),
        ("control1", {"ansible_host": "c1.example.org"}, "c1.example.org", "0.0.0.0"),
        ("localhost", {}, "localhost", "127.0.0.1"),
    ],
)
def test_where_it_listens_and_is_asked(
    tmp_path: Path, name: str, said: dict[str, str], asked: str, listens: str
) -> None:
    assert defaults(tmp_path, name, said) == {
        "aclflow_url": f"https://{asked}:8420",
        "aclflow_controllers": [f"ssl:{asked}:6653"],
        "aclflow_listen": listens,
        "aclflow_openflow_listen": listens,
        "aclflow_console_listen": listens,
        "aclflow_rollover_services": [f"https://{asked}:8420"],
    }


def test_a_roll_over_asks_every_service(tmp_path: Path) -> None:
    others = {"control2": {"ansible_host": "2001:db8::3"}, "c3.example.org": {}}
    found = defaults(tmp_path, "control1", {"ansible_host": "192.0.2.2"}, others)["aclflow_rollover_services"]
    assert found == ["https://192.0.2.2:8420", "https://[2001:db8::3]:8420", "https://c3.example.org:8420"]
