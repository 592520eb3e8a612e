"""Compilers: functions from a policy to the program that a data plane must hold.

Read in this order:

    pipeline.py      the host tier's tables and registers, as data; pipeline_page.py writes docs/pipeline.md from it
    oxm.py           match fields and their canonical bytes; instructions.py the same for actions
    cookies.py       what a flow's cookie says
    atoms.py         rules as columns; levels.py which of them need an order; openflow.py columns as flow entries
    lists.py         access lists as flow entries; structure.py every other flow entry; symbols.py ports by name
    steps.py         what changed from one version of a list to the next: edits.py finds it, labels.py keeps the order
                     of rules, sides.py and covers.py follow groups, members.py says which rules that concerns;
                     exchange.py carries it out in the list's pieces.py
    grouped.py       lists in which rules over large groups are conjunctions: conjunctive.py says which, clauses.py
                     makes their entries
    host.py          all of it together: `compile_host`
    edge.py          what an edge switch holds, in the tables of edgepipeline.py; edgeheavy.py popular rules that go
                     past the firewall servers
    equivalence/     proof that a compiled program is its policy, before it is published
    cost.py          what a list will cost, before it is committed
    filterlists.py   a policy as ordered lists for packet filters; comments.py whom a line counts for
    iptables.py      the lists line by line; nftables/ the lists as look-ups; firewall.py what either costs
"""
