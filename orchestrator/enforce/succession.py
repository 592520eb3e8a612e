"""Which of a domain's switches a controller leads, where several share them.

Controllers do not speak with each other. Each asks the service who leads (`Leading`): who reported of a switch last,
and whether that one is still heard. It takes a switch with a new epoch, above all that were given out before; the
switch itself then refuses the one before (OpenFlow's roles), so no two ever write, whatever each believes.

    starts           leads its share of all switches, those of others that live included
    a switch comes   its share decides, by what was known of the others last
    nobody leads one, and it is connected here as a standby
                     whose share it is takes it, seen twice `CONFIRM_S` apart; anybody else `OTHERS_FIRST_S` later
    leads none       takes its share after `IDLE_S`: it was started together with another one

A share is the part of the hosts for which a controller comes first among those that live, by a hash of both names
(rendezvous hashing): where one dies, the others get its hosts in equal parts, and nothing else moves. One that loses a
switch stands by, and gives nothing back by itself.

A controller says at least every `SIGN_OF_LIFE_S` that it lives, which the service notes once a second; after
`SILENCE_S` it is taken for dead. So its switches are led again after `SILENCE_S`, two looks, and the time that it takes
to claim them and read them back: within 5 s.

Where the service was away, or its store so busy that an epoch took long, it may have heard nobody: then nothing is
taken for `AFTER_OUTAGE_S`, in which all who live have said so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, field
from hashlib import blake2b

from orchestrator.wire.points import Leading

SIGN_OF_LIFE_S = 0.8
SILENCE_S = 2.5
LOOK_AGAIN_S = 0.5
CONFIRM_S = 0.4
"""Between two looks, which are never closer."""
OTHERS_FIRST_S = 1.0
IDLE_S = 10.0
AFTER_OUTAGE_S = 8.0
"""Reports that failed are tried again within 5 s."""
LONG_S = 1.0
"""An epoch that takes longer came from a service that was busy."""

Share = Callable[[str], bool]
"""Whether a host is of one's share."""


def lead_all(_host: str) -> bool:
    """The share of a controller that has no other beside it."""
    return True


def share_of(enforcer: int, leaders: Iterable[int]) -> Share:
    """Return a controller's share among those that lead, itself included."""
    others = {*leaders} - {enforcer}

    def is_first(host: str) -> bool:
        mine = _weigh(enforcer, host)
        return all(_weigh(other, host) < mine for other in others)

    return is_first


def _weigh(enforcer: int, host: str) -> tuple[bytes, int]:
    """Return a hash by which controllers share switches in equal parts."""
    return blake2b(f"{enforcer} {host}".encode(), digest_size=8).digest(), enforcer


@dataclass(slots=True)
class Succession:
    """Switches that nobody leads, as one controller has seen them."""

    enforcer: int
    _unled_since: dict[str, float] = field(default_factory=dict)
    _idle_since: float | None = None
    _is_blind: bool = False
    _sees_since: float | None = None

    def lose_sight(self) -> None:
        """Take nothing for a while: the service may have heard nobody.

        It was away or busy.
        """
        self._unled_since, self._idle_since = {}, None
        self._is_blind, self._sees_since = True, None

    def choose_hosts(self, seen: Leading, standing_by: Set[str], leads_any: bool, now: float) -> frozenset[str]:
        """Return the hosts to take, among those connected here that we do not lead.

        `leads_any`: whether we lead any. `now` is of one monotonic clock.
        """
        if self._is_blind:
            self._sees_since = now if self._sees_since is None else self._sees_since
            self._is_blind = now - self._sees_since < AFTER_OUTAGE_S
            return frozenset()
        is_mine = share_of(self.enforcer, seen.leaders)
        unled = standing_by & set(seen.unled)
        self._unled_since = {host: self._unled_since.get(host, now) for host in unled}
        self._idle_since = None if leads_any else now if self._idle_since is None else self._idle_since
        if self._idle_since is not None and now - self._idle_since >= IDLE_S:
            return frozenset(filter(is_mine, standing_by))
        return frozenset(
            host
            for host, since in self._unled_since.items()
            if now - since >= CONFIRM_S + (0.0 if is_mine(host) else OTHERS_FIRST_S)
        )
