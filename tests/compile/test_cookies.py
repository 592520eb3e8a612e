"""Cookies: packed and taken apart they are the same, and nobody else's is taken for ours."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.compile.cookies import COOKIE_MASK, HIGHEST_NUMBER, PART_BITS, Cookie, Kind
from orchestrator.errors import BadInput
from orchestrator.program.program import Tier

COOKIES = st.builds(Cookie, st.sampled_from(list(Tier)), st.sampled_from(list(Kind)), st.integers(0, HIGHEST_NUMBER))


@given(st.sampled_from(list(Tier)), st.integers(0, HIGHEST_NUMBER), st.integers(0, 0xFF))
def test_parts_of_return_traffic_come_back_and_are_no_part_of_what_counts(tier: Tier, number: int, part: int) -> None:
    cookie = Cookie(tier, Kind.INGRESS_RETURN, number, part)
    assert Cookie.unpack(cookie.pack()) == cookie
    assert cookie.pack() & ~PART_BITS == Cookie(tier, Kind.INGRESS_RETURN, number).pack()
    with pytest.raises(BadInput):
        Cookie(tier, Kind.RULE, number, 2)


@given(COOKIES)
def test_cookies_come_back(cookie: Cookie) -> None:
    assert Cookie.unpack(cookie.pack()) == cookie
    assert cookie.pack() >> 56 << 56 == COOKIE_MASK


@given(COOKIES, COOKIES)
def test_different_cookies_are_different_numbers(one: Cookie, two: Cookie) -> None:
    assert (one.pack() == two.pack()) == (one == two)


@given(st.integers(0, 2**64 - 1))
def test_any_number_is_ours_only_if_we_would_write_it(number: int) -> None:
    cookie = Cookie.unpack(number)
    assert cookie is None or cookie.pack() == number


@pytest.mark.parametrize(
    "number",
    [
        0,
        0xAB << 56 | 1 << 52 | 1 << 48 | 5,  # another's mark
        0xAC << 56 | 0 << 52 | 1 << 48 | 5,  # no such tier
        0xAC << 56 | 1 << 52 | 1 << 48 | 2 << 40,  # the free bits are not free
    ],
)
def test_strangers_are_none_of_ours(number: int) -> None:
    assert Cookie.unpack(number) is None


def test_the_layout_is_the_contract() -> None:
    assert Cookie(Tier.HOST, Kind.RULE, 0x1234).pack() == 0xAC11_0000_0000_1234
    assert Cookie(Tier.EDGE, Kind.STAMP, HIGHEST_NUMBER).pack() == 0xAC3F_00FF_FFFF_FFFF


@pytest.mark.parametrize("number", [-1, HIGHEST_NUMBER + 1])
def test_numbers_outside_are_refused(number: int) -> None:
    with pytest.raises(BadInput, match="number"):
        Cookie(Tier.HOST, Kind.RULE, number)
