"""Each domain's spread of traffic over firewalls, and its spread switch's progress."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson
from sqlalchemy import select, update

from orchestrator.compile.spreadprogram import Member, MemberState, Side, Spread
from orchestrator.policy.model import ReturnTraffic
from orchestrator.store.schema.firewalls import spreads
from orchestrator.store.transaction import Transaction

_LONGEST_TROUBLE = 1024


@dataclass(frozen=True, slots=True)
class SpreadRecord:
    """A domain's spread at its generation.

    `enforced`: the newest generation that the switch was read back at (0: none yet); `trouble`: the last error of the
    switch's controller.
    """

    spread: Spread
    generation: int
    enforced: int = 0
    trouble: str | None = None
    down: frozenset[str] = frozenset()
    """The interfaces that the switch finds down, as far as they are firewalls'."""

    @property
    def given_up(self) -> tuple[str, ...]:
        """The firewalls that the switch has given up, where it decides that by itself."""
        if not self.spread.synchronised:
            return ()
        return tuple(each.name for each in self.spread.members if self.down & {each.left.port, each.right.port})


class Spreads:
    """The spreads' repository."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def find(self, domain: str) -> SpreadRecord | None:
        """How a domain's traffic is spread; None where it is not."""
        row = self._tx.read(select(spreads).where(spreads.c.domain == domain)).one_or_none()
        if row is None:
            return None
        spread, down = _read_spread(orjson.loads(row.body)), frozenset(orjson.loads(row.down))
        return SpreadRecord(spread, row.generation, row.enforced, row.trouble, down)

    def put(self, domain: str, spread: Spread, *, at_least: int = 0) -> int:
        """Set a domain's spread; return the generation, a new one if it changed.

        A generation of `at_least` is known out there already, as after a restored backup: the new one is beyond it.
        Where the domain tracks connections and its firewalls begin or cease to see both directions of them, or where
        they begin or cease to share them, they get another program: then the domain's generation moves, too. Raises
        NotFound.
        """
        policy = self._tx.domain(domain)
        known = self.find(domain)
        if known is not None and known.spread == spread and known.generation >= at_least:
            return known.generation
        generation = max(known.generation if known is not None else 0, at_least) + 1
        body = orjson.dumps(_write_spread(spread)).decode()
        values = {"generation": generation, "body": body}
        row = self._tx.upsert(spreads).values({"domain": domain, "enforced": 0, "trouble": None, **values})
        self._tx.write(row.on_conflict_do_update(index_elements=["domain"], set_=values))
        before = known.spread if known is not None else None
        saw, shared = (before.shows_connections, before.synchronised) if before is not None else (False, False)
        tracks_anew = saw is not spread.shows_connections and policy.return_traffic == ReturnTraffic.TRACKED.value
        if tracks_anew or shared is not spread.synchronised:
            self._tx.bump_for_hosts(domain)
        return generation

    def report(self, domain: str, generation: int, trouble: str | None) -> None:
        """Record the generation that the spread switch was read back at.

        0 means none that is known; it never goes back.
        """
        known = self.find(domain)
        if known is None:
            return
        enforced = min(max(known.enforced, generation), known.generation)
        words = trouble and trouble[:_LONGEST_TROUBLE]
        if (enforced, words) != (known.enforced, known.trouble):
            self._tx.write(update(spreads).where(spreads.c.domain == domain).values(enforced=enforced, trouble=words))

    def report_links(self, domain: str, down: Collection[str]) -> tuple[SpreadRecord, SpreadRecord] | None:
        """Record the interfaces that the spread switch finds down; return the spread before and after.

        Interfaces that are no firewall's are passed over. None where nothing is new, or nothing is spread.
        """
        known = self.find(domain)
        if known is None:
            return None
        ports = {side.port for each in known.spread.members for side in (each.left, each.right)}
        now = frozenset(down) & ports
        if now == known.down:
            return None
        text = orjson.dumps(sorted(now)).decode()
        self._tx.write(update(spreads).where(spreads.c.domain == domain).values(down=text))
        return known, replace(known, down=now)


def _write_spread(spread: Spread) -> dict[str, object]:
    numbers = {each.name: index for index, each in enumerate(spread.members)}
    return {
        "members": [
            {
                "name": each.name,
                "number": each.number,
                "left": [each.left.port, each.left.mac],
                "right": [each.right.port, each.right.mac],
                "state": each.state.value,
                "weight": each.weight,
            }
            for each in spread.members
        ],
        "owners": [None if owner is None else numbers[owner] for owner in spread.owners],
        "stateful": spread.stateful,
        "synchronised": spread.synchronised,
    }


def _read_spread(body: Mapping[str, Any]) -> Spread:
    members = tuple(
        Member(
            each["name"], each["number"], Side(*each["left"]), Side(*each["right"]), MemberState(each["state"]),
            each["weight"],
        )
        for each in body["members"]
    )  # fmt: skip
    owners = tuple(None if index is None else members[index].name for index in body["owners"])
    return Spread(members, owners, body["stateful"], body.get("synchronised", False))
