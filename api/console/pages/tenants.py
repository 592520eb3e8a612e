"""The cloud's tenants: prefixes and quotas; made, changed and deleted here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from nicegui import ui

from api.console import words
from api.console.parts.pieces import Way, dialog, empty
from api.console.parts.question import ask_why
from api.console.parts.tree import path_of
from api.console.parts.view import View
from orchestrator.client import Client
from orchestrator.errors import AclflowError, BadInput
from orchestrator.policy.addresses import Prefix
from orchestrator.wire.tenants import Limits, SeenTenant, Tenant

_LONGEST_NUMBER = 15
"""Digits of a quota; longer ones are typing errors."""


async def build(view: View) -> None:
    """Draw the page."""
    found = await view.read("every tenant", lambda client: list(client.tenants.read_all()), fresh_s=1)
    ui.label("A tenant is what its own people call their project: who owns prefixes, and one access list.").classes(
        "quiet"
    )
    ui.button("New tenant", icon="add", on_click=lambda: _create(view)).props("no-caps unelevated")
    if not found:
        empty("No tenant yet. A tenant owns prefixes and says which traffic may reach them.")
        return
    ask_why(found)
    for tenant in found:
        _draw_tenant(view, tenant)


def _draw_tenant(view: View, tenant: Tenant) -> None:
    limit = tenant.quota
    with ui.column().classes("panel"), ui.row().classes("w-full items-center gap-3"):
        ui.link(tenant.name or tenant.id, path_of("overview", tenant.id)).classes("font-bold")
        if tenant.name and tenant.name != tenant.id:
            ui.label(tenant.id).classes("mono quiet")
        ui.label(f"domain {tenant.domain}").classes("chip none")
        ui.label(words.list_names([str(prefix) for prefix in tenant.prefixes]) or "no prefixes").classes("mono")
        ui.space()
        parts = [
            f"{words.count(value)} {name}"
            for name, value in (("rules", limit.rules), ("flow entries", limit.flows))
            if value is not None
        ]
        ui.label(f"quota: {', '.join(parts)}" if parts else "no quota").classes("small quiet")
        ui.button("Edit", icon="edit", on_click=lambda: _edit(view, tenant)).props(
            f"flat dense no-caps aria-label='Edit {tenant.id}'"
        )
        ui.button("Delete", icon="delete", on_click=lambda: _delete(view, tenant)).props(
            f"flat dense no-caps color=negative aria-label='Delete {tenant.id}'"
        )


async def _edit(view: View, tenant: Tenant) -> None:
    """Ask how a tenant is to be, beginning with how it is now."""
    try:
        seen = await view.session.reading.once(lambda: view.client.tenants.read(tenant.id))
    except AclflowError as error:
        ui.notify(str(error), type="negative")
        return
    with dialog(f"Tenant {tenant.id}", 520) as box:
        title = ui.input("Name", value=seen.name).props("outlined dense autofocus").classes("w-full")
        prefixes = _add_prefixes_field("\n".join(seen.prefixes))
        ui.label("Prefixes that a rule or an endpoint still needs cannot go.").classes("small quiet")
        limits = {
            name: ui.input(label, value="" if limit is None else str(limit), placeholder="no limit")
            .props(f"outlined dense inputmode=numeric hint='{_describe_use(used)}'")
            .classes("w-full")
            for name, label, limit, used in (
                ("rules", "Quota of rules", seen.quota.rules, seen.used.rules),
                ("flows", "Quota of flow entries", seen.quota.flows, seen.used.flows),
            )
        }

        def carry_out(client: Client, *wanted: Any) -> None:
            nonlocal seen
            for step in _changes(client, seen, *wanted):
                seen = step  # after a refusal it goes on from here

        async def change_tenant() -> None:
            owned = _prefixes(prefixes.value)
            quota = replace(seen.quota, **{name: _limit(name, field.value) for name, field in limits.items()})
            await view.do(lambda client: carry_out(client, str(title.value or "").strip(), owned, quota))
            ui.navigate.reload()

        Way(box, "Save", change_tenant)


def _changes(client: Client, seen: SeenTenant, name: str, owned: list[Prefix], quota: Limits) -> Iterator[SeenTenant]:
    """Carry out each change; yield the tenant after each step. Blocks.

    The change that is refused most often goes first.

    Raises what the client raises.
    """
    if list(map(str, owned)) != list(seen.prefixes):
        version = client.tenants.set_prefixes(seen.id, owned, etag=f'"{seen.version}"').version
        seen = replace(seen, version=version, prefixes=tuple(map(str, owned)))
        yield seen
    if (quota.rules, quota.flows) != (seen.quota.rules, seen.quota.flows):
        version = client.tenants.set_quota(seen.id, quota, etag=f'"{seen.version}"').version
        seen = replace(seen, version=version, quota=quota)
        yield seen
    if name != seen.name:
        version = client.tenants.rename(seen.id, name, etag=f'"{seen.version}"').version
        yield replace(seen, version=version, name=name)


async def _delete(view: View, tenant: Tenant) -> None:
    """Ask for the tenant's id before it goes with all that it has."""
    try:
        seen = await view.session.reading.once(lambda: view.client.tenants.read(tenant.id))
    except AclflowError as error:
        ui.notify(str(error), type="negative")
        return
    with dialog(f"Delete the tenant {tenant.id}?", 520) as box:
        ui.label(
            f"Its list ({words.of(seen.used.rules, 'rule')}), its history, its counts and its tokens go for good. Its"
            " prefixes belong to nobody then, and no host lets packets to or from them through."
        )
        ui.label("It must have no endpoint any more.").classes("quiet")
        typed = ui.input(f"Type {tenant.id} to delete it").classes("w-full")
        typed.props("outlined dense autocomplete=off autofocus")

        async def delete_tenant() -> None:
            await view.do(lambda client: client.tenants.delete(seen.id, etag=f'"{seen.version}"'))
            view.session.forget_tenant(seen.id)
            ui.navigate.reload()

        button = Way(box, "Delete for good", delete_tenant, colour="color=negative").button
        button.bind_enabled_from(typed, "value", lambda value: str(value or "").strip() == seen.id)


def _add_prefixes_field(value: str = "") -> ui.textarea:
    return (
        ui.textarea("Prefixes it owns, one a line", value=value)
        .props("outlined input-class=mono rows=4")
        .classes("w-full")
    )


def _prefixes(text: str | None) -> list[Prefix]:
    """Read a field of prefixes. Raises BadInput with the line."""
    found = []
    for number, line in enumerate((text or "").splitlines(), 1):
        if line.strip():
            try:
                found.append(Prefix.parse(line.strip()))
            except AclflowError as error:
                raise error.within(f"Prefixes, line {number}") from None
    return found


def _limit(name: str, text: str | None) -> int | None:
    """A quota as typed; nothing is no limit. Raises BadInput."""
    said = (text or "").strip()
    if not said:
        return None
    if not said.isascii() or not said.isdigit() or len(said) > _LONGEST_NUMBER:
        raise BadInput(
            f"'{said}' is not such a number: write up to {_LONGEST_NUMBER} digits, or nothing for no limit",
            place=f"Quota of {name}",
        )
    return int(said)


def _describe_use(number: int | None) -> str:
    return "empty: no limit" if number is None else f"it has {words.count(number)} now; empty: no limit"


async def _create(view: View) -> None:
    """Ask for a new tenant and make it."""
    domains = [
        domain.id for domain in await view.read("domains", lambda client: list(client.domains.read_all()), fresh_s=2)
    ]
    with dialog("New tenant", 520) as box:
        if not domains:
            ui.link("There is no domain yet: make one first.", path_of("domains"))
        name = ui.input("Id", placeholder="shop").props("outlined dense autofocus").classes("w-full")
        title = ui.input("Name", placeholder="Web shop").props("outlined dense").classes("w-full")
        domain = (
            ui.select(domains, value=domains[0] if domains else None, label="Domain")
            .props("outlined dense")
            .classes("w-full")
        )
        prefixes = _add_prefixes_field()

        async def create_tenant() -> None:
            owned = _prefixes(prefixes.value)
            await view.do(
                lambda client: client.tenants.create(
                    name.value.strip(), domain=domain.value, name=title.value, prefixes=owned
                )
            )
            ui.navigate.reload()

        Way(box, "Create", create_tenant).button.set_enabled(bool(domains))
