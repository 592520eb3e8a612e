"""Commands about what enforces lists: domains, hosts, firewalls, points of presence."""

from __future__ import annotations

from orchestrator.cli.branches.shape import Branch, Leaf, Moved

DOMAIN = Branch(
    "domain",
    "Security domains: their hosts, endpoints and enforcers.",
    (
        Leaf("create", "Make a domain.", "domains:create"),
        Leaf("list", "List the domains.", "domains:list_all"),
        Leaf("show", "Show a domain's hosts, endpoints and enforcers.", "domains:show"),
        Leaf("delete", "Delete a domain that has no hosts and no tenants.", "domains:delete"),
        Branch(
            "host",
            "The hosts of a domain.",
            (
                Leaf("list", "List a domain's hosts.", "domains:list_hosts"),
                Leaf("add", "Bring a host into a domain.", "domains:add_host"),
                Leaf("remove", "Take a host out of a domain.", "domains:remove_host"),
            ),
        ),
        Branch(
            "endpoint",
            "Tenants' network ports, and where they are.",
            (
                Leaf("list", "List where tenants' network ports are.", "domains:list_endpoints"),
                Leaf("add", "Say where a tenant's network port is.", "domains:add_endpoint"),
                Leaf("remove", "Forget a tenant's network port.", "domains:remove_endpoint"),
            ),
        ),
        Leaf("invite", "Make a one-time token for an enforcer to enrol with.", "domains:invite"),
        Branch(
            "group",
            "Tokens that the machines of a cloud's group enrol with.",
            (
                Leaf("invite", "Make a token for the machines of a group.", "domains:invite_group"),
                Leaf("list", "List the tokens of groups.", "domains:list_groups"),
                Leaf("remove", "Make the token of a group invalid.", "domains:remove_group"),
            ),
        ),
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
        Branch(
            "approval",
            "What of a domain goes out only when another person has approved it.",
            (
                Leaf("show", "Show what needs approval.", "proposals:show_approvals"),
                Leaf("set", "Say what needs approval.", "proposals:set_approvals"),
            ),
        ),
        Branch(
            "log",
            "How many packets of rules with `log` are reported.",
            (
                Leaf("show", "Show how many packets each switch reports.", "acl.log:show_limit"),
                Leaf("set", "Say how many packets each switch reports.", "acl.log:set_limit"),
            ),
        ),
        Leaf("wait", "Wait until every host holds a generation.", "domains:wait"),
        Leaf("set", "Set how a domain lets replies in.", "domains:configure"),
    ),
    (
        Moved("list-hosts", "domain host list ..."),
        Moved("add-host", "domain host add ..."),
        Moved("remove-host", "domain host remove ..."),
        Moved("list-endpoints", "domain endpoint list ..."),
        Moved("add-endpoint", "domain endpoint add ..."),
        Moved("remove-endpoint", "domain endpoint remove ..."),
        Moved("invite-group", "domain group invite ..."),
        Moved("groups", "domain group list ..."),
        Moved("remove-group", "domain group remove ..."),
        Moved("log-limit", "domain log set ..."),
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
        Branch(
            "services",
            "What endpoints need to come up, answered by this machine: addresses, a router, names.",
            (
                Leaf("run", "Answer the endpoints of this machine's switch.", "hostsetup:run_services"),
                Leaf("show", "Show which addresses are offered to whom.", "hostsetup:show_services"),
                Leaf(
                    "remove", "Take addresses, routes and guards of the services away.", "hostsetup:withdraw_services"
                ),
            ),
        ),
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

PASSAGE = Branch(
    "passage",
    "The way through a spreading switch, on its machine between routers and hosts.",
    (
        Leaf("run", "Lead what comes in on either side through the firewalls.", "passage:run"),
        Leaf("show", "Show what is led into the switch.", "passage:show"),
        Leaf("remove", "Lead nothing into the switch any more.", "passage:remove"),
    ),
)

FIREWALL = Branch(
    "firewall",
    "Firewall VNFs of a domain: machines that filter with nftables or iptables, each with an agent inside.",
    (
        Leaf("add", "Bring a firewall into a domain.", "firewalls:add"),
        Leaf("list", "List a domain's firewalls and their load.", "firewalls:list_all"),
        Leaf("cluster", "Show firewalls that share their connections.", "statesync:cluster"),
        Leaf("conntrackd", "Print a configuration by which filters share connections.", "firewalls:conntrackd"),
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
        Leaf("remove", "Forget a fleet that has no VNFs left.", "fleet:remove"),
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
            "openstack:endpoints",
        ),
        Branch(
            "alarms",
            "Groups that grow and shrink by the cloud's alarms, or by anybody who posts to a webhook.",
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
        Leaf("watch", "Have the switch of this machine ask its firewalls whether they are well.", "spread:watch"),
    ),
)

STATESYNC = Branch(
    "statesync",
    "Firewalls of a cluster that share their connections.",
    (
        Leaf("run", "Be a member of a firewall cluster, inside the firewall.", "statesync:run"),
        Leaf("show", "Show the member that runs here, and its connections by state.", "statesync:show"),
        Leaf("set", "Change how the member that runs here shares.", "statesync:change"),
        Leaf("add", "Let more members take part, while packets pass.", "statesync:add"),
        Leaf("remove", "Free the numbers of members that have left.", "statesync:remove"),
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
        Branch(
            "edge",
            "The edge switches of a PoP.",
            (
                Leaf("add", "Bring an edge switch into a PoP.", "pops:add_edge"),
                Leaf("remove", "Take an edge switch out of a PoP.", "pops:remove_edge"),
            ),
        ),
        Branch(
            "server",
            "The firewall servers of a PoP.",
            (
                Leaf("add", "Bring a firewall server into a PoP.", "pops:add_server"),
                Leaf("set", "Say what a firewall server is good for.", "pops:set_server"),
                Leaf("remove", "Take a firewall server out of a PoP.", "pops:remove_server"),
            ),
        ),
        Leaf("place", "Have a tenant served by a server of your choice.", "pops:place"),
        Leaf("rebuild", "Have the lines built anew.", "pops:rebuild"),
        Leaf("choose", "Choose heavy hitters now.", "pops:choose"),
        Leaf("traffic", "Show where packets from outside went.", "pops:traffic"),
    ),
    (
        Moved("add-edge", "pop edge add ..."),
        Moved("remove-edge", "pop edge remove ..."),
        Moved("add-server", "pop server add ..."),
        Moved("set-server", "pop server set ..."),
        Moved("remove-server", "pop server remove ..."),
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
