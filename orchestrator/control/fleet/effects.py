"""Ask the cloud until it is done, and turn its errors into VNFs' states.

TryAgain                      asked again later, less and less often while it goes on so
over a quota, refused, wrong credentials, something missing       the VNFs that were asked for have failed, and say why
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import structlog

from orchestrator.cloud.base import Cloud, VnfOrder, VnfState
from orchestrator.control.fleet.vnfinputs import Sky
from orchestrator.control.units import Units
from orchestrator.errors import AclflowError, TryAgain
from orchestrator.store.firewalls.fleetrecords import Member
from orchestrator.store.unit import Unit

log = structlog.get_logger()

_TOKEN_LASTS = dt.timedelta(minutes=15)
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 15.0
AUTHOR = "fleet"


@dataclass(slots=True)
class _Pause:
    """How long a fleet's cloud is left alone after it did not answer."""

    until_s: float
    wait_s: float


@dataclass
class CloudHand:
    """Orders VNFs of a cloud and has them removed.

    `url`: where their agents find the service.
    """

    cloud: Cloud
    url: str
    token_text: Callable[[str], str] = str
    """How an enrolment token is told: with the fingerprint of the service's authority, where it has one."""
    ticks: Callable[[], float] = time.monotonic
    _pauses: dict[str, _Pause] = field(default_factory=dict)

    def create(self, units: Units, members: Sequence[Member]) -> str | None:
        """Order VNFs of one fleet; return the reason if the cloud refuses for good."""
        fleet = members[0].domain
        if self._is_paused(fleet):
            return None
        orders = units.write(lambda unit: [self._order(unit, member) for member in members], domain=fleet)
        return self._ask_cloud(fleet, "create", lambda: self.cloud.create(orders))

    def delete(self, fleet: str, names: Sequence[str]) -> str | None:
        """Have VNFs of one fleet removed; why that cannot be, where the cloud says so."""
        if self._is_paused(fleet):
            return None
        return self._ask_cloud(fleet, "delete", lambda: self.cloud.delete(fleet, names))

    def _order(self, unit: Unit, member: Member) -> VnfOrder:
        """Return what the cloud is to make for a VNF.

        The token is another each time, for one that got lost cannot be told again.
        """
        kind = member.plane.value
        expires = unit.now + _TOKEN_LASTS
        token = unit.enforcers.invite(member.domain, expires=expires, author=AUTHOR, name=member.name, kind=kind)
        return VnfOrder(member.domain, member.name, member.number, member.plane, self.url, self.token_text(token))

    def _ask_cloud(self, fleet: str, verb: str, ask: Callable[[], None]) -> str | None:
        try:
            ask()
        except TryAgain as error:
            before = self._pauses.get(fleet)
            wait_s = _FIRST_WAIT_S if before is None else min(2 * before.wait_s, _LONGEST_WAIT_S)
            self._pauses[fleet] = _Pause(self.ticks() + wait_s, wait_s)
            log.warning("fleet.cloud_waits", fleet=fleet, asked=verb, error=str(error), again_in_s=wait_s)
            return None
        except AclflowError as error:
            log.warning("fleet.cloud_refuses", fleet=fleet, asked=verb, error=str(error))
            return str(error)
        self._pauses.pop(fleet, None)
        return None

    def _is_paused(self, fleet: str) -> bool:
        pause = self._pauses.get(fleet)
        return pause is not None and self.ticks() < pause.until_s


Key = tuple[str, str]


class Sweep:
    """Removes what a cloud has of ours without an owner, and reports it.

    An orphan comes of an answer that was lost and of a row that was given up meanwhile, of a database that was put
    back, of somebody who changed a group of VNFs by hand. The cloud's list is read before the rows are, and a row is
    written before the cloud is asked: so what is in the list and has no row is wanted by nobody. It must be seen so for
    a while all the same, for removing what carries traffic is not mended by seeing better a moment later.
    """

    def __init__(self, hand: CloudHand, after_s: float, ticks: Callable[[], float]) -> None:
        self._hand = hand
        self._after_s = after_s
        self._ticks = ticks
        self._since: dict[Key, float] = {}
        self._told: set[Key] = set()

    def swept(self, units: Units, sky: Sky) -> None:
        """Have removed what was an orphan for long enough."""
        if sky.vnfs is None:
            return
        owned = units.read(lambda unit: unit.fleets.names())
        ours = {key: vnf for key, vnf in sky.vnfs.items() if not vnf.autonomous}
        orphans = {key for key, vnf in ours.items() if key not in owned and vnf.state is not VnfState.LEAVING}
        now_s = self._ticks()
        self._since = {key: self._since.get(key, now_s) for key in orphans}
        self._told &= orphans
        due = sorted(key for key, since_s in self._since.items() if now_s - since_s >= self._after_s)
        for fleet, keys in groupby(due, key=lambda key: key[0]):
            self._remove_orphans(units, fleet, list(keys))

    def _remove_orphans(self, units: Units, fleet: str, keys: Sequence[Key]) -> None:
        new = [name for key in keys if key not in self._told for name in key[1:]]
        if new:
            units.write(lambda unit: _tell_orphans(unit, fleet, new), domain=fleet)
            log.warning("vnf.orphan", fleet=fleet, names=new)
        self._told.update(keys)
        self._hand.delete(fleet, [name for _, name in keys])


def _tell_orphans(unit: Unit, fleet: str, names: Sequence[str]) -> None:
    """Log an event about the cloud's VNFs that the fleet does not know."""
    unit.events.append("vnf.orphan", fleet, {"names": list(names)})
