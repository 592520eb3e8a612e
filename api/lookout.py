"""Examine long lists after a change, so that pages opened later find the answers.

Short lists are looked at within the time that a page takes. While a list is being changed it is left alone; what is
found is kept where all answers are (`reviews`).
"""

from __future__ import annotations

import asyncio

import structlog

from api.context import Services
from api.inspection import standing
from api.schemas.inspection import PartWord
from orchestrator.errors import AclflowError, TryAgain
from orchestrator.interpreter import give_back

log = structlog.get_logger()

LONG = 1_000
"""Lists of fewer rules take no time that anybody would notice."""
_QUIET_S = 0.5
_FOREVER_S = 3600.0
_AGAIN_S = 1.0
_PARTS: tuple[PartWord, ...] = "findings", "cost"
_CHANGES = ("acl.", "rule.", "group.", "tenant.prefixes")
"""How the kinds of events begin after which a list may say something else."""


async def look_ahead(services: Services) -> None:
    """Look at every long list some time after it was changed, until the service stops."""
    feed = services.feed
    upto: int | None = None
    changed: set[str] = set()
    while not feed.closed:
        try:
            if upto is None:
                upto = await feed.newest()
            fed = await feed.after(upto, _QUIET_S if changed else _FOREVER_S, gather_s=_QUIET_S)
        except TryAgain:  # the database is away
            await asyncio.sleep(_AGAIN_S)
            continue
        if fed is not None:
            upto = fed.upto
            changed |= {event.subject for event in fed.events if event.kind.startswith(_CHANGES)}
        elif changed:
            await asyncio.to_thread(_look, services, changed)
            await asyncio.to_thread(give_back)  # reading a list takes many times its own memory
            changed = set()


def _look(services: Services, tenants: set[str]) -> None:
    for tenant in sorted(tenants):
        try:
            if not services.feed.closed and _length(services, tenant) >= LONG:
                standing(services, tenant, _PARTS)
        except AclflowError:
            continue  # it is gone meanwhile, or looking at it takes too long: who asks will be told
        except Exception:
            log.exception("cannot look ahead", tenant=tenant)  # a fault of ours; the other lists are looked at


def _length(services: Services, tenant: str) -> int:
    return services.control.read(lambda unit: unit.acls.head(tenant)).rules
