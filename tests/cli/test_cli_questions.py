"""Stories of people who are asked at a terminal whether a list is to be changed."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from cli.tenantlists import DNS, WEB, Run, listed, rules_of
from patience import PATIENCE_S
from served import Served

from orchestrator.policy.formats.native import acl_from_json, rule_from_json
from orchestrator.policy.formats.registry import write
from orchestrator.policy.formats.results import TakenFrom


class Terminal:
    """`aclflow` in a terminal of its own, to be typed at."""

    def __init__(self, service: Served, *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        own = {"ACLFLOW_URL": service.url, "ACLFLOW_TOKEN": service.token, "TERM": "xterm"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "orchestrator.cli", *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=os.environ | own,
        )
        os.close(theirs)
        self.seen = ""

    def read_until(self, text: str) -> None:
        while text not in self.seen:
            try:
                more = os.read(self._ours, 65536)
            except OSError:
                more = b""
            assert more, self.seen
            self.seen += more.decode()

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def end(self) -> int:
        code = self._process.wait(timeout=PATIENCE_S)
        os.close(self._ours)
        return code


def test_a_person_is_asked_and_may_say_no(service: Served, run: Run, tenant: str, tmp_path: Path) -> None:
    file = tmp_path / "list.json"
    file.write_text(listed({"id": "all", "action": "permit"}))
    terminal = Terminal(service, "acl", "apply", tenant, str(file))
    terminal.read_until("[y/N]")
    assert "opens every port of every address to everyone" in terminal.seen
    terminal.type("n\n")
    terminal.read_until("nothing was changed")
    assert terminal.end() == 1
    assert rules_of(run, tenant) == ["web", "ssh"]


def test_who_leaves_at_a_question_is_told_that_nothing_was_changed(service: Served, run: Run, tenant: str) -> None:
    """The end of input (Ctrl-D) and Ctrl-C end alike there: with the code of an interrupted command."""
    terminal = Terminal(service, "acl", "rule", "delete", tenant, "web")
    terminal.read_until("[y/N]")
    terminal.type("\x04")
    terminal.read_until("nothing was changed")
    assert terminal.end() == 130
    assert "Aborted" not in terminal.seen
    assert rules_of(run, tenant) == ["web", "ssh"]


@pytest.mark.parametrize("form", ["native", "cisco"])
def test_a_plan_that_is_confirmed_after_the_list_moved_is_refused(
    service: Served, run: Run, tenant: str, tmp_path: Path, form: str
) -> None:
    file = tmp_path / "list"
    text = write(acl_from_json({"rules": [WEB]}), form, TakenFrom(tenant, 1)).text
    file.write_text(text)
    terminal = Terminal(service, "acl", "apply", tenant, str(file))
    terminal.read_until("[y/N]")
    with service.client() as colleague:
        colleague.acls.insert_rule(tenant, rule_from_json(DNS))
    terminal.type("y\n")
    terminal.read_until("was changed while you looked")
    assert terminal.end() == 1
    assert rules_of(run, tenant) == ["web", "ssh", "dns"]
