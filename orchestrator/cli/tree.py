"""The commands as data: name, a line of help, and where the function lives.

`lazy.py` makes the real thing of it. A target is ``module:function`` in `orchestrator.cli`, or has the whole name of
its module, as ``orchestrator.lab.commands:app``: a Typer application with commands of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from orchestrator.cli.branches.access import AUDIT, CERTIFICATES, CONTEXT, DATABASE, TOKEN
from orchestrator.cli.branches.lists import ACL, GROUP, OPERATOR_RULE, PROPOSAL, TENANT
from orchestrator.cli.branches.planes import (
    DOMAIN,
    FIREWALL,
    FLEET,
    HOST,
    OPENSTACK,
    PLAN,
    POP,
    SPREAD,
    STATESYNC,
    UPLINK,
)
from orchestrator.cli.branches.shape import Branch, Leaf, Moved

SYNONYMS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "delete": ("remove", "revoke"),
        "remove": ("delete", "revoke"),
        "rm": ("delete", "remove", "revoke"),
        "destroy": ("delete", "remove"),
        "create": ("add",),
        "new": ("create", "add"),
        "add": ("create",),
        "set": ("put",),
        "update": ("set", "put"),
        "edit": ("set", "put"),
        "modify": ("set", "put"),
        "change": ("set", "put"),
        "clear": ("delete",),
        "ls": ("list",),
        "describe": ("show",),
        "history": ("versions",),
        "plan": ("review",),
        "validate": ("check",),
        "rollback": ("restore",),
        "project": ("tenant",),
        "projects": ("tenant",),
    }
)
"""Words of other tools, each taken for the first of these that a group has, where it has not the word itself."""

VERBS = frozenset({"get", "list", "show", "set", "apply"})
"""Verbs that other tools put before the noun."""


TREE = Branch(
    "aclflow",
    "Tenants say which traffic they permit; aclflow keeps that promise on real data planes.",
    (
        ACL,
        TENANT,
        GROUP,
        DOMAIN,
        OPERATOR_RULE,
        PROPOSAL,
        HOST,
        UPLINK,
        FIREWALL,
        FLEET,
        OPENSTACK,
        SPREAD,
        STATESYNC,
        POP,
        PLAN,
        TOKEN,
        AUDIT,
        CONTEXT,
        CERTIFICATES,
        Leaf("replay", "Show what a list would have decided about recorded traffic.", "replay:replay"),
        Leaf("devices", "List the devices that packets can be classified on.", "devices:devices"),
        Leaf("status", "Show what is not as it should be, and what helps.", "status:status"),
        Leaf("top", "Show the rules that decide most, live.", "top:top"),
        Leaf("events", "Show what happened, and what happens.", "events:events"),
        Leaf("serve", "Run the service: REST interface and control loops.", "service:serve"),
        Leaf("console", "Run the web console, beside the service.", "console:console"),
        Leaf("controller", "Run the OpenFlow controller of a domain.", "controller:controller"),
        Leaf("agent", "Run the agent of a firewall VNF, inside it.", "agent:agent"),
        DATABASE,
        Leaf("lab", "A point of presence on this machine, in network namespaces.", "orchestrator.lab.commands:app"),
        Leaf("demo", "See real packets meet a real access list, on this machine.", "orchestrator.lab.commands:demo"),
        Leaf("bench", "Measure, and put the figures beside their targets.", "bench:bench"),
    ),
    (
        Moved("rule", "acl rule ..."),
        Moved("rules", "acl rule ..."),
        Moved("prefix", "tenant prefix ..."),
        Moved("quota", "tenant quota ..."),
        Moved("placement", "domain placement ..."),
        Moved("apply", "acl apply ..."),
        Moved("check", "acl check ..."),
        Moved("diff", "acl diff ..."),
        Moved("trace", "acl trace ..."),
        Moved("login", "context add ..."),
        Moved("logout", "context delete ..."),
        Moved("config", "context list"),
        Moved("whoami", "token show"),
        Moved("version", "--version"),
        Moved("security", "acl show TENANT"),
        Moved("security-group", "acl show TENANT"),
        Moved("networkpolicy", "acl show TENANT"),
    ),
)
