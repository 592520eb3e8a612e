"""Read network policies as a list: permits to and from the pods they select.

    apiVersion: networking.k8s.io/v1
    kind: NetworkPolicy
    metadata: {name: web, namespace: shop}
    spec:
      podSelector: {matchLabels: {app: web}}
      policyTypes: [Ingress]
      ingress:
      - from: [{ipBlock: {cidr: 0.0.0.0/0, except: [10.0.0.0/8]}}]
        ports: [{protocol: TCP, port: 80, endPort: 90}]

A pod that some policy selects for a direction may do only what these policies permit together; a direction that none of
them names is open. So policies of one selector and one namespace are read together, and others where they are named.
Peers by selector are names that `Options.addresses` may explain: ``shop/pods[app=web]`` for pods of the policy's own
namespace, ``namespaces[team=x]`` and ``namespaces[team=x]/pods[app=web]`` for others.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from orchestrator.errors import AclflowError, BadInput
from orchestrator.policy import spans
from orchestrator.policy.addresses import Family
from orchestrator.policy.formats.assemble import Assembler, Clause, Doubt
from orchestrator.policy.formats.json_node import Node
from orchestrator.policy.formats.json_text import load_json
from orchestrator.policy.formats.lineboxes import EVERYWHERE, Axes, Sides, by_version, sides_of, sides_of_prefixes
from orchestrator.policy.formats.lists import Chosen, choose
from orchestrator.policy.formats.portnames import prefix_spans
from orchestrator.policy.formats.results import Imported, Notes, Options
from orchestrator.policy.formats.yaml_text import line_of, load_documents
from orchestrator.policy.model import Action, Direction
from orchestrator.policy.ports import HIGHEST_PORT
from orchestrator.policy.protocols import SCTP, TCP, UDP
from orchestrator.policy.space import WHOLE
from orchestrator.policy.spans import Span, Spans

_T = TypeVar("_T")

API_VERSION = "networking.k8s.io/v1"
KIND = "NetworkPolicy"
IDS = "aclflow/ids"
"""The annotation in which our writer keeps the ids of rules, ingress first, one for each rule of the policy."""

TYPES: Mapping[Direction, str] = {Direction.INGRESS: "Ingress", Direction.EGRESS: "Egress"}
PROTOCOLS: Mapping[str, int] = {"TCP": TCP, "UDP": UDP, "SCTP": SCTP}
_PEERS = {Direction.INGRESS: "from", Direction.EGRESS: "to"}
_A_POLICY = "a network policy"


@dataclass(frozen=True, slots=True)
class _Document:
    """One document of a text.

    Errors about it get its line, which JSON does not tell.
    """

    text: str
    number: int
    is_json: bool

    def within(self, work: Callable[[], _T]) -> _T:
        """Do work; its errors get this document's line as their place."""
        try:
            return work()
        except AclflowError as error:
            if not self.is_json:
                line = f"line {line_of(self.text, error.place or '', self.number)}"
                error.place = f"{line}, {error.place}" if error.place else line
            raise


@dataclass(frozen=True, slots=True)
class _Policy:
    """A policy: its selector as text, its directions, and its rules with their ids."""

    document: _Document
    namespace: str
    selector: str
    directions: frozenset[Direction]
    rules: Mapping[Direction, Sequence[tuple[Node, str | None]]]


def read_kubernetes(text: str, name: str, options: Options) -> Imported:
    """Read the policies that the options name, or all that select the same pods.

    Raises BadInput with a place such as ``line 7, spec.ingress[0].ports[1].port``.
    """
    notes = Notes()
    policies = _policies(text, notes)
    selected = {(policy.namespace, policy.selector) for policy in policies.values()}
    if not options.lists and len(selected) == 1:
        chosen: Sequence[Chosen[_Policy]] = [Chosen(key, policy, None) for key, policy in policies.items()]
    else:
        chosen = choose(policies, options, _A_POLICY)
    return _read_policies(chosen, name, options, notes)


def read_all_kubernetes(text: str, name: str, options: Options) -> Mapping[str, Imported]:
    """Read every policy by itself, by its namespace and name."""
    notes = Notes()
    policies = _policies(text, notes)
    return {
        key: _read_policies([Chosen(key, policy, None)], name, options, Notes()) for key, policy in policies.items()
    }


def _read_policies(chosen: Sequence[Chosen[_Policy]], file: str, options: Options, notes: Notes) -> Imported:
    assembler = Assembler(file, notes, max_rules=options.max_rules)
    defaults: dict[Direction, Action] = {}
    for direction in Direction:
        about = [one for one in chosen if direction in one.found.directions and one.direction in (None, direction)]
        defaults[direction] = Action.DENY if about else Action.PERMIT
        clauses = [one.found.document.within(partial(_make_clauses, one, direction, options)) for one in about]
        assembler.add(list(itertools.chain.from_iterable(clauses)), direction)
        if not about:
            notes.add(f"no policy is about {direction.value}: there everything may pass")
    notes.add(f"read is what these policies permit together: {', '.join(one.name for one in chosen)}")
    notes.add("replies pass in Kubernetes; here they need the domain's return traffic or rules of their own")
    acl = assembler.acl(ingress_default=defaults[Direction.INGRESS], egress_default=defaults[Direction.EGRESS])
    return Imported(acl, assembler.losses(), notes.taken_notes())


def _policies(text: str, notes: Notes) -> dict[str, _Policy]:
    """The policies of a text, by namespace and name."""
    is_json = text.lstrip()[:1] in ("{", "[")
    documents = [load_json(text)] if is_json else load_documents(text)
    found: dict[str, _Policy] = {}
    for number, value in enumerate(documents):
        document = _Document(text, number, is_json)
        document.within(partial(_add_policies, found, document, Node(value), notes))
    if not found:
        raise BadInput("there is no network policy in it")
    return found


def _list_items(document: Node) -> list[Node]:
    if isinstance(document.value, list):
        return document.items()
    kind = document.member("kind")
    if kind is not None and kind.value in ("List", f"{KIND}List"):
        return document.members("items")
    return [document]


def _add_policies(found: dict[str, _Policy], document: _Document, root: Node, notes: Notes) -> None:
    for node in _list_items(root):
        _add_policy(found, document, node, notes)


def _add_policy(found: dict[str, _Policy], document: _Document, node: Node, notes: Notes) -> None:
    kind = node.needed("kind").text()
    if kind != KIND:
        if kind.endswith(KIND):
            raise node.fault(f"a {kind[:40]} may decide before network policies do, and is not read: leave it out")
        notes.add(f"{kind[:40]} is no network policy and is left out")
        return
    version = node.needed("apiVersion")
    if version.text() != API_VERSION:
        raise version.fault(f"only {API_VERSION} is read")
    metadata = node.needed("metadata")
    namespace = metadata.member("namespace")
    home = "default" if namespace is None else namespace.text()
    key = f"{home}/{metadata.needed('name').text()}"
    if key in found:
        raise metadata.fault(f"{key[:80]} stands in the text twice")
    spec = node.needed("spec")
    unknown = spec.unknown({"podSelector", "policyTypes", "ingress", "egress"})
    if unknown:
        raise spec.fault(unknown[0])
    selector = spec.member("podSelector")
    rules = {direction: spec.members(direction.value) for direction in Direction}
    ids = _read_ids(metadata, sum(map(len, rules.values())))
    split = len(rules[Direction.INGRESS])
    found[key] = _Policy(
        document=document,
        namespace=home,
        selector="" if selector is None else _labels(selector),
        directions=_directions(spec),
        rules={
            Direction.INGRESS: list(zip(rules[Direction.INGRESS], ids[:split], strict=True)),
            Direction.EGRESS: list(zip(rules[Direction.EGRESS], ids[split:], strict=True)),
        },
    )


def _read_ids(metadata: Node, count: int) -> Sequence[str | None]:
    annotations = metadata.member("annotations")
    node = None if annotations is None else annotations.member(IDS)
    ids = node.text().split() if node is not None else []
    return ids if len(ids) == count else [None] * count


def _directions(spec: Node) -> frozenset[Direction]:
    """`policyTypes`; without them ingress, and egress if there are rules for it."""
    types = spec.members("policyTypes")
    if not types:
        return frozenset({Direction.INGRESS} | ({Direction.EGRESS} if spec.members("egress") else set()))
    found = set()
    for node in types:
        direction = next((direction for direction, name in TYPES.items() if name == node.text()), None)
        if direction is None:
            raise node.fault("a policy type is Ingress or Egress")
        found.add(direction)
    return frozenset(found)


def _make_clauses(policy: Chosen[_Policy], direction: Direction, options: Options) -> Sequence[Clause]:
    found: list[Clause] = []
    for number, (rule, identity) in enumerate(policy.found.rules[direction], 1):
        reasons = rule.unknown({"ports", _PEERS[direction]})
        peers: Sequence[Node | None] = rule.members(_PEERS[direction]) or [None]
        services, unclear = _services(rule)
        for peer in peers:
            far, unexplained = (EVERYWHERE, []) if peer is None else _peer(peer, policy.found.namespace, options)
            source, destination = (far, EVERYWHERE) if direction is Direction.INGRESS else (EVERYWHERE, far)
            place = rule.place if peer is None else peer.place
            text = f"{policy.name}: {place}"
            line = Clause(Action.PERMIT, (), (), (), number, text, direction.value, identity)
            doubts = tuple(Doubt(number, text, reason) for reason in (*reasons, *unexplained))
            if services:
                found += by_version(_add_doubts(line, doubts), services, source, destination)
            for axes, reason in unclear:
                named = (*doubts, Doubt(number, text, reason))
                found += by_version(_add_doubts(line, named), [axes], source, destination)
    return found


def _add_doubts(line: Clause, doubts: tuple[Doubt, ...]) -> Clause:
    return Clause(line.action, (), (), doubts, line.line, line.text, line.label, line.marker)


def _services(rule: Node) -> tuple[list[Axes], list[tuple[Axes, str]]]:
    """Return what the ports of a rule permit, and unreadable ports with reasons."""
    ports = rule.members("ports")
    clear: list[Axes] = [] if ports else [{}]
    unclear: list[tuple[Axes, str]] = []
    for node in ports:
        protocol = node.member("protocol")
        word = "TCP" if protocol is None else protocol.text()
        if word not in PROTOCOLS:
            raise node.fault("a protocol is TCP, UDP or SCTP")
        axes: Axes = {"protocols": 1 << PROTOCOLS[word]}
        port, end = node.member("port"), node.member("endPort")
        if port is not None and isinstance(port.value, str):
            unclear.append((axes, f"which port is called {port.shown()} is a matter of each pod"))
            continue
        if port is None and end is not None:
            raise end.fault("an end of a range without its beginning")
        if port is not None:
            low = port.number(0, HIGHEST_PORT)
            high = low if end is None else end.number(low, HIGHEST_PORT)
            if (low, high) != (0, HIGHEST_PORT):
                axes |= {"destination_ports": (Span(low, high),), "fragments": WHOLE}
        unknown = node.unknown({"protocol", "port", "endPort"})
        if unknown:
            unclear.append((axes, unknown[0]))
        else:
            clear.append(axes)
    return clear, unclear


def _peer(peer: Node, namespace: str, options: Options) -> tuple[Sides, list[str]]:
    """Return the addresses of a peer, and why they may be incomplete."""
    block = peer.member("ipBlock")
    pods, namespaces = peer.member("podSelector"), peer.member("namespaceSelector")
    unknown = peer.unknown({"ipBlock", "podSelector", "namespaceSelector"})
    if block is not None:
        if pods is not None or namespaces is not None:
            raise peer.fault("a peer is either a block of addresses or selected by labels")
        unknown += block.unknown({"cidr", "except"})
        return _read_block(block), unknown
    if pods is None and namespaces is None:
        return EVERYWHERE, unknown or ["a peer that says nothing"]
    home = namespace if namespaces is None else f"namespaces[{_labels(namespaces)}]"
    name = home if pods is None else f"{home}/pods[{_labels(pods)}]"
    known = options.addresses.get(name)
    if known is not None:
        return sides_of_prefixes(known), unknown
    return EVERYWHERE, [
        *unknown,
        f"which addresses are {name[:120]} is not in the text; --address NAME=PREFIX tells it",
    ]


def _read_block(block: Node) -> Sides:
    cidr = block.needed("cidr")
    family = Family.IPV6 if ":" in cidr.text() else Family.IPV4
    found = cidr.within(partial(_read_spans, cidr, family))
    holes = [node.within(partial(_read_spans, node, family)) for node in block.members("except")]
    left = spans.minus(found, spans.union(span for hole in holes for span in hole))
    return sides_of((family, span) for span in left)


def _read_spans(node: Node, family: Family) -> Spans:
    return prefix_spans(node.text(), family)


def _labels(selector: Node) -> str:
    """A selector as `kubectl get --selector` takes it, its parts in order."""
    unknown = selector.unknown({"matchLabels", "matchExpressions"})
    if unknown:
        raise selector.fault(unknown[0])
    labels = selector.member("matchLabels")
    parts = [] if labels is None else [f"{key}={labels.needed(key).text()}" for key in labels.object()]
    parts += [_read_expression(node) for node in selector.members("matchExpressions")]
    return ",".join(sorted(parts))


def _read_expression(node: Node) -> str:
    unknown = node.unknown({"key", "operator", "values"})
    if unknown:
        raise node.fault(unknown[0])
    key, operator = node.needed("key").text(), node.needed("operator")
    values = ",".join(sorted(value.text() for value in node.members("values")))
    words = {
        "In": f"{key} in ({values})",
        "NotIn": f"{key} notin ({values})",
        "Exists": key,
        "DoesNotExist": f"!{key}",
    }
    if operator.text() not in words:
        raise operator.fault(f"an operator is one of {', '.join(words)}")
    return words[operator.text()]
