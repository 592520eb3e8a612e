"""Changes of a list that are not committed yet.

A draft begins at the list as it was read and holds the edits since, in order. It can be shown and taken back edit by
edit. When somebody else was faster it is merged with the newer list, as `aclflow acl apply` merges a file: where both
touch the same packets, the draft stays as it is until a person says whose rules win.

    base (as read at its ETag) ── edit ── edit ── edit ──▶ acl (what would be committed)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from orchestrator.client import AclSeen
from orchestrator.errors import BadPolicy
from orchestrator.policy.merge import merge, take_mine
from orchestrator.policy.model import Acl, AddressGroup, Rule
from orchestrator.policy.rulechanges import list_changes

_MOST_EDITS = 100
"""A merge that brings more is one edit: nobody takes so many back one by one."""


@dataclass(frozen=True, slots=True)
class Insert:
    """A new rule at a position (0: the top; beyond the end: the end)."""

    rule: Rule
    position: int

    def apply_to(self, acl: Acl) -> Acl:
        """Raises BadPolicy when the list has that id."""
        rules = [*acl.rules]
        rules.insert(self.position, self.rule)
        return replace(acl, rules=tuple(rules))

    def __str__(self) -> str:
        return f"new rule '{self.rule.id}'"


@dataclass(frozen=True, slots=True)
class Replace:
    """A rule with other contents, where it stands."""

    rule: Rule

    def apply_to(self, acl: Acl) -> Acl:
        """Raises BadPolicy when the rule is gone."""
        index = _find_rule_index(acl, self.rule.id)
        return replace(acl, rules=(*acl.rules[:index], self.rule, *acl.rules[index + 1 :]))

    def __str__(self) -> str:
        return f"change of '{self.rule.id}'"


@dataclass(frozen=True, slots=True)
class Delete:
    """A rule less."""

    rule: str

    def apply_to(self, acl: Acl) -> Acl:
        """Raises BadPolicy when the rule is gone."""
        index = _find_rule_index(acl, self.rule)
        return replace(acl, rules=(*acl.rules[:index], *acl.rules[index + 1 :]))

    def __str__(self) -> str:
        return f"deletion of '{self.rule}'"


@dataclass(frozen=True, slots=True)
class Move:
    """A rule at another position, counted in the list without it."""

    rule: str
    position: int

    def apply_to(self, acl: Acl) -> Acl:
        """Raises BadPolicy when the rule is gone."""
        index = _find_rule_index(acl, self.rule)
        rules = [*acl.rules]
        rules.insert(self.position, rules.pop(index))
        return replace(acl, rules=tuple(rules))

    def __str__(self) -> str:
        return f"move of '{self.rule}'"


@dataclass(frozen=True, slots=True)
class SetGroup:
    """Set the members of an address group, which is made if it is new."""

    group: AddressGroup

    def apply_to(self, acl: Acl) -> Acl:
        return replace(acl, groups={**acl.groups, self.group.name: self.group})

    def __str__(self) -> str:
        return f"group '{self.group.name}'"


@dataclass(frozen=True, slots=True)
class ReplaceAll:
    """Another list: an import, or an older version."""

    acl: Acl
    origin: str

    def apply_to(self, acl: Acl) -> Acl:  # noqa: ARG002 -- whatever it was before
        return self.acl

    def __str__(self) -> str:
        return f"the whole list, from {self.origin}"


Edit = Insert | Replace | Delete | Move | SetGroup | ReplaceAll


@dataclass(frozen=True, slots=True)
class Draft:
    """A list with edits.

    `states` are the lists after each edit, so taking one back costs nothing.
    """

    base: AclSeen
    edits: tuple[Edit, ...] = ()
    states: tuple[Acl, ...] = field(default=(), repr=False)
    comment: str = ""
    """The author's comment so far."""

    @property
    def acl(self) -> Acl:
        """The list with all edits."""
        return self.states[-1] if self.states else self.base.acl

    @property
    def changed(self) -> bool:
        """Whether there is anything to commit."""
        return bool(self.edits) and self.acl != self.base.acl

    def add_edit(self, edit: Edit) -> Draft:
        """Add an edit.

        Raises BadPolicy, with its place, where the edit does not fit the list.
        """
        return replace(self, edits=(*self.edits, edit), states=(*self.states, edit.apply_to(self.acl)))

    def undone(self) -> Draft:
        """Return the draft without the last edit."""
        return replace(self, edits=self.edits[:-1], states=self.states[:-1])

    def onto(self, base: AclSeen) -> Draft | tuple[str, ...]:
        """Put the changes on top of a newer list.

        Returns the conflicts where they touch what was changed there.
        """
        found = merge(self.base.acl, self.acl, base.acl)
        return found.conflicts if found.acl is None else self._rebase(base, found.acl)

    def over(self, base: AclSeen) -> Draft:
        """Put the changes on top of a newer list; the draft's own rules win."""
        return self._rebase(base, take_mine(self.base.acl, self.acl, base.acl))

    def _rebase(self, base: AclSeen, wanted: Acl) -> Draft:
        """Return a draft that makes `base` what is wanted: by edits, else as a whole."""
        draft = Draft(base, comment=self.comment)
        edits = _edits(base.acl, wanted)
        if len(edits) <= _MOST_EDITS:
            for edit in edits:
                draft = draft.add_edit(edit)
        if draft.acl == wanted:
            return draft
        origin = f"your changes and version {base.version}"
        return Draft(base, comment=self.comment).add_edit(ReplaceAll(wanted, origin))

    def marks(self) -> Mapping[str, str]:
        """Mark each rule that is not as it was, by id.

        Marks are ``new``, ``changed`` and ``moved``.
        """
        if not self.edits:
            return {}
        before: dict[str, Rule] = {rule.id: rule for rule in self.base.acl.rules}
        moved = {edit.rule for edit in self.edits if isinstance(edit, Move)}
        found: dict[str, str] = {}
        for rule in self.acl.rules:
            old = before.get(rule.id)
            if old is None:
                found[rule.id] = "new"
            elif old is not rule and old != rule:
                found[rule.id] = "changed"
            elif rule.id in moved:
                found[rule.id] = "moved"
        return found


def _edits(before: Acl, after: Acl) -> tuple[Edit, ...]:
    """Edits that lead from one list to another, but for defaults and groups that go."""
    changes = list_changes(before, after)
    edits: list[Edit] = [SetGroup(after.groups[name]) for name in changes.groups if name in after.groups]
    edits += [Delete(change.id) for change in changes.rules if change.kind == "removed"]
    gone = {change.id for change in changes.rules if change.kind == "removed"}
    order = [rule.id for rule in before.rules if rule.id not in gone]
    follows = dict(zip((rule.id for rule in after.rules), (None, *(rule.id for rule in after.rules)), strict=False))
    for change in changes.rules:
        if change.after is None:
            continue
        others = [name for name in order if name != change.id]
        leader = follows[change.id]
        place = 0 if leader is None else others.index(leader) + 1
        if change.kind == "added":
            edits.append(Insert(change.after, place))
        elif change.kind == "changed":
            edits.append(Replace(change.after))
        if change.kind == "moved" or (change.kind == "changed" and order.index(change.id) != place):
            edits.append(Move(change.id, place))
        order = [*others[:place], change.id, *others[place:]]
    return tuple(edits)


def _find_rule_index(acl: Acl, rule: str) -> int:
    for index, each in enumerate(acl.rules):
        if each.id == rule:
            return index
    raise BadPolicy(f"the list has no rule '{rule}' any more", place="id")
