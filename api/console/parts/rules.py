"""Rules in words, as the cells of a table say them. Pure."""

from __future__ import annotations

from orchestrator.errors import BadInput
from orchestrator.policy.endpointnames import reference_text, with_references
from orchestrator.policy.formats.native import rule_from_json, rule_to_json
from orchestrator.policy.model import Rule
from orchestrator.policy.ports import EVERY_PORT
from orchestrator.policy.protocols import format_protocol
from orchestrator.policy.ruletext import more_words, side_text

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
