"""All lists of a policy as one script for `nft -f`: atomic, and about our own two tables only.

A table each for IPv4 and IPv6, each with two base chains at the same hook; a packet must be accepted by both:

    forward, filter - 1   senders    header there? ── operator's rules ── source's prefix ──▶ egress_7
    forward, filter       receivers  operator's rules ── destination's prefix ──▶ ingress_9 ── from one of us ── drop

So a permit of the sender's list, which is `accept`, leads on to the receiver's list, and nothing that one list leads to
has to be checked again for the other. The operator's rules count in the first chain. Later fragments have lists of
their own (`_late`), where only rules stand that can match them.

A packet whose transport header is cut short is dropped, as is an IPv6 packet whose headers do not lead to one: their
ports cannot be told, so no list can be asked. Mode `full` (see `filterlists`): every list is enforced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from orchestrator.compile.filterlists import FilterList, Stage, World, filter_lists
from orchestrator.compile.nftables.plan import Plan, plan
from orchestrator.compile.nftables.space import Space
from orchestrator.compile.nftables.words import ICMP_NAME, IP
from orchestrator.compile.nftables.write import Declarations, PlanWriter, block
from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Action, Policy

TABLE = "aclflow"

_LATER = {Family.IPV4: "ip frag-off & 0x1fff != 0", Family.IPV6: "frag frag-off != 0"}
_HEADER_OCTETS = {"tcp": 20, "udp": 8, "sctp": 12}
_ICMP_OCTETS = 4
_HOOKS = {
    Stage.EGRESS: ("senders", "type filter hook forward priority filter - 1; policy accept;", "saddr"),
    Stage.INGRESS: ("receivers", "type filter hook forward priority filter; policy drop;", "daddr"),
}


Planned = Callable[[Space], Plan]
"""How a packet finds its rule in a list."""


Objects = Mapping[str, tuple[str, ...]]
"""What a table declares: the lines of each set, map and chain by its kind and name (``chain senders``), in an order in
which nft takes them."""


def nftables_script(policy: Policy, planned: Planned = plan) -> str:
    """The script. Raises TooLarge and BadPolicy as `filter_lists` does."""
    text = ["# aclflow: every list of a policy; load with nft -f"]
    for family, objects in nftables_objects(policy, planned).items():
        text += whole_table(family, objects)
    return "\n".join([*text, ""])


def nftables_objects(policy: Policy, planned: Planned = plan) -> Mapping[Family, Objects]:
    """What the two tables declare. Raises TooLarge and BadPolicy as `filter_lists` does."""
    lists = filter_lists(policy)
    return {family: _Table(family, lists, planned).written() for family in Family}


def whole_table(family: Family, objects: Objects, name: str = TABLE) -> list[str]:
    """A script's lines that put one IP version's table in the place of what was there under its name."""
    table = f"table {IP[family]} {name}"
    inside = [line for head, body in objects.items() for line in (*block(head, body), "")]
    return [table, f"delete {table}", f"{table} {{", *inside[:-1], "}"]


class _Table:
    """One IP version's table."""

    def __init__(self, family: Family, lists: Sequence[FilterList], planned: Planned) -> None:
        self._family = family
        self._planned = planned
        self._operator = [each for each in lists if each.stage is Stage.OPERATOR]
        self._tenants = [each for each in lists if each.stage is not Stage.OPERATOR and self._prefixes(each)]
        self._declared = Declarations()

    def written(self) -> Objects:
        """What is inside the table."""
        self._headers()
        senders = [each for each in self._tenants if each.stage is Stage.EGRESS]
        ours = [prefix for each in senders for prefix in self._prefixes(each)]
        self._declared.set("ours", [f"{IP[self._family]} saddr"], ours)
        for later in (True, False):
            world = World(self._family, later)
            for each in self._tenants:
                self._list(each, world)
            for stage in _HOOKS:
                self._hook(stage, world)
        return self._declared.objects

    def _headers(self) -> None:
        """A chain for each protocol with a header of known size: it returns if the header's last octet is there."""
        octets = {**_HEADER_OCTETS, ICMP_NAME[self._family]: _ICMP_OCTETS}
        for name, size in octets.items():
            self._declared.chain(f"{name}_header", [f"@th,{8 * size - 8},8 >= 0 return", "drop"])
        self._declared.map("headers", ["meta l4proto"], [f"{name} : jump {name}_header" for name in octets])

    def _hook(self, stage: Stage, world: World) -> None:
        """The chain at a hook, or the one that it sends later fragments to."""
        name, hook, side = _HOOKS[stage]
        field = f"{IP[self._family]} {side}"
        lists = [each for each in self._tenants if each.stage is stage]
        jumps = [f"{prefix} : jump {_named(each.name, world)}" for each in lists for prefix in self._prefixes(each)]
        self._declared.map(_named(name, world), [field], jumps, "flags interval")
        way = [*self._operators(stage, world), f"{field} vmap @{_named(name, world)}"]
        if stage is Stage.INGRESS:
            way.append(f"{IP[self._family]} saddr @ours accept")
        later = f"{_LATER[self._family]} goto {name}_late"
        if world.later:
            self._declared.chain(_named(name, world), way)
        elif stage is Stage.INGRESS:
            self._declared.chain(name, [hook, later, *way])
        else:
            self._declared.chain("whole", ["meta l4proto vmap @headers", *way])
            self._declared.chain(name, [hook, later, "meta l4proto >= 0 goto whole", "drop"])

    def _operators(self, stage: Stage, world: World) -> Iterator[str]:
        """The jump to the operator's rules, where there are any; they count at the first hook only."""
        for each in self._operator:
            if len(each.rows(world).rules):
                suffix = "" if stage is Stage.EGRESS else "_again"
                self._list(each, world, suffix)
                yield f"jump {_named(each.name + suffix, world)}"

    def _list(self, each: FilterList, world: World, suffix: str = "") -> None:
        """The chain of a list."""
        space = Space.of(tuple(each.rows(world).lines()), world.family)
        name = _named(each.name + suffix, world)
        writer = PlanWriter(self._declared, name, space, counted=not suffix)
        rules = writer.rules(self._planned(space))
        if each.default is not None:
            verdict = "accept" if each.default is Action.PERMIT else "drop"
            rules.append(f'counter {verdict} comment "{each.default_comment}"')
        self._declared.chain(name, rules)

    def _prefixes(self, each: FilterList) -> list[str]:
        return [str(prefix) for prefix in each.prefixes if prefix.family is self._family]


def _named(name: str, world: World) -> str:
    return f"{name}_late" if world.later else name
