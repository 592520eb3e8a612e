"""The list that a page works on: the session's draft of a project, and the edits that pages make to it."""

from __future__ import annotations

from collections.abc import Callable

from nicegui import ui

from api.console import words
from api.console.draft import Draft, Edit
from api.console.parts.dialog import is_sure
from api.console.parts.ruleform import error_text
from api.console.parts.view import View
from orchestrator.client import AclSeen, Client
from orchestrator.errors import AclflowError


class Desk:
    """One page's hold of the draft. `on_change` is called after every edit."""

    def __init__(self, view: View, draft: Draft, on_change: Callable[[], None] = lambda: None) -> None:
        self.view = view
        self._draft = draft
        self.on_change = on_change

    @classmethod
    async def of(cls, view: View) -> Desk:
        """The draft as it is; one without edits begins at the list as it is now. Raises what the client raises."""
        kept, lists = view.session.drafts.get(view.tenant), view.session.bearer.lists
        known = lists.get(view.tenant)
        seen = await view.read("acl", lambda client: _newest(client, view.tenant, known), fresh_s=0.5, rest=0)
        lists[view.tenant] = seen
        if kept is None or (not kept.edits and kept.base is not seen):
            kept = Draft(seen)
            view.session.drafts[view.tenant] = kept
        return cls(view, kept)

    @classmethod
    def kept(cls, view: View) -> Desk | None:
        """The draft, if it has edits; nothing is read."""
        kept = view.session.drafts.get(view.tenant)
        return cls(view, kept) if kept and kept.edits else None

    @property
    def draft(self) -> Draft:
        """The list with its edits."""
        return self._draft

    def put(self, draft: Draft) -> None:
        """Go on from another draft."""
        self._draft = draft
        self.view.session.drafts[self.view.tenant] = draft
        self.on_change()

    def edit(self, edit: Edit) -> bool:
        """Add an edit; says why where it does not fit."""
        try:
            self.put(self._draft.edited(edit))
        except AclflowError as error:
            ui.notify(error_text(error, self._draft.acl), type="negative", multi_line=True)
            return False
        return True

    def undo(self) -> None:
        """Take the last edit back."""
        self.put(self._draft.undone())

    async def discard(self) -> None:
        """Forget every edit, once whoever looks is sure."""
        what = words.of(len(self._draft.edits), "change")
        if await is_sure(
            "Discard the draft?", f"{what} will be lost. The list in force stays as it is.", "Discard all"
        ):
            self.put(Draft(self._draft.base))


def _newest(client: Client, tenant: str, known: AclSeen | None) -> AclSeen:
    """The list as it is now; the one that is known already, if that is still it."""
    if known is not None:
        return client.acl_since(tenant, known.etag) or known
    return client.acl(tenant)
