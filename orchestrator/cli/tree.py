"""The commands as data: name, a line of help, and where the function lives.

`lazy.py` makes the real thing of it. A target is ``module:function`` in `orchestrator.cli`, or has the whole name of
its module, as ``orchestrator.lab.commands:app``: a Typer application with commands of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Leaf:
    """A command."""

    name: str
    summary: str
    target: str


@dataclass(frozen=True, slots=True)
class Moved:
    """A spelling of old or of other tools, which answers with ours. In `to`, ... stands for the rest."""

    name: str
    to: str


@dataclass(frozen=True, slots=True)
class Branch:
    """A group of commands."""

    name: str
    summary: str
    children: tuple[Leaf | Branch, ...]
    moved: tuple[Moved, ...] = ()


SYNONYMS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "delete": ("remove", "revoke"),
        "remove": ("delete", "revoke"),
        "rm": ("delete", "remove", "revoke"),
        "destroy": ("delete", "remove"),
        "create": ("add",),
        "new": ("create", "add"),
        "add": ("create",),
        "update": ("set",),
        "edit": ("set",),
        "modify": ("set",),
        "change": ("set",),
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


ACL = Branch(
    "acl",
    "Access lists: files, or TENANT and TENANT@VERSION at a service.",
    (
        Leaf("import", "Read lists of other formats and write them as native JSON.", "acl.convert:import_lists"),
        Leaf("export", "Write a list in another format.", "acl.convert:export_list"),
        Leaf("check", "Find rules that are shadowed, redundant, in conflict, too wide.", "acl.check:check"),
        Leaf("diff", "Show which packets a change permits or denies.", "acl.diff:diff"),
        Leaf("trace", "Show which rule decides a packet: in lists, or as enforced.", "acl.trace:trace"),
        Leaf("test", "Hold a list to expectations, for all packets at once.", "acl.expect:hold_list"),
        Branch(
            "draft",
            "Drafts that members of a tenant show each other before anything is committed.",
            (
                Leaf("share", "Share a file as a draft, for some days.", "acl.drafts:share"),
                Leaf("list", "List the drafts that are shared.", "acl.drafts:list_all"),
                Leaf("show", "Show what a draft would change, or write it to a file.", "acl.drafts:show"),
                Leaf("delete", "Share a draft no more.", "acl.drafts:delete"),
            ),
        ),
        Branch(
            "expectations",
            "What each change of a tenant's list is held to.",
            (
                Leaf("show", "Show what is expected of a list.", "acl.expect:show_kept"),
                Leaf("set", "Hold each change of a list to a file from now on.", "acl.expect:keep"),
                Leaf("delete", "Expect nothing of a list any more.", "acl.expect:delete_kept"),
            ),
        ),
        Leaf("blame", "Show which version of a list opened or closed a packet.", "acl.history:blame"),
        Leaf(
            "bisect",
            "Find two neighbouring versions that disagree about a packet, reading few of many.",
            "acl.history:bisect_versions",
        ),
        Leaf("apply", "Make a file a tenant's list and wait until it is enforced.", "acl.service:apply"),
        Leaf("confirm", "Keep a change that waits to be confirmed.", "acl.service:confirm"),
        Leaf("revert", "Take a change back that waits to be confirmed.", "acl.service:revert"),
        Leaf("restore", "Make a list again what it was at a version.", "acl.service:restore"),
        Leaf("review", "Try a file against a tenant's list without changing it.", "acl.service:review"),
        Leaf("show", "Show a tenant's list.", "acl.service:show"),
        Branch(
            "rule",
            "One rule of a tenant's list at a time.",
            (
                Leaf("list", "List the rules.", "acl.rules:list_all"),
                Leaf("show", "Show a rule.", "acl.rules:show"),
                Leaf("add", "Add a rule where it has an effect.", "acl.rules:add"),
                Leaf("set", "Change what is said of a rule.", "acl.rules:set_up"),
                Leaf("move", "Move a rule to another place.", "acl.rules:move"),
                Leaf("delete", "Delete a rule.", "acl.rules:delete"),
            ),
        ),
        Branch(
            "waiver",
            "Findings that somebody takes responsibility for, until a day.",
            (
                Leaf("list", "List the waivers.", "acl.waivers:list_all"),
                Leaf("add", "Waive a finding until a day.", "acl.waivers:add"),
                Leaf("delete", "Take a waiver back.", "acl.waivers:delete"),
            ),
        ),
        Leaf("versions", "Show the history of a tenant's list.", "acl.service:versions"),
        Leaf("cost", "Show what lists cost on each kind of device.", "acl.cost:cost"),
        Leaf("hits", "Show how often each rule of a tenant decided.", "acl.hits:hits"),
        Leaf("log", "Show packets that rules with `log` decided.", "acl.log:packet_log"),
        Leaf("unused", "Show which rules decided nothing, and how sure that is.", "acl.hits:unused"),
    ),
    (Moved("list", "tenant list ..."),),
)

TENANT = Branch(
    "tenant",
    "Tenants and the prefixes they own.",
    (
        Leaf("create", "Make a tenant.", "tenants:create"),
        Leaf("import", "Make the tenants of a file, all at once.", "tenants:import_file"),
        Leaf("list", "List the tenants that you may see.", "tenants:list_all"),
        Leaf("show", "Show a tenant: what it owns, what it may, whether its list is in force.", "tenants:show"),
        Leaf("set", "Give a tenant another name for people.", "tenants:rename"),
        Leaf("delete", "Delete a tenant, its prefixes and its list.", "tenants:delete"),
        Branch(
            "prefix",
            "The prefixes that a tenant owns, and no other tenant does.",
            (
                Leaf("list", "List the prefixes.", "tenants:list_prefixes"),
                Leaf("add", "Give a tenant a prefix.", "tenants:add_prefix"),
                Leaf("delete", "Take a prefix from a tenant.", "tenants:delete_prefix"),
            ),
        ),
        Branch(
            "quota",
            "What a tenant's list may cost.",
            (
                Leaf("show", "Show what a tenant's list may cost, and what it does.", "tenants:show_quota"),
                Leaf("set", "Say what a tenant's list may cost.", "tenants:set_quota"),
            ),
        ),
        Branch(
            "endpoint",
            "A tenant's network ports, by the names that its rules may use.",
            (Leaf("list", "List the endpoints.", "tenants:list_endpoints"),),
        ),
    ),
    (
        Moved("add-prefix", "tenant prefix add ..."),
        Moved("remove-prefix", "tenant prefix delete ..."),
        Moved("set-quota", "tenant quota set ..."),
        Moved("trace", "acl trace ..."),
        Moved("compare", "acl diff TENANT@VERSION TENANT"),
        Moved("restore", "acl restore ..."),
        Moved("blame", "acl blame ..."),
        Moved("bisect", "acl bisect ..."),
    ),
)

OPERATOR_RULE = Branch(
    "operator-rule",
    "The operator's rules of a domain, which stand above all tenants.",
    (
        Leaf("list", "List the rules.", "operatorrules:list_all"),
        Leaf("add", "Add a rule.", "operatorrules:add"),
        Leaf("set", "Change what is said of a rule.", "operatorrules:set_up"),
        Leaf("move", "Move a rule to another place.", "operatorrules:move"),
        Leaf("delete", "Delete a rule.", "operatorrules:delete"),
    ),
)

GROUP = Branch(
    "group",
    "Address groups of a tenant's list: named sets of prefixes that its rules point to.",
    (
        Leaf("list", "List the groups.", "groups:list_all"),
        Leaf("show", "Show the members of a group.", "groups:show"),
        Leaf("put", "Make a group of these members and no others.", "groups:put"),
        Leaf("add", "Add members.", "groups:add"),
        Leaf("remove", "Remove members.", "groups:remove"),
        Leaf("delete", "Delete a group that no rule names any more.", "groups:delete"),
    ),
)

DOMAIN = Branch(
    "domain",
    "Security domains: their hosts, endpoints and enforcers.",
    (
        Leaf("create", "Make a domain.", "domains:create"),
        Leaf("list", "List the domains.", "domains:list_all"),
        Leaf("show", "Show a domain's hosts, endpoints and enforcers.", "domains:show"),
        Leaf("delete", "Delete a domain that has no hosts and no tenants.", "domains:delete"),
        Leaf("list-hosts", "List a domain's hosts.", "domains:list_hosts"),
        Leaf("add-host", "Bring a host into a domain.", "domains:add_host"),
        Leaf("remove-host", "Take a host out of a domain.", "domains:remove_host"),
        Leaf("list-endpoints", "List where tenants' network ports are.", "domains:list_endpoints"),
        Leaf("add-endpoint", "Say where a tenant's network port is.", "domains:add_endpoint"),
        Leaf("remove-endpoint", "Forget a tenant's network port.", "domains:remove_endpoint"),
        Leaf("invite", "Make a one-time token for an enforcer to enrol with.", "enrolment:invite"),
        Leaf("invite-group", "Make a token for the machines of a cloud's group.", "enrolment:invite_group"),
        Leaf("groups", "List the tokens of groups.", "enrolment:list_groups"),
        Leaf("remove-group", "Make the token of a group invalid.", "enrolment:remove_group"),
        Branch(
            "placement",
            "Rules that are decided ahead of their lists.",
            (
                Leaf("show", "Show what is lifted, since when, why, and what it saves.", "placement:show"),
                Leaf("set", "Say how rules are chosen.", "placement:set_up"),
                Leaf("try", "Show what a round of choosing would decide now.", "placement:try_out"),
                Leaf("pin", "Lift a rule whatever its counts are.", "placement:pin"),
                Leaf("forbid", "Never lift a rule.", "placement:forbid"),
                Leaf("release", "Leave a rule to the chooser again.", "placement:release"),
            ),
        ),
        Leaf("log-limit", "Show or set how many packets of rules with `log` are reported.", "acl.log:log_limit"),
        Leaf("wait", "Wait until every host holds a generation.", "domains:wait"),
        Leaf("set", "Set how a domain lets replies in.", "domains:configure"),
        Leaf("raise", "Move a domain above what its hosts hold.", "domains:raise_above"),
    ),
)

FIREWALL = Branch(
    "firewall",
    "Firewall VNFs of a domain: machines that filter with nftables or iptables, each with an agent inside.",
    (
        Leaf("add", "Bring a firewall into a domain.", "firewalls:add"),
        Leaf("list", "List a domain's firewalls and their load.", "firewalls:list_all"),
        Leaf("cluster", "Show firewalls that share their connections.", "statesync:cluster"),
        Leaf("remove", "Take a firewall out of a domain.", "firewalls:remove"),
    ),
)

FLEET = Branch(
    "fleet",
    "Firewall VNFs that aclflow makes and takes away by itself, as many as the traffic needs.",
    (
        Leaf("show", "Show a domain's VNFs, and why there are so many.", "fleet:show"),
        Leaf("set", "Say how a fleet is to be: its size, its limits.", "fleet:set_up"),
        Leaf("grow", "Have more VNFs, whatever the load is.", "fleet:grow"),
        Leaf("shrink", "Have fewer VNFs, whatever the load is.", "fleet:shrink"),
        Leaf("drain", "Take one VNF's traffic away and remove it.", "fleet:drain"),
        Leaf("history", "Show when it grew and shrank, and why.", "fleet:history"),
        Leaf("simulate", "Replay a load: size, what is carried, what is lost.", "fleet_simulate:run"),
        Leaf("capacity", "Show or set what one VNF carries.", "fleet:capacity"),
        Leaf("remove", "Forget a fleet that has no VNFs any more.", "fleet:remove"),
    ),
)

OPENSTACK = Branch(
    "openstack",
    "What OpenStack offers to fleets, groups that its alarms move, and the endpoints of tenants.",
    (
        Leaf("check", "Sign in, validate the templates, show the quotas.", "openstack:check"),
        Leaf(
            "endpoints",
            "Bring a project's virtual machines in as endpoints, and follow their migrations.",
            "openstack_endpoints:endpoints",
        ),
        Branch(
            "alarms",
            "Groups that grow and shrink by the cloud's alarms, or by whoever posts to a webhook.",
            (
                Leaf("create", "Create a domain's group.", "openstack:alarms_create"),
                Leaf("show", "Show how large it is.", "openstack:alarms_show"),
                Leaf("webhooks", "Show the URLs that alarms post to.", "openstack:alarms_webhooks"),
                Leaf("grow", "Signal it to grow by one.", "openstack:alarms_grow"),
                Leaf("shrink", "Signal it to shrink by one.", "openstack:alarms_shrink"),
                Leaf("delete", "Delete it with its VNFs.", "openstack:alarms_delete"),
            ),
        ),
    ),
)

SPREAD = Branch(
    "spread",
    "How a domain's traffic is spread over its firewalls.",
    (
        Leaf("show", "Show which firewall carries which share.", "spread:show"),
        Leaf("set", "Say which firewalls carry the traffic.", "spread:set_up"),
    ),
)

POP = Branch(
    "pop",
    "Points of presence: edge switches, the firewall servers behind them, and where packets went.",
    (
        Leaf("add", "Give a domain its PoP.", "pops:add"),
        Leaf("list", "List the PoPs.", "pops:list_all"),
        Leaf("show", "Show a PoP and what stands at its edge.", "pops:show"),
        Leaf("set", "Lay a PoP out differently.", "pops:set_up"),
        Leaf("remove", "Take a PoP away.", "pops:remove"),
        Leaf("add-edge", "Bring an edge switch into a PoP.", "pops:add_edge"),
        Leaf("remove-edge", "Take an edge switch out of a PoP.", "pops:remove_edge"),
        Leaf("add-server", "Bring a firewall server into a PoP.", "pops:add_server"),
        Leaf("set-server", "Say what a firewall server is good for.", "pops:set_server"),
        Leaf("remove-server", "Take a firewall server out of a PoP.", "pops:remove_server"),
        Leaf("place", "Have a tenant served by a server of your choice.", "pops:place"),
        Leaf("rebuild", "Have the lines built anew.", "pops:rebuild"),
        Leaf("choose", "Choose heavy hitters now.", "pops:choose"),
        Leaf("traffic", "Show where packets from outside went.", "pops:traffic"),
    ),
)

HOST = Branch(
    "host",
    "Machines that run Open vSwitch, as hosts of domains.",
    (
        Leaf("add", "Make a machine a host, over SSH or on the service's own.", "hosts:add"),
        Leaf("show", "Show how far a machine is.", "hosts:show"),
        Leaf("list", "List the machines that were onboarded.", "hosts:list_all"),
        Leaf("remove", "Give a machine back, closed, and forget the host.", "hosts:remove"),
        Leaf("configure", "Make the switch of this machine that of a host.", "hostsetup:configure"),
        Leaf("enrol", "Get the switch of this machine a certificate, for a one-time token.", "hostsetup:enrol"),
        Leaf("release", "Give the switch of this machine back, closed.", "hostsetup:release"),
    ),
)

PLAN = Branch(
    "plan",
    "What things would cost, by calculation.",
    (
        Leaf("edge", "Show what a cloud of any size costs at its edge.", "plan:edge"),
        Leaf("sample", "Hold the edge's formulas against real lines.", "plan:sample_lines"),
    ),
)

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
    "Who machines are: the service's certificate authority, and what it signed.",
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

UPLINK = Branch(
    "uplink",
    "The routed uplink of this machine, where it is a host.",
    (
        Leaf("run", "Keep the kernel's routes to what the switch delivers to.", "uplink:run"),
        Leaf("show", "Show what is delivered, and what is routed.", "uplink:show"),
        Leaf("remove", "Withdraw routes, neighbours and the guard.", "uplink:remove"),
    ),
)

AUDIT = Branch(
    "audit",
    "Who did what, and whether anybody has touched the record of it.",
    (
        Leaf("list", "List what was done, and what was refused.", "audit:list_all"),
        Leaf("show", "Show one entry with its digests.", "audit:show"),
        Leaf("export", "Write the trail as lines of JSON.", "audit:export"),
        Leaf("verify", "Find entries that were changed, moved, deleted or cut off.", "audit:verify"),
    ),
)

STATESYNC = Branch(
    "statesync",
    "Firewalls of a cluster that share their connections.",
    (
        Leaf("run", "Be a member of a firewall cluster, inside the firewall.", "statesync:run"),
        Leaf("show", "Show the member that runs here, and its connections by state.", "statesync:show"),
        Leaf("set", "Change how the member that runs here shares.", "statesync:change"),
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
        Moved("apply", "acl apply ..."),
        Moved("check", "acl check ..."),
        Moved("diff", "acl diff ..."),
        Moved("trace", "acl trace ..."),
        Moved("login", "context add ..."),
        Moved("logout", "context delete ..."),
        Moved("config", "context list"),
        Moved("whoami", "token show"),
        Moved("version", "--version"),
    ),
)
