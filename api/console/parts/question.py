"""The short form of a trace, which leads to the page that answers."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlencode

from nicegui import ui

from api.console.parts.pieces import heading
from api.console.parts.tree import path_of
from orchestrator.errors import AclflowError
from orchestrator.policy.addresses import Family, Prefix, parse_address
from orchestrator.wire.tenants import Tenant

PROTOCOLS = ("tcp", "udp", "icmp", "icmpv6", "sctp", "esp", "gre")


def ask_why(tenants: Sequence[Tenant]) -> None:
    """Draw the question, which opens the trace in the project concerned."""
    with ui.column().classes("panel"), ui.element("form").classes("w-full") as form:
        heading("Why is a packet dropped?")
        with ui.element("div").classes("asking"):
            source = _add_text_field("From address", "192.0.2.7")
            destination = _add_text_field("To address", "198.51.100.20")
            protocol = ui.select(list(PROTOCOLS), value="tcp", label="Protocol").props("outlined dense")
            port = _add_text_field("To port", "443")
            ui.button("Find out", icon="route").props("no-caps unelevated type=submit")

        def open_trace() -> None:
            fields = {"source": source, "destination": destination, "protocol": protocol, "port": port}
            said = {name: str(field.value or "").strip() for name, field in fields.items()}
            asked = find_concerned(tenants, said["source"], said["destination"])
            ui.navigate.to(f"{path_of('trace', asked.id)}?{urlencode(said)}")

        form.on("submit.prevent", open_trace)


def find_concerned(tenants: Sequence[Tenant], source: str, destination: str) -> Tenant:
    """Return the tenant that a packet concerns first.

    That is the owner of its destination, else that of its source, else the first tenant.
    """
    owners = (owner for address in (destination, source) if (owner := _find_owner(tenants, address)) is not None)
    return next(owners, tenants[0])


def _find_owner(tenants: Sequence[Tenant], address: str) -> Tenant | None:
    try:
        family, number = parse_address(address)
    except AclflowError:
        return None  # the page of the trace says what is wrong with it
    return next(
        (each for each in tenants if any(_has_address(Prefix.parse(one), family, number) for one in each.prefixes)),
        None,
    )


def _has_address(prefix: Prefix, family: Family, number: int) -> bool:
    return prefix.family is family and prefix.holds(number)


def _add_text_field(label: str, example: str) -> ui.input:
    return ui.input(label, placeholder=example).props("outlined dense hide-bottom-space")
