"""The form of a rule, which shows each field's error, and rules in words."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping
from typing import Any

from nicegui import ui

from api.console import words
from api.console.parts.pieces import dialog
from api.console.parts.timefield import TimeField
from orchestrator.errors import AclflowError, BadInput
from orchestrator.policy.endpointnames import reference_text, with_references
from orchestrator.policy.fields import OF_ICMP
from orchestrator.policy.formats.native import rule_from_json, rule_to_json
from orchestrator.policy.model import Acl, Rule
from orchestrator.policy.ports import EVERY_PORT
from orchestrator.policy.protocols import format_protocol
from orchestrator.policy.ruletext import more_words, side_text

_PROTOCOLS = ("any", "tcp", "udp", "icmp", "icmpv6", "sctp", "esp", "gre")
_WITH_PORTS = ("tcp", "udp", "sctp")
_ICMP = ("icmp", "icmpv6")
_OF_ICMP = tuple(field.attribute for field in OF_ICMP)
LABELS = {
    "id": "Name",
    "action": "Action",
    "direction": "Direction",
    "protocol": "Protocol",
    "source": "Source",
    "destination": "Destination",
    "source_ports": "Source ports",
    "destination_ports": "Destination ports",
    **{field.attribute: f"ICMP {field.label}" for field in OF_ICMP},
    "dscp": "DSCP",
    "established": "Only established",
    "fragments": "Later fragments only",
    "description": "Description",
    "owner": "Owner",
    "expires": "Ends",
    "log": "Log",
    "stateless": "Stateless",
}
"""The form's words for the fields of a rule."""
_PLACE = re.compile(r"(?:rules\[\d+\]\.)?([a-z_]+)")
_ROW = re.compile(r"rules\[(\d+)\]")
_NO_PORTS = "Only tcp, udp and sctp have ports: choose the protocol first"
_HELP = {
    "id": "A short name: letters, digits and _ . : -",
    "source": "any, prefixes such as 192.0.2.0/24, endpoints such as web1, or @group; several with commas",
    "destination": "any, prefixes, endpoints, or @group; several with commas",
    "source_ports": "any, 80, https, 1024-65535, or several with commas",
    "destination_ports": "any, 80, https, 1024-65535, or several with commas",
    "dscp": "any, 46, ef, 8-15, or several with commas",
}

INLINE = ("protocol", "source", "destination", "description")
"""The fields that can be edited in their cells."""
NO_ADDRESS = "it is empty: write prefixes, an endpoint, @group, or any if all addresses are meant"
"""Why a rule is refused whose side names nothing: that is never taken for every address."""


def row_of(place: int, rule: Rule, mark: str = "") -> dict[str, object]:
    """A rule as a row of a table. `place` is counted from 1."""
    return {
        "id": rule.id,
        "place": place,
        "action": rule.action.value,
        "direction": rule.direction.value,
        "protocol": "any" if rule.protocol is None else format_protocol(rule.protocol),
        "source": side_text(rule.source, rule.source_ports),
        "destination": side_text(rule.destination, rule.destination_ports),
        "said": {name: said_of(rule, name) for name in INLINE},
        "more": ", ".join(more_words(rule)),
        "description": rule.description,
        "mark": mark,
    }


def said_of(rule: Rule, field: str) -> str:
    """A field as it is edited in its cell: everything it holds, ports behind ``port``."""
    if field == "description":
        return rule.description
    if field == "protocol":
        return "any" if rule.protocol is None else format_protocol(rule.protocol)
    addresses, ports = getattr(rule, field), getattr(rule, f"{field}_ports")
    words = [reference_text(f"@{name}") for name in addresses.groups] + [str(prefix) for prefix in addresses.prefixes]
    text = ", ".join(words) or "any"
    return text if ports == EVERY_PORT else f"{text} port {', '.join(map(str, ports))}"


def edit_field(rule: Rule, field: str, text: str) -> Rule:
    """Return the rule with a field as it was typed into its cell.

    Raises BadInput and BadPolicy with the field's name.
    """
    document = dict(rule_to_json(rule))
    if field in ("source", "destination"):
        addresses, _, ports = f" {text} ".partition(" port ")
        parts = _split_commas(addresses)
        if not parts:
            raise BadInput(NO_ADDRESS, place=field)
        document |= {field: parts, f"{field}_ports": _split_commas(ports)}
    else:
        document[field] = text.strip()
        if field == "protocol" and not text.strip():
            raise BadInput("it is empty: write a protocol, or any if all protocols are meant", place=field)
    document = with_references(document)
    return rule_from_json({name: value for name, value in document.items() if value not in ("", [], ["any"], "any")})


def _split_commas(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


async def ask_for_rule(
    title: str,
    document: Mapping[str, Any],
    *,
    names: tuple[str, ...],
    keeps_id: bool,
    zone: dt.tzinfo,
    take: Callable[[Rule], None],
) -> bool:
    """Ask for a rule; return whether it was taken.

    The form begins with `document` (the native form).

    `names` are endpoints and groups that a side may name. Times without a zone are of `zone`.
    `take` is given the rule. An AclflowError of it is shown at the field that it names, and the dialog stays as it is.
    """
    with dialog(title, 680, opened=False) as box:
        form = _Form(box, document, names, keeps_id, zone, take)
        form.draw()
    return bool(await box)


class _Form:
    def __init__(
        self,
        box: ui.dialog,
        document: Mapping[str, Any],
        names: tuple[str, ...],
        keeps_id: bool,
        zone: dt.tzinfo,
        take: Callable[[Rule], None],
    ) -> None:
        self._dialog = box
        self._take = take
        self._start = dict(document)
        self._names = names
        self._keeps_id = keeps_id
        self._zone = zone
        ends = document.get("expires")
        self._end = words.moment(dt.datetime.fromisoformat(str(ends)), zone) if ends else ""
        """The end that the rule has, as the field shows it."""
        self._fields: dict[str, Any] = {}

    def draw(self) -> None:
        with ui.row().classes("w-full gap-4 items-start"):
            name = self._add_text_field("id", "Name").classes("grow")
            name.props("" if self._keeps_id else "autofocus").set_enabled(not self._keeps_id)
            self._add_choice("action", ("permit", "deny"), None)
            self._add_choice("direction", ("ingress", "egress"), "ingress")
        with ui.row().classes("w-full gap-4 items-start no-wrap"):
            protocol = str(self._start.get("protocol", "any"))
            known = dict.fromkeys((*_PROTOCOLS, protocol))
            self._fields["protocol"] = (
                ui.select(list(known), value=protocol, label="Protocol", with_input=True, new_value_mode="add-unique")
                .props("outlined dense hide-bottom-space")
                .classes("w-44")
                .on_value_change(self._protocol_changed)
            )
            self._add_text_field("description", "Description").classes("grow")
        for side in ("source", "destination"):
            with ui.row().classes("w-full gap-4 items-start no-wrap"):
                self._add_text_field(
                    side,
                    LABELS[side],
                    default="any" if "action" in self._start else "",
                    suggestions=["any", *self._names],
                ).classes("grow")
                self._add_text_field(f"{side}_ports", LABELS[f"{side}_ports"], default="any").classes("w-56")
        with ui.row().classes("w-full gap-4 items-start no-wrap"):
            for asked in _OF_ICMP:
                self._add_text_field(asked, LABELS[asked]).classes("w-32")
            self._add_text_field("dscp", LABELS["dscp"], default="any").classes("w-56")
            self._add_text_field("owner", "Owner").classes("grow")
            self._ends = TimeField("Ends", self._end, self._zone, place="expires", may_be_empty=True)
            self._fields["expires"] = self._ends.input
        with ui.row().classes("gap-x-6 gap-y-0"):
            self._add_tick_box("established", "Only established (ACK or RST)")
            self._add_tick_box("fragments", "Later fragments only")
            self._add_tick_box("log", "Log packets that it decides")
            self._add_tick_box("stateless", "Stateless: decides by its match, without a connection")
        self._error = ui.label().classes("text-negative small").props("role=alert")
        self._error.set_visibility(False)
        with ui.row().classes("w-full justify-end"):
            ui.button("Cancel", on_click=self._dialog.close).props("flat no-caps")
            ui.button("Keep in draft", on_click=self._submit_rule).props("no-caps unelevated")
        self._protocol_changed()

    def _add_text_field(
        self, name: str, label: str, *, default: str = "", suggestions: list[str] | None = None
    ) -> ui.input:
        value = self._start.get(name, default)
        text = ", ".join(map(reference_text, map(str, value if isinstance(value, list) else [value])))
        field = ui.input(label, value=text, autocomplete=suggestions).props("outlined dense hide-bottom-space")
        if name in _HELP:
            field.props(f'hint="{_HELP[name]}"')
        self._fields[name] = field
        return field

    def _add_choice(self, name: str, values: tuple[str, ...], default: str | None) -> None:
        toggle = ui.toggle(list(values), value=self._start.get(name, default)).props(
            f"no-caps unelevated aria-label={name}"
        )
        self._fields[name] = toggle

    def _add_tick_box(self, name: str, label: str) -> None:
        self._fields[name] = ui.checkbox(label, value=bool(self._start.get(name, False)))

    def _protocol_changed(self) -> None:
        """Enable the fields that the protocol has.

        A value that is there all the same stays to be seen and corrected.
        """
        protocol = self._fields["protocol"].value
        for name in ("source_ports", "destination_ports"):
            has_ports = protocol in _WITH_PORTS or self._fields[name].value not in ("any", "")
            self._fields[name].set_enabled(has_ports)
            self._fields[name].props(f'hint="{_HELP[name] if has_ports else _NO_PORTS}"')
        for name in _OF_ICMP:
            self._fields[name].set_visibility(protocol in _ICMP or bool(self._fields[name].value))
        self._fields["established"].set_enabled(protocol == "tcp")

    def _submit_rule(self) -> None:
        for field in self._fields.values():
            if isinstance(field, ui.input):
                field.props(remove="error error-message")
        self._error.set_visibility(False)
        try:
            self._take(rule_from_json(with_references(self._document())))
        except AclflowError as error:
            self._show_error(error)
            return
        self._dialog.submit(True)

    def _show_error(self, error: AclflowError) -> None:
        name, reason = field_of(error), reason_of(error)
        field = self._fields.get(name)
        if isinstance(field, ui.input):
            field.props(f'error error-message="{reason.replace(chr(34), chr(39))}"')
            field.run_method("focus")
        else:
            self._error.text = f"{LABELS[name]}: {reason}" if name in LABELS else reason
            self._error.set_visibility(True)

    def _document(self) -> dict[str, Any]:
        """Return the native form of the rule.

        Parts that the form has no field for stay as they were.
        """
        document = {name: value for name, value in self._start.items() if name not in self._fields}
        for name, field in self._fields.items():
            value = field.value
            if isinstance(field, ui.checkbox):
                if value:
                    document[name] = True
            elif name in ("source", "destination", "source_ports", "destination_ports", "dscp"):
                parts = [part.strip() for part in (value or "").split(",") if part.strip()]
                if not parts and name in ("source", "destination"):
                    raise BadInput(NO_ADDRESS, place=name)
                if parts not in ([], ["any"]):
                    document[name] = parts
            elif name in _OF_ICMP:
                if value:
                    document[name] = int(value) if value.strip().isdigit() else value
            elif name == "expires":
                ends = self._start.get(name) if value == self._end else self._ends.read()
                if ends:
                    document[name] = ends if isinstance(ends, str) else ends.isoformat()
            elif value not in (None, ""):
                document[name] = value
        return document


def field_of(error: AclflowError) -> str:
    """The field of a rule that an error is about: ``rules[3].destination[0]`` is about `destination`."""
    found = _PLACE.match(error.place or "")
    return found.group(1) if found else ""


def reason_of(error: AclflowError) -> str:
    """Say the reason of an error in the page's words, which number rules from 1."""
    return _describe_rows(error.reason)


def _describe_rows(text: str) -> str:
    return _ROW.sub(lambda found: f"rule {int(found[1]) + 1}", words.for_owners(text))


def error_text(error: AclflowError, acl: Acl) -> str:
    """Say a list's error in the page's words: row from 1, field by label."""
    row = _ROW.match(error.place or "")
    if row is None or int(row.group(1)) >= len(acl.rules):
        return _describe_rows(str(error))
    number = int(row.group(1))
    name = field_of(error)
    where = f"Rule {number + 1} ('{acl.rules[number].id}')" + (f", {LABELS[name]}" if name in LABELS else "")
    return f"{where}: {reason_of(error)}"


def document_of(rule: Rule) -> dict[str, Any]:
    """A rule as the form begins with it."""
    return dict(rule_to_json(rule))
