"""Which of an enforcer's reports count, and under which generation.

Pure: `row` is the enforcer's row, `known` has a row for each host that is spoken of (`Reports` reads both).

`Scope` has the devices that an enforcement point may speak for:

    kind                  speaks for
    openflow              the switches of its domain (hosts', edges', the spreading one); only those that its enrolment
                          token names, where it names any
    nftables, iptables, queue    the one firewall of its own name that filters with just that

Kind, name and hosts are fixed when the enforcement point enrols. They are checked wherever it says something of a
device: reports, claims and reports of counts, packet logs, loads, trials, and the spreading switch; and where it
follows a program.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Row

from orchestrator.errors import Conflict, Forbidden
from orchestrator.identity.names import OPENFLOW, SPREADING_SWITCH
from orchestrator.program.program import Tier
from orchestrator.store.points.generations import ONE_CHANGE, RESTORE_IT
from orchestrator.store.points.pointrecords import PointReport
from orchestrator.store.schema.firewalls import EDGE
from orchestrator.wire.points import PointState

_SWITCHES = (None, EDGE)
"""The planes of hosts that switches connect from."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The hosts that one enforcement point speaks for.

    `hosts` is None where its token named none.
    """

    name: str
    kind: str
    hosts: frozenset[str] | None = None

    @classmethod
    def of(cls, row: Row[Any]) -> Scope:
        """The scope of a row of `enforcers`."""
        return cls(row.name, row.kind, hosts_of(row.hosts))

    def covers(self, host: str, plane: str | None) -> bool:
        """Whether it speaks for a host of a plane (`hosts.plane`)."""
        if plane in _SWITCHES:
            return self.kind == OPENFLOW and (self.hosts is None or host in self.hosts)
        return self.kind == plane and self.name == host

    def check(self, host: str, plane: str | None, *, place: str) -> None:
        """Raises Forbidden for a device that somebody else speaks for."""
        if not self.covers(host, plane):
            raise Forbidden(f"enforcer '{self.name}' ({self.kind}) does not speak for '{host}'", place=place)

    def check_spread(self) -> None:
        """Raises Forbidden for an enforcement point that does not control the spreading switch."""
        self.check(SPREADING_SWITCH, None, place="enforcer")

    def check_program(self, tier: Tier, server: str | None) -> None:
        """Refuse a program that other enforcement points follow. Raises Forbidden.

        It is the program of a tier, or of one firewall server.
        """
        if server is not None:
            if self.kind == OPENFLOW or self.name != server:
                raise Forbidden(
                    f"enforcer '{self.name}' ({self.kind}) is not the server '{server}'", place="query.server"
                )
        elif (tier is Tier.SERVER) is (self.kind == OPENFLOW):
            raise Forbidden(f"enforcer '{self.name}' ({self.kind}) does not follow '{tier.value}'", place="query.tier")


def hosts_of(text: str | None) -> frozenset[str] | None:
    """The hosts that a row names; None: it names none."""
    return None if text is None else frozenset(json.loads(text))


def hosts_text(named: Iterable[str]) -> str | None:
    """Hosts as a row names them."""
    found = sorted(set(named))
    return json.dumps(found) if found else None


_LONGEST_ERROR = 1024
_ENFORCED = PointState.ENFORCED.value


def check_epoch(row: Row[Any], epoch: int | None) -> None:
    """Refuse who speaks as an enforcer of another epoch than its own. Raises Conflict."""
    if epoch is not None and epoch < row.epoch:
        raise Conflict(
            f"enforcer '{row.name}' is at epoch {row.epoch}, and this is of epoch {epoch}: another process of the same "
            "name has taken over",
            place="epoch",
        )
    if epoch is not None and epoch > row.epoch:
        raise Conflict(f"enforcer '{row.name}' is at epoch {row.epoch}, and was never given {epoch}", place="epoch")


def accept(
    row: Row[Any], reports: Sequence[PointReport], known: Mapping[str, Row[Any]], vouched: Mapping[str, PointReport]
) -> dict[str, PointReport]:
    """Return each host's latest report, under the latest generation that is known."""
    latest = _within(row, reports, known)
    return {
        name: _at_latest(each, known[name], vouched.get(name))
        for name, each in _unless_replaced(row, latest, known).items()
    }


def is_stored(row: Row[Any], enforcer: int, report: PointReport) -> bool:
    """Return whether just this was said of a host last, by the same enforcer."""
    if row.state is None:
        return False
    stored = row.enforcer, row.state, row.generation, bytes(row.digest), row.error, row.flows
    said = enforcer, report.state.value, report.generation, report.digest, clean_text(report.error), report.flows
    return stored == said


def _within(row: Row[Any], reports: Sequence[PointReport], known: Mapping[str, Row[Any]]) -> dict[str, PointReport]:
    """The latest report about each host that the domain has.

    Raises Forbidden for a host of somebody else's.
    """
    scope = Scope.of(row)
    latest: dict[str, PointReport] = {}
    for index, report in enumerate(reports):
        host = known.get(report.host)
        if host is not None:
            scope.check(report.host, host.plane, place=f"points[{index}].host")
            latest[report.host] = _unless_ahead(report, int(host.generation_now))
    return latest


def _unless_ahead(report: PointReport, now: int) -> PointReport:
    """Return a report, or a drifted one for a generation never published."""
    if report.generation <= now + ONE_CHANGE:
        return report
    error = f"holds generation {report.generation}, and the domain has only come to {now}: {RESTORE_IT}"
    return replace(report, generation=now, state=PointState.DRIFTED, error=error)


def _unless_replaced(
    row: Row[Any], latest: Mapping[str, PointReport], known: Mapping[str, Row[Any]]
) -> Mapping[str, PointReport]:
    """The reports but for hosts that an enforcer of a higher epoch reported.

    Raises Conflict when none is left.
    """
    later = [host for host in latest if (known[host].epoch or 0) > row.epoch]
    if later and len(later) == len(latest):
        host = known[later[0]]
        raise Conflict(
            f"host '{later[0]}' is reported by enforcer '{host.reporter}' of epoch {host.epoch}, and this is of epoch "
            f"{row.epoch}: take over first, with a new epoch",
            place="points",
        )
    return {host: report for host, report in latest.items() if host not in later}


def holds(row: Row[Any] | None, later: PointReport) -> bool:
    """Return whether a live enforcer reported the same program under an earlier generation."""
    if row is None or row.state != _ENFORCED or row.lost is not None:
        return False
    return bool(row.digest == later.digest and row.generation < later.generation)


def _at_latest(report: PointReport, row: Row[Any], vouched: PointReport | None) -> PointReport:
    """Return a report under the latest generation whose program has its digest."""
    if report.state is not PointState.ENFORCED:
        return report
    known = [report.generation]
    if row.state == _ENFORCED and row.digest == report.digest:
        known.append(row.generation)
    if vouched is not None and vouched.digest == report.digest:
        known.append(vouched.generation)
    latest = max(known)
    return report if latest == report.generation else replace(report, generation=latest)


def clean_text(error: str | None) -> str | None:
    """Return a device's own words as every database can keep them."""
    return None if error is None else "".join(c if c.isprintable() else "?" for c in error[:_LONGEST_ERROR])
