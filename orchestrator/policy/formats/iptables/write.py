"""An access list as iptables-restore text: ingress in the chain FORWARD, egress in OUTPUT.

One rule becomes a line for each combination of its prefixes, flag matches and masks of DSCP and of fifteen ports at a
time (what `-m multiport` takes). Every line carries the rule's id in its comment, ``[web-in] front ends``; reading the
text puts the lines of one rule together again.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from orchestrator.policy.addresses import Family, Prefix
from orchestrator.policy.dscp import HIGHEST_CODE_POINT, code_point_masks
from orchestrator.policy.formats.assemble import plain, with_marker
from orchestrator.policy.formats.formatlimits import (
    EXPIRES,
    Limit,
    ListWriter,
    add_lines,
    note_unwritten,
    tailor_rule,
    versions,
    without_flags,
    without_icmp_type,
)
from orchestrator.policy.formats.iptables.options import PROTOCOL_ZERO
from orchestrator.policy.formats.iptables.ruleline import FIRST_FRAGMENT, UNFRAGMENTED
from orchestrator.policy.formats.results import Exported
from orchestrator.policy.model import Acl, Action, Direction, Rule
from orchestrator.policy.ports import EVERY_PORT, PortRange
from orchestrator.policy.protocols import ICMP, ICMPV6, IPV6_FRAGMENT, SCTP, TCP, UDP, WITH_PORTS
from orchestrator.policy.tcpflags import FlagMatch, TcpFlag

CHAINS = {Direction.INGRESS: "FORWARD", Direction.EGRESS: "OUTPUT"}

_TARGETS = {Action.PERMIT: "ACCEPT", Action.DENY: "DROP"}
_PROTOCOLS = {ICMP: "icmp", TCP: "tcp", UDP: "udp", ICMPV6: "ipv6-icmp", SCTP: "sctp"}
_SIX_FLAGS = 0x3F
_LONGEST_COMMENT = 255
_MULTIPORT = 15
_FLAGS = Limit(
    "iptables looks at six TCP flags; ECE and CWR are not among them",
    lambda rule: rule.tcp_flags is not None and rule.tcp_flags.mask & ~_SIX_FLAGS != 0,
    without_flags,
)
_ICMP_255 = Limit(
    "iptables takes the ICMP type 255 for any type",
    lambda rule: rule.protocol == ICMP and rule.icmp_type == 255,
    without_icmp_type,
)
_FRAGMENTS = Limit(
    "ip6tables cannot tell later fragments from first ones",
    lambda rule: rule.fragments or rule.protocol == IPV6_FRAGMENT,
    lambda rule: replace(rule, protocol=None, fragments=True),  # written as -m frag: every fragment
)
LIMITS = {Family.IPV4: (EXPIRES, _FLAGS, _ICMP_255), Family.IPV6: (EXPIRES, _FLAGS, _FRAGMENTS)}


def write_iptables(acl: Acl) -> Exported:
    """The IPv4 half of a list as iptables-restore text."""
    return _Writer(acl, family=Family.IPV4).write()


def write_ip6tables(acl: Acl) -> Exported:
    """The IPv6 half of a list as ip6tables-restore text."""
    return _Writer(acl, family=Family.IPV6).write()


@dataclass(slots=True)
class _Writer(ListWriter):
    family: Family = field(kw_only=True)

    def write(self) -> Exported:
        lines: dict[Direction, list[str]] = {direction: [] for direction in Direction}
        for number, rule in enumerate(self.acl.rules, 1):
            if self.family not in versions(rule, self.acl):
                self.notes.add(f"they match no IPv{self.family.value} packet and are left out", number)
                continue
            kept = tailor_rule(rule, number, LIMITS[self.family], self.losses, self._name)
            if kept is not None:
                self._note_losses(kept, number)
                add_lines(lines[rule.direction], self._write_rule(kept), f"rules[{number - 1}]")
        policies = {direction: _TARGETS[self.acl.default(direction)] for direction in Direction}
        text = [
            f"# IPv{self.family.value} half of an access list; load with {self._name}-restore",
            "*filter",
            ":INPUT ACCEPT [0:0]",
            *(f":{CHAINS[direction]} {policies[direction]} [0:0]" for direction in Direction),
            *(line for direction in Direction for line in lines[direction]),
            "COMMIT",
        ]
        return Exported("\n".join(text) + "\n", tuple(self.losses), self.notes.on_rules())

    @property
    def _name(self) -> str:
        return "iptables" if self.family is Family.IPV4 else "ip6tables"

    def _note_losses(self, rule: Rule, number: int) -> None:
        if rule.source.groups or rule.destination.groups:
            self.notes.add("address groups are written out as their prefixes", number)
        note_unwritten(rule, number, self.notes)
        if len(with_marker(rule).encode()) > _LONGEST_COMMENT:
            self.notes.add(f"the description is cut to fit {_LONGEST_COMMENT} bytes", number)

    def _write_rule(self, rule: Rule) -> Iterator[str]:
        comment = _comment(rule).replace("\\", "\\\\").replace('"', '\\"')
        targets = ["LOG"] * rule.log + [_TARGETS[rule.action]]
        for match in self._matches_of(rule):
            for target, kind in itertools.product(targets, self._kinds(rule)):
                words = ["-A", CHAINS[rule.direction], *match, *kind]
                yield f'{" ".join(words)} -m comment --comment "{comment}" -j {target}'

    def _kinds(self, rule: Rule) -> tuple[tuple[str, ...], ...]:
        """Return one set of matches per line that keeps later fragments out.

        They are needed where no header match does that.
        """
        hidden = rule.protocol is not None and rule.protocol not in WITH_PORTS and rule.icmp_type is None
        whole = self.family is Family.IPV6 and hidden and not rule.fragments
        return (UNFRAGMENTED, FIRST_FRAGMENT) if whole else ((),)

    def _matches_of(self, rule: Rule) -> Iterator[tuple[str, ...]]:
        """The options of each line: every combination of what one line can take one of."""
        sources = [_write_address("-s", prefix) for prefix in self.acl.prefixes(rule.source, self.family)]
        destinations = [_write_address("-d", prefix) for prefix in self.acl.prefixes(rule.destination, self.family)]
        flags = [_write_flags(match) for match in rule.flag_matches] or [()]
        ports = itertools.product(
            _ports(rule.source_ports, "--sport", "--sports"), _ports(rule.destination_ports, "--dport", "--dports")
        )
        transports = [(*source, *destination) for source, destination in ports]
        combined = itertools.product(sources, destinations, transports, flags, _write_services(rule))
        for source, destination, transport, flag, service in combined:
            yield (*source, *destination, *self._protocol(rule), *transport, *flag, *service)

    def _protocol(self, rule: Rule) -> tuple[str, ...]:
        """The protocol and the match that its header's fields need."""
        if rule.fragments and self.family is Family.IPV6:
            return ("-m", "frag")
        words: list[str] = ["-f"] if rule.fragments else []
        if rule.protocol == 0:
            words += ["-m", "u32", "--u32", PROTOCOL_ZERO]
        elif rule.protocol is not None:
            name = _PROTOCOLS.get(rule.protocol, str(rule.protocol))
            words = ["-p", name, *words]
            if rule.icmp:
                icmp = ("icmp", "--icmp-type") if rule.protocol == ICMP else ("icmp6", "--icmpv6-type")
                words += ["-m", icmp[0], icmp[1], "/".join(map(str, rule.icmp))]
            elif rule.protocol in WITH_PORTS and (rule.looks_past_the_ip_header or self.family is Family.IPV6):
                words += ["-m", name]  # which keeps later fragments out, as a rule of ours does in IPv6
        return tuple(words)


def _comment(rule: Rule) -> str:
    """The id and as much of the description as fits, in whole characters."""
    return plain(with_marker(rule).encode()[:_LONGEST_COMMENT].decode(errors="ignore"))


def _write_address(option: str, prefix: Prefix) -> tuple[str, ...]:
    return (option, str(prefix)) if prefix.length else ()


def _write_services(rule: Rule) -> list[tuple[str, ...]]:
    """Return the options for each DSCP, or for several by their octet's mask."""
    if rule.dscp is None:
        return [()]
    return [
        ("-m", "dscp", "--dscp", f"{value:#04x}")
        if mask == HIGHEST_CODE_POINT
        else ("-m", "tos", "--tos", f"{value << 2:#04x}/{mask << 2:#04x}")
        for value, mask in code_point_masks(rule.dscp)
    ]


def _write_flags(match: FlagMatch) -> tuple[str, ...]:
    return ("--tcp-flags", _spell_flags(match.mask), _spell_flags(match.value))


def _spell_flags(flags: int) -> str:
    return ",".join(flag.name for flag in TcpFlag if flag & flags and flag.name) or "NONE"


def _ports(ports: tuple[PortRange, ...], one: str, several: str) -> list[tuple[str, ...]]:
    """Return the port options of each line on one side.

    Each has one range, or as many ports as multiport takes.
    """
    if ports == EVERY_PORT:
        return [()]
    if len(ports) == 1:
        return [(one, _spell_range(ports[0]))]
    return [("-m", "multiport", several, ",".join(map(_spell_range, chunk))) for chunk in _split_ports(ports)]


def _split_ports(ports: tuple[PortRange, ...]) -> Iterator[list[PortRange]]:
    chunk: list[PortRange] = []
    taken = 0
    for item in ports:
        weight = 1 if item.low == item.high else 2
        if taken + weight > _MULTIPORT:
            yield chunk
            chunk, taken = [], 0
        chunk.append(item)
        taken += weight
    yield chunk


def _spell_range(ports: PortRange) -> str:
    return str(ports).replace("-", ":")
