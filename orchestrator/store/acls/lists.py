"""Access lists with their history.

Every change makes a new version: the rows it takes out end there, the rows it puts in begin there, all others stay as
they are. A rule id keeps its number, and so its counters, also when it comes back after a break, for as long as the
history knows it; no other id ever gets that number.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import orjson
from sqlalchemy import Row, bindparam, select, update

from orchestrator.errors import BadInput, ChangeTheRequest, Conflict
from orchestrator.interpreter import collector_paused
from orchestrator.policy.formats.native import rule_from_json
from orchestrator.policy.model import Acl, AddressGroup, Rule, TenantId
from orchestrator.policy.ownership import check_ownership, narrow_to_owned
from orchestrator.store.acls import grouprows
from orchestrator.store.acls import replace as aclreplace
from orchestrator.store.acls import rows as aclrows
from orchestrator.store.acls.cache import CachedAcl
from orchestrator.store.acls.edits import VersionEdits
from orchestrator.store.acls.grouprows import GroupChange
from orchestrator.store.acls.groups import EndpointGroups
from orchestrator.store.acls.steps import AclSteps, check_in_time, defaults_of, is_over
from orchestrator.store.prefixrows import owned_prefixes
from orchestrator.store.records import (
    UNWRITTEN,
    AclRecord,
    Change,
    RuleRecord,
    VersionHead,
    WaitingChange,
)
from orchestrator.store.schema.acls import acl_rules, acl_versions
from orchestrator.store.schema.core import tenants
from orchestrator.store.sql.keys import from_micros, keys_around, keys_between
from orchestrator.store.sql.prepared import Prepared
from orchestrator.store.transaction import Transaction, one_line
from orchestrator.wire.lists import AclVersion, Unconfirmed

REVERT = "revert"
"""The author of versions that come back because nobody confirmed a change."""

LONGEST_COMMENT = 1000
"""Characters."""

_ROOMY = 1 << 16
"""The least distance between order keys after rows were spread anew."""
_FIRST_WINDOW = 32

_SET_CONFIRMATION = Prepared(
    update(tenants)
    .where(tenants.c.number == bindparam("of_tenant"))
    .values(confirm_by=bindparam("by"), confirm_base=bindparam("base_version"), confirm_s=bindparam("lasts_s"))
    .returning(*tenants.c)
)
_UNCONFIRMED = (
    select(tenants.c.id, tenants.c.confirm_base, tenants.c.confirm_by, tenants.c.confirm_s)
    .where(tenants.c.confirm_by.is_not(None))
    .order_by(tenants.c.id)
)

_rules = acl_rules.c
_versions = acl_versions.c


@dataclass(frozen=True, slots=True)
class _Checked:
    """A rule that passed its checks and may be written.

    It comes with its body, and with the groups of endpoints that are made with it.
    """

    rule: Rule
    body: str
    groups: tuple[GroupChange, ...]


class Acls(AclSteps):
    """The access lists' repository. Every change makes a version and moves the domain's generation.

    All raise NotFound for an unknown tenant; the writers raise Stale when `expected_version` is not the current
    version, and BadPolicy when a rule names, on the tenant's own side, a prefix that is not the tenant's.
    """

    # ------------------------------------------------------------------------------------------------ reading

    def version(self, tenant: str) -> int:
        """The current version without the list: what an ETag check needs."""
        return int(self._tx.tenant(tenant).acl_version)

    def head(self, tenant: str) -> VersionHead:
        """The newest version without its rules."""
        owner = self._tx.tenant(tenant)
        row = aclrows.version_row(self._tx, owner, owner.acl_version)
        return VersionHead(row.version, row.generation or 0, from_micros(row.created), row.rules)

    def current(self, tenant: str) -> AclRecord:
        """The list as it is. From memory where the version is known."""
        owner = self._tx.tenant(tenant)
        return aclrows.load(self._tx, owner, owner.acl_version).record

    def at(self, tenant: str, version: int) -> AclRecord:
        """The list as it was at a version. Raises NotFound, also for versions forgotten (`versions_kept`)."""
        owner = self._tx.tenant(tenant)
        if version == owner.acl_version:
            return aclrows.load(self._tx, owner, version).record
        return aclrows.load_rows(self._tx, owner, version).record

    def in_force(self, tenant: str, generation: int) -> int | None:
        """Return a list's version at a generation of its domain; None if forgotten.

        Raises NotFound.

        UNWRITTEN before the first version.
        """
        mine = acl_versions.c.tenant == self._tx.tenant(tenant).number
        columns = acl_versions.c.version, acl_versions.c.generation
        then = select(*columns).where(mine, acl_versions.c.generation <= generation).order_by(columns[0].desc())
        row = self._tx.read(then.limit(1)).first()
        if row is not None:
            return int(row.version)
        oldest = self._tx.read(select(*columns).where(mine).order_by(columns[0]).limit(1)).first()
        is_first = oldest is None or (oldest.version == UNWRITTEN + 1 and oldest.generation is not None)
        return UNWRITTEN if is_first else None

    def changed_between(self, domain: str, after: int, before: int, *, most: int) -> tuple[int, ...] | None:
        """Return the generations between two in which a domain's lists changed.

        None where there are more than `most`.
        """
        generation = _versions.generation
        found = (
            select(generation)
            .distinct()
            .join(tenants, tenants.c.number == _versions.tenant + 0)  # + 0: by generation, not by tenant
            .where(tenants.c.domain == domain, generation > after, generation < before)
            .order_by(generation)
            .limit(most + 1)
        )
        rows = tuple(self._tx.read(found).scalars())
        return rows if len(rows) <= most else None

    def rule(self, tenant: str, rule_id: str) -> RuleRecord:
        """One rule of the current list, without reading the others. Raises NotFound."""
        row = self._row(self._tx.tenant(tenant), rule_id)
        return RuleRecord(rule_from_json(orjson.loads(row.body)), row.number, row.since_version)

    def versions(self, tenant: str, *, limit: int = 100, marker: int | None = None) -> tuple[AclVersion, ...]:
        """The history, newest first, those older than version `marker`."""
        owner = self._tx.tenant(tenant)
        statement = select(acl_versions).where(_versions.tenant == owner.number)
        if marker is not None:
            statement = statement.where(_versions.version < marker)
        rows = self._tx.read(statement.order_by(_versions.version.desc()).limit(limit)).all()
        changes = VersionEdits(self._tx, owner.number).of([row.version for row in rows])
        return tuple(
            AclVersion(
                version=row.version,
                author=row.author,
                author_name=row.author_name,
                created=from_micros(row.created),
                rules=row.rules,
                comment=row.comment,
                changes=changes.get(row.version),
            )
            for row in rows
        )

    def set_comment(self, tenant: str, version: int, comment: str) -> None:
        """Store the author's comment on a version.

        Raises BadInput for text that is not one line.
        """
        one_line(comment, place="comment", longest=LONGEST_COMMENT)
        of_version = (_versions.tenant == self._tx.tenant(tenant).number) & (_versions.version == version)
        self._tx.write(update(acl_versions).where(of_version).values(comment=comment))

    # ------------------------------------------------------------------------------------------------ the whole list

    def replace(
        self, tenant: str, acl: Acl, *, author: str, expected_version: int | None = None, approved: bool = False
    ) -> Change:
        """Replace the list.

        Rules that stay the same keep their rows; ids that stay keep their numbers. Groups that follow endpoints get
        the addresses that these have now. `approved`: another person has agreed, or nobody needs to.
        """
        owner, head = self._begin(tenant, expected_version)
        acl = EndpointGroups(self._tx).fill_in_members(tenant, acl)
        check_ownership(acl, owned_prefixes(self._tx, owner.number))
        with collector_paused():
            return self._replace_list(owner, head, acl, author, approved)

    def _replace_list(self, owner: Row[Any], head: Row[Any], acl: Acl, author: str, approved: bool) -> Change:
        for index, rule in enumerate(acl.rules):
            if rule.expires is not None:
                check_in_time(self._tx, rule, f"rules[{index}].")
        plan = aclreplace.compare(self._tx, owner.number, acl)
        defaults = (acl.ingress_default, acl.egress_default)
        if plan.nothing and defaults == defaults_of(head):
            return self._no_change(owner)
        version = aclrows.begin_version(self._tx, owner, author=author, rules=len(acl.rules), defaults=defaults)
        keys, numbers = aclreplace.carry_out(self._tx, owner.number, version, plan)
        record = AclRecord(TenantId(owner.id), version, acl, numbers, author, self._tx.now)
        self._tx.fresh[owner.number] = CachedAcl(record, keys, numbers, plan.groups.groups)
        return self._end(owner, version, approved=approved)

    # ------------------------------------------------------------------------------------------------ one rule

    def put_rule(self, tenant: str, rule: Rule, *, author: str, expected_version: int | None = None) -> Change:
        """Replace the rule of that id in place, or append a new one."""
        owner, head = self._begin(tenant, expected_version)
        checked = self._check_rule(owner, rule)
        old = self._find(owner, rule.id)
        if old is None:
            return self._insert_rule(owner, self._cached_list(owner), checked, head.rules, author)
        if old.body == checked.body:
            return self._no_change(owner)
        version = self._version(owner, defaults_of(head), head.rules, author)
        grouprows.write(self._tx, owner.number, version, checked.groups)
        aclrows.end_rows(self._tx, owner.number, version, [old])
        row = aclrows.new_row(rule, old.order_key, old.number, checked.body)
        aclrows.begin_rows(self._tx, owner.number, version, [row], [rule])
        return self._end(owner, version)

    def insert_rule(
        self, tenant: str, rule: Rule, *, position: int, author: str, expected_version: int | None = None
    ) -> Change:
        """Insert a new rule before `position` (0: top; the length: end).

        Raises Conflict when the list has the id already, BadInput when it has no such position.
        """
        owner = self._owner(tenant, expected_version)
        checked = self._check_rule(owner, rule)
        known = self._cached_list(owner)
        if rule.id in known.numbers:
            raise Conflict(f"the list already has a rule '{rule.id}'", place="id")
        _check_position(position, len(known.keys))
        return self._insert_rule(owner, known, checked, position, author)

    def move_rule(
        self, tenant: str, rule_id: str, *, position: int, author: str, expected_version: int | None = None
    ) -> Change:
        """Move a rule to `position` among the others; it keeps its number.

        Raises NotFound, BadInput.
        """
        owner, head = self._begin(tenant, expected_version)
        old = self._row(owner, rule_id)
        _check_position(position, head.rules - 1)
        low, high = keys_around(self._cached_list(owner).keys, position, without=old.order_key)
        if (low is None or low < old.order_key) and (high is None or old.order_key < high):
            return self._no_change(owner)
        version = self._version(owner, defaults_of(head), head.rules, author)
        aclrows.end_rows(self._tx, owner.number, version, [old])
        key = _make_key_between(self._tx, owner.number, version, low, high)
        row = aclrows.NewRow(key, old.number, old.rule_id, old.expires, old.body)
        aclrows.begin_rows(self._tx, owner.number, version, [row])
        return self._end(owner, version)

    def delete_rule(self, tenant: str, rule_id: str, *, author: str, expected_version: int | None = None) -> Change:
        """Delete a rule. Raises NotFound."""
        owner, head = self._begin(tenant, expected_version)
        old = self._row(owner, rule_id)
        version = self._version(owner, defaults_of(head), head.rules - 1, author)
        aclrows.end_rows(self._tx, owner.number, version, [old])
        return self._end(owner, version)

    # ------------------------------------------------------------------------------------------------ confirm or revert

    def await_confirmation(self, tenant: str, base: int, within_s: int) -> dt.datetime:
        """Revert the list to version `base` unless it is confirmed in time; return the deadline."""
        deadline = self._tx.database_micros() + within_s * 1_000_000
        number = self._tx.tenant(tenant).number
        self._tx.change_tenant(_SET_CONFIRMATION, of_tenant=number, by=deadline, base_version=base, lasts_s=within_s)
        self._tx.sets_times = True
        return from_micros(deadline)

    def unconfirmed_change(self, tenant: str) -> Unconfirmed | None:
        """The change of a list that waits to be confirmed, if there is one."""
        owner = self._tx.tenant(tenant)
        if owner.confirm_by is None:
            return None
        return Unconfirmed(owner.acl_version, owner.confirm_base, from_micros(owner.confirm_by))

    def confirm(self, tenant: str) -> Change:
        """Keep the list as it is. Raises Conflict where nothing waits to be confirmed."""
        owner = self._tx.tenant(tenant)
        self._settle_change(owner)
        return self._no_change(owner)

    def revert(self, tenant: str, *, author: str) -> Change:
        """Replace the list by the version before the unconfirmed change, as a new version.

        Rules whose time is over are left out, and addresses that the tenant has lost meanwhile. Raises Conflict
        where nothing waits to be confirmed.
        """
        owner = self._tx.tenant(tenant)
        self._settle_change(owner)
        before = self.at(tenant, owner.confirm_base).acl
        lasting = tuple(rule for rule in before.rules if not is_over(self._tx, rule))
        owned = owned_prefixes(self._tx, owner.number)
        self._tx.reverted.add(tenant)
        back = narrow_to_owned(replace(before, rules=lasting), owned)
        return self.replace(tenant, back, author=author, approved=True)

    def list_unconfirmed(self) -> tuple[WaitingChange, ...]:
        """Return the changes that wait to be confirmed, by their tenants' ids."""
        rows = self._tx.read(_UNCONFIRMED).all()
        now = self._tx.database_micros() if rows else 0
        return tuple(
            WaitingChange(row.id, row.confirm_base, row.confirm_by, row.confirm_s, (row.confirm_by - now) / 1_000_000)
            for row in rows
        )

    def is_unconfirmed(self, change: WaitingChange) -> bool:
        """Return whether a change still waits to be confirmed."""
        row = self._tx.read(select(tenants.c.confirm_base, tenants.c.confirm_by).where(tenants.c.id == change.tenant))
        return row.first() == (change.base, change.by_micros)

    def _settle_change(self, owner: Row[Any]) -> None:
        if owner.confirm_by is None:
            raise Conflict(f"no change of the list of '{owner.id}' waits to be confirmed: perhaps it went back")
        self._tx.change_tenant(_SET_CONFIRMATION, of_tenant=owner.number, by=None, base_version=None, lasts_s=None)

    # ------------------------------------------------------------------------------------------------ steps

    def _check_rule(self, owner: Row[Any], rule: Rule) -> _Checked:
        """Check a rule as a list by itself, with the groups that it names.

        Groups of endpoints that are not there yet are made with it. The rule's place in a list can ask for nothing
        more.
        """
        check_in_time(self._tx, rule)
        fresh = EndpointGroups(self._tx).missing(owner.id, rule)
        groups = dict(self._read_groups(owner, {*rule.source.groups, *rule.destination.groups}))
        groups.update({each.name: each for each in fresh})
        changes = grouprows.plan_additions(self._tx, owner, fresh) if fresh else ()
        try:
            check_ownership(Acl((rule,), groups), owned_prefixes(self._tx, owner.number))
        except ChangeTheRequest as error:
            error.place = (error.place or "").removeprefix("rules[0]").removeprefix(".") or None
            raise
        return _Checked(rule, aclrows.body_of(rule), changes)

    def _read_groups(self, owner: Row[Any], names: set[str]) -> Mapping[str, AddressGroup]:
        if not names:
            return MappingProxyType({})
        known = aclrows.load(self._tx, owner, owner.acl_version).record.acl.groups
        return MappingProxyType({name: known[name] for name in names if name in known})

    def _insert_rule(self, owner: Row[Any], known: CachedAcl, checked: _Checked, position: int, author: str) -> Change:
        acl, keys = known.record.acl, known.keys
        version = self._version(owner, (acl.ingress_default, acl.egress_default), len(keys) + 1, author)
        key = _make_key_between(self._tx, owner.number, version, *keys_around(keys, position))
        grouprows.write(self._tx, owner.number, version, checked.groups)
        number = aclrows.past_number(self._tx, owner.number, checked.rule.id) or self._tx.draw("rule")
        row = aclrows.new_row(checked.rule, key, number, checked.body)
        aclrows.begin_rows(self._tx, owner.number, version, [row], [checked.rule])
        return self._end(owner, version)

    def _cached_list(self, owner: Row[Any]) -> CachedAcl:
        """Return the current list from memory.

        Its places are found here: counting rows in the database would cost the more the longer the list is.
        """
        return aclrows.load(self._tx, owner, owner.acl_version)


def _check_position(position: int, length: int) -> None:
    if not 0 <= position <= length:
        raise BadInput(f"{position} is not in 0..{length}", place="position")


def _make_key_between(tx: Transaction, tenant: int, version: int, low: int | None, high: int | None) -> int:
    """Return an order key between two neighbours (None: that end of the list).

    Where their gap is used up, the rows around it end and begin again at `version` with keys spread over a window
    that doubles until it has room; so room for many insertions costs few rows.
    """
    found = keys_between(low, high, 1)
    if found is not None:
        return found[0]
    window = _FIRST_WINDOW
    while True:
        below = _read_neighbours(tx, tenant, window + 1, at_most=low)
        above = _read_neighbours(tx, tenant, window + 1, at_least=high)
        outer_low = below[window].order_key if len(below) > window else None
        outer_high = above[window].order_key if len(above) > window else None
        rows = [*reversed(below[:window]), *above[:window]]
        keys = keys_between(outer_low, outer_high, len(rows) + 1)
        if keys is not None and (keys[-1] - keys[0]) // len(rows) >= _ROOMY:
            break
        window *= 2
    place = len(below[:window])
    aclrows.end_rows(tx, tenant, version, rows)
    moved = [*keys[:place], *keys[place + 1 :]]
    aclrows.begin_rows(
        tx,
        tenant,
        version,
        [
            aclrows.NewRow(key, row.number, row.rule_id, row.expires, row.body)
            for key, row in zip(moved, rows, strict=True)
        ],
    )
    return keys[place]


def _read_neighbours(
    tx: Transaction, tenant: int, count: int, *, at_most: int | None = None, at_least: int | None = None
) -> Sequence[Row[Any]]:
    """Return current rows at or below a key, descending, or above, ascending.

    Without a key there are none.
    """
    if at_most is not None:
        statement = aclrows.current_rows(tenant).where(_rules.order_key <= at_most).order_by(_rules.order_key.desc())
    elif at_least is not None:
        statement = aclrows.current_rows(tenant).where(_rules.order_key >= at_least).order_by(_rules.order_key)
    else:
        return ()
    return tx.read(statement.limit(count)).all()
