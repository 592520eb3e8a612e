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
class Moved:
    """An old spelling, which answers with the new one. `to` ends with ... where the arguments go unchanged."""

    name: str
    to: str


@dataclass(frozen=True, slots=True)
class Branch:
    """A group of commands."""

    name: str
    summary: str
    children: tuple[Leaf | Branch, ...]
    moved: tuple[Moved, ...] = ()


_CLI = "orchestrator.cli"

ACL = Branch(
    "acl",
    "Access lists: files, or TENANT and TENANT@VERSION at a service.",
    (
        Leaf(
            "import", "Read lists of other formats and write them as native JSON.", f"{_CLI}.acl.convert:import_lists"
        ),
        Leaf("export", "Write a list in another format.", f"{_CLI}.acl.convert:export_list"),
        Leaf("check", "Find rules that are shadowed, redundant, in conflict, too wide.", f"{_CLI}.acl.check:check"),
        Leaf("diff", "Show which packets a change permits or denies.", f"{_CLI}.acl.diff:diff"),
        Leaf("trace", "Show which rule decides a packet: in lists, or as enforced.", f"{_CLI}.acl.trace:trace"),
        Leaf("test", "Hold a list to expectations, for all packets at once.", f"{_CLI}.acl.expect:hold_list"),
        Branch(
            "draft",
            "Drafts that members of a tenant show each other before anything is committed.",
            (
                Leaf("share", "Share a file as a draft, for some days.", f"{_CLI}.acl.drafts:share"),
                Leaf("list", "List the drafts that are shared.", f"{_CLI}.acl.drafts:list_all"),
                Leaf("show", "Show what a draft would change, or write it to a file.", f"{_CLI}.acl.drafts:show"),
                Leaf("delete", "Share a draft no more.", f"{_CLI}.acl.drafts:delete"),
            ),
        ),
        Branch(
            "expectations",
            "What each change of a tenant's list is held to.",
            (
                Leaf("show", "Show what is expected of a list.", f"{_CLI}.acl.expect:show_kept"),
                Leaf("set", "Hold each change of a list to a file from now on.", f"{_CLI}.acl.expect:keep"),
                Leaf("delete", "Expect nothing of a list any more.", f"{_CLI}.acl.expect:delete_kept"),
            ),
        ),
        Leaf("blame", "Show which version of a list opened or closed a packet.", f"{_CLI}.acl.history:blame"),
        Leaf(
            "bisect",
            "Find two neighbouring versions that disagree about a packet, reading few of many.",
            f"{_CLI}.acl.history:bisect_versions",
        ),
        Leaf("apply", "Make a file a tenant's list and wait until it is enforced.", f"{_CLI}.acl.service:apply"),
        Leaf("confirm", "Keep a change that waits to be confirmed.", f"{_CLI}.acl.service:confirm"),
        Leaf("revert", "Take a change back that waits to be confirmed.", f"{_CLI}.acl.service:revert"),
        Leaf("restore", "Make a list again what it was at a version.", f"{_CLI}.acl.service:restore"),
        Leaf("review", "Try a file against a tenant's list without changing it.", f"{_CLI}.acl.service:review"),
        Leaf("show", "Show a tenant's list.", f"{_CLI}.acl.service:show"),
        Branch(
            "rule",
            "One rule of a tenant's list at a time.",
            (
                Leaf("list", "List the rules.", f"{_CLI}.acl.rules:list_all"),
                Leaf("add", "Add a rule where it has an effect.", f"{_CLI}.acl.rules:add"),
                Leaf("set", "Change what is said of a rule.", f"{_CLI}.acl.rules:set_up"),
                Leaf("move", "Move a rule to another place.", f"{_CLI}.acl.rules:move"),
                Leaf("delete", "Delete a rule.", f"{_CLI}.acl.rules:delete"),
            ),
        ),
        Branch(
            "waiver",
            "Findings that somebody takes responsibility for, until a day.",
            (
                Leaf("list", "List the waivers.", f"{_CLI}.acl.waivers:list_all"),
                Leaf("add", "Waive a finding until a day.", f"{_CLI}.acl.waivers:add"),
                Leaf("delete", "Take a waiver back.", f"{_CLI}.acl.waivers:delete"),
            ),
        ),
        Leaf("versions", "Show the history of a tenant's list.", f"{_CLI}.acl.service:versions"),
        Leaf("cost", "Show what lists cost on each kind of device.", f"{_CLI}.acl.cost:cost"),
        Leaf("hits", "Show how often each rule of a tenant decided.", f"{_CLI}.acl.hits:hits"),
        Leaf("log", "Show packets that rules with `log` decided.", f"{_CLI}.acl.log:packet_log"),
        Leaf("unused", "Show which rules decided nothing, and how sure that is.", f"{_CLI}.acl.hits:unused"),
    ),
)

TENANT = Branch(
    "tenant",
    "Tenants and the prefixes they own.",
    (
        Leaf("create", "Make a tenant.", f"{_CLI}.tenants:create"),
        Leaf("import", "Make the tenants of a file, all at once.", f"{_CLI}.tenants:import_file"),
        Leaf("list", "List the tenants that you may see.", f"{_CLI}.tenants:list_all"),
        Leaf("delete", "Delete a tenant, its prefixes and its list.", f"{_CLI}.tenants:delete"),
        Leaf("quota", "Show what a tenant's list may cost, and what it does.", f"{_CLI}.tenants:quota"),
        Leaf("set-quota", "Say what a tenant's list may cost.", f"{_CLI}.tenants:set_quota"),
        Leaf("add-prefix", "Give a tenant a prefix.", f"{_CLI}.tenants:add_prefix"),
        Leaf("remove-prefix", "Take a prefix from a tenant.", f"{_CLI}.tenants:remove_prefix"),
    ),
    (
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
        Leaf("list", "List the rules.", f"{_CLI}.operatorrules:list_all"),
        Leaf("add", "Add a rule.", f"{_CLI}.operatorrules:add"),
        Leaf("set", "Change what is said of a rule.", f"{_CLI}.operatorrules:set_up"),
        Leaf("move", "Move a rule to another place.", f"{_CLI}.operatorrules:move"),
        Leaf("delete", "Delete a rule.", f"{_CLI}.operatorrules:delete"),
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
        Leaf("delete", "Delete a domain that has no hosts and no tenants.", f"{_CLI}.domains:delete"),
        Leaf("add-host", "Bring a host into a domain.", f"{_CLI}.domains:add_host"),
        Leaf("remove-host", "Take a host out of a domain.", f"{_CLI}.domains:remove_host"),
        Leaf("add-endpoint", "Say where a tenant's network port is.", f"{_CLI}.domains:add_endpoint"),
        Leaf("remove-endpoint", "Forget a tenant's network port.", f"{_CLI}.domains:remove_endpoint"),
        Leaf("invite", "Make a one-time token for an enforcer to enrol with.", f"{_CLI}.enrolment:invite"),
        Leaf("invite-group", "Make a token for the machines of a cloud's group.", f"{_CLI}.enrolment:invite_group"),
        Leaf("groups", "List the tokens of groups.", f"{_CLI}.enrolment:list_groups"),
        Leaf("remove-group", "Make the token of a group invalid.", f"{_CLI}.enrolment:remove_group"),
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
        Leaf(
            "log-limit", "Show or set how many packets of rules with `log` are reported.", f"{_CLI}.acl.log:log_limit"
        ),
        Leaf("wait", "Wait until every host holds a generation.", f"{_CLI}.domains:wait"),
        Leaf("raise", "Move a domain above what its hosts hold.", f"{_CLI}.domains:raise_above"),
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

FLEET = Branch(
    "fleet",
    "Firewall VNFs that aclflow makes and takes away by itself, as many as the traffic needs.",
    (
        Leaf("show", "Show a domain's VNFs, and why there are so many.", f"{_CLI}.fleet:show"),
        Leaf("set", "Say how a fleet is to be: its size, its limits.", f"{_CLI}.fleet:set_up"),
        Leaf("grow", "Have more VNFs, whatever the load is.", f"{_CLI}.fleet:grow"),
        Leaf("shrink", "Have fewer VNFs, whatever the load is.", f"{_CLI}.fleet:shrink"),
        Leaf("drain", "Take one VNF's traffic away and remove it.", f"{_CLI}.fleet:drain"),
        Leaf("history", "Show when it grew and shrank, and why.", f"{_CLI}.fleet:history"),
        Leaf("simulate", "Replay a load: size, what is carried, what is lost.", f"{_CLI}.fleet_simulate:run"),
        Leaf("capacity", "Show or set what one VNF carries.", f"{_CLI}.fleet:capacity"),
        Leaf("remove", "Forget a fleet that has no VNFs any more.", f"{_CLI}.fleet:remove"),
    ),
)

OPENSTACK = Branch(
    "openstack",
    "What OpenStack offers to fleets, groups that its alarms move, and the endpoints of tenants.",
    (
        Leaf("check", "Sign in, validate the templates, show the quotas.", f"{_CLI}.openstack:check"),
        Leaf(
            "endpoints",
            "Bring a project's virtual machines in as endpoints, and follow their migrations.",
            f"{_CLI}.openstack_endpoints:endpoints",
        ),
        Branch(
            "alarms",
            "Groups that grow and shrink by the cloud's alarms, or by whoever posts to a webhook.",
            (
                Leaf("create", "Create a domain's group.", f"{_CLI}.openstack:alarms_create"),
                Leaf("show", "Show how large it is.", f"{_CLI}.openstack:alarms_show"),
                Leaf("webhooks", "Show the URLs that alarms post to.", f"{_CLI}.openstack:alarms_webhooks"),
                Leaf("grow", "Signal it to grow by one.", f"{_CLI}.openstack:alarms_grow"),
                Leaf("shrink", "Signal it to shrink by one.", f"{_CLI}.openstack:alarms_shrink"),
                Leaf("delete", "Delete it with its VNFs.", f"{_CLI}.openstack:alarms_delete"),
            ),
        ),
    ),
)

SPREAD = Branch(
    "spread",
    "How a domain's traffic is spread over its firewalls.",
    (
        Leaf("show", "Show which firewall carries which share.", f"{_CLI}.spread:show"),
        Leaf("set", "Say which firewalls carry the traffic.", f"{_CLI}.spread:set_up"),
    ),
)

POP = Branch(
    "pop",
    "Points of presence: edge switches, the firewall servers behind them, and where packets went.",
    (
        Leaf("add", "Give a domain its PoP.", f"{_CLI}.pops:add"),
        Leaf("list", "List the PoPs.", f"{_CLI}.pops:list_all"),
        Leaf("show", "Show a PoP and what stands at its edge.", f"{_CLI}.pops:show"),
        Leaf("set", "Lay a PoP out differently.", f"{_CLI}.pops:set_up"),
        Leaf("remove", "Take a PoP away.", f"{_CLI}.pops:remove"),
        Leaf("add-edge", "Bring an edge switch into a PoP.", f"{_CLI}.pops:add_edge"),
        Leaf("remove-edge", "Take an edge switch out of a PoP.", f"{_CLI}.pops:remove_edge"),
        Leaf("add-server", "Bring a firewall server into a PoP.", f"{_CLI}.pops:add_server"),
        Leaf("set-server", "Say what a firewall server is good for.", f"{_CLI}.pops:set_server"),
        Leaf("remove-server", "Take a firewall server out of a PoP.", f"{_CLI}.pops:remove_server"),
        Leaf("place", "Have a tenant served by a server of your choice.", f"{_CLI}.pops:place"),
        Leaf("rebuild", "Have the lines built anew.", f"{_CLI}.pops:rebuild"),
        Leaf("choose", "Choose heavy hitters now.", f"{_CLI}.pops:choose"),
        Leaf("traffic", "Show where packets from outside went.", f"{_CLI}.pops:traffic"),
    ),
)

HOST = Branch(
    "host",
    "Machines that run Open vSwitch, as hosts of domains.",
    (
        Leaf("add", "Make a machine a host, over SSH or on the service's own.", f"{_CLI}.hosts:add"),
        Leaf("show", "Show how far a machine is.", f"{_CLI}.hosts:show"),
        Leaf("list", "List the machines that were onboarded.", f"{_CLI}.hosts:list_all"),
        Leaf("remove", "Give a machine back, closed, and forget the host.", f"{_CLI}.hosts:remove"),
        Leaf("configure", "Make the switch of this machine that of a host.", f"{_CLI}.hostsetup:configure"),
        Leaf("enrol", "Get the switch of this machine a certificate, for a one-time token.", f"{_CLI}.hostsetup:enrol"),
        Leaf("release", "Give the switch of this machine back, closed.", f"{_CLI}.hostsetup:release"),
    ),
)

PLAN = Branch(
    "plan",
    "What things would cost, by calculation.",
    (
        Leaf("edge", "Show what a cloud of any size costs at its edge.", f"{_CLI}.plan:edge"),
        Leaf("sample", "Hold the edge's formulas against real lines.", f"{_CLI}.plan:sample_lines"),
    ),
)

TOKEN = Branch(
    "token",
    "Tokens that requests are made with.",
    (
        Leaf("create", "Make a token.", f"{_CLI}.tokens:create"),
        Leaf("list", "List every token, without secrets.", f"{_CLI}.tokens:list_all"),
        Leaf("rotate", "Replace a token; for a while both are good.", f"{_CLI}.tokens:rotate"),
        Leaf("revoke", "Make a token invalid, at once.", f"{_CLI}.tokens:revoke"),
    ),
)

CONTEXT = Branch(
    "context",
    "Services by name, with their tokens.",
    (
        Leaf("add", "Keep a service under a name, and use it.", f"{_CLI}.contexts:add"),
        Leaf("use", "Use a context from now on.", f"{_CLI}.contexts:use"),
        Leaf("list", "List the contexts.", f"{_CLI}.contexts:list_all"),
        Leaf("show", "Show where a context leads.", f"{_CLI}.contexts:show"),
        Leaf("delete", "Forget a context and its token.", f"{_CLI}.contexts:delete"),
    ),
)

CERTIFICATES = Branch(
    "certificates",
    "Who machines are: the service's certificate authority, and what it signed.",
    (
        Leaf("init", "Make the service's certificate authority.", f"{_CLI}.certificates:init"),
        Leaf("show", "Show the authority of the service on this machine.", f"{_CLI}.certificates:show"),
        Leaf("authority", "Get the authority's certificate from the service.", f"{_CLI}.certificates:authority"),
        Leaf("request", "Make a key and a certificate request on this machine.", f"{_CLI}.certificates:request"),
        Leaf("issue", "Have a switch's request signed.", f"{_CLI}.certificates:issue"),
        Leaf("enrol", "Have a switch's request signed for a one-time token.", f"{_CLI}.certificates:enrol"),
        Leaf("console", "Sign a web console's request.", f"{_CLI}.certificates:console"),
        Leaf("list", "List what was issued.", f"{_CLI}.certificates:list_all"),
        Leaf("revoke", "Make a certificate invalid, at once.", f"{_CLI}.certificates:revoke"),
    ),
)

DATABASE = Branch(
    "db",
    "The service's database.",
    (
        Leaf("upgrade", "Bring the database to this program's schema.", f"{_CLI}.service:upgrade"),
        Leaf("token", "Make a token straight in the database: the first one.", f"{_CLI}.service:create_token"),
        Leaf("backup", "Write all that the service knows to a file, while it runs.", f"{_CLI}.backup:backup"),
        Leaf("backup-key", "Make a key that opens encrypted backups.", f"{_CLI}.backup:backup_key"),
        Leaf("restore", "Put a backup back, also into the other kind of database.", f"{_CLI}.backup:restore"),
    ),
)

STATESYNC = Branch(
    "statesync",
    "Firewalls of a cluster that share their connections.",
    (
        Leaf("run", "Be a member of a firewall cluster, inside the firewall.", f"{_CLI}.statesync:run"),
        Leaf("show", "Show the member that runs here, and its connections by state.", f"{_CLI}.statesync:show"),
        Leaf("set", "Change how the member that runs here shares.", f"{_CLI}.statesync:change"),
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
        FIREWALL,
        FLEET,
        OPENSTACK,
        SPREAD,
        STATESYNC,
        POP,
        PLAN,
        TOKEN,
        CONTEXT,
        CERTIFICATES,
        Leaf("replay", "Show what a list would have decided about recorded traffic.", f"{_CLI}.replay:replay"),
        Leaf("devices", "List the devices that packets can be classified on.", f"{_CLI}.devices:devices"),
        Leaf("status", "Show what is not as it should be, and what helps.", f"{_CLI}.status:status"),
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
