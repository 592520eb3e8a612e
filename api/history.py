"""Older versions of lists: differences, restoring one, and finding which decided a packet.

The last is the version since which a packet is decided as now.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

from api.context import Services
from api.schemas.history import AskedBody, BisectedBody, BlameBody, DifferenceBody
from api.schemas.inspection import ChangeBody
from orchestrator.errors import TooLarge
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.difference import difference
from orchestrator.policy.history import bisect, blame
from orchestrator.policy.model import Acl, ReturnTraffic
from orchestrator.store.records import Change
from orchestrator.store.unit import Unit
from orchestrator.wire.lists import AclVersion

_PAGE = 100


def compare_versions(services: Services, tenant: str, before: int, after: int | None) -> DifferenceBody:
    """Return the packets that became permitted and denied between two versions.

    `after` None: the current version. Raises NotFound for versions that are forgotten or still to come, TooLarge when
    it takes too long.
    """

    def read(unit: Unit) -> tuple[int, Acl, Acl, tuple[Prefix, ...], ReturnTraffic]:
        version = unit.acls.version(tenant) if after is None else after
        lists = unit.acls.at(tenant, before).acl, unit.acls.at(tenant, version).acl
        return version, *lists, unit.tenants.get(tenant).prefixes, _read_return_traffic(unit, tenant)

    version, old, new, own, returns = services.control.read(read)
    found = services.workbench.run(services.review_limit_s, difference, old, new, own=own, returns=returns)
    return DifferenceBody(before=before, after=version, changes=ChangeBody.all_of(found))


def restore_list(unit: Unit, tenant: str, version: int, *, author: str) -> tuple[Change, tuple[str, ...]]:
    """Restore the list of a version as a new one, without expired rules.

    The expired rules' ids are returned as well. Raises NotFound, and BadPolicy where the list names what is not the
    tenant's any more.
    """
    acl = unit.acls.at(tenant, version).acl
    over = tuple(rule.id for rule in acl.rules if rule.expires is not None and rule.expires <= unit.now)
    kept = replace(acl, rules=tuple(rule for rule in acl.rules if rule.id not in over)) if over else acl
    return unit.acls.replace(tenant, kept, author=author), over


def find_change_of(services: Services, tenant: str, body: AskedBody) -> BlameBody:
    """Which version brought what the list says of a packet.

    Raises BadInput, TooLarge when it takes too long.
    """
    until = time.monotonic() + services.review_limit_s

    def work(unit: Unit) -> BlameBody:
        asked = body.to_question(_read_return_traffic(unit, tenant))
        return BlameBody.of(blame(_newest_first(unit, tenant, until), asked))

    return services.control.read(work)


def find_neighbours(services: Services, tenant: str, body: AskedBody) -> BisectedBody:
    """Find two neighbouring versions that disagree about a packet. Raises BadInput."""

    def work(unit: Unit) -> BisectedBody:
        asked = body.to_question(_read_return_traffic(unit, tenant))
        versions = [record.version for record in _records(unit, tenant)][::-1]
        found = bisect(versions, lambda version: unit.acls.at(tenant, version).acl, asked)
        return BisectedBody.from_result(found, len(versions))

    return services.control.read(work)


def _newest_first(unit: Unit, tenant: str, until: float) -> Iterator[tuple[int, Acl]]:
    """The versions of a list, read one by one.

    Raises TooLarge when the (monotonic) clock says `until`.
    """
    for record in _records(unit, tenant):
        if time.monotonic() > until:
            raise TooLarge(f"this takes too long here: it was so back to version {record.version + 1}; try bisect")
        yield record.version, unit.acls.at(tenant, record.version).acl


def _records(unit: Unit, tenant: str) -> Iterator[AclVersion]:
    """The lines of a list's history, newest first."""
    marker: int | None = None
    while page := unit.acls.versions(tenant, limit=_PAGE, marker=marker):
        yield from page
        marker = page[-1].version


def _read_return_traffic(unit: Unit, tenant: str) -> ReturnTraffic:
    return unit.domains.get(unit.tenants.get(tenant).domain).return_traffic
