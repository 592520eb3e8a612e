"""The spreading switch in a whole lab: real packets through real namespaces, by shares that the service hands out."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

import pytest
from system.spreadvnfs import carrier, plain

from orchestrator.client import Client
from orchestrator.lab import pop, specfile
from orchestrator.lab.layout import Layout
from orchestrator.lab.pop import Lab
from orchestrator.lab.service import ControlPlane
from orchestrator.policy.model import Acl, Action, Rule, RuleId, TenantId

POP = specfile.parse(
    """
    hosts: [{name: host1}]
    clients: [{name: outside, addresses: [192.0.2.1]}]
    tenants: [{id: shop, prefixes: [198.51.100.0/24]}]
    endpoints: [{name: web, tenant: shop, host: host1, addresses: [198.51.100.10]}]
    spread: true
    """
)
OPEN = Acl((Rule(RuleId("all"), Action.PERMIT),))
TENANTS = "198.51.100.0/24"
STATEFUL = """
table ip track {
  chain forward {
    type filter hook forward priority 0; policy drop;
    ct state established,related accept
    iif "left" ct state new tcp flags & (syn | ack) == syn accept
  }
}
"""
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def lab(layout: Layout) -> Lab:
    built = pop.up(layout, POP)
    ControlPlane(built).start({TenantId("shop"): OPEN})
    return built


@pytest.fixture(scope="module")
def client(lab: Lab) -> Iterator[Client]:
    with ControlPlane(lab).client() as found:
        yield found


def until(condition: Callable[[], bool], what: str) -> float:
    """Wait for it; the seconds that took."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < PATIENCE_S, what
        time.sleep(0.02)
    return time.monotonic() - started


def carry(client: Client, numbers: Sequence[int], *, stateful: bool = False) -> None:
    """Spread over some firewalls, and wait until the switch does."""
    generation = client.spread.configure("pop1", [carrier(number) for number in numbers], stateful=stateful)
    until(lambda: client.spread.read("pop1").enforced >= generation, f"spread {generation} is not enforced")


def inside(lab: Lab, node: str, *command: str) -> subprocess.Popen[str]:
    name = lab.layout.namespace(node)
    return subprocess.Popen(["ip", "netns", "exec", name, *command], stdout=subprocess.PIPE, text=True)


ECHO = """
import asyncio

async def answer(reader, writer):
    try:
        while line := await reader.readline():
            writer.write(line)
    except ConnectionError:
        pass
    finally:
        writer.close()

async def main():
    server = await asyncio.start_server(answer, "", 8000, backlog=1000)
    await server.serve_forever()

asyncio.run(main())
"""
CONNECT = """
import socket, sys
done = 0
for port in range(20000, 20000 + int(sys.argv[1])):
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.settimeout(3); s.bind(("192.0.2.1", port))
        try:
            s.connect(("198.51.100.10", 8000)); s.sendall(b"x\\n"); done += s.recv(10) == b"x\\n"
        except OSError:
            pass
print(done)
"""


@pytest.fixture(scope="module", autouse=True)
def echo(lab: Lab) -> Iterator[None]:
    """Answers every line of every connection."""
    process = inside(lab, "web", "python3", "-c", ECHO)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def connected(lab: Lab, count: int) -> int:
    """How many of so many connections, each from another port, were answered."""
    told, _ = inside(lab, "outside", "python3", "-c", CONNECT, str(count)).communicate(timeout=PATIENCE_S * 3)
    return int(told)


def test_with_nobody_to_carry_it_nothing_passes(lab: Lab) -> None:
    assert connected(lab, 1) == 0


@pytest.mark.parametrize("stateful", [False, True])
def test_connections_pass_and_every_firewall_carries_its_share(lab: Lab, client: Client, stateful: bool) -> None:
    """Stateful firewalls deny what they saw no beginning of, so each connection passes only by the one that did."""
    with ExitStack() as stack:
        firewalls = [
            stack.enter_context(plain(lab, number, TENANTS, STATEFUL if stateful else "")) for number in range(3)
        ]
        carry(client, range(3), stateful=stateful)
        before = [each.count_forwarded() for each in firewalls]
        until(lambda: connected(lab, 1) == 1, "no connection passes")
        assert connected(lab, 60) == 60
        shares = [each.count_forwarded() - old for each, old in zip(firewalls, before, strict=True)]
        assert min(shares) >= sum(shares) / 10
        carry(client, [0, 2], stateful=stateful)
        assert connected(lab, 30) == 30


TALK = """
import socket, sys
with socket.socket() as s:
    s.settimeout(20); s.bind(("192.0.2.1", int(sys.argv[1])))
    s.connect(("198.51.100.10", 8000))
    for line in sys.stdin:
        s.sendall(line.encode()); print(s.recv(100).decode().strip(), flush=True)
"""


def talker(lab: Lab, port: int) -> subprocess.Popen[str]:
    """A connection that says what it is told, and prints the answers."""
    command = ["ip", "netns", "exec", lab.layout.namespace("outside"), "python3", "-c", TALK, str(port)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def says(connection: subprocess.Popen[str], word: str) -> str:
    """What is answered; nothing where the connection is cut."""
    assert connection.stdin is not None
    assert connection.stdout is not None
    connection.stdin.write(f"{word}\n")
    connection.stdin.flush()
    return connection.stdout.readline().strip()


def test_connections_of_a_stateful_firewall_outlive_its_draining(lab: Lab, client: Client) -> None:
    """The other firewall knows nothing of them, and would drop them."""
    with ExitStack() as stack:
        firewalls = [stack.enter_context(plain(lab, number, TENANTS, STATEFUL)) for number in range(2)]
        carry(client, range(2), stateful=True)
        until(lambda: connected(lab, 1) == 1, "no connection passes")
        talkers = [stack.enter_context(talker(lab, port)) for port in range(30000, 30012)]
        stack.callback(lambda: [each.kill() for each in talkers])
        assert [says(each, "before") for each in talkers] == ["before"] * len(talkers)
        drains = [carrier(0), carrier(1, state="draining")]
        generation = client.spread.configure("pop1", drains, stateful=True)
        until(lambda: client.spread.read("pop1").enforced >= generation, "the draining is not enforced")
        quiet = firewalls[1].count_forwarded()
        assert [says(each, "during") for each in talkers] == ["during"] * len(talkers)
        kept = firewalls[1].count_forwarded() - quiet
        assert kept > 0, "none of the connections was the draining firewall's"
        assert connected(lab, 20) == 20
        assert [says(each, "after") for each in talkers] == ["after"] * len(talkers)
        newer = firewalls[1].count_forwarded() - quiet - kept
        assert newer <= 2 * kept + len(talkers), "new connections went to the draining firewall"


MANY = """
import asyncio, json, sys
EVERY_S, SAYS_EVERY_S, PATIENCE_S = 0.004, 0.2, 20

async def talk(port, begun, ending):
    reader, writer = await asyncio.open_connection("198.51.100.10", 8000, local_addr=("192.0.2.1", port))
    begun.append(port)
    last = False
    while not last:
        last = ending.is_set()
        writer.write(b"still there?\\n")
        assert await reader.readline() == b"still there?\\n"
        await asyncio.sleep(SAYS_EVERY_S)

async def patient(port, begun, ending):
    talking = asyncio.create_task(talk(port, begun, ending))
    await asyncio.wait([talking, asyncio.create_task(ending.wait())], return_when=asyncio.FIRST_COMPLETED)
    await asyncio.wait_for(talking, PATIENCE_S)

async def main():
    begun, ending, told = [], asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin, told.set)
    talking, said = [], False
    while not told.is_set():
        talking.append(asyncio.create_task(patient(31000 + len(talking), begun, ending)))
        if len(begun) >= 20 and not said:
            print("under way", flush=True)
            said = True
        await asyncio.sleep(EVERY_S)
    ending.set()
    ends = await asyncio.gather(*talking, return_exceptions=True)
    print(json.dumps({"begun": len(talking), "cut": [repr(end) for end in ends if end is not None]}))

asyncio.run(main())
"""


def test_no_connection_is_cut_while_firewalls_come_and_go(lab: Lab, client: Client) -> None:
    """Connections begin all the time, also in the very moments in which buckets move, and every one is answered to the
    end. Each firewall drops what it saw no beginning of."""
    with ExitStack() as stack:
        firewalls = [stack.enter_context(plain(lab, number, TENANTS, STATEFUL)) for number in range(3)]
        carry(client, range(2), stateful=True)
        until(lambda: connected(lab, 1) == 1, "no connection passes")
        command = ["ip", "netns", "exec", lab.layout.namespace("outside"), "python3", "-c", MANY]
        many = stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        stack.callback(many.kill)
        assert many.stdout is not None
        assert many.stdout.readline() == "under way\n"
        for members in (
            [carrier(0), carrier(1), carrier(2)],
            [carrier(0), carrier(1, state="draining"), carrier(2)],
            [carrier(0), carrier(1), carrier(2)],
            [carrier(0, state="draining"), carrier(1, state="draining"), carrier(2)],
        ):
            generation = client.spread.configure("pop1", members, stateful=True)
            until(lambda wanted=generation: client.spread.read("pop1").enforced >= wanted, "a move is not enforced")
            time.sleep(1.0)  # connections go on beginning
        told, _ = many.communicate("end\n", timeout=PATIENCE_S)
        found = json.loads(told.splitlines()[-1])
        assert found["begun"] > 100
        assert found["cut"] == []
        assert all(each.count_forwarded() > 100 for each in firewalls)
