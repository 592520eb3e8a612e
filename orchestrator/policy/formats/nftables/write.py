"""Write an access list as a ruleset for `nft -j -f`.

It is one table of the family inet, with ingress at the hook forward and egress at output.

One rule becomes one rule for each IP version in which it can match. Its comment carries the rule's id, ``[web-in] front
ends``. The file replaces the table as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.policy.addresses import Addresses, Family, Prefix, aggregate, format_address
from orchestrator.policy.dscp import list_code_points
from orchestrator.policy.formats.assemble import plain, with_marker
from orchestrator.policy.formats.formatlimits import (
    EXPIRES,
    Limit,
    ListWriter,
    add_lines,
    note_unwritten,
    tailor_rule,
    versions,
)
from orchestrator.policy.formats.nftables.matches import OFFSET_IPV4, OFFSET_IPV6, TRANSPORT_HEADER
from orchestrator.policy.formats.results import Exported
from orchestrator.policy.model import Acl, Action, Direction, Rule
from orchestrator.policy.ports import EVERY_PORT, PortRange
from orchestrator.policy.protocols import ICMP, ICMPV6, IPV6_FRAGMENT, SCTP, TCP, UDP

TABLE = {"family": "inet", "name": "aclflow"}
CHAINS = {Direction.INGRESS: "forward", Direction.EGRESS: "output"}

_VERDICTS = {Action.PERMIT: "accept", Action.DENY: "drop"}
_PROTOCOLS = {ICMP: "icmp", TCP: "tcp", UDP: "udp", ICMPV6: "icmpv6", SCTP: "sctp"}
_VERSIONS = {Family.IPV4: "ipv4", Family.IPV6: "ipv6"}
_HEADERS = {Family.IPV4: "ip", Family.IPV6: "ip6"}
_LONGEST_COMMENT = 120
_ANY_FLAG_OF_ESTABLISHED = ["rst", "ack"]

Statement = dict[str, object]

_HIDDEN = Limit(
    "in IPv6 a deny by this protocol covers its later fragments as well",
    lambda rule: (
        rule.action is Action.DENY
        and rule.protocol not in (None, TCP, UDP, SCTP, ICMP, ICMPV6, IPV6_FRAGMENT)
        and not rule.fragments
    ),
    lambda rule: rule,
)


def write_nftables(acl: Acl) -> Exported:
    """A list as JSON for `nft -j -f`."""
    return _Writer(acl).write()


@dataclass(slots=True)
class _Writer(ListWriter):
    def write(self) -> Exported:
        rules: list[str] = []
        for number, rule in enumerate(self.acl.rules, 1):
            families = versions(rule, self.acl)
            if not families:
                self.notes.add("they match no packet and are left out", number)
                continue
            limits = (EXPIRES, _HIDDEN) if Family.IPV6 in families else (EXPIRES,)
            kept = tailor_rule(rule, number, limits, self.losses, "nftables")
            if kept is not None:
                self._note_losses(kept, number)
                add_lines(rules, self._write_rule(kept, sorted(families)), f"rules[{number - 1}]")
        commands = [
            {"metainfo": {"json_schema_version": 1}},
            {"add": {"table": TABLE}},
            {"delete": {"table": TABLE}},
            {"add": {"table": TABLE}},
            *({"add": {"chain": self._write_chain(direction)}} for direction in Direction if self._decides(direction)),
        ]
        lines = ",\n".join([*map(_write_text, commands), *rules])
        return Exported(f'{{"nftables": [\n{lines}\n]}}\n', tuple(self.losses), self.notes.on_rules())

    def _decides(self, direction: Direction) -> bool:
        """Return whether a direction needs a chain.

        Without a chain at output, everything may leave.
        """
        ruled = any(rule.direction is direction for rule in self.acl.rules)
        return ruled or direction is Direction.INGRESS or self.acl.default(direction) is Action.DENY

    def _write_chain(self, direction: Direction) -> dict[str, object]:
        name = CHAINS[direction]
        policy = _VERDICTS[self.acl.default(direction)]
        place = {"family": TABLE["family"], "table": TABLE["name"], "name": name}
        return {**place, "type": "filter", "hook": name, "prio": 0, "policy": policy}

    def _note_losses(self, rule: Rule, number: int) -> None:
        if rule.source.groups or rule.destination.groups:
            self.notes.add("address groups are written out as their prefixes", number)
        note_unwritten(rule, number, self.notes)
        if _comment(rule) != with_marker(rule):
            self.notes.add(f"the description is cut to fit {_LONGEST_COMMENT} bytes", number)

    def _write_rule(self, rule: Rule, families: list[Family]) -> Iterator[str]:
        for family in families:
            statements = [*self._write_addresses(rule, family), *_service(rule, family), *_transport(rule, family)]
            if rule.log:
                statements.append({"log": None})
            statements.append({_VERDICTS[rule.action]: None})
            place = {"family": TABLE["family"], "table": TABLE["name"], "chain": CHAINS[rule.direction]}
            yield _write_text({"add": {"rule": {**place, "comment": _comment(rule), "expr": statements}}})

    def _write_addresses(self, rule: Rule, family: Family) -> Iterator[Statement]:
        named = False
        for side, key in ((rule.source, "saddr"), (rule.destination, "daddr")):
            prefixes = self._prefixes(side, family)
            if prefixes is not None:
                named = True
                yield _write_equal(
                    _write_payload(_HEADERS[family], key),
                    _write_several([_write_prefix(prefix) for prefix in prefixes]),
                )
        if not named:
            yield _write_equal({"meta": {"key": "nfproto"}}, _VERSIONS[family])

    def _prefixes(self, side: Addresses, family: Family) -> tuple[Prefix, ...] | None:
        """The prefixes to name, disjoint; None for all addresses."""
        prefixes = aggregate(self.acl.prefixes(side, family))
        return None if prefixes[0].length == 0 else prefixes


def _service(rule: Rule, family: Family) -> Iterator[Statement]:
    """Yield the match of DSCP, if it is looked at."""
    if rule.dscp is not None:
        points: list[object] = [*list_code_points(rule.dscp)]
        yield _write_equal(_write_payload(_HEADERS[family], "dscp"), _write_several(points))


def _transport(rule: Rule, family: Family) -> Iterator[Statement]:
    """Yield the matches behind the addresses."""
    header = _PROTOCOLS.get(rule.protocol) if rule.protocol is not None else None
    if rule.fragments or (family is Family.IPV6 and rule.protocol == IPV6_FRAGMENT):
        if rule.protocol is not None and family is Family.IPV4:
            yield _write_equal({"meta": {"key": "l4proto"}}, header or rule.protocol)
        yield _write_match("!=", OFFSET_IPV4 if family is Family.IPV4 else OFFSET_IPV6, 0)
    elif rule.protocol is not None and (header is None or not rule.looks_past_the_ip_header):
        yield _write_equal({"meta": {"key": "l4proto"}}, _write_l4proto(rule.protocol))
        if family is Family.IPV6 and (header is not None or rule.action is Action.PERMIT):
            yield _write_match(">=", TRANSPORT_HEADER, 0)
    elif header is not None:
        yield _write_match(">=", TRANSPORT_HEADER, 0)
        yield from _fields(rule, header)


def _fields(rule: Rule, header: str) -> Iterator[Statement]:
    """Ports, flags, types and codes: what only whole packets and first fragments have."""
    for ports, key in ((rule.source_ports, "sport"), (rule.destination_ports, "dport")):
        if ports != EVERY_PORT:
            yield _write_equal(_write_payload(header, key), _write_several([_write_port(item) for item in ports]))
    for number, key in zip(rule.icmp, ("type", "code"), strict=False):
        yield _write_equal(_write_payload(header, key), number)
    if rule.established:
        yield _write_match("in", _write_payload(header, "flags"), _ANY_FLAG_OF_ESTABLISHED)
    elif rule.tcp_flags is not None:
        yield _write_equal({"&": [_write_payload(header, "flags"), rule.tcp_flags.mask]}, rule.tcp_flags.value)


def _write_l4proto(protocol: int) -> object:
    return "ipv6-icmp" if protocol == ICMPV6 else _PROTOCOLS.get(protocol, protocol)


def _write_match(op: str, left: object, right: object) -> Statement:
    return {"match": {"op": op, "left": left, "right": right}}


def _write_equal(left: object, right: object) -> Statement:
    return _write_match("==", left, right)


def _write_payload(protocol: str, key: str) -> Statement:
    return {"payload": {"protocol": protocol, "field": key}}


def _write_several(items: list[object]) -> object:
    return items[0] if len(items) == 1 else {"set": items}


def _write_prefix(prefix: Prefix) -> object:
    address = format_address(prefix.family, prefix.network)
    return address if prefix.length == prefix.family.bits else {"prefix": {"addr": address, "len": prefix.length}}


def _write_port(ports: PortRange) -> object:
    return ports.low if ports.low == ports.high else {"range": [ports.low, ports.high]}


def _comment(rule: Rule) -> str:
    """The id and as much of the description as fits, in whole characters."""
    return plain(with_marker(rule).encode()[:_LONGEST_COMMENT].decode(errors="ignore"))


def _write_text(command: object) -> str:
    return json.dumps(command, ensure_ascii=False)
