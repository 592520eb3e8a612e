"""Temporal rows of access lists: read versions and changes, end and begin rows."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import orjson
from sqlalchemy import Row, Select, Text, bindparam, delete, func, insert, literal_column, select, update

from orchestrator.errors import NotFound
from orchestrator.interpreter import collector_paused
from orchestrator.policy.formats.native import rule_texts, rules_from_json
from orchestrator.policy.formats.native_values import at, read_text
from orchestrator.policy.listed import Listed
from orchestrator.policy.model import Action, Rule, TenantId, trusted_acl
from orchestrator.policy.numbers import RuleNumbers
from orchestrator.store.acls import grouprows
from orchestrator.store.acls.cache import (
    BegunRow,
    CachedAcl,
    EndedRow,
    KeyedGroup,
    ListMoves,
    VersionLine,
    refreshed_rules,
)
from orchestrator.store.acls.spans import held_at, holds_now
from orchestrator.store.chains import ROW_BYTES
from orchestrator.store.records import AclRecord
from orchestrator.store.schema.acls import acl_group_members, acl_groups, acl_rules, acl_versions
from orchestrator.store.sql.keys import from_micros, to_micros
from orchestrator.store.sql.prepared import Prepared, table_of_texts
from orchestrator.store.tokens import name_of_author
from orchestrator.store.transaction import Transaction, one_line

_rules = acl_rules.c
_versions = acl_versions.c


class NewRow(NamedTuple):
    """A row about to begin. A tuple, because there are tens of thousands at once."""

    order_key: int
    number: int
    rule_id: str
    expires: int | None
    body: str


def body_of(rule: Rule, place: str = "") -> str:
    """Return a rule's text in its row.

    Raises BadInput for texts that readers of the native form would refuse later.
    """
    _check_texts(rule, place)
    return rule_texts((rule,))[0]


def bodies_of(rules: tuple[Rule, ...]) -> tuple[str, ...]:
    """Return the stored form of many rules."""
    for index, rule in enumerate(rules):
        if rule.description or rule.owner:
            _check_texts(rule, f"rules[{index}]")
    return tuple(rule_texts(rules))


def _check_texts(rule: Rule, place: str) -> None:
    for name, words in (("description", rule.description), ("owner", rule.owner)):
        if not words.isprintable():
            at(f"{place}.{name}" if place else name, read_text, words)


def new_row(rule: Rule, order_key: int, number: int, body: str) -> NewRow:
    """The row of a rule whose body is made already."""
    expires = None if rule.expires is None else to_micros(rule.expires)
    return NewRow(order_key, number, rule.id, expires, body)


# ---------------------------------------------------------------------------------------------------- reading


def load(tx: Transaction, tenant: Row[Any], version: int) -> CachedAcl:
    """Load a tenant's current list from memory, an older copy, or its rows."""
    near = tx.fresh.get(tenant.number) or tx.cache.nearest(tenant.number, version)
    if near is not None and near.record.version == version:
        return near
    entry = (
        None if near is None else _follow_change(tx, tenant, version, near) or _refresh_copy(tx, tenant, version, near)
    )
    tx.fresh[tenant.number] = entry or load_rows(tx, tenant, version)
    return tx.fresh[tenant.number]


def load_rows(tx: Transaction, tenant: Row[Any], version: int) -> CachedAcl:
    """A tenant's list at any version that was not forgotten, from its rows. Raises NotFound."""
    head = version_row(tx, tenant, version)
    with collector_paused():
        return _load_rows(tx, tenant, head)


_HELD_AT = Prepared(
    held_at(
        acl_rules, bindparam("of_tenant"), bindparam("at_version"), _rules.order_key, _rules.number, _rules.body
    ).order_by(_rules.order_key.name)
)


def _load_rows(tx: Transaction, tenant: Row[Any], head: Row[Any]) -> CachedAcl:
    rows = tx.rows(_HELD_AT, of_tenant=tenant.number, at_version=head.version)
    rules = _rules_of([row.body for row in rows])
    numbers = RuleNumbers({rule.id: row.number for rule, row in zip(rules, rows, strict=True)})
    groups = grouprows.load(tx, tenant.number, head.version)
    return _make_entry(tenant, head, rules, numbers, groups, array("q", [row.order_key for row in rows]))


def _follow_change(tx: Transaction, tenant: Row[Any], version: int, old: CachedAcl) -> CachedAcl | None:
    """Apply this transaction's own change to a copy; None if more changed."""
    moves = tx.moves.get(tenant.number)
    if moves is None or moves.head.version != version or old.record.version != version - 1:
        return None
    keys, rules, numbers = refreshed_rules(old, moves.ended, moves.begun)
    groups = old.groups
    if moves.groups:
        groups = grouprows.refresh_groups(tx, tenant.number, old.record.version, version, groups)
    return _make_entry(tenant, moves.head, rules, numbers, groups, keys)


def _refresh_copy(tx: Transaction, tenant: Row[Any], version: int, old: CachedAcl) -> CachedAcl | None:
    """Update an older copy; None where rows that ended since are forgotten already."""
    base = old.record.version
    lines = {row.version: row for row in tx.rows(_LINES, of_tenant=tenant.number, base=base, at_version=version)}
    if base not in lines:
        return None
    head = lines.get(version) or version_row(tx, tenant, version)
    moved = tx.rows(_MOVED_SINCE, of_tenant=tenant.number, base=base)
    born = [row for row in moved if row.begins]
    begun = [
        BegunRow(row.order_key, row.number, rule)
        for row, rule in zip(born, _rules_of([row.body for row in born]), strict=True)
    ]
    gone = [EndedRow(row.order_key, row.rule_id) for row in moved if not row.begins]
    keys, rules, numbers = refreshed_rules(old, gone, begun)
    groups = grouprows.refresh_groups(tx, tenant.number, base, version, old.groups)
    return _make_entry(tenant, head, rules, numbers, groups, keys)


_MOVED_SINCE = Prepared(
    select(_rules.order_key, _rules.number, _rules.rule_id, _rules.body, literal_column("1").label("begins"))
    .where(
        _rules.tenant == bindparam("of_tenant"),
        _rules.since_version > bindparam("base"),
        _rules.until_version.is_(None),
    )
    .union_all(
        select(_rules.order_key, _rules.number, _rules.rule_id, literal_column("''"), literal_column("0")).where(
            _rules.tenant == bindparam("of_tenant"),
            _rules.until_version > bindparam("base"),
            _rules.since_version + literal_column("0") <= bindparam("base"),
        )
    )
)
"""The rows that began since a version, with their bodies, and those that ended; the last condition is that of
`spans.ended_after`. One question, because each is a round trip in which a domain's writers wait."""
_LINES = Prepared(
    select(acl_versions).where(
        _versions.tenant == bindparam("of_tenant"),
        (_versions.version == bindparam("base")) | (_versions.version == bindparam("at_version")),
    )
)


def _make_entry(
    tenant: Row[Any],
    head: Row[Any] | VersionLine,
    rules: tuple[Rule, ...] | Listed[Rule],
    numbers: RuleNumbers,
    groups: Mapping[str, KeyedGroup],
    keys: array[int],
) -> CachedAcl:
    plain = MappingProxyType({name: each.group for name, each in groups.items()})
    acl = trusted_acl(rules, plain, Action(head.ingress_default), Action(head.egress_default))
    created = from_micros(head.created)
    record = AclRecord(TenantId(tenant.id), head.version, acl, numbers, head.author, created)
    return CachedAcl(record, keys, numbers, groups)


_LINE = Prepared(
    select(acl_versions).where(_versions.tenant == bindparam("of_tenant"), _versions.version == bindparam("at_version"))
)


def version_row(tx: Transaction, tenant: Row[Any], version: int) -> Row[Any]:
    """The line of a version. Raises NotFound."""
    row = tx.row(_LINE, of_tenant=tenant.number, at_version=version)
    if row is None:
        raise NotFound(f"the access list of '{tenant.id}' has no version {version}, or not any more")
    return row


def _rules_of(bodies: Sequence[str]) -> tuple[Rule, ...]:
    """Parse many rule bodies as one document, in one call."""
    return rules_from_json(orjson.loads(f"[{','.join(bodies)}]"))


_CURRENT_RULE = Prepared(
    select(acl_rules).where(
        _rules.tenant == bindparam("of_tenant"), _rules.rule_id == bindparam("called"), _rules.until_version.is_(None)
    )
)


def current_row(tx: Transaction, tenant: int, rule_id: str) -> Row[Any] | None:
    """The row of a rule of the current list."""
    return tx.row(_CURRENT_RULE, of_tenant=tenant, called=rule_id)


def current_rows(tenant: int) -> Select[Any]:
    """The rows of a tenant's current list, all columns, in no order yet."""
    return select(acl_rules).where(holds_now(acl_rules, tenant))


_PAST_NUMBER = Prepared(
    select(func.max(_rules.number).label("number")).where(
        _rules.tenant == bindparam("of_tenant"),
        _rules.rule_id == bindparam("called"),
        _rules.number > literal_column("0"),
        _rules.until_version.is_not(None),
    )
)
"""Searched in `acl_rules_ended_id`: that every number is above zero is said for SQLite (`spans`)."""
_ASKED_IDS = table_of_texts(bindparam("ids", type_=Text))
_PAST_NUMBERS = Prepared(
    select(
        _ASKED_IDS.c.value.label("rule_id"),
        select(func.max(_rules.number))
        .where(
            _rules.tenant == bindparam("of_tenant"),
            _rules.rule_id == _ASKED_IDS.c.value,
            _rules.number > literal_column("0"),
            _rules.until_version.is_not(None),
        )
        .scalar_subquery()
        .label("number"),
    )
)
"""One search an id, however many versions had it."""


def past_number(tx: Transaction, tenant: int, rule_id: str) -> int | None:
    """Return the number that a rule id had when it was last in the list.

    None where the history does not know the id.
    """
    row = tx.row(_PAST_NUMBER, of_tenant=tenant, called=rule_id)
    return None if row is None else row.number


def past_numbers(tx: Transaction, tenant: int, ids: Sequence[str]) -> dict[str, int]:
    """Return the past numbers of those rule ids that have one."""
    any_ended = select(_rules.number).where(_rules.tenant == tenant, _rules.until_version.is_not(None)).limit(1)
    if not ids or tx.read(any_ended).first() is None:
        return {}
    found = tx.rows(_PAST_NUMBERS, of_tenant=tenant, ids=orjson.dumps(ids).decode())
    return {row.rule_id: row.number for row in found if row.number is not None}


# ---------------------------------------------------------------------------------------------------- writing


_BEGIN = Prepared(insert(acl_versions))
_FORGET = (
    Prepared(
        delete(acl_versions).where(_versions.tenant == bindparam("of_tenant"), _versions.version < bindparam("oldest"))
    ),
    *(
        Prepared(
            delete(table).where(table.c.tenant == bindparam("of_tenant"), table.c.until_version <= bindparam("oldest"))
        )
        for table in (acl_rules, acl_groups, acl_group_members)
    ),
)


def begin_version(
    tx: Transaction, tenant: Row[Any], *, author: str, rules: int, defaults: tuple[Action, Action]
) -> int:
    """Write a new version's row, forget the oldest, and return the version.

    Raises BadInput.
    """
    one_line(author, place="author")
    version = int(tenant.acl_version) + 1
    line = VersionLine(version, author, tx.micros, defaults[0].value, defaults[1].value)
    generation = tx.bump_for_list(tenant)
    tx.rows(
        _BEGIN,
        tenant=tenant.number,
        version=version,
        author=author,
        created=line.created,
        ingress_default=line.ingress_default,
        egress_default=line.egress_default,
        rules=rules,
        generation=generation,
        comment="",
        author_name=name_of_author(tx, author),
    )
    tx.moves[tenant.number] = ListMoves(line)
    kept = min(tx.settings.versions_kept, tenant.quota_versions or tx.settings.versions_kept)
    oldest = oldest_needed(tenant, version - kept + 1)
    if oldest > 1:
        forget_versions(tx, tenant, oldest)
    return version


def oldest_needed(tenant: Row[Any], oldest: int) -> int:
    """Return a version, or an older one to which the list may go back."""
    return oldest if tenant.confirm_base is None else min(oldest, int(tenant.confirm_base))


def oldest_version(tx: Transaction, tenant: int) -> int:
    """Return the oldest version of a list that is known."""
    return int(tx.read(select(func.min(_versions.version)).where(_versions.tenant == tenant)).scalar_one())


_FORGOTTEN_BYTES = tuple(
    Prepared(
        select(func.sum(func.length(text) + bindparam("row_bytes")).label("bytes")).where(
            table.c.tenant == bindparam("of_tenant"), table.c.until_version <= bindparam("oldest")
        )
    )
    for table, text in (
        (acl_rules, _rules.body),
        (acl_groups, acl_groups.c.description),
        (acl_group_members, acl_group_members.c.prefix),
    )
)


def forget_versions(tx: Transaction, tenant: Row[Any], oldest: int) -> int:
    """Forget the versions of a list before `oldest`; return the bytes that this frees.

    The tenant is charged with so much less by `charge`.
    """
    before = tx.lists.get(tenant.id, oldest)
    if before < oldest and tenant.id not in tx.rules_before:
        line = tx.row(_LINE, of_tenant=tenant.number, at_version=before)
        tx.rules_before[tenant.id] = 0 if line is None else line.rules
    freed = 0
    for counted in _FORGOTTEN_BYTES:
        row = tx.row(counted, of_tenant=tenant.number, oldest=oldest, row_bytes=ROW_BYTES)
        freed += int(row.bytes or 0) if row is not None else 0
    for forget in _FORGET:
        tx.rows(forget, of_tenant=tenant.number, oldest=oldest)
    tx.edit(tenant.number).begun_bytes -= freed
    return freed


_END = Prepared(
    update(acl_rules)
    .where(
        _rules.tenant == bindparam("of_tenant"),
        _rules.since_version == bindparam("began"),
        _rules.order_key == bindparam("at_key"),
    )
    .values(until_version=bindparam("ends"))
)


def end_rows(tx: Transaction, tenant: int, version: int, rows: Sequence[Row[Any]]) -> None:
    """Let rows of the current list hold no more from `version` on."""
    if rows:
        tx.edit(tenant).end((row.number, row.order_key, row.body) for row in rows)
        tx.moves[tenant].ended += [EndedRow(row.order_key, row.rule_id) for row in rows]
        ends = {"of_tenant": tenant, "ends": version}
        tx.each(_END, [{**ends, "began": row.since_version, "at_key": row.order_key} for row in rows])


def end_all(tx: Transaction, tenant: int, version: int, rows: Sequence[Row[Any]]) -> None:
    """Let every row of the current list, which `rows` are, hold no more."""
    tx.edit(tenant).end((row.number, row.order_key, row.body) for row in rows)
    tx.write(update(acl_rules).where(holds_now(acl_rules, tenant)).values(until_version=version))


_ROW_COLUMNS = ("tenant", "since_version", *NewRow._fields)
_BEGIN_ROW = Prepared(insert(acl_rules), _ROW_COLUMNS)


def begin_rows(
    tx: Transaction, tenant: int, version: int, rows: Sequence[NewRow], rules: Sequence[Rule] | None = None
) -> None:
    """Insert rows that hold from `version`.

    `rules` are their rules; None: they are read from the rows.
    """
    begun = zip(rows, _rules_of([row.body for row in rows]) if rules is None else rules, strict=True)
    tx.edit(tenant).begin((row.number, row.order_key, row.body) for row in rows)
    tx.moves[tenant].begun += [BegunRow(row.order_key, row.number, rule) for row, rule in begun]
    tx.sets_times = tx.sets_times or any(row.expires is not None for row in rows)
    tx.each(_BEGIN_ROW, [{"tenant": tenant, "since_version": version, **row._asdict()} for row in rows])


def fill(tx: Transaction, tenant: int, version: int, rows: Iterable[NewRow]) -> None:
    """Let rows hold from `version` on, where the whole new list is known (`Transaction.fresh`)."""
    tx.sets_times = True
    begun = list(rows)
    tx.edit(tenant).begin((row.number, row.order_key, row.body) for row in begun)
    tx.insert_rows(acl_rules, _ROW_COLUMNS, ((tenant, version, *row) for row in begun))
