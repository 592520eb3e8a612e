"""Hand a domain's programs to those who watch, and have missing ones made.

a host's switch      the program for hosts, of every domain
firewalls, edges     their tier's, where the domain has it
a firewall server    its own, of the domain's PoP
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from orchestrator.control.controlloop import CatchingUp
from orchestrator.control.duties import Duties, IdleHosts
from orchestrator.control.pops.manager import key_of, require_server
from orchestrator.control.publisher import Answer, Held, Publisher
from orchestrator.control.staging import Staging
from orchestrator.control.tiers import Tiers, require
from orchestrator.control.units import Units
from orchestrator.program.program import Tier


class Watches:
    """Hands out programs. A domain that is watched is followed here (`duties.py`).

    `make_now` makes a domain's newest programs, or raises Busy.
    """

    def __init__(
        self,
        units: Units,
        loop: CatchingUp,
        publisher: Publisher,
        tiers: Tiers,
        staging: Staging,
        idle_hosts: IdleHosts,
        duties: Duties,
        make_now: Callable[[str], None],
    ) -> None:
        self._units = units
        self._loop = loop
        self._publisher = publisher
        self._tiers = tiers
        self._staging = staging
        self._idle_hosts = idle_hosts
        self._duties = duties
        self._make_now = make_now

    async def watch(
        self,
        domain: str,
        held: Held | None,
        wait_s: float,
        *,
        stored_generation: int,
        tier: Tier = Tier.HOST,
        server: str | None = None,
    ) -> Answer | None:
        """Wait for a program newer than `held` and not older than the store.

        See `Publisher.watch`. `server` names a firewall server of the domain's PoP, which has a program of its own.

        Raises NotFound for the tier of firewalls where the domain has none, and for that of edges without a PoP.
        """
        is_first = not self._duties.is_followed(domain)
        with self._duties.following(domain):
            if is_first and server is not None:  # its programs are not compared with the store's generation
                await asyncio.to_thread(self._make_now, domain)
            return await self._watch_program(domain, held, wait_s, stored_generation, tier, server)

    async def _watch_program(
        self, domain: str, held: Held | None, wait_s: float, stored_generation: int, tier: Tier, server: str | None
    ) -> Answer | None:
        if server is not None:
            await asyncio.to_thread(self._units.read, lambda unit: require_server(unit, domain, server))
            publisher, key = self._tiers.servers.publisher, key_of(domain, server)
            if publisher.program(key) is None:
                self._loop.look_at(domain)
            return await publisher.watch(key, held, wait_s)
        if tier is not Tier.HOST:
            await asyncio.to_thread(self._check_tier, tier, domain, stored_generation)
            return await self._tiers.publisher(tier).watch(domain, held, wait_s, at_least=lambda: stored_generation)

        def find_due() -> int:
            return self._staging.due(domain, stored_generation)

        program = self._publisher.program(domain)
        if self._idle_hosts.follow(domain) or program is None or program.generation < find_due():
            self._loop.look_at(domain, first=True)
        return await self._publisher.watch(domain, held, wait_s, at_least=find_due)

    def _check_tier(self, tier: Tier, domain: str, stored_generation: int) -> None:
        """Make a tier's program where it is behind.

        Raises NotFound where the domain does not have the tier.
        """
        program = self._tiers.publisher(tier).program(domain)
        if program is None:
            self._units.read(lambda unit: require(unit, tier, domain))
        if program is None or program.generation < stored_generation:
            self._loop.look_at(domain, first=True)

    async def follow(
        self,
        domain: str,
        held: Held | None,
        lasts_s: float,
        *,
        heartbeat_s: float,
        stored_generation: int,
        tier: Tier = Tier.HOST,
        server: str | None = None,
    ) -> AsyncIterator[Answer | None]:
        """Yield programs newer than `held` as they come; see `Publisher.follow`.

        Raises as `watch`, Busy while there is no program yet.
        """
        first = await self.watch(domain, held, 0.0, stored_generation=stored_generation, tier=tier, server=server)
        if server is not None:
            servers = self._tiers.servers.publisher
            found = servers.follow(key_of(domain, server), first, held, lasts_s, heartbeat_s=heartbeat_s)
        else:
            publisher = self._publisher if tier is Tier.HOST else self._tiers.publisher(tier)
            found = publisher.follow(domain, first, held, lasts_s, heartbeat_s=heartbeat_s)
        return self._mark_followed(domain, found)

    async def _mark_followed(self, domain: str, found: AsyncIterator[Answer | None]) -> AsyncIterator[Answer | None]:
        with self._duties.following(domain):
            async for each in found:
                yield each
