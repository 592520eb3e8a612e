"""Write a list as an Aerleon policy in YAML that includes its networks and services.

networks: {N1: {values: [{address: 198.51.100.16/28}]}}       the policy and its definitions in one: put it into
services: {S1: [{protocol: tcp, port: 443}]}                  both folders, or split it
filters:
  - header: {targets: {cisco: ingress mixed}}
    terms: [{name: web-in, comment: '[web-in] front ends', ...}]
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import yaml

from orchestrator.policy.addresses import Addresses, Family
from orchestrator.policy.formats.aerleon.read import OWN_PLATFORM, default_marker
from orchestrator.policy.formats.aerleon.terms import ICMP_CODES, ICMP_TYPES, PROTOCOLS
from orchestrator.policy.formats.assemble import plain, with_marker
from orchestrator.policy.formats.formatlimits import (
    NO_DSCP,
    WHOLE_PACKETS,
    Limit,
    ListWriter,
    all_may_pass,
    tailored_rules,
    versions,
    without_flags,
    without_icmp_type,
)
from orchestrator.policy.formats.results import Exported
from orchestrator.policy.model import Acl, Action, Direction, Rule, RuleId
from orchestrator.policy.ports import EVERY_PORT, PortRange

_WORDS = {number: word for word, number in PROTOCOLS.items()}
_KINDS = {protocol: {kind: name for name, kind in names.items()} for protocol, names in ICMP_TYPES.items()}
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")
_LONGEST_NAME = 60


def _ends_within_a_day(rule: Rule) -> bool:
    return rule.expires is not None and rule.expires.astimezone(dt.UTC).time() != dt.time()


def _lacks_icmp_name(rule: Rule) -> bool:
    if not rule.icmp or rule.protocol is None:
        return False
    kind, *codes = rule.icmp
    name = _KINDS[rule.protocol].get(kind)
    return name is None or not set(codes) <= set(ICMP_CODES.get(name, ()))


_LIMITS = (
    Limit(
        "terms end with a day, not within it",
        _ends_within_a_day,
        lambda rule: replace(rule, expires=None),
    ),
    WHOLE_PACKETS,
    NO_DSCP,
    Limit("of TCP flags only `established` can be said", lambda rule: rule.tcp_flags is not None, without_flags),
    Limit("this type or code of ICMP has no name here", _lacks_icmp_name, without_icmp_type),
)


def write_aerleon(acl: Acl) -> Exported:
    """A list as a policy with a filter for each direction."""
    return _Writer(acl).write()


@dataclass(slots=True)
class _Writer(ListWriter):
    networks: dict[tuple[str, ...], str] = field(default_factory=dict)
    services: dict[tuple[int, tuple[PortRange, ...]], str] = field(default_factory=dict)

    def write(self) -> Exported:
        kept = tailored_rules(self.acl, _LIMITS, "aerleon", self.losses, self.notes)
        directions = list(Direction)
        if all_may_pass(self.acl, Direction.EGRESS):
            directions.remove(Direction.EGRESS)
            self.notes.add("everything may leave, so there is no filter for egress")
        filters = [self._write_filter(direction, kept) for direction in directions]
        document = {
            "networks": {name: _write_network(prefixes) for prefixes, name in self.networks.items()},
            "services": {name: _write_service(*found) for found, name in self.services.items()},
            "filters": filters,
        }
        text = yaml.safe_dump(document, sort_keys=False, width=120, allow_unicode=True)
        self.notes.add("the text holds a policy and its definitions: Aerleon wants it in both folders")
        return Exported(text, tuple(self.losses), self.notes.on_rules())

    def _write_filter(self, direction: Direction, rules: list[Rule]) -> dict[str, object]:
        default = Rule(RuleId(default_marker(direction)), self.acl.default(direction), direction)
        names: set[str] = set()
        terms = [
            self._write_term(rule, names)
            for rule in (*rules, default)
            if rule.direction is direction and versions(rule, self.acl)
        ]
        return {"header": {"targets": {OWN_PLATFORM: f"{direction.value} mixed"}}, "terms": terms}

    def _write_term(self, rule: Rule, names: set[str]) -> dict[str, object]:
        term: dict[str, object] = {"name": _free(rule.id, names), "comment": plain(with_marker(rule))}
        for key, addresses in (("source-address", rule.source), ("destination-address", rule.destination)):
            if not addresses.is_any:
                term[key] = self._network_name(addresses)
        if rule.protocol is not None:
            term["protocol"] = _WORDS.get(rule.protocol, str(rule.protocol))
            for key, ports in (("source-port", rule.source_ports), ("destination-port", rule.destination_ports)):
                if ports != EVERY_PORT:
                    term[key] = self.services.setdefault((rule.protocol, ports), f"S{len(self.services) + 1}")
            if rule.icmp:
                kind, *codes = rule.icmp
                term |= zip(("icmp-type", "icmp-code"), (_KINDS[rule.protocol][kind], *codes), strict=False)
        if rule.established:
            term["option"] = "tcp-established"
        if rule.expires is not None:
            term["expiration"] = rule.expires.astimezone(dt.UTC).date()
        if rule.log:
            term["logging"] = "true"
        term["action"] = "accept" if rule.action is Action.PERMIT else "deny"
        return term

    def _network_name(self, addresses: Addresses) -> str:
        prefixes = tuple(str(prefix) for family in Family for prefix in self.acl.prefixes(addresses, family))
        return self.networks.setdefault(prefixes, f"N{len(self.networks) + 1}")


def _write_network(prefixes: tuple[str, ...]) -> Mapping[str, object]:
    return {"values": [{"address": prefix} for prefix in prefixes]}


def _write_service(protocol: int, ports: tuple[PortRange, ...]) -> list[dict[str, str]]:
    return [{"protocol": _WORDS[protocol], "port": str(one)} for one in ports]


def _free(name: str, names: set[str]) -> str:
    """A term's name: letters, digits, - and _, no two alike in a filter."""
    start = _NOT_IN_NAMES.sub("-", name)[:_LONGEST_NAME]
    found, number = start, 1
    while found in names:
        number += 1
        found = f"{start}-{number}"
    names.add(found)
    return found
