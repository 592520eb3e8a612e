"""Read `iptables-save -c`, and write rules as it prints them.

The compiler writes rules as iptables-save would, but for names of protocols, which it takes from the machine's own list
(``-p 47`` comes back as ``-p gre``), the numbers of a u32 test, and IPv6 addresses. Both sides are brought to numbers
and to one form of address, word by word; no word is left out and none changes its place, so two rules that come to the
same words are the same rule.
"""

from __future__ import annotations

import re
import shlex
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from orchestrator.errors import AclflowError, Drifted
from orchestrator.policy.addresses import Prefix

_RULE = re.compile(r"\[(\d+):(\d+)\] -A (\S+) ?(.*)\Z")
_CHAIN = re.compile(r":(\S+) (\S+) \[\d+:\d+\]\Z")
_NUMBER = re.compile(r"\b(?:0x[0-9a-f]+|\d+)\b")


@dataclass(frozen=True, slots=True)
class SavedRule:
    """A rule in normal words, its comment (empty: none), and what it has counted."""

    words: str
    comment: str
    packets: int
    bytes: int


@dataclass(slots=True)
class SavedTable:
    """The filter table: the policy of each built-in chain, and the rules of every chain."""

    policies: dict[str, str] = field(default_factory=dict)
    chains: dict[str, list[SavedRule]] = field(default_factory=dict)


def read_saved(text: str) -> SavedTable:
    """Read the filter table of `iptables-save -c`.

    Raises Drifted for text that it cannot print.
    """
    table = SavedTable()
    inside = False
    for line in text.splitlines():
        if line.startswith("*"):
            inside = line == "*filter"
        elif inside and line.startswith(":"):
            name, policy = _take_words(_CHAIN, line)
            table.chains[name] = []
            if policy != "-":
                table.policies[name] = policy
        elif inside and line.startswith("["):
            packets, byte_count, chain, rule = _take_words(_RULE, line)
            words, comment = normal_rule(rule)
            table.chains[chain].append(SavedRule(words, comment, int(packets), int(byte_count)))
    return table


def _take_words(form: re.Pattern[str], line: str) -> tuple[str, ...]:
    found = form.match(line)
    if found is None:
        raise Drifted(f"iptables-save printed what cannot be read: {line[:200]!r}")
    return found.groups()


@lru_cache(maxsize=1 << 16)
def normal_rule(rule: str) -> tuple[str, str]:
    """A rule, without its chain, in normal words; and its comment."""
    comment = ""
    found = []
    words = _split_words(rule)
    for word in words:
        found.append(word)
        if word in _VALUES:
            value = next(words, "")
            comment = value if word == "--comment" else comment
            found.append(_VALUES[word](value))
    return " ".join(found), comment


def _split_words(rule: str) -> Iterator[str]:
    try:
        return iter(shlex.split(rule) if '"' in rule or "\\" in rule or "'" in rule else rule.split())
    except ValueError:  # an odd quote, in somebody else's rule
        return iter(rule.split())


def _number_protocol(value: str) -> str:
    if value.isdigit():
        return value
    try:
        return str(_PROTOCOLS[value] if value in _PROTOCOLS else socket.getprotobyname(value))
    except OSError:
        return value


_PROTOCOLS = {"icmp": 1, "tcp": 6, "udp": 17, "icmpv6": 58, "ipv6-icmp": 58, "sctp": 132}


def _normalize_address(value: str) -> str:
    try:
        return str(Prefix.parse(value))
    except AclflowError:
        return value


def _quote_value(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _normalize_numbers(value: str) -> str:
    return _quote_value(_NUMBER.sub(lambda number: str(int(number[0], 0)), value))


_VALUES = {
    "-p": _number_protocol,
    "-s": _normalize_address,
    "-d": _normalize_address,
    "--ctorigsrc": _normalize_address,
    "--ctorigdst": _normalize_address,
    "--u32": _normalize_numbers,
    "--comment": _quote_value,
    "--nflog-prefix": _quote_value,
}
"""Options whose value is brought to a normal form. The values of others are kept as they are."""
