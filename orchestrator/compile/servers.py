"""The program of one firewall server: what it needs of a domain's policy, and what it costs to change.

    frame      hooks, dispatch by destination, the operator's rules, the directory of other servers' tenants
    a tenant   chains for its list without exact pairs, and its pairs (`exactpairs.py`), a row each
    peers      the addresses of other servers on the interface where they meet
    general    if asked for: rows for a classifier, of the whole lists that there is room for (`generalrows.py`)

What a tenant needs is compiled once for a version of its list (`TenantCompiler`), for whichever server has it, and a
server's program is made of the one before (`ServerCompiler`): parts that are the same value are not looked at. So an
exact pair that comes or goes changes one row of its server's program, and no other server's.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.compile.bitvectors import MOST_RULES
from orchestrator.compile.cacherows import CLASSIFIER, cache_table
from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.exactpairs import pair_rows, taken_out
from orchestrator.compile.filterlists import FilterList, operator_list, tenant_lists
from orchestrator.compile.filterrows import FILTERS, Plane, filter_row
from orchestrator.compile.generalrows import fitting, general_rows
from orchestrator.compile.nftables.listtable import Objects
from orchestrator.compile.nftables.served import Directory, frame_objects, tenant_objects
from orchestrator.errors import AclflowError
from orchestrator.policy.addresses import Family, Prefix
from orchestrator.policy.model import Policy, ReturnTraffic, Rule, Tenant
from orchestrator.policy.prefilter import Share
from orchestrator.program.blocks import Blocks
from orchestrator.program.delta import Delta, delta_of, difference
from orchestrator.program.flows import Flow, FlowTable
from orchestrator.program.program import Program, Tier

NO_ROWS = FlowTable.of(())
PEERS = 10
"""The table of a server's program in which the addresses of other servers are: match a number, value an address."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Another server: its number, and its addresses where servers meet, one for each IP version."""

    number: int
    addresses: tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, ...]

    def rows(self) -> Iterator[Flow]:
        """As rows of a program."""
        for address in self.addresses:
            match = bytes((address.version,)) + self.number.to_bytes(2, "big")
            yield Flow(PEERS, 0, match, address.packed, Cookie(Tier.SERVER, Kind.STRUCTURE, self.number).pack())


@dataclass(frozen=True, slots=True, eq=False)
class Served:
    """What a server needs of one tenant: its list without pairs, rows of a program, and those for a classifier."""

    tenant: Tenant
    rest: FilterList
    rows: FlowTable
    general: FlowTable


class TenantCompiler:
    """What each tenant's list came to, for a version of it and of the operator's list. Not safe between threads."""

    def __init__(self, *, general: bool = False) -> None:
        self._general = general
        self._operator: tuple[tuple[Rule, ...], FilterList] | None = None
        self._known: dict[str, Served] = {}

    def general(self, wanted: bool) -> None:  # the one thing there is to say
        """Whether there are to be rows for classifiers."""
        if wanted != self._general:
            self._general = wanted
            self._known.clear()

    def operator(self, policy: Policy) -> FilterList:
        """The operator's list. Raises TooLarge and BadPolicy with the rule's place."""
        if self._operator is None or self._operator[0] is not policy.operator:
            self._operator = policy.operator, operator_list(policy)
            self._known.clear()
        return self._operator[1]

    def served(self, policy: Policy, tenant: Tenant) -> Served:
        """Raises as `operator`."""
        operator = self.operator(policy)
        known = self._known.get(tenant.id)
        if known is None or known.tenant is not tenant:
            try:
                _, ingress = tenant_lists(tenant, ReturnTraffic.EXPLICIT)
                rest, pairs = taken_out(ingress)
            except AclflowError as error:
                raise error.within(f"tenants[{tenant.id}].acl") from None
            chains = _object_rows(tenant_objects(operator, rest))
            rows = [chains, *(pair_rows(kind, keys, tenant.number) for kind, keys in pairs.items())]
            general = general_rows(operator, ingress) if self._general else ()
            table = cache_table(general, CLASSIFIER) if len(general) <= MOST_RULES else NO_ROWS
            known = self._known[tenant.id] = Served(tenant, rest, FlowTable.joined(rows), table)
        return known

    def keep_only(self, tenants: Iterable[str]) -> None:
        """Drop what is kept of others."""
        kept = set(tenants)
        self._known = {name: served for name, served in self._known.items() if name in kept}


@dataclass(frozen=True, slots=True)
class Ask:
    """What a server's program is made of besides tenants' lists."""

    share: Share
    peers: tuple[Peer, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class _Frame:
    """The rows of no tenant in particular, and what they were made of."""

    made_of: tuple[object, ...]
    rows: FlowTable


@dataclass(slots=True)
class ServerCompiler:
    """One server's programs, each from the one before. Not safe between threads."""

    server: str
    tenants: TenantCompiler = field(default_factory=TenantCompiler)
    _served: dict[str, Served] = field(default_factory=dict)
    _frame: _Frame = field(default_factory=lambda: _Frame((), NO_ROWS))
    _last: Program | None = None

    def program(self, policy: Policy, ask: Ask, generation: int) -> tuple[Program, Delta | None]:
        """The program, and how it came from the one before (None: it is the first).

        Raises what the compilers raise, with the place of the rule; then the one before is still the last.
        """
        share = ask.share
        served: dict[str, Served] = {
            tenant.id: self.tenants.served(policy, tenant) for tenant in policy.tenants if tenant.id in share.served
        }
        frame = self._framed(policy, ask, list(served.values()))
        changes = [] if frame is self._frame else [difference(self._frame.rows, frame.rows)]
        for name in self._served.keys() | served.keys():
            before, after = self._served.get(name), served.get(name)
            if before is not after:
                changes.append(difference(*(NO_ROWS if each is None else each.rows for each in (before, after))))
        removed, added = (FlowTable.joined([change[side] for change in changes]) for side in (0, 1))
        return self._settle(served, frame, removed, added, generation)

    def _settle(
        self, served: dict[str, Served], frame: _Frame, removed: FlowTable, added: FlowTable, generation: int
    ) -> tuple[Program, Delta | None]:
        last = self._last
        blocks = (last.blocks if last is not None else Blocks.of(NO_ROWS)).replaced(removed, added)
        program = Program.of(self.server, Tier.SERVER, generation, blocks, ())
        self._served, self._frame, self._last = served, frame, program
        return program, None if last is None else delta_of(last, program, removed, added)

    def _framed(self, policy: Policy, ask: Ask, served: Sequence[Served]) -> _Frame:
        """The frame; that of the last time where it would be made of the same."""
        operator, share = self.tenants.operator(policy), ask.share
        directory = _directory(policy, share)
        owned = tuple((each.tenant.number, each.tenant.prefixes) for each in served)
        classified = tuple(each for each in served if len(each.general))
        made_of = (operator, owned, directory, share.misdirect, ask.peers, classified)
        if made_of == self._frame.made_of:
            return self._frame
        objects = frame_objects(operator, [each.rest for each in served], directory, share.misdirect)
        rows = [_object_rows(objects), FlowTable.of(row for peer in ask.peers for row in peer.rows())]
        return _Frame(made_of, FlowTable.joined([*rows, *fitting(each.general for each in classified)]))


def _object_rows(objects: Mapping[Family, Objects]) -> FlowTable:
    return FlowTable.of(
        filter_row(FILTERS[Plane.NFTABLES][family], name, "\n".join(lines))
        for family, table in objects.items()
        for name, lines in table.items()
    )


def _directory(policy: Policy, share: Share) -> Directory:
    found: dict[int, list[Prefix]] = {}
    for tenant in policy.tenants:
        if tenant.id in share.elsewhere:
            found.setdefault(share.elsewhere[tenant.id], []).extend(tenant.prefixes)
    return found
