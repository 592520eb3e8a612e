"""The proof of a whole program: every list, the operator's, and connecting rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np

from orchestrator.compile.equivalence.alonerows import chain_alone, read_alone
from orchestrator.compile.equivalence.chain import Chain
from orchestrator.compile.equivalence.conjunctions import Conjunctions, plainly
from orchestrator.compile.equivalence.conjunctionsteps import Change, follow_conjunctions
from orchestrator.compile.equivalence.copyproof import check_copies, touches_copies
from orchestrator.compile.equivalence.liftedproof import LiftedProof, Met
from orchestrator.compile.equivalence.listproof import ListProof
from orchestrator.compile.equivalence.memberproof import MemberSets
from orchestrator.compile.equivalence.rowdecoder import Items
from orchestrator.compile.equivalence.sortedrows import NO_ROWS, check_ends, deciding, is_of_rules, standing
from orchestrator.compile.equivalence.trackedproof import alone_rows, read_rows, read_whole, tracks
from orchestrator.errors import NotEquivalent
from orchestrator.policy.listed import find_replaced
from orchestrator.policy.model import Policy, ReturnTraffic, Rule, Tenant
from orchestrator.policy.stateless import is_mixed
from orchestrator.program.flows import FlowTable

OPERATOR = ""
"""The operator's list among the tenants' ids."""


@dataclass(frozen=True, slots=True, eq=False)
class Proven:
    """A list, its proof with hulls for conjunctive rules, and their conjunctions."""

    chain: Chain
    proof: ListProof
    conjunctions: Conjunctions
    sets: MemberSets

    @classmethod
    def of(cls, chain: Chain, rows: FlowTable) -> Proven:
        """Prove a list from all its rows. Raises NotEquivalent."""
        plain = plainly(chain, rows)
        proof = ListProof.of(plain.conjunctions.standing_in(chain), plain.rows)
        return cls(chain, proof, plain.conjunctions, MemberSets(chain.groups))

    def met_by(self, items: Items) -> list[Rule]:
        """Return the rules that share packets with items, in order.

        Of conjunctions, those whose hulls do.
        """
        others = set(self.chain.return_cookies())
        hulls = self.conjunctions.hulls
        rules = [rule for cookie, rule in self.proof.ledger.met_by(items) if cookie not in others]
        return [hulls[rule.id][0] if rule.id in hulls else rule for rule in rules]

    def after(self, chain: Chain, removed: FlowTable, added: FlowTable) -> Proven | None:
        """Return the proof of the next list after existing rows went and new ones came.

        None: prove it from scratch. Raises NotEquivalent.
        """
        groups = self.sets.follow_groups(chain.groups)
        if groups is None or chain.differs_besides_rules(self.chain):
            return None
        step = follow_conjunctions(self.conjunctions, Change(self.chain, chain, groups, removed, added))
        if step is None:
            return None
        plain = step.conjunctions.standing_in(chain)
        proof = self.proof.after(plain, step.removed, step.added, groups)
        return None if proof is None else Proven(chain, proof, step.conjunctions, groups.after)


@dataclass(frozen=True, slots=True, eq=False)
class Proof:
    """A policy and a program proven to decide the same. It never changes.

    Every row of the tables that decide bears the number of one of `owners`, and each of `lists` is proven over all
    rows of its number: so a step proves what it touches, and the rest stays proven.
    """

    policy: Policy
    lists: Mapping[str, Proven]
    owners: Mapping[int, str]
    lifted: LiftedProof
    kept: Mapping[str, Tenant]
    """The tenants whose lists were proven before their program was kept: they are proven again at their next change."""
    copying: frozenset[int] = frozenset()
    """The tenants that are known to have the rows that copy what theirs ask for; others are looked at when they ask."""

    def must_begin_anew(self, policy: Policy, removed: FlowTable, added: FlowTable) -> bool:
        """Return whether the next program must be proven whole.

        It must if other rows track connections than before, or none do any more, or if rules are stateless now.
        """
        were_tracked = self.policy.return_traffic is ReturnTraffic.TRACKED
        if were_tracked is not (policy.return_traffic is ReturnTraffic.TRACKED):
            return True
        if is_mixed(self.policy) is not is_mixed(policy):
            return True
        return were_tracked and bool(tracks(removed).any() or tracks(added).any())

    def after(self, policy: Policy, removed: FlowTable, added: FlowTable, rows_of: Callable[[int], FlowTable]) -> Proof:
        """Return the proof of the next policy with the rows `removed` and `added`.

        Lists of tenants that are the same objects, and of which no row came or went, stay proven without a look. The
        others are followed, or proven from scratch: `rows_of` gives the rows of the next program that bear a tenant's
        number. Raises NotEquivalent. Not to be called where it `must_begin_anew`.
        """
        copying: frozenset[int] = frozenset()
        if policy.return_traffic is ReturnTraffic.TRACKED:
            self._follow_alone(policy, removed, added, rows_of)
            touched = touches_copies(removed) | touches_copies(added)
            removed, (added, asking) = read_rows(removed).rows, read_rows(added)
            copying = self._follow_copies(touched, asking, rows_of)
        was, now = deciding(removed), deciding(added)
        gone, come = _by_owner(was.lists), _by_owner(now.lists)
        chains, dropped = self._changed_chains(policy, gone.keys() | come.keys())
        lists, owners, kept = dict(self.lists), dict(self.owners), dict(self.kept)
        left = {self._find_number(name) for name in dropped}
        for number in left:
            owners.pop(number, None)
        for name in dropped:
            lists.pop(name, None)
        for name in (*dropped, *chains):
            kept.pop(name, None)
        owners |= {chain.tenant: name for name, chain in chains.items()}
        for number in (gone.keys() | come.keys() | left) - owners.keys():
            _check_gone(number, rows_of(number))
        for name, chain in chains.items():
            rows = gone.get(chain.tenant, NO_ROWS), come.get(chain.tenant, NO_ROWS)
            known = self.lists.get(name)
            if known is not None and _is_same(known.chain, chain) and not len(rows[0]) and not len(rows[1]):
                continue
            found = None if known is None or name == OPERATOR else known.after(chain, *rows)
            lists[name] = found or _proven(name, chain, _lists_of(policy, rows_of(chain.tenant)))
        lifted = self.lifted.after(policy, was.lifted, now.lifted, _met_by(policy, lists, kept, rows_of))
        return Proof(policy, lists, owners, lifted, kept, copying)

    def _follow_copies(
        self, touched: Set[int], asking: frozenset[int], rows_of: Callable[[int], FlowTable]
    ) -> frozenset[int]:
        """Return the tenants known to copy, after copying rows were touched and some ask.

        Raises NotEquivalent.
        """
        known = self.copying - touched
        for number in (asking | touched) - known:
            rows = rows_of(number)
            check_copies(read_rows(rows).asking, rows)
        return known | asking

    def _follow_alone(
        self, policy: Policy, removed: FlowTable, added: FlowTable, rows_of: Callable[[int], FlowTable]
    ) -> None:
        """Prove the rows that decide alone of lists that changed. Raises NotEquivalent."""
        touched = {*alone_rows(removed).tenant.tolist(), *alone_rows(added).tenant.tolist()}
        _, come = find_replaced(self.policy.tenants, policy.tenants)
        changed = {tenant.number: tenant for tenant in come if tenant.acl.has_stateless}
        for number in touched - changed.keys() - {0}:
            changed |= {each.number: each for each in policy.tenants if each.number == number}
        for number in (touched | changed.keys()) - {0}:
            _prove_alone(policy, changed.get(number), rows_of(number), number)
        if 0 in touched or policy.operator is not self.policy.operator:
            _prove_alone(policy, None, rows_of(0))

    def _find_number(self, name: str) -> int:
        """Return the number of a tenant by its name."""
        return self.lists[name].chain.tenant if name in self.lists else self.kept[name].number

    def _find_chain(self, name: str) -> Chain:
        if name in self.lists:
            return self.lists[name].chain
        return Chain.of_tenant(self.kept[name], self.policy.return_traffic)

    def _changed_chains(self, policy: Policy, numbers: Set[int]) -> tuple[dict[str, Chain], Set[str]]:
        """Return the lists that changed or have one of `numbers`, and the removed lists' names."""
        old, new = self.policy, policy
        if new.return_traffic is old.return_traffic:
            left, come = find_replaced(old.tenants, new.tenants)
        else:
            left, come = old.tenants, new.tenants
        chains = {str(each.id): Chain.of_tenant(each, new.return_traffic) for each in come}
        dropped = {str(each.id) for each in left} - chains.keys()
        if new.operator is not old.operator or new.operator_numbers is not old.operator_numbers:
            chains[OPERATOR] = Chain.of_operator(new)
        touched = {self.owners[number] for number in numbers if number in self.owners}
        chains |= {name: self._find_chain(name) for name in touched - chains.keys() - dropped}
        return chains, dropped


def prove(policy: Policy, flows: FlowTable) -> Proof:
    """Prove a program from scratch: `flows` are all its rows, in any order. Raises NotEquivalent."""
    copying: frozenset[int] = frozenset()
    if policy.return_traffic is ReturnTraffic.TRACKED:
        _prove_all_alone(policy, flows)
        whole = flows
        flows, copying = read_whole(flows, holds_replies=policy.holds_replies, is_mixed=is_mixed(policy))
        check_copies(copying, whole)
    chains, rows = _chains(policy), deciding(flows)
    owned, owners = _by_owner(rows.lists), {chain.tenant: name for name, chain in chains.items()}
    for number in owned.keys() - owners.keys():
        _check_gone(number, owned[number])
    lists = {name: _proven(name, chain, owned.get(chain.tenant, NO_ROWS)) for name, chain in chains.items()}
    lifted = LiftedProof.of(policy, rows.lifted, met_by=lambda tenant, items: lists[tenant].met_by(items))
    return Proof(policy, lists, owners, lifted, {}, copying)


def prove_rest(policy: Policy, same: Set[str], numbers: Iterable[int], rows_of: Callable[[int], FlowTable]) -> Proof:
    """Prove a restored program, but for the lists of the tenants `same`.

    Their rows were proven before the program was kept. `numbers` are those that its rows bear, and `rows_of` gives the
    rows of one. Nothing is lifted in it. Raises NotEquivalent.
    """
    kept = {str(each.id): each for each in policy.tenants if each.id in same}
    chains = {OPERATOR: Chain.of_operator(policy)} | {
        str(each.id): Chain.of_tenant(each, policy.return_traffic) for each in policy.tenants if each.id not in same
    }
    if policy.return_traffic is ReturnTraffic.TRACKED:
        for tenant in (None, *(each for each in policy.tenants if each.id not in same)):
            number = 0 if tenant is None else tenant.number
            _prove_alone(policy, tenant, rows_of(number), number)
    owners = {chain.tenant: name for name, chain in chains.items()} | {each.number: name for name, each in kept.items()}
    for number in set(numbers) - owners.keys():
        _check_gone(number, rows_of(number))
    lists = {name: _proven(name, chain, _lists_of(policy, rows_of(chain.tenant))) for name, chain in chains.items()}
    return Proof(policy, lists, owners, LiftedProof.of(policy, NO_ROWS), kept)


def _lists_of(policy: Policy, rows: FlowTable) -> FlowTable:
    """Return the deciding rows of one list number.

    Rows of nobody, which are the operator's, are with those that track.
    """
    if policy.return_traffic is ReturnTraffic.TRACKED:
        is_tenants = len(rows) and rows.tenant[0]
        if is_tenants:
            read = read_rows(rows)
        else:
            read = read_whole(rows, holds_replies=policy.holds_replies, is_mixed=is_mixed(policy))
        check_copies(read.asking, rows)
        rows = read.rows
    return deciding(rows).lists


def _prove_all_alone(policy: Policy, flows: FlowTable) -> None:
    """Prove the rows that decide alone, of all lists. Raises NotEquivalent."""
    owned = _by_owner(alone_rows(flows))
    tenants = {each.number: each for each in policy.tenants if each.number in owned or each.acl.has_stateless}
    for number in owned.keys() | tenants.keys() | {0}:
        _prove_alone(policy, tenants.get(number), owned.get(number, NO_ROWS), number)


def _prove_alone(policy: Policy, tenant: Tenant | None, rows: FlowTable, number: int = 0) -> None:
    """Prove the rows by which a tenant's list, or the operator's, decides alone. Raises NotEquivalent."""
    rows = read_alone(alone_rows(rows))
    if tenant is None and number:
        _check_gone(number, rows)
        return
    chain = chain_alone(policy, tenant)
    try:
        Proven.of(chain, rows)
    except NotEquivalent as error:
        raise _name_place(error, chain) from None


def _met_by(
    policy: Policy, lists: dict[str, Proven], kept: dict[str, Tenant], rows_of: Callable[[int], FlowTable]
) -> Met:
    """Return what tells the rules that items meet; it proves a list that was kept."""

    def find_met(name: str, items: Items) -> Sequence[Rule]:
        tenant = kept.pop(name, None)
        if tenant is not None:
            chain = Chain.of_tenant(tenant, policy.return_traffic)
            lists[name] = _proven(name, chain, _lists_of(policy, rows_of(tenant.number)))
        return lists[name].met_by(items)

    return find_met


def _chains(policy: Policy) -> dict[str, Chain]:
    """Every list of a policy."""
    chains = {OPERATOR: Chain.of_operator(policy)}
    return chains | {str(each.id): Chain.of_tenant(each, policy.return_traffic) for each in policy.tenants}


def _is_same(old: Chain, new: Chain) -> bool:
    """Return whether two lists and all that ends them are the same.

    Lists are compared by identity; the operator's is short and may be read anew each time.
    """
    if old is new:
        return True
    same_rules = old.rules is new.rules or (not new.tenant and old.rules == new.rules)
    same_numbers = old.numbers is new.numbers or (not new.tenant and old.numbers == new.numbers)
    same_groups = old.groups is new.groups or old.groups == new.groups
    return same_rules and same_numbers and same_groups and not new.differs_besides_rules(old)


def _check_gone(number: int, rows: FlowTable) -> None:
    """Refuse deciding rows of a tenant that the policy lacks. Raises NotEquivalent."""
    if len(deciding(rows).lists):
        raise NotEquivalent(f"there are flow entries of a tenant with number {number}, whom the policy does not have")


def _proven(name: str, chain: Chain, rows: FlowTable) -> Proven:
    """Prove a list from scratch, from all rows of its number. Raises NotEquivalent."""
    if name == OPERATOR:
        of_rules = is_of_rules(rows)
        check_ends(rows.take(~of_rules), standing(), chain.place)
        rows = rows.take(of_rules)
    try:
        return Proven.of(chain, rows)
    except NotEquivalent as error:
        raise _name_place(error, chain) from None


def _name_place(error: NotEquivalent, chain: Chain) -> NotEquivalent:
    error.place = error.place or chain.place
    return error


def _by_owner(flows: FlowTable) -> dict[int, FlowTable]:
    """Rows by the number of the tenant that they bear, 0 for nobody's."""
    if not len(flows):
        return {}
    if (flows.tenant == flows.tenant[0]).all():
        return {int(flows.tenant[0]): flows}
    order = np.argsort(flows.tenant, kind="stable")
    ordered = flows.tenant[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=ordered[0] + np.uint32(1)))
    ends = [*starts[1:].tolist(), len(ordered)]
    return {int(ordered[start]): flows.take(order[start:end]) for start, end in zip(starts.tolist(), ends, strict=True)}
