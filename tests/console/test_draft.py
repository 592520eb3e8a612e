"""Drafts: edits in order, taken back, and put on top of newer lists."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.console.draftedits import Delete, Draft, Edit, Insert, Move, Replace, ReplaceAll, SetGroup
from orchestrator.client import AclSeen
from orchestrator.errors import BadPolicy
from orchestrator.policy.merge import merge, take_mine
from orchestrator.policy.model import Acl, Action, AddressGroup, GroupName, Rule, RuleId

NAMES = [f"r{number}" for number in range(6)]


def rule(name: str, description: str = "") -> Rule:
    return Rule(RuleId(name), Action.PERMIT, description=description)


def seen(*names: str) -> AclSeen:
    return AclSeen(Acl(tuple(rule(name) for name in names)), '"7"')


def ids(draft: Draft) -> list[str]:
    return [each.id for each in draft.acl.rules]


EDITS = st.one_of(
    st.builds(lambda name, place: Insert(rule(name), place), st.sampled_from(NAMES), st.integers(0, 6)),
    st.builds(lambda name, text: Replace(rule(name, text)), st.sampled_from(NAMES), st.sampled_from(["x", "y"])),
    st.builds(Delete, st.sampled_from(NAMES)),
    st.builds(Move, st.sampled_from(NAMES), st.integers(0, 6)),
)


def carried_out(base: AclSeen, edits: list[Edit]) -> tuple[Draft, int]:
    """The draft with those edits that fit, and how many did not."""
    draft, refused = Draft(base), 0
    for edit in edits:
        try:
            draft = draft.add_edit(edit)
        except BadPolicy:
            refused += 1
    return draft, refused


@given(st.lists(EDITS, max_size=8))
def test_taking_every_edit_back_gives_the_list_as_it_was_read(edits: list[Edit]) -> None:
    draft, _ = carried_out(seen("r0", "r1", "r2"), edits)
    while draft.edits:
        before = draft.states[-2] if len(draft.states) > 1 else draft.base.acl
        draft = draft.undone()
        assert draft.acl == before
    assert draft == Draft(draft.base)


@given(st.lists(EDITS, max_size=8))
def test_a_draft_put_on_the_same_list_again_is_the_same(edits: list[Edit]) -> None:
    draft, _ = carried_out(seen("r0", "r1", "r2"), edits)
    again = draft.onto(draft.base)
    assert isinstance(again, Draft)
    assert again.acl == draft.acl


@given(st.lists(EDITS, max_size=8), st.lists(EDITS, max_size=4))
def test_on_a_newer_list_both_sides_changes_are_there_or_what_stands_in_the_way(
    edits: list[Edit], others: list[Edit]
) -> None:
    """It is the list that `acl apply` would make of it; taking back every edit gives what the others made."""
    base = seen("r0", "r1", "r2")
    draft, _ = carried_out(base, edits)
    newer = AclSeen(carried_out(base, others)[0].acl, '"8"')
    merged = merge(base.acl, draft.acl, newer.acl)
    rebased = draft.onto(newer)
    if merged.acl is None:
        assert rebased == merged.conflicts
        rebased = draft.over(newer)
        assert rebased.acl == take_mine(base.acl, draft.acl, newer.acl)
    assert isinstance(rebased, Draft)
    assert rebased.base is newer
    if merged.acl is not None:
        assert rebased.acl == merged.acl
    while rebased.edits:
        rebased = rebased.undone()
    assert rebased.acl == newer.acl


@given(st.permutations(NAMES), st.permutations(NAMES), st.integers(0, 6), st.integers(0, 6))
def test_a_merge_is_told_edit_by_edit(old: list[str], new: list[str], cut: int, changed: int) -> None:
    """Rules removed, added, moved and changed at once: every step is an edit of one rule, so it can be taken back."""
    base = seen(*old[:cut])
    wanted = Acl(tuple(rule(name, "x" if index < changed else "") for index, name in enumerate(new[: 6 - cut // 2])))
    draft = Draft(base).add_edit(ReplaceAll(wanted, "a file")).onto(base)
    assert isinstance(draft, Draft)
    assert draft.acl == wanted
    assert not any(isinstance(edit, ReplaceAll) for edit in draft.edits)


def test_a_rule_stays_behind_the_rule_that_it_was_put_behind() -> None:
    """Another person's rules at the top push every place down."""
    narrow = [replace(rule(name), protocol=number) for number, name in enumerate(("a", "b", "mine", "x", "y"))]
    a, b, mine, x, y = narrow
    draft = Draft(AclSeen(Acl((a, b)), '"7"')).add_edit(Insert(mine, 1))
    rebased = draft.onto(AclSeen(Acl((x, y, a, b)), '"8"'))
    assert isinstance(rebased, Draft)
    assert ids(rebased) == ["x", "y", "a", "mine", "b"]


def test_what_is_said_about_a_draft_stays_with_it() -> None:
    draft = replace(Draft(seen("r0")), comment="for Friday").add_edit(Insert(rule("r1"), 1))
    assert draft.undone().comment == "for Friday"
    assert draft.over(seen("r0", "r2")).comment == "for Friday"


@given(st.lists(EDITS, max_size=8))
def test_what_is_not_marked_is_as_it_was(edits: list[Edit]) -> None:
    draft, _ = carried_out(seen("r0", "r1", "r2"), edits)
    before = {each.id: each for each in draft.base.acl.rules}
    marks = draft.marks()
    for each in draft.acl.rules:
        if marks.get(each.id) in (None, "moved"):
            assert before[each.id] == each
        elif marks[each.id] == "changed":
            assert before[each.id] != each
        else:
            assert each.id not in before


@pytest.mark.parametrize(
    ("edit", "after"),
    [
        (lambda: Insert(rule("new"), 1), ["r0", "new", "r1", "r2"]),
        (lambda: Insert(rule("new"), 99), ["r0", "r1", "r2", "new"]),
        (lambda: Move("r2", 0), ["r2", "r0", "r1"]),
        (lambda: Move("r0", 1), ["r1", "r0", "r2"]),
        (lambda: Delete("r1"), ["r0", "r2"]),
        (lambda: ReplaceAll(seen("z").acl, "a file"), ["z"]),
    ],
)
def test_where_rules_end_up(edit: Callable[[], Edit], after: list[str]) -> None:
    assert ids(Draft(seen("r0", "r1", "r2")).add_edit(edit())) == after


@pytest.mark.parametrize("edit", [Delete("gone"), Move("gone", 0), Replace(rule("gone")), Insert(rule("r0"), 0)])
def test_edits_that_do_not_fit_are_refused_and_change_nothing(edit: Edit) -> None:
    draft = Draft(seen("r0"))
    with pytest.raises(BadPolicy):
        draft.add_edit(edit)
    assert ids(draft) == ["r0"]


def test_there_is_nothing_to_commit_where_edits_cancel_out() -> None:
    draft = Draft(seen("r0", "r1")).add_edit(Move("r0", 1)).add_edit(Move("r0", 0))
    assert draft.edits
    assert not draft.changed


def test_a_group_is_part_of_the_draft() -> None:
    group = AddressGroup(GroupName("web"), ())
    draft = Draft(seen("r0")).add_edit(SetGroup(group))
    assert draft.changed
    assert draft.acl.groups == {"web": group}
