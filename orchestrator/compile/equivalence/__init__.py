"""Prove before publishing that a program decides every packet as its ordered lists do.

The claim
    A packet that reaches a table of rules meets the row of the first rule in the list that holds it; where no rule
    holds it, the default's. It follows from three properties of the rows, each checked for all of them:

        coverage   the rows of a rule lie in it, do not overlap, and are together as large as it is: they are the rule
        order      of two overlapping rows of different rules, the earlier rule's has the higher priority
        place      table, register, tenant and instructions are those of the rule's direction, tenant and action,
                   no row is there that nobody asked for, and the rows that end lists and tables are there

    A packet of some rules' rows then meets, of all rows that hold it, the one of the earliest rule; and that is the
    first rule of the list that holds it, for a rule and its rows hold the same packets.

Independence
    What is decoded are the rows' bytes, and what they are held to are the policy's rules. Nothing is taken from the
    compiler but the numbers of tables and priorities and the drawing of the cookie.

Read in this order:

    rowdecoder.py   match bytes as boxes of intervals
    rulesets.py     rules as sets of addresses, ports, words
    checks.py       coverage, and what else rows are held to; order.py the order
    chain.py        a list with all that ends it; sortedrows.py rows sorted out by cookie, and their places
    shortestedit.py which rules of a list are others than before
    listproof.py    a list's proof, from scratch and after a change, its rules' keys
    ledger.py       what is kept of it, of provenfacts.py
    memberproof.py  what sides stand for, followed as members come and go, and what that leaves to be proven
    conjunctions.py rules that are conjunctions, from scratch; conjunctionsteps.py after a change
    lines.py        what packets ahead of the lists would have met; liftedproof.py the rows that decide there
    alonerows.py    rows of stateless rules, ahead of connections, read as a list; trackedproof.py programs that track
                    connections, read as those that do not; copyproof.py copies that their rows ask for
    proof.py        a program's

docs/equivalence.md shows how to check one by hand, and says what is not proven.
"""

from orchestrator.compile.equivalence.proof import Proof, prove, prove_rest

__all__ = ["Proof", "prove", "prove_rest"]
