"""An access list as IOS access lists: one for each direction and IP version.

    ip access-list extended ingress      ipv6 access-list ingress6
    ip access-list extended egress       ipv6 access-list egress6

One rule becomes a line for each combination of its prefixes, port ranges, flag matches and DSCP values, eight of which
may be a precedence, under a remark that carries its id, ``[web-in] front ends``; reading the text puts the lines of one
rule together again.

IOS lets later fragments pass every permit that names ports or flags, by their addresses alone, and in IPv6 knows their
protocol; our rules do neither. So a list where that matters starts with lines that decide about later fragments, and
about nothing else, just as its rules do. Reading recognises those lines and takes them away.

IOS and ASA lists share names, remarks, words and line ends.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from orchestrator.policy.addresses import Family, Prefix, format_address
from orchestrator.policy.dscp import code_point_masks, match_code_points
from orchestrator.policy.formats.assemble import plain, with_marker
from orchestrator.policy.formats.formatlimits import (
    EXPIRES,
    NO_DSCP,
    WHOLE_PACKETS,
    Limit,
    ListWriter,
    add_lines,
    all_may_pass,
    tailored_rules,
    versions,
    without_flags,
)
from orchestrator.policy.formats.results import Exported
from orchestrator.policy.model import Acl, Action, Direction, Rule, RuleId
from orchestrator.policy.ports import EVERY_PORT, PortRange
from orchestrator.policy.protocols import ICMP, ICMPV6, IPV6_FRAGMENT, SCTP, TCP, UDP
from orchestrator.policy.tcpflags import FlagMatch, TcpFlag

NAMES: Mapping[str, Direction] = MappingProxyType(
    {
        "ingress": Direction.INGRESS,
        "ingress6": Direction.INGRESS,
        "egress": Direction.EGRESS,
        "egress6": Direction.EGRESS,
    }
)
"""The names of the lists, with their directions."""

_LONGEST_REMARK = 100
_ONES = 0xFFFFFFFF


def protocol_zero(system: str) -> Limit:
    """The limit of systems for which the protocol number 0 is every protocol."""
    return Limit(
        f"{system} takes the protocol number 0 for every protocol",
        lambda rule: rule.protocol == 0,
        lambda rule: replace(rule, protocol=None),
    )


def default_rule(acl: Acl, name: str, direction: Direction) -> Rule:
    """The last line of a list as a rule."""
    return Rule(RuleId(default_marker(name)), acl.default(direction), direction)


def ends_of(acl: Acl, rule: Rule, family: Family, every: str, *, wildcards: bool) -> Iterator[str]:
    """Yield addresses and ports of every combination of a rule's prefixes and port ranges.

    Of one IP version.

    `every` is the word for every address, `wildcards` says that IPv4 masks are written with ones where a bit is free.
    """
    sources, destinations = (
        [_write_address(prefix, every, wildcards=wildcards) for prefix in acl.prefixes(side, family)]
        for side in (rule.source, rule.destination)
    )
    for source, source_ports, destination, destination_ports in itertools.product(
        sources, map(port_words, rule.source_ports), destinations, map(port_words, rule.destination_ports)
    ):
        yield f"{source}{source_ports} {destination}{destination_ports}"


def _write_address(prefix: Prefix, every: str, *, wildcards: bool) -> str:
    if prefix.length == 0:
        return every
    address, _, _ = str(prefix).partition("/")
    if prefix.length == prefix.family.bits:
        return f"host {address}"
    if prefix.family is Family.IPV6:
        return str(prefix)
    return f"{address} {format_address(Family.IPV4, prefix.mask ^ (_ONES if wildcards else 0))}"


def default_marker(name: str) -> str:
    """Return the id in the remark above the last line, which states the default."""
    return f"{name}.default"


def remarks(rule: Rule) -> list[str]:
    """A rule's id and description in lines short enough for a remark."""
    return textwrap.wrap(plain(with_marker(rule)), _LONGEST_REMARK)


def port_words(ports: PortRange) -> str:
    """`` eq 80`` or `` range 20 21``; nothing for every port."""
    if ports == EVERY_PORT[0]:
        return ""
    return f" eq {ports.low}" if ports.low == ports.high else f" range {ports.low} {ports.high}"


def icmp_words(rule: Rule) -> str:
    """The type and the code that a rule asks for."""
    return "".join(f" {number}" for number in rule.icmp)


FRAGMENTS_MARKER = "later-fragments"

_PROTOCOLS = {TCP: "tcp", UDP: "udp", SCTP: "sctp", ICMP: "icmp", ICMPV6: "icmp"}
_SIX_FLAGS = 0x3F
_PRECEDENCE = 0x38
"""The bits of a code point that are the precedence."""

_FLAGS = Limit(
    "IOS looks at six TCP flags; ECE and CWR are not among them",
    lambda rule: rule.tcp_flags is not None and rule.tcp_flags.mask & ~_SIX_FLAGS != 0,
    without_flags,
)
LIMITS = (EXPIRES, _FLAGS, protocol_zero("IOS"))


def write_cisco(acl: Acl) -> Exported:
    """A list as IOS access lists."""
    return _Writer(acl).write()


@dataclass(slots=True)
class _Writer(ListWriter):
    def write(self) -> Exported:
        """Write a list for each direction and IP version, with what IOS cannot express."""
        rules = tailored_rules(self.acl, LIMITS, "cisco", self.losses, self.notes)
        text: list[str] = []
        for name, direction in NAMES.items():
            if direction is Direction.EGRESS and all_may_pass(self.acl, Direction.EGRESS):
                self.notes.add(f"everything may leave, so there is no list {name}")
                continue
            family = Family.IPV6 if name.endswith("6") else Family.IPV4
            add_lines(text, self._write_list(name, direction, family, rules), name)
        return Exported("\n".join(text) + "\n", tuple(self.losses), self.notes.on_rules())

    def _write_list(self, name: str, direction: Direction, family: Family, rules: Sequence[Rule]) -> Iterator[str]:
        """The lines of one list, from its header to its default."""
        default = default_rule(self.acl, name, direction)
        spoken = [
            rule for rule in (*rules, default) if rule.direction is direction and family in versions(rule, self.acl)
        ]
        yield f"ipv6 access-list {name}" if family is Family.IPV6 else f"ip access-list extended {name}"
        if any(_matches_fragments_in_ios(rule) and not _matches_fragments(rule, family) for rule in spoken):
            yield f" remark [{FRAGMENTS_MARKER}] decided here: IOS would not look at what they lack further down"
            for rule in spoken:
                if _matches_fragments(rule, family) and not (rule is default and rule.action is Action.DENY):
                    yield from self._write_rule(replace(rule, fragments=True, log=False), family)
            yield f" deny {_spell_family(family)} any any fragments"
        for rule in spoken:
            yield from (f" remark {part}" for part in remarks(rule))
            yield from self._write_rule(rule, family)
        yield "!"

    def _write_rule(self, rule: Rule, family: Family) -> Iterator[str]:
        of_fragments = _of_fragments(rule, family)
        named = rule.protocol is not None and not (of_fragments and family is Family.IPV6)
        protocol = _PROTOCOLS.get(rule.protocol or 0, str(rule.protocol)) if named else _spell_family(family)
        end = (" fragments" if of_fragments else "") + (" log" if rule.log else "")
        flags = (
            [" established"]
            if rule.established
            else [f" match-all{_write_flags(match)}" for match in rule.flag_matches]
        )
        ends = ends_of(self.acl, rule, family, "any", wildcards=True)
        for pair, flag, service in itertools.product(ends, flags or [""], _write_services(rule)):
            yield f" {rule.action.value} {protocol} {pair}{icmp_words(rule)}{flag}{service}{end}"


def _write_services(rule: Rule) -> list[str]:
    """The words for each code point of a rule, or for eight at once."""
    found = []
    for value, mask in code_point_masks(rule.dscp) if rule.dscp is not None else ():
        if mask == _PRECEDENCE:
            found.append(f" precedence {value >> 3}")
        else:
            found += [f" dscp {point}" for point in match_code_points(value, mask)]
    return found or [""]


def _of_fragments(rule: Rule, family: Family) -> bool:
    """Return whether a rule matches later fragments only.

    IPv6 fragments have a protocol of their own here.
    """
    return rule.fragments or (family is Family.IPV6 and rule.protocol == IPV6_FRAGMENT)


def _matches_fragments_in_ios(rule: Rule) -> bool:
    """Return whether IOS applies a line to later fragments.

    A permit does by its addresses alone; a deny only if it has nothing else.
    """
    return rule.action is Action.PERMIT or not rule.looks_past_the_ip_header


def _matches_fragments(rule: Rule, family: Family) -> bool:
    """Whether a rule of ours matches later fragments."""
    if _of_fragments(rule, family):
        return True
    return not rule.looks_past_the_ip_header and (family is Family.IPV4 or rule.protocol is None)


def _spell_family(family: Family) -> str:
    return "ipv6" if family is Family.IPV6 else "ip"


def _write_flags(match: FlagMatch) -> str:
    looked_at = [flag for flag in TcpFlag if flag & match.mask]
    return "".join(f" {'+' if flag & match.value else '-'}{(flag.name or '').lower()}" for flag in looked_at)


_ASA_PROTOCOLS = {TCP: "tcp", UDP: "udp", SCTP: "sctp", ICMP: "icmp", ICMPV6: "icmp6"}
_ASA_FLAGS = Limit(
    "an ASA tracks connections: its lists have no word for TCP flags",
    lambda rule: bool(rule.flag_matches),
    without_flags,
)
_ASA_LIMITS = (EXPIRES, WHOLE_PACKETS, NO_DSCP, _ASA_FLAGS, protocol_zero("an ASA"))


def write_asa(acl: Acl) -> Exported:
    """A list as the access lists of an ASA."""
    return _AsaWriter(acl).write()


@dataclass(slots=True)
class _AsaWriter(ListWriter):
    """Writes `ingress` and `egress`, each for both IP versions.

        access-list ingress remark [web-in] front ends
        access-list ingress extended permit tcp any4 host 192.0.2.1 eq 443

    One rule becomes a line for each combination of its prefixes and port ranges, IPv4 before IPv6. An ASA puts
    fragments together and knows connections: it has no word for later fragments, nor for TCP flags.
    """

    def write(self) -> Exported:
        rules = tailored_rules(self.acl, _ASA_LIMITS, "asa", self.losses, self.notes)
        text: list[str] = []
        for name, direction in NAMES.items():
            if name.endswith("6"):
                continue  # a list is for both IP versions
            if direction is Direction.EGRESS and all_may_pass(self.acl, Direction.EGRESS):
                self.notes.add(f"everything may leave, so there is no list {name}")
                continue
            add_lines(text, (f"access-list {name} {line}" for line in self._write_list(name, direction, rules)), name)
        self.notes.add("an ASA decides about later fragments as about the first one of their packet")
        return Exported("\n".join(text) + "\n", tuple(self.losses), self.notes.on_rules())

    def _write_list(self, name: str, direction: Direction, rules: Sequence[Rule]) -> Iterator[str]:
        for rule in (*rules, default_rule(self.acl, name, direction)):
            spoken = versions(rule, self.acl) if rule.direction is direction else ()
            if spoken:
                yield from (f"remark {part}" for part in remarks(rule))
            for family in sorted(spoken):
                yield from self._write_rule(rule, family)

    def _write_rule(self, rule: Rule, family: Family) -> Iterator[str]:
        protocol = "ip" if rule.protocol is None else _ASA_PROTOCOLS.get(rule.protocol, str(rule.protocol))
        log = " log" if rule.log else ""
        for ends in ends_of(self.acl, rule, family, f"any{family.value}", wildcards=False):
            yield f"extended {rule.action.value} {protocol} {ends}{icmp_words(rule)}{log}"
