"""A list as an AWS security group, or as a network ACL.

Both name the far side only, look at no source ports and at no TCP flags, and at ports of tcp and udp alone. A security
group only permits, so what is denied is taken out of the permits below it (see `permits_only`); a rule's id and
description go into the descriptions of its ranges. A network ACL keeps the order and has no room for ids.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from orchestrator.errors import TooLarge
from orchestrator.policy.addresses import Family
from orchestrator.policy.formats.assemble import plain, with_marker
from orchestrator.policy.formats.aws.acls import BLOCKS, LAST_NUMBER
from orchestrator.policy.formats.aws.groups import PERMISSIONS, RANGES
from orchestrator.policy.formats.aws.services import EVERY, PORTED, ends_of, word_of
from orchestrator.policy.formats.formatlimits import Limit, add_lines
from orchestrator.policy.formats.one_sided import LIMITS, Draft, Service, far_prefixes, reduce_permits, services_of
from orchestrator.policy.formats.results import Exported
from orchestrator.policy.model import Acl, Action, Direction, Rule
from orchestrator.policy.ports import EVERY_PORT
from orchestrator.policy.protocols import ICMP, ICMPV6
from orchestrator.policy.space import Box, boxes_of

Json = Mapping[str, object]
GROUP_ID, ACL_ID = "sg-aclflow", "acl-aclflow"
_NOT_IN_DESCRIPTIONS = re.compile(r"[^A-Za-z0-9 ._:/()#,@\[\]+=&;{}!$*-]")
_LONGEST_DESCRIPTION = 255


_PORTS = Limit(
    "only tcp and udp have ports here",
    lambda rule: rule.destination_ports != EVERY_PORT and rule.protocol not in PORTED,
    lambda rule: replace(rule, destination_ports=EVERY_PORT),
)
_LIMITS = (*LIMITS, _PORTS)
_WHOLE_PACKETS = "AWS decides about later fragments as about the first one of their packet"


def write_security_group(acl: Acl) -> Exported:
    """A list as one security group, as `describe-security-groups` would show it."""
    draft = Draft(acl, "aws-sg", _LIMITS)
    body: dict[str, object] = {"GroupId": GROUP_ID, "GroupName": "aclflow", "Description": "written by aclflow"}
    for direction, key in PERMISSIONS.items():
        found: list[Json] = []
        for rule, boxes in reduce_permits(draft.rules(direction), acl):
            add_lines(found, _permissions(rule, boxes, direction), rule.id)
        body[key] = found
    return _export_document({"SecurityGroups": [body]}, draft)


def write_network_acl(acl: Acl) -> Exported:
    """Write a list as one network ACL in the form of `describe-network-acls`.

    Raises TooLarge if there are more entries than AWS has numbers.
    """
    draft = Draft(acl, "aws-nacl", _LIMITS, only_permits=False)
    entries: list[Json] = []
    for direction in Direction:
        found: list[Json] = []
        for rule in draft.rules(direction):
            add_lines(found, _write_entries(rule, acl, direction), rule.id)
        if len(found) >= LAST_NUMBER:
            raise TooLarge(f"it takes {len(found)} entries for {direction.value}; a network ACL has {LAST_NUMBER - 1}")
        step = min(100, max(1, (LAST_NUMBER - 1) // (len(found) + 1)))
        entries += [{"RuleNumber": number * step, **entry} for number, entry in enumerate(found, 1)]
        entries += [
            {
                "RuleNumber": LAST_NUMBER + place,
                **_write_entry(Action.DENY, direction, Service(None)),
                BLOCKS[family]: block,
            }
            for place, (family, block) in enumerate(((Family.IPV4, "0.0.0.0/0"), (Family.IPV6, "::/0")))
        ]
    draft.notes.add("a network ACL has no room for ids and descriptions")
    return _export_document({"NetworkAcls": [{"NetworkAclId": ACL_ID, "Entries": entries}]}, draft)


def _export_document(document: Json, draft: Draft) -> Exported:
    draft.notes.add(_WHOLE_PACKETS)
    return Exported(json.dumps(document, indent=1) + "\n", tuple(draft.losses), draft.notes.on_rules())


def _permissions(rule: Rule, boxes: Sequence[Box], direction: Direction) -> Iterator[Json]:
    """The permissions that permit some boxes, those of IPv4 first."""
    description = _description(rule)
    for box in sorted(boxes):
        list_key, key = RANGES[box.family]
        ranges = [{key: prefix, "Description": description} for prefix in far_prefixes(box, direction)]
        empty: Json = {other: [] for other, _ in RANGES.values()}
        for service in services_of(box, PORTED):
            low, high = ends_of(service)
            ends = {} if service.protocol is None else {"FromPort": low, "ToPort": high}
            yield {"IpProtocol": word_of(service.protocol), **ends, **empty, list_key: ranges}


def _write_entries(rule: Rule, acl: Acl, direction: Direction) -> Iterator[Json]:
    for box in sorted(boxes_of(rule, acl.groups)):
        for prefix in far_prefixes(box, direction):
            for service in services_of(box, PORTED):
                yield {**_write_entry(rule.action, direction, service), BLOCKS[box.family]: prefix}


def _write_entry(action: Action, direction: Direction, service: Service) -> Json:
    low, high = ends_of(service)
    further: Json = {}
    if service.protocol in PORTED:
        further = {"PortRange": {"From": low, "To": high}}
    elif service.protocol in (ICMP, ICMPV6):
        further = {"IcmpTypeCode": {"Type": low, "Code": high}}
    return {
        "Egress": direction is Direction.EGRESS,
        "Protocol": EVERY if service.protocol is None else str(service.protocol),
        "RuleAction": "allow" if action is Action.PERMIT else "deny",
        **further,
    }


def _description(rule: Rule) -> str:
    """A rule's id and description in the letters that AWS takes."""
    return plain(_NOT_IN_DESCRIPTIONS.sub(" ", with_marker(rule)), _LONGEST_DESCRIPTION)
