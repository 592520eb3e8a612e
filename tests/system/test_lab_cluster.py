"""A lab's firewall cluster: one dies, is revived, leaves; the switch alone decides who gets its traffic."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress

import pytest
import yaml
from system.test_spreading import ECHO, OPEN, POP, connected, inside, until

from orchestrator.client import Client
from orchestrator.errors import AclflowError, NotFound
from orchestrator.lab import bridges, cluster, namespaces, pop, processes
from orchestrator.lab.cluster import Firewall
from orchestrator.lab.layout import Layout
from orchestrator.lab.pop import Lab
from orchestrator.lab.service import SERVICE, SPREADER, ControlPlane
from orchestrator.lab.spec import LEFT
from orchestrator.policy.model import TenantId

TALK = """
import select, socket, sys, time
held = [socket.create_connection(("198.51.100.10", 8000), 10) for _ in range(int(sys.argv[1]))]
print(*(link.getsockname()[1] for link in held), flush=True)
for patience_s in sys.stdin:
    asked, good = [], []
    for link in held:
        try:
            link.sendall(b"x\\n"); asked.append(link)
        except OSError:
            pass
    until = time.monotonic() + float(patience_s)
    while asked and (left := until - time.monotonic()) > 0:
        for link in select.select(asked, [], [], left)[0]:
            asked.remove(link)
            try:
                if link.recv(10): good.append(link.getsockname()[1])
            except OSError:
                pass
    print(*good, flush=True)
"""
BEGIN = """
import select, socket, sys
failed = begun = 0
while not select.select([sys.stdin], [], [], 0.01)[0]:
    try:
        socket.create_connection(("198.51.100.10", 8000), 10).close()
    except OSError:
        failed += 1
    begun += 1
print(failed, begun)
"""
IMITATE = """
import socket, struct, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
    link.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 255)
    for state in (3, 1):  # UP, then DOWN
        for host in range(1, 255):
            question = struct.pack(">BBBBIIIII", 1 << 5, state << 6, 4, 24, 1, 1, 10_000, 10_000, 0)
            link.sendto(question, (f"{sys.argv[1]}.{host}", 3784))
"""
"""What the switch asks, by which it says that it has given a firewall up, sent to many addresses of a network."""
_EVERY_PROTOCOL, _ECHO_PORT = 3, 8000
HELD = 40
GENERATIONS = itertools.count(1)
SILENT_S = 0.5
"""After this time without an acknowledgement a member of a lab leaves another."""


def give_lists(lab: Lab, ports: list[int]) -> None:
    """Give all members lists that permit everything but what comes from some ports of the client."""
    denies = [{"id": f"no{port}", "action": "deny", "protocol": "tcp", "source_ports": port} for port in ports]
    rules = [*denies, {"id": "all", "action": "permit"}]
    tenants = [{"prefixes": ["198.51.100.0/24"], "acl": {"rules": rules}}]
    path = cluster.lists_of(lab)
    written = path.with_suffix(".new")
    written.write_text(json.dumps({"generation": next(GENERATIONS), "operator": [], "tenants": tenants}))
    written.rename(path)


@pytest.fixture(scope="module")
def lab(layout: Layout) -> Iterator[Lab]:
    built = pop.up(layout, POP)
    plane = ControlPlane(built)
    plane.start({TenantId("shop"): OPEN})
    give_lists(built, [])
    with plane.client() as client:
        cluster.start(built, client, 3)
    process = inside(built, "web", "python3", "-c", ECHO)
    yield built
    process.kill()
    process.wait()


@pytest.fixture(scope="module")
def members(lab: Lab) -> list[Firewall]:
    until(lambda: connected(lab, 1) == 1, "no connection passes")
    return cluster.members_of(lab)


class Held:
    """Connections of a client that stay open; `ports` are the client's."""

    def __init__(self, lab: Lab) -> None:
        command = ["ip", "netns", "exec", lab.layout.namespace("outside"), "python3", "-c", TALK, str(HELD)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.ports = self._read()
        assert len(self.ports) == HELD

    def alive(self) -> int:
        return len(self.alive_ports(10.0))

    def alive_ports(self, patience_s: float) -> set[int]:
        """Say something in each; return the ports of those that were answered."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{patience_s}\n")
        self._process.stdin.flush()
        return set(self._read())

    def _read(self) -> list[int]:
        assert self._process.stdout is not None
        return [int(word) for word in self._process.stdout.readline().split()]

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class Beginning:
    """Connections that begin one after the other."""

    def __init__(self, lab: Lab) -> None:
        command = ["ip", "netns", "exec", lab.layout.namespace("outside"), "python3", "-c", BEGIN]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def failed(self) -> int:
        """End it; how many did not begin."""
        told, _ = self._process.communicate("\n", timeout=60)
        failed, begun = map(int, told.split())
        assert begun > HELD
        return failed


@pytest.fixture
def held(lab: Lab, members: list[Firewall]) -> Iterator[Held]:
    made = Held(lab)
    yield made
    made.close()


def test_connections_outlive_their_firewall(lab: Lab, members: list[Firewall], held: Held) -> None:
    assert held.alive() == HELD
    for victim in members[:2]:
        victim.kill()
        assert held.alive() == HELD
        assert connected(lab, 20) == 20
        cluster.revive(victim)
        until(lambda victim=victim: cluster.is_up(victim), f"{victim.name} does not serve again")
        assert held.alive() == HELD


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_lists_that_change_while_a_firewall_dies_cut_what_they_forbid_alone(
    lab: Lab, members: list[Firewall], held: Held, before: bool
) -> None:
    """Its death cuts none, whether the lists change just before or just after it; it comes back with what is left."""
    victim, *others = members
    forbidden = held.ports[::5]
    left = set(held.ports) - set(forbidden)
    steps: list[Callable[[], object]] = [lambda: give_lists(lab, forbidden), victim.kill]
    try:
        for step in steps if before else steps[::-1]:
            step()
        until(lambda: held.alive_ports(2.0) == left, "other connections are cut, or these are not")
        states = [each["protocol"] for other in others for each in other.show()["states"]]
        assert "udp" not in states, "answers to the switch are a connection, which the lists close"
        cluster.revive(victim)
        until(lambda: cluster.is_up(victim), f"{victim.name} does not serve again")
        assert held.alive_ports(2.0) <= left
        assert held.alive_ports(10.0) == left
    finally:
        give_lists(lab, [])


def test_a_firewall_that_dies_as_soon_as_it_serves_is_given_up(members: list[Firewall], held: Held) -> None:
    """In its first second, in which the switch would not ask it again, its death would be noticed after four."""
    first, second, _ = members
    for victim in (first, second):
        victim.kill()
        until(lambda victim=victim: not cluster.is_up(victim), f"{victim.name} gets traffic still")
        cluster.revive(victim)
        until(lambda victim=victim: cluster.is_up(victim), f"{victim.name} does not serve again")
        _, noticed_s = cluster.kill_and_watch(victim)
        assert noticed_s is not None
        cluster.revive(victim)
        until(lambda victim=victim: cluster.is_up(victim), f"{victim.name} does not serve again")
    assert held.alive() == HELD


def follow_each_other(members: list[Firewall]) -> bool:
    return [each.show()["followers"] for each in members] == [[2, 3], [1, 3], [1, 2]]


def test_members_whose_processes_get_no_processor_time_stay_in_the_cluster(lab: Lab, members: list[Firewall]) -> None:
    """Connections that begin meanwhile are theirs, too: their programs store, so one of them may take over."""
    victim, *others = members
    slow = [process for each in others for process in each.processes()]
    for process in slow:
        processes.send(process, signal.SIGSTOP)
    try:
        time.sleep(3 * SILENT_S)
        begun = Held(lab)
        until(lambda: follow_each_other(members), "a member whose processes stand is followed no more")
        victim.kill()
        assert begun.alive() == HELD
    finally:
        for process in slow:
            processes.send(process, signal.SIGCONT)
    begun.close()
    cluster.revive(victim)
    until(lambda: cluster.is_up(victim), f"{victim.name} does not serve again")


def test_what_a_member_says_is_printed_in_every_form(members: list[Firewall]) -> None:
    command = (sys.executable, "-m", "orchestrator.cli", "statesync", "show")
    asked = members[0].forwarder.run
    chosen = ("--filter", "follows=yes", "--sort=-member", "-c", "member", "-o", "csv")
    followers = asked(*command, "--table", "members", *chosen)
    assert followers.split() == ["member", "3", "2"]
    assert {"member", "counters"} <= yaml.safe_load(asked(*command, "-o", "yaml")).keys()
    with pytest.raises(AclflowError, match="members, states, counters"):
        asked(*command, "-o", "csv")


def test_a_rolling_upgrade_costs_no_connection(lab: Lab, members: list[Firewall], held: Held) -> None:
    """Each member is stopped and started again in turn, while connections live and others begin."""
    begun = Beginning(lab)
    for each in members:
        each.drain()
        until(lambda each=each: not cluster.is_up(each), f"{each.name} gets traffic still")
        assert held.alive() == HELD
        cluster.revive(each)
        until(lambda each=each: cluster.is_up(each), f"{each.name} does not serve again")
    assert held.alive() == HELD
    assert begun.failed() == 0


@pytest.mark.parametrize(
    "dies", [pytest.param(0, id="the one that drains"), pytest.param(1, marks=pytest.mark.long, id="another one")]
)
def test_a_firewall_that_dies_while_one_drains_costs_no_connection(
    lab: Lab, members: list[Firewall], held: Held, dies: int
) -> None:
    """The process has been told to end, and the switch still moves its buckets when a firewall loses its power."""
    leaving, victim = members[0], members[dies]
    for process in leaving.processes():
        processes.send(process, signal.SIGTERM)
    victim.kill()
    assert held.alive() == HELD
    assert connected(lab, 20) == 20
    until(lambda: not leaving.processes(), "it does not end")
    for each in members[: dies + 1]:
        cluster.revive(each)
        until(lambda each=each: cluster.is_up(each), f"{each.name} does not serve again")
    assert held.alive() == HELD


def test_the_service_learns_which_firewall_the_switch_has_given_up(lab: Lab, members: list[Firewall]) -> None:
    """And that it is heard again; both are events."""
    victim = members[0]
    with ControlPlane(lab).client() as client:
        domain = lab.spec.domain

        def given_up() -> tuple[str, ...]:
            return client.spread.read(domain).given_up

        until(lambda: given_up() == (), "a firewall is given up, to the service")
        before = len(_kinds(client))
        victim.kill()
        until(lambda: given_up() == (victim.name,), "the service does not learn of it")
        assert client.spread.read(domain).carrying == tuple(each.name for each in members[1:])
        cluster.revive(victim)
        until(lambda: given_up() == (), "it is given up still, to the service")
        assert _kinds(client)[before:] == ["firewall.given-up", "firewall.heard"]


def _kinds(client: Client) -> list[str]:
    """Of all events about firewalls that the switch gave up or heard again."""
    found = client.events.read(limit=1000).items
    return [each.kind for each in found if each.kind in ("firewall.given-up", "firewall.heard")]


def watch_firewalls(lab: Lab, *words: str) -> tuple[int, dict[str, dict[str, object]]]:
    """`aclflow spread watch` on the lab's switch: its status, and what it says of each port."""
    asked = (bridges.SPREAD_SWITCH.name, *words, "--json")
    command = [sys.executable, "-m", "orchestrator.cli", "spread", "watch", *asked]
    done = subprocess.run(
        [*command, "--run-dir", str(lab.ovs.run_dir)], stdout=subprocess.PIPE, text=True, check=False, timeout=60
    )
    return done.returncode, {each["port"]: each for each in json.loads(done.stdout)}


def test_watched_ports_that_are_not_asked_are_told_and_asked_from_then_on(
    lab: Lab, members: list[Firewall], held: Held
) -> None:
    """The ports are those that the switch's own buckets watch: both links of each firewall."""
    until(lambda: all(cluster.is_up(each) for each in members), "a firewall does not serve")
    ports = {port for each in members for port in each.forwarder.ports}
    forgotten = members[1].forwarder.ports[0]
    lab.ovs.vsctl("clear", "interface", forgotten, "bfd")
    status, found = watch_firewalls(lab, "--check")
    assert status == 1
    assert found.keys() == ports
    assert [port for port, each in found.items() if not each["asked"]] == [forgotten]
    status, found = watch_firewalls(lab, forgotten)
    assert status == 0
    assert [(port, each["asked"], each["changed"]) for port, each in found.items()] == [(forgotten, True, True)]
    until(lambda: cluster.is_up(members[1]), "it does not serve again")
    status, found = watch_firewalls(lab, "--check")
    assert status == 0
    assert found == {port: {"port": port, "asked": True, "up": True, "changed": False} for port in ports}
    assert held.alive() == HELD


def test_the_switch_decides_without_service_and_controller(lab: Lab, members: list[Firewall], held: Held) -> None:
    for name in (SERVICE, SPREADER):
        processes.kill(pop.find(lab.layout).state.process(name))
    members[2].kill()
    assert held.alive() == HELD
    ControlPlane(pop.find(lab.layout)).supervise()
    cluster.revive(members[2])
    until(lambda: cluster.is_up(members[2]), "it does not serve again")


def test_a_firewall_that_was_frozen_fences_itself_and_takes_all_entries_again(
    lab: Lab, members: list[Firewall], held: Held
) -> None:
    frozen = members[0]
    before = frozen.show()["counters"]["fenced"]
    for port in frozen.forwarder.ports:
        lab.ovs.vsctl("set", "interface", port, "bfd:enable=false")
    for port in frozen.forwarder.ports:
        lab.ovs.vsctl("set", "interface", port, "bfd:enable=true")
    until(lambda: frozen.show()["counters"]["fenced"] > before, "it does not fence itself")
    until(lambda: cluster.is_up(frozen), "it does not serve again")
    assert held.alive() == HELD


@pytest.mark.parametrize(("node", "network"), [("outside", "198.51.100"), ("web", "192.0.2")])
def test_nobody_passes_for_the_switch_and_fences_firewalls(
    lab: Lab, members: list[Firewall], held: Held, node: str, network: str
) -> None:
    until(lambda: all(cluster.is_up(each) for each in members), "a firewall does not serve")
    before = [each.show()["counters"]["fenced"] for each in members]
    assert inside(lab, node, "python3", "-c", IMITATE, network).wait() == 0
    time.sleep(SILENT_S)
    assert [each.show()["counters"]["fenced"] for each in members] == before
    assert all(cluster.is_up(each) for each in members)
    assert held.alive() == HELD


@pytest.mark.parametrize("sides", [(0,), (1,), (0, 1)], ids=["left", "right", "both"])
def test_a_firewall_whose_data_links_are_cut_loses_no_connection(
    lab: Lab, members: list[Firewall], held: Held, sides: tuple[int, ...]
) -> None:
    """Where one link is left, too: the switch gives the firewall up on both, and takes it back with both."""
    victim = members[1]
    ports = [victim.forwarder.ports[side] for side in sides]
    try:
        _set_links(lab, ports, "down")
        assert held.alive() == HELD
        until(lambda: not cluster.is_up(victim), "the switch finds it well on both sides")
        assert held.alive() == HELD
    finally:
        _set_links(lab, ports, "up")
    until(lambda: cluster.is_up(victim), "it does not serve again")
    assert held.alive() == HELD


@pytest.mark.parametrize(
    "deaf",
    [pytest.param(False, marks=pytest.mark.long, id="links"), pytest.param(True, id="links-and-messages")],
)
def test_with_management_and_a_firewalls_links_cut_at_once_no_bucket_has_two_owners(
    lab: Lab, members: list[Firewall], held: Held, deaf: bool
) -> None:
    """Neither service nor controller runs meanwhile. A firewall that hears no other member does not serve again."""
    victim, others = members[1], (members[0], members[2])
    ports = list(victim.forwarder.ports)
    until(lambda: all(cluster.is_up(each) for each in members), "a firewall does not serve")
    try:
        for name in (SERVICE, SPREADER):
            processes.kill(pop.find(lab.layout).state.process(name))
        if deaf:
            _cut_messages(victim, others)
        _set_links(lab, ports, "down")
        assert held.alive() == HELD
        until(lambda: not cluster.is_up(victim), "the switch finds it well")
        owners = carriers_of(members, held)
        assert {len(names) for names in owners.values()} == {1}
        assert victim.name not in set().union(*owners.values())
        _set_links(lab, ports, "up")
        if deaf:
            time.sleep(3 * SILENT_S)
            assert not cluster.is_up(victim), "it serves and knows nothing of what began meanwhile"
            assert {len(names) for names in carriers_of(members, held).values()} == {1}
    finally:
        _set_links(lab, ports, "up")
        if deaf:
            _join_messages(victim, others)
        ControlPlane(pop.find(lab.layout)).supervise()
    until(lambda: cluster.is_up(victim), "it does not serve again")
    assert held.alive() == HELD
    assert {len(names) for names in carriers_of(members, held).values()} == {1}


@pytest.fixture
def unshared(members: list[Firewall]) -> Iterator[None]:
    """Firewalls that tell each other nothing for a while."""
    _set_level(members, "none")
    assert {each.show()["level"] for each in members} == {"none"}
    yield
    _set_level(members, "full")


def _set_level(members: Sequence[Firewall], level: str) -> None:
    for each in members:
        each.forwarder.run(sys.executable, "-m", "orchestrator.cli", "statesync", "set", "--level", level)


@pytest.mark.usefixtures("unshared")
def test_without_sharing_both_directions_of_a_connection_meet_one_firewall(lab: Lab, members: list[Firewall]) -> None:
    """Buckets are symmetric by themselves: nobody else would know the connection that an answer belongs to."""
    until(lambda: all(cluster.is_up(each) for each in members), "a firewall does not serve")
    alone = Held(lab)
    try:
        owners = carriers_of(members, alone)
        assert {len(names) for names in owners.values()} == {1}
        assert len(set().union(*owners.values())) == len(members), "so few connections may all be of one firewall"
    finally:
        alone.close()


def carriers_of(members: Sequence[Firewall], held: Held) -> dict[int, set[str]]:
    """Say something in each connection; return by its port the firewalls that its packets of either direction met."""
    with ExitStack() as stack:
        taps = {each.name: stack.enter_context(_tap(each)) for each in members}
        assert held.alive() == HELD
        seen = {name: set(_client_ports(tap)) for name, tap in taps.items()}
    return {port: {name for name, met in seen.items() if port in met} for port in held.ports}


def _tap(firewall: Firewall) -> socket.socket:
    """A socket that gets a copy of each packet at a firewall's left side, whichever way it goes."""

    def open_here() -> socket.socket:
        made = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_EVERY_PROTOCOL))
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        made.bind((LEFT, _EVERY_PROTOCOL))
        made.setblocking(False)
        return made

    return namespaces.inside(firewall.forwarder.namespace, open_here)


def _client_ports(tap: socket.socket) -> Iterator[int]:
    """Yield the client's port of each packet of a connection with the echo server."""
    with suppress(BlockingIOError):
        while True:
            packet = tap.recv(200)
            if len(packet) >= 24 and packet[0] == 0x45 and packet[9] == socket.IPPROTO_TCP:
                ports = [int.from_bytes(packet[at : at + 2], "big") for at in (20, 22)]
                if _ECHO_PORT in ports:
                    yield sum(ports) - _ECHO_PORT


def _cut_messages(firewall: Firewall, others: Sequence[Firewall]) -> None:
    for other in others:
        _run_ip(firewall, "link", "set", f"x{other.number}", "down")


def _join_messages(firewall: Firewall, others: Sequence[Firewall]) -> None:
    """Bring a firewall's cables up; their routes went with them."""
    for other in others:
        _run_ip(firewall, "link", "set", f"x{other.number}", "up")
        ways = ("dev", f"x{other.number}", "src", firewall.address, "scope", "link")
        _run_ip(firewall, "route", "replace", f"{other.address}/32", *ways)


def _run_ip(firewall: Firewall, *words: str) -> None:
    subprocess.run(["ip", "-n", firewall.forwarder.namespace, *words], check=True)


def _set_links(lab: Lab, ports: list[str], state: str) -> None:
    for port in ports:
        subprocess.run(["ip", "-n", lab.layout.ovs_namespace, "link", "set", port, state], check=True)


def count_changes_of_mind(lab: Lab, members: list[Firewall]) -> list[int]:
    """How often the switch has found each link of each firewall well, or not, after the other."""
    ports = [port for each in members for port in each.forwarder.ports]
    return [int(lab.ovs.vsctl("get", "interface", port, "bfd_status:flap_count").strip('"\n')) for port in ports]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_no_firewall_is_given_up_in_ten_minutes_of_full_load(lab: Lab, members: list[Firewall], held: Held) -> None:
    """Every processor has two programs that never pause, beside connections that begin one after the other."""
    before = count_changes_of_mind(lab, members)
    begun = Beginning(lab)
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        time.sleep(600)
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()
    assert begun.failed() == 0
    assert count_changes_of_mind(lab, members) == before
    assert held.alive() == HELD


def test_a_name_of_no_firewall_is_refused(lab: Lab) -> None:
    with pytest.raises(NotFound, match=r"fw1, fw2, fw3"):
        cluster.member(lab, "fw9")
