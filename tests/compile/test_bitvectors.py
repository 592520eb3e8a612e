"""The first row by bit vectors is the first row there is, and the rows of a server's lists say what its oracle says."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from compiled_filter import carried, hangs_on_dscp, reported_denial
from flow_cache_samples import packets_near, row_lists
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples
from strategies import policies

from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.filters.cacherows import CacheRow, Verdict, cache_table, families, read_table
from orchestrator.compile.filters.filterlists import operator_list, tenant_lists
from orchestrator.compile.servers import bitvectors
from orchestrator.compile.servers.bitvectors import MOST_RULES, bit_vectors, in_order, summaries
from orchestrator.compile.servers.generalrows import fitting, general_rows
from orchestrator.errors import TooLarge
from orchestrator.policy.addresses import Family
from orchestrator.policy.corners import policy_packets
from orchestrator.policy.model import Packet, Policy, ReturnTraffic
from orchestrator.policy.oracle import owner
from orchestrator.policy.prefilter import Fate, Share, verdict
from orchestrator.policy.spans import Span

WANTED = {Fate.PERMIT: Verdict.PERMIT, Fate.DROP: Verdict.DENY}


def linear(rows: list[CacheRow], packet: Packet) -> int | None:
    return next((place for place, row in enumerate(rows) if row.holds(packet)), None)


@settings(max_examples=examples(150))
@given(row_lists(12).filter(bool), st.data())
def test_the_first_row_is_the_first_row(rows: tuple[CacheRow, ...], data: st.DataObject) -> None:
    packets = data.draw(st.lists(packets_near(rows), min_size=20, max_size=20))
    for family, mine in in_order(rows):
        if mine:
            vectors = bit_vectors(mine)
            for packet in packets:
                if packet.family is family and not packet.later_fragment:
                    assert vectors.first(packet) == linear(list(mine), packet), packet


@settings(max_examples=20)
@given(st.data())
def test_many_rows_are_told_apart(data: st.DataObject) -> None:
    """Rows over several words of a vector, most of which hold many packets."""
    drawn = [row for row in data.draw(row_lists(6)) if row.family is Family.IPV4]
    one = Span(0xC0000201, 0xC0000201)
    port = Span(0, 65535)
    fill = [
        CacheRow(Family.IPV4, one, Span(at, at + 3), port, port, Span(0, 255), (0, 0), Verdict.PERMIT)
        for at in range(0xC0000200, 0xC0000200 + data.draw(st.integers(60, 140)))
    ]
    rows = [*fill, *drawn]
    vectors = bit_vectors(rows)
    for packet in data.draw(st.lists(packets_near(tuple(rows)), min_size=20, max_size=20)):
        if packet.family is Family.IPV4 and not packet.later_fragment:
            assert vectors.first(packet) == linear(rows, packet)


def test_a_summary_names_the_words_that_hold_a_bit() -> None:
    vectors = np.zeros((2, bitvectors.WORDS), np.uint64)
    vectors[0, [0, 63, 64, 255]] = 1
    found = [[int(word) for word in row] for row in summaries(vectors)]
    assert found == [[1 | 1 << 63, 1, 0, 1 << 63], [0, 0, 0, 0]]


def test_more_rows_than_there_is_room_for_are_refused() -> None:
    everything = Span(0, 0xFFFFFFFF)
    row = CacheRow(
        Family.IPV4, everything, everything, Span(0, 65535), Span(0, 65535), Span(0, 255), (0, 0), Verdict.DENY
    )
    with pytest.raises(TooLarge, match="room for 16384"):
        bit_vectors([row] * (MOST_RULES + 1))


@settings(max_examples=examples(60))
@given(policies(max_tenants=3, max_rules=5))
def test_the_rows_of_lists_say_what_the_oracle_says(policy: Policy) -> None:
    lists = [tenant_lists(tenant, ReturnTraffic.EXPLICIT)[1] for tenant in policy.tenants]
    parts = [general_rows(operator_list(policy), each) for each in lists]
    assert all(read_table(cache_table(part)) == part for part in parts)
    rows = tuple(row for part in reversed(parts) for row in part)
    share = Share(frozenset(tenant.id for tenant in policy.tenants))
    for packet in policy_packets(policy):
        if packet.later_fragment or not carried(packet):
            continue
        row = next((row for row in rows if row.holds(packet)), None)
        tenant = owner(policy, packet.family, packet.destination)
        assert (row is None) == (tenant is None)
        if row is not None and tenant is not None:
            wanted = WANTED[verdict(policy, share, packet).fate]
            if row.verdict is Verdict.DEFER and hangs_on_dscp(policy, tenant, packet):
                continue
            assert row.verdict is (Verdict.DEFER if reported_denial(policy, tenant, packet) else wanted), packet
            if row.verdict is Verdict.DEFER:
                continue
            (counted,) = row.counts
            cookie = Cookie.unpack(counted)
            assert cookie is not None
            if cookie.kind in (Kind.INGRESS_DEFAULT, Kind.INGRESS_RETURN):
                assert cookie.number == tenant.number


@settings(max_examples=examples(30))
@given(policies(max_tenants=3, max_rules=5), st.integers(0, 30))
def test_who_does_not_fit_is_left_out_whole(policy: Policy, most: int) -> None:
    lists = [tenant_lists(tenant, ReturnTraffic.EXPLICIT)[1] for tenant in policy.tenants]
    tables = [cache_table(general_rows(operator_list(policy), each)) for each in lists]
    found = list(fitting(tables, most))
    assert all(any(table is each for each in tables) for table in found)
    sizes = [Counter(families(table).tolist()) for table in found]
    assert all(sum(size[family.value] for size in sizes) <= most for family in Family)
    assert list(fitting(tables)) == tables
