"""Read the AWS security groups of one network interface together as a list of permits.

    {"IpProtocol": "tcp", "FromPort": 443, "ToPort": 443,
     "IpRanges": [{"CidrIp": "0.0.0.0/0", "Description": "[web] the shop"}], "Ipv6Ranges": [], ...}

A permission names the far side only; the group's own side is any. Ranges of one description are one rule and IP
version. Other groups and prefix lists are names (`sg-...`, `pl-...`) that `Options.addresses` may explain.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.policy.addresses import Family
from orchestrator.policy.formats.assemble import Assembler, Clause, Doubt, marker_in, plain
from orchestrator.policy.formats.aws.services import axes_of, protocol
from orchestrator.policy.formats.json_node import Node
from orchestrator.policy.formats.json_text import load_json
from orchestrator.policy.formats.lineboxes import EVERYWHERE, Axes, Sides, by_version, sides_of, sides_of_prefixes
from orchestrator.policy.formats.lists import Chosen, choose
from orchestrator.policy.formats.portnames import prefix_spans
from orchestrator.policy.formats.results import Imported, Notes, Options
from orchestrator.policy.model import Action, Direction
from orchestrator.policy.spans import Spans

PERMISSIONS: Mapping[Direction, str] = {
    Direction.INGRESS: "IpPermissions",
    Direction.EGRESS: "IpPermissionsEgress",
}
RANGES: Mapping[Family, tuple[str, str]] = {
    Family.IPV4: ("IpRanges", "CidrIp"),
    Family.IPV6: ("Ipv6Ranges", "CidrIpv6"),
}
"""The keys of the ranges of each IP version, and of the prefix in them."""

_NAMED = {"UserIdGroupPairs": "GroupId", "PrefixListIds": "PrefixListId"}
_SAYS_NOTHING = frozenset({"GroupName", "UserId", "VpcId", "VpcPeeringConnectionId", "PeeringStatus"})
_KNOWN = frozenset({"IpProtocol", "FromPort", "ToPort", *_NAMED, *(key for key, _ in RANGES.values())})
_A_GROUP = "a security group"


def read_security_groups(text: str, name: str, options: Options) -> Imported:
    """Read the groups that the options name together, or the only one.

    Raises BadInput with a path as the place.
    """
    return _read_groups(choose(_list_groups(text), options, _A_GROUP), name, options)


def read_all_security_groups(text: str, name: str, options: Options) -> Mapping[str, Imported]:
    """Read every group by itself, by its id."""
    return {key: _read_groups([Chosen(key, node, None)], name, options) for key, node in _list_groups(text).items()}


def _list_groups(text: str) -> dict[str, Node]:
    document = Node(load_json(text))
    if isinstance(document.value, list):
        found = document.items()
    else:
        found = document.members("SecurityGroups") if document.member("SecurityGroups") else [document]
    groups: dict[str, Node] = {}
    for node in found:
        key = node.needed("GroupId").text()
        if groups.setdefault(key, node) is not node:
            raise node.fault(f"the group {node.needed('GroupId').shown()} stands in the text twice")
    return groups


def _read_groups(chosen: Sequence[Chosen[Node]], file: str, options: Options) -> Imported:
    notes = Notes()
    assembler = Assembler(file, notes, max_rules=options.max_rules)
    for direction in Direction:
        clauses: list[Clause] = []
        for one in chosen:
            if one.direction in (None, direction):
                clauses += _make_clauses(one, direction, options)
        assembler.add(clauses, direction)
    notes.add(f"read is what these groups permit together: {', '.join(one.name for one in chosen)}")
    notes.add("AWS tracks connections: replies need the domain's return traffic or rules of their own")
    acl = assembler.acl(egress_default=Action.DENY)
    return Imported(acl, assembler.losses(), notes.taken_notes())


def _make_clauses(group: Chosen[Node], direction: Direction, options: Options) -> Iterator[Clause]:
    for number, permission in enumerate(group.found.needed(PERMISSIONS[direction]).items(), 1):
        services, reasons = _services(permission)
        for peer in _read_peers(permission, options):
            doubts = tuple(Doubt(number, peer.text, reason) for reason in (*reasons, *peer.reasons))
            marker, description = marker_in(peer.description)
            far, own = peer.sides, EVERYWHERE
            source, destination = (far, own) if direction is Direction.INGRESS else (own, far)
            line = Clause(
                action=Action.PERMIT,
                sure=(),
                maybe=(),
                doubts=doubts,
                line=number,
                text=peer.text,
                label=group.name,
                marker=marker,
                description=description,
            )
            yield from by_version(line, services, source, destination)


def _services(permission: Node) -> tuple[Sequence[Axes], list[str]]:
    """Return what a permission matches besides addresses, and the parts that are unknown."""
    reasons = permission.unknown(_KNOWN)
    number = protocol(permission.needed("IpProtocol"))
    low, high = permission.member("FromPort"), permission.member("ToPort")
    return (permission.within(lambda: axes_of(number, low, high)),), reasons


@dataclass(frozen=True, slots=True)
class _Peer:
    """Addresses of one description, or a name for some; `reasons`: why these may be others."""

    text: str
    description: str
    sides: Sides
    reasons: tuple[str, ...] = ()


def _read_peers(permission: Node, options: Options) -> Iterator[_Peer]:
    for family, (list_key, key) in RANGES.items():
        ranges = [
            (_read_description(node), _unknown(node, key), node.needed(key)) for node in permission.members(list_key)
        ]
        for (description, reasons), run in itertools.groupby(ranges, key=lambda one: one[:2]):
            nodes = [node for _, _, node in run]
            sides = sides_of((family, span) for node in nodes for span in _read_spans(node, family))
            yield _Peer(nodes[0].place, description, sides, reasons)
    for list_key, key in _NAMED.items():
        for node in permission.members(list_key):
            yield _make_named_peer(node.needed(key), _read_description(node), _unknown(node, key), options)


def _read_spans(node: Node, family: Family) -> Spans:
    return node.within(lambda: prefix_spans(node.text(), family))


def _make_named_peer(node: Node, description: str, reasons: tuple[str, ...], options: Options) -> _Peer:
    found = options.addresses.get(node.text())
    if found is not None:
        return _Peer(node.place, description, sides_of_prefixes(found), reasons)
    reason = f"the addresses of {node.shown()} are not in the text; --address NAME=PREFIX tells them"
    return _Peer(node.place, description, EVERYWHERE, (*reasons, reason))


def _unknown(node: Node, key: str) -> tuple[str, ...]:
    """Return the unknown parts that a range or a name has besides `key`."""
    return tuple(node.unknown({key, "Description", *_SAYS_NOTHING}))


def _read_description(node: Node) -> str:
    found = node.member("Description")
    return "" if found is None else plain(found.text())
