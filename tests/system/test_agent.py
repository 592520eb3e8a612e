"""`aclflow agent` in a firewall VNF: a router in namespaces, the service beside it, real packets.

The service runs inside the router's namespace, where the agent can reach it; so a VNF without its service is one whose
service was stopped. A reboot is what the kernel forgets: no filter, no forwarding.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from ipaddress import ip_address
from pathlib import Path
from tempfile import mkdtemp
from typing import TypeVar

import pytest
from compiled_filter import counted_under
from deployment.test_units import settings_of
from enforce.contract_filters import DNS, MEDDLINGS, POLICIES, Meddling, corner_packets, in_force
from served import ServiceProcess
from system.unitrights import UNITS, USER, is_readable_by_others, with_rights_of

from orchestrator.bootstrap import create_token
from orchestrator.client import Client
from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.filters.filterrows import read_comment
from orchestrator.enforce.agent import DAMAGED
from orchestrator.enforce.drivers.filters.driver import FilterDriver
from orchestrator.enforce.drivers.iptables.tool import iptables_driver
from orchestrator.enforce.drivers.nftables.tool import nftables_driver
from orchestrator.lab import namespaces
from orchestrator.lab.layout import Layout
from orchestrator.lab.router import ROUTER, Router
from orchestrator.policy.model import Packet, Policy
from orchestrator.policy.oracle import decide
from orchestrator.program.program import Tier
from orchestrator.store.records import Role
from orchestrator.wire.firewalls import Firewall, Plane

Result = TypeVar("Result")
WHOLE, LESS = POLICIES["whole"], POLICIES["without a rule"]
DRIVERS = ("nftables", "iptables-legacy", "iptables-nft")
PATIENCE_S = 60.0


LOCK = "/run/xtables.lock"


def as_unit(name: str, state: Path) -> list[str]:
    """The words before a command that run it as a unit does: as another user, with its rights and no others.

    Root does before what the unit says. The user has a folder for its state, and may lock what iptables' programs lock,
    as `tmpfiles.d` has it.
    """
    if not is_readable_by_others():
        return []
    said = settings_of(UNITS / f"{name}.service")
    state.mkdir(mode=0o700, exist_ok=True)
    lock = state.parent / "xtables.lock"
    lock.touch()
    for path in (state, *state.iterdir(), lock):
        os.chown(path, int(USER), int(USER))
    Path(LOCK).touch()
    before = [shlex.split(line.replace("$$", "$").replace(name, USER))[-1] for line in said["ExecStartPre"]]
    return [
        "unshare", "--mount", "sh", "-c", "; ".join([f"mount --bind {lock} {LOCK}", *before, 'exec "$@"']), "sh",
        *with_rights_of(name),
    ]  # fmt: skip


class Vnf:
    """A router with a service and, from time to time, an agent."""

    def __init__(self, router: Router, directory: Path, driver: str) -> None:
        self.router = router
        self.driver_name = driver
        self.plane = {"nftables": Plane.NFTABLES, "queue": Plane.QUEUE}.get(driver, Plane.IPTABLES)
        self.state = Path(mkdtemp(dir="/var/tmp"), "agent")
        self.state.parent.chmod(0o755)
        self.log = directory / "agent.log"
        (directory / "service").mkdir()
        self.service = ServiceProcess(directory / "service")
        self.token = create_token(self.service.settings, Role.ADMIN).secret
        self.agent: subprocess.Popen[bytes] | None = None

    def inside(self, call: Callable[[], Result]) -> Result:
        return self.router.inside(ROUTER, call)

    def ask(self, question: Callable[[Client], Result]) -> Result:
        """Something of the service, as an administrator."""

        def asked() -> Result:
            with Client(self.service.url, self.token) as client:
                return question(client)

        return self.inside(asked)

    def onboard(self) -> str:
        """A domain with both tenants and this firewall; a token to enrol with."""

        def told(client: Client) -> str:
            client.domains.create("pop1")
            client.domains.set_operator_rules("pop1", [DNS])
            for tenant in WHOLE.tenants:
                client.tenants.create(tenant.id, domain="pop1", prefixes=tenant.prefixes)
            self.put(client, WHOLE)
            client.firewalls.add("pop1", "fw1", self.plane.value)
            return client.enrolment.invite("pop1")

        return self.ask(told)

    @staticmethod
    def put(client: Client, policy: Policy) -> int:
        """Write every list; the generation that holds them."""
        return max(client.acls.put(tenant.id, tenant.acl).generation for tenant in policy.tenants)

    def start_agent(self, token: str = "", *more: str) -> None:
        own = {
            "ACLFLOW_STATE_DIR": str(self.state),
            "ACLFLOW_URL": self.service.url,
            "ACLFLOW_TOKEN": token,
            "ACLFLOW_LOG_FORMAT": "json",
        }
        arguments = ["--driver", self.driver_name, "--name", "fw1", "--interface", "left", "--interface", "right"]
        often = ["--observe-every", "0.3", "--count-every", "0.3", "--load-every", "0.3"]
        command = [sys.executable, "-m", "orchestrator.cli", "agent", *arguments, *often, *more]

        def start() -> subprocess.Popen[bytes]:
            with self.log.open("ab") as log:
                line = [*as_unit("aclflow-agent", self.state), *command]
                return subprocess.Popen(line, env=os.environ | own, stdout=log, stderr=log)

        self.agent = self.inside(start)

    def end_agent(self, number: signal.Signals) -> None:
        if self.agent is not None:
            self.agent.send_signal(number)
            self.agent.wait(timeout=PATIENCE_S)
            self.agent = None

    def reboot(self) -> None:
        """What a kernel that starts has: nothing, and it forwards nothing."""
        self.end_agent(signal.SIGKILL)
        self.inside(lambda: namespaces.set_kernel(dict.fromkeys(FORWARDING, "0")))
        self.run(("nft", "flush", "ruleset"))
        for name in ("iptables-legacy", "ip6tables-legacy"):
            for words in (("-P", "FORWARD", "ACCEPT"), ("-F",), ("-X",)):
                self.run((name, *words))

    def is_forwarding(self) -> bool:
        return self.inside(lambda: Path("/proc/sys/net/ipv4/ip_forward").read_text().strip() == "1")

    def run(self, command: Sequence[str], text: str = "") -> str:
        return self.router.run(*command, text=text)

    def meddle(self, meddling: Meddling) -> None:
        if self.plane is Plane.NFTABLES:
            self.run(("nft", "-f", "-"), in_force(meddling, self.run))
            return
        text, variant = meddling.iptables, self.driver_name.removeprefix("iptables-")
        program = f"ip6tables-{variant}" if text.startswith("6 ") else f"iptables-{variant}"
        self.run((f"{program}-restore", "--noflush"), f"*filter\n{text.removeprefix('6 ')}\nCOMMIT\n")

    def filter(self) -> FilterDriver:
        def run(command: Sequence[str], text: str) -> str:
            return self.run(command, text)

        return nftables_driver(run) if self.plane is Plane.NFTABLES else iptables_driver(self.driver_name[9:], run)

    def enforced(self, generation: int) -> None:
        state = self.ask(lambda client: client.domains.wait_until_enforced("pop1", generation, timeout_s=PATIENCE_S))
        assert state.done, (state.laggards, self.log.read_text()[-2000:])

    def load(self) -> Firewall:
        (firewall,) = self.ask(lambda client: tuple(client.firewalls.read_all("pop1")))
        return firewall

    def close(self) -> None:
        self.end_agent(signal.SIGKILL)
        self.service.kill()
        shutil.rmtree(self.state.parent)


FORWARDING = ("net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding")


def eventually(holds: Callable[[], bool], vnf: Vnf) -> None:
    until = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until, vnf.log.read_text()[-3000:]
        time.sleep(0.1)


@pytest.fixture(params=DRIVERS)
def vnf(request: pytest.FixtureRequest, layout: Layout, tmp_path: Path) -> Iterator[Vnf]:
    with Router(layout.prefix) as router:
        vnf = Vnf(router, tmp_path, request.param)
        try:
            vnf.inside(vnf.service.start)
            yield vnf
        finally:
            vnf.close()


@pytest.fixture
def packets(vnf: Vnf) -> list[Packet]:
    """Some at the corners of the policy, such as a router forwards."""
    some = corner_packets()
    return [packet for packet, came in zip(some, vnf.router.fire(some), strict=True) if came]


def wrong(vnf: Vnf, policy: Policy, packets: Sequence[Packet]) -> list[Packet]:
    came = vnf.router.fire(packets)
    return [each for each, through in zip(packets, came, strict=True) if through != decide(policy, each).permitted]


def test_the_life_of_a_firewall(vnf: Vnf, packets: list[Packet]) -> None:
    """Enrols, enforces, counts; killed, changed behind its back, rebooted without the service, put right again."""
    token = vnf.onboard()
    vnf.reboot()
    vnf.start_agent(token)
    generation = vnf.ask(lambda client: client.domains.read("pop1").generation)
    vnf.enforced(generation)
    assert vnf.is_forwarding()
    assert_is_not_root(vnf)
    assert wrong(vnf, WHOLE, packets) == []
    _counts_are_those_of_the_rules(vnf, packets)
    log_names_the_rules(vnf, packets)

    vnf.end_agent(signal.SIGTERM)  # asked to end, it leaves the filter as it is
    assert wrong(vnf, WHOLE, packets) == []
    generation = vnf.ask(lambda client: vnf.put(client, LESS))  # meanwhile
    assert wrong(vnf, WHOLE, packets) == []
    vnf.start_agent()
    vnf.enforced(generation)
    assert wrong(vnf, LESS, packets) == []

    vnf.service.kill()
    vnf.reboot()
    assert not any(vnf.router.fire(packets))
    vnf.start_agent()  # alone: it knows what it knew
    eventually(vnf.is_forwarding, vnf)
    eventually(lambda: wrong(vnf, LESS, packets) == [], vnf)

    for meddling in MEDDLINGS[:3]:
        vnf.meddle(meddling)
        eventually(lambda: wrong(vnf, LESS, packets) == [], vnf)
    vnf.inside(vnf.service.start)
    vnf.end_agent(signal.SIGKILL)  # the service has another port now
    vnf.start_agent()
    generation = vnf.ask(lambda client: vnf.put(client, WHOLE))
    vnf.enforced(generation)
    assert wrong(vnf, WHOLE, packets) == []
    eventually(lambda: vnf.load().load is not None, vnf)


def assert_is_not_root(vnf: Vnf) -> None:
    """Its user has no file of another's, and the rights that its unit says."""
    assert vnf.agent is not None
    if not is_readable_by_others():
        return
    status = Path(f"/proc/{vnf.agent.pid}/status").read_text().splitlines()
    said = dict(line.split(":\t", 1) for line in status if ":\t" in line)
    assert set(said["Uid"].split()) == set(said["Gid"].split()) == {USER}
    assert said["Groups"].split() == []
    rights = {int(said[name], 16) for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb")}
    assert [each.bit_count() for each in rights] == [
        len(settings_of(UNITS / "aclflow-agent.service")["AmbientCapabilities"][0].split())
    ]


def _counts_are_those_of_the_rules(vnf: Vnf, packets: Sequence[Packet]) -> None:
    """Once more, and exactly: what the counters grew by is what the oracle names, in number."""
    before = _by_kind(vnf)
    assert wrong(vnf, WHOLE, packets) == []
    grown = _by_kind(vnf) - before
    comments = [comment for packet in packets for comment in counted_under(WHOLE, decide(WHOLE, packet))]
    owners = [owner for comment in comments if (owner := read_comment(comment)) is not None]
    assert grown == Counter(kind for kind, _ in owners)
    # and the service is told of the tier of firewalls, from the first reading on that it knows of
    eventually(lambda: bool(vnf.router.fire(packets)) and _told(vnf) > 0, vnf)
    assert _told(vnf) <= _by_kind(vnf)[Kind.RULE]


def log_names_the_rules(vnf: Vnf, packets: Sequence[Packet]) -> None:
    """The rules that log have shown packets, each one that it decides, on this firewall; no other rule has."""
    decided = {(str(step.rule), packet) for packet in packets for step in decide(WHOLE, packet).steps}
    logging = {rule.id for rule in WHOLE.tenants[0].acl.rules if rule.log}
    wanted = {(rule, each.source, each.destination_port) for rule, each in decided if rule in logging}

    def reported() -> set[tuple[str, int, int]]:
        found = vnf.ask(lambda client: client.packet_log.read("shop"))
        assert {record["host"] for record in found} <= {"fw1"}
        return {(record["rule"], int(ip_address(record["source"])), record["destination_port"]) for record in found}

    eventually(lambda: {rule for rule, *_ in reported()} == {rule for rule, *_ in wanted}, vnf)
    assert reported() <= wanted


def _told(vnf: Vnf) -> int:
    lists = vnf.ask(lambda client: [client.hits.read(tenant.id, tier=Tier.SERVER.value) for tenant in WHOLE.tenants])
    return sum(rule.packets for hits in lists for rule in hits.rules)


def _by_kind(vnf: Vnf) -> Counter[int]:
    hits = vnf.filter().hits()
    counted: Counter[int] = Counter()
    for number, seen in zip(hits.cookie.tolist(), hits.packets.tolist(), strict=True):
        cookie = Cookie.unpack(number)
        assert cookie is not None
        assert cookie.tier is Tier.SERVER
        counted[cookie.kind] += seen
    return +counted


def test_a_firewall_that_never_got_a_program_forwards_nothing(vnf: Vnf, packets: list[Packet]) -> None:
    """Also where the copy on its disk is damaged, which it then says."""
    token = vnf.onboard()
    vnf.reboot()
    vnf.start_agent(token)
    vnf.enforced(vnf.ask(lambda client: client.domains.read("pop1").generation))
    vnf.end_agent(signal.SIGKILL)
    vnf.service.kill()
    vnf.reboot()
    (vnf.state / "program").write_bytes(b"ACLF\x02\x01 and then the disk failed")
    (vnf.state / "deltas").unlink(missing_ok=True)
    vnf.start_agent()
    eventually(vnf.is_forwarding, vnf)
    assert not any(vnf.router.fire(packets))
    assert any("damaged" in line for line in vnf.log.read_text().splitlines()), DAMAGED
    vnf.inside(vnf.service.start)
    vnf.end_agent(signal.SIGKILL)
    vnf.start_agent()
    eventually(lambda: wrong(vnf, WHOLE, packets) == [], vnf)


def test_legs_are_guarded_at_the_boot_by_a_unit_of_their_own(layout: Layout) -> None:
    """Nothing but the packet filter is there: no service, no state, no program."""
    rights = with_rights_of("aclflow-legs") if is_readable_by_others() else []
    agent = [sys.executable, "-m", "orchestrator.cli", "agent"]
    arguments = ["--driver", "iptables-nft", "--outside", "left", "--inside", "right", "--interface", "more", "--trial"]
    with Router(layout.prefix) as router:
        router.run(*rights, *agent, *arguments, "--guard-only")
        guarded = router.run("nft", "list", "table", "inet", "aclflow_legs")
        assert router.run("nft", "list", "tables").split() == ["table", "inet", "aclflow_legs"]
    assert re.search(r'iifname \{ "(left|right)", "(left|right)" \} drop', guarded)
    [among] = re.findall(r"iifname \{[^}]*\} oifname != \{([^}]*)\} drop", guarded)
    assert sorted(re.findall(r"\w+", among)) == ["left", "more", "right"]
