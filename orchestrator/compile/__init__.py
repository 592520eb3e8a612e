"""Compilers: functions from a policy to the program that a data plane must hold.

Read in this order:

    pipelines/       tables and registers of each kind of switch, as data; page.py writes docs/pipeline.md from them;
                     structure.py: every flow entry that is no rule's
    openflow/        match fields and their canonical bytes (oxm.py), instructions.py the same for actions, encoder.py
                     columns as flow entries, symbols.py ports by name
    cookies.py       what a flow's cookie says
    lists/           atoms.py rules as columns, levels.py which of them need an order, lists.py access lists as flow
                     entries; steps.py what changed from one version to the next: edits.py finds it, labels.py keeps
                     the order of rules, exchange.py carries it out in the list's pieces.py
    conjunctions/    lists in which rules over large groups are conjunctions (grouped.py): conjunctive.py says which,
                     clauses.py makes their entries; sides.py and covers.py follow groups
    lifting/         rules that are decided ahead of their lists
    hostprogram.py   all of it together: `compile_host`
    edgeprogram.py   what an edge switch holds; lifting/edgeheavy.py popular rules that go past the firewall servers
    spreadprogram.py what a spreading switch holds
    equivalence/     proof that a compiled program is its policy, before it is published
    cost.py          what a list will cost, before it is committed
    filters/         a policy as ordered lists for packet filters (filterlists.py), iptables.py line by line;
                     filterrows.py a filter's objects as rows, filtercost.py what they cost; flowcache.py popular
                     rules in front of a filter
    nftables/        the lists as look-ups
    servers/         programs of firewall servers: pairs as sets, whole lists as rows for a classifier
"""
