"""A firewall whole: agent, filter and replicator in one namespace, beside a member that only shares its connections.

The tenant's list is changed through the service while packets pass. What it forbids is cut on both members, in both
directions; so is what began while the list was on its way. Nothing else is.
"""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TypeVar

import pytest
from served import ServiceProcess
from system.sharing_ground import Ends, talks

from orchestrator.bench.state_sync.syncworld import CLIENT4, SERVER4, World
from orchestrator.bootstrap import create_token
from orchestrator.client import Client
from orchestrator.client.spread import Carrier, Link
from orchestrator.lab.processes import wait_until
from orchestrator.policy.addresses import Addresses, Prefix
from orchestrator.policy.model import Acl, Action, Rule, RuleId
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import TCP
from orchestrator.statesync.lists import read_lists
from orchestrator.store.records import Role

Result = TypeVar("Result")
CLI = (sys.executable, "-m", "orchestrator.cli")
MANY, RISKY = 40, range(31_000, 31_400)  # below those that Linux chooses
"""Open connections, and ports from which more begin while the list changes that forbids them."""
WITHIN_S = 3.0
"""A second, and what a busy machine adds."""
PATIENCE_S = 60.0


class Firewall:
    """Member 1 with service, agent and filter; member 2 with its programs alone."""

    def __init__(self, world: World, folder: Path, stack: ExitStack) -> None:
        self.world, self._folder, self._stack = world, folder, stack
        self.lists = folder / "lists.json"
        (folder / "service").mkdir()
        self._service = ServiceProcess(folder / "service")
        self._token = create_token(self._service.settings, Role.ADMIN).secret
        world.inside(1, self._service.start)
        stack.callback(self._service.kill)

    def ask(self, question: Callable[[Client], Result]) -> Result:
        """Something of the service, as an administrator."""

        def ask_service() -> Result:
            with Client(self._service.url, self._token) as client:
                return question(client)

        return self.world.inside(1, ask_service)

    def forbid(self, denied: Sequence[int]) -> int:
        """Forbid some of the client's ports, and RISKY; return the generation."""
        return self.ask(lambda client: client.acls.put("shop", permitting(denied, risky=True)).generation)

    def start(self) -> None:
        token = self.ask(self._onboard)
        own = {
            "ACLFLOW_STATE_DIR": str(self._folder / "agent"), "ACLFLOW_URL": self._service.url, "ACLFLOW_TOKEN": token,
        }  # fmt: skip
        between = ("--interface", "c", "--interface", "s")
        self._run(1, "agent", ["agent", "--name", "fw1", *between, "--lists", str(self.lists)], own)
        wait_until(self.lists.exists, f"the agent writes no lists: {self.log('agent')}", PATIENCE_S)
        key = self._folder / "key"
        key.touch(mode=0o600)
        key.write_text("5a" * 16)
        members = [word for each in (1, 2) for word in ("--member", f"{each}={self.world.address(each)}")]
        for number, more in ((1, ["--lists", str(self.lists)]), (2, [])):
            words = ["statesync", "run", "--self", str(number), *members, *between, "--messages", "x",
                     "--key-file", str(key), *more]  # fmt: skip
            self._run(number, f"member{number}", words, {})
        for number in (1, 2):
            wait_until(lambda number=number: self._follows(number), f"{number} is alone", PATIENCE_S, every_s=0.3)

    def _onboard(self, client: Client) -> str:
        client.domains.create("pop1")
        client.tenants.create("shop", domain="pop1", prefixes=[Prefix.parse(f"{SERVER4}/32")])
        client.acls.put("shop", permitting(()))
        client.firewalls.add("pop1", "fw1", "nftables")
        links = [Link(f"{side}1", f"0a:00:00:00:00:0{at}") for at, side in ((1, "l"), (2, "r"))]
        client.spread.configure("pop1", [Carrier("fw1", 1, *links)], stateful=True, synchronised=True)
        return client.enrolment.invite("pop1")

    def _run(self, number: int, name: str, words: Sequence[str], own: dict[str, str]) -> None:
        def start() -> subprocess.Popen[bytes]:
            with (self._folder / f"{name}.log").open("wb") as log:
                return subprocess.Popen([*CLI, *words], env=os.environ | own, stdout=log, stderr=log)

        process = self.world.inside(number, start)
        self._stack.callback(process.wait, PATIENCE_S)
        self._stack.callback(process.terminate)

    def log(self, name: str) -> str:
        file = self._folder / f"{name}.log"
        return file.read_text()[-3000:] if file.exists() else ""

    def _follows(self, number: int) -> bool:
        with suppress(subprocess.CalledProcessError):
            return bool(self._show(number)["followers"])
        return False

    def _show(self, number: int) -> dict[str, list[dict[str, object]]]:
        found: dict[str, list[dict[str, object]]] = json.loads(
            self.world.run(number, *CLI, "statesync", "show", "--json")
        )
        return found

    def open_at(self, number: int) -> int:
        """How many open TCP connections a member knows."""
        states = self._show(number)["states"]
        return sum(int(str(each["count"])) for each in states if each["state"] == "ESTABLISHED")


def permitting(denied: Sequence[int], risky: bool = False) -> Acl:
    """HTTP of the client, but from some of its ports, and from those of RISKY."""
    client = Addresses((Prefix.parse(f"{CLIENT4}/32"),))
    first = (PortRange(RISKY[0], RISKY[-1]),) if risky else ()
    ranges = (*first, *(PortRange(port, port) for port in sorted(denied)))
    web = Rule(RuleId("web"), Action.PERMIT, protocol=TCP, source=client, destination_ports=(PortRange(80, 80),))
    if not ranges:
        return Acl((web,))
    return Acl((Rule(RuleId("no"), Action.DENY, protocol=TCP, source=client, source_ports=ranges), web))


@pytest.fixture
def firewall(tmp_path: Path) -> Iterator[Firewall]:
    with World(2, "ssagent-") as world, ExitStack() as stack:
        made = Firewall(world, tmp_path, stack)
        made.start()
        yield made


@pytest.mark.long
def test_a_list_that_changes_in_the_service_cuts_what_it_forbids_on_every_member(firewall: Firewall) -> None:
    world = firewall.world
    with Ends.only(world) as ends:
        opened = [ends.connect(patience_s=5) for _ in range(MANY)]
        ports = {near: int(near.getsockname()[1]) for near, _ in opened}
        chosen = set(random.Random(5).sample(sorted(ports.values()), MANY // 10))
        cut, kept = [[pair for pair in opened if (ports[pair[0]] in chosen) is of] for of in (True, False)]
        assert all(talks(*pair) for pair in opened)
        begun: list[tuple[socket.socket, socket.socket]] = []
        stopped = threading.Event()

        def begin() -> None:
            for port in RISKY:
                if stopped.wait(0.01):
                    return
                with suppress(OSError):
                    begun.append(ends.connect(port=port, patience_s=0.3))

        beginning = threading.Thread(target=begin)
        beginning.start()
        wait_until(lambda: len(begun) > 5, "nothing begins", PATIENCE_S)
        generation = firewall.forbid([*chosen])
        enforced = firewall.ask(lambda client: client.domains.wait_until_enforced("pop1", generation))
        assert enforced.done, firewall.log("agent")
        wait_until(lambda: not any(answers(*pair) for pair in cut), "answers go on", WITHIN_S)
        time.sleep(WITHIN_S)
        stopped.set()
        beginning.join()
        assert read_lists(firewall.lists).generation == generation
        assert not any(answers(*pair) for pair in [*cut, *begun]), "one outlived the list that permitted it"
        assert all(talks(*pair) for pair in kept)
        for number in (1, 2):
            wait_until(lambda number=number: firewall.open_at(number) == len(kept), f"member {number} has others", 5)
        world.via(2)
        assert all(talks(*pair) for pair in kept)
        assert not any(answers(*pair) for pair in [*cut, *begun[-20:]])


def answers(near: socket.socket, far: socket.socket) -> bool:
    """Whether what the server says arrives: the filter would let it pass, so the replicator alone cuts it."""
    near.settimeout(0.05)
    try:
        far.send(b"a")
        return near.recv(1) == b"a"
    except OSError:
        return False
