"""The measured firewall servers, programmed by the agent's own driver."""

from __future__ import annotations

import ipaddress
from functools import partial

from orchestrator.bench.pop.links import Links, server
from orchestrator.bench.pop.world import World
from orchestrator.compile.servers.programs import Ask, Peer, ServerCompiler
from orchestrator.compile.servers.tenants import TenantCompiler
from orchestrator.enforce import gap
from orchestrator.enforce.drivers.nftables.served import ServedDriver, served_driver
from orchestrator.errors import Drifted
from orchestrator.lab.popswitch import rehome_addresses
from orchestrator.policy.prefilter import Misdirect
from orchestrator.program.program import Program


class FirewallServers:
    """All servers of a point of presence, each a forwarding kernel in a namespace."""

    def __init__(self, links: Links) -> None:
        self._links = links
        tenants = TenantCompiler()
        self._compilers = {number: ServerCompiler(server(number), tenants) for number in links.numbers}
        self._drivers = {number: served_driver() for number in links.numbers}
        self._generation = 0

    def load(self, world: World, misdirect: Misdirect) -> None:
        """Load every server's share of the world.

        Raises Drifted where one does not hold it in the end.
        """
        self._generation += 1
        peers = list(map(_peer, self._links.numbers))
        for number, driver in self._drivers.items():
            others = tuple(peer for peer in peers if peer.number != number)
            asked = Ask(world.share(number, misdirect), others)
            program, _ = self._compilers[number].program(world.policy, asked, self._generation)
            wrong = self._links.inside(server(number), partial(_put, driver, program))
            if wrong is not None:
                raise Drifted(f"server {number}: {wrong}")


def _peer(number: int) -> Peer:
    """A server where servers meet, in both IP versions."""
    return Peer(number, tuple(ipaddress.ip_address(address) for address, _ in rehome_addresses(number)))


def _put(driver: ServedDriver, program: Program) -> str | None:
    """Bring a server to a program; what it does not hold afterwards."""
    stamp = gap.stamp_of(program)
    driver.apply(gap.correction(driver.observe(), program, driver.resolve), stamp)
    wrong = gap.mismatch(driver.observe(), driver.resolve(program.flows, program.ports), stamp)
    return None if wrong is None else wrong.text
