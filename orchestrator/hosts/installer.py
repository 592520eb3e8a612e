"""Carry out onboardings: on the service's own machine, or on others over Ansible.

    Installer.prepare   the switch configured, default off; its controller installed
    Installer.release   the switch given back, closed

Both may be repeated, also after they were cut off anywhere. Both tell of every step.

`advice` explains why a machine is not reachable over SSH or unusable, and what to do.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import yaml

from orchestrator.errors import BadInput, Missing, Refused, Unreachable
from orchestrator.hosts.ovs import LocalSwitch
from orchestrator.hosts.request import LOCAL, Machine, Onboarding, controller_name

_ADVICE: Mapping[str, str] = {
    "no such identity": "the key ({key}) is not there: name one that the user here can read",
    "UNPROTECTED PRIVATE KEY FILE": "others may read the key ({key}), so SSH does not use it: chmod 600",
    "Permission denied": "the machine does not take the key: put its public half into "
    "~{user}/.ssh/authorized_keys there, or name another key ({key}), one without a passphrase",
    "Host key verification failed": "the machine's host key is not the known one: compare it, and put the right "
    "one into known_hosts of the user here",
    "Connection refused": "nothing listens for SSH there: check address and port",
    "Connection timed out": "the machine does not answer: check address, routes and packet filters on the way",
    "No route to host": "there is no way to the machine: check its address and the routes",
    "Network is unreachable": "there is no way to the machine: check its address and the routes",
    "Could not resolve hostname": "the name is not known: give an address, or put it into the DNS",
    "Connection reset": "the machine hung up: the journal of its SSH server says why",
    "Connection closed": "the machine hung up: the journal of its SSH server says why",
    "not responding": "the machine does not answer any more: ask again when it is back",
    "Missing sudo password": "{user} needs a password to become root there: give it the right without one (NOPASSWD in "
    "/etc/sudoers.d), or log in as root",
    "sudo: not found": "{user} cannot become root there: install sudo, or log in as root",
    "module interpreter": "the machine has no Python: apt-get install python3 there",
    "No space left on device": "the machine's disk is full: make room, and ask again",
}
"""The advice by words in a program's output; of several signs the first holds."""


def advice(said: str, *, user: str, key: str) -> str:
    """Return what to do about an error; empty where nothing is known.

    `key` is the setting that names the key.
    """
    words = next((words for sign, words in _ADVICE.items() if sign in said), "")
    return words.format(user=user, key=key)


Tell = Callable[[str], None]
"""Told what was done or is about to be."""

_MACHINE, _CONTROLLER, _SERVICE = "machine", "controller", "localhost"
_THIS_MACHINE: Mapping[str, Any] = {
    "ansible_connection": "local",
    "ansible_become": False,
    "ansible_python_interpreter": sys.executable,
}
_ENVIRONMENT: Mapping[str, str] = {
    "ANSIBLE_STDOUT_CALLBACK": "aclflow.cloud.steps",
    "ANSIBLE_PIPELINING": "1",
    "ANSIBLE_NOCOLOR": "1",
    "LC_ALL": "C.UTF-8",  # Ansible runs in UTF-8 only, and `advice` knows what machines say in English
}
_AGAIN = "ask again when it answers"
_PROGRAM = (sys.executable, "-m", "orchestrator.cli")
"""`aclflow`, as it is called on this machine."""


class Installer(Protocol):
    """Carries out onboardings on machines."""

    def prepare(self, asked: Onboarding, secrets: Mapping[str, Any], tell: Tell) -> None:
        """Install a host on its machine.

        `secrets` are variables of the roles that nobody else may read. Raises Refused (the machine cannot be what is
        asked for), Unreachable, Missing.
        """
        ...

    def release(self, asked: Onboarding, tell: Tell) -> None:
        """Raises as `prepare`."""
        ...


@dataclass(frozen=True, slots=True)
class LocalInstaller:
    """The switch of this machine, whose sockets are in `run_dir`."""

    run_dir: Path

    def prepare(self, asked: Onboarding, secrets: Mapping[str, Any], tell: Tell) -> None:  # noqa: ARG002
        """Make this machine's switch that of a host."""
        done = LocalSwitch(self.run_dir).configure(asked.switch)
        tell("configured the switch, default off" if done.changed else "the switch is as it must be")

    def release(self, asked: Onboarding, tell: Tell) -> None:
        """Give this machine's switch back."""
        LocalSwitch(self.run_dir).release(asked.switch.bridge, asked.switch.domain)
        tell("gave the switch back, closed")


@dataclass(frozen=True, slots=True)
class AnsibleInstaller:
    """Onboards machines over SSH.

    It runs the collection's playbook `host`, and follows its output line by line.
    """

    program: str
    key: Path | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)
    """Variables for every machine: where the wheel is, the service's address ..."""

    def prepare(self, asked: Onboarding, secrets: Mapping[str, Any], tell: Tell) -> None:
        """Make another machine's switch that of a host, by a playbook."""
        self._run_playbook(asked, {**secrets, "aclflow_release": False}, tell)

    def release(self, asked: Onboarding, tell: Tell) -> None:
        """Give another machine's switch back, by a playbook."""
        self._run_playbook(asked, {"aclflow_release": True}, tell)

    def _run_playbook(self, asked: Onboarding, extra: Mapping[str, Any], tell: Tell) -> None:
        with self._files(asked, extra) as (inventory, variables):
            command = [self.program, "-i", str(inventory), "-e", f"@{variables}", "aclflow.cloud.host"]
            with self._start_command(command) as running:
                failed, rest = _follow_tasks(running, tell)
        if failed is not None:
            raise _make_error(failed, asked)
        if running.returncode:
            raise Refused(f"{self.program} {_describe_end(running.returncode)}: {_cause(rest)}")

    def _start_command(self, command: Sequence[str]) -> subprocess.Popen[str]:
        environment = {**os.environ, **_ENVIRONMENT}
        try:
            return subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                errors="replace",
            )
        except OSError as error:
            raise Missing(
                f"'{self.program}' cannot be run ({error.strerror}): install ansible-core beside the service and the "
                "collection aclflow.cloud (ansible-galaxy collection install), and say where ansible-playbook is",
                place="ACLFLOW_ANSIBLE",
            ) from None

    @contextmanager
    def _files(self, asked: Onboarding, extra: Mapping[str, Any]) -> Iterator[tuple[Path, Path]]:
        """Write inventory and variables, with secrets, into a folder that only we can read."""
        switch = asked.switch
        machine = self._describe_login(asked.machine) | {
            "aclflow_host_name": switch.host,
            "aclflow_uplink": switch.uplink,
            "aclflow_bridge": switch.bridge,
            "aclflow_datapath": switch.datapath.value,
            "aclflow_max_idle_ms": switch.max_idle_ms,
            "aclflow_adopt": switch.adopt,
            "aclflow_controllers": list(switch.controllers),
        }
        groups: dict[str, Any] = {"hosts": {"hosts": {_MACHINE: machine}}}
        if asked.controller is not None:
            name = {"aclflow_controller_name": controller_name(asked.controller)}
            groups["controllers"] = {"hosts": {_CONTROLLER: self._describe_login(asked.controller) | name}}
        shared = {
            "aclflow_domain": switch.domain,
            "aclflow_tls": switch.tls is not None,
            "aclflow_program": _PROGRAM,
            **self.variables,
            **extra,
        }
        everybody = {"hosts": {_SERVICE: _THIS_MACHINE}, "vars": {"aclflow_service_host": _SERVICE}}
        with _written_here():
            made = tempfile.TemporaryDirectory(prefix="aclflow-onboarding-")
        with made as folder:
            inventory, variables = Path(folder, "inventory.json"), Path(folder, "variables.json")
            with _written_here():
                inventory.write_text(json.dumps({"all": {**everybody, "children": groups}}))
                variables.touch(mode=0o600)
                variables.write_text(json.dumps(shared))
            yield inventory, variables

    def _describe_login(self, machine: Machine) -> dict[str, Any]:
        key = {"ansible_ssh_private_key_file": str(self.key)} if self.key else {}
        named = {"ansible_host": machine.address, "ansible_user": machine.user, "ansible_port": machine.port}
        return {**named, **key, "ansible_python_interpreter": "/usr/bin/python3"}


@dataclass(frozen=True, slots=True)
class Installers:
    """Chooses the installer: the service's own machine or others, where the service may."""

    local: Installer | None
    remote: Installer | None

    def of(self, asked: Onboarding) -> Installer:
        """Raises Missing where the service may not."""
        is_local = asked.machine.address == LOCAL
        found = self.local if is_local else self.remote
        if found is not None:
            return found
        if is_local:
            raise Missing(
                "this service may not configure its own machine's switch: say where that is",
                place="ACLFLOW_LOCAL_SWITCH",
            )
        raise Missing(
            "this service logs in to no machines: say where ansible-playbook is, of an ansible-core with the "
            "collection aclflow.cloud",
            place="ACLFLOW_ANSIBLE",
        )


def variables_in(file: Path | None) -> Mapping[str, Any]:
    """Variables of the roles, from a YAML file. Raises Missing, BadInput."""
    if file is None:
        return {}
    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise Missing(f"cannot read the machines' variables: {error.strerror}", place=str(file)) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadInput(f"not YAML: {' '.join(str(error).split())}", place=str(file)) from None
    if not isinstance(found, dict):
        raise BadInput("holds `name: value` lines", place=str(file))
    return found


def _follow_tasks(running: subprocess.Popen[str], tell: Tell) -> tuple[dict[str, str] | None, list[str]]:
    """Report each task; return the failed one, if any, and the remaining output."""
    failed: dict[str, str] | None = None
    rest: list[str] = []
    for line in running.stdout or ():
        step = _read_step(line)
        if step is None:
            rest.append(line.strip())
        elif step["state"] in ("failed", "unreachable"):
            failed = failed or step
        elif step["state"] == "changed":
            tell(step["task"])
    return failed, rest


def _read_step(line: str) -> dict[str, str] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and found.keys() >= {"task", "state", "message"} else None


def _describe_end(status: int) -> str:
    return f"was killed by signal {-status}" if status < 0 else f"ended with {status}"


def _cause(said: Sequence[str]) -> str:
    """Return Ansible's reason where no task failed: from its first error on, else the end."""
    lines = [line for line in said if line]
    first = next((number for number, line in enumerate(lines) if "ERROR" in line), max(len(lines) - 5, 0))
    return " ".join(lines[first : first + 5]) or "it said nothing"


@contextmanager
def _written_here() -> Iterator[None]:
    """Raise Missing where this machine cannot write a file, as on a full disk."""
    try:
        yield
    except OSError as error:
        reason = f"the service cannot write down what Ansible is told: {error.strerror}"
        raise Missing(reason, place=error.filename or "TMPDIR") from None


def _make_error(failed: Mapping[str, str], asked: Onboarding) -> Refused | Unreachable:
    said = failed["message"]
    machine = (asked.controller if failed.get("host") == _CONTROLLER else None) or asked.machine
    todo = advice(said, user=machine.user, key="ACLFLOW_SSH_KEY")
    if failed["state"] == "unreachable":
        return Unreachable(f"{machine.address} cannot be reached over SSH: {todo or _AGAIN}; {said}")
    return Refused(f"'{failed['task']}' failed on {machine.address}: {'; '.join(filter(None, (todo, said)))}")
