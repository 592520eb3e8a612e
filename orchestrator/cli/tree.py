"""What commands there are, as data: name, what it does in a line, and where its function lives.

`lazy.py` makes the real thing of it. A target is ``module:function`` (a Typer command) or ``module:app`` (a Typer
application with commands of its own).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Leaf:
    """A command."""

    name: str
    summary: str
    target: str


@dataclass(frozen=True, slots=True)
class Branch:
    """A group of commands."""

    name: str
    summary: str
    children: tuple[Leaf | Branch, ...]


_CLI = "orchestrator.cli"

ACL = Branch(
    "acl",
    "Access lists: in files, without any service, and at a service.",
    (
        Leaf(
            "import", "Read lists of other formats and write them as native JSON.", f"{_CLI}.acl_convert:import_lists"
        ),
        Leaf("export", "Write a list in another format.", f"{_CLI}.acl_convert:export_list"),
        Leaf("check", "Find rules that are shadowed, redundant, in conflict, too wide.", f"{_CLI}.acl_check:check"),
        Leaf("diff", "Show which packets a change permits or denies.", f"{_CLI}.acl_diff:diff"),
        Leaf("trace", "Show which rule of a list decides a packet.", f"{_CLI}.acl_trace:trace"),
        Leaf("blame", "Show which version of a list opened or closed a packet.", f"{_CLI}.acl_history:blame"),
        Leaf(
            "bisect",
            "Find two neighbouring versions that disagree about a packet, reading few of many.",
            f"{_CLI}.acl_history:bisect_versions",
        ),
        Leaf("apply", "Make a file a tenant's list and wait until it is enforced.", f"{_CLI}.acl_service:apply"),
        Leaf("review", "Try a file against a tenant's list without changing it.", f"{_CLI}.acl_service:review"),
        Leaf("show", "Show a tenant's list.", f"{_CLI}.acl_service:show"),
        Leaf("versions", "Show the history of a tenant's list.", f"{_CLI}.acl_service:versions"),
        Leaf("cost", "Show what lists cost on each kind of device.", f"{_CLI}.acl_cost:cost"),
        Leaf("hits", "Show how often each rule of a tenant decided.", f"{_CLI}.acl_hits:hits"),
        Leaf("unused", "Show which rules decided nothing, and how sure that is.", f"{_CLI}.acl_hits:unused"),
    ),
)

TENANT = Branch(
    "tenant",
    "Tenants and the prefixes they own.",
    (
        Leaf("create", "Make a tenant.", f"{_CLI}.tenants:create"),
        Leaf("list", "List the tenants that you may see.", f"{_CLI}.tenants:list_all"),
        Leaf("delete", "Delete a tenant, its prefixes and its list.", f"{_CLI}.tenants:delete"),
        Leaf("trace", "Show what decides a packet of a tenant, as enforced.", f"{_CLI}.tenants:trace"),
        Leaf("quota", "Show what a tenant's list may cost, and what it does.", f"{_CLI}.tenant_lists:quota"),
        Leaf("set-quota", "Say what a tenant's list may cost.", f"{_CLI}.tenant_lists:set_quota"),
        Leaf("compare", "Show which packets fare otherwise since a version.", f"{_CLI}.tenant_lists:compare"),
        Leaf("restore", "Make a list again what it was at a version.", f"{_CLI}.tenant_lists:restore"),
        Leaf("blame", "Show since which version a packet is decided as now.", f"{_CLI}.tenant_lists:blame"),
        Leaf("bisect", "Find neighbouring versions that disagree about a packet.", f"{_CLI}.tenant_lists:bisect"),
        Leaf("add-prefix", "Give a tenant a prefix.", f"{_CLI}.tenants:add_prefix"),
        Leaf("remove-prefix", "Take a prefix from a tenant.", f"{_CLI}.tenants:remove_prefix"),
    ),
)

GROUP = Branch(
    "group",
    "Address groups of a tenant's list: named sets of prefixes that its rules point to.",
    (
        Leaf("list", "List the groups.", f"{_CLI}.groups:list_all"),
        Leaf("show", "Show the members of a group.", f"{_CLI}.groups:show"),
        Leaf("put", "Make a group of these members and no others.", f"{_CLI}.groups:put"),
        Leaf("add", "Add members.", f"{_CLI}.groups:add"),
        Leaf("remove", "Remove members.", f"{_CLI}.groups:remove"),
        Leaf("delete", "Delete a group that no rule names any more.", f"{_CLI}.groups:delete"),
    ),
)

DOMAIN = Branch(
    "domain",
    "Security domains: their hosts, endpoints and enforcers.",
    (
        Leaf("create", "Make a domain.", f"{_CLI}.domains:create"),
        Leaf("list", "List the domains.", f"{_CLI}.domains:list_all"),
        Leaf("show", "Show a domain's hosts, endpoints and enforcers.", f"{_CLI}.domains:show"),
        Leaf("add-host", "Bring a host into a domain.", f"{_CLI}.domains:add_host"),
        Leaf("remove-host", "Take a host out of a domain.", f"{_CLI}.domains:remove_host"),
        Leaf("add-endpoint", "Say where a tenant's network port is.", f"{_CLI}.domains:add_endpoint"),
        Leaf("remove-endpoint", "Forget a tenant's network port.", f"{_CLI}.domains:remove_endpoint"),
        Leaf("invite", "Make a one-time token for an enforcer to enrol with.", f"{_CLI}.domains:invite"),
        Branch(
            "placement",
            "Rules that are decided ahead of their lists.",
            (
                Leaf("show", "Show what is lifted, since when, why, and what it saves.", f"{_CLI}.placement:show"),
                Leaf("set", "Say how rules are chosen.", f"{_CLI}.placement:set_up"),
                Leaf("try", "Show what a round of choosing would decide now.", f"{_CLI}.placement:try_out"),
                Leaf("pin", "Lift a rule whatever its counts are.", f"{_CLI}.placement:pin"),
                Leaf("forbid", "Never lift a rule.", f"{_CLI}.placement:forbid"),
                Leaf("release", "Leave a rule to the chooser again.", f"{_CLI}.placement:release"),
            ),
        ),
        Leaf("wait", "Wait until every host holds a generation.", f"{_CLI}.domains:wait"),
    ),
)

FIREWALL = Branch(
    "firewall",
    "Firewall VNFs of a domain: machines that filter with nftables or iptables, each with an agent inside.",
    (
        Leaf("add", "Bring a firewall into a domain.", f"{_CLI}.firewalls:add"),
        Leaf("list", "List a domain's firewalls and their load.", f"{_CLI}.firewalls:list_all"),
        Leaf("remove", "Take a firewall out of a domain.", f"{_CLI}.firewalls:remove"),
    ),
)

TOKEN = Branch(
    "token",
    "Tokens that requests are made with.",
    (Leaf("create", "Make a token, straight in the database.", f"{_CLI}.service:create_token"),),
)

DATABASE = Branch(
    "db",
    "The service's database.",
    (Leaf("upgrade", "Bring the database to this program's schema.", f"{_CLI}.service:upgrade"),),
)

TREE = Branch(
    "aclflow",
    "Tenants say which traffic they permit; aclflow keeps that promise on real data planes.",
    (
        ACL,
        TENANT,
        GROUP,
        DOMAIN,
        FIREWALL,
        TOKEN,
        Leaf("top", "Show the rules that decide most, live.", f"{_CLI}.top:top"),
        Leaf("events", "Show what happened, and what happens.", f"{_CLI}.events:events"),
        Leaf("serve", "Run the service: REST interface and control loops.", f"{_CLI}.service:serve"),
        Leaf("console", "Run the web console, beside the service.", f"{_CLI}.console:console"),
        Leaf("controller", "Run the OpenFlow controller of a domain.", f"{_CLI}.controller:controller"),
        Leaf("agent", "Run the agent of a firewall VNF, inside it.", f"{_CLI}.agent:agent"),
        DATABASE,
        Leaf("lab", "A point of presence on this machine, in network namespaces.", "orchestrator.lab.commands:app"),
        Leaf("demo", "See real packets meet a real access list, on this machine.", "orchestrator.lab.commands:demo"),
        Leaf("bench", "Measure, and put the figures beside their targets.", f"{_CLI}.bench:bench"),
    ),
)
