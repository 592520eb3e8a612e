"""Servers' data of each tenant, made from its previous version where that is shorter.

    list, version 7 ── rest: chains ── pairs
         │ only rules came or went that are pairs, or of the other direction; no deny before them is about them
         ▼
    list, version 8 ── the same rest ── pairs, with these more or less

Everything else is compiled from scratch, and comes to the same. These values never change, so what a transaction has
made that was rolled back is as good a beginning as any.

`Pairs` is a multiset of a tenant's exact pairs: a pair goes with its last rule. It never changes: with a few pairs more
or fewer it shares all blocks of rows that these do not touch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from orchestrator.compile.filters.cacherows import CLASSIFIER, cache_table
from orchestrator.compile.filters.filterlists import FilterList, operator_list, tenant_lists
from orchestrator.compile.filters.filterrows import FILTERS, filter_row
from orchestrator.compile.lists.atoms import atoms
from orchestrator.compile.lists.edits import Hunk, hunks_of
from orchestrator.compile.lists.steps import same_numbers
from orchestrator.compile.nftables.listtable import Objects
from orchestrator.compile.nftables.served import tenant_objects
from orchestrator.compile.servers.bitvectors import MOST_RULES
from orchestrator.compile.servers.exactpairs import Keys, PairSet, is_met, join_keys, pair_rows, pairs_alone, taken_out
from orchestrator.compile.servers.generalrows import general_rows
from orchestrator.errors import AclflowError
from orchestrator.policy.addresses import Family
from orchestrator.policy.loglimit import USUAL, LogLimit
from orchestrator.policy.model import Acl, Direction, Policy, ReturnTraffic, Rule, Tenant
from orchestrator.program.blocks import Blocks
from orchestrator.program.delta import difference
from orchestrator.program.flows import Flow, FlowTable
from orchestrator.program.rules import PERMIT, RuleTable
from orchestrator.wire.firewalls import Plane

NO_ROWS = FlowTable.of(())
RowChange = tuple[FlowTable, FlowTable]
"""The rows that are gone, and those that came."""


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """The pairs of a tenant's number; `more` counts further rules for each row."""

    tenant: int
    rows: Blocks
    more: Mapping[Flow, int] = field(default_factory=dict)

    @classmethod
    def of(cls, tenant: int, pairs: Mapping[PairSet, Keys]) -> Pairs:
        """Make a set from pairs, each given once for every rule that permits it."""
        tables, more = [], {}
        for kind, keys in pairs.items():
            each, count = np.unique(keys, axis=0, return_counts=True)
            tables.append(pair_rows(kind, each, tenant))
            for place in np.flatnonzero(count > 1).tolist():
                more[tables[-1].row(place)] = int(count[place]) - 1
        return cls(tenant, Blocks.of(FlowTable.join_tables(tables)), more)

    def exchange_pairs(self, gone: Mapping[PairSet, Keys], come: Mapping[PairSet, Keys]) -> tuple[Pairs, RowChange]:
        """Return the pairs without some, which must be there, and with others."""
        by: dict[Flow, int] = {}
        for pairs, sign in ((gone, -1), (come, 1)):
            for kind, keys in pairs.items():
                for row in pair_rows(kind, keys, self.tenant).rows():
                    by[row] = by.get(row, 0) + sign
        more = dict(self.more)
        removed: list[Flow] = []
        added: list[Flow] = []
        for row, change in by.items():
            before = more.pop(row, 0) + (row in self.rows)
            after = before + change
            if after > 1:
                more[row] = after - 1
            if bool(before) != bool(after):
                (added if after else removed).append(row)
        tables = FlowTable.of(removed), FlowTable.of(added)
        return Pairs(self.tenant, self.rows.replace_rows(*tables), more), tables

    def since(self, before: Pairs | None) -> RowChange:
        """Return the change from other pairs to these."""
        if before is None:
            return NO_ROWS, self.rows.join_rows()
        return difference(*before.rows.apart(self.rows))


_FEW = 256
"""So many rules that come and go are looked at one by one."""


@dataclass(frozen=True, slots=True, eq=False)
class _Denies:
    """An ingress list's denies, in order, with the place of each row's rule."""

    rules: RuleTable
    place: npt.NDArray[np.int64]

    @classmethod
    def of(cls, ingress: FilterList) -> _Denies:
        """Select the denies of a list whose rows know their rule's place."""
        rules = ingress.rules.take(ingress.rules.action != PERMIT)
        return cls(rules, rules.order.astype(np.int64))

    def after(self, edit: Sequence[Hunk]) -> _Denies:
        """Move the denies where other rules came and went."""
        if not len(self.place):
            return self
        place = self.place.copy()
        for hunk in edit:
            place[self.place >= hunk.first + hunk.gone] += hunk.come - hunk.gone
        return replace(self, place=place)

    def meet(self, pairs: RuleTable, place: int) -> bool:
        """Return whether a deny before a place overlaps the address pairs of some rows."""
        ahead = self.place < place
        return bool(ahead.any()) and is_met(pairs, self.rules.take(ahead))


@dataclass(frozen=True, slots=True, eq=False)
class Served:
    """A server's data of one tenant: list, chains, pairs, classifier rows.

    `step` is how the pairs came from those of another, if they did.
    """

    tenant: Tenant
    rest: FilterList
    chains: FlowTable
    pairs: Pairs
    general: FlowTable
    denies: _Denies
    step: tuple[Pairs, RowChange] | None = None

    @classmethod
    def of(cls, operator: FilterList, tenant: Tenant, *, general: bool = False, limit: LogLimit = USUAL) -> Served:
        """Build from scratch.

        `general`: with rows for a classifier. Raises TooLarge and BadPolicy with the rule's place.
        """
        _, ingress = tenant_lists(tenant, ReturnTraffic.EXPLICIT)
        rest, pairs = taken_out(ingress)
        rows = general_rows(operator, ingress) if general else ()
        table = cache_table(rows, CLASSIFIER) if len(rows) <= MOST_RULES else NO_ROWS
        chains = object_rows(tenant_objects(operator, rest, limit=limit))
        return cls(tenant, rest, chains, Pairs.of(tenant.number, pairs), table, _Denies.of(ingress))

    def follow_list(self, tenant: Tenant) -> Served | None:
        """Update to another version of the list; None where starting from scratch is better."""
        before, after = self.tenant, tenant
        if (before.number, before.prefixes) != (after.number, after.prefixes):
            return None
        if _beside_rules(before.acl) != _beside_rules(after.acl):
            return None
        edit = hunks_of(before.acl.listed, after.acl.listed)
        if sum(hunk.gone + hunk.come for hunk in edit) > _FEW or not same_numbers(before, after, edit):
            return None
        denies = self.denies.after(edit)
        gone = _pairs_of(before, [(hunk.first, hunk.gone) for hunk in edit], self.denies)
        come = _pairs_of(after, [(hunk.place, hunk.come) for hunk in edit], denies)
        if gone is None or come is None:
            return None
        pairs, change = self.pairs.exchange_pairs(gone, come)
        step = (self.pairs, change)
        return Served(tenant, self.rest, self.chains, pairs, self.general, denies, step)

    def since(self, before: Served | None) -> RowChange:
        """Return the change from another version, or none, to this one."""
        if before is None:
            removed, added = self.pairs.since(None)
            return removed, FlowTable.join_tables([self.chains, added])
        is_next = self.step is not None and self.step[0] is before.pairs
        pairs = self.step[1] if self.step is not None and is_next else self.pairs.since(before.pairs)
        if self.chains is before.chains:
            return pairs
        chains = difference(before.chains, self.chains)
        removed, added = (FlowTable.join_tables([chains[side], pairs[side]]) for side in (0, 1))
        return removed, added


@dataclass(frozen=True, slots=True, eq=False)
class Lists:
    """A policy's compiled lists: the operator's, and each tenant's by its id."""

    operator: FilterList
    served: Mapping[str, Served]


class TenantCompiler:
    """Compiles tenants from the previous policy's results.

    Not safe between threads.
    """

    def __init__(self, *, general: bool = False) -> None:
        self._general = general
        self._above: tuple[tuple[Rule, ...], LogLimit] | None = None
        self._last = Lists(operator_list(Policy(())), {})

    def general(self, wanted: bool) -> None:  # the one thing there is to say
        """Whether there are to be rows for classifiers."""
        if wanted != self._general:
            self._general = wanted
            self._above = None

    def lists(self, policy: Policy) -> Lists:
        """All of a policy's lists. Raises TooLarge and BadPolicy with the rule's place."""
        above = policy.operator, policy.log_limit
        is_known = self._above is not None and self._above[0] is above[0] and self._above[1] == above[1]
        operator = self._last.operator if is_known else operator_list(policy)
        known = self._last.served if is_known else {}
        served: dict[str, Served] = {
            each.id: self._serve_tenant(operator, each, known.get(each.id), above[1]) for each in policy.tenants
        }
        self._above, self._last = above, Lists(operator, served)
        return self._last

    def _serve_tenant(self, operator: FilterList, tenant: Tenant, known: Served | None, limit: LogLimit) -> Served:
        if known is not None and known.tenant is tenant:
            return known
        followed = known.follow_list(tenant) if known is not None and not self._general else None
        try:
            return followed or Served.of(operator, tenant, general=self._general, limit=limit)
        except AclflowError as error:
            raise error.within(f"tenants[{tenant.id}].acl") from None


def object_rows(objects: Mapping[Family, Objects]) -> FlowTable:
    """The objects of tables as rows of a program."""
    return FlowTable.of(
        filter_row(FILTERS[Plane.NFTABLES][family], name, "\n".join(lines))
        for family, table in objects.items()
        for name, lines in table.items()
    )


def _beside_rules(acl: Acl) -> tuple[object, ...]:
    """Return the parts of a list besides its rules."""
    return acl.groups, acl.ingress_default


def _pairs_of(tenant: Tenant, places: Iterable[tuple[int, int]], denies: _Denies) -> Mapping[PairSet, Keys] | None:
    """Return the pairs of some stretches of a list.

    None where a rule is something else, or a deny is before it.
    """
    found: dict[PairSet, list[Keys]] = {}
    for first, count in places:
        rules = [rule for rule in tenant.acl.listed[first : first + count] if rule.direction is Direction.INGRESS]
        if not rules:
            continue
        try:
            table = atoms(rules, tenant.acl.groups, tenant=tenant.number)
        except AclflowError:
            return None
        pairs = pairs_alone(table, tenant.prefixes)
        if pairs is None or denies.meet(table, first):
            return None
        for kind, keys in pairs.items():
            found.setdefault(kind, []).append(keys)
    return {kind: join_keys(parts, kind) for kind, parts in found.items()}
