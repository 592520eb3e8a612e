"""A list as a Neutron security group, or as FWaaS v2 policies.

A security group only permits and names the far side only, so what is denied is taken out of the permits below it (see
`permits_only`). FWaaS keeps the order and both sides, and knows tcp, udp and icmp.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from orchestrator.policy.addresses import Family
from orchestrator.policy.formats.assemble import plain, with_marker
from orchestrator.policy.formats.formatlimits import (
    EXPIRES,
    NO_DSCP,
    NO_FLAGS,
    WHOLE_PACKETS,
    Limit,
    add_lines,
    versions,
    without_icmp_type,
)
from orchestrator.policy.formats.one_sided import Draft, Service, far_prefixes, reduce_permits, services_of
from orchestrator.policy.formats.openstack.groups import ETHERTYPES
from orchestrator.policy.formats.results import Exported
from orchestrator.policy.model import Acl, Action, Direction, Rule
from orchestrator.policy.ports import EVERY_PORT, PortRange
from orchestrator.policy.protocols import ICMP, ICMPV6, TCP, UDP, WITH_PORTS
from orchestrator.policy.space import Box

_LONGEST_DESCRIPTION = 255
_GROUP_PROTOCOLS = {TCP: "tcp", UDP: "udp", ICMP: "icmp", ICMPV6: "ipv6-icmp"}
_FIREWALL_PROTOCOLS = {None: None, TCP: "tcp", UDP: "udp", ICMP: "icmp", ICMPV6: "icmp"}

_FIREWALL_LIMITS = (
    EXPIRES,
    WHOLE_PACKETS,
    NO_FLAGS,
    NO_DSCP,
    Limit("ICMP types are not looked at", lambda rule: rule.icmp_type is not None, without_icmp_type),
    Limit(
        "FWaaS knows tcp, udp and icmp",
        lambda rule: rule.protocol not in _FIREWALL_PROTOCOLS,
        lambda rule: replace(rule, protocol=None, source_ports=EVERY_PORT, destination_ports=EVERY_PORT),
    ),
)

Json = Mapping[str, object]


def write_security_group(acl: Acl) -> Exported:
    """A list as one security group, as Neutron would show it."""
    draft = Draft(acl, "openstack-sg")
    found: list[Json] = []
    for direction in Direction:
        for rule, boxes in reduce_permits(draft.rules(direction), acl):
            add_lines(found, _write_group_rules(rule, boxes, direction, draft), rule.id)
    draft.notes.add("Neutron puts fragments together before it decides")
    group = {"id": "aclflow", "name": "aclflow", "security_group_rules": found}
    return _export_document({"security_groups": [group]}, draft)


def _write_group_rules(rule: Rule, boxes: Sequence[Box], direction: Direction, draft: Draft) -> Iterator[Json]:
    for box in sorted(boxes):
        services = _without_zero(rule, draft.from_port_one(rule, services_of(box, WITH_PORTS)), draft)
        for prefix, service in itertools.product(far_prefixes(box, direction), services):
            yield {
                "direction": direction.value,
                "ethertype": ETHERTYPES[box.family],
                "protocol": _spell_protocol(service),
                "port_range_min": service.low,
                "port_range_max": service.high,
                "remote_ip_prefix": prefix,
                "remote_group_id": None,
                "description": _write_description(rule),
            }


def _without_zero(rule: Rule, services: Iterable[Service], draft: Draft) -> Iterator[Service]:
    """The services of a permit but for protocol 0, which Neutron takes for every protocol."""
    for service in services:
        if service.protocol == 0:
            draft.narrower(rule, "protocol 0 is every protocol in Neutron")
        else:
            yield service


def _spell_protocol(service: Service) -> str | None:
    if service.protocol is None:
        return None
    return _GROUP_PROTOCOLS.get(service.protocol, str(service.protocol))


def write_firewalls(acl: Acl) -> Exported:
    """Write a list as a Neutron firewall group with one policy per direction."""
    draft = Draft(acl, "openstack-fwaas", _FIREWALL_LIMITS, only_permits=False)
    rules: list[Json] = []
    policies: list[Json] = []
    for direction in Direction:
        own: list[Json] = []
        for rule in draft.rules(direction):
            add_lines(own, _write_firewall_rules(rule, acl), rule.id)
        own = [{"id": f"{direction.value}-{place}", **body} for place, body in enumerate(own, 1)]
        rules += own
        policies.append({"id": direction.value, "name": direction.value, "firewall_rules": [one["id"] for one in own]})
    group = {"id": "aclflow", "name": "aclflow"} | {
        f"{direction.value}_firewall_policy_id": direction.value for direction in Direction
    }
    return _export_document({"firewall_groups": [group], "firewall_policies": policies, "firewall_rules": rules}, draft)


def _write_firewall_rules(rule: Rule, acl: Acl) -> Iterator[Json]:
    for family in sorted(versions(rule, acl)):
        yield from (
            {
                "name": rule.id,
                "description": _write_description(rule),
                "action": "allow" if rule.action is Action.PERMIT else "deny",
                "enabled": True,
                "ip_version": family.value,
                "protocol": _FIREWALL_PROTOCOLS[rule.protocol],
                "source_ip_address": source,
                "destination_ip_address": destination,
                "source_port": _write_port(source_ports),
                "destination_port": _write_port(destination_ports),
            }
            for source, destination, source_ports, destination_ports in itertools.product(
                _write_prefixes(rule, "source", acl, family),
                _write_prefixes(rule, "destination", acl, family),
                rule.source_ports,
                rule.destination_ports,
            )
        )


def _write_prefixes(rule: Rule, side: str, acl: Acl, family: Family) -> list[str | None]:
    prefixes = acl.prefixes(rule.source if side == "source" else rule.destination, family)
    return [str(prefix) if prefix.length else None for prefix in prefixes]


def _write_port(ports: PortRange) -> str | None:
    if (ports,) == EVERY_PORT:
        return None
    return str(ports).replace("-", ":")


def _write_description(rule: Rule) -> str:
    return plain(with_marker(rule), _LONGEST_DESCRIPTION)


def _export_document(document: Json, draft: Draft) -> Exported:
    text = json.dumps(document, indent=1, ensure_ascii=False)
    return Exported(text + "\n", tuple(draft.losses), draft.notes.on_rules())
