"""Programs on a machine over SSH, with the caller's keys and settings."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from orchestrator.bench.qualify.inventory import Host
from orchestrator.errors import AclflowError, Missing, Refused, Unreachable
from orchestrator.hosts.installer import advice

_OPTIONS = ("BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=3")
_SSH_FAILED, _NOT_FOUND = 255, 127
_LOGIN_S = 30.0
_PATH = "PATH=$PATH:/usr/sbin:/sbin; export PATH;"
_WHILE_HEARD = '"$@" & program=$!; trap "kill $program 2>/dev/null" EXIT; cat >/dev/null'
"""Runs a program until whoever asked for it hangs up, however that comes about."""


@dataclass(frozen=True, slots=True)
class Remote:
    """One machine."""

    host: Host

    def run(self, *words: str, text: str = "", seconds: float = 0.0) -> str:
        """Run a program there; return its output.

        `seconds` is how long it may take beside logging in.

        Raises Unreachable for a machine that is not reached or does not answer in time, Missing for a program that is
        not there, Refused for one that fails.
        """
        command = self._make_ssh_command(words)
        try:
            done = subprocess.run(
                command, input=text, capture_output=True, text=True, timeout=_LOGIN_S + seconds, check=False
            )
        except FileNotFoundError:
            raise _make_missing_ssh() from None
        except subprocess.TimeoutExpired:
            raise self._make_error(
                Unreachable, f"'{words[0]}' has not ended after {_LOGIN_S + seconds:.0f} s"
            ) from None
        if done.returncode == 0:
            return done.stdout
        said = " ".join((done.stderr.strip() or done.stdout.strip()).split())[-500:]
        if done.returncode == _SSH_FAILED:
            raise self._make_unreachable(said)
        if done.returncode == _NOT_FOUND:
            raise self._make_error(Missing, f"the program '{words[0]}' is not installed there")
        raise self._make_error(Refused, f"'{words[0]}' ended with {done.returncode}: {said}")

    @contextmanager
    def running(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run a program there during the block: it ends with the connection.

        Raises Missing.
        """
        command = self._make_ssh_command(("sh", "-c", _WHILE_HEARD, "sh", *words))
        pipe = subprocess.PIPE
        try:
            process = subprocess.Popen(command, stdin=pipe, stdout=subprocess.DEVNULL, stderr=pipe)
        except FileNotFoundError:
            raise _make_missing_ssh() from None
        with process:
            try:
                yield process
            finally:
                process.terminate()

    def _make_ssh_command(self, words: Sequence[str]) -> list[str]:
        host = self.host
        key = ["-i", host.key, "-o", "IdentitiesOnly=yes"] if host.key else []
        options = [word for option in _OPTIONS for word in ("-o", option)]
        where = ("-p", str(host.port), "-l", host.user, "--", host.address)
        return ["ssh", *options, *key, *host.options, *where, f"{_PATH} exec {shlex.join(words)}"]

    def _make_unreachable(self, said: str) -> AclflowError:
        todo = advice(said, user=self.host.user, key="ansible_ssh_private_key_file")
        return self._make_error(Unreachable, f"cannot be reached over SSH: {'; '.join(filter(None, (todo, said)))}")

    def _make_error(self, kind: type[AclflowError], text: str) -> AclflowError:
        return kind(text, place=f"{self.host.name} ({self.host.address})")


def _make_missing_ssh() -> Missing:
    return Missing("the program 'ssh' is not installed here: apt-get install openssh-client")
