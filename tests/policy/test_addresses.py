"""Prefixes and ports: read exactly, refused clearly, and covered without a gap."""

from __future__ import annotations

import ipaddress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import BadInput
from orchestrator.policy.addresses import Family, Prefix, aggregate
from orchestrator.policy.ports import PortRange, masks, normalise_ranges


@st.composite
def prefixes(draw: st.DrawFn, family: Family | None = None) -> Prefix:
    chosen = family or draw(st.sampled_from(list(Family)))
    length = draw(st.integers(0, chosen.bits))
    # Few distinct leading bits, so that prefixes nest and touch often.
    leading = draw(st.integers(0, 7)) << (chosen.bits - 3)
    return Prefix(chosen, leading & (((1 << length) - 1) << (chosen.bits - length)), length)


@given(prefixes())
def test_a_prefix_reads_back_from_its_text(prefix: Prefix) -> None:
    assert Prefix.parse(str(prefix)) == prefix
    assert str(ipaddress.ip_network(str(prefix))) == str(prefix)


@given(prefixes(), prefixes())
def test_containment_is_that_of_the_standard_library(one: Prefix, other: Prefix) -> None:
    left, right = ipaddress.ip_network(str(one)), ipaddress.ip_network(str(other))
    same = left.version == right.version
    assert one.contains(other) == (same and right.subnet_of(left))  # type: ignore[arg-type]
    assert one.overlaps(other) == (same and left.overlaps(right))


@given(st.lists(prefixes(), max_size=8))
def test_aggregation_is_that_of_the_standard_library(many: list[Prefix]) -> None:
    expected = []
    for family in Family:
        networks = [ipaddress.ip_network(str(item)) for item in many if item.family is family]
        expected += [str(network) for network in ipaddress.collapse_addresses(networks)]  # type: ignore[type-var]
    assert [str(item) for item in aggregate(tuple(many))] == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("10.0.0.0/33", "its length must be 0..32"),
        ("::/129", "its length must be 0..128"),
        ("10.0.0.1/8", "did you mean 10.0.0.0/8?"),
        ("10.0.0/8", "is not a prefix"),
        ("10.0.0.256", "is not an address"),
        ("10.0.0.0/+8", "is not a length"),
        ("10.0.0.0/", "is not a length"),
        ("10.0.0.0/٣", "is not a length"),
        ("", "is not an address"),
        ("a\0b", "is not an address"),
    ],
)
def test_what_is_not_a_prefix_is_refused_with_the_reason(text: str, says: str) -> None:
    with pytest.raises(BadInput) as refusal:
        Prefix.parse(text)
    assert says in str(refusal.value)


@pytest.mark.parametrize("text", ["70000", "-1", "5-4", "a", "1-2-3", "", "80 "])
def test_what_is_not_a_port_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        PortRange.parse(text)


@given(st.integers(0, 65535), st.integers(0, 65535))
def test_masks_cover_exactly_their_range_without_overlap(one: int, other: int) -> None:
    ports = PortRange(min(one, other), max(one, other))
    cover = masks(ports)
    spans = [(value, value | (0xFFFF & ~mask)) for value, mask in cover]
    assert spans[0][0] == ports.low
    assert spans[-1][1] == ports.high
    assert all(left[1] + 1 == right[0] for left, right in pairwise(spans))
    assert all(value & ~mask == 0 for value, mask in cover)
    assert len(cover) <= 30


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=6))
def test_normalised_ports_are_the_same_set(pairs: list[tuple[int, int]]) -> None:
    ranges = [PortRange(min(pair), max(pair)) for pair in pairs]
    merged = normalise_ranges(ranges)
    assert {port for item in merged for port in range(item.low, item.high + 1)} == {
        port for item in ranges for port in range(item.low, item.high + 1)
    }
    assert all(left.high + 1 < right.low for left, right in pairwise(merged))
