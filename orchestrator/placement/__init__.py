"""The tier that a rule earns: popularity, savings, and moves that keep the meaning.

popularity.py   ACLFLOW's Algorithm 1, as printed and repaired
choice.py       it and the other way to choose, by the work that a lift would save, behind one interface
hoist.py        a rule above the others of its list, and the proof that nothing changes
composed.py     the list that a packet meets in fact: the operator's rules before a tenant's
lifting.py      which rules are lifted, by name

docs/lifting.md has the why, the forms and an example to check by hand.
"""
