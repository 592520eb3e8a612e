"""Write a list as one network policy: permits only, by address blocks and ports.

Denied packets are taken out of the permits below the deny (see `permits_only`). A policy has no room for descriptions;
the ids go into an annotation.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

from orchestrator.policy.formats.formatlimits import Limit, add_lines, all_may_pass, without_icmp_type
from orchestrator.policy.formats.kubernetes.read import API_VERSION, IDS, KIND, PROTOCOLS, TYPES
from orchestrator.policy.formats.one_sided import LIMITS, Draft, Service, far_prefixes, reduce_permits, services_of
from orchestrator.policy.formats.results import Exported
from orchestrator.policy.model import Acl, Direction, Rule
from orchestrator.policy.protocols import WITH_PORTS
from orchestrator.policy.space import Box

_PORTED = Limit(
    "Kubernetes knows tcp, udp and sctp",
    lambda rule: rule.protocol is not None and rule.protocol not in WITH_PORTS,
    lambda rule: replace(without_icmp_type(rule), protocol=None),
)
_WORDS = {number: word for word, number in PROTOCOLS.items()}
_PEERS = {Direction.INGRESS: "from", Direction.EGRESS: "to"}

Json = dict[str, object]


def write_kubernetes(acl: Acl) -> Exported:
    """A list as a policy for all pods of its namespace, as YAML."""
    draft = Draft(acl, "kubernetes", (*LIMITS, _PORTED))
    spoken = [direction for direction in Direction if not all_may_pass(acl, direction)] or [Direction.INGRESS]
    found: dict[Direction, list[tuple[str, Json]]] = {direction: [] for direction in spoken}
    for direction in spoken:
        for rule, boxes in reduce_permits(draft.rules(direction), acl):
            add_lines(found[direction], _write_rules(rule, boxes, direction, draft), rule.id)
            if rule.description:
                draft.notes.add("a policy has no room for descriptions")
    ids = [identity for direction in spoken for identity, _ in found[direction]]
    lines = [
        f"apiVersion: {API_VERSION}",
        f"kind: {KIND}",
        "metadata:",
        "  name: aclflow",
        *(["  annotations:", f"    {IDS}: {json.dumps(' '.join(ids))}"] if ids else []),
        "spec:",
        "  podSelector: {}",
        f"  policyTypes: [{', '.join(TYPES[direction] for direction in spoken)}]",
    ]
    for direction in spoken:
        lines += [f"  {direction.value}:"] if found[direction] else [f"  {direction.value}: []"]
        lines += [f"  - {json.dumps(rule)}" for _, rule in found[direction]]
    return Exported("\n".join(lines) + "\n", tuple(draft.losses), draft.notes.on_rules())


def _write_rules(rule: Rule, boxes: Sequence[Box], direction: Direction, draft: Draft) -> Iterator[tuple[str, Json]]:
    for box in sorted(boxes):
        peers = [{"ipBlock": {"cidr": prefix}} for prefix in far_prefixes(box, direction)]
        services = list(draft.from_port_one(rule, services_of(box, WITH_PORTS)))
        if any(service.protocol not in (None, *WITH_PORTS) for service in services):
            draft.narrower(rule, _PORTED.reason)  # the denies above leave some protocols of it
        ports = [_write_port(service) for service in services if service.protocol in WITH_PORTS]
        if ports:
            yield rule.id, {_PEERS[direction]: peers, "ports": ports}
        elif any(service.protocol is None for service in services):
            yield rule.id, {_PEERS[direction]: peers}


def _write_port(service: Service) -> Json:
    body: Json = {"protocol": _WORDS[service.protocol or 0]}
    if service.low is not None:
        body["port"] = service.low
        if service.high != service.low:
            body["endPort"] = service.high
    return body
