"""Domains: their hosts and enforcers, and how far behind each is.

Hosts come and go from here.
"""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from nicegui import events, ui

from api.console import words
from api.console.parts.pieces import Way, at_work, dialog, empty, heading, is_sure
from api.console.parts.table import CHIP_CELL, WRAPPED_CELL, columns, fill, plain_table
from api.console.parts.view import View
from orchestrator.client import Client, Host
from orchestrator.errors import AclflowError, BadInput
from orchestrator.wire.domains import RETURN_TRAFFIC, Domain, Enforced, Lagging, MachineOnboarding
from orchestrator.wire.points import Enforcer

_LIVE_S = 2.0
_SILENT_S = 8.0
_HOSTS = columns(
    ("name", "Host", "left"),
    ("state", "State", "left"),
    ("datapath", "Datapath", "left"),
    ("uplink", "Uplink", "left"),
    ("says", "What it says", "left"),
    ("actions", "", "right"),
)
_ENFORCERS = columns(("name", "Enforcer", "left"), ("kind_of", "Kind", "left"), ("state", "Heard", "left"))
_ACTIONS = (
    "<q-td :props='props'><q-btn v-if='props.row.may_go' flat dense no-caps color='negative' label='Remove' "
    ":aria-label=\"'Remove ' + props.row.name\" @click=\"$parent.$emit('remove', props.row.name)\"></q-btn></q-td>"
)
_STATES = {"adding": "info", "done": "good", "failed": "bad", "removing": "warn"}


@dataclass(frozen=True, slots=True)
class _Seen:
    """Read what the service says of a domain."""

    domain: Domain
    hosts: tuple[Host, ...]
    enforcers: tuple[Enforcer, ...]
    state: Enforced
    machines: tuple[MachineOnboarding, ...]


async def build(view: View) -> None:
    """Draw the page."""
    found = await view.read("domains", lambda client: list(client.domains.read_all()), fresh_s=2)
    ui.label("A domain is a set of hosts that hold the same rules, so that endpoints may move between them.").classes(
        "quiet"
    )
    ui.button("New domain", icon="add", on_click=lambda: _ask_for_domain(view)).props("no-caps unelevated")
    if not found:
        empty("No domain yet. Make one, then bring hosts in; its enforcers enrol with one-time tokens.")
    for domain in found:
        panel = _Domain(view, domain)
        panel.draw()
        await panel.refresh()
        ui.timer(_LIVE_S, panel.refresh)


def _ask_for_domain(view: View) -> None:
    with dialog("New domain", 460) as box:
        name = ui.input("Name", placeholder="pop1").props("outlined dense autofocus").classes("w-full")

        async def create() -> None:
            await view.do(lambda client: client.domains.create(str(name.value or "").strip()))
            ui.navigate.reload()

        Way(box, "Create", create)


class _Domain:
    def __init__(self, view: View, domain: Domain) -> None:
        self._view = view
        self._domain = domain
        self._machines: tuple[MachineOnboarding, ...] | None = None

    def draw(self) -> None:
        with ui.column().classes("panel"):
            with ui.row().classes("w-full items-center gap-3"):
                ui.label(self._domain.id).classes("text-lg font-bold")
                self._state = ui.label().classes("chip none")
                self._generation = ui.label().classes("quiet number")
                ui.label(f"return traffic: {self._domain.return_traffic}").classes("quiet small").tooltip(
                    RETURN_TRAFFIC
                )
                ui.space()
                ui.button("Invite an enforcer", icon="key", on_click=self._invite_enforcer).props("flat dense no-caps")
                ui.button("Bring in a host", icon="add", on_click=self._ask_for_host).props("outline dense no-caps")
                ui.button("Delete", icon="delete", on_click=self._delete).props(
                    f"flat dense no-caps color=negative aria-label='Delete {self._domain.id}'"
                )
            heading("Hosts")
            self._hosts = plain_table(_HOSTS, "No host yet: bring one in. Until then no list is in force here.")
            self._hosts.add_slot("body-cell-state", CHIP_CELL)
            self._hosts.add_slot("body-cell-says", WRAPPED_CELL)
            self._hosts.add_slot("body-cell-actions", _ACTIONS)
            self._hosts.on("remove", self._remove)
            self._coming = ui.column().classes("w-full gap-2")
            heading("Enforcers")
            self._enforcers = plain_table(
                _ENFORCERS, "None has enrolled: invite one, and start it with the token that you are shown."
            )
            self._enforcers.add_slot("body-cell-state", CHIP_CELL)

    async def refresh(self) -> None:
        """Show how far the domain is."""
        read = functools.partial(_read, name=self._domain.id)
        try:
            seen = await self._view.read(("domain", self._domain.id), read, fresh_s=_LIVE_S - 0.5)
        except AclflowError:
            return
        late = {each.host: each for each in seen.state.laggards}
        self._generation.text = f"generation {words.count(seen.domain.generation)}"
        done = "in force on every host" if seen.hosts else "no host"
        self._state.text = done if seen.state.done else f"{words.of(len(late), 'enforcement point')} behind"
        self._state.classes(replace=f"chip {'none' if not seen.hosts else 'good' if seen.state.done else 'warn'}")
        brought = {each.name for each in seen.machines}
        rows = [_make_host_row(host, late.get(host.name), may_go=host.name not in brought) for host in seen.hosts]
        fill(self._hosts, rows)
        now = dt.datetime.now(dt.UTC)
        fill(self._enforcers, [_make_enforcer_row(each, now) for each in seen.enforcers])
        if seen.machines != self._machines:
            self._machines = seen.machines
            self._coming.clear()
            with self._coming:
                self._draw_machines(seen.machines)

    def _draw_machines(self, machines: tuple[MachineOnboarding, ...]) -> None:
        if machines:
            heading("Machines that were brought in")
        for each in machines:
            with ui.row().classes("w-full items-center gap-3"):
                if each.under_way:
                    at_work()
                ui.label(each.state).classes(f"chip {_STATES[each.state]}")
                ui.label(each.name).classes("font-bold")
                ui.label(f"{each.machine}, bridge {each.bridge}").classes("quiet small")
                ui.label(each.error or each.step).classes("small grow text-negative" if each.error else "small grow")
                if not each.under_way:
                    ui.button("Give back", on_click=functools.partial(self._give_machine_back, each.name)).props(
                        f"flat dense no-caps color=negative aria-label='Give {each.name} back'"
                    )

    def _ask_for_host(self) -> None:
        ask_for_host(self._view, self._domain.id, self.refresh)

    def _delete(self) -> None:
        """Ask for the domain's id before it goes."""
        name = self._domain.id
        with dialog(f"Delete the domain {name}?", 520) as box:
            ui.label("Its operator rules go with it, and its enforcement points are shut out at once.")
            ui.label("It must have no tenant and no host any more.").classes("quiet")
            typed = ui.input(f"Type {name} to delete it").classes("w-full")
            typed.props("outlined dense autocomplete=off autofocus")

            async def delete_domain() -> None:
                await self._view.do(lambda client: client.domains.delete(name))
                ui.navigate.reload()

            button = Way(box, "Delete for good", delete_domain, colour="color=negative").button
            button.bind_enabled_from(typed, "value", lambda value: str(value or "").strip() == name)

    async def _remove(self, event: events.GenericEventArguments) -> None:
        """Take a host out whose switch somebody else configured."""
        name, domain = str(event.args), self._domain.id
        text = "Its switch keeps the last program; close it yourself, or bring the host in again later."
        if await is_sure(f"Remove the host {name}?", text, "Remove"):
            await self._do_and_refresh(lambda client: client.domains.remove_host(domain, name))

    async def _give_machine_back(self, name: str) -> None:
        domain = self._domain.id
        text = "Its switch is closed first, then the domain forgets it. Nothing passes unfiltered in between."
        if await is_sure(f"Give the machine {name} back?", text, "Give back"):
            await self._do_and_refresh(lambda client: client.onboarding.give_back(domain, name))

    async def _do_and_refresh(self, work: functools.partial[object] | object) -> None:
        try:
            await self._view.do(work)  # type: ignore[arg-type]
        except AclflowError as error:
            ui.notify(str(error), type="negative")
        await self.refresh()

    async def _invite_enforcer(self) -> None:
        domain = self._domain.id
        try:
            token = await self._view.do(lambda client: client.enrolment.invite(domain))
        except AclflowError as error:
            ui.notify(str(error), type="negative")
            return
        with dialog(f"An invitation into {domain}", 620) as box:
            ui.label("It is good for one enforcer, and this is the only time that it is shown:")
            ui.label(token).classes("mono").style("word-break: break-all; user-select: all")
            ui.label(f"ACLFLOW_TOKEN={token[:12]}… aclflow controller").classes("mono quiet")
            with ui.row().classes("w-full justify-end"):
                ui.button("Copy", icon="content_copy", on_click=lambda: ui.clipboard.write(token)).props("flat no-caps")
                ui.button("Done", on_click=box.close).props("no-caps unelevated")


def _read(client: Client, name: str) -> _Seen:
    """All that the page shows of a domain. Blocks."""
    domain = client.domains.read(name)
    state = client.domains.read_generation(name, domain.generation)
    return _Seen(
        domain,
        client.domains.read_hosts(name),
        client.points.read_all(name),
        state,
        tuple(client.onboarding.read_all(name)),
    )


def _make_host_row(host: Host, lag: Lagging | None, *, may_go: bool) -> dict[str, object]:
    state, kind, says = _describe_state(lag)
    return {
        "name": host.name,
        "state": state,
        "kind": kind,
        "datapath": f"{host.datapath_id:016x}",
        "uplink": host.uplink,
        "says": says,
        "may_go": may_go,
    }


def _describe_state(lag: Lagging | None) -> tuple[str, str, str]:
    if lag is None:
        return "in force", "good", ""
    if lag.state is None:
        return "never reported", "bad", "its controller has not enrolled, or its switch does not reach it"
    state = lag.word
    return state, "warn", f"at generation {lag.generation or 0}" + (f": {lag.error}" if lag.error else "")


def _make_enforcer_row(each: Enforcer, now: dt.datetime) -> dict[str, object]:
    silent = each.last_seen is None or (now - each.last_seen).total_seconds() > _SILENT_S
    return {
        "name": each.name,
        "kind_of": each.kind,
        "state": words.ago(each.last_seen, now),
        "kind": "warn" if silent else "good",
    }


_MACHINE, _SWITCH = "A machine, over SSH", "A switch that is configured already"


def ask_for_host(view: View, domain: str, done: Callable[[], Awaitable[None]]) -> None:
    """Ask which host, and have it brought in."""
    with dialog(f"Bring a host into {domain}") as box:
        kind = ui.toggle([_MACHINE, _SWITCH], value=_MACHINE).props("no-caps unelevated aria-label='What it is'")
        name = _add_field("Name", "host3")
        uplink = _add_field("Uplink interface", "eth1", "the one towards the outside; it becomes a port of the switch")
        with ui.column().classes("w-full gap-3") as machine:
            address = _add_field("Address of the machine", "198.51.100.3", "the service logs in there with its own key")
            with ui.row().classes("w-full gap-3 no-wrap"):
                user, port = _add_field("User", "root", value="root"), _add_field("SSH port", "22", value="22")
            controllers = _add_field("Controllers of its switch", "ssl:192.0.2.1:6653", "several with commas")
        datapath = _add_field("Datapath id", "00000000000000a3", "16 hexadecimal digits")
        machine.bind_visibility_from(kind, "value", lambda value: value == _MACHINE)
        datapath.bind_visibility_from(kind, "value", lambda value: value == _SWITCH)

        async def add_host() -> None:
            if kind.value == _SWITCH:
                host = Host(_needed(name), _read_datapath_id(datapath), _needed(uplink))
                await view.do(lambda client: client.domains.add_host(domain, host))
            else:
                targets = [each.strip() for each in controllers.value.split(",") if each.strip()]
                login = {"address": _needed(address), "user": _needed(user), "port": _read_port(port)}
                asked = {
                    "name": _needed(name), "uplink": _needed(uplink), "machine": login, "controllers": targets,
                    "tls": any(each.startswith("ssl:") for each in targets),
                }  # fmt: skip
                await view.do(lambda client: client.onboarding.begin(domain, asked))
            await done()

        Way(box, "Bring it in", add_host)


def _add_field(label: str, example: str, hint: str = "", *, value: str = "") -> ui.input:
    field = ui.input(label, value=value, placeholder=example).props("outlined dense").classes("w-full grow")
    return field.props(f'hint="{hint}"') if hint else field.props("hide-bottom-space")


def _needed(field: ui.input) -> str:
    """Read the form. Raises BadInput where it was left empty."""
    text = str(field.value or "").strip()
    if not text:
        raise BadInput("fill it in", place=str(field.props["label"]))
    return text


def _read_port(field: ui.input) -> int:
    text = _needed(field)
    if not text.isdigit():
        raise BadInput(f"'{text}' is not a port", place=str(field.props["label"]))
    return int(text)


def _read_datapath_id(field: ui.input) -> int:
    text = _needed(field)
    try:
        return int(text, 16)
    except ValueError:
        raise BadInput(f"'{text}' is not a datapath id", place=str(field.props["label"])) from None
