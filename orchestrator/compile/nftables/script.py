"""Write all lists of a policy as one atomic script for our two tables.

A table each for IPv4 and IPv6, each with two base chains at the same hook; a packet must be accepted by both:

    forward, filter - 1   senders    its leg's? ── header there? ── operator's rules ── source's prefix ──▶ egress_7
    forward, filter       receivers  operator's rules ── destination's prefix ──▶ ingress_9 ── from one of us ── drop

So a permit of the sender's list, which is `accept`, leads on to the receiver's list, and nothing that one list leads to
has to be checked again for the other. The operator's rules count in the first chain. Later fragments have lists of
their own (`_late`), where only rules stand that can match them.

A packet whose transport header is cut short is dropped, as is an IPv6 packet whose headers do not lead to one: their
ports cannot be told, so no list can be asked. Mode `full` (see `filterlists`): every list is enforced.

Where connections are tracked, lists are asked about the packet that opened the connection
(`filters/filtertracking.py`), and later fragments, of which the kernel leaves none, are dropped. With stateless rules
among them the tables are others (`stateless.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.compile.filters import filtertracking
from orchestrator.compile.filters.filterlists import Part, Stage, World, alone_lists, filter_lists, hollow_lists
from orchestrator.compile.filters.limits import Limits
from orchestrator.compile.nftables.listtable import LATER, ListTable, Objects, Planned, world_name
from orchestrator.compile.nftables.plan import plan, plan_by_address
from orchestrator.compile.nftables.stateless import StatelessTable
from orchestrator.compile.nftables.words import IP, address
from orchestrator.compile.nftables.write import block
from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Policy, ReturnTraffic
from orchestrator.policy.stateless import is_mixed

TABLE = "aclflow"

_HOOKS = {
    Stage.EGRESS: ("senders", "type filter hook forward priority filter - 1; policy accept;", "saddr"),
    Stage.INGRESS: ("receivers", "type filter hook forward priority filter; policy drop;", "daddr"),
}


def nftables_script(policy: Policy, planned: Planned = plan) -> str:
    """The script. Raises TooLarge and BadPolicy as `filter_lists` does."""
    text = ["# aclflow: every list of a policy; load with nft -f"]
    for family, objects in nftables_objects(policy, planned).items():
        text += whole_table(family, objects)
    return "\n".join([*text, ""])


def nftables_objects(policy: Policy, planned: Planned = plan, part: Part = Part.WHOLE) -> Mapping[Family, Objects]:
    """Return the declarations of both tables, or of a part of them.

    With stateless rules among connections, all is in the frame.

    Raises TooLarge and BadPolicy as `filter_lists` does.
    """
    limits = Limits.of_policy(policy)
    if is_mixed(policy):
        if Part.FRAME not in part:
            return {family: {} for family in Family}
        lists, alone = filter_lists(policy, carries_stateless=True), alone_lists(policy)
        return {family: StatelessTable(family, lists, alone, limits).written() for family in Family}
    lists = (filter_lists if Part.LISTS in part else hollow_lists)(policy, carries_stateless=True)
    first = policy.return_traffic is ReturnTraffic.TRACKED
    way = plan_by_address if first else planned
    return {family: _Table(family, lists, way, limits, first=first).written(part) for family in Family}


def whole_table(family: Family, objects: Objects, name: str = TABLE) -> list[str]:
    """Return script lines that replace one IP version's table."""
    table = f"table {IP[family]} {name}"
    inside = [line for head, body in objects.items() for line in (*block(head, body), "")]
    return [table, f"delete {table}", f"{table} {{", *inside[:-1], "}"]


class _Table(ListTable):
    """One IP version's table, in which every list is enforced."""

    def written(self, part: Part = Part.WHOLE) -> Objects:
        """Return the declarations inside the table, or of a part of it."""
        if Part.FRAME in part:
            self.headers()
            self.declare_owned()
        if self.first:
            self.tracking(part)
        for later in (False,) if self.first else (True, False):
            world = World(self.family, later)
            for each in self.tenants if Part.LISTS in part else ():
                self.list_chain(each, world)
            for stage in _HOOKS if Part.FRAME in part else ():
                self._hook(stage, world)
        return self.declared.objects

    def _hook(self, stage: Stage, world: World) -> None:
        """The chain at a hook, or the one that it sends later fragments to."""
        name, hook, side = _HOOKS[stage]
        field = address(self.family, side, first=self.first)
        lists = [each for each in self.tenants if each.stage is stage]
        jumps = [f"{prefix} : jump {world_name(each.name, world)}" for each in lists for prefix in self.prefixes(each)]
        self.declared.map(world_name(name, world), [field], jumps, "flags interval")
        counted_before = "" if stage is Stage.EGRESS else "_again"
        way = [*self.operators(world, counted_before), f"{field} vmap @{world_name(name, world)}"]
        if stage is Stage.INGRESS:
            way.append(f"{address(self.family, 'saddr', first=self.first)} @ours accept")
        later = f"{LATER[self.family]} {'drop' if self.first else f'goto {name}_late'}"
        if world.later:
            self.declared.chain(world_name(name, world), way)
        elif stage is Stage.INGRESS:
            self.declared.chain(name, [hook, later, *way])
        else:
            tracks = filtertracking.nftables_rules(IP[self.family]) if self.first else []
            self.declared.chain("whole", ["meta l4proto vmap @headers", *tracks, *way])
            self.declared.chain(name, [hook, *self.by_leg(), later, "meta l4proto >= 0 goto whole", "drop"])
