"""Suite control-plane: from columns to the switch, and from REST to two switches.

    wire        columns to barrier on one switch          against `ovs-ofctl --bundle add-flows` and os-ken's objects
    rest        REST call to read back on two switches    against `ovs-ofctl --bundle`, to one bridge after the other
    changes     one rule, one member of a group           at each size
    overlay     the same lists and single rules           against OVN, from its northbound database to its switch
                (into one switch of either)
    stateful    connections a second, packets a second    against OVN's stateful ACLs; against stateless rules
    domain      a million rules, compiled and proven      in a process of its own, with its memory
    findings    what is said about lists, and differences

A baseline gets exactly the flows that ours makes (OVN the same rules) in a bridge of the same daemon, with a whole
process included where that is what an operator would run. Runs alternate; every run starts from an empty table.
"""
