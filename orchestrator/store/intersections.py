"""The parts held back of changes in two steps: written at commit, read by publishers.

The rules are those that are laid on top of the tenants' lists (`policy/intersection.py`). They are written in the
transaction of the change: whoever publishes it, in whichever process and after whatever restart, publishes the same
intersection, and a change that is not named here whole and at once. Where the domain came to a generation otherwise
than by a change (the store was put back, it was raised above what a host holds) that is open, and decided by whoever
publishes it first.
"""

from __future__ import annotations

import orjson
from sqlalchemy import ColumnElement, bindparam, delete, insert, literal, select

from orchestrator.policy.formats.native import rule_from_json, rule_to_json
from orchestrator.policy.model import TenantId
from orchestrator.policy.narrowing import Withheld
from orchestrator.store.schema.core import domains, intersections
from orchestrator.store.sql.prepared import Prepared
from orchestrator.store.transaction import Transaction

_OPEN = "null"
"""The text in the place of what is held back where nobody has decided."""

_OF = Prepared(
    select(intersections.c.withheld).where(
        intersections.c.domain == bindparam("of_domain"), intersections.c.generation == bindparam("at")
    )
)


class Intersections:
    """The repository of each domain's latest held-back part."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def keep(self, domain: str, generation: int, withheld: Withheld) -> None:
        """Note what is held back before a generation may follow."""
        rules = {tenant: [rule_to_json(rule) for rule in rules] for tenant, rules in withheld.rules.items()}
        body = {"rules": rules, "holds_replies": withheld.holds_replies} if withheld.holds_replies else rules
        kept = {"generation": generation, "withheld": orjson.dumps(body).decode()}
        row = self._tx.upsert(intersections).values(domain=domain, **kept)
        self._tx.write(row.on_conflict_do_update(index_elements=["domain"], set_=kept))

    def drop(self, domain: str) -> None:
        """Note that nothing is held back."""
        self._tx.write(delete(intersections).where(intersections.c.domain == domain))

    def is_open(self, domain: str, generation: int) -> bool:
        """Whether nobody has decided yet what is held back before a generation may follow."""
        row = self._tx.row(_OF, of_domain=domain, at=generation)
        return row is not None and row.withheld == _OPEN

    def before(self, domain: str, generation: int) -> Withheld | None:
        """Return what is held back before a generation; None where it may be published."""
        row = self._tx.row(_OF, of_domain=domain, at=generation)
        if row is None or row.withheld == _OPEN:
            return None
        read = orjson.loads(row.withheld)
        holds_replies = read.get("holds_replies") is True
        rules = read["rules"] if holds_replies else read
        return Withheld(
            {TenantId(tenant): tuple(map(rule_from_json, rules)) for tenant, rules in rules.items()}, holds_replies
        )


def leave_open(tx: Transaction, which: ColumnElement[bool]) -> None:
    """Mark the latest generation's held-back part of some domains as undecided."""
    found = select(domains.c.id).where(which)
    tx.write(delete(intersections).where(intersections.c.domain.in_(found)))
    rows = select(domains.c.id, domains.c.generation, literal(_OPEN)).where(which)
    tx.write(insert(intersections).from_select(["domain", "generation", "withheld"], rows))
