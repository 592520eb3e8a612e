"""The pre-filter of a firewall server in nftables: one chain a tenant, by destination.

    prerouting, -150     misdirects   of another server's tenant, and not from a server ──▶ marked with its number
    forward, filter      receivers    its leg's? ── header there? ── destination's prefix ──▶ ingress_9 ── misdirected

A tenant's chain asks the operator's rules, lets pass what the table of pairs has marked (`PAIRED`) and what is
established, then asks its list without the exact pairs, then its default. Packets marked with a server's number are
routed to that server over an interface that all servers share (`REHOME`); what came in by that interface is decided
here or dropped.

The frame (hooks, dispatch, directory) and each tenant's part are made apart: they have no object in common, so what did
not change need not be made again. Of rules that log, those that deny report; what is permitted the hosts report.
Policy and meaning: `policy/prefilter.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from orchestrator.compile.cookies import Kind
from orchestrator.compile.filters.filterlists import FilterList, World
from orchestrator.compile.filters.filterrows import comment
from orchestrator.compile.filters.legs import OUTSIDE
from orchestrator.compile.filters.limits import Limits
from orchestrator.compile.nftables.listtable import LATER, ListTable, Objects, Planned, world_name
from orchestrator.compile.nftables.plan import plan
from orchestrator.compile.nftables.words import IP, spell_owned
from orchestrator.policy.addresses import Family, Prefix
from orchestrator.policy.loglimit import USUAL, LogLimit
from orchestrator.policy.prefilter import Misdirect
from orchestrator.policy.protocols import ICMP, ICMPV6, TCP
from orchestrator.policy.tcpflags import ESTABLISHED

PAIRED = 0xAC000000
"""The mark of packets whose pair is permitted."""
MISDIRECTED = 0xACF00000
"""The mark of packets for another server, its number in the lower half."""
REHOME = "rehome"
"""The interface at which servers meet."""

MISDIRECTED_WORDS, AGAIN_WORDS = "misdirected 0", "misdirected-again 0"
"""The comments under which the packets count for which the server has no list."""

_HOOK = "type filter hook forward priority filter; policy drop;"
_BEFORE = "type filter hook prerouting priority -150; policy accept;"

Directory = Mapping[int, Sequence[Prefix]]
"""The prefixes of tenants that other servers have, by the server's number."""


def frame_objects(
    operator: FilterList,
    lists: Sequence[FilterList],
    directory: Directory,
    misdirect: Misdirect,
    limit: LogLimit = USUAL,
) -> Mapping[Family, Objects]:
    """Return the tables' declarations besides tenants' chains.

    `lists` are ingress lists of the tenants served.
    """
    asked = _silence_permits(operator, *lists)
    return {family: _Frame(family, asked, plan, Limits(limit)).written(directory, misdirect) for family in Family}


def tenant_objects(
    operator: FilterList, ingress: FilterList, planned: Planned = plan, limit: LogLimit = USUAL
) -> Mapping[Family, Objects]:
    """Return both tables' declarations for one tenant, from its ingress list without pairs."""
    asked = _silence_permits(operator, ingress)
    return {family: _Part(family, asked, planned, Limits(limit)).written() for family in Family}


def _silence_permits(*lists: FilterList) -> tuple[FilterList, ...]:
    return tuple(each.silent_permits() for each in lists)


class _Frame(ListTable):
    """One IP version's table of a server, without the tenants' chains."""

    def written(self, directory: Directory, misdirect: Misdirect) -> Objects:
        """Return the declarations inside the table."""
        self.headers()
        if misdirect is Misdirect.REHOME:
            self._misdirects(directory)
        tail = _misdirected_rules(misdirect)
        for later in (True, False):
            self._receivers(World(self.family, later), tail)
        return self.declared.objects

    def _misdirects(self, directory: Directory) -> None:
        """Marks for what other servers have, ahead of the route."""
        elements, marks = [], []
        for number, prefixes in sorted(directory.items()):
            mine = [prefix for prefix in prefixes if prefix.family is self.family]
            if mine:
                mark = f"{MISDIRECTED | number:#010x}"
                self.declared.chain(f"to_{number}", [f"meta mark set {mark}"])
                elements += [f"{spell_owned(prefix)} : jump to_{number}" for prefix in mine]
                marks.append(f'{mark} comment "{MISDIRECTED_WORDS}" : accept')
        field = f"{IP[self.family]} daddr"
        self.declared.map("sent_on", ["meta mark"], marks, "counter")
        self.declared.map("directory", [field], elements, "flags interval")
        self.declared.chain("misdirects", [_BEFORE, f'iifname "{REHOME}" accept', f"{field} vmap @directory"])

    def _by_leg(self) -> list[str]:
        """Return rules that drop packets with source addresses of tenants served here.

        Such packets come neither from outside nor over another server.
        """
        ours = [prefix for each in self.tenants for prefix in self.prefixes(each)]
        if any(prefix.endswith("/0") for prefix in ours):
            return []
        source = f"{IP[self.family]} saddr"
        self.declared.set("ours", [source], ours)
        return [f'iifname "{OUTSIDE}" {source} @ours drop']

    def _receivers(self, world: World, tail: Sequence[str]) -> None:
        """The chain at the hook, or the one that it sends later fragments to."""
        self.operators(world)
        field, name = f"{IP[self.family]} daddr", world_name("receivers", world)
        jumps = [
            f"{prefix} : goto {world_name(each.name, world)}" for each in self.tenants for prefix in self.prefixes(each)
        ]
        self.declared.map(name, [field], jumps, "flags interval")
        way = [f"{field} vmap @{name}", *tail]
        if world.later:
            self.declared.chain(name, way)
        else:
            self.declared.chain("whole", ["meta l4proto vmap @headers", *way])
            later = f"{LATER[self.family]} goto receivers_late"
            self.declared.chain(name, [_HOOK, *self._by_leg(), later, "meta l4proto >= 0 goto whole"])


_PATH_MTU = {
    Family.IPV4: f"meta l4proto {ICMP} icmp type 3 icmp code 4",
    Family.IPV6: f"meta l4proto {ICMPV6} icmpv6 type 2",
}


class _Part(ListTable):
    """One tenant's chains in one IP version's table."""

    def written(self) -> Objects:
        """Return the tenant's declarations."""
        for later in (True, False):
            world = World(self.family, later)
            for each in self.tenants:
                passing = [] if later else _passing_rules(each.tenant, self.family)
                first = [*self._jumps(world), f"meta mark {PAIRED:#010x} accept", *passing]
                self.list_chain(each, world, first=first)
        return self.declared.objects

    def _jumps(self, world: World) -> Iterator[str]:
        """Yield the jumps to the operator's rules, where there are any."""
        for each in self.operator:
            if len(each.rows(world).rules):
                yield f"jump {world_name(each.name, world)}"


def _passing_rules(tenant: int, family: Family) -> list[str]:
    """Return rules for what looks like a reply, and what path MTU discovery needs."""
    words = f'counter accept comment "{comment(Kind.INGRESS_RETURN, tenant)}"'
    return [
        *(f"meta l4proto {TCP} tcp flags & {each.mask:#04x} == {each.value:#04x} {words}" for each in ESTABLISHED),
        f"{_PATH_MTU[family]} {words}",
    ]


def _misdirected_rules(misdirect: Misdirect) -> list[str]:
    """Return the rules for packets to destinations that this server does not hold."""
    again = f'iifname "{REHOME}" counter drop comment "{AGAIN_WORDS}"'
    words = f'comment "{MISDIRECTED_WORDS}"'
    if misdirect is Misdirect.REHOME:
        return [again, f'oifname "{REHOME}" meta mark vmap @sent_on', f"counter drop {words}"]
    return [again, f"counter {'accept' if misdirect is Misdirect.WAN else 'drop'} {words}"]
