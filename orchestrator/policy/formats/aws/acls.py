"""Read an AWS network ACL as a list.

Entries are ordered by number in each direction; the first match decides.

    {"RuleNumber": 100, "Egress": false, "Protocol": "6", "RuleAction": "allow",
     "CidrBlock": "0.0.0.0/0", "PortRange": {"From": 443, "To": 443}}

An entry names the far side only; its own side is the subnets of the ACL. The last entry, 32767 or `*`, denies what is
left, as our defaults do. Network ACLs do not track connections.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from orchestrator.errors import BadInput
from orchestrator.policy.addresses import Family
from orchestrator.policy.formats.assemble import Assembler, Clause, Doubt
from orchestrator.policy.formats.aws.services import PORTED, axes_of, protocol
from orchestrator.policy.formats.json_node import Node
from orchestrator.policy.formats.json_text import load_json
from orchestrator.policy.formats.lineboxes import EVERYWHERE, Axes, Sides, by_version
from orchestrator.policy.formats.lists import Chosen, choose
from orchestrator.policy.formats.portnames import prefix_spans
from orchestrator.policy.formats.results import Imported, Notes, Options
from orchestrator.policy.model import Action, Direction
from orchestrator.policy.protocols import ICMP, ICMPV6
from orchestrator.policy.spans import Spans

LAST_NUMBER = 32767
"""The number of the entry that denies what is left; that for IPv6 comes after it."""

ACTIONS: Mapping[str, Action] = {"allow": Action.PERMIT, "deny": Action.DENY}
BLOCKS: Mapping[Family, str] = {Family.IPV4: "CidrBlock", Family.IPV6: "Ipv6CidrBlock"}
_KNOWN = frozenset({"RuleNumber", "Egress", "Protocol", "RuleAction", "PortRange", "IcmpTypeCode", *BLOCKS.values()})
_FURTHER = (("PortRange", ("From", "To"), PORTED), ("IcmpTypeCode", ("Type", "Code"), frozenset({ICMP, ICMPV6})))
_LABEL = "entry"
"""Starts all ids. Entries have no names of their own, and the same entry in another ACL is the same rule."""

_AN_ACL = "a network ACL"


def read_network_acl(text: str, name: str, options: Options) -> Imported:
    """Read the ACL that the options name, or the only one.

    Raises BadInput with a path as the place.
    """
    chosen = choose(_list_acls(text), options, _AN_ACL)
    if len(chosen) > 1:
        raise BadInput(f"a subnet has one network ACL: {chosen[0].name} and {chosen[1].name} cannot be read together")
    return _read_acl(chosen[0], name, options)


def read_all_network_acls(text: str, name: str, options: Options) -> Mapping[str, Imported]:
    """Read every ACL by itself, by its id."""
    return {key: _read_acl(Chosen(key, node, None), name, options) for key, node in _list_acls(text).items()}


def _list_acls(text: str) -> dict[str, Node]:
    document = Node(load_json(text))
    if isinstance(document.value, list):
        found = document.items()
    else:
        found = document.members("NetworkAcls") if document.member("NetworkAcls") else [document]
    acls: dict[str, Node] = {}
    for node in found:
        key = node.needed("NetworkAclId").text()
        if acls.setdefault(key, node) is not node:
            raise node.fault(f"the network ACL {node.needed('NetworkAclId').shown()} stands in the text twice")
    return acls


def _read_acl(chosen: Chosen[Node], file: str, options: Options) -> Imported:
    notes = Notes()
    assembler = Assembler(file, notes, max_rules=options.max_rules)
    for direction in Direction:
        if chosen.direction in (None, direction):
            entries = _order_entries(chosen.found, direction)
            found = [_make_clauses(number, entry, direction) for number, entry in entries]
            assembler.add(list(itertools.chain.from_iterable(found)), direction)
    notes.add(f"read is the network ACL {chosen.name}; its own side is any")
    acl = assembler.acl(egress_default=Action.DENY)
    return Imported(acl, assembler.losses(), notes.taken_notes())


def _order_entries(acl: Node, direction: Direction) -> Sequence[tuple[int, Node]]:
    """Return the entries of one direction by number, each with its place in the text.

    Raises BadInput for a number that occurs twice.
    """
    found: dict[int, tuple[int, Node]] = {}
    for place, entry in enumerate(acl.needed("Entries").items(), 1):
        if entry.needed("Egress").truth() is not (direction is Direction.EGRESS):
            continue
        number = entry.needed("RuleNumber").number(1, LAST_NUMBER + 1)
        if number in found:
            raise entry.fault(f"another entry of this direction has the number {number} already")
        found[number] = (place, entry)
    return [found[number] for number in sorted(found) if not _is_last(number, found[number][1])]


def _is_last(number: int, entry: Node) -> bool:
    """Whether an entry is one that AWS adds itself: it denies everything that is left."""
    everything = protocol(entry.needed("Protocol")) is None
    return number >= LAST_NUMBER and everything and ACTIONS.get(entry.needed("RuleAction").text()) is Action.DENY


def _make_clauses(number: int, entry: Node, direction: Direction) -> list[Clause]:
    word = entry.needed("RuleAction")
    action = ACTIONS.get(word.text())
    if action is None:
        raise word.fault(f"{word.shown()} is not allow or deny")
    service, reasons = _service(entry)
    doubts = tuple(Doubt(number, entry.place, reason) for reason in reasons)
    far = _read_far_side(entry)
    source, destination = (far, EVERYWHERE) if direction is Direction.INGRESS else (EVERYWHERE, far)
    line = Clause(action, (), (), doubts, number, entry.place, _LABEL)
    return by_version(line, [service], source, destination)


def _read_far_side(entry: Node) -> Sides:
    blocks = {family: entry.member(key) for family, key in BLOCKS.items()}
    sides = {family: _read_spans(block, family) for family, block in blocks.items() if block is not None}
    if len(sides) != 1:
        raise entry.fault("it needs a CidrBlock or an Ipv6CidrBlock, and not both")
    return sides


def _read_spans(node: Node, family: Family) -> Spans:
    return node.within(lambda: prefix_spans(node.text(), family))


def _service(entry: Node) -> tuple[Axes, list[str]]:
    """Return what an entry matches besides addresses, and the parts that are unknown."""
    reasons = entry.unknown(_KNOWN)
    number = protocol(entry.needed("Protocol"))
    ends: list[Node | None] = [None, None]
    for key, keys, having in _FURTHER:
        found = entry.member(key)
        if found is not None and number in having:
            ends = [found.member(one) for one in keys]
        elif found is not None:
            reasons.append(f"its protocol has no {key}")
    return entry.within(lambda: axes_of(number, *ends)), reasons
