"""A second, independent reading of nftables: it walks the JSON of a ruleset with one packet, as the kernel does.

It shares nothing with the reader under test, and answers in one `World` (see iptables_walk): which rules' unseen
matches hold, the state of the connection, the protocol that a later IPv6 fragment hides. A field of a header that the
packet does not have breaks off the rule, whatever the test.
"""

from __future__ import annotations

import ipaddress
import json
from dataclasses import dataclass, field
from typing import Any

from formats.iptables_walk import World

from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Packet

HEADERS = {"tcp": 6, "udp": 17, "sctp": 132, "icmp": 1, "icmpv6": 58}
CODE_POINTS = {"ef": 46, "af11": 10, "cs1": 8, "cs5": 40}
NUMBERS = HEADERS | {"ipv6-icmp": 58, "gre": 47, "esp": 50}
FLAGS = {"fin": 1, "syn": 2, "rst": 4, "psh": 8, "ack": 16, "urg": 32}
TYPES = {
    "icmp": {"echo-request": 8, "destination-unreachable": 3, "net-unreachable": 0},
    "icmpv6": {"echo-request": 128, "nd-neighbor-solicit": 135},
}
VERDICTS = ("accept", "drop", "reject", "return", "continue", "jump", "goto")
UNSEEN = object()
"""What a packet does not show; whether the match holds is a matter of the world."""


class Broken(Exception):
    """The packet has no such header: the rule does not match."""


@dataclass
class Walk:
    chains: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    rules: dict[tuple[str, str], list[tuple[int, dict[str, Any]]]] = field(default_factory=dict)
    sets: dict[tuple[str, str], list[Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str) -> Walk:
        found = cls()
        for number, item in enumerate(json.loads(text)["nftables"], 1):
            ((kind, body),) = item.get("add", item).items()
            if kind == "chain":
                found.chains[body["table"], body["name"]] = body
                found.rules[body["table"], body["name"]] = []
            elif kind == "rule":
                found.rules[body["table"], body["chain"]].append((number, body))
            elif kind in ("set", "map"):
                found.sets[body["table"], body["name"]] = body.get("elem", [])
        return found

    def numbers(self) -> list[int]:
        return [number for rules in self.rules.values() for number, _ in rules]

    def permits(self, hook: str, packet: Packet, world: World) -> bool:
        """Whether every base chain of a hook that sees the packet accepts it."""
        sees = ("inet", "ip" if packet.family is Family.IPV4 else "ip6")
        bases = [key for key, chain in self.chains.items() if chain.get("hook") == hook and chain["family"] in sees]
        return all((self._walk(base, packet, world) or self.chains[base]["policy"]) == "accept" for base in bases)

    def _walk(self, key: tuple[str, str], packet: Packet, world: World) -> str | None:
        for number, rule in self.rules[key]:
            verdict, target = self._rule(rule["expr"], number, packet, world, key[0])
            if verdict in ("accept", "drop", "reject"):
                return "accept" if verdict == "accept" else "drop"
            if verdict == "return":
                return None
            if verdict in ("jump", "goto"):
                found = self._walk((key[0], target), packet, world)
                if found is not None or verdict == "goto":
                    return found
        return None

    def _rule(
        self, statements: list[Any], number: int, packet: Packet, world: World, table: str
    ) -> tuple[str | None, str]:
        """The verdict of a rule for a packet, and the target of a jump; no verdict if it does not match."""
        try:
            for statement in statements:
                ((kind, body),) = statement.items()
                if kind == "match":
                    if not self._match(body, number, packet, world, table):
                        return None, ""
                elif kind == "limit":
                    if number not in world.holds:
                        return None, ""
                elif kind == "vmap":
                    return self._map(body, packet, world, table)
                elif kind in VERDICTS:
                    return kind, body["target"] if isinstance(body, dict) and "target" in body else ""
        except Broken:
            pass
        return None, ""

    def _map(self, body: Any, packet: Packet, world: World, table: str) -> tuple[str | None, str]:
        elements = self.sets[table, body["data"][1:]] if isinstance(body["data"], str) else body["data"]["set"]
        key = body["key"]
        value = self._value(key, packet, world)
        chosen = next((verdict for wanted, verdict in elements if wanted != "*" and equal(key, wanted, value)), None)
        chosen = chosen or next((verdict for wanted, verdict in elements if wanted == "*"), None)
        if chosen is None:
            return None, ""
        ((kind, inner),) = chosen.items()
        return kind, inner["target"] if inner else ""

    def _match(self, body: Any, number: int, packet: Packet, world: World, table: str) -> bool:
        left, op, right = body["left"], body["op"], body["right"]
        value = self._value(left, packet, world)
        if value is UNSEEN:
            return number in world.holds
        if isinstance(right, str) and right.startswith("@"):
            right = {"set": self.sets[table, right[1:]]}
        if op == "in" or op == "!":
            wanted = right if isinstance(right, list) else [right]
            return any(has(left, one, value) for one in wanted) == (op == "in")
        if op in ("==", "!="):
            wanted = right["set"] if isinstance(right, dict) and "set" in right else [right]
            return any(equal(left, one, value) for one in wanted) == (op == "==")
        bound = number_of(left, right)
        return {"<": value < bound, "<=": value <= bound, ">": value > bound, ">=": value >= bound}[op]

    def _value(self, left: Any, packet: Packet, world: World) -> Any:
        ((kind, body),) = left.items()
        if kind == "concat":
            return [self._value(part, packet, world) for part in body]
        if kind == "&":
            value = self._value(body[0], packet, world)
            return value & (mask_of(body[1]))
        hidden = packet.later_fragment and packet.family is Family.IPV6
        protocol = world.hidden_protocol if hidden else packet.protocol
        if kind == "payload":
            return payload(body, packet, protocol)
        if kind == "exthdr":
            if not hidden:
                raise Broken  # of all packets here only later fragments have the header
            return 1 if body.get("field") == "frag-off" else True
        if kind == "meta" and body["key"] == "l4proto":
            return protocol
        if kind == "meta" and body["key"] in ("nfproto", "protocol"):
            return packet.family.value
        if kind == "ct" and body["key"] == "state":
            return world.state.lower()
        return UNSEEN


def payload(body: Any, packet: Packet, protocol: int) -> Any:
    """A field of a header. Raises Broken where the packet has no such header."""
    if "base" in body:
        if packet.later_fragment:
            raise Broken
        return 0
    name, key = body["protocol"], body["field"]
    if name in ("ip", "ip6"):
        if (name == "ip") is not (packet.family is Family.IPV4):
            raise Broken
        offset = 185 if packet.later_fragment else 0
        return {
            "saddr": packet.source, "daddr": packet.destination, "protocol": protocol, "frag-off": offset | 0x4000,
            "nexthdr": UNSEEN, "ttl": UNSEEN, "dscp": packet.dscp,
        }[key]  # fmt: skip
    if packet.later_fragment or (name != "th" and HEADERS[name] != protocol):
        raise Broken
    if (name, packet.family) in (("icmp", Family.IPV6), ("icmpv6", Family.IPV4)):
        raise Broken
    return {
        "sport": packet.source_port, "dport": packet.destination_port, "flags": packet.tcp_flags,
        "type": packet.icmp_type, "code": packet.icmp_code,
    }[key]  # fmt: skip


def mask_of(mask: Any) -> int:
    if isinstance(mask, list):
        return sum(FLAGS[name] for name in mask)
    return mask if isinstance(mask, int) else int(ipaddress.ip_address(mask))


def number_of(left: Any, value: Any) -> int:
    """One value of the right side as a number."""
    if isinstance(value, int):
        return value
    if isinstance(value, list):
        return sum(FLAGS[name] for name in value)
    if value in ("ipv4", "ip"):
        return 4
    if value in ("ipv6", "ip6"):
        return 6
    protocol = left.get("payload", {}).get("protocol", "") if isinstance(left, dict) else ""
    for names in (TYPES.get(protocol, {}), NUMBERS, FLAGS, CODE_POINTS):
        if value in names:
            return names[value]
    return int(ipaddress.ip_address(value))


def equal(left: Any, wanted: Any, value: Any) -> bool:
    """Whether a value is one that the right side names: itself, in a range, in a prefix, or all of a combination."""
    if isinstance(wanted, dict):
        ((kind, body),) = wanted.items()
        if kind == "range":
            return number_of(left, body[0]) <= value <= number_of(left, body[1])
        if kind == "prefix":
            network = ipaddress.ip_network(f"{body['addr']}/{body['len']}", strict=False)
            return int(network.network_address) <= value <= int(network.broadcast_address)
        parts = left["concat"]
        return all(equal(part, one, each) for part, one, each in zip(parts, body, value, strict=True))
    if isinstance(value, str):
        return value == wanted
    return value == number_of(left, wanted)


def has(left: Any, wanted: Any, value: Any) -> bool:
    """Whether a value of bits has some of the wanted ones."""
    return value == wanted if isinstance(value, str) else bool(value & number_of(left, wanted))
