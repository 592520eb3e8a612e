"""Commands about access lists and whose they are."""

from __future__ import annotations

from orchestrator.cli.branches.shape import Branch, Leaf, Moved

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
                Leaf("delete", "Stop sharing a draft.", "acl.drafts:delete"),
            ),
        ),
        Branch(
            "expectations",
            "Sentences that every change of a tenant's list must keep.",
            (
                Leaf("show", "Show the expectations of a list.", "acl.expect:show_kept"),
                Leaf("set", "Hold each change of a list to a file from now on.", "acl.expect:keep"),
                Leaf("delete", "Drop the expectations of a list.", "acl.expect:delete_kept"),
            ),
        ),
        Leaf("blame", "Show which version of a list opened or closed a packet.", "acl.history:blame"),
        Leaf(
            "bisect",
            "Find two neighbouring versions that disagree about a packet, reading few of many.",
            "acl.history:bisect_versions",
        ),
        Leaf("apply", "Make a file a tenant's list and wait until it is in force.", "acl.servicelists:apply"),
        Leaf("confirm", "Keep a change that waits to be confirmed.", "acl.servicelists:confirm"),
        Leaf("revert", "Take a change back that waits to be confirmed.", "acl.servicelists:revert"),
        Leaf("restore", "Make a list again what it was at a version.", "acl.servicelists:restore"),
        Leaf("review", "Try a file against a tenant's list without changing it.", "acl.servicelists:review"),
        Leaf("show", "Show a tenant's list.", "acl.servicelists:show"),
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
        Leaf("versions", "Show the history of a tenant's list.", "acl.servicelists:versions"),
        Leaf("cost", "Show what lists cost on each kind of device.", "acl.cost:cost"),
        Leaf("hits", "Show how often each rule of a tenant decided.", "acl.hits:hits"),
        Leaf("log", "Show packets that rules with `log` decided.", "acl.log:packet_log"),
        Leaf("unused", "Show which rules decided nothing, and how sure that is.", "acl.hits:show_unused"),
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
            "The limits of what a tenant's list may cost.",
            (
                Leaf("show", "Show a tenant's limits, and how much of each is used.", "tenants:show_quota"),
                Leaf("set", "Set the limits of a tenant's list.", "tenants:set_quota"),
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

PROPOSAL = Branch(
    "proposal",
    "Changes that go out when another person has approved them.",
    (
        Leaf("list", "List the proposals about a tenant's list, or about a domain.", "proposals:list_all"),
        Leaf("show", "Show a proposal and what it would change.", "proposals:show"),
        Leaf("approve", "Approve a proposal, which carries it out.", "proposals:approve"),
        Leaf("reject", "Reject a proposal: nothing of it happens.", "proposals:reject"),
        Leaf("withdraw", "Take a proposal of your own back.", "proposals:withdraw"),
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
        Leaf("delete", "Delete a group that no rule names.", "groups:delete"),
    ),
)

OPERATOR_RULE = Branch(
    "operator-rule",
    "The operator's rules of a domain, which stand above all tenants.",
    (
        Leaf("list", "List the rules.", "operatorrules:list_all"),
        Leaf("show", "Show a rule.", "operatorrules:show"),
        Leaf("add", "Add a rule.", "operatorrules:add"),
        Leaf("set", "Change what is said of a rule.", "operatorrules:set_up"),
        Leaf("move", "Move a rule to another place.", "operatorrules:move"),
        Leaf("delete", "Delete a rule.", "operatorrules:delete"),
    ),
)
