"""What the suite `state-sync` concludes from its runs, with runs made up so that the answer is known."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from itertools import product

import pytest

from orchestrator.bench.results import Results
from orchestrator.bench.state_sync import losses, matrix
from orchestrator.bench.state_sync.matrix import Matrix
from orchestrator.bench.state_sync.programs import Sharing, Spent
from orchestrator.bench.state_sync.syncworld import AT_ONCE, MEMBERS, Sizes
from orchestrator.bench.traffic.downloads import Downloads
from orchestrator.statesync.states import Confirmation, Context, Level

COUNT = 1_000
NONE_US, OWNER_US, MEMBER_US, PROGRAM_US = 70.0, 5.0, 4.0, 1.5


def made_up(slower: tuple[float, ...]) -> Matrix:
    """Runs in which sharing costs the owner and each member so much, in rounds of a machine of some speed."""
    found = Matrix()
    for members, level, factor in product(MEMBERS, (Level.NONE, Level.FULL), slower):
        sharing = Sharing(level, Context.DIRTY, Confirmation.SYNCHRONOUS, members)
        shared_us = OWNER_US + MEMBER_US * (members - 1) if level is Level.FULL else 0.0
        run = Downloads(COUNT, COUNT * factor * (NONE_US + shared_us), 100.0, 100.0, 0)
        found.runs.setdefault((sharing, AT_ONCE[0]), []).append(run)
        if level is Level.FULL:
            found.spent.setdefault(sharing, []).append(Spent(2.0, PROGRAM_US * (members - 1)))
    return found


def test_what_sharing_costs_is_divided_between_the_owner_and_the_members() -> None:
    results = Results("state-sync", {})
    matrix.conclude_apart(results, made_up((1.0,) * 5))
    medians = {name: figure.median for name, figure in results.figures.items()}
    assert medians["full_sync_each_member_cpu_us"] == pytest.approx(MEMBER_US)
    for members in MEMBERS:
        assert medians[f"full_sync_owner_cpu_us_{members}"] == pytest.approx(OWNER_US)
        assert medians[f"full_sync_members_cpu_us_{members}"] == pytest.approx(MEMBER_US * (members - 1))
        kernel_us = (MEMBER_US - PROGRAM_US) * (members - 1)
        assert medians[f"full_sync_members_kernel_us_{members}"] == pytest.approx(kernel_us)


def test_a_round_is_divided_by_its_own_runs() -> None:
    """A machine that is twice as slow for a round costs both twice as much, and the interval shows it."""
    results = Results("state-sync", {})
    matrix.conclude_apart(results, made_up((1.0, 1.0, 2.0)))
    figure = results.figures["full_sync_members_cpu_us_3"]
    assert (figure.low, figure.median, figure.high) == pytest.approx((2 * MEMBER_US, 2 * MEMBER_US, 4 * MEMBER_US))


def test_what_a_setting_may_lose_is_what_the_page_says() -> None:
    bounds = {setting.figure: setting.bound(1_000, 100) for setting in losses.SETTINGS}
    assert bounds == {
        "lost_none": 1_100,
        "lost_established_dirty_asynchronous": 100,
        "lost_established_dirty_synchronous": 0,
        "lost_established_transaction_asynchronous": 100,
        "lost_established_transaction_synchronous": 0,
        "lost_full_dirty_asynchronous": 100,
        "lost_full_dirty_synchronous": 0,
        "lost_full_transaction_asynchronous": 100,
        "lost_full_transaction_synchronous": 0,
    }


def test_a_full_run_loses_of_more_than_a_thousand_connections() -> None:
    assert losses.count_connections(Sizes.full()) == losses.count_connections(Sizes.quick()) == (1_000, 100)


def test_a_connection_is_lost_unless_both_of_its_ends_are_heard() -> None:
    with ExitStack() as stack:
        pairs = [socket.socketpair() for _ in range(4)]
        for end in (end for pair in pairs for end in pair):
            stack.enter_context(end)
        pairs[1][0].close()
        pairs[1] = pairs[3][0], pairs[1][1]  # an end of another connection, so that neither hears the other
        assert losses.count_silent([pairs[0], pairs[2]], 0.2) == 0
        assert losses.count_silent([pairs[0], pairs[1], pairs[2]], 0.2) == 1


def test_means_of_larger_clusters_are_told_beside_a_cluster_of_three_with_and_without_lost_syns() -> None:
    """A second for each of two thousand is half a millisecond: most of a short set-up, and little of a long one."""
    plain_us, dearer = {25: 700.0, 100: 4_400.0}, {3: 1.0, 6: 1.2, 9: 1.5}
    found = {
        (kind, at_once): [plain_us[at_once] * dearer[kind.members] + (1e6 / matrix.LOST_OF if kind.loses else 0.0)]
        for kind in matrix.SYN_KINDS
        for at_once in AT_ONCE
    }
    results = Results("state-sync", {})
    matrix.conclude_lost_syns(results, found)
    assert {name: round(figure.median, 2) for name, figure in results.figures.items()} == {
        "no_lost_syns_25_6_members_vs_3": 1.2,
        "no_lost_syns_25_9_members_vs_3": 1.5,
        "lost_syns_25_6_members_vs_3": 0.7,
        "lost_syns_25_9_members_vs_3": 0.88,
        "no_lost_syns_100_6_members_vs_3": 1.2,
        "no_lost_syns_100_9_members_vs_3": 1.5,
        "lost_syns_100_6_members_vs_3": 1.08,
        "lost_syns_100_9_members_vs_3": 1.35,
    }
