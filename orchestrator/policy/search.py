"""Which rules somebody asks about: ``10.1.2.3:443``, ``tcp 2001:db8::/32``, ``deny :22 backup``.

A question is words, and a rule is found when it meets all of them. An address with a port asks what decides the packets
that open a connection to it: rules for `any` are found only where no rule before them takes all such packets. A word
that is an address, a prefix, a protocol or a port asks whether the rule can match such packets, so rules for `any` are
found too. A service's bare name (`ms-sql`) finds rules for its port and rules that say it. Every other word must stand
in the rule's id, its description, its owner or the names of its groups.

    word                      finds rules that
    ------------------------  -----------------------------------------------------------------
    10.1.2.3:443, [::1]:ssh   decide a first packet to there: of TCP, if no other protocol with ports is asked for
    web1:443                  the same of each address of that endpoint; an unknown name is refused
    10.1.2.3, 10.0.0.0/8      can match a source or a destination in there
    443, :https, :8000-8080   can match one of these ports as the destination's, or as the source's if they name some
    tcp, esp                  can match that protocol
    permit, deny              do that
    ingress, egress           are of that direction
    #3                        stand in that place, counted from 1
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from orchestrator.errors import BadInput
from orchestrator.policy.addresses import Addresses, Prefix
from orchestrator.policy.model import Acl, Action, AddressGroup, Direction, Rule, families
from orchestrator.policy.ports import EVERY_PORT, PORTS, PortRange, parse_ports
from orchestrator.policy.protocols import TCP, WITH_PORTS, parse_protocol
from orchestrator.policy.rulelist import Row, RuleList
from orchestrator.policy.space import ALL_ADDRESSES, ALL_BYTES, WHOLE, Box, boxes_of
from orchestrator.policy.spans import Span
from orchestrator.policy.tcpflags import TcpFlag

_Groups = Mapping[str, AddressGroup]
_Test = Callable[[int, Rule, _Groups], bool]
"""Asked with a rule's index in its list."""


@dataclass(frozen=True, slots=True)
class _Socket:
    """Addresses with ports, where connections are opened to."""

    prefix: Prefix
    ports: PortRange


Endpoints = Mapping[str, Sequence[Prefix]]
"""The addresses of endpoints, by name."""
_NO_ENDPOINTS: Endpoints = MappingProxyType({})


def names_endpoints(text: str) -> bool:
    """Return whether a search text may name an endpoint with a port.

    Then `find` needs to know the endpoints.
    """
    return any(_named_socket(word) is not None for word in text.lower().split())


def find(acl: Acl, text: str, own: Sequence[Prefix] = (), endpoints: Endpoints = _NO_ENDPOINTS) -> Sequence[int]:
    """Return the indices of rules that a search text finds, in list order.

    All of them for an empty text.

    `own` are the tenant's prefixes, if known: then a connection to one of them is asked of ingress, any other of
    egress. Text that is no address or port is looked for as text. Raises BadInput for a name with a port that is no
    endpoint and that no rule says.
    """
    if not text.strip():
        return range(len(acl.rules))
    words = text.lower().split()
    sockets = {word: named for word in words if (named := _sockets(acl, word, endpoints))}
    protocols = [protocol for word in words if (protocol := _with_ports(word)) is not None] or [TCP]
    tests = [_make_test(word) for word in words if word not in sockets]
    found: Sequence[int] = range(len(acl.rules))
    for asked in sockets.values():
        decide = {
            index for socket in asked for protocol in protocols for index in _deciders(acl, socket, protocol, own)
        }
        found = [index for index in found if index in decide]
    return [index for index in found if all(test(index, acl.rules[index], acl.groups) for test in tests)]


def _sockets(acl: Acl, word: str, endpoints: Endpoints) -> Sequence[_Socket]:
    """Return the sockets that a word with a port asks about; none for other words.

    Raises BadInput for an unknown name.
    """
    if (socket := _socket(word)) is not None:
        return (socket,)
    if (named := _named_socket(word)) is None:
        return ()
    name, ports = named
    prefixes = [prefix for each, owned in endpoints.items() if each.lower() == name for prefix in owned]
    if not prefixes and not any(_has_word(rule, word) for rule in acl.rules):
        raise BadInput(f"'{name}' is no address, and no endpoint of the tenant")
    return [_Socket(prefix, ports) for prefix in prefixes]


def _named_socket(word: str) -> tuple[str, PortRange] | None:
    """A name with its port; None for any other word."""
    try:
        name, ports = _split(word)
    except BadInput:
        return None
    return (name, ports) if ports is not None and _socket(word) is None else None


def _socket(word: str) -> _Socket | None:
    """An address with its port; None for any other word."""
    try:
        address, ports = _split(word)
        return None if ports is None else _Socket(Prefix.parse(address), ports)
    except BadInput:
        return None


def _with_ports(word: str) -> int | None:
    """A protocol that has ports; None for any other word."""
    try:
        protocol = None if word.isdigit() else parse_protocol(word)
    except BadInput:
        return None
    return protocol if protocol in WITH_PORTS else None


def _deciders(acl: Acl, socket: _Socket, protocol: int, own: Sequence[Prefix]) -> Iterator[int]:
    """The rules that decide a first packet of a protocol to a socket."""
    family = socket.prefix.family
    asked = Box(
        family,
        fragments=WHOLE,
        protocols=1 << protocol,
        tcp_flags=1 << TcpFlag.SYN if protocol == TCP else ALL_BYTES,
        source=ALL_ADDRESSES[family],
        destination=(Span(socket.prefix.network, socket.prefix.last),),
        destination_ports=(Span(socket.ports.low, socket.ports.high),),
    )
    for direction in _directions(socket, own):
        rows = [
            Row(box, rule.action is Action.PERMIT, rule, index)
            for index, rule in enumerate(acl.rules)
            if rule.direction is direction
            for box in boxes_of(rule, acl.groups)
            if box.overlaps(asked)
        ]
        yield from (rows[row].position for row in RuleList(rows).deciders(asked))


def _directions(socket: _Socket, own: Sequence[Prefix]) -> Sequence[Direction]:
    """The directions in which a tenant meets packets to a socket."""
    if not own:
        return tuple(Direction)
    inside = any(each.overlaps(socket.prefix) for each in own)
    return (Direction.INGRESS,) if inside else (Direction.EGRESS,)


def _make_test(word: str) -> _Test:
    if word in (Action.PERMIT.value, Action.DENY.value):
        return lambda _, rule, __: rule.action.value == word
    if word in (Direction.INGRESS.value, Direction.EGRESS.value):
        return lambda _, rule, __: rule.direction.value == word
    if word[0] == "#" and word[1:].isascii() and word[1:].isdigit():
        place = int(word[1:])
        return lambda index, _, __: index + 1 == place
    if word in PORTS:
        of_port = _make_port_test(f":{word}")
        return lambda index, rule, groups: of_port(index, rule, groups) or _has_word(rule, word)
    for reader in (_make_port_test, _make_address_test, _make_protocol_test):
        try:
            return reader(word)
        except BadInput:
            continue
    return lambda _, rule, __: _has_word(rule, word)


def _make_address_test(word: str) -> _Test:
    prefix = Prefix.parse(_split(word)[0])

    def test(_: int, rule: Rule, groups: _Groups) -> bool:
        if prefix.family not in families(rule, groups):
            return False
        return any(_meets_prefix(addresses, prefix, groups) for addresses in (rule.source, rule.destination))

    return test


def _make_port_test(word: str) -> _Test:
    ports = parse_ports(word[1:]) if word[0] == ":" else PortRange.parse(word)

    def test(_: int, rule: Rule, groups: _Groups) -> bool:
        named = rule.source_ports != EVERY_PORT and _has_port(rule, rule.source_ports, ports)
        return (named or _has_port(rule, rule.destination_ports, ports)) and bool(families(rule, groups))

    return test


def _make_protocol_test(word: str) -> _Test:
    if word.isdigit():
        raise BadInput(f"'{word}' is a port")
    protocol = parse_protocol(word)
    return lambda _, rule, groups: rule.protocol in (None, protocol) and bool(families(rule, groups))


def _split(word: str) -> tuple[str, PortRange | None]:
    """An address and its port, if it has one. Raises BadInput."""
    if word[0] == "[":
        address, bracket, rest = word[1:].partition("]")
        if not bracket or rest[:1] not in ("", ":"):
            raise BadInput(f"'{word}' is not an address")
        return address, parse_ports(rest[1:]) if rest else None
    if word.count(":") == 1 and word[0] != ":":
        address, _, port = word.partition(":")
        return address, parse_ports(port)
    return word, None


def _meets_prefix(addresses: Addresses, prefix: Prefix, groups: _Groups) -> bool:
    if addresses.is_any:
        return True
    named = (member for name in addresses.groups for member in groups[name].prefixes)
    return any(own.overlaps(prefix) for own in addresses.prefixes) or any(own.overlaps(prefix) for own in named)


def _has_port(rule: Rule, own: Sequence[PortRange], asked: PortRange) -> bool:
    """Return whether the rule can match such a port.

    A rule for every protocol can, one for ICMP cannot.
    """
    if rule.fragments or (rule.protocol is not None and rule.protocol not in WITH_PORTS):
        return False
    return any(each.low <= asked.high and asked.low <= each.high for each in own)


def _has_word(rule: Rule, word: str) -> bool:
    texts = (
        rule.id,
        rule.description,
        rule.owner,
        *("@" + name for name in (*rule.source.groups, *rule.destination.groups)),
    )
    return any(word in text.lower() for text in texts)
