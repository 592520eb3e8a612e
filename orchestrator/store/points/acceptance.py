"""Which of an enforcer's reports count, and under which generation.

Pure: `row` is the enforcer's row, `known` has a row for each host that is spoken of (`Reports` reads both).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Row

from orchestrator.errors import Conflict
from orchestrator.store.points.pointrecords import PointReport
from orchestrator.store.points.scope import Scope
from orchestrator.wire.points import PointState

_ONE_CHANGE = 2
"""How far one change moves a generation: the intersection, and the policy itself."""
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


def as_stored(report: PointReport) -> PointReport:
    """Return a report as the store keeps it."""
    return replace(report, error=clean_text(report.error))


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
    if report.generation <= now + _ONE_CHANGE:
        return report
    error = (
        f"holds generation {report.generation}, and the domain has only come to {now}: if its database was put back to "
        f"an earlier state, have an operator raise it (aclflow domain raise --above {report.generation})"
    )
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
