"""Costs of lists on each kind of device."""

from __future__ import annotations

import datetime as dt

from orchestrator.wire.common import Written, describe, document


@document()
class ListCost:
    """Cost of one direction of a list on a switch, with return traffic."""

    rules: int
    flows: int = describe("flow entries")
    levels: int = describe("priorities that rules which overlap one another need")
    shapes: int = describe("hash tables that the first packet of a flow may be looked up in")


@document()
class TcamCost:
    """Entries that both directions of a list would need of a ternary CAM.

    Port ranges are cut into aligned blocks.
    """

    ipv4_entries: int
    ipv6_entries: int
    slots: int = describe("of 160 bits: an IPv4 entry takes one, an IPv6 entry four")


@document()
class FirewallCost:
    """Cost of a whole list on a firewall VNF, with return traffic and defaults."""

    iptables_lines: int = describe("a packet meets them one after the other")
    nftables_lines: int
    nftables_elements: int = describe("lines that are elements of maps")
    nftables_lookups: int = describe("lookups in maps of one packet, on the dearest way")
    nftables_rules: int = describe("rules that one packet meets, on the dearest way")


@document()
class Cost:
    """Cost of a list on each kind of device.

    A list of more than `most_levels` levels is refused when it is written.
    """

    ingress: ListCost
    egress: ListCost
    tcam: TcamCost
    firewall: FirewallCost | None = describe("null where it was not asked, or took too long to tell")
    most_levels: int
    widest_rule: str | None = describe("the rule that needs the most flow entries")
    widest_rule_flows: int


@document(kw_only=True)
class WrittenList(Written):
    """The result of a change of a list, with the list's cost if requested.

    `cost=true` requests it.
    """

    cost: Cost | None = None
    confirm_by: dt.datetime | None = describe("when it goes back by itself unless it is confirmed", default=None)
