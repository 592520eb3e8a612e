"""Laws of the service: what goes in comes out, and what enforcement points are told is what the store holds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from served import Served, served
from strategies import acls, rules

from orchestrator.client import Client, Held
from orchestrator.compile.hostprogram import compile_host
from orchestrator.errors import ChangeTheRequest
from orchestrator.policy.addresses import EVERY_IPV4, EVERY_IPV6
from orchestrator.policy.model import Acl, Rule
from orchestrator.program.delta import Delta, apply
from orchestrator.program.program import Program

LAW = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), database=None)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service with a tenant that owns every address."""
    with served(tmp_path_factory.mktemp("laws")) as running:
        with running.client() as admin:
            admin.domains.create("pop")
            admin.tenants.create("all", domain="pop", prefixes=[EVERY_IPV4, EVERY_IPV6])
        yield running


@pytest.fixture(scope="module")
def admin_of(world: Served) -> Iterator[Client]:
    with world.client() as client:
        yield client


@LAW
@given(acl=acls())
def test_every_list_comes_back_as_it_was_sent(admin_of: Client, acl: Acl) -> None:
    etag = admin_of.acls.put("all", acl).etag
    seen = admin_of.acls.read("all")
    assert (seen.acl, seen.etag) == (acl, etag)
    assert tuple(admin_of.acls.read_rules("all")) == acl.rules


def change(admin: Client, step: tuple[str, int, Acl, Rule]) -> None:
    """One change of the list, if it can be made as it is now."""
    kind, place, acl, rule = step
    now = admin.acls.read("all").acl.rules
    try:
        if kind == "replace":
            admin.acls.put("all", acl)
        elif kind == "insert":
            admin.acls.insert_rule("all", rule, position=place % (len(now) + 1))
        elif now and kind == "delete":
            admin.acls.delete_rule("all", now[place % len(now)].id)
        elif now and kind == "swap":
            admin.acls.put_rule("all", now[place % len(now)])
    except ChangeTheRequest:
        return


steps = st.tuples(
    st.sampled_from(("replace", "insert", "insert", "delete", "swap")), st.integers(0, 99), acls(), rules()
)


@LAW
@given(story=st.lists(steps, min_size=1, max_size=8), looks=st.lists(st.integers(0, 7), max_size=3))
def test_an_enforcer_that_looks_now_and_then_holds_what_the_store_says(
    world: Served, admin_of: Client, story: list[tuple[str, int, Acl, Rule]], looks: list[int]
) -> None:
    """Whether it sees every change or sleeps through some, deltas bring it to the program compiled from scratch."""
    held = admin_of.points.watch_program("pop")
    assert isinstance(held, Program)
    for index, step in enumerate(story):
        change(admin_of, step)
        if index in looks:
            held = after_a_look(admin_of, held)
    held = after_a_look(admin_of, held)
    with world.service.parts.store.read() as unit:
        snapshot = unit.domains.policy("pop")
    fresh = compile_host(snapshot.policy, domain="pop", generation=snapshot.generation)
    assert (held.digest, held.generation) == (fresh.digest, fresh.generation)
    assert sorted(held.flows.rows(), key=str) == sorted(fresh.flows.rows(), key=str)


def after_a_look(admin: Client, held: Program) -> Program:
    answer = admin.points.watch_program("pop", Held(held.digest, held.generation), wait_s=0)
    if isinstance(answer, Delta):
        assert answer.generation > held.generation
        return apply(held, answer)
    return answer or held
