"""The form that brings a host in: a machine over SSH, or a switch."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nicegui import ui

from api.console.parts.dialog import Way, dialog
from api.console.parts.view import View
from orchestrator.client import Host
from orchestrator.errors import BadInput

_MACHINE, _SWITCH = "A machine, over SSH", "A switch that is configured already"


def ask_for_host(view: View, domain: str, done: Callable[[], Awaitable[None]]) -> None:
    """Ask which host, and have it brought in."""
    with dialog(f"Bring a host into {domain}") as box:
        kind = ui.toggle([_MACHINE, _SWITCH], value=_MACHINE).props("no-caps unelevated aria-label='What it is'")
        name = _field("Name", "host3")
        uplink = _field("Uplink interface", "eth1", "the one towards the outside; it becomes a port of the switch")
        with ui.column().classes("w-full gap-3") as machine:
            address = _field("Address of the machine", "198.51.100.3", "the service logs in there with its own key")
            with ui.row().classes("w-full gap-3 no-wrap"):
                user, port = _field("User", "root", value="root"), _field("SSH port", "22", value="22")
            controllers = _field("Controllers of its switch", "ssl:192.0.2.1:6653", "several with commas")
        datapath = _field("Datapath id", "00000000000000a3", "16 hexadecimal digits")
        machine.bind_visibility_from(kind, "value", lambda value: value == _MACHINE)
        datapath.bind_visibility_from(kind, "value", lambda value: value == _SWITCH)

        async def bring() -> None:
            if kind.value == _SWITCH:
                host = Host(_needed(name), _datapath_id(datapath), _needed(uplink))
                await view.do(lambda client: client.add_host(domain, host))
            else:
                targets = [each.strip() for each in controllers.value.split(",") if each.strip()]
                login = {"address": _needed(address), "user": _needed(user), "port": _port(port)}
                asked = {
                    "name": _needed(name), "uplink": _needed(uplink), "machine": login, "controllers": targets,
                    "tls": any(each.startswith("ssl:") for each in targets),
                }  # fmt: skip
                await view.do(lambda client: client.onboard(domain, asked))
            await done()

        Way(box, "Bring it in", bring)


def _field(label: str, example: str, hint: str = "", *, value: str = "") -> ui.input:
    field = ui.input(label, value=value, placeholder=example).props("outlined dense").classes("w-full grow")
    return field.props(f'hint="{hint}"') if hint else field.props("hide-bottom-space")


def _needed(field: ui.input) -> str:
    """Read the form. Raises BadInput where it was left empty."""
    text = str(field.value or "").strip()
    if not text:
        raise BadInput("fill it in", place=str(field.props["label"]))
    return text


def _port(field: ui.input) -> int:
    text = _needed(field)
    if not text.isdigit():
        raise BadInput(f"'{text}' is not a port", place=str(field.props["label"]))
    return int(text)


def _datapath_id(field: ui.input) -> int:
    text = _needed(field)
    try:
        return int(text, 16)
    except ValueError:
        raise BadInput(f"'{text}' is not a datapath id", place=str(field.props["label"])) from None
