"""Alarms about hosts, and about who claims to be one."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence

from orchestrator.control.metrics import Metrics
from orchestrator.identity.names import SPREADING_SWITCH
from orchestrator.store import Store
from orchestrator.store.unit import Unit
from orchestrator.wire.points import Impostor

_AGAIN = dt.timedelta(minutes=10)
"""Impostors that go on at a host are an event again after this time."""
_MOST = 100
"""So many hosts of a domain are events of one kind in that time: more would push out what else happened there."""

Appended = Mapping[tuple[str, str], dt.datetime]
"""When an event was appended, by domain and host."""


class HostAlarm:
    """Events of one kind about hosts: few in ten minutes, and one a host.

    Pass to `note` what `append` returns, once the transaction is committed.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._appended: dict[tuple[str, str], dt.datetime] = {}

    def append(self, unit: Unit, domain: str, found: Mapping[str, Mapping[str, object]]) -> Appended:
        """Append events with details, by host, unless that was done lately; return which were appended."""
        if not found:
            return {}
        lately = {host for (of, host), at in tuple(self._appended.items()) if of == domain and unit.now - at < _AGAIN}
        due = [host for host in found if host not in lately][: max(_MOST - len(lately), 0)]
        for host in due:
            unit.events.append(self._kind, domain, {"host": host, **found[host]})
        return {(domain, host): unit.now for host in due}

    def note(self, appended: Appended) -> None:
        """Note that these events are committed, and forget those that say nothing any more."""
        if not appended:
            return
        now = max(appended.values())
        for key, at in tuple(self._appended.items()):
            if now - at >= _AGAIN:
                self._appended.pop(key, None)
        self._appended.update(appended)


class ImpostorDesk:
    """Takes reports of connections as switches of hosts that they are not."""

    def __init__(self, store: Store, metrics: Metrics) -> None:
        self._store = store
        self._metrics = metrics
        self._alarm = HostAlarm("host.impersonated")

    def take(self, domain: str, enforcer: int, epoch: int | None, impostors: Sequence[Impostor]) -> None:
        """Append an event for each host of the domain, in a transaction.

        Raises NotFound, Conflict, Forbidden (a host of somebody else's).
        """
        named = {each.host for each in impostors}
        with self._store.write(part=f"impostors {domain}") as unit:
            unit.enforcers.check_epoch(enforcer, epoch)
            known = unit.enforcers.check_hosts(enforcer, named, place="impostors")
            if SPREADING_SWITCH in named - known:
                unit.enforcers.scope(enforcer).check_spread()
                known |= {SPREADING_SWITCH}
            found = [each for each in impostors if each.host in known]
            appended = self._alarm.append(unit, domain, {each.host: _describe(each) for each in found})
        self._alarm.note(appended)
        self._metrics.count_impostors(len(found))


def _describe(impostor: Impostor) -> Mapping[str, object]:
    """Return the details of an event: its origin, and why it is not believed."""
    return {
        "address": impostor.address,
        **({"holder": impostor.holder} if impostor.holder is not None else {}),
        **({"certificate": list(impostor.certificate)} if impostor.certificate else {}),
    }
