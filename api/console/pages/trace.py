"""The trace of a packet: lists on its way, the deciding rule, remedies."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from html import escape
from itertools import chain, count
from typing import Any
from urllib.parse import urlencode

from nicegui import ui

from api.console.parts.desk import Desk, DraftBar
from api.console.parts.pieces import fact, heading
from api.console.parts.question import PROTOCOLS
from api.console.parts.ruleedits import add_rule, change_rule
from api.console.parts.tree import path_of
from api.console.parts.view import View
from orchestrator.client import Step, Trace
from orchestrator.errors import AclflowError, BadInput
from orchestrator.policy.addresses import format_address, parse_address
from orchestrator.policy.describe import name_decider
from orchestrator.policy.endpointnames import with_addresses
from orchestrator.policy.model import Packet
from orchestrator.policy.ports import parse_ports
from orchestrator.policy.protocols import ICMP, ICMPV6, TCP, WITH_PORTS, format_protocol, parse_protocol
from orchestrator.policy.tcpflags import TcpFlag

_SEGMENTS = {
    "opens a connection (SYN)": int(TcpFlag.SYN),
    "answers (SYN and ACK)": int(TcpFlag.SYN | TcpFlag.ACK),
    "belongs to a connection (ACK)": int(TcpFlag.ACK),
    "ends a connection (FIN and ACK)": int(TcpFlag.FIN | TcpFlag.ACK),
    "refuses (RST)": int(TcpFlag.RST),
}
_ECHO = {ICMP: 8, ICMPV6: 128}
_SOURCE, _DESTINATION = "Source address", "Destination address"
_CLIENT_PORT = 49152
"""Where connections usually come from."""


async def build(view: View) -> None:
    """Draw the page."""
    page = _TracePage(await Desk.of(view))
    page.draw()
    if page.is_asked:
        await page.trace()


class _TracePage:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._view = desk.view
        self._writes = desk.view.session.may_write

    def draw(self) -> None:
        query = self._view.query
        ui.label(
            "Say what a packet looks like, and see which rule decides it, in the list as it is committed or in a draft."
        ).classes("quiet")
        with ui.column().classes("panel"), ui.element("form").classes("w-full").on("submit.prevent", self.trace):
            with ui.element("div").classes("asking"):
                self._source = self._add_text_field(_SOURCE, query.get("source", ""), "192.0.2.7")
                self._destination = self._add_text_field(
                    _DESTINATION, query.get("destination", ""), "198.51.100.20, web1"
                )
                asked = query.get("protocol", "tcp")
                self._protocol = (
                    ui.select(list(PROTOCOLS), value=asked if asked in PROTOCOLS else "tcp", label="Protocol")
                    .props("outlined dense")
                    .on_value_change(self._fit)
                )
                self._port = self._add_text_field("Destination port", query.get("port", ""), "443")
                ui.button("Trace", icon="route").props("no-caps unelevated type=submit")
            with ui.row().classes("w-full items-start gap-3 more-of-it"):
                self._segment = (
                    ui.select(list(_SEGMENTS), value=next(iter(_SEGMENTS)), label="The segment")
                    .props("outlined dense")
                    .classes("w-72")
                )
                self._source_port = self._add_text_field("Source port", str(_CLIENT_PORT), "").classes("w-36")
                self._in_draft = ui.checkbox("In your draft", value=bool(self._desk.draft.edits))
                self._in_draft.set_visibility(bool(self._desk.draft.edits))
        self._outcome = ui.column().classes("w-full gap-4").props("aria-live=polite")
        bar = DraftBar(self._desk)
        self._desk.on_change = bar.refresh
        self._fit()

    def _add_text_field(self, label: str, value: str, example: str) -> ui.input:
        return ui.input(label, value=value, placeholder=example).props("outlined dense hide-bottom-space")

    def _fit(self) -> None:
        """Show the fields that the protocol has."""
        ports = self._protocol.value in ("tcp", "udp", "sctp")
        self._port.set_visibility(ports)
        self._source_port.set_visibility(ports)
        self._segment.set_visibility(self._protocol.value == "tcp")

    @property
    def is_asked(self) -> bool:
        """Whether the page was opened with a packet."""
        return bool(self._source.value and self._destination.value)

    async def _packet(self) -> Packet:
        """Read the form's packet. Raises BadInput with the field's name as its place."""
        ends = {_SOURCE: (self._source.value or "").strip(), _DESTINATION: (self._destination.value or "").strip()}
        endpoints = await self._desk.endpoints()
        named = with_addresses(ends, lambda: {name: [*map(str, of)] for name, of in endpoints.items()}, "project")
        (family, source), (other, destination) = (_read_address(named[end], end) for end in (_SOURCE, _DESTINATION))
        if other is not family:
            raise BadInput("it is of the other IP version than the source", place=_DESTINATION)
        protocol = parse_protocol(self._protocol.value)
        has_ports = protocol in WITH_PORTS
        return Packet(
            family,
            source,
            destination,
            protocol,
            source_port=_port(self._source_port.value, "Source port") if has_ports else 0,
            destination_port=_port(self._port.value, "Destination port") if has_ports else 0,
            icmp_type=_ECHO.get(protocol, 0),
            tcp_flags=_SEGMENTS[self._segment.value] if protocol == TCP else 0,
        )

    async def trace(self) -> None:
        """Ask the service and show what it says."""
        self._outcome.clear()
        try:
            packet = await self._packet()
            draft = self._desk.draft.acl if self._desk.draft.edits and self._in_draft.value else None
            found = await self._view.session.reading.once(
                lambda: self._view.client.acls.trace(self._view.tenant, packet, draft)
            )
        except AclflowError as error:
            with self._outcome:
                ui.label(str(error)).classes("text-negative").props("role=alert")
            return
        with self._outcome:
            self._show_trace(packet, found)

    def _show_trace(self, packet: Packet, found: Trace) -> None:
        permitted = found.action == "permit"
        with ui.element("div").classes(f"verdict {'good' if permitted else 'bad'}"):
            ui.icon("check_circle" if permitted else "block").classes("text-3xl").props("aria-hidden=true")
            ui.label(f"{'Permitted' if permitted else 'Denied'}: {self._explain_trace(found)}")
        source, destination = (format_address(packet.family, end) for end in (packet.source, packet.destination))
        ui.html(draw_way(found.steps, source, destination, permitted=permitted), sanitize=False).classes("w-full")
        if not found.steps:
            self._show_no_list()
            return
        last = found.steps[-1]
        if found.rule is not None:
            self._show_rule(found, last)
        else:
            ui.label(
                f"No rule of the {last.direction} list matches it, so the list's default decides. "
                f"Decided at: {tier_words(found)}."
            ).classes("quiet")
        self._show_what_is_not_asked(found, source, permitted=permitted)
        if last.tenant == self._view.tenant and self._writes:
            self._offer(packet, last, permitted=permitted)
        elif last.tenant is None:
            ui.label("The operator's rules stand above the project's lists.").classes("quiet")
        elif last.tenant != self._view.tenant:
            ui.label(f"It is the list of the project {last.tenant} that decides.").classes("quiet")
            if self._view.session.is_admin:
                self._lead_to(last.tenant, packet)

    def _show_what_is_not_asked(self, found: Trace, source: str, *, permitted: bool) -> None:
        """Name checks before any list, and lists hidden from this viewer."""
        if any(step.direction == "egress" for step in found.steps):
            ui.label(
                f"It is taken to come from the machine that has {source}. One that only pretends to is dropped before "
                "any list is asked: by the host of the machine that sends it or, from outside, by the edge."
            ).classes("quiet")
        if permitted and not self._view.session.is_admin:
            ui.label(
                "Asked are this project's lists and the operator's rules: "
                "if the other address is another project's, that project's list may still drop it."
            ).classes("quiet")

    def _explain_trace(self, found: Trace) -> str:
        if not found.steps:
            whose = "anybody's here" if self._view.session.is_admin else "this project's"
            return f"neither address is {whose}"
        last = found.steps[-1]
        return f"{rule_words(last.rule)} in the {who_decides(last)}"

    def _show_no_list(self) -> None:
        """Say the next step where no list is asked."""
        if self._view.session.is_admin:
            ui.label("No list is asked: what comes for nobody is dropped, and counted at an edge where there is one.")
            ui.link("Whose addresses are whose, and give one to a project", path_of("tenants", ""))
        else:
            ui.label("This project's lists are not asked. Is the address written as you mean it?").classes("quiet")
            ui.link("Which addresses the project owns", path_of("overview", self._view.tenant))

    def _lead_to(self, tenant: str, packet: Packet) -> None:
        """A link to the same question, asked where its answer can be changed."""
        source, destination = (format_address(packet.family, end) for end in (packet.source, packet.destination))
        said = {"source": source, "destination": destination, "protocol": format_protocol(packet.protocol)}
        ui.link(
            f"Trace it in {tenant}, to change its list",
            f"{path_of('trace', tenant)}?{urlencode({**said, 'port': packet.destination_port})}",
        )

    def _show_rule(self, found: Trace, step: Step) -> None:
        rule = found.rule or {}
        with ui.column().classes("panel"):
            heading("The rule that decides")
            with ui.row().classes("items-center gap-3"):
                ui.label(rule["action"]).classes(f"chip {'good' if rule['action'] == 'permit' else 'bad'}")
                ui.label(rule["id"]).classes("font-bold")
                ui.label(rule.get("description", "")).classes("quiet")
            with ui.element("dl").classes("facts"):
                for name, value in rule.items():
                    if name not in ("id", "action", "description"):
                        fact(name.replace("_", " "), _spell_value(value))
                fact("decided at", tier_words(found))
            if step.tenant == self._view.tenant and not rule["id"].startswith("_"):
                ui.link("Show it in the list", f"{path_of('acl', self._view.tenant)}?q={rule['id']}")

    def _offer(self, packet: Packet, step: Step, *, permitted: bool) -> None:
        """Offer to change the deciding rule, or to put one before it."""
        other = "deny" if permitted else "permit"
        with ui.row().classes("gap-3"):
            if step.rule is not None and not step.rule.startswith("_"):
                ui.button(
                    f"Change '{step.rule}'", icon="edit", on_click=lambda: self._change_rule(str(step.rule))
                ).props("no-caps outline")
            ui.button(
                f"{other.capitalize()} such packets", icon="add", on_click=lambda: self._insert(packet, step, other)
            ).props("no-caps unelevated")

    async def _change_rule(self, name: str) -> None:
        acl = self._desk.draft.acl
        rule = next((rule for rule in acl.rules if rule.id == name), None)
        if rule is None:
            ui.notify(f"Your draft has no rule '{name}' any more.", type="warning")
            return
        await change_rule(self._desk, rule, f"Rule {name}")

    async def _insert(self, packet: Packet, step: Step, action: str) -> None:
        """A new rule for such packets, before the one that decides now."""
        acl = self._desk.draft.acl
        position = next((index for index, rule in enumerate(acl.rules) if rule.id == step.rule), len(acl.rules))
        start = _rule_for(packet, step, action, {rule.id for rule in acl.rules})
        await add_rule(self._desk, start, position)


def _rule_for(packet: Packet, step: Step, action: str, taken: Collection[str]) -> dict[str, Any]:
    """A rule that matches packets like this one: its addresses, its protocol, its destination port."""
    source, destination = (format_address(packet.family, end) for end in (packet.source, packet.destination))
    protocol = format_protocol(packet.protocol)
    name = f"{action}-{protocol}-{packet.destination_port or 'any'}"
    rule: dict[str, Any] = {
        "id": next(each for each in chain([name], (f"{name}-{again}" for again in count(2))) if each not in taken),
        "action": action,
        "direction": step.direction or "ingress",
        "protocol": protocol,
        "source": source,
        "destination": destination,
    }
    if packet.destination_port:
        rule["destination_ports"] = packet.destination_port
    if packet.protocol in _ECHO:
        rule["icmp_type"] = packet.icmp_type
    return rule


def _read_address(text: str, field: str) -> tuple[Any, int]:
    try:
        return parse_address(text)
    except AclflowError as error:
        raise error.within(field) from None


def _port(text: str | None, field: str) -> int:
    """One port, by its number or its service's name. Raises BadInput with the field."""
    try:
        found = parse_ports((text or "").strip())
    except AclflowError as error:
        raise error.within(field) from None
    if found.low != found.high:
        raise BadInput(f"'{text}' is several ports: a packet has one", place=field)
    return found.low


def _spell_value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def draw_way(steps: Sequence[Step], source: str, destination: str, *, permitted: bool) -> str:
    """Draw ``source > list > list > destination``, as far as the packet gets.

    It is a row of boxes, and a column where the window is narrow.
    """
    boxes = [("end", ("from", source)), *map(_make_step_box, steps)]
    boxes.append(("end", ("to", destination)) if permitted else ("bad", ("dropped",)))
    said = f"{source} to {destination}: {'permitted' if permitted else 'denied'}"
    items = "".join(_draw_box(kind, lines) for kind, lines in boxes)
    return f'<ol class="way" aria-label="{escape(said)}">{items}</ol>'


def who_decides(step: Step) -> str:
    """The list that a step stands for, in words."""
    if step.tenant is None:
        return "operator's rules"
    return f"{step.direction} list of {step.tenant}"


def tier_words(found: Trace) -> str:
    """Say at which tier a packet's fate is settled first."""
    if found.tier == "server":
        return f"firewall {found.server}, before any host" if found.server else "a firewall, before any host"
    where = "host, ahead of the list: the rule is lifted" if found.lifted else "host, in the list"
    return f"{where}; past the firewall servers, as a heavy hitter" if found.heavy else where


def rule_words(rule: str | None) -> str:
    """Name the rule that decided, in words."""
    return "no rule matches: the default" if rule is None else name_decider(rule, "rule {}")


def _make_step_box(step: Step) -> tuple[str, tuple[str, ...]]:
    return ("good" if step.action == "permit" else "bad"), (who_decides(step), rule_words(step.rule), step.action)


def _draw_box(kind: str, lines: tuple[str, ...]) -> str:
    *before, last = map(escape, lines)
    return f'<li class="{kind}">{"".join(f"<span>{line}</span>" for line in before)}<b>{last}</b></li>'
