"""Send a packet through the hooks of our tables: routing, then forwarding.

A rule that looks at what a packet does not have is broken off, as in the kernel. Asking for ports where a packet has
none is an error of whoever wrote the rule: the kernel would compare whatever bytes are there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.enforce.drivers.filters.fakeconnections import NOTHING_SEEN, Seen
from orchestrator.enforce.drivers.nftables.fake.tables import (
    PROTOCOLS,
    Chain,
    Element,
    Rule,
    Table,
    Verdict,
    interval,
    number,
)
from orchestrator.errors import Refused
from orchestrator.policy.addresses import Family
from orchestrator.policy.fields import slot_values
from orchestrator.policy.model import Packet
from orchestrator.policy.protocols import UDP

DEEPEST = 16
FINAL = ("accept", "drop")
_HOOKS = ("prerouting", "forward")
_WITH_PORTS = tuple(PROTOCOLS[name] for name in ("tcp", "udp", "sctp"))
_ROUTED = 1
"""The kind of a destination that is another machine's."""
_LATER_OFFSET, _DONT_FRAGMENT = 185, 0x4000
"""The fragment field of a later fragment, and of a whole IPv4 packet."""


class _Break(Exception):
    """The packet does not have what a rule looks at."""


@dataclass(slots=True)
class Journey:
    """A packet's verdict, counting and reporting comments, and its cost.

    `mark` is what it carries in the end, `came_by` the interface that it came in by. No connection is looked up for one
    that `is_untracked`.
    """

    accepted: bool = False
    mark: int = 0
    came_by: str = ""
    is_untracked: bool = False
    comments: list[str] = field(default_factory=list)
    reported: list[str] = field(default_factory=list)
    lookups: int = 0
    rules: int = 0


@dataclass(slots=True)
class Ruleset:
    """Our tables, by IP version and name.

    A packet must be accepted by every chain at the hook.

    `ways` are the interfaces by which packets with some marks are routed; others go elsewhere. Limits let everything
    through, or nothing while they are `spent`.
    """

    tables: dict[tuple[Family, str], Table] = field(default_factory=dict)
    ways: dict[int, str] = field(default_factory=dict)
    spent: bool = False

    def send(
        self,
        packet: Packet,
        hidden_protocol: int = UDP,
        size: int = 0,
        *,
        mark: int = 0,
        came_by: str = "",
        seen: Seen = NOTHING_SEEN,
    ) -> Journey:
        """Send a packet through the hooks.

        `hidden_protocol`: the protocol that a later IPv6 fragment names. `seen`: its connection, where these are
        tracked.
        """
        journey = Journey(mark=mark, came_by=came_by)
        self._pass_hooks(_HOOKS, journey, packet, hidden_protocol, size, seen)
        return journey

    def untracks(self, packet: Packet) -> bool:
        """Whether no connection is to be looked up for a packet."""
        journey = Journey()
        self._pass_hooks(_HOOKS[:1], journey, packet, UDP, 0, NOTHING_SEEN)
        return journey.is_untracked

    def _pass_hooks(
        self, hooks: tuple[str, ...], journey: Journey, packet: Packet, hidden: int, size: int, seen: Seen
    ) -> None:
        hooked = [
            (*chain.hook, table, chain)
            for (family, _), table in self.tables.items()
            for chain in table.chains.values()
            if family is packet.family and chain.hook is not None and chain.hook[0] in hooks
        ]
        for _, _, policy, table, chain in sorted(hooked, key=lambda each: (_HOOKS.index(each[0]), each[1])):
            walk = _Walk(table, packet, hidden, size, journey, self.ways, seen, self.spent)
            if (walk.chain(chain, 0) or policy) == "drop":
                return
        journey.accepted = True


@dataclass(slots=True)
class _Walk:
    table: Table
    packet: Packet
    hidden_protocol: int
    size: int
    journey: Journey
    ways: Mapping[int, str]
    seen: Seen
    spent: bool

    def chain(self, chain: Chain, depth: int) -> str | None:
        """The final verdict, or None if the chain ends or returns without one."""
        if depth > DEEPEST:
            raise Refused("nft: Too many links: the kernel refuses jumps so deep")
        for rule in chain.rules:
            self.journey.rules += 1
            try:
                verdict = self._walk_rule(rule)
            except _Break:
                continue
            if verdict is None:
                continue
            if verdict[0] in FINAL:
                return verdict[0]
            if verdict[0] == "return":
                return None
            found = self.chain(self.table.chain(verdict[1]), depth + 1)
            if found is not None or verdict[0] == "goto":
                return found
        return None

    def _walk_rule(self, rule: Rule) -> Verdict | None:
        words, place = rule.words, 0
        verdict: Verdict | None = None
        counted, comment = False, None
        while place < len(words):
            word = words[place]
            if word == "counter":
                counted = True
            elif word in ("accept", "drop", "return"):
                verdict = (word,)
            elif word in ("jump", "goto"):
                verdict = (word, words[place + 1])
                place += 1
            elif word == "comment":
                comment = words[place + 1]
                place += 1
            elif taken := self._statement(words[place:]):
                place += taken - 1
            elif word in ("iifname", "oifname"):
                goes_by = self.ways.get(self.journey.mark, "")
                if words[place + 1] != (self.journey.came_by if word == "iifname" else goes_by):
                    return None
                place += 1
            else:
                place, held, verdict = self._expression(words, place)
                if not held:
                    return None
                continue
            place += 1
        if counted:
            rule.count(self.size)
            if comment is not None:
                self.journey.comments.append(comment)
        return verdict

    def _statement(self, words: list[str]) -> int:
        """Execute a rule's leading statement; return its word count.

        0 if it matches or decides instead.
        """
        if words[:2] == ["limit", "name"]:
            self.table.set(words[2])
            if self.spent:
                raise _Break
            return 3
        if words[:2] == ["log", "prefix"]:
            self.journey.reported.append(words[2])
            return 7
        if words[0] == "notrack":
            self.journey.is_untracked = True
            return 1
        if words[:6] == ["ct", "mark", "set", "ct", "mark", "|"]:
            self.seen.label.mark |= number(words[6])
            return 7
        if words[:3] == ["meta", "mark", "set"]:
            self.journey.mark = number(words[3])
            return 4
        return 0

    def _expression(self, words: list[str], place: int) -> tuple[int, bool, Verdict | None]:
        """Evaluate a match or a verdict map's look-up.

        Returns where it ends, whether it held, and the verdict.
        """
        values = []
        while True:
            value, place = self._load_operand(words, place)
            values.append(value)
            if words[place : place + 1] != ["."]:
                break
            place += 1
        word = words[place]
        if words[place - 2 : place] == ["ct", "state"]:
            return place + 1, bool(values[0] & number(word)), None
        if word == "vmap":
            element = self._find_element(words[place + 1], tuple(values))
            return place + 2, element is not None, element.verdict if element is not None else None
        (value,) = values
        place, held = self._compare(words, place, value)
        return place, held, None

    def _compare(self, words: list[str], place: int, value: int) -> tuple[int, bool]:
        """Compare a value with a word; where that ends, and whether it held."""
        word = words[place]
        if word == "!=" and words[place + 1].startswith("@"):
            return place + 2, self._find_element(words[place + 1], (value,)) is None
        if word.startswith("@"):
            return place + 1, self._find_element(word, (value,)) is not None
        if word in ("==", "!=", ">=", "!"):
            other = number(words[place + 1])
            held = {"==": value == other, "!=": value != other, ">=": value >= other, "!": not value & other}[word]
            return place + 2, held
        if word == "{":
            end = place + words[place:].index("}")
            return end + 1, value in {number(each.removesuffix(",")) for each in words[place + 1 : end]}
        low, high = interval(word)
        return place + 1, low <= value <= high

    def _find_element(self, name: str, values: tuple[int, ...]) -> Element | None:
        self.journey.lookups += 1
        where = self.table.set(name.removeprefix("@"))
        found = where.find(values)
        if found is not None and where.is_counting:
            found.count(self.size)
            if found.comment is not None:
                self.journey.comments.append(found.comment)
        return found

    def _load_operand(self, words: list[str], place: int) -> tuple[int, int]:
        if words[place].startswith("@th,"):
            name, place = words[place], place + 1
        elif words[place] == "ct":
            size = 4 if words[place + 2].startswith("ip") else 3 if words[place + 1] == "original" else 2
            asked = " ".join(words[place + 1 : place + size])
            if self.seen.first is None and asked != "state":
                raise _Break
            value, place = self.seen.load(asked), place + size
            if words[place : place + 1] == ["&"]:
                value, place = value & number(words[place + 1]), place + 2
            return value, place
        elif words[place : place + 3] == ["fib", "daddr", "type"]:
            return _ROUTED, place + 3
        else:
            name, place = " ".join(words[place : place + 2]), place + 2
        mask = -1
        if words[place : place + 1] == ["&"]:
            mask, place = number(words[place + 1]), place + 2
        return self._load_field(name) & mask, place

    def _load_field(self, name: str) -> int:
        packet = self.packet
        six = packet.family is Family.IPV6
        protocol = self.hidden_protocol if six and packet.later_fragment else packet.protocol
        version = "ip6" if six else "ip"
        if name in (f"{version} saddr", f"{version} daddr"):
            return packet.source if name.endswith("saddr") else packet.destination
        if name == "meta l4proto":
            return protocol
        if name in ("meta mark", f"{version} dscp"):
            return self.journey.mark if name == "meta mark" else packet.dscp
        if name == "ip frag-off" and not six:
            return _LATER_OFFSET if packet.later_fragment else _DONT_FRAGMENT
        if name == "frag frag-off" and six and packet.later_fragment:
            return _LATER_OFFSET
        if packet.later_fragment or name == "frag frag-off":
            raise _Break
        return self._load_transport(name, protocol)

    def _load_transport(self, name: str, protocol: int) -> int:
        packet = self.packet
        if name.startswith("@th,"):
            return 0
        if name in ("th sport", "th dport"):
            if protocol not in _WITH_PORTS:
                raise Refused(f"nft: {name} of a packet of protocol {protocol}")
            return packet.source_port if name.endswith("sport") else packet.destination_port
        icmp = "icmpv6" if packet.family is Family.IPV6 else "icmp"
        kind, code = slot_values(packet)
        loads = {
            f"{icmp} type": (PROTOCOLS[icmp], kind),
            f"{icmp} code": (PROTOCOLS[icmp], code),
            "tcp flags": (PROTOCOLS["tcp"], packet.tcp_flags),
        }
        wanted, value = loads[name]
        if protocol != wanted:
            raise _Break
        return value
