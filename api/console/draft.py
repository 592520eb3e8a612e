"""Changes of a list that are not committed yet.

A draft begins at the list as it was read and holds the edits since, in order. It can be shown, taken back edit by edit,
and put on top of a newer list when somebody else was faster: edits that no longer fit are named, the others stay.

    base (as read at its ETag) ── edit ── edit ── edit ──▶ acl (what would be committed)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from orchestrator.client import AclSeen
from orchestrator.errors import AclflowError, BadPolicy
from orchestrator.policy.model import Acl, AddressGroup, Rule


@dataclass(frozen=True, slots=True)
class Insert:
    """A new rule at a position (0: the top; beyond the end: the end)."""

    rule: Rule
    position: int

    def applied(self, acl: Acl) -> Acl:
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

    def applied(self, acl: Acl) -> Acl:
        """Raises BadPolicy when the rule is gone."""
        index = _index(acl, self.rule.id)
        return replace(acl, rules=(*acl.rules[:index], self.rule, *acl.rules[index + 1 :]))

    def __str__(self) -> str:
        return f"change of '{self.rule.id}'"


@dataclass(frozen=True, slots=True)
class Remove:
    """A rule less."""

    rule: str

    def applied(self, acl: Acl) -> Acl:
        """Raises BadPolicy when the rule is gone."""
        index = _index(acl, self.rule)
        return replace(acl, rules=(*acl.rules[:index], *acl.rules[index + 1 :]))

    def __str__(self) -> str:
        return f"removal of '{self.rule}'"


@dataclass(frozen=True, slots=True)
class Move:
    """A rule at another position, counted in the list without it."""

    rule: str
    position: int

    def applied(self, acl: Acl) -> Acl:
        """Raises BadPolicy when the rule is gone."""
        index = _index(acl, self.rule)
        rules = [*acl.rules]
        rules.insert(self.position, rules.pop(index))
        return replace(acl, rules=tuple(rules))

    def __str__(self) -> str:
        return f"move of '{self.rule}'"


@dataclass(frozen=True, slots=True)
class SetGroup:
    """An address group with these members; a new one if there was none of its name."""

    group: AddressGroup

    def applied(self, acl: Acl) -> Acl:
        return replace(acl, groups={**acl.groups, self.group.name: self.group})

    def __str__(self) -> str:
        return f"group '{self.group.name}'"


@dataclass(frozen=True, slots=True)
class ReplaceAll:
    """Another list: an import, or an older version."""

    acl: Acl
    origin: str

    def applied(self, acl: Acl) -> Acl:  # noqa: ARG002 -- whatever it was before
        return self.acl

    def __str__(self) -> str:
        return f"the whole list, from {self.origin}"


Edit = Insert | Replace | Remove | Move | SetGroup | ReplaceAll


@dataclass(frozen=True, slots=True)
class Draft:
    """A list with edits. `states` are the lists after each edit, so taking one back costs nothing."""

    base: AclSeen
    edits: tuple[Edit, ...] = ()
    states: tuple[Acl, ...] = field(default=(), repr=False)

    @property
    def acl(self) -> Acl:
        """The list with all edits."""
        return self.states[-1] if self.states else self.base.acl

    @property
    def changed(self) -> bool:
        """Whether there is anything to commit."""
        return bool(self.edits) and self.acl != self.base.acl

    def edited(self, edit: Edit) -> Draft:
        """With one more edit. Raises BadPolicy, with its place, where the edit does not fit the list."""
        return Draft(self.base, (*self.edits, edit), (*self.states, edit.applied(self.acl)))

    def undone(self) -> Draft:
        """Without the last edit."""
        return Draft(self.base, self.edits[:-1], self.states[:-1])

    def onto(self, base: AclSeen) -> tuple[Draft, tuple[str, ...]]:
        """The same edits of a newer list, and those that do not fit it any more, with the reason."""
        draft, lost = Draft(base), []
        for edit in self.edits:
            try:
                draft = draft.edited(edit)
            except AclflowError as error:
                lost.append(f"{edit}: {error.reason}")
        return draft, tuple(lost)

    def marks(self) -> Mapping[str, str]:
        """What happened to each rule of the list that is not as it was: ``new``, ``changed`` or ``moved``, by id."""
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

    def removed(self) -> tuple[Rule, ...]:
        """The rules that were there and are not any more."""
        left = {rule.id for rule in self.acl.rules}
        return tuple(rule for rule in self.base.acl.rules if rule.id not in left)


def _index(acl: Acl, rule: str) -> int:
    for index, each in enumerate(acl.rules):
        if each.id == rule:
            return index
    raise BadPolicy(f"the list has no rule '{rule}' any more", place="id")
