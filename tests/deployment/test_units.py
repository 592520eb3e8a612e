"""Units run with few rights: `systemd-analyze security` of Debian's systemd says how much each is exposed."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
UNITS = sorted((ROOT / "packaging/systemd").glob("*.service"))
MOST_EXPOSED = 4.0
ROOTS = {"aclflow-services", "aclflow-uplink"}
"""What asks the Open vSwitch of its machine, whose sockets are root's (`docs/decisions.md`, 530)."""


def settings_of(unit: Path) -> dict[str, list[str]]:
    """Settings of a unit, each with all of its values: lists are written over several lines."""
    found: dict[str, list[str]] = {}
    for line in unit.read_text().splitlines():
        name, given, value = line.partition("=")
        if given and not line.startswith(("#", ";")):
            found.setdefault(name, []).append(value)
    return found


def exposure(unit: Path) -> float:
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    said = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
    assert said is not None, done.stdout + done.stderr
    return float(said[1])


def test_every_unit_is_looked_at() -> None:
    assert {unit.stem for unit in UNITS} >= {"aclflow", "aclflow-console", "aclflow-controller", *ROOTS}


def test_no_run_of_all_tests_goes_by_units_for_want_of_a_program() -> None:
    """Machines of containers have no systemd, and those below would be left out."""
    [packages] = re.findall(r"^test: DEBIAN \+= (.*)", (ROOT / "Makefile").read_text(), re.M)
    assert "systemd" in packages.split()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze: apt-get install systemd")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_is_little_exposed(unit: Path) -> None:
    assert exposure(unit) < MOST_EXPOSED


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze: apt-get install systemd")
@pytest.mark.parametrize("name", ["aclflow", "aclflow-console", "aclflow-controller"])
def test_what_strangers_may_connect_to_opens_many_files(name: str) -> None:
    assert settings_of(ROOT / f"packaging/systemd/{name}.service")["LimitNOFILE"] == ["65536"]


@pytest.mark.parametrize("name", ["aclflow", "aclflow-console", "aclflow-controller"])
def test_what_strangers_may_connect_to_ends_before_the_machine_is_without_memory(name: str) -> None:
    said = settings_of(ROOT / f"packaging/systemd/{name}.service")
    assert (said["MemoryMax"], said["Restart"]) == (["75%"], ["always"])


def test_a_unit_that_gives_its_rights_back_is_noticed(tmp_path: Path) -> None:
    open_again = tmp_path / "aclflow.service"
    kept = (line for line in UNITS[-1].read_text().splitlines() if not line.startswith(("System", "Cap", "Restrict")))
    open_again.write_text("\n".join(kept))
    assert exposure(open_again) >= MOST_EXPOSED


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_has_a_user_of_its_own_and_says_what_it_calls(unit: Path) -> None:
    said = settings_of(unit)
    own = {"aclflow-backup": "aclflow", "aclflow-legs": "aclflow-agent"}.get(unit.stem, unit.stem)
    assert said.get("User", ["root"]) == (["root"] if unit.stem in ROOTS else [own])
    for name in ("CapabilityBoundingSet", "SystemCallFilter", "RestrictAddressFamilies", "NoNewPrivileges"):
        assert name in said, name
    if unit.stem not in ROOTS:  # a user has the rights that it is given, and root those that it is left
        assert said.get("AmbientCapabilities", [""]) == said["CapabilityBoundingSet"]


def test_legs_are_guarded_before_anything_listens() -> None:
    """Before the network, which sshd waits for, and with the arguments of the agent that guards them from then on."""
    said, agent = (
        settings_of(ROOT / f"packaging/systemd/{name}.service") for name in ("aclflow-legs", "aclflow-agent")
    )
    assert "network-pre.target" in said["Before"][0].split()
    assert said["DefaultDependencies"] == ["no"]
    assert said["ExecStart"] == [f"{agent['ExecStart'][0]} --guard-only"]
    assert said["EnvironmentFile"][0] == agent["EnvironmentFile"][0]
    assert said["WantedBy"] == ["sysinit.target"]


def test_the_playbook_has_legs_guarded_from_the_boot_on() -> None:
    role = ROOT / "ansible/roles/firewall_vnf"
    assert (role / "files/aclflow-legs.service").resolve() == ROOT / "packaging/systemd/aclflow-legs.service"
    tasks = yaml.safe_load((role / "tasks/main.yml").read_text())
    [enabled] = [each["ansible.builtin.systemd_service"] for each in tasks
                 if each.get("ansible.builtin.systemd_service", {}).get("name") == "aclflow-legs"]  # fmt: skip
    assert enabled["enabled"] is True
    gone = [
        each.get("vars", {}).get("aclflow_unit") for each in yaml.safe_load((role / "tasks/remove.yml").read_text())
    ]
    assert {"aclflow-agent", "aclflow-legs"} <= {*gone}


def test_backups_by_the_timer_have_no_key_of_the_authority() -> None:
    said = settings_of(ROOT / "packaging/systemd/aclflow-backup.service")
    assert not any("--with-authority" in line for line in said["ExecStart"])
    assert all("without its authority's key" in line for line in said["Description"])


def test_users_of_units_are_made() -> None:
    made = {line.split()[1] for line in (ROOT / "packaging/sysusers.d/aclflow.conf").read_text().splitlines()
            if line.startswith("u ")}  # fmt: skip
    wanted = {user for unit in UNITS for user in settings_of(unit).get("User", [])}
    assert wanted <= made


@pytest.mark.skipif(shutil.which("systemd-sysusers") is None, reason="needs systemd-sysusers: apt-get install systemd")
def test_users_and_files_of_units_are_made_by_systemds_programs(tmp_path: Path) -> None:
    for folder in ("etc", "run"):
        (tmp_path / folder).mkdir()
    for program in (["systemd-sysusers"], ["systemd-tmpfiles", "--create"]):
        text = ROOT / f"packaging/{program[0].removeprefix('systemd-')}.d/aclflow.conf"
        subprocess.run([*program, "--root", str(tmp_path), str(text)], check=True)
    users = dict(line.split(":")[::2][:2] for line in (tmp_path / "etc/passwd").read_text().splitlines())
    assert {"aclflow-agent", "aclflow-switch"} <= users.keys()
    assert len(set(users.values())) == len(users)
    groups = {line.split(":")[0]: int(line.split(":")[2]) for line in (tmp_path / "etc/group").read_text().splitlines()}
    lock = (tmp_path / "run/xtables.lock").stat()
    assert (lock.st_gid, lock.st_mode & 0o777) == (groups["aclflow-agent"], 0o660)
    lists = (tmp_path / "run/aclflow-lists").stat()  # what an agent writes there, a member of a cluster reads
    assert (lists.st_uid, lists.st_mode & 0o7777) == (int(users["aclflow-agent"]), 0o2750)
    assert lists.st_gid == groups["aclflow-statesync"]


@pytest.mark.parametrize("name", ["aclflow-agent", "aclflow-switch"])
def test_what_root_does_for_a_unit_before_it_starts_is_a_shells(name: str) -> None:
    """Systemd takes `$$` for a dollar."""
    shells = [line for line in settings_of(ROOT / f"packaging/systemd/{name}.service")["ExecStartPre"] if "-c" in line]
    assert shells
    for line in shells:
        script = shlex.split(line.replace("$$", "$"))[-1]
        subprocess.run(["sh", "-n", "-c", script], check=True)
