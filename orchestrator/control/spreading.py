"""Spread a domain's traffic over its firewalls: decide the buckets of serving members.

    set_members ──▶ assign (`scaling/buckets.py`) ──▶ the store ──▶ the switch's program ──▶ whoever follows it
    enforced    ◀── the store ◀── what the switch's controller read back

A spread has generations of its own, apart from the policy's: a firewall that comes or goes changes no rule.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence

from orchestrator.compile.spreadprogram import Member, MemberState, Spread, spread_program
from orchestrator.control.firewalls import check_sharing, check_tracking
from orchestrator.control.publisher import Answer, Held, Publisher
from orchestrator.errors import TryAgain
from orchestrator.scaling.buckets import NOBODY, assign, count_moved, share
from orchestrator.store import Store
from orchestrator.store.firewalls.spreads import SpreadRecord
from orchestrator.store.transaction import domain_part

LOOK_EVERY_S = 0.5
"""How often who waits for a newer spread looks for one that another replica of the service has stored."""


_NOTHING = SpreadRecord(Spread((), NOBODY), 0)


class Spreading:
    """Every domain's spread. Safe between threads."""

    def __init__(self, store: Store, publisher: Publisher) -> None:
        self.publisher = publisher
        self._store = store

    def set_members(
        self,
        domain: str,
        members: Sequence[Member],
        *,
        stateful: bool = False,
        synchronised: bool = False,
        check: Callable[[SpreadRecord | None], None] = lambda known: None,  # noqa: ARG005
    ) -> int:
        """Have these firewalls and no others carry the traffic; return the generation.

        The same members again change nothing. With none nothing passes. `check` is given what was there before, and
        may raise. Raises NotFound (domain), BadInput for members that do not go together, and BadPolicy for a rule that
        its firewalls cannot carry once they see both directions of connections, or share these.
        """
        with self._store.write(part=domain_part(domain)) as unit:
            known = unit.spreads.find(domain)
            check(known)
            if synchronised:
                check_sharing(unit, domain)
            elif stateful:
                check_tracking(unit, domain)
            before = known.spread if known is not None else Spread((), NOBODY, stateful, synchronised)
            spread = _after(before, tuple(members), stateful=stateful, synchronised=synchronised)
            generation = unit.spreads.put(domain, spread)
            if known is None or generation != known.generation:
                unit.events.append(
                    "spread.changed", domain, _event_detail(spread, count_moved(before.owners, spread.owners))
                )
        self._publish_spread(domain, SpreadRecord(spread, generation))
        return generation

    def current(self, domain: str) -> SpreadRecord | None:
        """How a domain's traffic is spread; None where it is not."""
        with self._store.read() as unit:
            return unit.spreads.find(domain)

    def report(self, domain: str, enforcer: int, generation: int, trouble: str | None) -> None:
        """Record the spread switch's read-back.

        Raises Forbidden for anybody but its controller.
        """
        with self._store.write(part=domain_part(domain)) as unit:
            unit.enforcers.scope(enforcer).check_spread()
            unit.spreads.report(domain, generation, trouble)

    def report_links(self, domain: str, enforcer: int, down: Collection[str]) -> None:
        """Record which interfaces the spread switch finds down.

        A firewall that it gives up, or hears again, is an event. Raises Forbidden for anybody but its controller.
        """
        with self._store.write(part=domain_part(domain)) as unit:
            unit.enforcers.scope(enforcer).check_spread()
            changed = unit.spreads.report_links(domain, down)
            if changed is None:
                return
            before, after = ({*each.given_up} for each in changed)
            carrying = [each for each in share(changed[1].spread.owners) if each not in after]
            for name in sorted(after - before):
                unit.events.append("firewall.given-up", domain, {"firewall": name, "carrying": carrying})
            for name in sorted(before - after):
                unit.events.append("firewall.heard", domain, {"firewall": name})

    def drop(self, domain: str) -> None:
        """Forget a domain that is no more."""
        self.publisher.drop(domain)

    async def watch(self, domain: str, held: Held | None, wait_s: float) -> Answer | None:
        """Wait for a program newer than `held`; None after `wait_s`.

        Where a domain's traffic was never spread, nothing passes the switch: that is generation 0.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_s
        while True:
            left = until - loop.time()
            found = await self._watch_program(domain, held, max(0.0, min(left, LOOK_EVERY_S)))
            if found is not None or left <= LOOK_EVERY_S:
                return found

    async def _watch_program(self, domain: str, held: Held | None, wait_s: float) -> Answer | None:
        stored = await asyncio.to_thread(self._refresh, domain, held)
        return await self.publisher.watch(domain, held, wait_s, at_least=lambda: stored)

    async def follow(
        self, domain: str, held: Held | None, lasts_s: float, *, heartbeat_s: float
    ) -> AsyncIterator[Answer | None]:
        """Yield programs newer than `held` as they come; None is a heartbeat."""
        first = await self.watch(domain, held, 0.0)
        return self._follow_program(domain, first, held, lasts_s, heartbeat_s)

    async def _follow_program(
        self, domain: str, first: Answer | None, held: Held | None, lasts_s: float, heartbeat_s: float
    ) -> AsyncIterator[Answer | None]:
        loop = asyncio.get_running_loop()
        ends, found = loop.time() + lasts_s, first
        while True:
            yield found
            held = found.held if found is not None else held
            left = ends - loop.time()
            if left <= 0:
                return
            try:
                found = await self.watch(domain, held, min(left, heartbeat_s))
            except TryAgain:  # the database is away: who follows asks again
                return

    def _refresh(self, domain: str, held: Held | None) -> int:
        """Publish the newest spread; return its generation.

        A switch that holds a later generation has it from before the database was put back: then the spread goes beyond
        it.
        """
        found = self.current(domain) or _NOTHING
        if held is not None and held.generation is not None and held.generation > found.generation:
            with self._store.write(part=domain_part(domain)) as unit:
                generation = unit.spreads.put(domain, found.spread, at_least=held.generation)
            found = SpreadRecord(found.spread, generation)
        self._publish_spread(domain, found)
        return found.generation

    def _publish_spread(self, domain: str, record: SpreadRecord) -> None:
        published = self.publisher.program(domain)
        if published is None or published.generation < record.generation:
            self.publisher.publish(spread_program(record.spread, domain=domain, generation=record.generation))


def _event_detail(spread: Spread, moves: int) -> dict[str, object]:
    """Return the log's detail of a new spread."""
    return {"shares": dict(share(spread.owners)), "moved": moves}


def _after(before: Spread, members: tuple[Member, ...], *, stateful: bool, synchronised: bool) -> Spread:
    """How traffic is spread over these members after it was spread as before."""
    owners = assign(before.owners, {each.name: each.weight for each in members if each.state is MemberState.SERVING})
    return Spread(members, owners, stateful, synchronised)
