"""Changes that wait for the approval of another person: looked at, approved, rejected or withdrawn.

One page is about a tenant's list, the other about operator rules and marks of a domain. Both follow by themselves, so
an author sees what was decided.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from nicegui import ui

from api.console import words
from api.console.parts.differences import Json, draw_difference, draw_headline
from api.console.parts.domainpicker import pick_domain
from api.console.parts.enforcing import Enforcing
from api.console.parts.pieces import Section, Way, dialog, empty, heading, is_sure
from api.console.parts.tree import approvals_path
from api.console.parts.view import View
from orchestrator.client import Client
from orchestrator.client.proposals import ProposedAbout
from orchestrator.errors import AclflowError
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.headline import Danger, Sentence, headline
from orchestrator.wire.common import Approvals, Proposal

_FOLLOW_S = 2.0
_MOST_SHOWN = 25
_MOST_COUNTED = 50
"""Marked lists whose proposals an operator's page counts."""
_SIGNS = {"added": "new", "removed": "deleted", "changed": "changed", "moved": "moved"}
_KINDS = {"list": "The list", "operator-rules": "The operator rules", "approvals": "What needs approval"}
_LOOKS = {"approved": "good", "rejected": "bad", "withdrawn": "none", "ended": "warn"}
_NOTHING = "Nothing waits for approval, and nothing was decided yet."


async def build(view: View) -> None:
    """Draw the page of a tenant's list."""
    tenant = await view.read("tenant", lambda client: client.tenants.read(view.tenant), fresh_s=10)
    ui.label(
        "Where the operator has marked the list, each change of it waits here until a person other than its author "
        "approves it."
    ).classes("quiet")
    await _Page(
        view, ProposedAbout(tenant=view.tenant), tenant.domain, tuple(map(Prefix.parse, tenant.prefixes))
    ).draw()


async def build_domain(view: View) -> None:
    """Draw a domain's page: its marks, lists with open proposals, and its own proposals."""
    domain = await pick_domain(view, "domain-proposals")
    if domain is None:
        return
    approvals = await view.read(
        ("approvals", domain), lambda client: client.proposals.read_approvals(domain), fresh_s=1
    )
    _draw_marks(approvals)
    if not approvals.operator_rules and not approvals.tenants:
        with ui.row().classes("items-baseline gap-2 quiet small"):
            ui.label("To have changes wait:")
            ui.label(f"aclflow domain approval set {domain} --operator-rules --add TENANT").classes("mono")
    with ui.column().classes("w-full gap-2") as elsewhere:
        pass
    await _Page(view, ProposedAbout(domain=domain), domain, ()).draw()
    if approvals.tenants:
        view.parts.later(lambda: _draw_elsewhere(view, domain, approvals.tenants, elsewhere))


def _draw_marks(approvals: Approvals) -> None:
    named = ["the operator rules"] if approvals.operator_rules else []
    if approvals.tenants:
        named.append(f"the lists of {words.list_names(approvals.tenants)}")
    some = f"Another person must approve changes of: {' and '.join(named)}."
    ui.label(some if named else "No change of the domain needs the approval of another person.").classes("quiet")


async def _draw_elsewhere(view: View, domain: str, tenants: Sequence[str], place: ui.column) -> None:
    """Lead to the marked lists of which changes wait."""
    some = tenants[:_MOST_COUNTED]
    waiting = await view.read(("waiting lists", domain, *some), lambda client: _count_open(client, some), fresh_s=2)
    with place:
        for tenant, number in waiting.items():
            said = f"{words.of(number, 'change')} of the list of {tenant}"
            ui.link(f"{said} {'waits' if number == 1 else 'wait'} for approval", approvals_path(domain, tenant))
        if len(tenants) > len(some):
            ui.label(f"and {words.count(len(tenants) - len(some))} more marked lists").classes("small quiet")


def _count_open(client: Client, tenants: Sequence[str]) -> dict[str, int]:
    """Count what waits of each list, without those of which nothing does. Blocks."""
    found = {
        each: sum(one.state == "open" for one in client.proposals.read_all(ProposedAbout(tenant=each)))
        for each in tenants
    }
    return {tenant: number for tenant, number in found.items() if number}


class _Page:
    def __init__(self, view: View, about: ProposedAbout, domain: str, own: tuple[Prefix, ...]) -> None:
        self._view = view
        self._about = about
        self._domain = domain
        self._own = own
        self._shown: Sequence[Proposal] | None = None

    async def draw(self) -> None:
        """Draw what there is, and follow it."""
        self._dialogs = ui.element("div")
        self._column = ui.column().classes("w-full gap-4")
        self._show_proposals(await self._read_proposals())
        ui.timer(_FOLLOW_S, self._follow_changes)

    async def _read_proposals(self) -> Sequence[Proposal]:
        key = ("proposals", self._about)
        return await self._view.read(
            key, lambda client: list(client.proposals.read_all(self._about)), fresh_s=_FOLLOW_S - 0.5
        )

    async def _follow_changes(self) -> None:
        try:
            found = await self._read_proposals()
        except AclflowError:
            return  # the frame says that the service does not answer
        if found != self._shown:
            self._show_proposals(found)

    def _show_proposals(self, found: Sequence[Proposal]) -> None:
        self._shown = found
        waiting = [each for each in found if each.state == "open"]
        decided = [each for each in found if each.state != "open"]
        self._column.clear()
        with self._column:
            if not found:
                empty(_NOTHING)
            for proposal in waiting:
                _Waiting(self._view, self._about, proposal, self._own, self._dialogs).draw()
            if decided:
                heading("Decided")
            for proposal in decided[:_MOST_SHOWN]:
                self._draw_decided(proposal)
            if len(decided) > _MOST_SHOWN:
                ui.label(f"and {words.count(len(decided) - _MOST_SHOWN)} older ones").classes("quiet")

    def _draw_decided(self, proposal: Proposal) -> None:
        with ui.column().classes("panel").props(f"data-proposal={proposal.id}"):
            with ui.row().classes("w-full items-center gap-3"):
                ui.label(proposal.state).classes(f"chip {_LOOKS[proposal.state]}")
                _draw_origin(self._view, proposal)
            if proposal.decided is not None and proposal.decided_by is not None:
                when = words.moment(proposal.decided, self._view.session.zone)
                reason = f": {proposal.reason}" if proposal.reason else ""
                ui.label(f"by {proposal.decider()}, {when}{reason}").classes("small quiet")
            if proposal.comment:
                ui.label(proposal.comment).classes("said")


class _Waiting:
    """A proposal that can be decided: its author, its changes, and the decision's buttons.

    `dialogs` is where dialogs are drawn: it stays when the page draws its proposals anew.
    """

    def __init__(
        self, view: View, about: ProposedAbout, proposal: Proposal, own: tuple[Prefix, ...], dialogs: ui.element
    ) -> None:
        self._view = view
        self._about = about
        self._proposal = proposal
        self._own = own
        self._dialogs = dialogs

    def draw(self) -> None:
        """Draw it; what it would change is drawn as soon as it is known."""
        seen, zone = self._proposal, self._view.session.zone
        with ui.column().classes("panel w-full gap-3").props(f"data-proposal={seen.id}"):
            with ui.row().classes("w-full items-center gap-3"):
                moved = seen.has_moved
                ui.label("overtaken" if moved else "waits").classes(f"chip {'warn' if moved else 'info'}")
                _draw_origin(self._view, seen)
            if seen.comment:
                ui.label(seen.comment).classes("said")
            if moved:
                ui.label("There is a newer version than it was made from: it cannot be approved; propose it anew.")
            ui.label(f"It can be approved until {words.moment(seen.expires, zone)}.").classes("small quiet")
            if seen.confirm_s is not None:
                lasts = words.span(seen.confirm_s)
                ui.label(f"Once it is out it goes back by itself after {lasts} unless it is kept.").classes("small")
            self._changes = Section("proposed", "", "Comparing it with what is in force")
            self._draw_buttons()
        self._view.parts.later(self._compare_changes)

    def _draw_buttons(self) -> None:
        who, seen = self._view.session.who, self._proposal
        if not self._view.session.may_write:
            return
        with ui.row().classes("w-full justify-end items-center gap-3"):
            if who.person == seen.person:
                ui.label("It is yours: another person must approve it.").classes("small quiet grow")
                ui.button("Withdraw", icon="undo", on_click=lambda: self._ask(self._withdraw)).props("flat no-caps")
                return
            ui.button("Reject", icon="block", on_click=lambda: self._ask(self._reject)).props(
                "flat no-caps color=negative"
            )
            if not seen.has_moved:
                ui.button("Approve", icon="check", on_click=lambda: self._ask(self._approve)).props(
                    "no-caps unelevated"
                )

    async def _ask(self, decide: Callable[[], Awaitable[None]]) -> None:
        """Decide, and say why where the service refuses."""
        with self._dialogs:
            try:
                await decide()
            except AclflowError as error:
                text = words.for_owners(str(error)) if self._view.tenant else str(error)
                ui.notify(text, type="negative", multi_line=True, position="top", timeout=0, close_button=True)

    async def _compare_changes(self) -> None:
        about, name = self._about, self._proposal.id
        try:
            changes = await self._view.read(
                ("proposed changes", name), lambda client: client.proposals.read_changes(about, name), fresh_s=2
            )
        except AclflowError as error:
            with self._changes.fill():
                ui.label(words.for_owners(str(error))).classes("small quiet").props("role=alert")
            return
        with self._changes.fill():
            _draw_changes(changes, self._own)

    async def _approve(self) -> None:
        seen, about = self._proposal, self._about
        what = f"{_KINDS[seen.kind]} becomes" if seen.kind == "list" else f"{_KINDS[seen.kind]} become"
        if not await is_sure("Approve it?", f"{what} what {seen.person} proposed, at once.", "Approve it"):
            return
        written = await self._view.do(lambda client: client.proposals.approve(about, seen.id))
        path = approvals_path(seen.domain, seen.tenant)
        if seen.kind == "approvals":
            ui.navigate.to(path)
        else:
            await Enforcing(self._view, seen.domain, written, path).follow()

    async def _reject(self) -> None:
        with dialog("Reject it", 460) as box:
            reason = ui.input("Why? Its author reads it.").props("outlined dense autofocus maxlength=1000")
            reason.classes("w-full")

            async def reject_proposal() -> None:
                said = str(reason.value or "").strip()
                await self._view.do(lambda client: client.proposals.reject(self._about, self._proposal.id, reason=said))
                ui.navigate.reload()

            Way(box, "Reject", reject_proposal, colour="color=negative")

    async def _withdraw(self) -> None:
        if not await is_sure("Withdraw it?", "Nothing of it happens.", "Withdraw it"):
            return
        await self._view.do(lambda client: client.proposals.withdraw(self._about, self._proposal.id))
        ui.navigate.reload()


def _draw_origin(view: View, proposal: Proposal) -> None:
    """Say what the proposal is about, who made it, when, and from which version."""
    if proposal.kind != "list":
        ui.label(_KINDS[proposal.kind]).classes("font-bold")
    maker = "" if proposal.made_by is None else f", whose token {proposal.made_by} made"
    ui.label(f"by {proposal.by()}{maker}")
    made = words.moment(proposal.created, view.session.zone)
    ui.label(f"{made}, from version {proposal.base_version}").classes("quiet number")


def _draw_changes(changes: Json, own: tuple[Prefix, ...]) -> None:
    """Draw what a proposal would change: in a sentence, its rules, its packets."""
    if changes["approvals"] is not None:
        wanted = changes["approvals"]
        _draw_marks(Approvals(operator_rules=wanted["operator_rules"], tenants=tuple(wanted["tenants"])))
        return
    draw_headline(_says(changes, own))
    if changes["rules"] or changes["groups"] or changes["defaults"]:
        with ui.column().classes("panel"):
            heading("Rules")
            _draw_rules(changes)
    if changes["packets"] or not changes["left"]:
        draw_difference(changes["packets"])
    if changes["left"]:
        with ui.column().classes("panel"):
            heading("Left to other rules")
            for each in changes["left"][:_MOST_SHOWN]:
                was = "denied" if each["becomes"] == "permit" else "permitted"
                text = f"no longer {was} for everybody: {each['direction']}: {each['summary']}"
                ui.label(text).classes("mono")
            _draw_rest(len(changes["left"]))


def _says(changes: Json, own: tuple[Prefix, ...]) -> tuple[Sentence, ...]:
    """Say the change in sentences, worst first."""
    packets = changes["packets"]
    gone = {each["id"] for each in changes["rules"] if each["after"] is None}
    kept = {rule for each in packets or () for rule in each["before"]} - gone
    found = () if packets == [] and changes["left"] else headline(packets, own=own, kept=kept)
    if not changes["left"]:
        return found
    return (*found, Sentence("what was decided for everybody is left to other rules and to the lists", Danger.SOME))


def _draw_rules(changes: Json) -> None:
    for each in changes["rules"][:_MOST_SHOWN]:
        with ui.row().classes("items-center gap-2"):
            ui.label(_SIGNS[each["kind"]]).classes("chip none")
            ui.label(each["id"]).classes("font-bold")
            with ui.column().classes("gap-0"):
                ui.label(each["after"] or each["before"]).classes("mono")
                if each["kind"] == "changed":
                    ui.label(f"was: {each['before']}").classes("mono small quiet")
    _draw_rest(len(changes["rules"]))
    for name in changes["groups"]:
        ui.label(f"changed: group {name}")
    for way in changes["defaults"]:
        ui.label(f"changed: what becomes of {way} packets that no rule matches")


def _draw_rest(number: int) -> None:
    """Say how many more proposals there are than are shown."""
    if number > _MOST_SHOWN:
        ui.label(f"and {words.count(number - _MOST_SHOWN)} more").classes("quiet small")
