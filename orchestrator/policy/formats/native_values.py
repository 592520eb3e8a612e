"""Read the values of a rule in the native form.

Each error quotes the value.

Every reader raises BadInput. Texts that repeat are parsed once.
"""

from __future__ import annotations

import datetime as dt
import functools
import unicodedata
from collections.abc import Callable, Mapping
from typing import TypeVar

from orchestrator.errors import AclflowError, BadInput
from orchestrator.policy.addresses import ANY, Addresses, Prefix
from orchestrator.policy.dscp import code_points, parse_code_points
from orchestrator.policy.formats.json_text import LONGEST_QUOTED, quote_value
from orchestrator.policy.model import Action, Direction, RuleId
from orchestrator.policy.ports import EVERY_PORT, HIGHEST_PORT, PortRange, parse_ports
from orchestrator.policy.protocols import parse_protocol
from orchestrator.policy.tcpflags import FlagMatch, TcpFlag

CACHED_TEXTS = 1 << 16
"""So many different texts of a kind are remembered."""

_ACTIONS = {action.value: action for action in Action}
_DIRECTIONS = {direction.value: direction for direction in Direction}

_T = TypeVar("_T")


def read_text(value: object) -> str:
    """Read one line of text.

    Control characters and halves of surrogate pairs are refused: not every store keeps them.
    """
    text = _read_string(value)
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


def inside(place: str, key: str) -> str:
    """The place of a part."""
    return f"{place}.{key}" if place else key


def an_object(value: object, what: str) -> Mapping[str, object]:
    """`what` says for an error what it was to be."""
    if not isinstance(value, dict):
        raise BadInput(f"{quote_value(value)} cannot be {what}: it must be an object")
    return value


def a_list(value: object) -> list[object]:
    """Check that a value is a list, of anything."""
    if not isinstance(value, list):
        raise BadInput(f"{quote_value(value)} is not a list")
    return value


def _read_string(value: object) -> str:
    if not isinstance(value, str):
        raise BadInput(f"{quote_value(value)} is not a string")
    return value


def _a_word(value: object) -> str:
    """A string short enough for an error to quote whole."""
    word = _read_string(value)
    if len(word) > LONGEST_QUOTED:
        raise BadInput(f"{quote_value(word)} cannot be read: it is {len(word)} characters long")
    return word


def a_truth(value: object) -> bool:
    """Read ``true`` or ``false``. Raises BadInput."""
    if value is not True and value is not False:
        raise BadInput(f"{quote_value(value)} is not true or false")
    return value is True


def a_number(value: object) -> int:
    """Read a whole number. Raises BadInput."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadInput(f"{quote_value(value)} is not a whole number")
    return value


def _read_port(value: object) -> int:
    port = a_number(value)
    if not 0 <= port <= HIGHEST_PORT:
        raise BadInput(f"port {quote_value(port)} is not in 0..{HIGHEST_PORT}")
    return port


def an_action(value: object) -> Action:
    """``"permit"`` or ``"deny"``."""
    found = _ACTIONS.get(value) if isinstance(value, str) else None
    if found is None:
        raise BadInput(f"{quote_value(value)} is not an action: permit or deny")
    return found


def a_direction(value: object) -> Direction:
    """``"ingress"`` or ``"egress"``."""
    found = _DIRECTIONS.get(value) if isinstance(value, str) else None
    if found is None:
        raise BadInput(f"{quote_value(value)} is not a direction: ingress or egress")
    return found


def a_rule_id(value: object) -> RuleId:
    """Read a rule's id."""
    return RuleId(_read_string(value))


def a_protocol(value: object) -> int | None:
    """A name or a number; None for ``"any"``."""
    if isinstance(value, str):
        return _protocol_from_text(_a_word(value))
    number = a_number(value)
    if not 0 <= number <= 255:
        raise BadInput(f"protocol {quote_value(number)} is not in 0..255")
    return number


@functools.lru_cache(maxsize=512)
def _protocol_from_text(text: str) -> int | None:
    return None if text == "any" else parse_protocol(text)


def a_prefix(value: object) -> Prefix:
    """A prefix or an address."""
    return _prefix_from_text(_a_word(value))


@functools.lru_cache(maxsize=CACHED_TEXTS)
def _prefix_from_text(text: str) -> Prefix:
    return Prefix.parse(text)


def some_addresses(value: object) -> Addresses:
    """One side of a rule."""
    if isinstance(value, str):
        return _read_addresses(_a_word(value))
    if not isinstance(value, list):
        raise BadInput(f"{quote_value(value)} is not any, a prefix, @group, or a list of the last two")
    if not value:
        raise BadInput("an empty list matches nothing; leave it out, or write any, to match every address")
    parts = [at(f"[{index}]", _read_address_list, item) for index, item in enumerate(value)]
    return Addresses(
        tuple([prefix for part in parts for prefix in part.prefixes]),
        tuple([name for part in parts for name in part.groups]),
    )


def _read_address_list(value: object) -> Addresses:
    found = _read_addresses(_a_word(value))
    if found.is_any:
        raise BadInput("`any` stands alone, not in a list")
    return found


@functools.lru_cache(maxsize=CACHED_TEXTS)
def _read_addresses(text: str) -> Addresses:
    if text == "any":
        return ANY
    if text.startswith("@"):
        return Addresses(groups=(text[1:],))
    return Addresses((Prefix.parse(text),))


def some_ports(value: object) -> tuple[PortRange, ...]:
    """The ports of one side of a rule."""
    if isinstance(value, str):
        return _read_ports(_a_word(value))
    if not isinstance(value, list):
        return _ports_from_number(_read_port(value))
    return tuple([ports for index, item in enumerate(value) for ports in at(f"[{index}]", _read_port_list, item)])


def _read_port_list(value: object) -> tuple[PortRange, ...]:
    if isinstance(value, str):
        return (parse_ports(_a_word(value)),)
    return _ports_from_number(_read_port(value))


@functools.lru_cache(maxsize=CACHED_TEXTS)
def _read_ports(text: str) -> tuple[PortRange, ...]:
    return EVERY_PORT if text == "any" else (parse_ports(text),)


@functools.lru_cache(maxsize=CACHED_TEXTS)
def _ports_from_number(port: int) -> tuple[PortRange, ...]:
    return (PortRange(port, port),)


def some_code_points(value: object) -> int | None:
    """Read a DSCP value, a range, or several, as a set; None for ``"any"``."""
    if isinstance(value, list):
        if not value:
            raise BadInput("an empty list matches nothing; leave it out to match every DSCP")
        members = 0
        for index, item in enumerate(value):
            members |= at(f"[{index}]", _read_code_points, item)
        return _same_set(members)
    return None if value == "any" else _same_set(_read_code_points(value))


def _read_code_points(value: object) -> int:
    if isinstance(value, str):
        return parse_code_points(_a_word(value))
    number = a_number(value)
    return code_points(number, number)


@functools.lru_cache(maxsize=CACHED_TEXTS)
def _same_set(members: int) -> int:
    """Return the one object for equal sets, so that equal rules share it."""
    return members


def some_flags(value: object) -> FlagMatch:
    """Flags that are set, and flags that are clear."""
    fields = an_object(value, "a match of TCP flags")
    unknown = next((key for key in fields if key not in ("set", "clear")), None)
    if unknown is not None:
        raise BadInput(f"{quote_value(unknown)} is no key of a match of TCP flags: set, clear")
    wanted = at("set", _read_flags, fields.get("set", []))
    unwanted = at("clear", _read_flags, fields.get("clear", []))
    if wanted & unwanted:
        raise BadInput(f"{flag_names(wanted & unwanted)[0]} cannot be both set and clear")
    if not wanted | unwanted:
        raise BadInput("it names no flag: leave it out to match every segment")
    return FlagMatch(wanted, wanted | unwanted)


def _read_flags(value: object) -> int:
    flags = 0
    for item in a_list(value):
        name = _read_string(item)
        if name.upper() not in TcpFlag.__members__:
            raise BadInput(f"{quote_value(name)} is not a TCP flag: {', '.join(flag_names(0xFF))}")
        flags |= TcpFlag[name.upper()].value
    return flags


def a_time(value: object) -> dt.datetime:
    """A time in ISO 8601."""
    text = _read_string(value)
    try:
        return dt.datetime.fromisoformat(text)
    except ValueError:
        raise BadInput(f"{quote_value(text)} is not a time such as 2030-01-31T12:00:00Z") from None


def flag_names(flags: int) -> list[str]:
    """The names of TCP flags."""
    return [flag.name.lower() for flag in TcpFlag if flag & flags and flag.name]
