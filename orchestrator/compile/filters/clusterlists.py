"""A domain's lists as rows of its firewalls' program, for firewalls that share their connections.

The compiled filter decides about packets. A member of a cluster is to close connections, so it needs the lists
themselves (`statesync/lists.py`). They are rows like the filter's, so they come in the same delta as the filter that
was compiled from them, and are kept on the same disk:

    key     match         ``operator``, ``tenant shop``
    value   instructions  JSON: the operator's rules; a tenant's prefixes and its list in the native format

Each rule is a line of its own, so that edits of a program (`program/edits.py`) carry one changed rule and no more.

A connection is asked about by the packet that opened it, and the cluster keeps no DSCP of it: such rules are refused.
The filter in front asks each packet by its own match, so a rule's `stateless` means nothing where replies come in by
what they look like, and is left out; where the domain tracks connections, such rules are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import orjson

from orchestrator.compile.filters.filterrows import named_row
from orchestrator.errors import BadPolicy
from orchestrator.policy.connections import check_trackable
from orchestrator.policy.formats.native import acl_text, rule_to_json
from orchestrator.policy.model import Policy, ReturnTraffic, Rule, Tenant
from orchestrator.program.flows import Flow

LISTS = 14
"""The `table` of these rows, which is no filter's."""
OPERATOR = "operator"
_TENANT = "tenant "


def cluster_rows(policy: Policy) -> Iterator[Flow]:
    """Yield a row for the operator's rules, and one for each tenant's list.

    To be asked with the policy as it is, also where the filter does not track connections. Raises BadPolicy with the
    place of a rule that `check_shared` refuses.
    """
    check_shared(policy)
    yield list_row(OPERATOR, write_rules([rule_to_json(rule) for rule in policy.operator]))
    for tenant in policy.tenants:
        yield tenant_row(_document_of(tenant))


def check_shared(policy: Policy) -> None:
    """Refuse rules that a cluster of firewalls cannot ask about connections.

    Raises BadPolicy with the rule's place.
    """
    if policy.return_traffic is ReturnTraffic.TRACKED:
        check_trackable(policy)
    _refuse_dscp(policy.operator, "operator")
    for tenant in policy.tenants:
        _refuse_dscp(tenant.acl.rules, f"tenants[{tenant.id}].acl.rules")


def tenant_row(document: Mapping[str, Any]) -> Flow:
    """Return the row of a tenant's `tenant`, `prefixes` and `acl`."""
    acl = {**document["acl"], "rules": []}
    acl_start = orjson.dumps(acl).removesuffix(b"[]}").decode()
    head = orjson.dumps({"tenant": document["tenant"], "prefixes": document["prefixes"]}).decode()[:-1]
    text = f'{head},"acl":{acl_start}{write_rules(document["acl"]["rules"])}}}}}'
    return list_row(_TENANT + document["tenant"], text)


def tenant_key(tenant: Tenant) -> Flow:
    """Return a row with the key of a tenant's row."""
    return list_row(_TENANT + tenant.id, "")


def write_rules(rules: Iterable[Mapping[str, Any]]) -> str:
    """Return rules as a JSON list, one a line, without `stateless`."""
    lines = [orjson.dumps({key: value for key, value in rule.items() if key != "stateless"}).decode() for rule in rules]
    return "[\n" + ",\n".join(lines) + "\n]"


def list_row(name: str, text: str) -> Flow:
    """Return the row of one text."""
    return named_row(LISTS, name, text)


def _document_of(tenant: Tenant) -> dict[str, Any]:
    return {
        "tenant": tenant.id,
        "prefixes": [str(prefix) for prefix in tenant.prefixes],
        "acl": orjson.loads(acl_text(tenant.acl)),
    }


def _refuse_dscp(rules: Sequence[Rule], place: str) -> None:
    for position, rule in enumerate(rules):
        if rule.dscp is not None:
            text = f"rule '{rule.id}' looks at DSCP, which firewalls that share connections do not keep of these"
            raise BadPolicy(f"{text}; leave `dscp` out", place=f"{place}[{position}]")
