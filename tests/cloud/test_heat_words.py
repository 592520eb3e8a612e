"""What OpenStack says, in words that tell what to do. The reasons are those of real services."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cloud.heat.api import Quota
from orchestrator.cloud.heat.words import in_words, is_over_quota, too_little_room

INSTANCES = (
    "Resource UPDATE failed: resources.group: Resource CREATE failed: Forbidden: resources[3].resources.server: Quota "
    "exceeded for instances: Requested 1, but already used 2 of 2 instances (HTTP 403) (Request-ID: req-eb2fc955)"
)
SEVERAL = (
    "Forbidden: resources.server: Quota exceeded for cores, ram: Requested 4, 8192, but already used 18, 49152 of 20, "
    "51200 cores, ram (HTTP 403) (Request-ID: req-eb2fc955-c729-413f-bf43-ec9e0c328500)"
)
PORTS = (
    "OverQuotaClient: resources.left_port: Quota exceeded for resources: ['port'].\n"
    "Neutron server returns request_ids: ['req-9fc27f3f-a2d1']"
)
STACKS = "ERROR: You have reached the maximum stacks per tenant, 512. Please delete some stacks."
NO_HOST = (
    'Resource CREATE failed: ResourceInError: resources[1].resources.server: Went to status ERROR due to "Message: No '
    'valid host was found. , Code: 500"'
)


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (INSTANCES, "quota of instances is used up: 2 of 2, and 1 more was asked for"),
        (SEVERAL, "quota of cores, ram is used up: 18, 49152 of 20, 51200, and 4, 8192 more was asked for"),
        (PORTS, "the project's network quota of ports is used up"),
        (STACKS, "Heat allows a tenant at most 512 stacks"),
    ],
)
def test_a_quota_is_explained(reason: str, words: str) -> None:
    assert words in in_words(reason)
    assert is_over_quota(reason)


def test_a_full_cloud_is_explained() -> None:
    assert in_words(NO_HOST).startswith("no host takes it")
    assert not is_over_quota(NO_HOST)


def test_what_heat_wraps_around_a_reason_is_left_out() -> None:
    reason = (
        "Resource CREATE failed: resources.group: Resource CREATE failed: BadRequest: resources[0].resources.server: "
        "Flavor's disk is too small for requested image. (HTTP 400) (Request-ID: req-1-2)"
    )
    assert in_words(reason) == "Flavor's disk is too small for requested image."


@given(st.text(max_size=2000))
def test_any_reason_gives_some_words(reason: str) -> None:
    words = in_words(reason)
    assert len(words) <= 500
    assert "\n" not in words
    assert bool(words) == bool(words.strip())


@given(st.integers(0, 50), st.integers(0, 50), st.integers(1, 8), st.integers(1, 20))
def test_what_does_not_fit_is_told_and_how_many_fit(limit: int, used: int, each: int, more: int) -> None:
    reason = too_little_room(Quota("cores", limit, used, each), more)
    fits = next(count for count in range(more + 1, -1, -1) if count == 0 or used + count * each <= limit)
    if fits >= more and used + more * each <= limit:
        assert reason is None
    else:
        assert reason is not None
        assert f"so {min(fits, more)} more fit" in reason


def test_without_a_limit_everything_fits() -> None:
    assert too_little_room(Quota("instances", None, 10**6, 1), 10**6) is None
