"""What Heat and Nova say of a VNF, as the state of a VNF: every case by itself."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cloud.base import Vnf, VnfState
from orchestrator.cloud.heat.api import Action, Member, Port, Server, Stack, Standing, Status
from orchestrator.cloud.heat.stackstate import Group, Sight, read_names, vnfs
from orchestrator.compile.spreadprogram import Side
from orchestrator.errors import Drifted

NO_HOST = 'ResourceInError: resources.server: Went to status ERROR due to "No valid host was found. , Code: 500"'


def seen(
    stack: str = "UPDATE_COMPLETE",
    member: str | None = "CREATE_COMPLETE",
    server: str | None = "ACTIVE",
    *,
    reason: str = "",
    fault: str = "",
    going: bool = False,
    links: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Vnf, ...]:
    """One member called fw-3, in that state, in a stack in that one."""
    group = Group(frozenset({"0"} if member else ()), frozenset(), {"0": "fw-3"})
    members = [Member("0", Standing.read(member, reason), "id", {"left": "0123456789ab"}, 2, 4)] if member else []
    servers = {"id": Server("id", server, ("10.0.0.7",), fault)} if server else {}
    ports = {"0123456789ab": Port("0123456789ab", 0xFA163E000001)}
    whole = Stack("1", "aclflow-fleet-pop1", Standing.read(stack, reason))
    removed = frozenset({"0"} if going else ())
    return vnfs("pop1", Sight(whole, members, group, servers, ports, removed, links=links))


@pytest.mark.parametrize(
    ("stack", "member", "server", "state", "words"),
    [
        ("UPDATE_COMPLETE", "CREATE_COMPLETE", "ACTIVE", VnfState.RUNNING, "machine runs"),
        ("UPDATE_IN_PROGRESS", "UPDATE_IN_PROGRESS", "ACTIVE", VnfState.RUNNING, "machine runs"),
        ("UPDATE_FAILED", "UPDATE_FAILED", "ACTIVE", VnfState.RUNNING, "machine runs"),
        ("UPDATE_COMPLETE", "UPDATE_COMPLETE", "MIGRATING", VnfState.RUNNING, "MIGRATING"),
        ("UPDATE_COMPLETE", "UPDATE_COMPLETE", "BUILD", VnfState.COMING, "being built"),
        ("UPDATE_COMPLETE", "UPDATE_COMPLETE", "SHUTOFF", VnfState.FAILED, "SHUTOFF"),
        ("UPDATE_COMPLETE", "UPDATE_COMPLETE", "ERROR", VnfState.FAILED, "ERROR: disk broke"),
        ("UPDATE_COMPLETE", "CREATE_COMPLETE", None, VnfState.FAILED, "gone"),
        ("UPDATE_IN_PROGRESS", "INIT_COMPLETE", None, VnfState.COMING, "parts"),
        ("UPDATE_FAILED", "INIT_COMPLETE", None, VnfState.FAILED, "no host takes it"),
        ("CHECK_IN_PROGRESS", "CHECK_IN_PROGRESS", "ACTIVE", VnfState.RUNNING, "machine runs"),
        ("SUSPEND_COMPLETE", "SUSPEND_COMPLETE", "SUSPENDED", VnfState.FAILED, "SUSPENDED"),
        ("CREATE_IN_PROGRESS", "CREATE_IN_PROGRESS", None, VnfState.COMING, "2 of 4 parts"),
        ("CREATE_IN_PROGRESS", "CREATE_IN_PROGRESS", "BUILD", VnfState.COMING, "2 of 4 parts"),
        ("UPDATE_FAILED", "CREATE_IN_PROGRESS", "BUILD", VnfState.FAILED, "no host takes it"),
        ("UPDATE_FAILED", "CREATE_FAILED", "ERROR", VnfState.FAILED, "no host takes it"),
        ("CHECK_FAILED", "CHECK_FAILED", "ACTIVE", VnfState.FAILED, "no host takes it"),
        ("UPDATE_IN_PROGRESS", "DELETE_IN_PROGRESS", "ACTIVE", VnfState.LEAVING, "deleting"),
        ("DELETE_IN_PROGRESS", "CREATE_COMPLETE", "ACTIVE", VnfState.LEAVING, "deleting"),
        ("UPDATE_FAILED", "DELETE_FAILED", "ACTIVE", VnfState.FAILED, "could not be deleted"),
        ("DELETE_FAILED", "CREATE_COMPLETE", "ACTIVE", VnfState.FAILED, "could not be deleted"),
    ],
)
def test_a_state_is_what_heat_and_nova_say_together(
    stack: str, member: str, server: str | None, state: VnfState, words: str
) -> None:
    [vnf] = seen(stack, member, server, reason=NO_HOST, fault="disk broke")
    assert (vnf.name, vnf.state) == ("fw-3", state)
    assert words in vnf.progress


def test_one_that_is_taken_out_is_leaving_before_heat_has_begun_with_it() -> None:
    [vnf] = seen("UPDATE_IN_PROGRESS", going=True)
    assert vnf.state is VnfState.LEAVING
    [vnf] = seen("UPDATE_COMPLETE", going=True)  # an older change took out a member of that number
    assert vnf.state is VnfState.RUNNING


@pytest.mark.parametrize(
    ("stack", "state"),
    [
        ("CREATE_IN_PROGRESS", VnfState.COMING),
        ("CREATE_FAILED", VnfState.FAILED),
        ("UPDATE_COMPLETE", None),
        ("DELETE_IN_PROGRESS", None),
    ],
)
def test_one_that_was_ordered_and_not_begun(stack: str, state: VnfState | None) -> None:
    assert [vnf.state for vnf in seen(stack, None)] == ([] if state is None else [state])


def test_it_says_where_it_is_plugged_in_and_speaks_from() -> None:
    [vnf] = seen()
    assert vnf.addresses == ("10.0.0.7",)
    assert vnf.instance_id == "id"
    assert vnf.left == Side("tap0123456789a", 0xFA163E000001)
    assert vnf.right is None


def test_where_a_port_of_the_spreading_switch_leads_to_its_network_that_is_its_link() -> None:
    links = {"left": "sw-left", "right": "sw-right"}
    [vnf] = seen(links=links)
    assert vnf.left == Side("sw-left", 0xFA163E000001)
    assert vnf.right is None, "its port is not known yet"


@given(st.sampled_from(list(Action)), st.sampled_from(list(Status)), st.text(max_size=30))
def test_heats_words_are_read_whatever_comes_later(action: Action, status: Status, reason: str) -> None:
    assert Standing.read(f"{action.value}_{status.value}", reason) == Standing(action, status, reason)


@given(st.text(max_size=30))
def test_what_heat_may_say_one_day_is_not_taken_for_done(text: str) -> None:
    found = Standing.read(text, None)
    assert found.status is Status.IN_PROGRESS or text.endswith(found.status.value)


@pytest.mark.parametrize("text", ["{", "[]", '{"0": 3}', '"a"', "{'0': 'fw-1'}"])
def test_names_that_somebody_else_wrote_are_refused(text: str) -> None:
    with pytest.raises(Drifted, match="somebody else"):
        read_names(text)
