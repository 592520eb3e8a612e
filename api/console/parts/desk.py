"""The session's draft of a tenant's list, as pages read and edit it.

`OperatorDesk` is the same for the operator's rules of a domain.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import quote

from nicegui import ui

from api.console import words
from api.console.draftedits import Draft, Edit, SetGroup
from api.console.parts.pieces import dialog, is_sure
from api.console.parts.ruleform import error_text
from api.console.parts.tree import path_of
from api.console.parts.view import View
from orchestrator.client import AclSeen, Client
from orchestrator.errors import AclflowError, BadPolicy
from orchestrator.policy.addresses import EVERY_IPV4, EVERY_IPV6, Prefix
from orchestrator.policy.endpointnames import endpoint_of_group
from orchestrator.policy.model import Acl, AddressGroup, GroupName, Rule
from orchestrator.policy.ownership import check_ownership


class Desk:
    """One page's hold of the draft. `on_change` is called after every edit."""

    def __init__(self, view: View, draft: Draft, on_change: Callable[[], None] = lambda: None) -> None:
        self.view = view
        self._draft = draft
        self.on_change = on_change

    @classmethod
    async def of(cls, view: View) -> Desk:
        """Take the draft; one without edits begins at the current list.

        Raises what the client raises.
        """
        kept, lists = view.session.drafts.get(view.tenant), view.session.bearer.lists
        known = lists.get(view.tenant)
        seen = await view.read("acl", lambda client: _newest(client, view.tenant, known), fresh_s=0.5, rest=0)
        lists[view.tenant] = seen
        if kept is None or (not kept.edits and kept.base is not seen):
            kept = Draft(seen)
            view.session.drafts[view.tenant] = kept
        return cls(view, kept)

    @classmethod
    def find_kept(cls, view: View) -> Desk | None:
        """The draft, if it has edits; nothing is read."""
        kept = view.session.drafts.get(view.tenant)
        return cls(view, kept) if kept and kept.edits else None

    @property
    def current(self) -> AclSeen:
        """The list as it was when the page was opened."""
        return self.view.session.bearer.lists[self.view.tenant]

    @property
    def list_path(self) -> str:
        """The page that shows the list."""
        return path_of("acl", self.view.tenant)

    @property
    def review_path(self) -> str:
        """The page that shows what the draft changes, and commits it."""
        return path_of("review", self.view.tenant)

    async def newest(self) -> AclSeen:
        """The list as it is now. Raises what the client raises."""
        return await self.view.session.reading.once(lambda: self.view.client.acls.read(self.view.tenant))

    async def owned_prefixes(self) -> tuple[Prefix, ...]:
        """Return the prefixes that a rule's own side may name."""
        tenant = await self.view.read("tenant", lambda client: client.tenants.read(self.view.tenant), fresh_s=10)
        return tuple(map(Prefix.parse, tenant.prefixes))

    def check(self, rule: Rule, draft: Draft, owned: tuple[Prefix, ...]) -> None:
        """Check a rule as a list by itself, with a draft's groups. Raises BadPolicy.

        The error names the place.
        """
        check_ownership(Acl((rule,), draft.acl.groups), owned)

    async def endpoints(self) -> Mapping[str, tuple[Prefix, ...]]:
        """Read the addresses of the endpoints that a rule may name.

        They are read anew, for they go into drafts and files.
        """
        tenant = self.view.tenant
        known = await self.view.session.reading.once(lambda: [*self.view.client.tenants.read_own_endpoints(tenant)])
        return {each.name: tuple(map(Prefix.parse, each.prefixes)) for each in known}

    def naming(self, rule: Rule, endpoints: Mapping[str, tuple[Prefix, ...]]) -> Draft:
        """Return the draft with the groups of endpoints that a rule names.

        Raises BadPolicy with the side of the rule.
        """
        draft = self.draft
        for side, addresses in (("source", rule.source), ("destination", rule.destination)):
            for group in addresses.groups:
                name = endpoint_of_group(group)
                if name is None or group in draft.acl.groups:
                    continue
                if name not in endpoints:
                    raise BadPolicy(f"'{name}' is no address, and there is no endpoint of that name", place=side)
                draft = draft.add_edit(SetGroup(AddressGroup(GroupName(group), endpoints[name])))
        return draft

    def _keep_draft(self, draft: Draft) -> None:
        self.view.session.drafts[self.view.tenant] = draft

    def forget(self) -> None:
        """Forget the tenant's draft, which is committed."""
        self.view.session.drafts.pop(self.view.tenant, None)

    @property
    def draft(self) -> Draft:
        """The list with its edits."""
        return self._draft

    def put(self, draft: Draft) -> None:
        """Go on from another draft."""
        self._draft = draft
        self._keep_draft(draft)
        self.on_change()

    def edit(self, edit: Edit) -> bool:
        """Add an edit; says why where it does not fit."""
        try:
            self.put(self._draft.add_edit(edit))
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


class OperatorDesk(Desk):
    """One page's hold of a draft of the operator's rules of a domain."""

    def __init__(self, view: View, domain: str, draft: Draft) -> None:
        super().__init__(view, draft)
        self.domain = domain

    @classmethod
    async def of_domain(cls, view: View, domain: str) -> OperatorDesk:
        """Take the draft; one without edits begins at the current rules.

        Raises what the client raises.
        """
        kept = view.session.operator_drafts.get(domain)
        if kept is None or not kept.edits:
            kept = Draft(await view.session.reading.once(lambda: _read_operator_rules(view.client, domain)))
        desk = cls(view, domain, kept)
        desk._keep_draft(kept)
        return desk

    @property
    def list_path(self) -> str:
        return f"{path_of('operator-rules')}?domain={quote(self.domain, safe='')}"

    @property
    def review_path(self) -> str:
        return f"{path_of('operator-review')}?domain={quote(self.domain, safe='')}"

    async def newest(self) -> AclSeen:
        """Read the domain's operator rules as they are now."""
        return await self.view.session.reading.once(lambda: _read_operator_rules(self.view.client, self.domain))

    async def endpoints(self) -> Mapping[str, tuple[Prefix, ...]]:
        """Return none: operator rules are not about endpoints of one tenant."""
        return {}

    async def owned_prefixes(self) -> tuple[Prefix, ...]:
        return EVERY_IPV4, EVERY_IPV6

    def check(self, rule: Rule, draft: Draft, owned: tuple[Prefix, ...]) -> None:
        """Check a rule as a tenant's. Raises BadPolicy where it expires."""
        if rule.expires is not None:
            raise BadPolicy("a rule of the operator's does not end by itself: leave it empty", place="expires")
        super().check(rule, draft, owned)

    def _keep_draft(self, draft: Draft) -> None:
        self.view.session.operator_drafts[self.domain] = draft

    def forget(self) -> None:
        """Forget the draft of the domain's operator rules."""
        self.view.session.operator_drafts.pop(self.domain, None)


def _read_operator_rules(client: Client, domain: str) -> AclSeen:
    seen = client.domains.read_operator_rules_with_etag(domain)
    return AclSeen(Acl(seen.rules), seen.etag)


def _newest(client: Client, tenant: str, known: AclSeen | None) -> AclSeen:
    """Read the current list; the known one, if that is still it."""
    if known is not None:
        return client.acls.read_since(tenant, known.etag) or known
    return client.acls.read(tenant)


_MOST_CONFLICTS = 12


async def go_on_from_current(desk: Desk) -> str:
    """Merge the draft with the list that the page was opened with.

    Returns what was done in words. Where both sides touch the same packets, the draft stays as it is.
    """
    draft, seen = desk.draft, desk.current
    if seen.etag == draft.base.etag:
        return ""
    rebased = await asyncio.to_thread(draft.onto, seen)
    if isinstance(rebased, Draft):
        desk.put(rebased)
        return f"Somebody changed the list meanwhile: your changes are on top of version {seen.version}."
    return (
        "Somebody changed the same packets meanwhile: what follows is as if your draft took that back. Before anything"
        " is committed you are asked whose rules win."
    )


async def go_on_from_newest(desk: Desk) -> None:
    """Merge the draft with the current list, or ask whose rules win.

    The draft is kept either way.
    """
    draft = desk.draft
    try:
        seen = await desk.newest()
    except AclflowError as error:
        ui.notify(
            f"Not committed, and your draft is kept: {error}",
            type="negative",
            position="top",
            timeout=0,
            close_button=True,
        )
        return
    rebased = await asyncio.to_thread(draft.onto, seen)
    if isinstance(rebased, Draft):
        desk.put(rebased)
        _say_merged()
    else:
        _ask_whose(desk, seen, rebased)


def _say_merged() -> None:
    with dialog("Somebody changed the list meanwhile") as box:
        box.props("persistent")
        ui.label("Your changes were put on top of the newest version. Look at them again before you commit.")
        ui.button("Review again", on_click=ui.navigate.reload).props("no-caps unelevated")


def _ask_whose(desk: Desk, seen: AclSeen, conflicts: Sequence[str]) -> None:
    """Ask which rules win, where both sides touch the same packets."""

    def take_mine() -> None:
        desk.put(desk.draft.over(seen))
        ui.navigate.reload()

    with dialog("Somebody changed the same packets meanwhile", 620) as box:
        box.props("persistent")
        ui.label(f"The list is at version {seen.version}, and your draft began at version {desk.draft.base.version}:")
        with ui.column().classes("gap-1").props("role=list"):
            for conflict in conflicts[:_MOST_CONFLICTS]:
                ui.label(conflict).classes("text-negative small").props("role=listitem")
            if len(conflicts) > _MOST_CONFLICTS:
                ui.label(f"and {words.count(len(conflicts) - _MOST_CONFLICTS)} more").classes("quiet small")
        ui.label(
            "Nothing was committed, and your draft is as it was. With your rules on top, the review shows what that"
            " takes back of the other change, before anything is committed."
        )
        with ui.row().classes("w-full justify-end gap-2"):
            ui.button("Leave my draft as it is", on_click=box.close).props("flat no-caps")
            ui.button("Put my rules on top, and review", on_click=take_mine).props("no-caps unelevated")


class DraftBar:
    """Says how many changes wait, and what can be done with them."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._bar = ui.element("div").classes("draft-bar").props("role=region aria-label='Changes not committed'")
        with self._bar:
            ui.icon("edit_note").classes("text-xl text-primary").props("aria-hidden=true")
            self._text = ui.label().classes("grow").props("aria-live=polite")
            ui.button("Undo", icon="undo", on_click=desk.undo).props("flat no-caps dense")
            ui.button("Discard", on_click=desk.discard).props("flat no-caps dense color=negative")
            ui.button("Review and commit", on_click=lambda: ui.navigate.to(desk.review_path)).props(
                "no-caps unelevated"
            )
        self.refresh()

    def refresh(self) -> None:
        """Show the draft as it is."""
        edits = self._desk.draft.edits
        if edits:
            self._text.text = f"{words.of(len(edits), 'change')} not committed; the last: {edits[-1]}"
        self._bar.set_visibility(bool(edits))
