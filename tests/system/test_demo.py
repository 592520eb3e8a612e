"""`aclflow demo` as people start it: its table, its Ctrl-C, and what a killed one leaves for `aclflow lab down`."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import until
from public_data import DATA
from system.leftovers import leftovers

from orchestrator.lab import cluster, failover, pop, service
from orchestrator.lab.layout import Layout

REPO = Path(__file__).parents[2]
LAYOUT = Layout("actestd-")
PATIENCE_S = 90.0


class Demo:
    """A demo under way, and what it has printed so far."""

    def __init__(self, folder: Path, *options: str) -> None:
        self._output = folder / "output"
        with self._output.open("w") as output:
            self.process = subprocess.Popen(
                [*service.COMMAND, "demo", "--prefix", LAYOUT.prefix, *options],
                cwd=REPO,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "COLUMNS": "160"},
            )

    @property
    def text(self) -> str:
        return self._output.read_text()

    def until(self, words: str) -> None:
        """Wait for words on the terminal."""
        deadline = time.monotonic() + PATIENCE_S
        while words not in self.text:
            assert self.process.poll() is None, self.text
            assert time.monotonic() < deadline, self.text
            time.sleep(0.05)

    def end(self) -> int:
        return self.process.wait(PATIENCE_S)


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    pop.down(LAYOUT)
    yield
    pop.down(LAYOUT)


def aclflow(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*service.COMMAND, *words], cwd=REPO, capture_output=True, text=True, check=False, timeout=60)


def test_the_demo_shows_who_decided_stays_up_and_goes_at_ctrl_c(tmp_path: Path) -> None:
    demo = Demo(tmp_path)
    demo.until("It stays up until Ctrl-C")
    text = demo.text
    assert "DISAGREEMENT" not in text
    assert re.search(r"(\d+) of \1 trials went as the policy says", text)
    for words in ("tcp 80 syn", "udp 53", "icmp 8/0", "icmpv6 128/0", "permit", "refuse", "default"):
        assert words in text
    assert re.search(r"(\d+) of \1 trials went so again with heavy hitters", text)
    for way in ("to the WAN: heavy hitter shop/web-http", "to fs1", "to fs2", "no tenant's address"):
        assert re.search(rf"{way}.* [1-9]", text)
    url, token = re.search(r"(http://[\d.]+:\d+)/v1 ", text), re.search(r"token\s+(aclflow_\S+)", text)
    assert url is not None
    assert token is not None
    request = urllib.request.Request(f"{url[1]}/v1/tenants", headers={"X-Auth-Token": token[1]})
    with urllib.request.urlopen(request) as answer:
        assert {item["id"] for item in json.load(answer)["items"]} == {"shop", "bank"}
    second = aclflow("demo", "--once", "--prefix", LAYOUT.prefix)
    assert second.returncode == 1
    assert "aclflow lab down --prefix actestd-" in second.stdout + second.stderr
    status = json.loads(aclflow("lab", "status", "--json", "--prefix", LAYOUT.prefix).stdout)
    assert all(process["running"] for process in status["processes"])
    assert all(bridge["flows"] > 50 for bridge in status["bridges"])
    inside = aclflow("lab", "exec", "--prefix", LAYOUT.prefix, "db1", "--", "ip", "-o", "address", "show", "eth0")
    assert "198.51.100.20/32" in inside.stdout
    demo.process.send_signal(signal.SIGINT)
    assert demo.end() == 0
    assert leftovers(LAYOUT) == []


@pytest.mark.parametrize("after_s", [1.5, 2.5, 4.0, 6.0])
def test_ctrl_c_while_it_starts_leaves_nothing(tmp_path: Path, after_s: float) -> None:
    demo = Demo(tmp_path)
    time.sleep(after_s)
    for _ in range(3):  # an impatient one
        demo.process.send_signal(signal.SIGINT)
        time.sleep(0.05)
    assert demo.end() in (130, -signal.SIGINT)  # the latter: a signal that came when all was done
    assert leftovers(LAYOUT) == []


def test_what_ends_is_started_again_and_somebody_else_may_take_the_lab_down(tmp_path: Path) -> None:
    demo = Demo(tmp_path)
    demo.until("It stays up until Ctrl-C")
    pop.find(LAYOUT).kill(service.CONTROLLER)
    demo.until("controller had ended and was started again")
    cleaned = aclflow("lab", "down", "--prefix", LAYOUT.prefix)
    assert cleaned.returncode == 0
    assert "removed" in cleaned.stdout
    assert demo.end() == 0, demo.text
    assert "the lab was removed by somebody else" in demo.text
    assert leftovers(LAYOUT) == []
    assert "there was no lab" in aclflow("lab", "down", "--prefix", LAYOUT.prefix).stdout


def test_what_a_killed_demo_leaves_is_removed_by_lab_down(tmp_path: Path) -> None:
    demo = Demo(tmp_path)
    deadline = time.monotonic() + PATIENCE_S
    while len(leftovers(LAYOUT)) < 8 and time.monotonic() < deadline:
        time.sleep(0.05)
    demo.process.kill()
    demo.process.wait()
    assert leftovers(LAYOUT) != []
    assert aclflow("lab", "down", "--prefix", LAYOUT.prefix).returncode == 0
    assert leftovers(LAYOUT) == []


LISTS = ["cisco/boza_rtr_config.txt", "iptables/config_kornwall/iptables-save"]


@pytest.mark.parametrize("name", LISTS)
def test_anybodys_list_is_tried_with_packets_made_for_it(tmp_path: Path, name: str) -> None:
    if not (DATA / name).exists():
        pytest.skip(f"{DATA / name} is not there: set ACLFLOW_DATA")
    demo = Demo(tmp_path, "--once", "--acl", str(DATA / name))
    assert demo.end() == 0, demo.text
    assert re.search(r"(\d\d) of \1 trials went as the policy says", demo.text), demo.text
    assert "owner: " in demo.text
    assert leftovers(LAYOUT) == []


def test_a_list_that_cannot_be_read_is_said_so_before_anything_is_built(tmp_path: Path) -> None:
    broken = tmp_path / "broken.cisco"
    broken.write_text("ip access-list extended X\n permit tcp any any eq nonsense\n")
    ended = aclflow("demo", "--once", "--prefix", LAYOUT.prefix, "--acl", str(broken))
    assert ended.returncode == 2
    assert "nonsense" in ended.stdout + ended.stderr
    missing = aclflow("demo", "--once", "--prefix", LAYOUT.prefix, "--acl", str(tmp_path / "none"))
    assert missing.returncode == 3
    assert leftovers(LAYOUT) == []


def read_lives() -> dict[str, tuple[bool, bool]]:
    """Whether each firewall runs, and whether it serves."""
    status = json.loads(aclflow("lab", "status", "--json", "--prefix", LAYOUT.prefix).stdout)
    return {each["name"]: (each["running"], each["serving"]) for each in status["firewalls"]}


def test_a_download_outlives_the_firewalls_that_carry_it(tmp_path: Path) -> None:
    """Two of three die one after the other and come back; then one is killed by hand, and the pause is told."""
    demo = Demo(tmp_path, "--failover")
    demo.until("It stays up until Ctrl-C")
    killed = re.findall(r"^ +(fw\d) +\d+ ms +\d+ ms +(fw\d) +50 of 50 *$", demo.text, re.MULTILINE)
    (first, second), (again, third) = killed
    assert again == second
    assert {first, second, third} == {"fw1", "fw2", "fw3"}
    assert "and no connections lost" in demo.text
    told = demo.text.count("the download stood for")
    carrier = failover.find_carrier(cluster.members_of(pop.find(LAYOUT))).name
    dead = aclflow("lab", "kill", carrier, "--prefix", LAYOUT.prefix).stdout
    assert re.search(rf"{carrier} is dead, and the switch gave it up after \d+ ms", dead)
    until(lambda: demo.text.count("the download stood for") > told, what=lambda: demo.text)
    wanted = {name: (name != carrier, name != carrier) for name in ("fw1", "fw2", "fw3")}
    until(lambda: read_lives() == wanted, what=read_lives)  # the switch may give one up for a moment on a busy machine
    demo.process.send_signal(signal.SIGINT)
    assert demo.end() == 0
    assert leftovers(LAYOUT) == []


def test_a_demo_of_failover_takes_no_list(tmp_path: Path) -> None:
    demo = Demo(tmp_path, "--failover", "--acl", str(tmp_path / "none"))
    assert demo.end() != 0
    assert "--failover: this demo has a list of its own" in demo.text
