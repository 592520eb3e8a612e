"""`aclflow top`: live on a real terminal (a pseudo-terminal here), one table or lines of JSON elsewhere."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from command_line import Ended, aclflow
from patience import PATIENCE_S
from served import Served, served

from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.native import acl_from_json

RULES = 12
TITLE = f"pop: {RULES} rules"
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A tenant with some rules, none of them used."""
    with served(tmp_path_factory.mktemp("service")) as here:
        with here.client() as admin:
            admin.domains.create("pop")
            admin.tenants.create("shop", domain="pop", prefixes=[Prefix.parse("198.51.100.0/24")])
            rules = [
                {"id": f"rule-{port}", "action": "permit", "protocol": "tcp", "destination_ports": port}
                for port in range(100, 100 + RULES)
            ]
            admin.acls.put("shop", acl_from_json({"rules": rules}))
        yield here


def _sizeless() -> dict[str, str]:
    """The environment without a size of some other terminal, which counts more than the terminal's own."""
    return {name: value for name, value in os.environ.items() if name not in ("LINES", "COLUMNS")}


class Terminal:
    """`aclflow top` on a terminal of its own."""

    def __init__(self, service: Served, lines: int) -> None:
        self._master, slave = pty.openpty()
        self.resize(lines)
        self.before = termios.tcgetattr(slave)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "orchestrator.cli", "top", "--domain", "pop", "--interval", "600"],
            stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
            env={**_sizeless(), "ACLFLOW_URL": service.url, "ACLFLOW_TOKEN": service.token, "TERM": "xterm"},
        )  # fmt: skip
        self._slave = slave

    def resize(self, lines: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, 120, 0, 0))

    def told_of_its_size(self) -> None:
        """As the kernel tells the programs of a terminal."""
        self.process.send_signal(signal.SIGWINCH)

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def picture(self, caption: str, rules: int = RULES) -> str:
        """The first picture from now on with a caption and so many rules."""
        drawn, until = "", time.monotonic() + PATIENCE_S
        while True:
            for picture in drawn.split(TITLE)[1:]:
                if caption in picture and picture.count("rule-") == rules:
                    return picture
            if not select.select([self._master], [], [], max(0.0, until - time.monotonic()))[0]:
                raise AssertionError(f"no picture with {caption!r} and {rules} rules: {drawn!r}")
            drawn = _CONTROL.sub("", drawn + os.read(self._master, 65536).decode(errors="replace"))

    def modes(self) -> list[object]:
        return list(termios.tcgetattr(self._slave))

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)
        os.close(self._slave)


@contextmanager
def top_on_a_terminal(service: Served, lines: int) -> Iterator[Terminal]:
    terminal = Terminal(service, lines)
    try:
        yield terminal
    finally:
        terminal.close()


def test_keys_sort_and_q_ends(service: Served) -> None:
    with top_on_a_terminal(service, 40) as terminal:
        terminal.picture("by rate")
        terminal.press("p")
        assert "rule-100" in terminal.picture("by packets")
        terminal.press("bl")  # at once: the second is not left lying until a third comes
        terminal.picture("by last_hit")
        terminal.press("q")
        assert terminal.process.wait(PATIENCE_S) == 0
        assert terminal.modes() == list(terminal.before)


def test_a_picture_fits_the_size_that_the_terminal_has(service: Served) -> None:
    with top_on_a_terminal(service, 40) as terminal:
        terminal.picture("by rate")
        terminal.resize(11)
        terminal.told_of_its_size()
        terminal.picture("by rate", rules=5)


def test_a_terminal_is_given_back_when_it_is_interrupted(service: Served) -> None:
    with top_on_a_terminal(service, 24) as terminal:
        terminal.picture("by rate")
        assert terminal.modes() != list(terminal.before)
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.process.wait(PATIENCE_S) == 130
        assert terminal.modes() == list(terminal.before)


def _top(service: Served, *arguments: str) -> Ended:
    return aclflow("top", *arguments, environment={"ACLFLOW_URL": service.url, "ACLFLOW_TOKEN": service.token})


def test_without_a_terminal_it_is_one_table(service: Served) -> None:
    ended = _top(service, "--tenant", "shop")
    assert ended.code == 0
    assert len(ended.out.splitlines()) == RULES + 1


def test_json_has_the_same_rules(service: Served) -> None:
    ended = _top(service, "--domain", "pop", "--json", "--once", "--limit", "3")
    (line,) = ended.out.splitlines()
    seen = json.loads(line)
    assert (ended.code, seen["rules"], len(seen["items"]), seen["items"][0]["tenant"]) == (0, RULES, 3, "shop")


def test_rows_and_columns_are_chosen(service: Served) -> None:
    chosen = ("-c", "rule,packets", "--filter", "rule~rule-10", "--sort=-rule")
    kept = [f"rule-{port}" for port in range(109, 99, -1)]
    assert _top(service, "--tenant", "shop", *chosen, "-o", "csv").out.splitlines() == [
        "rule,packets", *(f"{name},0" for name in kept)
    ]  # fmt: skip
    items = json.loads(_top(service, "--tenant", "shop", *chosen, "--once", "--json").out)["items"]
    assert items == [{"rule": name, "packets": "0"} for name in kept]
    whole = yaml.safe_load(_top(service, "--tenant", "shop", "--filter", "rule=rule-103", "--once", "-o", "yaml").out)
    assert (whole["rules"], [each["rule"] for each in whole["items"]]) == (RULES, ["rule-103"])
    named = _top(service, "--domain", "pop", "--filter", "103", "--sort", "packets", "--once", "--json")
    assert [each["rule"] for each in json.loads(named.out)["items"]] == ["rule-103"], "a part of a name needs no column"
    for wrong in (("--sort", "nonsense"), ("--filter", "a", "--filter", "b"), ("-c", "nonsense")):
        ended = _top(service, "--tenant", "shop", *wrong)
        assert (ended.code, wrong[0].replace("-c", "--column") in ended.err) == (2, True), ended


def test_json_goes_on_until_somebody_ends_it(service: Served, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "orchestrator.cli", "top", "--domain", "pop", "--json", "--interval", "0.2"]
    environment = {**os.environ, "ACLFLOW_URL": service.url, "ACLFLOW_TOKEN": service.token}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=environment) as looking:
        assert looking.stdout is not None
        assert [json.loads(looking.stdout.readline())["rules"] for _ in range(2)] == [RULES] * 2
        looking.send_signal(signal.SIGINT)
        assert looking.wait(PATIENCE_S) == 130


def test_a_domain_and_a_tenant_at_once_is_a_wrong_call(service: Served) -> None:
    ended = _top(service, "--domain", "pop", "--tenant", "shop")
    assert (ended.code, "--tenant" in ended.err) == (2, True)
