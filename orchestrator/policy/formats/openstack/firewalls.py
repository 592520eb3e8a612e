"""Read FWaaS v2 policies as a list: ordered rules by direction, then a deny.

    {"firewall_groups": [{"name": "edge", "ingress_firewall_policy_id": "p1", "egress_firewall_policy_id": null}],
     "firewall_policies": [{"id": "p1", "name": "in", "firewall_rules": ["r1", "r2"]}],
     "firewall_rules": [{"id": "r1", "name": "web", "action": "allow", "protocol": "tcp", "ip_version": 4,
                         "destination_port": "80:443", "enabled": true, ...}, ...]}

A policy's direction is that of the group that uses it, or what `Options.lists` says of the policy (`in=ingress`). Rules
without a policy are one list in the order in which they stand. Rules that are not enabled are left out, as in FWaaS.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.errors import BadInput
from orchestrator.policy.addresses import Family
from orchestrator.policy.formats.assemble import Assembler, Clause, Doubt, marker_in, plain
from orchestrator.policy.formats.json_node import Node
from orchestrator.policy.formats.json_text import load_json
from orchestrator.policy.formats.lineboxes import Axes, Sides, by_version, sides_of
from orchestrator.policy.formats.lists import Chosen, choose, free_name
from orchestrator.policy.formats.openstack.groups import EVERY_OR_ZERO, protocol_of
from orchestrator.policy.formats.portnames import prefix_spans
from orchestrator.policy.formats.results import Imported, Notes, Options
from orchestrator.policy.model import Action, Direction
from orchestrator.policy.ports import HIGHEST_PORT
from orchestrator.policy.protocols import WITH_PORTS
from orchestrator.policy.space import ALL_ADDRESSES, WHOLE
from orchestrator.policy.spans import Span

ACTIONS: Mapping[str, Action] = {"allow": Action.PERMIT, "deny": Action.DENY, "reject": Action.DENY}

_A_POLICY = "a firewall policy"
_HIGHEST_PLACE = (1 << 31) - 1
_SAYS_NOTHING = frozenset(
    {
        "id", "name", "description", "shared", "is_shared", "audited", "tenant_id", "project_id", "firewall_policy_id",
        "firewall_policy_ids", "position", "location", "revision_number", "created_at", "updated_at", "summary",
    }
)  # fmt: skip
_READ = frozenset(
    {
        "action", "enabled", "is_enabled", "ip_version", "protocol", "source_ip_address", "destination_ip_address",
        "source_port", "destination_port", "source_firewall_group_id", "destination_firewall_group_id",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Policy:
    """A policy's rules in order, and the directions in which groups use it."""

    rules: Sequence[Node]
    directions: frozenset[Direction]


def read_firewalls(text: str, name: str, options: Options) -> Imported:
    """Read the policies of the only group, or those the options name.

    Raises BadInput with a path as the place.
    """
    document = Node(load_json(text))
    policies = _list_policies(document)
    if not options.lists and len(policies) == 2 and _of_one_group(document, policies):
        chosen: Sequence[Chosen[_Policy]] = [Chosen(key, found, None) for key, found in policies.items()]
    else:
        chosen = choose(policies, options, _A_POLICY)
    return _read_policies(chosen, name, options)


def read_all_firewalls(text: str, name: str, options: Options) -> Mapping[str, Imported]:
    """Read every policy by itself, by its name."""
    found = _list_policies(Node(load_json(text)))
    return {key: _read_policies([Chosen(key, policy, None)], name, options) for key, policy in found.items()}


def _of_one_group(document: Node, policies: Mapping[str, _Policy]) -> bool:
    """Whether the text is one group with a policy for each direction."""
    directions = [direction for policy in policies.values() for direction in policy.directions]
    return len(document.members("firewall_groups")) == 1 and sorted(map(str, directions)) == sorted(map(str, Direction))


def _list_policies(document: Node) -> dict[str, _Policy]:
    if isinstance(document.value, list):
        return {"-": _Policy(_in_order(document.items()), frozenset())}
    nodes = document.members("firewall_policies")
    used = _directions(document, nodes)
    if not nodes:
        if document.member("firewall_rules") is None:
            raise document.fault("there is no firewall policy in it, and no list of firewall_rules")
        alone = [_rule_of(item, {}) for item in document.members("firewall_rules")]
        return {"-": _Policy(_in_order(alone), frozenset())}
    rules = {rule.needed("id").text(): rule for rule in document.members("firewall_rules")}
    found: dict[str, _Policy] = {}
    for node in nodes:
        key = free_name(node, found)
        if key is None:
            raise node.fault("this policy has no name, or stands in the text twice")
        own = [_rule_of(item, rules) for item in node.needed("firewall_rules").items()]
        identity = node.member("id")
        found[key] = _Policy(own, used.get("" if identity is None else identity.text(), frozenset()))
    return found


def _in_order(rules: Sequence[Node]) -> Sequence[Node]:
    """Refuse rules without their policy whose stated positions are not in order."""
    before = -1
    for rule in rules:
        place = rule.member("position")
        if place is not None:
            if place.number(0, _HIGHEST_PLACE) <= before:
                raise place.fault("rules without their policy must stand in the order of their positions")
            before = place.number(0, _HIGHEST_PLACE)
    return rules


def _rule_of(item: Node, rules: Mapping[str, Node]) -> Node:
    """Return a policy's rule, given as an id or as the rule itself."""
    if isinstance(item.value, dict):
        return item
    rule = rules.get(item.text())
    if rule is None:
        raise item.fault(f"the rule {item.shown()} is not in the text")
    return rule


def _directions(document: Node, policies: Sequence[Node]) -> Mapping[str, frozenset[Direction]]:
    """Return the directions in which groups use each policy, by its id.

    Raises BadInput for a policy that is not in the text.
    """
    there = {identity.text() for node in policies if (identity := node.member("id")) is not None}
    found: dict[str, frozenset[Direction]] = {}
    for group in document.members("firewall_groups"):
        up = group.member("admin_state_up", "is_admin_state_up")
        if up is not None and not up.truth():
            raise up.fault("Neutron lets nothing pass a group that is down: leave the group out to read its policies")
        for direction in Direction:
            policy = group.member(f"{direction.value}_firewall_policy_id")
            if policy is not None:
                if policy.text() not in there:
                    raise policy.fault(f"the policy {policy.shown()} is not in the text")
                found[policy.text()] = found.get(policy.text(), frozenset()) | {direction}
    return found


def _read_policies(chosen: Sequence[Chosen[_Policy]], file: str, options: Options) -> Imported:
    notes = Notes()
    assembler = Assembler(file, notes, max_rules=options.max_rules)
    taken: dict[Direction, Chosen[_Policy]] = {}
    for one in chosen:
        for direction in [one.direction] if one.direction else one.found.directions or [options.direction]:
            if direction in taken:
                raise BadInput(f"both {taken[direction].name} and {one.name} are for {direction.value}: name one")
            taken[direction] = one
    for direction in Direction:
        if direction in taken:
            notes.add(f"{direction.value} is the policy {taken[direction].name}")
            assembler.add(list(_make_clauses(taken[direction], notes)), direction)
    notes.add("FWaaS tracks connections: replies need the domain's return traffic or rules of their own")
    in_use = any(one.found.directions for one in chosen)
    if Direction.EGRESS not in taken:
        may = "the group has no egress policy: nothing" if in_use else "no policy was read for egress: everything"
        notes.add(f"{may} may leave")
    egress_default = Action.DENY if in_use or Direction.EGRESS in taken else Action.PERMIT
    return Imported(assembler.acl(egress_default=egress_default), assembler.losses(), notes.taken_notes())


def _make_clauses(policy: Chosen[_Policy], notes: Notes) -> Iterator[Clause]:
    for number, rule in enumerate(policy.found.rules, 1):
        enabled = rule.member("enabled", "is_enabled")
        if enabled is not None and not enabled.truth():
            notes.add("left out: the rule is not enabled", number)
            continue
        action = rule.needed("action")
        if action.text() not in ACTIONS:
            raise action.fault("an action is allow, deny or reject")
        if action.value == "reject":
            notes.add("reject becomes deny: nothing is sent back", number)
        yield from _read_clause(rule, number, policy.name)


def _read_clause(rule: Node, number: int, policy: str) -> Sequence[Clause]:
    version = rule.member("ip_version")
    if version is not None and version.number(4, 6) == 5:
        raise version.fault("an IP version is 4 or 6")
    family = Family.IPV4 if version is None else Family(version.number(4, 6))
    reasons = rule.unknown(_READ | _SAYS_NOTHING)
    for key in ("source_firewall_group_id", "destination_firewall_group_id"):
        named = rule.member(key)
        if named is not None:
            reasons.append(f"the addresses of the firewall group {named.shown()} are not in the text")
    service = rule.within(lambda: _read_service(rule, family))
    if protocol_of(rule.member("protocol"), family) == 0:
        reasons.append(EVERY_OR_ZERO)
    described = rule.member("description")
    marker, description = marker_in(plain(described.text()) if described is not None else "")
    named = rule.member("name")
    label = policy if named is None else named.text()
    text = f"{policy}: {rule.place}"
    line = Clause(
        action=ACTIONS[rule.needed("action").text()],
        sure=(),
        maybe=(),
        doubts=tuple(Doubt(number, text, reason) for reason in reasons),
        line=number,
        text=text,
        label=label,
        marker=marker,
        description=description,
    )
    return by_version(line, [service], _read_side(rule, "source", family), _read_side(rule, "destination", family))


def _read_side(rule: Node, side: str, family: Family) -> Sides:
    node = rule.member(f"{side}_ip_address")
    if node is None:
        return {family: ALL_ADDRESSES[family]}
    return sides_of((family, span) for span in node.within(lambda: prefix_spans(node.text(), family)))


def _read_service(rule: Node, family: Family) -> Axes:
    number = protocol_of(rule.member("protocol"), family)
    axes: Axes = {"protocols": 1 << number} if number else {}
    for side in ("source", "destination"):
        node = rule.member(f"{side}_port")
        if node is None:
            continue
        if number not in WITH_PORTS:
            raise BadInput("only tcp, udp and sctp have ports that can be looked at here")
        span = _ports(node)
        if span != Span(0, HIGHEST_PORT):
            axes |= {f"{side}_ports": (span,), "fragments": WHOLE}
    return axes


def _ports(node: Node) -> Span:
    """``80`` or ``80:443``. Raises BadInput."""
    text = str(node.value) if isinstance(node.value, int) and not isinstance(node.value, bool) else node.text()
    low, colon, high = text[:20].partition(":")
    ends = [low, high] if colon else [low, low]
    if not all(end.isascii() and end.isdigit() and len(end) <= 5 for end in ends):
        raise node.fault(f"{node.shown()} is not a port or a range such as 80:443")
    first, last = map(int, ends)
    if not first <= last <= HIGHEST_PORT:
        raise node.fault(f"{node.shown()} is not a range of ports")
    return Span(first, last)
