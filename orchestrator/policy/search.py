"""Which rules touch what somebody asks about: ``10.1.2.3:443``, ``tcp 2001:db8::/32``, ``deny :22 backup``.

A question is words, and a rule is found when it meets all of them. A word that is an address, a prefix, a protocol, a
port or an address with its port asks whether the rule can match such packets, so rules for `any` are found too; every
other word must stand in the rule's id, its description, its owner or the names of its groups.

    word                      finds rules that can match
    ------------------------  -----------------------------------------------------------------
    10.1.2.3, 10.0.0.0/8      a source or a destination in there
    10.1.2.3:443, [::1]:443   that address and that port, both on the same side
    443, :443, :8000-8080     one of these ports as the destination's, or as the source's if the rule names some there
    tcp, esp                  that protocol
    permit, deny              rules that do that
    ingress, egress           rules of that direction
    #3                        the rule in that place, counted from 1
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.errors import BadInput
from orchestrator.policy.addresses import Addresses, Prefix
from orchestrator.policy.model import Acl, Action, AddressGroup, Direction, Rule, families
from orchestrator.policy.ports import EVERY_PORT, PortRange
from orchestrator.policy.protocols import WITH_PORTS, parse_protocol

_Groups = Mapping[str, AddressGroup]
_Test = Callable[[int, Rule, _Groups], bool]
"""Asked with a rule's index in its list."""


@dataclass(frozen=True, slots=True)
class Question:
    """What somebody asks, as tests that a rule must pass."""

    tests: tuple[_Test, ...]

    @classmethod
    def of(cls, text: str) -> Question:
        """Read the words; text that is no address or port is looked for as text, so nothing is wrong."""
        return cls(tuple(_test(word) for word in text.split()))

    def finds(self, index: int, rule: Rule, groups: _Groups) -> bool:
        """Whether the rule at `index` meets every word."""
        return all(test(index, rule, groups) for test in self.tests)


def find(acl: Acl, text: str) -> Sequence[int]:
    """The indices of the rules that a question finds, in the list's order; all of them where nothing is asked."""
    if not text.strip():
        return range(len(acl.rules))
    question = Question.of(text)
    return [index for index, rule in enumerate(acl.rules) if question.finds(index, rule, acl.groups)]


def _test(word: str) -> _Test:
    lowered = word.lower()
    if lowered in (Action.PERMIT.value, Action.DENY.value):
        return lambda _, rule, __: rule.action.value == lowered
    if lowered in (Direction.INGRESS.value, Direction.EGRESS.value):
        return lambda _, rule, __: rule.direction.value == lowered
    if lowered[0] == "#" and lowered[1:].isascii() and lowered[1:].isdigit():
        place = int(lowered[1:])
        return lambda index, _, __: index + 1 == place
    for reader in (_port_test, _address_test, _protocol_test):
        try:
            return reader(lowered)
        except BadInput:
            continue
    return lambda _, rule, __: _says(rule, lowered)


def _address_test(word: str) -> _Test:
    address, ports = _split(word)
    prefix = Prefix.parse(address)

    def test(_: int, rule: Rule, groups: _Groups) -> bool:
        if prefix.family not in families(rule, groups):
            return False
        sides = ((rule.source, rule.source_ports), (rule.destination, rule.destination_ports))
        return any(
            _meets(addresses, prefix, groups) and (ports is None or _has_port(rule, own, ports))
            for addresses, own in sides
        )

    return test


def _port_test(word: str) -> _Test:
    ports = PortRange.parse(word.removeprefix(":"))

    def test(_: int, rule: Rule, groups: _Groups) -> bool:
        named = rule.source_ports != EVERY_PORT and _has_port(rule, rule.source_ports, ports)
        return (named or _has_port(rule, rule.destination_ports, ports)) and bool(families(rule, groups))

    return test


def _protocol_test(word: str) -> _Test:
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
        return address, PortRange.parse(rest[1:]) if rest else None
    if word.count(":") == 1 and word[0] != ":":
        address, _, port = word.partition(":")
        return address, PortRange.parse(port)
    return word, None


def _meets(addresses: Addresses, prefix: Prefix, groups: _Groups) -> bool:
    if addresses.is_any:
        return True
    named = (member for name in addresses.groups for member in groups[name].prefixes)
    return any(own.overlaps(prefix) for own in addresses.prefixes) or any(own.overlaps(prefix) for own in named)


def _has_port(rule: Rule, own: Sequence[PortRange], asked: PortRange) -> bool:
    """Whether the rule can match such a port; a rule for every protocol can, one for ICMP cannot."""
    if rule.fragments or (rule.protocol is not None and rule.protocol not in WITH_PORTS):
        return False
    return any(each.low <= asked.high and asked.low <= each.high for each in own)


def _says(rule: Rule, word: str) -> bool:
    texts = (
        rule.id,
        rule.description,
        rule.owner,
        *("@" + name for name in (*rule.source.groups, *rule.destination.groups)),
    )
    return any(word in text.lower() for text in texts)
