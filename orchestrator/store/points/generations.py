"""Raise the generations of a domain above those that its hosts hold.

Enforcement points take nothing that is older than what they have, so without this they would stay at a policy that
nobody knows any more until as many changes had been made as were lost. Content of hosts that were not read back since
is unknown (`behind`), and the generation before the new one is left free, for an intersection with that.

An enforcement point's word raises a generation by one change at the most: so much may be published and not be in the
database. Nothing and nobody raises it further while a service runs. `aclflow db restore`, for which services are
stopped, goes on far above the backup (`store/backups/restore.py`), which the authority has signed.
"""

from __future__ import annotations

from sqlalchemy import update

from orchestrator.store.events import Events
from orchestrator.store.intersections import leave_open
from orchestrator.store.schema.core import domains
from orchestrator.store.transaction import Transaction

ONE_CHANGE = 2
"""How far one change moves a generation: the intersection, and the policy itself."""

RESTORE_IT = (
    "if its database was put back to an earlier state by other means than `aclflow db restore`, stop the service, "
    "back the database up as it is, and restore that (aclflow db backup, aclflow db restore --yes)"
)
"""The advice where a host holds what was never published."""


def raise_above(tx: Transaction, domain: str, generation: int, held: int) -> int | None:
    """Move a domain's generation above a host's; return it, None if nothing moved.

    `held` is one change ahead at the most (`acceptance.py`).
    """
    if held <= generation:
        return None
    this = domains.c.id == domain
    tx.write(update(domains).where(this).values(generation=held + 1, behind=held + 1))
    tx.moves_hosts = True  # what hosts may hold is not what was published here
    raised = tx.bump(domain)
    leave_open(tx, this)
    Events(tx).append("generation.raised", domain, {"generation": raised, "held": held, "was": generation})
    return raised
