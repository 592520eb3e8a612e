"""Chaos: endless faults in a running lab, with an oracle for each packet sent.

    world      the point of presence, the kinds of packets, lists drawn from a seed
    ledger     which versions may be in force at which moment; verdicts about arrivals
    prober     sends and catches packets, each marked with its kind and its moment
    writer     changes lists over REST until each change has a known fate
    relay      stands between two processes: cuts, holds, loses answers, says things twice
    steps      runs a process that ends itself at a named step
    stage      the lab, its processes, the disk, the clock and the database
    faults     the fault matrix, as data
    run        rounds of writes and faults, and the report

A packet that arrives is right if one of the versions permits it that may have been in force between its leaving and its
arrival. A version may be in force from the moment in which its write began until every host was read back at a later
one and has forgotten its cached decisions. A write that was never committed is never in force.
"""
