"""Read an Azure network security group as a list.

Rules are ordered by priority in each direction; the first match decides.

    {"name": "web", "properties": {"priority": 100, "direction": "Inbound", "access": "Allow", "protocol": "Tcp",
     "sourceAddressPrefix": "*", "sourcePortRange": "*",
     "destinationAddressPrefix": "10.0.0.0/24", "destinationPortRanges": ["80", "443"]}}

The command line tool leaves `properties` out and writes its members beside the name. A template does not show the six
rules that Azure puts after all others; they are read all the same. Service tags (VirtualNetwork, AzureLoadBalancer,
Internet, ...) and application security groups are names that `Options.addresses` may explain.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from orchestrator.errors import AclflowError, BadInput
from orchestrator.policy.addresses import Family
from orchestrator.policy.formats.assemble import Assembler, Clause, Doubt, marker_in, plain
from orchestrator.policy.formats.json_node import Node
from orchestrator.policy.formats.json_text import load_json
from orchestrator.policy.formats.lineboxes import EVERYWHERE, Axes, Sides, by_version, sides_of, sides_of_prefixes
from orchestrator.policy.formats.lists import Chosen, choose, free_name
from orchestrator.policy.formats.portnames import prefix_spans
from orchestrator.policy.formats.results import Imported, Notes, Options
from orchestrator.policy.model import Action, Direction, check_name
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import ICMP, TCP, UDP, WITH_PORTS
from orchestrator.policy.space import ALL_PORTS, WHOLE, everything
from orchestrator.policy.spans import Span, Spans, union

_T = TypeVar("_T")
DIRECTIONS: Mapping[str, Direction] = {"inbound": Direction.INGRESS, "outbound": Direction.EGRESS}
ACTIONS: Mapping[str, Action] = {"allow": Action.PERMIT, "deny": Action.DENY}
PROTOCOLS: Mapping[str, int | None] = {"*": None, "tcp": TCP, "udp": UDP, "icmp": ICMP, "esp": 50, "ah": 51}
"""As Azure names them, in lower case; its `Icmp` is that of IPv4, for it does not support ICMPv6 here."""

HIGHEST_PRIORITY = 65500
_TYPE = "microsoft.network/networksecuritygroups"
_RULES = "securityrules"
_DEPLOYMENT = "microsoft.resources/deployments"
_A_GROUP = "a network security group"
_NAMELESS = "nsg"
_SIDES = ("source", "destination")
_KNOWN = frozenset(
    {
        *("name", "id", "etag", "type", "priority", "direction", "access", "protocol", "description"),
        *("provisioningState", "resourceGroup", "properties"),
        *(
            f"{side}{what}"
            for side in _SIDES
            for what in ("AddressPrefix", "AddressPrefixes", "PortRange", "PortRanges")
        ),
        *(f"{side}ApplicationSecurityGroups" for side in _SIDES),
    }
)
_PORTS_UNSEEN = "what Azure looks at for a port of a protocol without ports is not said"
_ANY_PORT = "whether a rule with ports and any protocol also takes protocols without ports is not said"


def read_azure(text: str, name: str, options: Options) -> Imported:
    """Read the group that the options name, or the only one.

    Raises BadInput with a path as the place.
    """
    chosen = choose(_groups(text), options, _A_GROUP)
    if len(chosen) > 1:
        raise BadInput(f"{chosen[0].name} and {chosen[1].name} cannot be read together: each decides by itself")
    return _read_group(chosen[0], name, options)


def read_all_azure(text: str, name: str, options: Options) -> Mapping[str, Imported]:
    """Read every group by itself, by its name."""
    return {key: _read_group(Chosen(key, node, None), name, options) for key, node in _groups(text).items()}


def _groups(text: str) -> dict[str, Node]:
    """Return the groups of a text, by name.

    The text is a group, a list of groups, a REST listing, or a template.
    """
    document = Node(load_json(text))
    if isinstance(document.value, dict) and document.member("resources"):
        found = _groups_among(document.members("resources"))
    else:
        found = _groups_alone(document)
    groups: dict[str, Node] = {}
    for node in found:
        key = free_name(node, groups, _NAMELESS)
        if key is None:
            named = node.member("name", "id")
            word = _NAMELESS if named is None else named.text()
            raise node.fault(f"the group {word[:80]!r} stands in the text twice")
        groups[key] = node
    return groups


def _groups_alone(document: Node) -> list[Node]:
    """Return the groups of a text that is no template.

    Raises BadInput for a group without rules in the text.
    """
    if isinstance(document.value, list):
        found = document.items()
    else:
        found = document.members("value") if document.member("value") else [document]
    for node in found:
        _body(node).needed("securityRules")
    return found


def _groups_among(resources: Sequence[Node]) -> list[Node]:
    """The groups of a template, and of those that it deploys from within.

    Raises BadInput for rules that stand apart from their group, or come of a loop.
    """
    found = []
    for node in resources:
        kind = node.member("type")
        word = "" if kind is None else kind.text().lower()
        if word == _DEPLOYMENT:
            found += _groups_among(_nested_resources(node))
        if word == f"{_TYPE}/{_RULES}":
            raise node.fault("a rule stands apart from its group: write it into the group's securityRules")
        if word == _TYPE:
            if any(_is_rule(inner) for inner in node.members("resources")):
                raise node.fault("rules stand in resources of the group: write them into its securityRules")
            if _body(node).member("copy") is not None:
                raise node.fault("its rules come of a loop (copy): write them out")
            found.append(node)
    return found


def _body(resource: Node) -> Node:
    """Return the part of a resource that describes it: its `properties`, or the resource itself."""
    return resource.member("properties") or resource


def _is_rule(resource: Node) -> bool:
    """Return whether a nested resource is a rule.

    Others are locks and diagnostic settings.
    """
    return resource.needed("type").text().lower().rpartition("/")[2] == _RULES


def _nested_resources(deployment: Node) -> list[Node]:
    """Return the resources of a template nested inside another.

    Empty if the nested template is stored elsewhere.
    """
    template = _body(deployment).member("template")
    return template.members("resources") if template is not None and isinstance(template.value, dict) else []


def _read_group(chosen: Chosen[Node], file: str, options: Options) -> Imported:
    notes = Notes()
    assembler = Assembler(file, notes, max_rules=options.max_rules)
    rules = _read_rules(chosen.found)
    for direction in Direction:
        if chosen.direction in (None, direction):
            clauses: list[Clause] = []
            for rule in _order_rules(rules, direction):
                found = _make_clauses(rule, options)
                if _is_default(found, direction):
                    break
                clauses += found
                if _is_everything(found):
                    break
            assembler.add(clauses, direction)
    notes.add(f"read is the network security group {chosen.name}")
    notes.add("Azure tracks connections: replies need the domain's return traffic or rules of their own")
    acl = assembler.acl(egress_default=Action.DENY)
    return Imported(acl, assembler.losses(), notes.taken_notes())


@dataclass(frozen=True, slots=True)
class _Rule:
    """A rule, and its number in the text, counted from 1."""

    number: int
    node: Node
    name: str
    direction: Direction
    priority: int


def _read_rules(group: Node) -> list[_Rule]:
    body = _body(group)
    found = body.members("securityRules")
    defaults = body.members("defaultSecurityRules") or [
        Node(rule, f"default rules.{rule['name']}") for rule in _DEFAULTS
    ]
    return [_read_rule(number, node) for number, node in enumerate([*found, *defaults], 1)]


def _read_rule(number: int, node: Node) -> _Rule:
    body = Node(_flat(node), node.place)
    named = body.member("name")
    return _Rule(
        number,
        body,
        "rule" if named is None else named.text(),
        _word(body.needed("direction"), DIRECTIONS),
        body.needed("priority").number(1, HIGHEST_PRIORITY),
    )


def _flat(node: Node) -> dict[str, object]:
    """A rule with the members of `properties` beside its name."""
    properties = node.member("properties")
    found: dict[str, object] = {}
    for one in (node, properties):
        if one is not None:
            found |= one.object()
    return found


def _order_rules(rules: Sequence[_Rule], direction: Direction) -> list[_Rule]:
    here = sorted((rule for rule in rules if rule.direction is direction), key=lambda rule: rule.priority)
    for rule, following in itertools.pairwise(here):
        if rule.priority == following.priority:
            raise following.node.fault(f"another rule of this direction has the priority {rule.priority} already")
    return here


def _make_clauses(rule: _Rule, options: Options) -> list[Clause]:
    node = rule.node
    action = _word(node.needed("access"), ACTIONS)
    services, reasons = _services(node, action)
    doubts = [Doubt(rule.number, node.place, reason) for reason in (*node.unknown(_KNOWN), *reasons)]
    sides = []
    for side in _SIDES:
        found, unknown = _side(node, side, options)
        sides.append(found)
        doubts += [Doubt(rule.number, node.place, reason) for reason in unknown]
    marker, description = _marker(rule)
    line = Clause(
        action=action,
        sure=(),
        maybe=(),
        doubts=tuple(doubts),
        line=rule.number,
        text=node.place,
        label=rule.name,
        marker=marker,
        description=description,
    )
    return by_version(line, services, *sides)


def _services(node: Node, action: Action) -> tuple[Sequence[Axes], list[str]]:
    """Return what a rule matches besides addresses, and why it may be inexact.

    Inexact means less for a permit, more for a deny.
    """
    number = _word(node.needed("protocol"), PROTOCOLS)
    ports = {side: _read_ports(node, f"{side}PortRange") for side in _SIDES}
    narrowed: Axes = {f"{side}_ports": spans for side, spans in ports.items() if spans != ALL_PORTS}
    if narrowed:
        narrowed["fragments"] = WHOLE
    if number is not None:
        if number in WITH_PORTS:
            return [{"protocols": 1 << number, **narrowed}], []
        return [{"protocols": 1 << number}], [_PORTS_UNSEEN] if narrowed else []
    if not narrowed:
        return [{}], []
    if action is Action.DENY:
        return [{}], [_ANY_PORT]
    return [{"protocols": 1 << ported, **narrowed} for ported in (TCP, UDP)], []


def _read_ports(node: Node, key: str) -> Spans:
    found = [_read_port(word) for word in _words(node, key, f"{key}s")]
    if not found:
        raise node.fault(f"{key} is missing")
    return union(found)


def _read_port(node: Node) -> Span:
    if node.text() == "*":
        return ALL_PORTS[0]
    ports = node.within(lambda: PortRange.parse(node.text()))
    return Span(ports.low, ports.high)


def _side(node: Node, side: str, options: Options) -> tuple[Sides, list[str]]:
    """The addresses of a side, and why they may be others."""
    found: list[tuple[Family, Span]] = []
    reasons = []
    groups = [_last_of_path(group) for group in node.members(f"{side}ApplicationSecurityGroups")]
    words = _words(node, f"{side}AddressPrefix", f"{side}AddressPrefixes")
    if not groups and not words:
        raise node.fault(f"{side}AddressPrefix is missing")
    for word in (*words, *groups):
        spans = _addresses(word, options)
        if spans is None:
            reasons.append(f"the addresses of {word.shown()} are not in the text; --address NAME=PREFIX tells them")
        else:
            found += [(family, span) for family, here in spans.items() for span in here]
    return (EVERYWHERE if reasons else sides_of(found)), reasons


def _addresses(word: Node, options: Options) -> Sides | None:
    """Return the addresses that a word means: all, a prefix, or a name.

    None for a name that no option explains.
    """
    text = word.text()
    if text == "*":
        return EVERYWHERE
    if text in options.addresses:
        return sides_of_prefixes(options.addresses[text])
    family = Family.IPV6 if ":" in text else Family.IPV4
    try:
        return {family: prefix_spans(text, family)}
    except AclflowError:
        if not text[:1].isalpha() or "/" in text:
            raise word.fault(f"{word.shown()} is not a prefix, nor the name of a service tag") from None
    return None


def _last_of_path(group: Node) -> Node:
    """An application security group by its name, the last part of its id."""
    path = group.needed("id")
    return Node(path.text().rpartition("/")[2], path.place)


def _words(node: Node, one: str, several: str) -> list[Node]:
    """The words of a member that comes alone, as a list, or both ways."""
    alone = node.member(one)
    return [*([] if alone is None or alone.value == "" else [alone]), *node.members(several)]


def _marker(rule: _Rule) -> tuple[str | None, str]:
    """Return a rule's id and description.

    The id is the one that its description begins with, else its name.
    """
    described = rule.node.member("description")
    marker, description = marker_in(plain(described.text()) if described is not None else "")
    if marker is None:
        try:
            check_name(rule.name, "a rule id", place="name")
        except BadInput:
            return None, description
        marker = None if rule.name.startswith("_") else rule.name
    return marker, description


def default_marker(direction: Direction) -> str:
    """The id of the last rule that our writer adds, which says the list's default."""
    return f"{direction.value}.default"


def _is_default(clauses: Sequence[Clause], direction: Direction) -> bool:
    """Whether clauses are the deny of everything that our writer ends a direction with."""
    denies = all(clause.action is Action.DENY and clause.marker == default_marker(direction) for clause in clauses)
    return denies and _is_everything(clauses)


def _is_everything(clauses: Sequence[Clause]) -> bool:
    """Whether clauses surely take every packet, so that none below them are asked."""
    return {box for clause in clauses for box in clause.sure} == {everything(family) for family in Family}


def _word(node: Node, known: Mapping[str, _T]) -> _T:
    """Return the meaning of a word, ignoring case."""
    word = node.text().lower()
    if word not in known:
        raise node.fault(f"{node.shown()} is not one of {', '.join(known)}")
    return known[word]


def _make_default(
    name: str, priority: int, direction: str, access: str, source: str, destination: str
) -> dict[str, object]:
    return {
        "name": name,
        "priority": priority,
        "direction": direction,
        "access": access,
        "protocol": "*",
        "sourceAddressPrefix": source,
        "sourcePortRange": "*",
        "destinationAddressPrefix": destination,
        "destinationPortRange": "*",
    }


_DEFAULTS = (
    _make_default("AllowVnetInBound", 65000, "Inbound", "Allow", "VirtualNetwork", "VirtualNetwork"),
    _make_default("AllowAzureLoadBalancerInBound", 65001, "Inbound", "Allow", "AzureLoadBalancer", "*"),
    _make_default("DenyAllInBound", 65500, "Inbound", "Deny", "*", "*"),
    _make_default("AllowVnetOutBound", 65000, "Outbound", "Allow", "VirtualNetwork", "VirtualNetwork"),
    _make_default("AllowInternetOutBound", 65001, "Outbound", "Allow", "*", "Internet"),
    _make_default("DenyAllOutBound", 65500, "Outbound", "Deny", "*", "*"),
)
"""The rules that every group has after its own."""
