"""Why is a packet dropped? The short form of that question, which leads to the page that answers it."""

from __future__ import annotations

from urllib.parse import urlencode

from nicegui import ui

from api.console.parts.pieces import heading
from api.console.parts.tree import path_of

PROTOCOLS = ("tcp", "udp", "icmp", "icmpv6", "sctp", "esp", "gre")


def ask_why(tenant: str) -> None:
    """Draw the question; asking it opens the trace of that packet."""
    with ui.column().classes("panel"), ui.element("form").classes("w-full") as form:
        heading("Why is a packet dropped?")
        with ui.element("div").classes("asking"):
            source = _text("From address", "192.0.2.7")
            destination = _text("To address", "198.51.100.20")
            protocol = ui.select(list(PROTOCOLS), value="tcp", label="Protocol").props("outlined dense")
            port = _text("To port", "443")
            ui.button("Find out", icon="route").props("no-caps unelevated type=submit")

        def ask() -> None:
            fields = {"source": source, "destination": destination, "protocol": protocol, "port": port}
            said = {name: str(field.value or "").strip() for name, field in fields.items()}
            ui.navigate.to(f"{path_of('trace', tenant)}?{urlencode(said)}")

        form.on("submit.prevent", ask)


def _text(label: str, example: str) -> ui.input:
    return ui.input(label, placeholder=example).props("outlined dense hide-bottom-space")
