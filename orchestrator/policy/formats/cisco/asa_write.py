"""Write an access list as ASA lists: `ingress` and `egress`, each for both IP versions.

    access-list ingress remark [web-in] front ends
    access-list ingress extended permit tcp any4 host 192.0.2.1 eq 443

One rule becomes a line for each combination of its prefixes and port ranges, IPv4 before IPv6, under a remark that
carries its id; reading the text puts the lines of one rule and version together again. An ASA puts fragments together
and knows connections: it has no word for later fragments, nor for TCP flags.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from orchestrator.policy.addresses import Family
from orchestrator.policy.formats.cisco.writing import (
    NAMES,
    default_rule,
    ends_of,
    icmp_words,
    protocol_zero,
    remarks,
)
from orchestrator.policy.formats.results import Exported
from orchestrator.policy.formats.tailor import (
    EXPIRES,
    WHOLE_PACKETS,
    Limit,
    ListWriter,
    add_lines,
    all_may_pass,
    tailored_rules,
    versions,
    without_flags,
)
from orchestrator.policy.model import Acl, Direction, Rule
from orchestrator.policy.protocols import ICMP, ICMPV6, SCTP, TCP, UDP

_PROTOCOLS = {TCP: "tcp", UDP: "udp", SCTP: "sctp", ICMP: "icmp", ICMPV6: "icmp6"}
_FLAGS = Limit(
    "an ASA tracks connections: its lists have no word for TCP flags",
    lambda rule: bool(rule.flag_matches),
    without_flags,
)
_LIMITS = (EXPIRES, WHOLE_PACKETS, _FLAGS, protocol_zero("an ASA"))


def write_asa(acl: Acl) -> Exported:
    """A list as the access lists of an ASA."""
    return _Writer(acl).write()


@dataclass(slots=True)
class _Writer(ListWriter):
    def write(self) -> Exported:
        rules = tailored_rules(self.acl, _LIMITS, "asa", self.losses, self.notes)
        text: list[str] = []
        for name, direction in NAMES.items():
            if name.endswith("6"):
                continue  # a list is for both IP versions
            if direction is Direction.EGRESS and all_may_pass(self.acl, Direction.EGRESS):
                self.notes.add(f"everything may leave, so there is no list {name}")
                continue
            add_lines(text, (f"access-list {name} {line}" for line in self._list(name, direction, rules)), name)
        self.notes.add("an ASA decides about later fragments as about the first one of their packet")
        return Exported("\n".join(text) + "\n", tuple(self.losses), self.notes.on_rules())

    def _list(self, name: str, direction: Direction, rules: Sequence[Rule]) -> Iterator[str]:
        for rule in (*rules, default_rule(self.acl, name, direction)):
            spoken = versions(rule, self.acl) if rule.direction is direction else ()
            if spoken:
                yield from (f"remark {part}" for part in remarks(rule))
            for family in sorted(spoken):
                yield from self._lines_of(rule, family)

    def _lines_of(self, rule: Rule, family: Family) -> Iterator[str]:
        protocol = "ip" if rule.protocol is None else _PROTOCOLS.get(rule.protocol, str(rule.protocol))
        log = " log" if rule.log else ""
        for ends in ends_of(self.acl, rule, family, f"any{family.value}", wildcards=False):
            yield f"extended {rule.action.value} {protocol} {ends}{icmp_words(rule)}{log}"
