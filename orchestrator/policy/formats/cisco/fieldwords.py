"""Words and fields of IOS rules: protocols, addresses, ports, ICMP types, TCP flags, DSCP.

Every reader takes its words from the front and raises BadInput where they make no sense.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from orchestrator.errors import BadInput
from orchestrator.policy import spans
from orchestrator.policy.addresses import Family, parse_address
from orchestrator.policy.dscp import (
    EVERY_CODE_POINT,
    HIGHEST_CODE_POINT,
    NAMES,
    PRECEDENCES,
    code_points,
    of_precedence,
)
from orchestrator.policy.fields import DSCP
from orchestrator.policy.formats.lineboxes import Axes, icmp_axes, narrow
from orchestrator.policy.formats.portnames import (
    CISCO_ICMP,
    PORTS,
    PortNames,
    icmp_kind,
    masked_addresses,
    port_number,
    prefix_spans,
)
from orchestrator.policy.ports import HIGHEST_PORT
from orchestrator.policy.protocols import ICMP, ICMPV6, WITH_PORTS
from orchestrator.policy.space import ALL_ADDRESSES, ALL_PORTS, WHOLE
from orchestrator.policy.spans import Span, Spans
from orchestrator.policy.tcpflags import TcpFlag

PROTOCOLS: Mapping[str, int] = MappingProxyType(
    {
        "ahp": 51, "ah": 51, "eigrp": 88, "esp": 50, "gre": 47, "icmp": 1, "igmp": 2, "ipinip": 4, "nos": 94,
        "ospf": 89, "pcp": 108, "pim": 103, "sctp": 132, "tcp": 6, "udp": 17, "vrrp": 112,
    }
)  # fmt: skip
PORT_OPERATORS = frozenset({"eq", "neq", "gt", "lt", "range"})
_PORT_GROUPS = frozenset({"portgroup", "port-group"})
_FLAG_NAMES = frozenset({"ack", "fin", "psh", "rst", "syn", "urg"})
_MOST_PORTS = 64

GIVE_THE_CONFIGURATION = "give the configuration, as `show running-config` prints it"


class Words:
    """The words of a line, taken from the front."""

    def __init__(self, words: tuple[str, ...]) -> None:
        self._words = words
        self._place = 0

    def peek(self) -> str:
        """The next word, empty at the end."""
        return self._words[self._place] if self._place < len(self._words) else ""

    def take(self, what: str) -> str:
        """Return the next word and go on. Raises BadInput at the end."""
        word = self.peek()
        if not word:
            raise BadInput(f"{what} is missing at the end")
        self._place += 1
        return word

    def take_if(self, word: str) -> bool:
        if self.peek() != word:
            return False
        self._place += 1
        return True

    def left(self) -> tuple[str, ...]:
        """Return the words that were not taken yet."""
        return self._words[self._place :]

    def done(self) -> None:
        """Refuse words that are left over."""
        if self.peek().startswith("("):
            raise BadInput(f"'{self.peek()[:40]}' is what `show access-lists` adds; {GIVE_THE_CONFIGURATION}")
        if self.peek():
            raise BadInput(f"'{self.peek()[:40]}' is not known here")


def protocol(word: str, family: Family) -> int | None:
    """Return a protocol by name or number; None for all.

    In an IPv6 list `icmp` is ICMPv6.
    """
    if word == ("ip" if family is Family.IPV4 else "ipv6"):
        return None
    if family is Family.IPV6 and word in ("icmp", "icmpv6"):
        return ICMPV6
    if word in PROTOCOLS:
        return PROTOCOLS[word]
    if word.isascii() and word.isdigit() and len(word) <= 3 and 0 < int(word) <= 255:
        return int(word)
    if word == "0":
        raise BadInput("the protocol number 0 means every protocol on some releases")
    raise BadInput(f"the protocol '{word[:40]}' is not known here")


def address(word: str, family: Family) -> int:
    """One address of this IP version."""
    found, value = parse_address(word)
    if found is not family:
        raise BadInput(f"'{word[:80]}' is not an IPv{family.value} address")
    return value


def addresses(words: Words, family: Family, group: Callable[[str], Spans]) -> Spans:
    """``any``, ``host A``, ``A WILDCARD``, ``A/length`` or ``object-group NAME``."""
    word = words.take("an address")
    if word == "any":
        return ALL_ADDRESSES[family]
    if word == "host":
        value = address(words.take("an address"), family)
        return (Span(value, value),)
    if word in ("object-group", "net-group", "addrgroup"):
        return group(words.take("the name of an object group"))
    if "/" in word:
        return prefix_spans(word, family)
    value = address(word, family)
    if family is Family.IPV6:
        raise BadInput(f"'{word[:80]}' needs a length, as in {word[:80]}/64")
    return wildcard(value, words.take("a wildcard mask"))


def wildcard(value: int, mask_text: str) -> Spans:
    """Return the addresses that match `value` in every bit that a wildcard mask leaves clear."""
    mask = address(mask_text, Family.IPV4)
    try:
        return masked_addresses(value, ~mask & 0xFFFFFFFF)
    except BadInput as error:
        hint = "; it looks like a subnet mask: write its complement" if mask >> 31 and not mask & 1 else ""
        raise BadInput(f"{error.reason}{hint}") from None


def transport(
    words: Words, number: int | None, axis: str, axes: Axes, group: Callable[[str, int], Spans] | None = None
) -> None:
    """Read the ports of one side, or an ICMP type after the destination, if present.

    `group` reads a port group.
    """
    if number in WITH_PORTS and words.peek() in PORT_OPERATORS:
        axes[axis] = port_spans(words, number or 0)
        axes["fragments"] = WHOLE
    elif number in WITH_PORTS and group is not None and words.peek() in _PORT_GROUPS:
        words.take("portgroup")
        axes[axis] = group(words.take("the name of an object group"), number or 0)
        axes["fragments"] = WHOLE
    elif axis == "destination_ports" and number in (ICMP, ICMPV6):
        _read_icmp(words, Family.IPV4 if number == ICMP else Family.IPV6, axes)


def port_spans(words: Words, number: int, names: PortNames = PORTS) -> Spans:
    """Read ``eq 80``, ``neq 80``, ``gt 1023``, ``lt 1024`` or ``range 20 21``.

    Several ports may follow `eq` and `neq`.
    """
    operator = words.take("a port operator")
    if operator not in PORT_OPERATORS:
        raise BadInput(f"'{operator[:40]}' is not known here")
    first = port_number(words.take("a port"), number, names)
    if operator == "range":
        last = port_number(words.take("a port"), number, names)
        return (Span(min(first, last), max(first, last)),)
    if operator == "gt":
        return (Span(first + 1, HIGHEST_PORT),) if first < HIGHEST_PORT else ()
    if operator == "lt":
        return (Span(0, first - 1),) if first else ()
    found = [first]
    while len(found) < _MOST_PORTS and _is_port(words.peek(), number, names):
        found.append(port_number(words.take("a port"), number, names))
    members = spans.union(Span(port, port) for port in found)
    return spans.minus(ALL_PORTS, members) if operator == "neq" else members


def _is_port(word: str, number: int, names: PortNames) -> bool:
    try:
        port_number(word, number, names)
    except BadInput:
        return False
    return True


def _read_icmp(words: Words, family: Family, axes: Axes) -> None:
    word = words.peek()
    if not (word.isdigit() or word in CISCO_ICMP[family]):
        return
    words.take("an ICMP type")
    code_word = words.take("a code") if word.isdigit() and words.peek().isdigit() else None
    kind, code = icmp_kind(word, code_word, CISCO_ICMP[family])
    axes |= icmp_axes(kind, code)


def service(words: Words, axes: Axes) -> None:
    """Read ``dscp ef`` or ``precedence critical`` where they follow.

    In IOS-XR also ``dscp range af11 af13``.
    """
    while words.peek() in ("dscp", "precedence"):
        members = _code_points(words) if words.take("a field") == "dscp" else of_precedence(_precedence(words))
        narrow(axes, DSCP.axis, members)


def _code_points(words: Words) -> int:
    operator = words.take("a DSCP") if words.peek() in PORT_OPERATORS else "eq"
    first = _code_point(words)
    if operator == "range":
        ends = sorted((first, _code_point(words)))
        return code_points(ends[0], ends[1])
    if operator == "neq":
        return EVERY_CODE_POINT & ~(1 << first)
    if operator == "gt":
        return EVERY_CODE_POINT & ~((1 << first + 1) - 1)
    return (1 << first) - 1 if operator == "lt" else 1 << first


def _code_point(words: Words) -> int:
    word = words.take("a DSCP")
    if word in NAMES:
        return NAMES[word]
    if not (word.isascii() and word.isdigit() and int(word[:4]) <= HIGHEST_CODE_POINT):
        raise BadInput(f"the DSCP '{word[:40]}' is not known here")
    return int(word)


def _precedence(words: Words) -> int:
    """Read a precedence by name or number. Raises BadInput."""
    word = words.take("a precedence")
    if word in PRECEDENCES:
        return PRECEDENCES[word]
    if word not in map(str, PRECEDENCES.values()):
        raise BadInput(f"the precedence '{word[:40]}' is not known here")
    return int(word)


def tcp_flags(words: Words, *, one_only: bool) -> int | None:
    """Read TCP flags: ``established``, ``match-all +syn -ack``, ``match-any ...`` or ``ack rst``.

    Returns the flag bytes that match, or None if no flags follow.

    `one_only`: of several flags it is not known whether one of them will do (as in IOS) or all are asked for.
    """
    word = words.peek()
    if word == "established":
        words.take(word)
        return _flag_set([("ack", True), ("rst", True)], every=False)
    if word in ("match-all", "match-any"):
        words.take(word)
        asked = []
        while words.peek()[:1] in ("+", "-") and words.peek()[1:] in _FLAG_NAMES:
            flag = words.take("a flag")
            asked.append((flag[1:], flag[0] == "+"))
        if not asked:
            raise BadInput(f"{word} lacks its flags, as in {word} +syn -ack")
        return _flag_set(asked, every=word == "match-all")
    asked = []
    while words.peek() in _FLAG_NAMES:
        asked.append((words.take("a flag"), True))
    if one_only and len(asked) > 1:
        raise BadInput("whether one of these flags will do, or all are asked for, depends on the release")
    return _flag_set(asked, every=False) if asked else None


def _flag_set(asked: list[tuple[str, bool]], *, every: bool) -> int:
    """The flag bytes in which all the flags (or one of them) are as asked."""
    wanted = [(TcpFlag[name.upper()].value, is_set) for name, is_set in asked]
    together = all if every else any
    return sum(1 << byte for byte in range(256) if together(bool(byte & bit) is is_set for bit, is_set in wanted))
