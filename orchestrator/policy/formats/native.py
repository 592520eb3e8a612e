"""The native form of an access list: JSON, read and written with nothing lost.

    {"version": 1, "ingress_default": "deny", "egress_default": "permit",
     "groups": {"web": {"prefixes": ["198.51.100.16/28"], "description": "front ends"}},
     "rules": [{"id": "web-in", "action": "permit", "protocol": "tcp", "destination": "@web",
                "destination_ports": [80, 443, "8000-8080"]}]}

What is left out has the model's default. `rules`, and in a rule `id` and `action`, must be there: a request that
lost half of itself on the way must not come to mean an empty list. For the same reason `null`, unknown keys and empty
lists are refused. `source` and `destination` are ``"any"``, a prefix, ``"@group"``, or a list of the last two; ports
are ``80``, ``"80"``, ``"1024-65535"`` or a list of these; `protocol` is a name or a number; `tcp_flags` is
``{"set": ["syn"], "clear": ["ack", "rst"]}``; `expires` is a time with its zone.

These functions take parsed JSON (what `json.loads` gives). Texts that repeat are parsed once, each rule is checked by
its own class only, and the plain ones among many are read and written by an extension (`native_bulk.py`).
"""

from __future__ import annotations

import datetime as dt
import functools
import unicodedata
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

import orjson

from orchestrator.errors import AclflowError, BadInput
from orchestrator.policy.addresses import ANY, Addresses, Prefix
from orchestrator.policy.formats.json_text import LONGEST_QUOTED, quoted
from orchestrator.policy.formats.native_bulk import bulk
from orchestrator.policy.model import (
    Acl,
    Action,
    AddressGroup,
    Direction,
    FlagMatch,
    GroupName,
    Rule,
    RuleId,
    TcpFlag,
)
from orchestrator.policy.ports import EVERY_PORT, HIGHEST_PORT, PortRange
from orchestrator.policy.protocols import format_protocol, parse_protocol

VERSION = 1

_CACHED_TEXTS = 1 << 16

_ACTIONS = {action.value: action for action in Action}
_DIRECTIONS = {direction.value: direction for direction in Direction}

_T = TypeVar("_T")


# ---------------------------------------------------------------------------------------------------- reading


def acl_from_json(document: object) -> Acl:
    """Read a whole access list. Raises BadInput or BadPolicy with a place such as ``rules[3].destination``."""
    top = _an_object(document, "an access list")
    unknown = next((key for key in top if key not in _TOP_KEYS), None)
    if unknown is not None:
        raise BadInput(f"{quoted(unknown)} is no key of an access list: {', '.join(_TOP_KEYS)}")
    if "rules" not in top:
        raise BadInput("an access list needs its `rules` (an empty list has none)", place="rules")
    if "version" in top:
        at("version", _version, top["version"])
    groups = at("groups", _groups, top.get("groups", {}))
    rules = at("rules", _a_list, top["rules"])
    return Acl(
        rules=rules_from_json(rules),
        groups=groups,
        ingress_default=at("ingress_default", _action, top.get("ingress_default", Action.DENY.value)),
        egress_default=at("egress_default", _action, top.get("egress_default", Action.PERMIT.value)),
    )


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
    """Read one rule. `place` is put in front of the place of any error: ``rules[3]`` gives ``rules[3].source``."""
    fields: dict[str, Any] = {}  # the readers' types are those of Rule's fields; Rule checks the values
    for key, value in at(place, _an_object, document, "a rule").items():
        reader = _RULE_READERS.get(key)
        if reader is None:
            raise BadInput(f"{quoted(key)} is no key of a rule: {', '.join(_RULE_READERS)}", place=place or None)
        try:
            fields[key] = reader(value)
        except AclflowError as error:
            raise error.within(_inside(place, key)) from None
    if "id" not in fields or "action" not in fields:
        missing = "id" if "id" not in fields else "action"
        raise BadInput(f"a rule needs its `{missing}`", place=_inside(place, missing))
    try:
        return Rule(**fields)
    except AclflowError as error:
        raise (error.within(place) if place else error) from None


def group_from_json(name: str, document: object, place: str = "") -> AddressGroup:
    """Read one address group, ``{"prefixes": [...], "description": ""}``, known by `name`."""
    try:
        fields = _an_object(document, "an address group")
        unknown = next((key for key in fields if key not in ("prefixes", "description")), None)
        if unknown is not None:
            raise BadInput(f"{quoted(unknown)} is no key of an address group: prefixes, description")
        if "prefixes" not in fields:
            raise BadInput("an address group needs its `prefixes` (an empty list has none)")
        texts = at("prefixes", _a_list, fields["prefixes"])
        prefixes = tuple([at(f"prefixes[{index}]", _prefix, text) for index, text in enumerate(texts)])
        description = at("description", read_text, fields.get("description", ""))
        return AddressGroup(GroupName(name), prefixes, description)
    except AclflowError as error:
        raise (error.within(place) if place else error) from None


def read_text(value: object) -> str:
    """One line of text: control characters and halves of surrogate pairs, which not every store keeps, are refused."""
    text = _a_string(value)
    if not text.isprintable():
        for character in text:
            if unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp"):
                raise BadInput(f"the character U+{ord(character):04X} cannot be kept: write one line of plain text")
    return text


def at(place: str, read: Callable[..., _T], *arguments: object) -> _T:
    """Call a reader; an error of it names the place."""
    try:
        return read(*arguments)
    except AclflowError as error:
        raise (error.within(place) if place else error) from None


def _inside(place: str, key: str) -> str:
    return f"{place}.{key}" if place else key


def _an_object(value: object, what: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise BadInput(f"{quoted(value)} cannot be {what}: it must be an object")
    return value


def _a_list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise BadInput(f"{quoted(value)} is not a list")
    return value


def _a_string(value: object) -> str:
    if not isinstance(value, str):
        raise BadInput(f"{quoted(value)} is not a string")
    return value


def _a_word(value: object) -> str:
    """A string short enough for an error to quote whole."""
    word = _a_string(value)
    if len(word) > LONGEST_QUOTED:
        raise BadInput(f"{quoted(word)} cannot be read: it is {len(word)} characters long")
    return word


def _a_truth(value: object) -> bool:
    if value is not True and value is not False:
        raise BadInput(f"{quoted(value)} is not true or false")
    return value is True


def _a_number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadInput(f"{quoted(value)} is not a whole number")
    return value


def _a_port(value: object) -> int:
    port = _a_number(value)
    if not 0 <= port <= HIGHEST_PORT:
        raise BadInput(f"port {quoted(port)} is not in 0..{HIGHEST_PORT}")
    return port


def _version(value: object) -> None:
    if value != VERSION or isinstance(value, bool):
        raise BadInput(f"{quoted(value)} is not a version of this format: the only one is {VERSION}")


def _groups(value: object) -> Mapping[str, AddressGroup]:
    groups = _an_object(value, "a set of address groups")
    return MappingProxyType({name: group_from_json(name, body, name) for name, body in groups.items()})


def _action(value: object) -> Action:
    found = _ACTIONS.get(value) if isinstance(value, str) else None
    if found is None:
        raise BadInput(f"{quoted(value)} is not an action: permit or deny")
    return found


def _direction(value: object) -> Direction:
    found = _DIRECTIONS.get(value) if isinstance(value, str) else None
    if found is None:
        raise BadInput(f"{quoted(value)} is not a direction: ingress or egress")
    return found


def _rule_id(value: object) -> RuleId:
    return RuleId(_a_string(value))


def _protocol(value: object) -> int | None:
    if isinstance(value, str):
        return _protocol_from_text(_a_word(value))
    number = _a_number(value)
    if not 0 <= number <= 255:
        raise BadInput(f"protocol {quoted(number)} is not in 0..255")
    return number


@functools.lru_cache(maxsize=512)
def _protocol_from_text(text: str) -> int | None:
    return None if text == "any" else parse_protocol(text)


def _prefix(value: object) -> Prefix:
    return _prefix_from_text(_a_word(value))


@functools.lru_cache(maxsize=_CACHED_TEXTS)
def _prefix_from_text(text: str) -> Prefix:
    return Prefix.parse(text)


def _addresses(value: object) -> Addresses:
    if isinstance(value, str):
        return _addresses_from_text(_a_word(value))
    if not isinstance(value, list):
        raise BadInput(f"{quoted(value)} is not any, a prefix, @group, or a list of the last two")
    if not value:
        raise BadInput("an empty list matches nothing; leave it out, or write any, to match every address")
    parts = [at(f"[{index}]", _addresses_of_list, item) for index, item in enumerate(value)]
    return Addresses(
        tuple([prefix for part in parts for prefix in part.prefixes]),
        tuple([name for part in parts for name in part.groups]),
    )


def _addresses_of_list(value: object) -> Addresses:
    found = _addresses_from_text(_a_word(value))
    if found.is_any:
        raise BadInput("`any` stands alone, not in a list")
    return found


@functools.lru_cache(maxsize=_CACHED_TEXTS)
def _addresses_from_text(text: str) -> Addresses:
    if text == "any":
        return ANY
    if text.startswith("@"):
        return Addresses(groups=(text[1:],))
    return Addresses((Prefix.parse(text),))


def _ports(value: object) -> tuple[PortRange, ...]:
    if isinstance(value, str):
        return _ports_from_text(_a_word(value))
    if not isinstance(value, list):
        return _ports_from_number(_a_port(value))
    return tuple([ports for index, item in enumerate(value) for ports in at(f"[{index}]", _ports_of_list, item)])


def _ports_of_list(value: object) -> tuple[PortRange, ...]:
    if isinstance(value, str):
        return (PortRange.parse(_a_word(value)),)
    return _ports_from_number(_a_port(value))


@functools.lru_cache(maxsize=_CACHED_TEXTS)
def _ports_from_text(text: str) -> tuple[PortRange, ...]:
    return EVERY_PORT if text == "any" else (PortRange.parse(text),)


@functools.lru_cache(maxsize=_CACHED_TEXTS)
def _ports_from_number(port: int) -> tuple[PortRange, ...]:
    return (PortRange(port, port),)


def _tcp_flags(value: object) -> FlagMatch:
    fields = _an_object(value, "a match of TCP flags")
    unknown = next((key for key in fields if key not in ("set", "clear")), None)
    if unknown is not None:
        raise BadInput(f"{quoted(unknown)} is no key of a match of TCP flags: set, clear")
    wanted = at("set", _flags, fields.get("set", []))
    unwanted = at("clear", _flags, fields.get("clear", []))
    if wanted & unwanted:
        raise BadInput(f"{_flag_names(wanted & unwanted)[0]} cannot be both set and clear")
    if not wanted | unwanted:
        raise BadInput("it names no flag: leave it out to match every segment")
    return FlagMatch(wanted, wanted | unwanted)


def _flags(value: object) -> int:
    flags = 0
    for item in _a_list(value):
        name = _a_string(item)
        if name.upper() not in TcpFlag.__members__:
            raise BadInput(f"{quoted(name)} is not a TCP flag: {', '.join(_flag_names(0xFF))}")
        flags |= TcpFlag[name.upper()].value
    return flags


def _expires(value: object) -> dt.datetime:
    text = _a_string(value)
    try:
        return dt.datetime.fromisoformat(text)
    except ValueError:
        raise BadInput(f"{quoted(text)} is not a time such as 2030-01-31T12:00:00Z") from None


_TOP_KEYS = ("version", "ingress_default", "egress_default", "groups", "rules")

_RULE_READERS: Mapping[str, Callable[[object], object]] = MappingProxyType(
    {
        "id": _rule_id,
        "direction": _direction,
        "action": _action,
        "protocol": _protocol,
        "source": _addresses,
        "destination": _addresses,
        "source_ports": _ports,
        "destination_ports": _ports,
        "icmp_type": _a_number,
        "icmp_code": _a_number,
        "established": _a_truth,
        "tcp_flags": _tcp_flags,
        "fragments": _a_truth,
        "description": read_text,
        "owner": read_text,
        "expires": _expires,
        "log": _a_truth,
    }
)


# ---------------------------------------------------------------------------------------------------- writing


def acl_to_json(acl: Acl) -> dict[str, object]:
    """A whole access list as an object that `json.dumps` takes; `acl_from_json` gives back an equal list."""
    return {
        "version": VERSION,
        "ingress_default": acl.ingress_default.value,
        "egress_default": acl.egress_default.value,
        "groups": {name: group_to_json(group) for name, group in acl.groups.items()},
        "rules": [rule_to_json(rule) for rule in acl.rules],
    }


def rule_texts(rules: tuple[Rule, ...]) -> list[str]:
    """The JSON of rules, each as short as it can be: that of `rule_to_json`."""
    written = _BULK.write(rules)
    return [
        text if text is not None else orjson.dumps(rule_to_json(rule)).decode()
        for text, rule in zip(written, rules, strict=True)
    ]


def rule_to_json(rule: Rule) -> dict[str, object]:
    """One rule as an object; what has its default is left out, but for the direction, which readers look for."""
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
    if rule.icmp_type is not None:
        body["icmp_type"] = rule.icmp_type
    if rule.icmp_code is not None:
        body["icmp_code"] = rule.icmp_code
    if rule.established:
        body["established"] = True
    if rule.tcp_flags is not None:
        value, mask = rule.tcp_flags.value, rule.tcp_flags.mask
        body["tcp_flags"] = {"set": _flag_names(value), "clear": _flag_names(mask & ~value)}
    if rule.fragments:
        body["fragments"] = True


def _add_remarks(rule: Rule, body: dict[str, object]) -> None:
    if rule.description:
        body["description"] = rule.description
    if rule.owner:
        body["owner"] = rule.owner
    if rule.expires is not None:
        body["expires"] = rule.expires.isoformat()
    if rule.log:
        body["log"] = True


def _addresses_to_json(addresses: Addresses) -> str | list[str]:
    parts = [*map(_prefix_to_text, addresses.prefixes), *("@" + name for name in addresses.groups)]
    return parts[0] if len(parts) == 1 else parts


@functools.lru_cache(maxsize=_CACHED_TEXTS)
def _prefix_to_text(prefix: Prefix) -> str:
    return str(prefix)


def _ports_to_json(ports: tuple[PortRange, ...]) -> int | str | list[int | str]:
    parts = [item.low if item.low == item.high else str(item) for item in ports]
    return parts[0] if len(parts) == 1 else parts


def _flag_names(flags: int) -> list[str]:
    return [flag.name.lower() for flag in TcpFlag if flag & flags and flag.name]


_BULK = bulk(_RULE_READERS, _prefix_to_text)
