"""Packet space: sets of packets as boxes, and exact arithmetic on them.

What a question about a list ("is this rule shadowed?", "what does this change open?") asks is always set arithmetic on
packets: intersect, subtract, is anything left. Packets are points in a space with one axis for each field a rule can
look at (`policy/fields.py`); what a rule matches is a *box*: one set per axis, every combination of members allowed.

    axis                 set kept as             full set
    fragments            bits                    WHOLE | LATER        whole or first fragment; later fragment
    protocols            bits, one a number      ALL_BYTES
    icmp_types, _codes   bits                    ALL_BYTES
    tcp_flags            bits, one a flag byte   ALL_BYTES            bit 0x12 is in the set <=> SYN+ACK matches
    dscp                 bits, one a code point  EVERY_CODE_POINT     every packet has one, also later fragments
    source, destination  spans of addresses      the family's
    source_ports, dest.  spans of ports          0-65535

Because an axis holds any set and not just one interval, a rule is one box in each IP version, however many prefixes,
port ranges and flag combinations it lists, and a difference of two boxes has at most one piece for each axis:

          +-----------+                 +-----------+        The pieces are cut one axis after the other, so they
          | a         |                 |   a - b   |        are disjoint. The order is: fragments, protocols, then
          |    +------+----+   a - b    |----+------+        the fields of the transport header. (Here: first by
          |    |  b   |    |    ==>     |    |               height, then by width.)
          +----+------+    |            |    |
               +-----------+            +----+

Which packets there are
    Not every combination of fields is a packet: ICMP has no ports. `Packet` keeps zero where there is no field, and a
    box keeps the *full* set there. Three invariants make this safe; `boxes_of` starts with them and every operation
    keeps them:

    1. A box narrows ports only if its protocols are among tcp, udp and sctp and its fragments are WHOLE; TCP flags only
       for tcp, ICMP types and codes only for the family's own ICMP, WHOLE as well. (Rules are refused otherwise, and a
       difference cuts fragments and protocols first, so what is cut by ports is of one kind.)
    2. An IPv6 later fragment has protocol 44, and nothing else in IPv6 has: `settle_box` removes the impossible half
       whenever fragments or protocols were narrowed.
    3. No axis is empty: an empty result is None or is left out, so a box in hand always holds a packet.

    With these, a box is inside another exactly if it is so on every axis, and two boxes are the same set of packets
    exactly if they are equal.

`box.py` has boxes and their arithmetic; packets to show for a box, and which packets there are; many boxes as few;
what stands for large sets where boxes are compared by the thousand; at its end, rules as boxes.
"""

from __future__ import annotations

from orchestrator.policy.space.box import (
    ALL_ADDRESSES,
    ALL_BYTES,
    ALL_PORTS,
    LATER,
    WHOLE,
    Box,
    StandIn,
    StandIns,
    boxes_of,
    everything,
    find_uncovered,
    full_set,
    merge_boxes,
    possible,
    remaining,
    search,
    side,
)

__all__ = [
    "ALL_ADDRESSES",
    "ALL_BYTES",
    "ALL_PORTS",
    "LATER",
    "WHOLE",
    "Box",
    "StandIn",
    "StandIns",
    "boxes_of",
    "everything",
    "find_uncovered",
    "full_set",
    "merge_boxes",
    "possible",
    "remaining",
    "search",
    "side",
]
