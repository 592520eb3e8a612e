"""Chunks: every address of a tenant lies in one of its chunks, and who meets whom has the same server."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.edge.chunks import Chunking, allocate
from orchestrator.errors import AclflowError, BadInput, BadPolicy, TooLarge
from orchestrator.policy.addresses import Family, Prefix, aggregate

V4 = Chunking(Family.IPV4, 24)


def prefix(text: str) -> Prefix:
    return Prefix.parse(text)


@st.composite
def owned(draw: st.DrawFn) -> dict[int, list[Prefix]]:
    """Up to four tenants within 10.0.0.0/20, none with an address of another."""
    found: dict[int, list[Prefix]] = {}
    taken: list[Prefix] = []
    for _ in range(draw(st.integers(0, 8))):
        length = draw(st.integers(21, 32))
        network = 10 << 24 | draw(st.integers(0, 2 ** (length - 20) - 1)) << (32 - length)
        new = Prefix(Family.IPV4, network, length)
        if not any(new.overlaps(other) for other in taken):
            taken.append(new)
            found.setdefault(draw(st.integers(1, 4)), []).append(new)
    return found


@given(owned())
def test_every_address_lies_in_a_chunk_of_its_tenants_cohort(mine: dict[int, list[Prefix]]) -> None:
    found = allocate(V4, mine)
    keys = found.key.tolist()
    assert keys == sorted(set(keys))
    for tenant, prefixes in mine.items():
        for each in prefixes:
            for address in (each.network, each.last):
                place = keys.index(V4.key(address))
                assert tenant in found.cohorts[found.cohort[place]]


@given(owned())
def test_every_chunk_is_met_by_some_prefix_and_what_is_nobodys_is_counted(mine: dict[int, list[Prefix]]) -> None:
    found = allocate(V4, mine)
    every = [each for prefixes in mine.values() for each in prefixes]
    for key in found.key.tolist():
        assert any(each.overlaps(V4.prefix(key)) for each in every)
    for tenant, prefixes in mine.items():
        chunks = {key for each in prefixes for key in V4.span(each)}
        used = sum(
            min(1 << (32 - each.length), 256)
            for each in aggregate(tuple(every))
            for key in V4.span(each)
            if key in chunks
        )
        assert found.over[tenant] == 256 * len(chunks) - used


@given(owned())
def test_tenants_are_together_exactly_when_chunks_bring_them_together(mine: dict[int, list[Prefix]]) -> None:
    found = allocate(V4, mine)
    assert sorted(tenant for group in found.cohorts for tenant in group) == sorted(mine)
    chunks = {tenant: {key for each in prefixes for key in V4.span(each)} for tenant, prefixes in mine.items()}
    for group in found.cohorts:
        reached, rest = {group[0]}, set(group[1:])
        while more := {one for one in rest if any(chunks[one] & chunks[other] for other in reached)}:
            reached |= more
            rest -= more
        assert not rest
    for one in mine:
        for other in mine:
            if chunks[one] & chunks[other]:
                assert found.of_tenant[one] == found.of_tenant[other]


def test_an_example() -> None:
    found = allocate(
        V4,
        {
            7: [prefix("10.0.0.0/23"), prefix("2001:db8::/32")],
            8: [prefix("10.0.2.0/25")],
            9: [prefix("10.0.2.128/26"), prefix("10.0.9.9/32")],
        },
    )
    assert found.key.tolist() == [0x0A0000, 0x0A0001, 0x0A0002, 0x0A0009]
    assert found.cohorts == ((7,), (8, 9))
    assert found.cohort.tolist() == [0, 0, 1, 1]
    assert dict(found.over) == {7: 0, 8: 64, 9: 64 + 255}


def test_ipv6_is_cut_the_same_way() -> None:
    cut = Chunking(Family.IPV6, 40)
    found = allocate(cut, {1: [prefix("2001:db8::/32")], 2: [prefix("2001:db9::/48")]})
    assert len(found) == 257
    assert cut.prefix(int(found.key[-1])) == prefix("2001:db9::/40")


@pytest.mark.parametrize(
    ("mine", "wrong", "words"),
    [
        ({1: ["10.0.0.0/8"], 2: ["10.1.0.0/16"]}, BadPolicy, "10.1.0.0/16 of tenant 2 and 10.0.0.0/8 of tenant 1"),
        ({1: ["10.0.0.0/24"], 2: ["10.0.0.0/24"]}, BadPolicy, "overlap"),
        ({1: ["0.0.0.0/0"], 2: []}, TooLarge, "take larger ones"),
    ],
)
def test_what_cannot_be_cut_is_refused(mine: dict[int, list[str]], wrong: type[AclflowError], words: str) -> None:
    cut = Chunking(Family.IPV4, 25) if wrong is TooLarge else V4
    with pytest.raises(wrong, match=words):
        allocate(cut, {tenant: [prefix(text) for text in texts] for tenant, texts in mine.items()})


@pytest.mark.parametrize(("family", "length"), [(Family.IPV4, 0), (Family.IPV4, 33), (Family.IPV6, 49)])
def test_sizes_that_fit_nothing_are_refused(family: Family, length: int) -> None:
    with pytest.raises(BadInput) as refused:
        Chunking(family, length)
    assert refused.value.place == "length"


def test_a_tenants_own_prefixes_may_overlap() -> None:
    found = allocate(V4, {1: [prefix("10.0.0.0/24"), prefix("10.0.0.0/25")]})
    assert len(found) == 1
    assert dict(found.over) == {1: 0}
