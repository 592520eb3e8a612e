"""The commands as data: name, a line of help, and where the function lives.

`lazy.py` makes the real thing of it. A target is ``module:function`` in `orchestrator.cli`, or has the whole name of
its module, as ``orchestrator.lab.commands:app``: a Typer application with commands of its own. Groups of commands about
access lists, and about what enforces them, are in `branches/`; the others are here.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from orchestrator.cli.branches.lists import ACL, GROUP, OPERATOR_RULE, PROPOSAL, TENANT
from orchestrator.cli.branches.planes import (
    DOMAIN,
    FIREWALL,
    FLEET,
    HOST,
    OPENSTACK,
    PASSAGE,
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


TOKEN = Branch(
    "token",
    "Tokens that requests are made with.",
    (
        Leaf("create", "Make a token.", "tokens:create"),
        Leaf("list", "List every token, without secrets.", "tokens:list_all"),
        Leaf("show", "Show what the token in use may do.", "tokens:show"),
        Leaf("rotate", "Replace a token; for a while both are good.", "tokens:rotate"),
        Leaf("revoke", "Make a token invalid, at once.", "tokens:revoke"),
    ),
)

AUDIT = Branch(
    "audit",
    "The record of what was done and by whom, and proof that it was not changed.",
    (
        Leaf("list", "List what was done, and what was refused.", "audit:list_all"),
        Leaf("show", "Show one entry with its digests.", "audit:show"),
        Leaf("export", "Write the trail as lines of JSON.", "audit:export"),
        Leaf("verify", "Find entries that were changed, moved, deleted or cut off.", "audit:verify"),
    ),
)

CONTEXT = Branch(
    "context",
    "Services by name, with their tokens.",
    (
        Leaf("add", "Keep a service under a name, and use it.", "contexts:add"),
        Leaf("use", "Use a context from now on.", "contexts:use"),
        Leaf("list", "List the contexts.", "contexts:list_all"),
        Leaf("show", "Show where a context leads.", "contexts:show"),
        Leaf("delete", "Forget a context and its token.", "contexts:delete"),
    ),
)

CERTIFICATES = Branch(
    "certificates",
    "The service's certificate authority, and the certificates that it issued.",
    (
        Leaf("init", "Make the service's certificate authority.", "certificates:init"),
        Leaf("show", "Show the authority of the service on this machine.", "certificates:show"),
        Leaf("rotate", "Roll the service's authority over to a new one.", "certificates:rotate"),
        Leaf("authority", "Get the authority's certificate from the service.", "certificates:authority"),
        Leaf("request", "Make a key and a certificate request on this machine.", "certificates:request"),
        Leaf("issue", "Have a switch's request signed.", "certificates:issue"),
        Leaf("enrol", "Have a switch's request signed for a one-time token.", "certificates:enrol"),
        Leaf("console", "Sign a web console's request.", "certificates:console"),
        Leaf("list", "List what was issued.", "certificates:list_all"),
        Leaf("revoke", "Make a certificate invalid, at once.", "certificates:revoke"),
    ),
)

DATABASE = Branch(
    "db",
    "The service's database.",
    (
        Leaf("upgrade", "Bring the database to this program's schema.", "service:upgrade"),
        Leaf("token", "Make a token straight in the database: the first one.", "service:create_token"),
        Leaf("backup", "Write all that the service knows to a file, while it runs.", "backup:backup"),
        Leaf("backup-key", "Make a key that opens encrypted backups.", "backup:backup_key"),
        Leaf("restore", "Put a backup back, also into the other kind of database.", "backup:restore"),
    ),
)


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
        PASSAGE,
        STATESYNC,
        POP,
        PLAN,
        TOKEN,
        AUDIT,
        CONTEXT,
        CERTIFICATES,
        Leaf("replay", "Show what a list would have decided about recorded traffic.", "replay:replay"),
        Leaf("devices", "List the devices that packets can be classified on.", "devices:devices"),
        Leaf("status", "Show what is not as it should be, and what helps.", "events:status"),
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
