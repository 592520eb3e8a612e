"""A policy as ordered filter lists, for the iptables and nftables compilers.

A firewall VNF forwards packets between networks and asks, as the oracle does:

    operator ──▶ egress list of the tenant that owns the source ──▶ ingress list of the tenant that owns the destination

A `FilterList` is one of these lists in columns, return traffic included as its last rows. Packet filters cannot treat
later fragments like whole packets (they carry no ports, and in IPv6 their protocol is hidden), so each list is taken
apart by IP version and fragment: `rows` gives the rows that can match at all in one of these four *worlds*.

Compiled this way a filter enforces the whole policy (mode `full`): it is what a domain has whose firewall VNFs are all
that stands between its tenants. A pre-filter in front of hosts that enforce the policy themselves is another thing.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from orchestrator.compile.cookies import HIGHEST_NUMBER, LEAVES, PART_BITS, Kind
from orchestrator.compile.filters.filterrows import comment
from orchestrator.compile.lists.alone import numbers_alone, rules_alone, tenant_alone
from orchestrator.compile.lists.atoms import atoms, return_atoms
from orchestrator.errors import AclflowError, BadPolicy
from orchestrator.policy.addresses import Family, Prefix
from orchestrator.policy.connections import check_trackable
from orchestrator.policy.formats.express import NO_PACKETS
from orchestrator.policy.model import Action, Direction, Policy, ReturnTraffic, Rule, Tenant
from orchestrator.policy.protocols import IPV6_FRAGMENT
from orchestrator.policy.stateless import is_mixed, view_of_operator, view_of_tracking
from orchestrator.program.rules import (
    ANY_BYTE,
    EGRESS,
    FRAG_ANY,
    FRAG_LATER,
    FRAG_NOT_LATER,
    INGRESS,
    PERMIT,
    RuleTable,
)


class World(NamedTuple):
    """Packets that a filter treats alike: one IP version, whole or later fragments.

    First fragments are whole.
    """

    family: Family
    later: bool


WORLDS = tuple(World(family, later) for family in Family for later in (False, True))


class Line(NamedTuple):
    """One row: its match, its verdict, its counter's comment, and whether it logs.

    Numbers below zero match everything, as does a mask of zero; port ranges are (lowest, highest). A row that is
    `limited` permits so many packets a second, and denies those beyond. One that `leaves` packets to connections
    neither decides nor counts.
    """

    source: Prefix
    destination: Prefix
    protocol: int
    source_ports: tuple[int, int]
    destination_ports: tuple[int, int]
    icmp_type: int
    icmp_code: int
    word_value: int
    word_mask: int
    permit: bool
    comment: str
    log: bool = False
    limited: bool = False
    leaves: bool = False

    @property
    def slots(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """The bounds of both upper-layer words: ports, or an ICMP type and code (`SLOTS`)."""
        kind, code = self.icmp_type, self.icmp_code
        return (
            self.source_ports if kind < 0 else (kind, kind),
            self.destination_ports if code < 0 else (code, code),
        )

    @property
    def opening_icmp(self) -> tuple[int, int]:
        """The bounds of ICMP type and code of a connection's first packet, as one number.

        The kernel keeps them as one number, the code in the lower byte.
        """
        low, high = (0, 255) if self.icmp_code < 0 else (self.icmp_code, self.icmp_code)
        return self.icmp_type << 8 | low, self.icmp_type << 8 | high


class Part(enum.Flag):
    """A part of a compiled policy; no object is in both.

    The frame leads packets to lists and has the operator's: of tenants it needs addresses. The rows of a list
    depend on its own tenant alone, so those of an unchanged one need not be made again.
    """

    FRAME = enum.auto()
    LISTS = enum.auto()
    WHOLE = FRAME | LISTS


class Stage(enum.Enum):
    """When a list is asked."""

    OPERATOR = "operator"
    EGRESS = "egress"
    INGRESS = "ingress"


@dataclass(frozen=True, slots=True, eq=False)
class FilterList:
    """One list.

    `tenant` is the tenant's number (0 for the operator's list, which has no `prefixes` and no `default`).

    `kind` says for each row of `rules` what its number counts.
    """

    stage: Stage
    tenant: int
    prefixes: tuple[Prefix, ...]
    rules: RuleTable
    kind: npt.NDArray[np.uint8]
    default: Action | None

    @property
    def name(self) -> str:
        return f"{self.stage.value}_{self.tenant}" if self.tenant else self.stage.value

    @property
    def default_comment(self) -> str:
        """The comment under which the list's default counts."""
        return comment(Kind.EGRESS_DEFAULT if self.stage is Stage.EGRESS else Kind.INGRESS_DEFAULT, self.tenant)

    @property
    def limited(self) -> npt.NDArray[np.bool_]:
        """Whether each row admits messages about path MTU as return traffic."""
        return np.asarray((self.kind == Kind.INGRESS_RETURN) & (self.rules.icmp_type >= 0))

    @property
    def leaves(self) -> npt.NDArray[np.bool_]:
        """Whether each row leaves packets to be asked about by their connections (`lists/alone.py`)."""
        return np.asarray(self.rules.number & np.uint64(PART_BITS) == LEAVES)

    @property
    def _numbers(self) -> npt.NDArray[np.uint64]:
        return np.asarray(self.rules.number & np.uint64(HIGHEST_NUMBER))

    def lines(self) -> Iterator[Line]:
        """Every row in order."""
        rules = self.rules
        kinds = {kind: Kind(kind) for kind in np.unique(self.kind).tolist()}
        columns = (
            _make_prefixes(rules.family, rules.src_hi, rules.src_lo, rules.src_len),
            _make_prefixes(rules.family, rules.dst_hi, rules.dst_lo, rules.dst_len),
            rules.protocol.tolist(),
            zip(rules.sp_lo.tolist(), rules.sp_hi.tolist(), strict=True),
            zip(rules.dp_lo.tolist(), rules.dp_hi.tolist(), strict=True),
            *(getattr(rules, name).tolist() for name in ("icmp_type", "icmp_code", "word_value", "word_mask")),
            (rules.action == PERMIT).tolist(),
            (comment(kinds[kind], n) for kind, n in zip(self.kind.tolist(), self._numbers.tolist(), strict=True)),
            (rules.log == 1).tolist(),
            self.limited.tolist(),
            self.leaves.tolist(),
        )
        return map(Line._make, zip(*columns, strict=True))

    def silent_permits(self) -> FilterList:
        """Return the list with logging of denies only.

        A host behind it reports the permitted packets.
        """
        log = np.where(self.rules.action == PERMIT, 0, self.rules.log).astype(np.uint8)
        return replace(self, rules=replace(self.rules, log=log))

    def rows(self, world: World) -> FilterList:
        """Return the rows that match in one world, without conditions that always hold there.

        No IPv6 packet's upper layer is an extension header; all of its later fragments have protocol 44, and no whole
        packet has it.
        """
        rules = self.rules
        never = set(NO_PACKETS[world.family])
        hidden = world == (Family.IPV6, True)
        if world == (Family.IPV6, False):
            never.add(IPV6_FRAGMENT)
        mine = (rules.family == world.family) & (rules.frag != (FRAG_NOT_LATER if world.later else FRAG_LATER))
        mine &= np.isin(rules.protocol, (ANY_BYTE, IPV6_FRAGMENT)) if hidden else ~np.isin(rules.protocol, list(never))
        kept = rules.take(mine)
        if world.later:
            kept = replace(kept, frag=np.full(len(kept), FRAG_ANY, np.uint8))
        if hidden:
            kept = replace(kept, protocol=np.full(len(kept), ANY_BYTE, np.int16))
        return replace(self, rules=kept, kind=self.kind[mine])


def filter_lists(policy: Policy, *, carries_stateless: bool = False) -> tuple[FilterList, ...]:
    """Every list of a policy: the operator's, then each tenant's egress and ingress.

    Where connections are tracked, a plane that does not carry stateless rules refuses them; for one that does these are
    the lists about packets that open connections, and `alone_lists` has the others.

    Raises TooLarge where a list cannot be expanded, BadPolicy where a rule has no number, both with their place.
    """
    if policy.return_traffic is ReturnTraffic.TRACKED:
        check_carried(policy, carries_stateless=carries_stateless)
    if is_mixed(policy):
        tenants = tuple(replace(each, acl=view_of_tracking(each.acl)) for each in policy.tenants)
        policy = replace(policy, operator=view_of_operator(policy.operator), tenants=tenants)
    lists = [operator_list(policy)]
    for tenant in policy.tenants:
        try:
            lists += tenant_lists(tenant, policy.return_traffic)
        except AclflowError as error:
            raise error.within(f"tenants[{tenant.id}].acl") from None
    return tuple(lists)


def hollow_lists(policy: Policy, *, carries_stateless: bool = False) -> tuple[FilterList, ...]:
    """Return every list of a policy without tenants' rules, for the frame.

    Raises as `filter_lists` does.
    """
    lists = [*filter_lists(replace(policy, tenants=()), carries_stateless=carries_stateless)]
    for tenant in policy.tenants:
        for stage, direction in _DIRECTIONS.items():
            default = tenant.acl.default(direction)
            lists.append(FilterList(stage, tenant.number, tenant.prefixes, _NO_RULES, _NO_KINDS, default))
    return tuple(lists)


def alone_lists(policy: Policy) -> tuple[FilterList, ...]:
    """Every list as it decides about packets alone.

    They have no default, and rows that leave packets to connections. Lists that would leave every packet are left out.
    Raises as `filter_lists` does.
    """
    numbers = numbers_alone(policy.operator, policy.operator_numbers)
    asked = replace(policy, operator=rules_alone(policy.operator), operator_numbers=numbers)
    lists = [operator_list(asked)]
    for tenant in policy.tenants:
        if tenant.acl.has_stateless:
            lists += tenant_lists(tenant_alone(tenant), policy.return_traffic)
    kept = (each for each in lists if each.stage is Stage.OPERATOR or not each.leaves.all())
    return tuple(replace(each, default=None) for each in kept)


def check_carried(policy: Policy, *, carries_stateless: bool) -> None:
    """Refuse rules that a packet filter which tracks connections cannot carry out.

    Raises BadPolicy with the rule's place.
    """
    check_trackable(policy, carries_stateless=carries_stateless)
    _check_whole(policy.operator, "operator")
    for tenant in policy.tenants:
        _check_whole(tenant.acl.rules, f"tenants[{tenant.id}].acl.rules")


def _check_whole(rules: Sequence[Rule], place: str) -> None:
    """Refuse rules about fragments: the kernel puts these together before any rule is asked."""
    for position, rule in enumerate(rules):
        if rule.fragments:
            text = f"rule '{rule.id}' looks at fragments, which firewall VNFs that track connections put together first"
            raise BadPolicy(f"{text}; leave `fragments` out", place=f"{place}[{position}]")


def operator_list(policy: Policy) -> FilterList:
    """The operator's list. Raises as `filter_lists` does."""
    try:
        operator = atoms(policy.operator, {}, numbers=policy.operator_numbers).in_one_list()
    except AclflowError as error:
        raise error.within("operator") from None
    return FilterList(Stage.OPERATOR, 0, (), operator, np.full(len(operator), Kind.OPERATOR_RULE, np.uint8), None)


def tenant_lists(tenant: Tenant, returns: ReturnTraffic) -> tuple[FilterList, FilterList]:
    """A tenant's egress and ingress list."""
    table = atoms(tenant.acl.rules, tenant.acl.groups, tenant=tenant.number, numbers=tenant.rule_numbers)
    extra = return_atoms(tenant.number, returns)
    extra = replace(extra, number=np.full(len(extra), tenant.number, np.uint64))
    return (
        _make_tenant_list(tenant, table, extra, Stage.EGRESS),
        _make_tenant_list(tenant, table, extra, Stage.INGRESS),
    )


def _make_tenant_list(tenant: Tenant, table: RuleTable, extra: RuleTable, stage: Stage) -> FilterList:
    egress = stage is Stage.EGRESS
    direction = EGRESS if egress else INGRESS
    own, last = table.take(table.direction == direction), extra.take(extra.direction == direction)
    kind = np.full(len(own) + len(last), Kind.RULE, np.uint8)
    kind[len(own) :] = Kind.EGRESS_RETURN if egress else Kind.INGRESS_RETURN
    default = tenant.acl.default(Direction.EGRESS if egress else Direction.INGRESS)
    return FilterList(stage, tenant.number, tenant.prefixes, RuleTable.join_tables([own, last]), kind, default)


_DIRECTIONS = {Stage.EGRESS: Direction.EGRESS, Stage.INGRESS: Direction.INGRESS}
_NO_RULES = RuleTable.join_tables([])
_NO_KINDS = np.empty(0, np.uint8)


def _make_prefixes(
    family: npt.NDArray[np.uint8],
    upper: npt.NDArray[np.uint64],
    lower: npt.NDArray[np.uint64],
    length: npt.NDArray[np.uint8],
) -> Iterator[Prefix]:
    for version, high, low, bits in zip(*(c.tolist() for c in (family, upper, lower, length)), strict=True):
        yield Prefix(Family(version), high >> 32 if version == Family.IPV4 else high << 64 | low, bits)
