"""Read the security groups of one port together as a list of permits.

    {"id": "5c0f...", "name": "web", "security_group_rules": [
      {"direction": "ingress", "ethertype": "IPv4", "protocol": "tcp", "port_range_min": 80, "port_range_max": 80,
       "remote_ip_prefix": "0.0.0.0/0", "remote_group_id": null, "description": "[web] the shop"}, ...]}

Neutron writes `ethertype`, openstacksdk `ether_type`; both are read, and groups as an object (`security_groups`), as a
bare list or alone, or their rules only. A rule names the far side; the port's own side is any. For ICMP the port range
is the type and the code. Other groups and address groups are ids that `Options.addresses` may explain; address groups
may stand in the text themselves (`address_groups`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from orchestrator.errors import BadInput
from orchestrator.policy.addresses import Family, Prefix, parse_address
from orchestrator.policy.formats.assemble import Assembler, Clause, Doubt, marker_in, plain
from orchestrator.policy.formats.json_node import Node
from orchestrator.policy.formats.json_text import load_json
from orchestrator.policy.formats.lineboxes import Axes, Sides, by_version, icmp_axes, sides_of, sides_of_prefixes
from orchestrator.policy.formats.lists import Chosen, choose, free_name
from orchestrator.policy.formats.portnames import prefix_spans
from orchestrator.policy.formats.results import Imported, Notes, Options
from orchestrator.policy.model import Action, Direction
from orchestrator.policy.ports import HIGHEST_PORT
from orchestrator.policy.protocols import ICMP, ICMPV6, NUMBERS, UDPLITE, WITH_PORTS, parse_protocol
from orchestrator.policy.space import ALL_ADDRESSES, WHOLE
from orchestrator.policy.spans import Span

ETHERTYPES: Mapping[Family, str] = {Family.IPV4: "IPv4", Family.IPV6: "IPv6"}
NAMES: Mapping[str, int] = {"pgm": 113, "ipv6-encap": 41, "ipv6-opts": 60, "ipv6-route": 43}
"""Neutron's names of protocols that access lists do not use."""

_A_GROUP = "a security group"
_ONLY_PORTS = "only tcp, udp and sctp have ports that can be looked at here"
_PORTS_UNSEEN = frozenset({NUMBERS["dccp"], UDPLITE})
"""Protocols whose ports Neutron looks at, and no data plane of ours does."""

EVERY_OR_ZERO = "protocol 0 is every protocol to Neutron's interface and iptables, and hop-by-hop options elsewhere"

_SAYS_NOTHING = frozenset(
    {
        "id", "name", "description", "tenant_id", "project_id", "revision_number", "created_at", "updated_at", "tags",
        "location", "normalized_cidr", "security_group_id", "standard_attr_id", "belongs_to_default_sg",
        "remote_group_name",
    }
)  # fmt: skip
_REMOTES = ("remote_ip_prefix", "remote_group_id", "remote_address_group_id")
_READ = frozenset({"direction", "ethertype", "ether_type", "protocol", "port_range_min", "port_range_max", *_REMOTES})

Rules = Sequence[Node]


@dataclass(frozen=True, slots=True)
class _Group:
    """A group's rules, and whether Neutron lets the replies to what they permit pass."""

    rules: Rules
    stateful: bool = True


def read_security_groups(text: str, name: str, options: Options) -> Imported:
    """Read the groups that the options name together, or the only one.

    Raises BadInput with a path as the place.
    """
    document = Node(load_json(text))
    return _read_groups(
        choose(_groups(document), options, _A_GROUP), _known_addresses(document, options), name, options
    )


def read_all_security_groups(text: str, name: str, options: Options) -> Mapping[str, Imported]:
    """Read every group by itself, by its name."""
    document = Node(load_json(text))
    known = _known_addresses(document, options)
    return {
        key: _read_groups([Chosen(key, found, None)], known, name, options) for key, found in _groups(document).items()
    }


def _groups(document: Node) -> dict[str, _Group]:
    """The groups, by the group's name, or by its id where names repeat."""
    if isinstance(document.value, list):
        nodes = document.items()
    else:
        one = document.member("security_group")
        nodes = [one] if one is not None else document.members("security_groups")
        if not nodes and "security_groups" not in document.value:  # type: ignore[operator]
            nodes = [document]
    if nodes and all(node.member("direction") is not None for node in nodes):
        return _by_group(nodes)
    if len(nodes) == 1 and nodes[0].member("name", "id", "security_group_rules") is None:
        raise document.fault("there is no security group in it")
    found: dict[str, _Group] = {}
    for node in nodes:
        rules, stateful = _rules_of(node), node.member("stateful", "is_stateful")
        if node is document and node.member("name", "id") is None:
            return _by_group(rules)
        key = free_name(node, found, "-")
        if key is None:
            raise node.fault("this group stands in the text twice")
        found[key] = _Group(rules, stateful is None or stateful.truth())
    return found


def _rules_of(node: Node) -> Rules:
    """Return the rules of a group, called `rules` by the command line tool.

    A group without them is refused.
    """
    rules = node.member("security_group_rules", "rules")
    if rules is None:
        raise node.fault("security_group_rules are missing")
    return rules.items()


def _by_group(rules: Rules) -> dict[str, _Group]:
    """Rules without their groups, by the group that each names."""
    found: dict[str, list[Node]] = {}
    for rule in rules:
        owner = rule.member("security_group_id")
        found.setdefault("-" if owner is None else owner.text(), []).append(rule)
    return {key: _Group(tuple(held)) for key, held in found.items()}


def _known_addresses(document: Node, options: Options) -> Mapping[str, Sides]:
    """Return the addresses of ids and names: the caller's, and the text's address groups."""
    known = {name: sides_of_prefixes(prefixes) for name, prefixes in options.addresses.items()}
    groups = document.members("address_groups") if isinstance(document.value, dict) else []
    for group in groups:
        prefixes = [member.within(partial(_read_block, member)) for member in group.members("addresses")]
        for key in ("id", "name"):
            named = group.member(key)
            if named is not None:
                known.setdefault(named.text(), sides_of_prefixes(prefixes))
    return known


def _read_block(node: Node) -> Prefix:
    text = node.text()
    family = Family.IPV6 if ":" in text else Family.IPV4
    (span,) = prefix_spans(text, family)
    size = span.high - span.low + 1
    return Prefix(family, span.low, family.bits - size.bit_length() + 1)


def _read_groups(chosen: Sequence[Chosen[_Group]], known: Mapping[str, Sides], file: str, options: Options) -> Imported:
    """Read the list that is equal to some security groups together."""
    notes = Notes()
    assembler = Assembler(file, notes, max_rules=options.max_rules)
    for direction in Direction:
        clauses: list[Clause] = []
        for one in chosen:
            if one.direction in (None, direction):
                clauses += _make_clauses(one, direction, known)
        assembler.add(clauses, direction)
    notes.add(f"read is what these groups permit together: {', '.join(one.name for one in chosen)}")
    if any(one.found.stateful for one in chosen):
        notes.add("Neutron tracks connections: replies need the domain's return traffic or rules of their own")
    for one in chosen:
        if not one.found.stateful:
            notes.add(f"{one.name} is stateless: Neutron lets replies pass by rules of their own only")
    acl = assembler.acl(egress_default=Action.DENY)
    return Imported(acl, assembler.losses(), notes.taken_notes())


def _make_clauses(group: Chosen[_Group], direction: Direction, known: Mapping[str, Sides]) -> Iterator[Clause]:
    for number, rule in enumerate(group.found.rules, 1):
        says = rule.needed("direction").text()
        if says not in ("ingress", "egress"):
            raise rule.needed("direction").fault("a direction is ingress or egress")
        if says != direction.value:
            continue
        family = _read_family(rule)
        reasons = rule.unknown(_READ | _SAYS_NOTHING)
        far, unexplained = _far(rule, family, known)
        service, unseen = rule.within(partial(_service, rule, family))
        text = f"{group.name}: {rule.place}"
        described = rule.member("description")
        marker, description = marker_in(plain(described.text()) if described is not None else "")
        own: Sides = {family: ALL_ADDRESSES[family]}
        source, destination = (far, own) if direction is Direction.INGRESS else (own, far)
        doubts = tuple(Doubt(number, text, reason) for reason in (*reasons, *unexplained, *unseen))
        line = Clause(Action.PERMIT, (), (), doubts, number, text, group.name, marker, description)
        yield from by_version(line, [service], source, destination)


def _read_family(rule: Node) -> Family:
    node = rule.member("ethertype", "ether_type")
    text = "IPv4" if node is None else node.text()
    found = next((family for family, name in ETHERTYPES.items() if name.lower() == text.lower()), None)
    if found is None:
        raise rule.fault("its ethertype is neither IPv4 nor IPv6")
    return found


def _far(rule: Node, family: Family, known: Mapping[str, Sides]) -> tuple[Sides, list[str]]:
    """Return the far side of a rule, and why it may be incomplete."""
    if sum(rule.member(key) is not None for key in _REMOTES) > 1:
        raise rule.fault(f"only one of {', '.join(_REMOTES)} can be told")
    prefix = rule.member("remote_ip_prefix")
    if prefix is not None:
        text = prefix.text()
        if prefix.within(lambda: parse_address(text.partition("/")[0], whole=text))[0] is not family:
            raise prefix.fault("a prefix of the other IP version")
        return sides_of((family, span) for span in prefix.within(lambda: prefix_spans(text, family))), []
    named = rule.member("remote_group_id", "remote_address_group_id")
    everywhere: Sides = {family: ALL_ADDRESSES[family]}
    if named is None:
        return everywhere, []
    sides = known.get(named.text())
    if sides is not None:
        return {version: spans for version, spans in sides.items() if version is family}, []
    return everywhere, [f"the addresses of {named.shown()} are not in the text; --address NAME=PREFIX tells them"]


def _service(rule: Node, family: Family) -> tuple[Axes, list[str]]:
    """Return what a rule matches besides addresses, and the parts that cannot be evaluated here.

    Raises BadInput, without a place, for what makes no sense.
    """
    number = protocol_of(rule.member("protocol"), family)
    low, high = _value(rule.member("port_range_min")), _value(rule.member("port_range_max"))
    if number is None:
        if low is not None or high is not None:
            raise BadInput("ports without a protocol")
        return {}, []
    if number == 0:
        return {}, [EVERY_OR_ZERO]
    axes: Axes = {"protocols": 1 << number}
    if number in (ICMP, ICMPV6):
        return axes | _match_icmp(low, high), []
    if low is None and high is None:
        return axes, []
    if low is None or high is None or low > high:
        raise BadInput("its range of ports has one end only, or ends before it begins")
    if number in _PORTS_UNSEEN:
        return axes, [_ONLY_PORTS]
    if number not in WITH_PORTS:
        raise BadInput(_ONLY_PORTS)
    return (axes if (low, high) == (0, HIGHEST_PORT) else axes | _match_ports(low, high)), []


def _match_ports(low: int, high: int) -> Axes:
    return {"destination_ports": (Span(low, high),), "fragments": WHOLE}


def _match_icmp(kind: int | None, code: int | None) -> Axes:
    if kind is None:
        if code is not None:
            raise BadInput("an ICMP code means nothing without its type")
        return {}
    if max(kind, code or 0) > 255:
        raise BadInput("an ICMP type or code is 0 to 255")
    return icmp_axes(kind, code)


def protocol_of(node: Node | None, family: Family) -> int | None:
    """Return a protocol by name or number, None for all.

    `icmp` under IPv6 is ICMPv6. Raises BadInput.
    """
    if node is None:
        return None
    word = str(node.number(0, 255)) if isinstance(node.value, int) else node.text()[:40].lower()
    if word in ("", "any"):
        return None
    number = NAMES.get(word) if word in NAMES else parse_protocol(word)
    return ICMPV6 if number == ICMP and family is Family.IPV6 else number


def _value(node: Node | None) -> int | None:
    """A port, type or code; None for none, which old versions write as -1."""
    if node is None:
        return None
    if isinstance(node.value, str) and node.value.isascii() and node.value.isdigit() and len(node.value) <= 5:
        node = Node(int(node.value), node.place)
    found = node.number(-1, HIGHEST_PORT)
    return None if found == -1 else found
