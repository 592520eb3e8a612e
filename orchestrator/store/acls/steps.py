"""The first and last steps of every change of a list, of rules or groups."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row, bindparam, update

from orchestrator.errors import ApprovalNeeded, BadPolicy, Conflict, NotFound, TooLarge
from orchestrator.policy.model import Action, Rule
from orchestrator.store.acls import rows as aclrows
from orchestrator.store.records import Change
from orchestrator.store.schema.core import tenants
from orchestrator.store.sql.keys import from_micros
from orchestrator.store.sql.prepared import Prepared
from orchestrator.store.transaction import Transaction, expect

_SET_VERSION = Prepared(
    update(tenants)
    .where(tenants.c.number == bindparam("of_tenant"))
    .values(acl_version=bindparam("now"), stored_bytes=bindparam("bytes"))
    .returning(*tenants.c)
)


_FORGOTTEN_AT_ONCE = 64
"""So many versions are forgotten by one change at most: others wait meanwhile."""


class AclSteps:
    """The steps of a change in one transaction, shared by rules' and groups' repositories."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def _owner(self, tenant: str, expected_version: int | None) -> Row[Any]:
        """The tenant's row.

        Raises NotFound, Stale, and Conflict while a change of the list is not confirmed.
        """
        owner = self._tx.tenant(tenant)
        expect(expected_version, owner.acl_version)
        if owner.confirm_by is not None:
            raise Conflict(
                f"a change of the list of '{tenant}' waits until {from_micros(owner.confirm_by):%Y-%m-%d %H:%M:%S} UTC "
                "to be confirmed: confirm it or take it back, then write"
            )
        return owner

    def _begin(self, tenant: str, expected_version: int | None) -> tuple[Row[Any], Row[Any]]:
        """The tenant's row and that of its list's current version. Raises as `_owner`."""
        owner = self._owner(tenant, expected_version)
        return owner, aclrows.version_row(self._tx, owner, owner.acl_version)

    def _find(self, owner: Row[Any], rule_id: str) -> Row[Any] | None:
        """Return the current row of a rule, or None."""
        return aclrows.current_row(self._tx, owner.number, rule_id)

    def _row(self, owner: Row[Any], rule_id: str) -> Row[Any]:
        """Return the row of a rule of the current list. Raises NotFound."""
        row = self._find(owner, rule_id)
        if row is None:
            raise NotFound(f"the access list of '{owner.id}' has no rule '{rule_id}'")
        return row

    def _version(self, owner: Row[Any], defaults: tuple[Action, Action], rules: int, author: str) -> int:
        """Begin the list's next version; return its number."""
        return aclrows.begin_version(self._tx, owner, author=author, rules=rules, defaults=defaults)

    def _end(self, owner: Row[Any], version: int, *, approved: bool = False) -> Change:
        """Make the version the current one.

        `approved`: nobody else needs to agree to it. Raises ApprovalNeeded.
        """
        if owner.two_persons and not approved and not self._tx.rehearses:
            raise ApprovalNeeded(
                f"another person must approve changes of the list of '{owner.id}', and this one cannot be proposed"
            )
        self._tx.change_tenant(
            _SET_VERSION, of_tenant=owner.number, now=version, bytes=self._charge_storage(owner, version)
        )
        return Change(version, self._tx.bump_for_list(owner))

    def _charge_storage(self, owner: Row[Any], version: int) -> int:
        """Return the bytes of a list and its history; forget oldest versions over the quota.

        Raises TooLarge where the newest two versions alone are too much.
        """
        edited = self._tx.edit(owner.number)
        stored, edited.begun_bytes = max(0, int(owner.stored_bytes) + edited.begun_bytes), 0
        most = self._tx.settings.stored_bytes_kept if owner.quota_bytes is None else int(owner.quota_bytes)
        if stored <= most or owner.id in self._tx.reverted:
            return stored
        oldest = aclrows.oldest_version(self._tx, owner.number)
        last = aclrows.oldest_needed(owner, min(version - 1, oldest + _FORGOTTEN_AT_ONCE))
        while stored > most and oldest < last:
            oldest += 1
            stored -= aclrows.forget_versions(self._tx, owner, oldest)
        edited.begun_bytes = 0
        if stored > max(most, owner.stored_bytes) and oldest >= version - 1:
            raise TooLarge(
                f"the list and the version before it would take up {stored} bytes, and the quota is {most}: write a "
                "shorter list, or ask for more",
                place=f"tenants[{owner.id}].acl",
            )
        return stored

    def _no_change(self, owner: Row[Any]) -> Change:
        return Change(owner.acl_version, self._tx.domain(owner.domain).generation, changed=False)


def is_over(tx: Transaction, rule: Rule) -> bool:
    """Return whether a rule's end has come.

    After a jump of the clock nobody can tell which time is right (`SteadyClock.jumped`), so a rule ends by the time at
    which that opens nothing: one that permits by the later one, one that denies by the earlier one. A stateless permit
    is as a deny, for it keeps rules behind it from tracking connections. A store that is opened anew takes the clock as
    right.
    """
    if rule.expires is None:
        return False
    may_open = rule.action is Action.DENY or rule.stateless
    return rule.expires <= (tx.now - tx.jumped if may_open else tx.now)


def check_in_time(tx: Transaction, rule: Rule, within: str = "") -> None:
    """Refuse a rule whose time is over: the next sweep would remove it.

    Raises BadPolicy.
    """
    if rule.expires is not None and is_over(tx, rule):
        raise BadPolicy(f"{rule.expires.isoformat()} has passed already: leave the rule out", place=f"{within}expires")


def defaults_of(head: Row[Any]) -> tuple[Action, Action]:
    """The ingress and the egress default of a version."""
    return Action(head.ingress_default), Action(head.egress_default)
