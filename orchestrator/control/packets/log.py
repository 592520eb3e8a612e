"""Take packets from enforcement points, name rule and tenant, store and pass on.

A report names rows by their cookies; which rule that is, the newest policy says. A packet of a rule that is gone, or
that does not log any more, is dropped: its tenant no longer asks for it.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Protocol

import structlog

from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.policy.listed import find_replaced
from orchestrator.policy.model import Action, Direction, Policy, Rule
from orchestrator.program.sightings import Sighting, Sightings
from orchestrator.store import Store
from orchestrator.store.packetlog import LoggedPacket
from orchestrator.store.records import PolicySnapshot

log = structlog.get_logger()

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class PacketSink(Protocol):
    """Receives records besides the store.

    It never raises.
    """

    def write(self, domain: str, records: Sequence[LoggedPacket]) -> None:
        """Take records of a domain."""
        ...


@dataclass(frozen=True, slots=True)
class _Spoken:
    """The rule and tenant of a cookie."""

    tenant: str | None
    rule: str
    action: Action
    direction: Direction | None


class PacketDesk:
    """Reports of packets, each in a transaction of its own. Safe between threads."""

    def __init__(self, store: Store, sinks: Sequence[PacketSink] = ()) -> None:
        self._store = store
        self._sinks = tuple(sinks)
        self._lock = threading.Lock()
        self._names: dict[str, LoggedRules] = {}

    def take(self, domain: str, enforcer: int, report: Sightings) -> int:
        """Store packets once and pass them on; return the number of records.

        Raises NotFound, Busy, Forbidden.
        """
        with self._store.write(part="packets") as unit:
            hosts = unit.enforcers.check_hosts(enforcer, (each.host for each in report.seen), place="seen")
            if not unit.packet_log.begin(enforcer, report.number, report.lost):
                return 0
            names = self._names_of(unit.domains.policy(domain), domain)
            found = list(_records(report.seen, names, hosts, unit.now))
            unit.packet_log.append(domain, found)
        for sink in self._sinks:
            sink.write(domain, found)
        if report.lost:
            log.warning("packets.lost", domain=domain, enforcer=enforcer, packets=report.lost)
        return len(found)

    def _names_of(self, snapshot: PolicySnapshot, domain: str) -> Mapping[int, _Spoken]:
        """The rules of a policy that log, by cookie."""
        with self._lock:
            known = self._names.get(domain, NO_NAMES)
            if known.policy is not snapshot.policy:
                known = self._names[domain] = known.after(snapshot.policy)
            return known.by_cookie


@dataclass(frozen=True, slots=True)
class LoggedRules:
    """The rules of a policy that log, by cookie and by tenant."""

    policy: Policy
    by_cookie: Mapping[int, _Spoken]
    of_tenant: Mapping[str, Mapping[int, _Spoken]]

    def after(self, policy: Policy) -> LoggedRules:
        """Return the names of another policy; only lists of tenants that changed are read."""
        gone, come = find_replaced(self.policy.tenants, policy.tenants)
        by_cookie, of_tenant = dict(self.by_cookie), dict(self.of_tenant)
        outdated = [of_tenant.pop(tenant.id, {}) for tenant in gone]
        outdated.append(dict(name_rules(self.policy.operator, self.policy.operator_numbers, Kind.OPERATOR_RULE, None)))
        for cookie in (cookie for names in outdated for cookie in names):
            del by_cookie[cookie]
        by_cookie |= name_rules(policy.operator, policy.operator_numbers, Kind.OPERATOR_RULE, None)
        for tenant in come:
            names = dict(name_rules(tenant.acl.listed, tenant.rule_numbers, Kind.RULE, str(tenant.id)))
            by_cookie |= names
            if names:
                of_tenant[tenant.id] = names
        return LoggedRules(policy, by_cookie, of_tenant)


NO_NAMES = LoggedRules(Policy(), {}, {})


def name_rules(
    rules: Iterable[Rule], numbers: Mapping[str, int], kind: Kind, tenant: str | None
) -> Iterable[tuple[int, _Spoken]]:
    """Yield the rules that log, each with its cookie."""
    for rule in rules:
        if rule.log:
            direction = None if tenant is None else rule.direction
            yield int(kind) << 48 | numbers[rule.id], _Spoken(tenant, rule.id, rule.action, direction)


def _records(
    seen: Iterable[Sighting], names: Mapping[int, _Spoken], hosts: Set[str], now: dt.datetime
) -> Iterable[LoggedPacket]:
    """Yield records of known cookies.

    A host's clock may be wrong: nothing is of the future.
    """
    for each in seen:
        cookie = Cookie.unpack(each.cookie)
        spoken = None if cookie is None else names.get(int(cookie.kind) << 48 | cookie.number)
        if spoken is not None and each.host in hosts:
            time = min(_EPOCH + dt.timedelta(microseconds=each.at), now)
            yield LoggedPacket(
                time, spoken.tenant, spoken.rule, spoken.action, spoken.direction, each.host, each.packet, each.length
            )
