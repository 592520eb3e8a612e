"""Following a playbook: what it tells, what it is told, and what its failures become. A script stands for Ansible."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.errors import AclflowError, BadInput, Missing, Refused, Unreachable
from orchestrator.hosts.installer import AnsibleInstaller, variables_in
from orchestrator.hosts.request import Machine, Onboarding
from orchestrator.hosts.switch import HOST_TLS, Wanted

ASKED = Onboarding(
    Machine("192.0.2.11", "debian", 2222),
    Wanted("pop1", "host1", "eth1", ("ssl:192.0.2.1:6653",), tls=HOST_TLS),
    Machine("192.0.2.1"),
)


def line(state: str, message: str = "", task: str = "Configure the switch", host: str = "machine") -> str:
    return json.dumps({"task": task, "host": host, "state": state, "message": message})


def installer(folder: Path, *said: str, status: int = 0, key: Path | None = None) -> AnsibleInstaller:
    """One whose program says these lines, and keeps what it was given."""
    program = folder / "ansible-playbook"
    words = "\n".join(said)
    program.write_text(
        f'#!/bin/sh\necho "$@" > {folder}/words\n'
        f'cp "$2" {folder}/inventory.json\ncp -p "${{4#@}}" {folder}/variables.json\n'
        f"cat <<'END'\n{words}\nEND\nexit {status}\n"
    )
    program.chmod(0o755)
    return AnsibleInstaller(str(program), key, {"aclflow_wheel": "/srv/aclflow.whl"})


def test_every_change_is_told_and_what_is_as_it_was_is_not(tmp_path: Path) -> None:
    told: list[str] = []
    said = (line("ok"), "[WARNING]: something", line("changed", task="Install Open vSwitch"), line("changed"))
    installer(tmp_path, *said).prepare(ASKED, {"aclflow_invitation_token": "secret"}, told.append)
    assert told == ["Install Open vSwitch", "Configure the switch"]


def test_what_ansible_is_given(tmp_path: Path) -> None:
    installer(tmp_path, key=Path("/keys/one")).prepare(ASKED, {"aclflow_invitation_token": "secret"}, print)
    groups = json.loads((tmp_path / "inventory.json").read_text())["all"]["children"]
    (machine,) = groups["hosts"]["hosts"].values()
    (controller,) = groups["controllers"]["hosts"].values()
    assert (machine["ansible_host"], machine["ansible_user"], machine["ansible_port"]) == ("192.0.2.11", "debian", 2222)
    assert machine["ansible_ssh_private_key_file"] == "/keys/one"
    assert machine["aclflow_controllers"] == ["ssl:192.0.2.1:6653"]
    assert controller["ansible_host"] == "192.0.2.1"
    variables = json.loads((tmp_path / "variables.json").read_text())
    assert variables["aclflow_invitation_token"] == "secret"
    assert (variables["aclflow_release"], variables["aclflow_tls"], variables["aclflow_domain"]) == (
        False,
        True,
        "pop1",
    )
    assert (tmp_path / "variables.json").stat().st_mode & 0o077 == 0, "secrets are in it"
    words = (tmp_path / "words").read_text()
    assert words.split()[-1] == "aclflow.cloud.host"
    assert "secret" not in words
    assert not Path(words.split()[1]).exists(), "nothing is left of the files"


def test_giving_back_is_the_same_playbook(tmp_path: Path) -> None:
    installer(tmp_path).release(ASKED, print)
    assert json.loads((tmp_path / "variables.json").read_text())["aclflow_release"] is True


@pytest.mark.parametrize(
    ("said", "error", "advice"),
    [
        (
            line("unreachable", "debian@192.0.2.11: Permission denied (publickey)."),
            Unreachable,
            "~debian/.ssh/authorized_keys",
        ),
        (line("unreachable", "Host key verification failed."), Unreachable, "known_hosts"),
        (line("unreachable", "ssh: connect to host: Connection timed out"), Unreachable, "does not answer"),
        (line("unreachable", "ssh: connect to host: No route to host"), Unreachable, "no way to the machine"),
        (line("unreachable", "ssh: connect to host: Network is unreachable"), Unreachable, "no way to the machine"),
        (line("unreachable", "Load key: Permission denied; no such identity: /keys/x"), Unreachable, "is not there"),
        (
            line("unreachable", "WARNING: UNPROTECTED PRIVATE KEY FILE! debian@192.0.2.11: Permission denied"),
            Unreachable,
            "others may read the key (ACLFLOW_SSH_KEY)",
        ),
        (line("unreachable", "Timeout, server 192.0.2.11 not responding."), Unreachable, "ask again when it is back"),
        (line("unreachable", "Data could not be sent to remote host:"), Unreachable, "ask again when it answers"),
        (line("failed", "Task failed: Missing sudo password"), Refused, "debian needs a password to become root"),
        (line("failed", "No start of json char found /bin/sh: 1: sudo: not found"), Refused, "install sudo"),
        (line("failed", "The module interpreter '/usr/bin/python3' was not found."), Refused, "no Python"),
        (line("failed", "cp: No space left on device"), Refused, "disk is full"),
        (
            line("failed", "aclflow: Open vSwitch 2.13.3 is too old"),
            Refused,
            "'Configure the switch' failed on 192.0.2.11",
        ),
    ],
)
def test_a_failure_says_what_to_change(tmp_path: Path, said: str, error: type[AclflowError], advice: str) -> None:
    with pytest.raises(error) as caught:
        installer(tmp_path, line("changed"), said, line("failed", "and more"), status=2).prepare(ASKED, {}, print)
    assert advice in str(caught.value)
    assert "and more" not in str(caught.value), "the first failure is the cause"


@pytest.mark.parametrize(("host", "address"), [("machine", "192.0.2.11"), ("controller", "192.0.2.1")])
def test_a_failure_names_the_machine_that_it_was_on(tmp_path: Path, host: str, address: str) -> None:
    said = line("unreachable", "ssh: connect to host: Connection refused", host=host)
    with pytest.raises(Unreachable, match=f"^{address} cannot be reached"):
        installer(tmp_path, said, status=4).prepare(ASKED, {}, print)


def test_a_program_that_fails_without_a_task(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="ended with 4: ERROR! the playbook"):
        installer(tmp_path, "ERROR! the playbook", "could not be found", status=4).prepare(ASKED, {}, print)
    context = (
        "Origin: host.yml:24:11",
        "",
        "22   tasks:",
        "23     - name: Configure it",
        "24       include_role:",
        "  ^",
    )
    with pytest.raises(Refused, match="the role was not found"):
        installer(tmp_path, "a warning", "[ERROR]: the role was not found", *context, status=1).prepare(
            ASKED, {}, print
        )
    with pytest.raises(Refused, match="was killed by signal 9: it said nothing"):
        killed(tmp_path).prepare(ASKED, {}, print)


def killed(folder: Path) -> AnsibleInstaller:
    program = folder / "killed"
    program.write_text("#!/bin/sh\nkill -9 $$\n")
    program.chmod(0o755)
    return AnsibleInstaller(str(program))


@pytest.mark.parametrize("name", ["nothing", "a-file/ansible-playbook", "not-executable", "no-program", "."])
def test_a_program_that_cannot_be_run(tmp_path: Path, name: str) -> None:
    (tmp_path / "a-file").touch()
    (tmp_path / "not-executable").write_text("#!/bin/sh\n")
    (tmp_path / "no-program").write_bytes(b"\x7fELF of another machine")
    (tmp_path / "no-program").chmod(0o755)
    with pytest.raises(Missing, match=r"ACLFLOW_ANSIBLE: .*cannot be run.*ansible-core"):
        AnsibleInstaller(str(tmp_path / name)).prepare(ASKED, {}, print)


def test_a_disk_of_the_service_that_takes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = installer(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nothing"))
    with pytest.raises(Missing, match=r"nothing/aclflow-onboarding-.*cannot write down what Ansible is told"):
        program.prepare(ASKED, {}, print)


def test_what_is_no_text_is_passed_over(tmp_path: Path) -> None:
    program = installer(tmp_path, line("changed"))
    script = Path(program.program)
    script.write_text(script.read_text().replace("cat <<", "printf '\\377\\n'; cat <<"))
    told: list[str] = []
    program.prepare(ASKED, {}, told.append)
    assert told == ["Configure the switch"]


def test_variables_of_machines_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "machines.yml"
    file.write_text("aclflow_wheel: /srv/aclflow.whl\naclflow_tls: false\n")
    assert variables_in(file) == {"aclflow_wheel": "/srv/aclflow.whl", "aclflow_tls": False}
    assert variables_in(None) == {}
    file.write_text("- a\n- list\n")
    with pytest.raises(BadInput, match=r"machines\.yml"):
        variables_in(file)
    with pytest.raises(Missing):
        variables_in(tmp_path / "nothing")
