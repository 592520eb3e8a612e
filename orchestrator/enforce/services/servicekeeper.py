"""The loop of a host's services: repair the kernel, run the resolver, advertise the router.

answerer   answers frames all the time; what it says needs nothing but the frame
step       guards ▶ kernel ▶ resolver     at once when the port changes, and every few seconds
advertise  rows of the switch ▶ one advertisement for each endpoint that may ask for one

The addresses that a switch offers are read back from its table `admission`.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import structlog

from orchestrator.compile.cookies import MARK
from orchestrator.compile.pipelines.host import Table
from orchestrator.enforce.chores import Chore
from orchestrator.enforce.guardtable import GuardTable
from orchestrator.enforce.services.answerer import Answerer
from orchestrator.enforce.services.hostservices import NAMES_A_SECOND, RESOLVER, HostServices
from orchestrator.enforce.services.requestframes import Caller
from orchestrator.enforce.services.routers import advertisement
from orchestrator.enforce.services.serviceport import ServicesKernel
from orchestrator.enforce.stopsignal import Stopping
from orchestrator.enforce.uplink.monitors import KernelMonitor
from orchestrator.errors import AclflowError, Missing, Unreachable
from orchestrator.hosts.ovs import LocalSwitch
from orchestrator.policy.addresses import Family, parse_address, read_mac

_COOKIE = re.compile(r"\bcookie=0x([0-9a-f]+)")
_ASKS = re.compile(
    r"in_port=(?P<port>\d+),(?:.*,)?dl_src=(?P<mac>[0-9a-f:]{17}).* actions=.*"
    r"set_field:(?P<address>[0-9a-f.:]+)->(?:ip_dst|ipv6_dst)"
)
_OTHER_QUESTION = "udp6,"
"""Of IPv6 each endpoint has two rows, for DHCP and for a router; one of them is enough."""


def offers(lines: Iterable[str]) -> list[Caller]:
    """Return the endpoints that are offered an address, by port.

    `lines` are rows as `ovs-ofctl --no-names dump-flows` prints them. A row that aclflow did not write offers nothing.
    """
    found = []
    for line in lines:
        cookie, asks = _COOKIE.search(line), _ASKS.search(line)
        if cookie is None or asks is None or int(cookie[1], 16) >> 56 != MARK or _OTHER_QUESTION in line:
            continue
        family, address = parse_address(asks["address"])
        found.append(Caller(int(asks["port"]), read_mac(asks["mac"]), family, address))
    return sorted(found, key=lambda each: (each.port, each.family.value))


_PROGRAM = "/usr/sbin/dnsmasq"
_UNPRIVILEGED = (
    "setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "--inh-caps=+net_bind_service",
    "--ambient-caps=+net_bind_service", "--pdeathsig=KILL",
)  # fmt: skip
"""It reads what tenants send, so it may do nothing but listen; and it ends when we do, however that is."""
_PENDING = 100 * NAMES_A_SECOND
"""Names asked for and not answered yet: one endpoint at its limit, and silent resolvers, do not use them up."""

_CONNECTIONS = 500
"""Connections at once; dnsmasq ends one that is silent after two and a half minutes, and makes 20 by default."""


def dnsmasq_command(services: HostServices) -> Iterator[str]:
    """Yield the words of the command that starts dnsmasq.

    It reads no file of the machine but /etc/resolv.conf, if that.
    """
    yield from _UNPRIVILEGED
    yield from (_PROGRAM, "--keep-in-foreground", "--conf-file=/dev/null", "--log-facility=-", "--pid-file=")
    yield from (f"--listen-address={address}" for address in RESOLVER.values())
    yield from ("--bind-interfaces", "--no-hosts", "--no-dhcp-interface=*", "--cache-size=2000")
    yield from (f"--dns-forward-max={_PENDING}", f"--max-tcp-connections={_CONNECTIONS}")
    if services.servers:
        yield "--no-resolv"
        yield from (f"--server={server}" for server in services.servers)


@dataclass(slots=True)
class Resolver:
    """One dnsmasq, started again whenever it is not there."""

    services: HostServices
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def look(self) -> bool:
        """Start it if it does not run; return whether it did not. Raises Missing."""
        if self._process is not None and self._process.poll() is None:
            return False
        if not Path(_PROGRAM).exists():
            raise Missing("the program 'dnsmasq' is not installed: apt-get install dnsmasq-base")
        try:
            self._process = subprocess.Popen(list(dnsmasq_command(self.services)), stdin=subprocess.DEVNULL)
        except OSError as error:
            raise Missing(f"the program 'setpriv' cannot be run: {error.strerror}") from None
        return True

    @property
    def is_running(self) -> bool:
        """Whether it runs now."""
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """End the resolver's process."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(2.0)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


log = structlog.get_logger()

LOOK_EVERY_S = 2.0
ADVERTISE_EVERY_S = 300.0
_SETTLE_S = 0.01


class Kernel(Protocol):
    """The addresses and routes of the port."""

    def follow(self) -> tuple[str, ...]:
        """Have all as it must be; return in words what was not so."""
        ...


class Names(Protocol):
    """The resolver of names."""

    def look(self) -> bool:
        """Start it if it does not run; return whether it did not."""
        ...


@dataclass(slots=True)
class ServicesKeeper:
    """Keeps the services of one host. Steps are taken one at a time."""

    kernel: Kernel
    guards: tuple[GuardTable, ...]
    names: Names
    _said: str = field(default="", init=False)

    def step(self) -> tuple[str, ...]:
        """Look at everything and set right what differs; return in words what that was.

        The guards come first: without them the host's own addresses would be open to what comes by the port. Raises
        what any of these raises.
        """
        repaired = [f"the guard of {guard.family}" for guard in self.guards if guard.look()]
        repaired += self.kernel.follow()
        if self.names.look():
            repaired.append("dnsmasq")
        return tuple(repaired)

    def step_and_log(self) -> None:
        """Take a step; log what changed, and each trouble once."""
        try:
            repaired, trouble = self.step(), ""
        except AclflowError as error:
            repaired, trouble = (), str(error)
        if trouble != self._said:
            if trouble:
                log.warning("services.trouble", trouble=trouble)
            else:
                log.info("services.well")
        self._said = trouble
        if repaired:
            log.info("services.changed", repaired=list(repaired))


@dataclass(frozen=True, slots=True)
class Advertiser:
    """Tells endpoints of their router before they forget it."""

    switch: LocalSwitch
    bridge: str
    answerer: Answerer

    def advertise(self) -> None:
        """Send each endpoint one advertisement. Raises Unreachable while there is no switch or port."""
        found = offers(self.switch.flows(self.bridge, Table.ADMISSION))
        frames = [advertisement(each, self.answerer.services) for each in found if each.family is Family.IPV6]
        try:
            self.answerer.send(frames)
        except OSError as error:
            raise Unreachable(f"no advertisement can be sent by {self.answerer.services.port}: {error}") from None


def keep_services(services: HostServices, switch: LocalSwitch, bridge: str, stopping: Stopping) -> None:
    """Run a host's services until asked to stop.

    Then nobody is answered, and the guards stay. Raises Missing where a right lacks.
    """
    answerer, resolver = Answerer(services), Resolver(services)
    keeper = ServicesKeeper(ServicesKernel(services.port), services.guards(), resolver)
    look = Chore("services", keeper.step_and_log, LOOK_EVERY_S, settle_s=_SETTLE_S)
    advertise = Chore("advertise", Advertiser(switch, bridge, answerer).advertise, ADVERTISE_EVERY_S)
    monitor = KernelMonitor(services.port, look.poke)
    for each in (monitor, answerer, look, advertise):
        each.start()
    try:
        stopping.wait()
    finally:
        for each in (advertise, look, answerer, monitor):
            each.stop()
        resolver.stop()


def remove_services(services: HostServices) -> None:
    """Take addresses, routes and the guards away; the guards last."""
    ServicesKernel(services.port).close()
    for guard in services.guards():
        GuardTable(guard.name, (), guard.run, guard.family, guard.is_counting).close()
