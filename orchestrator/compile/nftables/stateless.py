"""One IP version's table where stateless rules stand among rules whose connections are tracked.

An end of a packet, its sender or its receiver, decides *alone* where the first rule that matches the packet itself is
stateless. The lists `alone_*` find that out; a row of another rule leaves the packet to the end's connections.

    prerouting, before a connection is looked up    `untracking`: all ends of ours decide alone, or one denies? notrack
    forward, filter - 1   the sender's end     untracked, or a packet that belongs to a connection or opens one?
                                               ── operator alone ── alone_egress_7 ─┬─ permit ─▶ sender_alone
                                                                                    └─ leave ──▶ sender_asks
    forward, filter       the receiver's end   operator alone ── alone_ingress_9 ─┬─ permit ─▶ receiver_alone
                                                                                  └─ leave ──▶ receiver_asks

An end that asks is asked about the packet that opened the connection: its egress list if it opened it, its ingress list
otherwise, as the connection's direction says. So a permit is `accept` in every list, and leads from the first chain at
the hook to the second. The lists `raw_*` of prerouting are the same without counters. They only say what is tracked:
both chains at the forward hook decide again, and drop what is untracked and not decided alone at each end.

One entry of the kernel's serves both ends of a connection. The first packet puts a bit into its mark for an end that
decided alone: that end does not know the connection, and drops what is left to it. A connection without bits is known
to both ends, as all are where no rule is stateless.
"""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.compile.filters import filtertracking
from orchestrator.compile.filters.filterlists import FilterList, Stage, World
from orchestrator.compile.filters.filtertracking import ANSWERER_UNKNOWN, OPENER_UNKNOWN
from orchestrator.compile.filters.limits import Limits, limit_text, reports_measure
from orchestrator.compile.nftables.listtable import LATER, ListTable, Objects
from orchestrator.compile.nftables.plan import plan, plan_by_address
from orchestrator.compile.nftables.space import Space
from orchestrator.compile.nftables.words import IP
from orchestrator.compile.nftables.write import Doings, PlanWriter
from orchestrator.policy.addresses import Family

_UNTRACKED = f"ct state {filtertracking.UNTRACKED:#x}"
_LISTS = {Stage.EGRESS: "senders", Stage.INGRESS: "receivers"}
_SIDE = {Stage.EGRESS: "saddr", Stage.INGRESS: "daddr"}
_END = {Stage.EGRESS: "sender", Stage.INGRESS: "receiver"}


class StatelessTable(ListTable):
    """The table under way; `alone` has the lists that decide about packets alone."""

    def __init__(
        self, family: Family, lists: Sequence[FilterList], alone: Sequence[FilterList], limits: Limits
    ) -> None:
        super().__init__(family, lists, plan_by_address, limits, first=True)
        self._world = World(family, later=False)
        self._ip = IP[family]
        self._alone = {(each.stage, each.tenant): each for each in alone if not each.tenant or self.prefixes(each)}

    def written(self) -> Objects:
        """Return the declarations inside the table."""
        self.headers()
        self.declare_owned()
        self.tracking()
        for each in self.tenants:
            self.list_chain(each, self._world)
        for stage, name in _LISTS.items():
            self._map(name, f"ct original {self._ip} {_SIDE[stage]}", stage, "jump {stage}_{tenant}")
        self._untracking()
        for stage in _LISTS:
            self._end(stage)
        self._hooks()
        return self.declared.objects

    def _map(self, name: str, field: str, stage: Stage, verdict: str, otherwise: str = "") -> None:
        """Declare a map from tenants' addresses; `otherwise`: the verdict of tenants that decide nothing alone."""
        elements = []
        for each in self.tenants:
            if each.stage is stage:
                doing = otherwise if otherwise and (stage, each.tenant) not in self._alone else verdict
                doing = doing.format(stage=stage.value, tenant=each.tenant)
                elements += [f"{prefix} : {doing}" for prefix in self.prefixes(each)]
        self.declared.map(name, [field], elements, "flags interval")

    def _alone_chain(self, each: FilterList, name: str, doings: Doings, *, counted: bool) -> None:
        """Declare the chain of a list that decides alone; what is no row's leaves it."""
        space = Space.of(tuple(each.rows(self._world).lines()), self.family)
        if counted and any(line.log for line in space.lines):
            self.declared.limit(reports_measure(each.tenant), limit_text(self.limits.log.rate, self.limits.log.burst))
        writer = PlanWriter(self.declared, name, space, each.tenant, counted=counted, doings=doings)
        rules = writer.rules(plan(space))
        self.declared.chain(name, [*rules, doings.leave] if each.tenant else rules)

    def _operator_alone(self, name: str, doings: Doings, *, counted: bool = False) -> list[str]:
        """Declare the operator's rules as they decide alone; return the jump to them."""
        operator = self._alone[Stage.OPERATOR, 0]
        if not len(operator.rows(self._world).rules):
            return []
        self._alone_chain(operator, name, doings, counted=counted)
        return [f"jump {name}"]

    def _untracking(self) -> None:
        """Declare the chain that untracks packets which are decided alone.

        A packet for the machine itself is no business of lists.
        """
        untracks = Doings(permit="goto untrack", deny="goto untrack", leave="accept")
        passes_on = untracks._replace(permit="goto raw_receiver")
        self.declared.chain("untrack", ["notrack accept"])
        jump = self._operator_alone("raw_operator", untracks)
        for (stage, tenant), each in self._alone.items():
            if tenant:
                doings = passes_on if stage is Stage.EGRESS else untracks
                self._alone_chain(each, f"raw_{each.name}", doings, counted=False)
        for stage, name in _LISTS.items():
            field = f"{self._ip} {_SIDE[stage]}"
            self._map(f"raw_{name}", field, stage, "jump raw_{stage}_{tenant}", "accept")
        receiver = [f"{self._ip} daddr vmap @raw_receivers", f"{self._ip} saddr @ours goto untrack", "accept"]
        self.declared.chain("raw_receiver", receiver)
        hook = "type filter hook prerouting priority raw; policy accept;"
        strangers = f"{self._ip} saddr != @ours {self._ip} daddr != @ours accept"
        way = ["fib daddr type 2 accept", strangers, *jump, f"{self._ip} saddr vmap @raw_senders", "goto raw_receiver"]
        self.declared.chain("untracking", [hook, *way])

    def _end(self, stage: Stage) -> None:
        """Declare how one end asks, how it decides alone, and its lists for that."""
        end, sends = _END[stage], stage is Stage.EGRESS
        opener, answerer = ("senders", "saddr", OPENER_UNKNOWN), ("receivers", "daddr", ANSWERER_UNKNOWN)
        operator = self.operators(self._world, "" if sends else "_again")
        asks = [f"{_UNTRACKED} drop"]
        lists = []
        for direction, (name, side, unknown) in enumerate((opener, answerer) if sends else (answerer, opener)):
            asks.append(f"ct direction {direction} ct mark & {unknown:#x} != 0 drop")
            lists.append(f"ct direction {direction} ct original {self._ip} {side} vmap @{name}")
        self.declared.chain(f"{end}_asks", [*asks, *operator, *lists, "accept"])
        unknown = OPENER_UNKNOWN if sends else ANSWERER_UNKNOWN
        marks = f"ct status ! {filtertracking.CONFIRMED:#x} ct mark set ct mark | {unknown:#x}"
        for_receiver = operator if sends else []
        self.declared.chain(f"{end}_alone", [f"{_UNTRACKED} accept", marks, *for_receiver, "accept"])
        leave = f"goto {end}_asks"
        for (of, tenant), each in self._alone.items():
            if tenant and of is stage:
                doings = Doings(permit=f"goto {end}_alone", leave=leave)
                self._alone_chain(each, f"alone_{each.name}", doings, counted=True)
        field = f"{self._ip} {_SIDE[stage]}"
        self._map(f"alone_{_LISTS[stage]}", field, stage, "jump alone_{stage}_{tenant}", leave)

    def _hooks(self) -> None:
        """Declare the chains at the forward hook."""
        self.declared.chain("operator_alone", [f"{_UNTRACKED} accept", "drop"])
        later, decides = f"{LATER[self.family]} drop", Doings(permit="goto operator_alone")
        jump = self._operator_alone("alone_operator", decides._replace(leave="goto sender_asks"), counted=True)
        nobodys = f"{_UNTRACKED} {self._ip} saddr != @ours accept"
        rules = filtertracking.nftables_rules(self._ip, mixed=True)
        senders = [*jump, f"{self._ip} saddr vmap @alone_senders", nobodys, "goto sender_asks"]
        self.declared.chain("whole", ["meta l4proto vmap @headers", *rules, *senders])
        hook = "type filter hook forward priority filter - 1; policy accept;"
        self.declared.chain("senders", [hook, *self.by_leg(), later, "meta l4proto >= 0 goto whole", "drop"])
        jump = self._operator_alone("alone_operator_again", decides._replace(leave="goto receiver_asks"))
        hook = "type filter hook forward priority filter; policy drop;"
        ours = f"{_UNTRACKED} {self._ip} saddr @ours accept"
        receivers = [*jump, f"{self._ip} daddr vmap @alone_receivers", ours, "goto receiver_asks"]
        self.declared.chain("receivers", [hook, later, *receivers])
