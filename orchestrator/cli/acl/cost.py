"""`aclflow acl cost`: what lists in files cost on each kind of device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from orchestrator.cli.files import Files, Read, read_files, terms_of, whole
from orchestrator.cli.options import AsJson, Judging, Reading, taking
from orchestrator.cli.terminal import at_work, remark, say, say_json, several
from orchestrator.compile.cost import cost as cost_of
from orchestrator.compile.filters.filtercost import firewall_cost
from orchestrator.errors import TooLarge
from orchestrator.policy.model import Acl, ReturnTraffic
from orchestrator.wire.costs import Cost, FirewallCost

Told = Mapping[str, Any]


@taking
def cost(names: Files, reading: Reading, judging: Judging, as_json: AsJson = False) -> None:
    """Show the cost of lists on each kind of device.

    Costs are flow entries, TCAM slots, and lines of iptables and nftables. A TCAM slot has 160 bits: an IPv4 entry
    takes one, an IPv6 entry four; port ranges are cut into aligned blocks.
    """
    read = read_files(names, reading)
    told = [(one, _price_list(one, reading, terms_of([one.name], judging, reading).returns)) for one in read]
    if as_json:
        say_json({"files": [{"file": one.name, **asdict(found)} for one, found in told]})
        return
    for one, found in told:
        say(one.name, bold=True)
        say_cost(found)


def _price_list(read: Read, reading: Reading, returns: ReturnTraffic) -> Cost:
    acl = whole(read, reading)
    with at_work(f"counting {read.name}: {len(acl.rules)} rules"):
        found, firewall = cost_of(acl, returns), _firewall_cost(acl, returns)
    return replace(found, firewall=firewall)


def _firewall_cost(acl: Acl, returns: ReturnTraffic) -> FirewallCost | None:
    """Return the cost of a list for packet filters; None where it is too large.

    The other costs are told all the same.
    """
    try:
        return firewall_cost(acl, returns)
    except TooLarge as error:
        remark(f"not told for iptables and nftables: {error}")
        return None


def say_cost(cost: Cost) -> None:
    """Print what a list costs, for people."""
    for direction, told in (("ingress", cost.ingress), ("egress", cost.egress)):
        counts = {"rule": told.rules, "flow": told.flows, "level": told.levels, "shape": told.shapes}
        say(f"{direction}: {', '.join(several(count, what) for what, count in counts.items())}")
    tcam, firewall = cost.tcam, cost.firewall
    say(f"tcam: {several(tcam.slots, 'slot')}, {tcam.ipv4_entries} IPv4 and {tcam.ipv6_entries} IPv6 entries")
    if firewall is not None:
        say(f"iptables: {several(firewall.iptables_lines, 'line')}")
        lines = several(firewall.nftables_lines, "line")
        say(
            f"nftables: {lines}, {firewall.nftables_elements} of them elements of maps; "
            f"at most {firewall.nftables_lookups} lookups and {firewall.nftables_rules} rules a packet"
        )
    if cost.widest_rule is not None:
        say(f"the dearest rule is '{cost.widest_rule}': {several(cost.widest_rule_flows, 'flow')}")
