"""Add a rule to the draft, or change one, in the rule's form.

The form stays open until the draft has taken the rule. The draft takes what the service would take: ids that are free,
groups that the list has, and on the project's own side no addresses but its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from nicegui import ui

from api.console.draft import Edit, Insert, Replace
from api.console.parts.desk import Desk
from api.console.parts.ruleform import ask_for_rule, document_of
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.model import Rule
from orchestrator.policy.ruleplace import suggest_place


async def add_rule(desk: Desk, start: Mapping[str, object], position: int | None = None) -> None:
    """Ask for a new rule, and put it into the draft.

    The form begins with `start` (native form, any part of it).

    `position` None: it goes before the rule that decides its packets now, else to the end, which is said.
    """
    owned = await desk.owned()

    def take(rule: Rule) -> None:
        desk.check(rule, owned)
        place, before = (position, None) if position is not None else suggest_place(desk.draft.acl, rule)
        _put(desk, rule, Insert(rule, place), owned)
        if position is None:
            where = f"before '{before}', which decides its packets now" if before else "at the end of the list"
            ui.notify(f"'{rule.id}' is in the draft, {where}.", type="info")

    await ask_for_rule(
        "New rule", start, groups=tuple(desk.draft.acl.groups), keeps_id=False, zone=desk.view.session.zone, take=take
    )


async def change_rule(desk: Desk, rule: Rule, title: str) -> None:
    """Ask for a rule's new contents, and change it where it stands."""
    owned = await desk.owned()

    def take(changed: Rule) -> None:
        if changed != rule:
            _put(desk, changed, Replace(changed), owned)

    await ask_for_rule(
        title,
        document_of(rule),
        groups=tuple(desk.draft.acl.groups),
        keeps_id=True,
        zone=desk.view.session.zone,
        take=take,
    )


def _put(desk: Desk, rule: Rule, edit: Edit, owned: tuple[Prefix, ...]) -> None:
    """Put an edit into the draft. Raises BadPolicy with the place."""
    desk.check(rule, owned)
    desk.put(desk.draft.edited(edit))
