"""aclflow's engine: from a tenant's ordered access list to rules in real data planes.

Read in this order: `errors`, `policy` (what tenants say and what it means), `program` (the value a data plane must
hold), `compile` (from one to the other), `store` and `control` (the truth and the loops), `enforce` (where devices are
brought to their program), `lab` (a cloud in network namespaces).
"""
