"""The rows of a classifier before a firewall server: whole lists, in order.

    for every prefix of a tenant   the operator's rules, what is established or says which size of packet a path takes,
                                   its ingress list, its default

so each packet to a tenant that is here has a row, which says what `policy/prefilter.py` says and who counts it. Rows
are those of a flow cache (`cacherows.py`), in a table of their own. Packets that a rule with `log` denies are deferred
to the filter, which reports them, and so are those that a rule matches apart from fields that rows do not look at.
Prefixes are exclusive, so tenants do not meet, and in what order their rows stand among each other means nothing.
Packets to others find no row, neither do those to a tenant whose list there is no room for: the filter behind decides
both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.filters.cacherows import CacheRow, Verdict, families
from orchestrator.compile.filters.filterlists import FilterList, Line, World
from orchestrator.compile.filters.filterrows import read_comment
from orchestrator.compile.servers.bitvectors import MOST_RULES
from orchestrator.policy.addresses import Family, Prefix
from orchestrator.policy.maskedword import FLAG_BITS
from orchestrator.policy.model import Action
from orchestrator.policy.protocols import ICMP, ICMPV6, TCP
from orchestrator.policy.spans import Span
from orchestrator.policy.tcpflags import ESTABLISHED
from orchestrator.program.flows import FlowTable
from orchestrator.program.program import Tier

_EVERY_PORT, _EVERY_PROTOCOL = Span(0, 0xFFFF), Span(0, 0xFF)


class _Message(NamedTuple):
    """The fields that identify an ICMP message."""

    protocol: Span
    icmp_type: Span
    icmp_code: Span


_PATH_MTU = {
    Family.IPV4: _Message(Span(ICMP, ICMP), Span(3, 3), Span(4, 4)),
    Family.IPV6: _Message(Span(ICMPV6, ICMPV6), Span(2, 2), _EVERY_PORT),
}


def general_rows(operator: FilterList, ingress: FilterList) -> tuple[CacheRow, ...]:
    """Return a tenant's rows of IPv4, then IPv6: the operator's list and its own.

    Exact pairs are included.
    """
    return tuple(row for family in Family for row in _make_family_rows(family, operator, ingress))


def fitting(tables: Iterable[FlowTable], most: int = MOST_RULES) -> Iterator[FlowTable]:
    """Yield tenants' tables (from `cache_table`) that fit into a classifier, in order."""
    left = dict.fromkeys((family.value for family in Family), most)
    for table in tables:
        needed = Counter(families(table).tolist())
        if all(count <= left[family] for family, count in needed.items()):
            for family, count in needed.items():
                left[family] -= count
            yield table


def _make_family_rows(family: Family, operator: FilterList, ingress: FilterList) -> Iterator[CacheRow]:
    above = tuple(operator.rows(World(family, later=False)).lines())
    for prefix in ingress.prefixes:
        if prefix.family is family:
            yield from _make_tenant_rows(ingress, prefix, above)


def _make_tenant_rows(each: FilterList, prefix: Prefix, above: Sequence[Line]) -> Iterator[CacheRow]:
    own = Span(prefix.network, prefix.last)
    for line in above:
        yield from _row(line, prefix)
    cookie = Cookie(Tier.SERVER, Kind.INGRESS_RETURN, each.tenant).pack()
    for flags in ESTABLISHED:
        yield _make_general_row(prefix, own, Span(TCP, TCP), (flags.value, flags.mask), Verdict.PERMIT, cookie)
    yield replace(
        _make_general_row(prefix, own, _PATH_MTU[prefix.family].protocol, (0, 0), Verdict.PERMIT, cookie),
        source_ports=_PATH_MTU[prefix.family].icmp_type,
        destination_ports=_PATH_MTU[prefix.family].icmp_code,
    )
    for line in each.rows(World(prefix.family, later=False)).lines():
        yield from _row(line, prefix)
    default = Cookie(Tier.SERVER, Kind.INGRESS_DEFAULT, each.tenant).pack()
    verdict = Verdict.PERMIT if each.default is Action.PERMIT else Verdict.DENY
    yield _make_general_row(prefix, own, _EVERY_PROTOCOL, (0, 0), verdict, default)


def _make_general_row(
    prefix: Prefix, own: Span, protocols: Span, flags: tuple[int, int], verdict: Verdict, cookie: int
) -> CacheRow:
    everywhere = Span(0, (1 << prefix.family.bits) - 1)
    return CacheRow(prefix.family, everywhere, own, _EVERY_PORT, _EVERY_PORT, protocols, flags, verdict, (cookie,))


def _row(line: Line, prefix: Prefix) -> Iterator[CacheRow]:
    """A line as far as it is about some destinations."""
    low, high = max(line.destination.network, prefix.network), min(line.destination.last, prefix.last)
    if low > high:
        return
    owner = read_comment(line.comment)
    assert owner is not None
    verdict = Verdict.PERMIT if line.permit else Verdict.DEFER if line.log else Verdict.DENY
    if line.word_mask & ~FLAG_BITS:
        verdict = Verdict.DEFER
    first, second = (Span(*ends) for ends in line.slots)
    yield CacheRow(
        prefix.family,
        Span(line.source.network, line.source.last),
        Span(low, high),
        first,
        second,
        _EVERY_PROTOCOL if line.protocol < 0 else Span(line.protocol, line.protocol),
        (line.word_value & FLAG_BITS, line.word_mask & FLAG_BITS),
        verdict,
        () if verdict is Verdict.DEFER else (Cookie(Tier.SERVER, *owner).pack(),),
    )
