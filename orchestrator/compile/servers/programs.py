"""The program of one firewall server, and the cost of changing it.

    frame      hooks, dispatch by destination, the operator's rules, the directory of other servers' tenants
    a tenant   chains for its list without exact pairs, and its pairs (`exactpairs.py`), a row each
    peers      the addresses of other servers on the interface where they meet
    general    if asked for: rows for a classifier, of the whole lists that there is room for (`generalrows.py`)

What a tenant needs is compiled once for a version of its list (`tenants.py`), for whichever server has it, and a
server's program is made of the one before (`ServerCompiler`): parts that are the same value are not looked at. So an
exact pair that comes or goes changes one row of its server's program, and no other server's.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.filters.filterlists import FilterList
from orchestrator.compile.nftables.served import Directory, frame_objects
from orchestrator.compile.servers.generalrows import fitting
from orchestrator.compile.servers.tenants import NO_ROWS, Lists, Served, TenantCompiler, object_rows
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.model import Policy
from orchestrator.policy.prefilter import Share
from orchestrator.program.blocks import Blocks
from orchestrator.program.delta import Delta, delta_of, difference
from orchestrator.program.flows import Flow, FlowTable
from orchestrator.program.program import Program, Tier

PEERS = 10
"""The table of a server's program in which the addresses of other servers are: match a number, value an address."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Another server: its number, and its addresses where servers meet, one for each IP version."""

    number: int
    addresses: tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, ...]

    def rows(self) -> Iterator[Flow]:
        """Yield it as rows of a program."""
        for address in self.addresses:
            match = bytes((address.version,)) + self.number.to_bytes(2, "big")
            yield Flow(PEERS, 0, match, address.packed, Cookie(Tier.SERVER, Kind.STRUCTURE, self.number).pack())


@dataclass(frozen=True, slots=True)
class Ask:
    """The inputs of a server's program besides tenants' lists."""

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

    def program(
        self, policy: Policy, ask: Ask, generation: int, lists: Lists | None = None
    ) -> tuple[Program, Delta | None]:
        """Return the program and its delta from the last one (None: the first).

        `lists`: the policy's compiled lists, if they exist already.

        Raises what the compilers raise, with the place of the rule; then the one before is still the last.
        """
        lists = lists or self.tenants.lists(policy)
        served = _serve_tenants(policy, ask, lists)
        frame = self._make_frame(policy, ask, lists.operator, list(served.values()))
        changes = [] if frame is self._frame else [difference(self._frame.rows, frame.rows)]
        for name in self._served.keys() | served.keys():
            before, after = self._served.get(name), served.get(name)
            if after is None and before is not None:
                changes.append(before.since(None)[::-1])
            elif after is not None and after is not before:
                changes.append(after.since(before))
        removed, added = (FlowTable.join_tables([change[side] for change in changes]) for side in (0, 1))
        return self._settle_program(served, frame, removed, added, generation)

    def is_the_last(self, policy: Policy, ask: Ask, lists: Lists) -> bool:
        """Return whether the program would have the last one's rows.

        It looks at the inputs only; False where they do not tell.
        """
        served = _serve_tenants(policy, ask, lists)
        is_same = self._last is not None and served.keys() == self._served.keys()
        if not is_same or any(each is not self._served[name] for name, each in served.items()):
            return False
        return _made_of(policy, ask, lists.operator, list(served.values())) == self._frame.made_of

    def _settle_program(
        self, served: dict[str, Served], frame: _Frame, removed: FlowTable, added: FlowTable, generation: int
    ) -> tuple[Program, Delta | None]:
        last = self._last
        if last is not None and not len(removed) and not len(added):
            program = replace(last, generation=generation)
            self._served, self._frame, self._last = served, frame, program
            return program, delta_of(last, program, removed, added)
        blocks = (last.blocks if last is not None else Blocks.of(NO_ROWS)).replace_rows(removed, added)
        program = Program.of(self.server, Tier.SERVER, generation, blocks, ())
        self._served, self._frame, self._last = served, frame, program
        return program, None if last is None else delta_of(last, program, removed, added)

    def _make_frame(self, policy: Policy, ask: Ask, operator: FilterList, served: Sequence[Served]) -> _Frame:
        """The frame; that of the last time where it would be made of the same."""
        made_of = _made_of(policy, ask, operator, served)
        if made_of == self._frame.made_of:
            return self._frame
        share, rests = ask.share, [each.rest for each in served]
        objects = frame_objects(operator, rests, _make_directory(policy, share), share.misdirect, policy.log_limit)
        rows = [object_rows(objects), FlowTable.of(row for peer in ask.peers for row in peer.rows())]
        general = fitting(each.general for each in served if len(each.general))
        return _Frame(made_of, FlowTable.join_tables([*rows, *general]))


def _serve_tenants(policy: Policy, ask: Ask, lists: Lists) -> dict[str, Served]:
    """Return what a server holds of each of its tenants."""
    mine, known = ask.share.served, lists.served
    return {tenant.id: known[tenant.id] for tenant in policy.tenants if tenant.id in mine}


def _made_of(policy: Policy, ask: Ask, operator: FilterList, served: Sequence[Served]) -> tuple[object, ...]:
    """Return everything a frame depends on.

    Unchanged parts are the same objects, so comparing two of them costs next to nothing.
    """
    roster = tuple((each.id, each.number, each.prefixes) for each in policy.tenants)
    classified = tuple(each for each in served if len(each.general))
    return operator, roster, ask, classified, policy.log_limit


def _make_directory(policy: Policy, share: Share) -> Directory:
    found: dict[int, list[Prefix]] = {}
    for tenant in policy.tenants:
        if tenant.id in share.elsewhere:
            found.setdefault(share.elsewhere[tenant.id], []).extend(tenant.prefixes)
    return found
