"""The desk where machines enrol: whom a cloud vouches for, who fails too often, and what is told of it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cloud.base import Cloud, Vnf, VnfOrder, VnfState
from orchestrator.control.compiler import Compiler
from orchestrator.control.control import Control
from orchestrator.control.enrolment import Applicant, Attempts, EnrolmentDesk, name_by_cloud
from orchestrator.control.metrics import Metrics
from orchestrator.control.publisher import Publisher
from orchestrator.errors import BadInput, Conflict, Forbidden, NotFound, TooOften, Unauthenticated, Unreachable
from orchestrator.identity.authority import Authority
from orchestrator.identity.requests import new_key, request_of
from orchestrator.store import open_store

NOW = dt.datetime.now(dt.UTC)
AUTHORITY = Authority.create("test", NOW)
ADDRESS = "192.0.2.7"
THERE = Vnf("pop", "vnf-1", VnfState.RUNNING, instance_id="i-1", addresses=(ADDRESS, "2001:db8::7"))


@dataclass
class Sky:
    """A cloud that only lists."""

    vnfs: Sequence[Vnf] = (THERE,)
    fault: Exception | None = None
    asked: list[str | None] = field(default_factory=list)
    kind = "test"

    def list(self, fleet: str | None = None) -> tuple[Vnf, ...]:
        self.asked.append(fleet)
        if self.fault is not None:
            raise self.fault
        return tuple(vnf for vnf in self.vnfs if vnf.fleet == fleet)

    def create(self, orders: Sequence[VnfOrder]) -> None:
        raise NotImplementedError

    def delete(self, fleet: str, names: Sequence[str]) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class Desk:
    """A desk over a store in a file, with a cloud, a clock for failures, and administrators' short ways."""

    def __init__(self, path: Path, authority: Authority | None = AUTHORITY) -> None:
        self.store = open_store(f"sqlite:///{path / 'aclflow.db'}")
        self.control = Control(self.store, Compiler(Metrics()), Publisher())
        self.sky = Sky()
        self.clouds: dict[str, Cloud] = {"pop": self.sky}
        self.seconds = 0.0
        self.desk = EnrolmentDesk(
            self.control,
            lambda: NOW,
            authority,
            cloud_of=self.clouds.get,
            attempts=Attempts(lambda: self.seconds),
        )
        with self.store.write() as unit:
            unit.domains.create("pop")

    def invite(self) -> str:
        with self.store.write() as unit:
            return unit.enforcers.invite("pop", expires=unit.now + dt.timedelta(hours=1), author="test")

    def invite_group(self) -> str:
        with self.store.write() as unit:
            later = unit.now + dt.timedelta(hours=1)
            return unit.enforcers.invite_group("pop", "pop", kind="nftables", expires=later, author="test")[0]

    def enrol(self, token: str, **more: object) -> str:
        """The name under which somebody with a new key is let in."""
        said: dict[str, object] = {"name": "fw1", "kind": "nftables", "address": ADDRESS, "instance": None}
        said["request"] = request_of(new_key(), str(more.get("name", "fw1")))
        return self.desk.enrol(Applicant(token, **(said | more))).enforcer.name  # type: ignore[arg-type]

    def events(self, kind: str) -> list[dict[str, object]]:
        with self.store.read() as unit:
            return [dict(each.detail) for each in unit.events.since(0).events if each.kind == kind]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.store.close()


# -------------------------------------------------------------------------------------------------------- vouching


def test_a_machine_of_a_group_is_called_what_its_cloud_calls_it(desk: Desk) -> None:
    token = desk.invite_group()
    assert desk.enrol(token, instance="i-1", name="admin") == "vnf-1"
    assert desk.sky.asked == ["pop"]
    [told] = desk.events("enforcer.enrolled")
    assert (told["name"], told["instance"], told["address"]) == ("vnf-1", "i-1", ADDRESS)


FORGED: dict[str, dict[str, object]] = {
    "another instance": {"instance": "i-2"},
    "the instance in other letters": {"instance": "I-1"},
    "an address of another": {"address": "192.0.2.8"},
    "no address": {"address": ""},
    "the address in a name": {"address": "192.0.2.7.example"},
    "an address of another family": {"address": "2001:db8::8"},
}


@pytest.mark.parametrize("forged", FORGED)
def test_whom_the_cloud_does_not_know_there_is_refused(desk: Desk, forged: str) -> None:
    token = desk.invite_group()
    with pytest.raises(Forbidden) as refused:
        desk.enrol(token, **({"instance": "i-1"} | FORGED[forged]))
    assert refused.value.place == "instance"
    [told] = desk.events("enrolment.refused")
    assert "the cloud has no instance" in str(told["reason"])
    assert token not in str(told)


@pytest.mark.parametrize(
    "vnf",
    [
        Vnf("other", "vnf-1", VnfState.RUNNING, instance_id="i-1", addresses=(ADDRESS,)),
        Vnf("pop", "vnf-1", VnfState.LEAVING, instance_id="i-1", addresses=(ADDRESS,)),
        Vnf("pop", "vnf-1", VnfState.FAILED, instance_id="i-1", addresses=(ADDRESS,)),
        Vnf("pop", "vnf-1", VnfState.RUNNING, instance_id=None, addresses=(ADDRESS,)),
        Vnf("pop", "vnf-1", VnfState.RUNNING, instance_id="i-1", addresses=()),
        Vnf("pop", "vnf-1", VnfState.RUNNING, instance_id="i-1", addresses=("not an address",)),
    ],
)
def test_a_cloud_vouches_for_what_it_has_in_the_group_just_now(desk: Desk, vnf: Vnf) -> None:
    desk.sky.vnfs = (vnf,)
    with pytest.raises(Forbidden):
        desk.enrol(desk.invite_group(), instance="i-1")


def test_an_address_is_the_same_in_other_words() -> None:
    sky = Sky()
    for same in ("192.0.2.7", "::ffff:192.0.2.7", "2001:db8::7", "2001:0db8:0:0::0007", "2001:DB8::7%eth0"):
        assert name_by_cloud(sky, "pop", "i-1", same) == "vnf-1", same


def test_where_the_cloud_does_not_answer_nobody_is_let_in_and_nothing_is_held_against_them(desk: Desk) -> None:
    token = desk.invite_group()
    desk.sky.fault = Unreachable("the cloud is away")
    for _ in range(20):
        with pytest.raises(Unreachable):
            desk.enrol(token, instance="i-1")
    assert desk.events("enrolment.refused") == []
    desk.sky.fault = None
    assert desk.enrol(token, instance="i-1") == "vnf-1"


@pytest.mark.parametrize(
    ("more", "error", "place"),
    [
        ({}, BadInput, "instance"),
        ({"instance": "i-1", "kind": "openflow"}, Forbidden, "token"),
        ({"instance": "i-1", "request": None}, BadInput, "csr"),
    ],
)
def test_what_a_groups_token_needs_is_said(
    desk: Desk, more: dict[str, object], error: type[Exception], place: str
) -> None:
    with pytest.raises(error) as refused:
        desk.enrol(desk.invite_group(), **more)
    assert getattr(refused.value, "place", None) == place


def test_a_domain_without_a_cloud_has_no_groups(desk: Desk) -> None:
    del desk.clouds["pop"]
    with pytest.raises(Forbidden, match="no cloud that vouches"):
        desk.enrol(desk.invite_group(), instance="i-1")


def test_a_second_machine_is_not_the_same_instance(desk: Desk) -> None:
    token = desk.invite_group()
    desk.enrol(token, instance="i-1")
    with pytest.raises(Conflict):
        desk.enrol(token, instance="i-1")


# --------------------------------------------------------------------------------------------------- who fails often


def test_who_fails_often_waits_and_others_do_not(desk: Desk) -> None:
    for _ in range(10):
        with pytest.raises(Unauthenticated):
            desk.enrol("aclflow_guessed")
    good = desk.invite()
    with pytest.raises(TooOften, match="wait 60 s"):
        desk.enrol(good)
    assert desk.enrol(good, address="192.0.2.99") == "fw1"
    assert len(desk.events("enrolment.refused")) == 10
    desk.seconds = 60.0
    assert desk.enrol(desk.invite(), name="fw2") == "fw2"


def test_who_succeeds_is_forgiven(desk: Desk) -> None:
    for number in range(30):
        with pytest.raises(Unauthenticated):
            desk.enrol("aclflow_mistyped")
        assert desk.enrol(desk.invite(), name=f"fw{number}")


@given(st.lists(st.tuples(st.floats(0, 30), st.booleans()), max_size=60))
def test_nobody_fails_more_often_than_is_allowed(steps: list[tuple[float, bool]]) -> None:
    """Within any window there are `most` failures at most; and who has not failed so often is never kept waiting."""
    now, most, window = 0.0, 3, 20.0
    attempts = Attempts(lambda: now, most=most, window_s=window)
    failures: list[float] = []
    for pause, fails in steps:
        now += pause
        recent = [each for each in failures if now - each < window]
        if len(recent) >= most:
            with pytest.raises(TooOften):
                attempts.check("192.0.2.1")
            continue
        attempts.check("192.0.2.1")
        attempts.check("192.0.2.2")
        if fails:
            attempts.note_failure("192.0.2.1")
            failures.append(now)


def test_neighbours_in_ipv6_are_one_and_no_more_are_kept_than_may_be() -> None:
    attempts = Attempts(lambda: 0.0, most=2, kept=3)
    attempts.note_failure("2001:db8::1")
    attempts.note_failure("2001:db8::2")
    with pytest.raises(TooOften):
        attempts.check("2001:db8:0:0:ffff::")
    attempts.check("2001:db8:0:1::1")
    for number in range(3):
        attempts.note_failure(f"192.0.2.{number}")
    attempts.check("2001:db8::1")


# -------------------------------------------------------------------------------------------------- with and without


def test_a_service_with_an_authority_lets_nobody_in_without_a_key(desk: Desk) -> None:
    token = desk.invite()
    with pytest.raises(BadInput, match="send a certificate request"):
        desk.enrol(token, request=None)
    assert desk.enrol(token) == "fw1"


def test_a_service_without_one_says_so(tmp_path: Path) -> None:
    desk = Desk(tmp_path, authority=None)
    token = desk.invite()
    with pytest.raises(BadInput, match="no certificate authority"):
        desk.enrol(token)
    assert desk.enrol(token, request=None) == "fw1"
    assert desk.desk.token_text("secret") == "secret"
    with pytest.raises(NotFound):
        desk.desk.need_authority()
    desk.store.close()


def test_switches_are_certified_for_hosts_of_a_domain_and_revoked(desk: Desk) -> None:
    key = new_key()
    request = request_of(key, "host1")
    made = desk.desk.issue_switch("pop", ("host1",), request, "admin:1")
    assert desk.desk.issue_switch("pop", ("host1",), request, "admin:1") == made
    with pytest.raises(NotFound, match="no domain 'nowhere'"):
        desk.desk.issue_switch("nowhere", ("host1",), request_of(new_key(), "host1"), "admin:1")
    with pytest.raises(BadInput, match="it is for 'CN=host1'"):
        desk.desk.issue_switch("pop", ("host2", "host1"), request_of(new_key(), "host1"), "admin:1")
    with desk.store.write() as unit:
        unit.certificates.revoke(made.serial)
        assert unit.certificates.revoked_switches("pop") == (made.serial,)
        assert unit.certificates.revoked_switches("other") == ()
    with pytest.raises(Conflict):
        desk.enrol(desk.invite(), name="host1", request=request)
