"""The proof of a whole program: every list, the operator's, and connecting rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from orchestrator.compile.equivalence.chain import Chain
from orchestrator.compile.equivalence.conjunctions import Conjunctions, plainly
from orchestrator.compile.equivalence.conjunctionsteps import Change, followed
from orchestrator.compile.equivalence.items import Items
from orchestrator.compile.equivalence.lifted import LiftedProof, Met
from orchestrator.compile.equivalence.listproof import ListProof
from orchestrator.compile.equivalence.membersets import MemberSets
from orchestrator.compile.equivalence.rows import NO_ROWS, check_ends, deciding, is_of_rules, standing
from orchestrator.errors import NotEquivalent
from orchestrator.policy.model import Policy, Rule
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
        groups = self.sets.followed(chain.groups)
        if groups is None or chain.differs_besides_rules(self.chain):
            return None
        step = followed(self.conjunctions, Change(self.chain, chain, groups, removed, added))
        if step is None:
            return None
        plain = step.conjunctions.standing_in(chain)
        proof = self.proof.after(plain, step.removed, step.added, groups)
        return None if proof is None else Proven(chain, proof, step.conjunctions, groups.after)


@dataclass(frozen=True, slots=True, eq=False)
class Proof:
    """A policy and a program proven to decide the same.

    It never changes.
    """

    policy: Policy
    lists: Mapping[str, Proven]
    lifted: LiftedProof

    def after(self, policy: Policy, removed: FlowTable, added: FlowTable, flows: Callable[[], FlowTable]) -> Proof:
        """Return the proof of the next policy with the rows `removed` and `added`.

        `flows` gives all rows of the next program; it is called when a list must be proven from scratch. Raises
        NotEquivalent.
        """
        was, now = deciding(removed), deciding(added)
        gone, come = _by_owner(was.lists), _by_owner(now.lists)
        chains = self._chains(policy)
        strange = (gone.keys() | come.keys()) - {chain.tenant for chain in chains.values()}
        scratch: list[str] = []
        lists: dict[str, Proven] = {}
        for name, chain in chains.items():
            rows = gone.get(chain.tenant, NO_ROWS), come.get(chain.tenant, NO_ROWS)
            known = self.lists.get(name)
            if known is not None and _is_same(known.chain, chain) and not len(rows[0]) and not len(rows[1]):
                lists[name] = known
                continue
            found = None if known is None or name == OPERATOR else known.after(chain, *rows)
            if found is None:
                scratch.append(name)
            else:
                lists[name] = found
        if strange or scratch or self.lists.keys() - chains.keys():
            lists |= _from_scratch(scratch, chains, deciding(flows()).lists)
        return Proof(policy, lists, self.lifted.after(policy, was.lifted, now.lifted, _met_by(lists)))

    def _chains(self, policy: Policy) -> dict[str, Chain]:
        """Return every list of the next policy.

        Tenants that are the same objects are not read again.
        """
        old, new = self.policy, policy
        before = {each.id: each for each in old.tenants} if new.return_traffic is old.return_traffic else {}
        known = {str(each.id): self.lists[each.id].chain for each in new.tenants if before.get(each.id) is each}
        if new.operator is old.operator and new.operator_numbers is old.operator_numbers:
            known[OPERATOR] = self.lists[OPERATOR].chain
        return _chains(new, known)


def prove(policy: Policy, flows: FlowTable) -> Proof:
    """Prove a program from scratch: `flows` are all its rows, in any order. Raises NotEquivalent."""
    chains, rows = _chains(policy), deciding(flows)
    lists = _from_scratch(list(chains), chains, rows.lists)
    return Proof(policy, lists, LiftedProof.of(policy, rows.lifted, met_by=_met_by(lists)))


def _met_by(lists: Mapping[str, Proven]) -> Met:
    return lambda tenant, items: lists[tenant].met_by(items)


def _chains(policy: Policy, known: Mapping[str, Chain] = MappingProxyType({})) -> dict[str, Chain]:
    """Every list of a policy; `known` are those of some tenants."""
    chains = {OPERATOR: known.get(OPERATOR) or Chain.of_operator(policy.operator, policy.operator_numbers)}
    for tenant in policy.tenants:
        chains[tenant.id] = known.get(tenant.id) or Chain.of_tenant(tenant, policy.return_traffic)
    return chains


def _is_same(old: Chain, new: Chain) -> bool:
    """Return whether nothing changed.

    Lists are compared by identity; the operator's is short and may be read anew each time.
    """
    if old is new:
        return True
    same_rules = old.rules is new.rules or (not new.tenant and old.rules == new.rules)
    same_numbers = old.numbers is new.numbers or (not new.tenant and old.numbers == new.numbers)
    same_groups = old.groups is new.groups or old.groups == new.groups
    return same_rules and same_numbers and same_groups and not new.differs_besides_rules(old)


def _from_scratch(names: list[str], chains: Mapping[str, Chain], flows: FlowTable) -> dict[str, Proven]:
    """Prove some lists, and that every deciding row belongs to one of `chains`."""
    rows = _by_owner(flows)
    for stranger in rows.keys() - {chain.tenant for chain in chains.values()}:
        raise NotEquivalent(f"there are flow entries of a tenant with number {stranger}, whom the policy does not have")
    found = {}
    for name in names:
        chain = chains[name]
        mine = rows.get(chain.tenant, NO_ROWS)
        if name == OPERATOR:
            of_rules = is_of_rules(mine)
            check_ends(mine.take(~of_rules), standing(), chain.place)
            mine = mine.take(of_rules)
        try:
            found[name] = Proven.of(chain, mine)
        except NotEquivalent as error:
            raise _at(error, chain) from None
    return found


def _at(error: NotEquivalent, chain: Chain) -> NotEquivalent:
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
