"""Raise the generations of a restored database above those that hosts hold.

Enforcement points take nothing that is older than what they have, so without this they would stay at a policy that
nobody knows any more until as many changes had been made as were lost. Content of hosts that were not read back since
is unknown (`behind`), and the generation before the new one is left free, for an intersection with that.

An enforcement point's word raises a generation by one change at the most: so much may be published and not be in the
database. Further is for an operator, who knows that the database was put back. (`aclflow db restore` goes on far above
the backup by itself, see `restore.py`.)
"""

from __future__ import annotations

from sqlalchemy import update

from orchestrator.errors import BadInput
from orchestrator.store.events import Events
from orchestrator.store.intersections import leave_open
from orchestrator.store.schema.core import domains
from orchestrator.store.transaction import Transaction

FARTHEST_AHEAD = 1 << 32
"""No host can be that far ahead of a backup."""

HIGHEST = 1 << 52
"""Where generations end: what lies above is left for what is counted on after them, and all of it is exact in JSON."""


def raise_above(tx: Transaction, domain: str, generation: int, held: int) -> int | None:
    """Move a domain's generation above a host's; return it, None if nothing moved.

    Raises BadInput for a generation so far ahead that no host can have come by it.
    """
    if held <= generation:
        return None
    if held - generation > FARTHEST_AHEAD or held > HIGHEST:
        raise BadInput(f"the domain is at generation {generation}: {held} cannot be", place="generation")
    this = domains.c.id == domain
    tx.write(update(domains).where(this).values(generation=held + 1, behind=held + 1))
    tx.moves_hosts = True  # what hosts may hold is not what was published here
    raised = tx.bump(domain)
    leave_open(tx, this)
    Events(tx).append("generation.raised", domain, {"generation": raised, "held": held, "was": generation})
    return raised
