"""Add a rule to the draft, or change one, in the rule's form.

The form stays open until the draft has taken the rule. The draft takes what the service would take: ids that are free,
groups that the list has, and on the project's own side no addresses but its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nicegui import ui

from api.console import words
from api.console.draftedits import Insert, Replace
from api.console.parts.desk import Desk
from api.console.parts.ruleform import ask_for_rule, document_of
from orchestrator.policy.endpointnames import reference_text
from orchestrator.policy.model import Rule
from orchestrator.policy.ruleplace import SuggestedPlace, suggest_place


async def add_rule(desk: Desk, start: Mapping[str, object], position: int | None = None) -> None:
    """Ask for a new rule, and put it into the draft.

    The form begins with `start` (native form, any part of it).

    `position` None: it goes before the rule that decides its packets now, else to the end, which is said.
    """
    owned, endpoints = await desk.owned_prefixes(), await desk.endpoints()

    def take_rule(rule: Rule) -> None:
        draft = desk.naming(rule, endpoints)
        desk.check(rule, draft, owned)
        found = SuggestedPlace(position, None) if position is not None else suggest_place(draft.acl, rule)
        desk.put(draft.add_edit(Insert(rule, found.position)))
        if position is None:
            ui.notify(f"'{rule.id}' is in the draft, {_describe_place(found)}.", type="info")

    await ask_for_rule(
        "New rule",
        start,
        names=_names(desk, endpoints),
        keeps_id=False,
        zone=desk.view.session.zone,
        take=take_rule,
    )


def _describe_place(found: SuggestedPlace) -> str:
    where = f"before '{found.before}', which decides its packets now" if found.before else "at the end of the list"
    return (
        f"{where}; {words.list_names(found.exceptions)} before it still denies some of its packets"
        if found.exceptions
        else where
    )


async def change_rule(desk: Desk, rule: Rule, title: str) -> None:
    """Ask for a rule's new contents, and change it where it stands."""
    owned, endpoints = await desk.owned_prefixes(), await desk.endpoints()

    def take_rule(changed: Rule) -> None:
        if changed != rule:
            draft = desk.naming(changed, endpoints)
            desk.check(changed, draft, owned)
            desk.put(draft.add_edit(Replace(changed)))

    await ask_for_rule(
        title,
        document_of(rule),
        names=_names(desk, endpoints),
        keeps_id=True,
        zone=desk.view.session.zone,
        take=take_rule,
    )


def _names(desk: Desk, endpoints: Iterable[str]) -> tuple[str, ...]:
    """Return the names that a side of a rule may have: endpoints and groups.

    Groups are those of the list. Addresses may stand there besides.
    """
    groups = (reference_text(f"@{group}") for group in desk.draft.acl.groups)
    return tuple(dict.fromkeys((*endpoints, *groups)))
