"""Classify packets in bulk: the verdicts of an access list on recorded traffic.

    capture ──▶ frames ──▶ packets, as columns ──▶ kinds, each once ──▶ first rule that matches ──▶ tallies
    captures.py            frames.py               grouping.py          search.py                   replay.py, flows.py

captures.py     files, packed or not, a piece at a time: a capture may be larger than memory
live.py         frames of an interface as they come
records.py      what stands in them: pcap and pcapng, in plain Python and long runs of it in C
packets.py      the columns, and why a frame may be none of a policy's business
frames.py       what is read of a frame and what is not; many at once in C
grouping.py     packets that no rule can tell apart, as one
columns.py      one direction of a list as columns: the form that every classifier reads
search.py       the first row of each packet: rows as trees, in C
overlay.py      rows that change without being built anew
listdecider.py  a list's answer for packets: which direction is asked, and who decided
replay.py       captures through one list or two, a piece a thread
flows.py        who talks to whom, the most of it, within bounds

`policy/oracle.py` is the measure: what is read of a frame is a `Packet`, and it gets the rule that the oracle names.
docs/replay.md has the why and an example, docs/classifiers.md how rows are searched.
"""
