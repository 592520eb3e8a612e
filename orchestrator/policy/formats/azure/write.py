"""A list as an Azure network security group.

A rule's prefixes and ports go into one rule of theirs for each IP version, which may not be mixed there; its id stands
at the start of the description, and in the name as far as names allow. Both directions end with a rule that says the
list's default, above those that Azure adds itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from orchestrator.errors import TooLarge
from orchestrator.policy.addresses import Family
from orchestrator.policy.formats.assemble import plain, with_marker
from orchestrator.policy.formats.azure.read import ACTIONS, DIRECTIONS, PROTOCOLS, default_marker
from orchestrator.policy.formats.formatlimits import (
    EXPIRES,
    NO_DSCP,
    NO_FLAGS,
    WHOLE_PACKETS,
    Limit,
    ListWriter,
    tailored_rules,
    versions,
    without_icmp_type,
)
from orchestrator.policy.formats.results import Exported
from orchestrator.policy.model import Acl, Direction, Rule, RuleId
from orchestrator.policy.ports import EVERY_PORT, PortRange
from orchestrator.policy.protocols import IPV6_FRAGMENT

GROUP_NAME = "aclflow"
_FIRST, _LAST = 100, 4096
"""The priorities that rules of one's own may have."""

_WORDS = {number: word.capitalize() for word, number in PROTOCOLS.items()}
_ACCESS = {action: word.capitalize() for word, action in ACTIONS.items()}
_BOUND = {direction: word.capitalize() for word, direction in DIRECTIONS.items()}
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]")
_LONGEST_NAME, _LONGEST_DESCRIPTION = 80, 140


def _widen_protocol(rule: Rule) -> Rule:
    return replace(without_icmp_type(rule), protocol=None, source_ports=EVERY_PORT, destination_ports=EVERY_PORT)


_LIMITS = (
    EXPIRES,
    WHOLE_PACKETS,
    NO_FLAGS,
    NO_DSCP,
    Limit("ICMP types are not looked at", lambda rule: rule.icmp_type is not None, without_icmp_type),
    Limit(
        "only tcp, udp, icmp, esp and ah can be named",
        lambda rule: rule.protocol not in (*_WORDS, IPV6_FRAGMENT),
        _widen_protocol,
    ),
)


def write_azure(acl: Acl) -> Exported:
    """A list as one network security group. Raises TooLarge beyond the priorities that there are."""
    return _Writer(acl).write()


@dataclass(slots=True)
class _Writer(ListWriter):
    def write(self) -> Exported:
        kept = tailored_rules(self.acl, _LIMITS, "azure-nsg", self.losses, self.notes)
        if any(rule.log for rule in kept):
            self.notes.add("there is no log of single rules")
        rules = [body for direction in Direction for body in self._number_rules(kept, direction)]
        document = {"name": GROUP_NAME, "securityRules": rules}
        self.notes.add("Azure decides about later fragments as about the first one of their packet")
        return Exported(json.dumps(document, indent=1) + "\n", tuple(self.losses), self.notes.on_rules())

    def _number_rules(self, rules: list[Rule], direction: Direction) -> Iterator[dict[str, object]]:
        bodies = [
            body
            for rule in rules
            if rule.direction is direction
            for family in sorted(versions(rule, self.acl))
            for body in self._write_bodies(rule, family)
        ]
        if len(bodies) >= _LAST - _FIRST:
            raise TooLarge(f"it takes {len(bodies)} rules for {direction.value}; there are {_LAST - _FIRST} priorities")
        step = min(10, (_LAST - _FIRST) // (len(bodies) + 1) or 1)
        for number, body in enumerate(bodies):
            yield {
                "name": f"{number + 1}-{body.pop('name')}"[:_LONGEST_NAME],
                "priority": _FIRST + number * step,
                **body,
            }
        default = Rule(RuleId(default_marker(direction)), self.acl.default(direction), direction)
        yield {**_write_body(default, ["*"], ["*"]), "priority": _LAST}

    def _write_bodies(self, rule: Rule, family: Family) -> Iterator[dict[str, object]]:
        sides = [
            [str(prefix) for prefix in self.acl.prefixes(addresses, family)]
            for addresses in (rule.source, rule.destination)
        ]
        yield _write_body(rule, *sides)


def _write_body(rule: Rule, source: list[str], destination: list[str]) -> dict[str, object]:
    return {
        "name": _NOT_IN_NAMES.sub("-", rule.id).rstrip("-."),
        "description": plain(with_marker(rule), _LONGEST_DESCRIPTION),
        "direction": _BOUND[rule.direction],
        "access": _ACCESS[rule.action],
        "protocol": _WORDS[rule.protocol],
        "sourceAddressPrefixes": source,
        "sourcePortRanges": [_write_ports(ports) for ports in rule.source_ports],
        "destinationAddressPrefixes": destination,
        "destinationPortRanges": [_write_ports(ports) for ports in rule.destination_ports],
    }


def _write_ports(ports: PortRange) -> str:
    return "*" if ports == EVERY_PORT[0] else str(ports)
