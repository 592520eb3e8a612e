"""The formats, declared: how each is called, known by sight, read and written.

imported = read(text, None, name="web.cisco")        # the format is guessed from the first lines, then the name
exported = write(imported.acl, "iptables")
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

from orchestrator.errors import AclflowError, BadInput, TooLarge
from orchestrator.policy.formats.cisco.read import read_all_cisco, read_cisco
from orchestrator.policy.formats.cisco.write import write_cisco
from orchestrator.policy.formats.classbench import looks_like_classbench, read_classbench
from orchestrator.policy.formats.iptables.read import read_ip6tables, read_iptables
from orchestrator.policy.formats.iptables.write import write_ip6tables, write_iptables
from orchestrator.policy.formats.native_text import read_native, write_native
from orchestrator.policy.formats.results import DEFAULT_OPTIONS, Exported, Imported, Options
from orchestrator.policy.model import Acl

_T = TypeVar("_T")
Reader = Callable[[str, str, Options], Imported]
Writer = Callable[[Acl], Exported]

_ACCESS_LIST = re.compile(
    r"^\s*(ip access-list (standard|extended) \S|ipv6 access-list \S|access-list \d+ )", re.MULTILINE
)
_OTHER_ACCESS_LIST = re.compile(r"^\s*(ip|ipv4|mac)?\s?access-list \S", re.MULTILINE)
_TABLE = re.compile(r"^\*(filter|nat|mangle|raw|security)\s*$", re.MULTILINE)
_IPV6_ADDRESS = re.compile(r"^-A .*(-[sd] [0-9a-f]*:[0-9a-f:]|-p (ipv6-icmp|icmpv6))", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Format:
    """A format: its name, what it is, how its files usually end, its functions. `write` is None: only read."""

    name: str
    summary: str
    suffixes: tuple[str, ...]
    looks_like: Callable[[str], bool]
    read: Reader
    write: Writer | None


def _looks_like_ip6tables(text: str) -> bool:
    return _TABLE.search(text) is not None and ("ip6tables" in text[:400] or _IPV6_ADDRESS.search(text) is not None)


_FORMATS = (
    Format(
        "native",
        "JSON, as the REST interface speaks it; carries everything",
        (".json",),
        lambda text: text.lstrip()[:1] == "{",
        read_native,
        write_native,
    ),
    Format(
        "ip6tables",
        "ip6tables-save: IPv6 only",
        (".ip6tables", ".v6"),
        _looks_like_ip6tables,
        read_ip6tables,
        write_ip6tables,
    ),
    Format(
        "iptables",
        "iptables-save: IPv4 only; chains are followed",
        (".iptables", ".v4"),
        lambda text: _TABLE.search(text) is not None,
        read_iptables,
        write_iptables,
    ),
    Format(
        "classbench",
        "ClassBench filter sets: IPv4, no actions",
        (".rules",),
        lambda text: looks_like_classbench(text.lstrip().split("\n", 1)[0]),
        read_classbench,
        None,
    ),
    Format(
        "cisco",
        "Cisco IOS access lists, alone or in a router's configuration",
        (".cisco", ".ios", ".cfg"),
        lambda text: (_ACCESS_LIST.search(text) or _OTHER_ACCESS_LIST.search(text)) is not None,
        read_cisco,
        write_cisco,
    ),
)
FORMATS: Mapping[str, Format] = MappingProxyType({found.name: found for found in _FORMATS})
"""Every format, in the order in which a text is tried against them."""


def read(
    text: str | bytes, format_name: str | None = None, *, name: str = "-", options: Options = DEFAULT_OPTIONS
) -> Imported:
    """Read a list; `format_name` None guesses. `name` is the file's, for errors and losses.

    Raises BadInput, BadPolicy or TooLarge for a text that cannot be read at all, with the file and the line as its
    place. What single rules lose is in the result.
    """
    whole = decode(text, name=name, max_bytes=options.max_bytes)
    found = named(format_name) if format_name else guess(whole, name)
    return _in_file(name, lambda: found.read(whole, name, options))


def read_all(text: str | bytes, *, name: str = "-", options: Options = DEFAULT_OPTIONS) -> Mapping[str, Imported]:
    """Read every access list of a Cisco configuration by itself, by name. Raises as `read` does."""
    whole = decode(text, name=name, max_bytes=options.max_bytes)
    return _in_file(name, lambda: read_all_cisco(whole, name, options))


def write(acl: Acl, format_name: str) -> Exported:
    """Write a list. Raises BadInput for a format that is not known or that cannot be written."""
    found = named(format_name)
    if found.write is None:
        writable = ", ".join(other.name for other in _FORMATS if other.write is not None)
        raise BadInput(f"{found.name} can only be read; these can be written: {writable}")
    return found.write(acl)


def named(format_name: str) -> Format:
    """The format of this name. Raises BadInput."""
    found = FORMATS.get(format_name)
    if found is None:
        raise BadInput(f"'{format_name}' is not a format: {', '.join(FORMATS)}")
    return found


def guess(text: str, name: str) -> Format:
    """The format of a text: by what it looks like, else by its file's name. Raises BadInput."""
    by_sight = next((found for found in _FORMATS if found.looks_like(text)), None)
    by_name = next((found for found in _FORMATS if name.endswith(found.suffixes)), None)
    found = by_sight or by_name
    if found is None:
        raise BadInput(
            f"the format cannot be told from the text or the name; name it: {', '.join(FORMATS)}", place=name
        )
    return found


def decode(text: str | bytes, *, name: str, max_bytes: int) -> str:
    """The text of a file. Raises TooLarge, or BadInput for what is no text, before anything else looks at it."""
    if len(text) > max_bytes:
        raise TooLarge(f"it is larger than {max_bytes} bytes", place=name)
    if isinstance(text, bytes):
        text = _utf8(text, name)
    zero = text.find("\0")
    if zero >= 0:
        raise BadInput("a byte of zero is no text", place=f"{name}, line {text.count(chr(10), 0, zero) + 1}")
    return text


def _utf8(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadInput(f"the byte 0x{data[error.start]:02x} is not UTF-8 text", place=f"{name}, line {line}") from None


def _in_file(name: str, work: Callable[[], _T]) -> _T:
    try:
        return work()
    except AclflowError as error:
        error.place = f"{name}, {error.place}" if error.place else name
        raise
