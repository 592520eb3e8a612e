"""Whether every host of a tenant's domain holds its list, and since when.

Then the list is in force as it is.
"""

from __future__ import annotations

import datetime as dt

from orchestrator.store.points.records import Laggard
from orchestrator.store.records import TenantRecord, VersionHead
from orchestrator.store.unit import Unit
from orchestrator.wire.tenants import InForce


def in_force(unit: Unit, tenant: TenantRecord, *, named: bool) -> InForce:
    """How the newest version of a list stands; hosts are `named` to operators alone."""
    head = unit.acls.head(tenant.id)
    state = unit.enforcers.enforced(tenant.domain, head.generation)
    late = state.laggards
    told = unit.events.newest_of("acl.enforced", tenant.number)
    reached = head.created if told is None else max(told, head.created)
    return InForce(
        version=head.version,
        state="behind" if late else "in force",
        since=min(_lost(head, each) for each in late) if late else reached,
        hosts=state.hosts,
        late=len(late),
        behind=tuple(each.host for each in late) if named else None,
    )


def _lost(head: VersionHead, late: Laggard) -> dt.datetime:
    """Return since when a host is behind.

    It is since the version was made, or since a host that held it already turned bad.
    """
    point = late.point
    return head.created if point is None or point.report.generation < head.generation else point.reported
