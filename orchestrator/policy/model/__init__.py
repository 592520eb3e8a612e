"""The model: rules, address groups, access lists, and the cloud they belong to.

Everything here is frozen and valid from birth: whoever holds a `Rule` or an `Acl` holds a right one. Text is read
elsewhere (`formats/`); these classes refuse wrong values with the place inside the value (``source_ports``), and
readers put the outer place in front of it (``rules[3].source_ports``). A `Packet` is declared with
the fields that rules ask for (`../fields.py`).

    Policy ── tenants ── Tenant ── acl ── Acl ── rules ── Rule
       │                    └── prefixes          └── groups (named address sets)
       └── operator rules, return traffic

    givennames.py    ids and names, and which are refused
    rule.py          one line of a list
    acl.py           named address sets, lists, and the security domain of the tenants that have them
"""

from __future__ import annotations

from orchestrator.policy.fields import Packet
from orchestrator.policy.model.acl import (
    HIGHEST_PATH_MTU_RATE,
    PATH_MTU_RATE,
    Acl,
    AddressGroup,
    Endpoint,
    Policy,
    ReturnTraffic,
    Tenant,
    families,
    members,
    resolve,
    spans_of,
    trusted_acl,
)
from orchestrator.policy.model.givennames import RETURN_RULE_ID, GroupName, RuleId, TenantId, check_name
from orchestrator.policy.model.rule import SIDES, Action, Direction, Rule, with_sides

__all__ = [
    "HIGHEST_PATH_MTU_RATE",
    "PATH_MTU_RATE",
    "RETURN_RULE_ID",
    "SIDES",
    "Acl",
    "Action",
    "AddressGroup",
    "Direction",
    "Endpoint",
    "GroupName",
    "Packet",
    "Policy",
    "ReturnTraffic",
    "Rule",
    "RuleId",
    "Tenant",
    "TenantId",
    "check_name",
    "families",
    "members",
    "resolve",
    "spans_of",
    "trusted_acl",
    "with_sides",
]
