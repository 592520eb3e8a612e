"""Security domains: their settings, the operator's rules, and the policy as one value.

Hosts and endpoints, the other half of the same repository, are in `sites.py`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import orjson
from sqlalchemy import Row, delete, func, insert, select, true, update

from orchestrator.errors import ApprovalNeeded, BadPolicy, Conflict, NotFound
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.native import rule_from_json
from orchestrator.policy.model import (
    PATH_MTU_RATE,
    Acl,
    Endpoint,
    Policy,
    ReturnTraffic,
    Rule,
    Tenant,
    TenantId,
    check_name,
)
from orchestrator.store.acls import rows as aclrows
from orchestrator.store.packetlog import limit_of
from orchestrator.store.placements import with_placements
from orchestrator.store.prefixrows import owned_prefixes
from orchestrator.store.records import Change, DomainRecord, OperatorRules, PolicySnapshot
from orchestrator.store.schema.acls import acl_versions
from orchestrator.store.schema.core import domains, events, hosts, operator_rules, prefixes, tenants
from orchestrator.store.schema.firewalls import EDGE, fleets
from orchestrator.store.sites import Sites
from orchestrator.store.sql.keys import from_micros
from orchestrator.store.transaction import Touched, expect

_LATELY = 10_000
"""So many of the newest events are counted to tell which domains are busy."""

_OWNED = (
    ("tenants", tenants.c.domain, tenants.c.id, true(), "tenant delete {1}"),
    ("hosts", hosts.c.domain, hosts.c.name, hosts.c.plane.is_(None), "domain host remove {0} {1}"),
    ("edge switches", hosts.c.domain, hosts.c.name, hosts.c.plane == EDGE, "pop edge remove POP {1}"),
    ("firewalls", hosts.c.domain, hosts.c.name, hosts.c.plane.is_not(None), "firewall remove {0} {1}"),
    ("a fleet", fleets.c.domain, fleets.c.domain, true(), "fleet remove {0}"),
)
"""Things that keep a domain from being deleted: their name, place, and the command that ends one."""


class Domains(Sites):
    """The domains' repository.

    A change of what enforcement points must hold moves the generation, in the same transaction.
    """

    # ------------------------------------------------------------------------------------------------ domains

    def create(
        self,
        domain: str,
        *,
        return_traffic: ReturnTraffic = ReturnTraffic.ESTABLISHED,
        path_mtu_rate: int = PATH_MTU_RATE,
    ) -> DomainRecord:
        """Create a domain. Raises Conflict, BadInput.

        Generations and epochs begin above those of all domains that were deleted, for a switch may still hold the
        stamp of an older domain of the same name.
        """
        check_name(domain, "a domain id", place="id")
        if self._tx.read(select(domains.c.id).where(domains.c.id == domain)).first() is not None:
            raise Conflict(f"there is already a domain '{domain}'", place="id")
        self._tx.write(
            insert(domains).values(
                id=domain,
                return_traffic=return_traffic.value,
                path_mtu_rate=path_mtu_rate,
                generation=self._tx.highest("generation") + 1,
                epoch=self._tx.highest("epoch"),
                version=1,
                operator_version=0,
                created=self._tx.micros,
            )
        )
        return self.get(domain)

    def get(self, domain: str) -> DomainRecord:
        """Return a domain. Raises NotFound."""
        return _read_domain(self._tx.domain(domain))

    def list(self, *, limit: int = 100, marker: str | None = None) -> tuple[DomainRecord, ...]:
        """Domains in the order of their ids, those after `marker`."""
        statement = select(domains).order_by(domains.c.id).limit(limit)
        if marker is not None:
            statement = statement.where(domains.c.id > marker)
        return tuple(_read_domain(row) for row in self._tx.read(statement))

    def names(self) -> tuple[str, ...]:
        """Every domain, the busiest first: by lately published generations, then by hosts and firewalls."""
        newest = select(func.coalesce(func.max(events.c.id), 0)).scalar_subquery()
        lately = (events.c.id > newest - _LATELY) & (events.c.kind == "generation.published")
        published = select(events.c.domain, func.count().label("times")).where(lately).group_by(events.c.domain)
        times = {row.domain: row.times for row in self._tx.read(published)}
        statement = (
            select(domains.c.id, func.count(hosts.c.name).label("hosts"))
            .outerjoin(hosts, hosts.c.domain == domains.c.id)
            .group_by(domains.c.id)
        )
        found = self._tx.read(statement).all()
        return tuple(row.id for row in sorted(found, key=lambda row: (-times.get(row.id, 0), -row.hosts, row.id)))

    def delete(self, domain: str, *, expected_version: int | None = None) -> None:
        """Delete a domain.

        Raises NotFound, Stale, and Conflict while it has tenants, hosts or a fleet.
        """
        row = self._tx.domain(domain)
        expect(expected_version, row.version)
        _refuse_marked(row)
        self._refuse_owners(domain)
        self._tx.raise_highest("generation", row.generation)
        self._tx.raise_highest("epoch", row.epoch)
        self._tx.write(delete(domains).where(domains.c.id == domain))

    def _refuse_owners(self, domain: str) -> None:
        """Raise Conflict with the first of what a domain still has, and its command."""
        for what, owner, name, is_meant, command in _OWNED:
            left = select(name).where(owner == domain, is_meant).order_by(name).limit(1)
            found = self._tx.read(left).scalar_one_or_none()
            if found is not None:
                raise Conflict(f"the domain still has {what}: first `aclflow {command.format(domain, found)}`")
        self._tx.policies.drop(domain)
        self._tx.known_pops.drop(domain)

    def set_return_traffic(
        self,
        domain: str,
        setting: ReturnTraffic | None = None,
        *,
        path_mtu_rate: int | None = None,
        expected_version: int | None = None,
    ) -> DomainRecord:
        """Change what is given, and leave the rest. Raises NotFound, Stale."""
        row = self._tx.domain(domain)
        expect(expected_version, row.version)
        changes: dict[str, str | int] = {}
        if setting is not None and setting.value != row.return_traffic:
            since = self._tx.generations.get(domain, row.generation + self._tx.stride)
            changes |= {"return_traffic": setting.value, "returns_since": since}
        if path_mtu_rate is not None and path_mtu_rate != row.path_mtu_rate:
            changes["path_mtu_rate"] = path_mtu_rate
        if changes:
            _refuse_marked(row)
            changed = update(domains).where(domains.c.id == domain)
            self._tx.write(changed.values(version=row.version + 1, **changes))
            self._tx.bump(domain)
        return self.get(domain)

    def returns_since(self, domain: str) -> int:
        """The generation with which the domain's setting of return traffic came. Raises NotFound."""
        return int(self._tx.domain(domain).returns_since)

    def bump_generation(self, domain: str) -> int:
        """Move the generation, once a unit, and return it.

        Raises NotFound.

        Everything in the store that changes a policy does this itself.
        """
        self._tx.domain(domain)
        return self._tx.bump(domain)

    # ------------------------------------------------------------------------------------------------ the policy

    def policy(self, domain: str) -> PolicySnapshot:
        """Read everything that decides a packet's fate in a domain, as one value.

        From memory where its generation is known, with what this transaction changed since (lists, tenants, endpoints)
        and with the lists that other services are known to have changed. All that did not change are the same objects.
        """
        row = self._tx.domain(domain)
        moved = domain in self._tx.generations
        known = self._tx.policies.get(domain)
        if known is not None and not moved and not self._tx.writing and known.generation == row.generation:
            return known
        others = None
        if known is not None and domain not in self._tx.reshaped and (moved or not self._tx.writing):
            before = row.generation - (self._tx.stride if moved else 0)
            others = self._tx.policies.lists_changed(domain, known.generation, before)
        if known is not None and others is not None:
            policy = self._apply_touched(domain, known.policy, others)
            found = PolicySnapshot(policy, row.generation, known.lifted, known.standing)
            if domain in self._tx.placed or self._tx.touched.get(domain, Touched()).tenants:
                found = with_placements(self._tx, domain, found)
        else:
            policy = self._make_policy(domain, row)
            found = with_placements(self._tx, domain, PolicySnapshot(policy, row.generation))
        if moved or not self._tx.writing:  # a writer that has not moved the generation may have changed rows already
            self._tx.snapshots[domain] = found
        return found

    def list_marks(self, domain: str) -> Mapping[str, str]:
        """Return, by tenant, a text that names its list; no other list ever has it."""
        versions = acl_versions.c
        of_domain = (
            select(tenants.c.id, versions.version, versions.generation, versions.created)
            .join(acl_versions, (versions.tenant == tenants.c.number) & (versions.version == tenants.c.acl_version))
            .where(tenants.c.domain == domain)
        )
        return {row.id: f"{row.version} {row.generation} {row.created}" for row in self._tx.read(of_domain)}

    def _apply_touched(self, domain: str, policy: Policy, others: frozenset[str]) -> Policy:
        """Apply to a policy the changes of this transaction and the lists of `others`.

        `others` are the tenants whose lists changed before.
        """
        touched = self._tx.touched.get(domain, Touched())
        tenants = list(policy.tenants)
        lists = self._tx.lists.keys() | others
        for name in touched.tenants | lists:
            place = bisect_left(tenants, name, key=lambda each: each.id)
            known = tenants[place] if place < len(tenants) and tenants[place].id == name else None
            tenants[place : place + (known is not None)] = self._tenant_now(domain, name, known)
        endpoints = list(policy.endpoints)
        for name in touched.endpoints:
            place = bisect_left(endpoints, name, key=lambda each: each.name)
            is_known = place < len(endpoints) and endpoints[place].name == name
            endpoints[place : place + is_known] = self._read_endpoint(domain, name)
        return replace(
            policy,
            tenants=tuple(tenants) if touched.tenants or lists else policy.tenants,
            endpoints=tuple(endpoints) if touched.endpoints else policy.endpoints,
        )

    def _tenant_now(self, domain: str, name: str, known: Tenant | None) -> Sequence[Tenant]:
        """Read a tenant as its rows are now; none where the domain lost it."""
        try:
            row = self._tx.tenant(name)
        except NotFound:
            return []
        if row.domain != domain:
            return []
        record = aclrows.load(self._tx, row, row.acl_version).record
        touched = self._tx.touched.get(domain, Touched()).tenants
        owned = known.prefixes if known is not None and name not in touched else owned_prefixes(self._tx, row.number)
        return [Tenant(TenantId(row.id), row.number, owned, record.acl, record.numbers)]

    def _read_endpoint(self, domain: str, name: str) -> Sequence[Endpoint]:
        try:
            return [self.endpoint(domain, name).endpoint]
        except NotFound:
            return []

    def _make_policy(self, domain: str, row: Row[Any]) -> Policy:
        operator = self.operator_rules(domain)
        return Policy(
            tenants=self._read_tenants(domain),
            operator=operator.rules,
            operator_numbers=operator.numbers,
            return_traffic=ReturnTraffic(row.return_traffic),
            endpoints=tuple(sorted((each.endpoint for each in self.endpoints(domain)), key=lambda each: each.name)),
            log_limit=limit_of(self._tx, domain),
            path_mtu_rate=row.path_mtu_rate,
        )

    def _read_tenants(self, domain: str) -> tuple[Tenant, ...]:
        owned: defaultdict[int, list[Prefix]] = defaultdict(list)
        of_domain = (
            select(prefixes.c.tenant, prefixes.c.prefix)
            .join(tenants, tenants.c.number == prefixes.c.tenant)
            .where(tenants.c.domain == domain)
            .order_by(prefixes.c.first)
        )
        for row in self._tx.read(of_domain):
            owned[row.tenant].append(Prefix.parse(row.prefix))
        found = self._tx.read(select(tenants).where(tenants.c.domain == domain))
        rows = sorted(found, key=lambda row: str(row.id))  # a database's collation may have an order of its own
        lists = [aclrows.load(self._tx, row, row.acl_version).record for row in rows]
        return tuple(
            Tenant(TenantId(row.id), row.number, tuple(owned[row.number]), record.acl, record.numbers)
            for row, record in zip(rows, lists, strict=True)
        )

    # ------------------------------------------------------------------------------------------------ operator rules

    def operator_rules(self, domain: str) -> OperatorRules:
        """The operator's rules, in order. Raises NotFound."""
        version = self._tx.domain(domain).operator_version
        rows = self._read_operator_rows(domain)
        rules = tuple(rule_from_json(orjson.loads(row.body)) for row in rows)
        return OperatorRules(domain, version, rules, MappingProxyType({row.rule_id: row.number for row in rows}))

    def set_operator_rules(
        self, domain: str, rules: Sequence[Rule], *, expected_version: int | None = None, approved: bool = False
    ) -> Change:
        """Replace the operator's rules. Ids that stay keep their numbers.

        `approved`: another person has agreed, or nobody needs to. Raises NotFound, Stale, ApprovalNeeded, and BadPolicy
        for an id used twice, for address groups, which are tenants' own, and for rules that expire, which nobody would
        take out.
        """
        row = self._tx.domain(domain)
        expect(expected_version, row.operator_version)
        checked = Acl(tuple(rules)).rules
        _check_lasting(checked)
        bodies = [aclrows.body_of(rule, f"rules[{index}]") for index, rule in enumerate(checked)]
        old = self._read_operator_rows(domain)
        if [before.body for before in old] == bodies:
            return Change(row.operator_version, row.generation, changed=False)
        if not approved and not self._tx.rehearses:
            _refuse_marked(row)
        numbers = {before.rule_id: before.number for before in old}
        fresh = [rule.id for rule in checked if rule.id not in numbers]
        first = self._tx.draw("rule", len(fresh)) if fresh else 0
        numbers.update((rule_id, first + offset) for offset, rule_id in enumerate(fresh))
        self._tx.write(delete(operator_rules).where(operator_rules.c.domain == domain))
        if checked:
            new = [
                {"domain": domain, "position": index, "number": numbers[rule.id], "rule_id": rule.id, "body": body}
                for index, (rule, body) in enumerate(zip(checked, bodies, strict=True))
            ]
            self._tx.write(insert(operator_rules), new)
        version = row.operator_version + 1
        self._tx.write(update(domains).where(domains.c.id == domain).values(operator_version=version))
        return Change(version, self._tx.bump(domain))

    def check_unmarked(self, domain: str) -> None:
        """Raise ApprovalNeeded where another person must approve changes of the operator rules; NotFound."""
        _refuse_marked(self._tx.domain(domain))

    def _read_operator_rows(self, domain: str) -> Sequence[Row[Any]]:
        columns = operator_rules.c
        return self._tx.read(select(operator_rules).where(columns.domain == domain).order_by(columns.position)).all()


def _refuse_marked(row: Row[Any]) -> None:
    """Refuse a change of a domain whose operator rules need a second person. Raises ApprovalNeeded."""
    if row.two_persons:
        raise ApprovalNeeded(
            f"another person must approve changes of the operator rules of '{row.id}', and this one cannot be "
            "proposed: propose first that they need no approval"
        )


def _check_lasting(rules: Sequence[Rule]) -> None:
    for index, rule in enumerate(rules):
        if rule.expires is not None:
            raise BadPolicy("an operator's rule holds until it is taken out", place=f"rules[{index}].expires")


def _read_domain(row: Row[Any]) -> DomainRecord:
    return DomainRecord(
        row.id,
        ReturnTraffic(row.return_traffic),
        row.path_mtu_rate,
        row.generation,
        row.version,
        from_micros(row.created),
    )
