"""The native form of an access list: JSON, read and written with nothing lost.

    {"version": 1, "ingress_default": "deny", "egress_default": "permit",
     "groups": {"web": {"prefixes": ["198.51.100.16/28"], "description": "front ends"}},
     "rules": [{"id": "web-in", "action": "permit", "protocol": "tcp", "destination": "@web",
                "destination_ports": [80, 443, "8000-8080"]}]}

What is left out has the model's default. `rules`, and in a rule `id` and `action`, must be there: a request that lost
half of itself on the way must not come to mean an empty list. For the same reason `null`, unknown keys and empty lists
are refused. `source` and `destination` are ``"any"``, a prefix, ``"@group"``, or a list of the last two; ports are
``80``, ``"80"``, ``"1024-65535"``, a name such as ``"https"`` (`policy/ports.py`), or a list of these; `protocol` is a
name or a number; `tcp_flags` is ``{"set": ["syn"], "clear": ["ack", "rst"]}``; `dscp` is
a number, a range or a name such as ``"ef"``, or a list of these; `expires` is a time with its zone.
`taken_from` says which version of which tenant's list a file was written from: ``{"tenant": "blue", "version": 7}``.

These functions take parsed JSON (what `json.loads` gives). Values are read in `native_values.py`, each rule is checked
by its own class only, and the plain ones among many are read and written by an extension (`bulk`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any, Protocol

import orjson

from orchestrator.errors import AclflowError, BadInput
from orchestrator.policy import _rules
from orchestrator.policy.addresses import ANY, Addresses, Family, Prefix
from orchestrator.policy.dscp import runs_of
from orchestrator.policy.fields import DSCP, OF_ICMP
from orchestrator.policy.formats.json_text import quote_value
from orchestrator.policy.formats.native_values import (
    CACHED_TEXTS,
    a_direction,
    a_list,
    a_number,
    a_prefix,
    a_protocol,
    a_rule_id,
    a_time,
    a_truth,
    an_action,
    an_object,
    at,
    flag_names,
    inside,
    read_text,
    some_addresses,
    some_code_points,
    some_flags,
    some_ports,
)
from orchestrator.policy.formats.results import TakenFrom
from orchestrator.policy.model import Acl, Action, AddressGroup, Direction, GroupName, Rule
from orchestrator.policy.ports import EVERY_PORT, PortRange
from orchestrator.policy.protocols import format_protocol

_PROTOCOLS = 256


class Bulk(Protocol):
    """The functions of the extension."""

    def read(self, documents: list[object], /) -> list[Rule | None]:
        """The rules of parsed JSON objects, None for each that is to be read otherwise."""

    def write(self, rules: tuple[Rule, ...], /) -> list[str | None]:
        """The JSON texts of rules, None for each that is to be written otherwise."""


def bulk(readers: Mapping[str, Callable[[Any], object]], prefix_text: Callable[[Prefix], str]) -> Bulk:
    """Make the extension (`policy/_native/rules`) ready, for rules by the thousand.

    It is given the readers of a rule's fields and what writes a prefix.

    It reads and writes the plain rules, which are nearly all, and leaves those with anything unusual, or wrong, to the
    functions here. Law: whoever did it, the same came out.
    """
    names = _list_fields(Rule)
    _rules.setup(
        Rule, names, tuple(field.default for field in fields(Rule)), tuple(readers.get(name) for name in names),
        Addresses, _list_fields(Addresses), Prefix, _list_fields(Prefix), PortRange, _list_fields(PortRange),
        Family.IPV4, ANY, EVERY_PORT,
        tuple((member, member.value) for kind in (Direction, Action) for member in kind),
        tuple(format_protocol(number) for number in range(_PROTOCOLS)),
        prefix_text,
    )  # fmt: skip
    found: Bulk = _rules
    return found


def _list_fields(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


VERSION = 1


# ---------------------------------------------------------------------------------------------------- reading


def acl_from_json(document: object) -> Acl:
    """Read a whole access list. Raises BadInput or BadPolicy with a place such as ``rules[3].destination``."""
    top = an_object(document, "an access list")
    unknown = next((key for key in top if key not in _TOP_KEYS), None)
    if unknown is not None:
        raise BadInput(f"{quote_value(unknown)} is no key of an access list: {', '.join(_TOP_KEYS)}")
    if "rules" not in top:
        raise BadInput("an access list needs its `rules` (an empty list has none)", place="rules")
    if "version" in top:
        at("version", _check_version, top["version"])
    taken_from_json(top)
    groups = at("groups", _read_groups, top.get("groups", {}))
    rules = at("rules", a_list, top["rules"])
    return Acl(
        rules=rules_from_json(rules),
        groups=groups,
        ingress_default=at("ingress_default", an_action, top.get("ingress_default", Action.DENY.value)),
        egress_default=at("egress_default", an_action, top.get("egress_default", Action.PERMIT.value)),
    )


def taken_from_json(document: Mapping[str, object]) -> TakenFrom | None:
    """Return the tenant and version that a list names as its base, or None.

    Raises BadInput.
    """
    if "taken_from" not in document:
        return None
    fields = at("taken_from", an_object, document["taken_from"], "a tenant and a version")
    if fields.keys() != {"tenant", "version"}:
        raise BadInput('write it as {"tenant": "blue", "version": 7}', place="taken_from")
    version = at("taken_from.version", a_number, fields["version"])
    if version < 0:
        raise BadInput(f"{version} is no version of a list", place="taken_from.version")
    return TakenFrom(at("taken_from.tenant", read_text, fields["tenant"]), version)


def rules_from_json(documents: list[object]) -> tuple[Rule, ...]:
    """Read many rules; errors name a place such as ``rules[3].source``."""
    read = _BULK.read(documents)
    return tuple(
        [
            rule if rule is not None else rule_from_json(documents[index], f"rules[{index}]")
            for index, rule in enumerate(read)
        ]
    )


def rule_from_json(document: object, place: str = "") -> Rule:
    """Read one rule.

    `place` precedes the place of any error: ``rules[3]`` gives ``rules[3].source``.
    """
    fields: dict[str, Any] = {}  # the readers' types are those of Rule's fields; Rule checks the values
    for key, value in at(place, an_object, document, "a rule").items():
        reader = _RULE_READERS.get(key)
        if reader is None:
            raise BadInput(f"{quote_value(key)} is no key of a rule: {', '.join(_RULE_READERS)}", place=place or None)
        try:
            fields[key] = reader(value)
        except AclflowError as error:
            raise error.within(inside(place, key)) from None
    if "id" not in fields or "action" not in fields:
        missing = "id" if "id" not in fields else "action"
        raise BadInput(f"a rule needs its `{missing}`", place=inside(place, missing))
    try:
        return Rule(**fields)
    except AclflowError as error:
        raise (error.within(place) if place else error) from None


def group_from_json(name: str, document: object, place: str = "") -> AddressGroup:
    """Read one address group, ``{"prefixes": [...], "description": ""}``, known by `name`."""
    try:
        fields = an_object(document, "an address group")
        unknown = next((key for key in fields if key not in ("prefixes", "description")), None)
        if unknown is not None:
            raise BadInput(f"{quote_value(unknown)} is no key of an address group: prefixes, description")
        if "prefixes" not in fields:
            raise BadInput("an address group needs its `prefixes` (an empty list has none)")
        texts = at("prefixes", a_list, fields["prefixes"])
        prefixes = tuple([at(f"prefixes[{index}]", a_prefix, text) for index, text in enumerate(texts)])
        description = at("description", read_text, fields.get("description", ""))
        return AddressGroup(GroupName(name), prefixes, description)
    except AclflowError as error:
        raise (error.within(place) if place else error) from None


def _check_version(value: object) -> None:
    if value != VERSION or isinstance(value, bool):
        raise BadInput(f"{quote_value(value)} is not a version of this format: the only one is {VERSION}")


def _read_groups(value: object) -> Mapping[str, AddressGroup]:
    groups = an_object(value, "a set of address groups")
    return MappingProxyType({name: group_from_json(name, body, name) for name, body in groups.items()})


_TOP_KEYS = ("version", "ingress_default", "egress_default", "groups", "taken_from", "rules")

_RULE_READERS: Mapping[str, Callable[[object], object]] = MappingProxyType(
    {
        "id": a_rule_id,
        "direction": a_direction,
        "action": an_action,
        "protocol": a_protocol,
        "source": some_addresses,
        "destination": some_addresses,
        "source_ports": some_ports,
        "destination_ports": some_ports,
        **{field.attribute: a_number for field in OF_ICMP},
        "established": a_truth,
        "tcp_flags": some_flags,
        "fragments": a_truth,
        DSCP.attribute: some_code_points,
        "description": read_text,
        "owner": read_text,
        "expires": a_time,
        "log": a_truth,
        "stateless": a_truth,
    }
)


# ---------------------------------------------------------------------------------------------------- writing


def acl_to_json(acl: Acl) -> dict[str, object]:
    """Return a whole access list as an object for `json.dumps`.

    `acl_from_json` returns an equal list.
    """
    return {**_write_besides_rules(acl), "rules": [rule_to_json(rule) for rule in acl.rules]}


def acl_text(acl: Acl) -> bytes:
    """The JSON of `acl_to_json`, many times faster where the list is long."""
    rules = ",".join(rule_texts(acl.rules)).encode()
    return b'%b,"rules":[%b]}' % (orjson.dumps(_write_besides_rules(acl))[:-1], rules)


def _write_besides_rules(acl: Acl) -> dict[str, object]:
    return {
        "version": VERSION,
        "ingress_default": acl.ingress_default.value,
        "egress_default": acl.egress_default.value,
        "groups": {name: group_to_json(group) for name, group in acl.groups.items()},
    }


def rule_texts(rules: tuple[Rule, ...]) -> list[str]:
    """The JSON of rules, each as short as it can be: that of `rule_to_json`."""
    written = _BULK.write(rules)
    return [
        text if text is not None else orjson.dumps(rule_to_json(rule)).decode()
        for text, rule in zip(written, rules, strict=True)
    ]


def rule_to_json(rule: Rule) -> dict[str, object]:
    """Return one rule as an object.

    Defaults are left out, except the direction, which readers look for.
    """
    body: dict[str, object] = {"id": rule.id, "direction": rule.direction.value, "action": rule.action.value}
    if rule.protocol is not None:
        body["protocol"] = format_protocol(rule.protocol)
    if rule.source is not ANY and not rule.source.is_any:
        body["source"] = _addresses_to_json(rule.source)
    if rule.destination is not ANY and not rule.destination.is_any:
        body["destination"] = _addresses_to_json(rule.destination)
    if rule.source_ports is not EVERY_PORT:
        body["source_ports"] = _ports_to_json(rule.source_ports)
    if rule.destination_ports is not EVERY_PORT:
        body["destination_ports"] = _ports_to_json(rule.destination_ports)
    _add_transport(rule, body)
    _add_remarks(rule, body)
    return body


def group_to_json(group: AddressGroup) -> dict[str, object]:
    """One address group, without its name."""
    return {"prefixes": [_prefix_to_text(prefix) for prefix in group.prefixes], "description": group.description}


def _add_transport(rule: Rule, body: dict[str, object]) -> None:
    for field, number in zip(OF_ICMP, rule.icmp, strict=False):
        body[field.attribute] = number
    if rule.established:
        body["established"] = True
    if rule.tcp_flags is not None:
        value, mask = rule.tcp_flags.value, rule.tcp_flags.mask
        body["tcp_flags"] = {"set": flag_names(value), "clear": flag_names(mask & ~value)}
    if rule.fragments:
        body["fragments"] = True
    if rule.dscp is not None:
        body[DSCP.attribute] = _code_points_to_json(rule.dscp)


def _add_remarks(rule: Rule, body: dict[str, object]) -> None:
    if rule.description:
        body["description"] = rule.description
    if rule.owner:
        body["owner"] = rule.owner
    if rule.expires is not None:
        body["expires"] = rule.expires.isoformat()
    if rule.log:
        body["log"] = True
    if rule.stateless:
        body["stateless"] = True


def _addresses_to_json(addresses: Addresses) -> str | list[str]:
    parts = [*map(_prefix_to_text, addresses.prefixes), *("@" + name for name in addresses.groups)]
    return parts[0] if len(parts) == 1 else parts


@functools.lru_cache(maxsize=CACHED_TEXTS)
def _prefix_to_text(prefix: Prefix) -> str:
    return str(prefix)


def _code_points_to_json(members: int) -> int | str | list[int | str]:
    parts = [low if low == high else f"{low}-{high}" for low, high in runs_of(members)]
    return parts[0] if len(parts) == 1 else parts


def _ports_to_json(ports: tuple[PortRange, ...]) -> int | str | list[int | str]:
    parts = [item.low if item.low == item.high else str(item) for item in ports]
    return parts[0] if len(parts) == 1 else parts


_BULK = bulk(_RULE_READERS, _prefix_to_text)
