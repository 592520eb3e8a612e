"""Reports of one enforcement point take a part of the service, and make those of others wait for nothing."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
from concurrent.futures import Future, ThreadPoolExecutor

import httpx
import orjson
import pytest
from patience import PATIENCE_S, until
from served import Served

from api import context, limits, pacing
from api.pacing import LONGEST_REST_S, MOST_UNDER_WAY, SAVED_S, SHARE, Account, Pace
from api.schemas import enforcers as schemas
from api.schemas.enforcers import ReportBody
from orchestrator.client import Client, Host
from orchestrator.control.enforcement import Enforcement
from orchestrator.errors import BadInput, TooOften
from orchestrator.program.program import Program

DOMAIN = "paced"
POINT = {"host": "host1", "generation": 1, "digest": "0" * 32, "state": "enforced"}
_numbers = itertools.count(1)


class Ticks:
    """A clock that stands still."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Point:
    """An enforcement point and its requests."""

    def __init__(self, service: Served, admin: Client, *hosts: str) -> None:
        name = f"controller{next(_numbers)}"
        token = admin.enrolment.invite(DOMAIN, name=name, kind="openflow", hosts=hosts)
        with service.client("") as anybody:
            enrolled = anybody.enrolment.enrol(token, name=name, kind="openflow")
        self._service, self.token, self.number = service, enrolled.token, enrolled.enforcer
        self.path = f"/v1/domains/{DOMAIN}/enforcers/{self.number}/report"

    def report(self, points: object = ()) -> httpx.Response:
        with self._service.http(self.token) as http:
            return http.post(self.path, json={"points": points})

    @property
    def account(self) -> Account:
        pace: Pace = self._service.service.app.state.services.pace
        return pace.account(f"reports of enforcement point {self.number}")


@pytest.fixture(scope="module", autouse=True)
def _domain(admin: Client) -> None:
    admin.domains.create(DOMAIN)
    for number, name in enumerate(("host1", "host2"), 1):
        admin.domains.add_host(DOMAIN, Host(name, number, "up0"))


@pytest.fixture
def point(service: Served, admin: Client) -> Point:
    return Point(service, admin, "host1")


@pytest.fixture
def other(service: Served, admin: Client) -> Point:
    return Point(service, admin, "host2")


def test_a_report_waits_for_those_of_its_own_point_alone(
    point: Point, other: Point, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, begun = Enforcement.begin, []

    def held_up(enforcement: Enforcement, domain: str, enforcer: int, *more: object) -> Future[float]:
        if enforcer != point.number:
            return begin(enforcement, domain, enforcer, *more)  # type: ignore[arg-type]
        begun.append(Future[float]())
        return begun[-1]

    monkeypatch.setattr(Enforcement, "begin", held_up)
    with ThreadPoolExecutor(MOST_UNDER_WAY) as many:
        answers = [many.submit(point.report) for _ in range(MOST_UNDER_WAY)]
        until(lambda: point.account.under_way == MOST_UNDER_WAY)
        refused = point.report()
        assert (refused.status_code, refused.headers["Retry-After"]) == (429, "1")
        assert other.report([{**POINT, "host": "host2"}]).status_code == 204
        for number in range(MOST_UNDER_WAY):
            until(lambda: len(begun) > number)  # noqa: B023 - it is over before the next one
            assert len(begun) == number + 1, "one at a time"
            begun[number].set_result(0.0)
        assert {each.result(PATIENCE_S).status_code for each in answers} == {204}


def test_a_report_that_waited_is_not_taken_from_a_point_that_was_revoked_meanwhile(
    point: Point, service: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Future[float]] = []

    def held_up(*_: object) -> Future[float]:
        begun.append(Future())
        return begun[-1]

    monkeypatch.setattr(Enforcement, "begin", held_up)
    monkeypatch.setattr(context, "CHECKED_S", -1.0)
    with ThreadPoolExecutor(2) as both:
        answers = [both.submit(point.report) for _ in range(2)]
        until(lambda: begun and point.account.under_way == 2)
        with service.service.parts.store.write() as unit:
            unit.tokens.revoke(unit.tokens.check(point.token).token_id)
        begun[0].set_result(0.0)
        assert sorted(each.result(PATIENCE_S).status_code for each in answers) == [204, 401]
    assert len(begun) == 1


def test_what_reports_took_is_made_up_for(point: Point, other: Point) -> None:
    assert point.report([POINT]).status_code == 204
    assert point.account.left_s < SAVED_S, "a report takes some of a processor"
    point.account.spend(1e6)
    refused = point.report([POINT])
    assert refused.status_code == 429
    assert int(refused.headers["Retry-After"]) > LONGEST_REST_S
    assert other.report([{**POINT, "host": "host2"}]).status_code == 204


@pytest.mark.parametrize("body", [b"{" * 1_000, b'{"points": [{}]}'])
def test_a_report_that_is_refused_is_paid_for(point: Point, service: Served, body: bytes) -> None:
    before = point.account.left_s
    with service.http(point.token) as http:
        assert http.post(point.path, content=body).status_code == 400
    assert point.account.left_s < before


def test_epochs_of_a_point_are_paced(point: Point, other: Point, service: Served) -> None:
    def ask(whose: Point) -> httpx.Response:
        with service.http(whose.token) as http:
            return http.post(whose.path.replace("/report", "/epoch"))

    account = service.service.app.state.services.pace.account(f"epochs of enforcement point {point.number}")
    assert ask(point).status_code == 200
    assert account.left_s < SAVED_S
    account.spend(1e6)
    refused = ask(point)
    assert (refused.status_code, int(refused.headers["Retry-After"]) > LONGEST_REST_S) == (429, True)
    assert ask(other).status_code == 200


@pytest.mark.parametrize(("host", "status"), [("host1", 204), ("host2", 403)])
def test_impostors_of_a_point_are_paced(point: Point, service: Served, host: str, status: int) -> None:
    """Each report of them takes a turn of writers, whether it is believed or not."""
    with service.http(point.token) as http:
        answer = http.post(point.path, json={"impostors": [{"host": host, "address": "192.0.2.9"}]})
    assert answer.status_code == status
    assert point.account.left_s <= SAVED_S - pacing.TURN_S / 2


@pytest.mark.parametrize("path", ["program", "program/stream"])
def test_whole_programs_of_a_point_are_paced(point: Point, other: Point, service: Served, path: str) -> None:
    def ask(whose: Point, have: str = "") -> int:
        query = {"wait": "0.1"} | ({"have": have} if have else {})
        with service.http(whose.token) as http:
            return http.get(f"/v1/domains/{DOMAIN}/{path}", params=query).status_code

    with service.client(point.token) as client:
        program = client.points.watch_program(DOMAIN)
    assert isinstance(program, Program)
    account = service.service.app.state.services.pace.account(f"whole programs of enforcement point {point.number}")
    left = account.left_s
    assert left < SAVED_S
    assert ask(point, program.digest.hex()) in (200, 204)
    assert account.left_s >= left, "what is not sent costs nothing"
    account.spend(1e6)
    assert ask(point) == 429
    assert ask(other) == 200


def test_a_point_follows_programs_by_a_few_streams_only(
    other: Point, service: Served, admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Streams and held requests together; those of others are not counted, and one that ends makes room."""
    monkeypatch.setattr(context, "MOST_FOLLOWED", 3)
    point = Point(service, admin, "host1", "spread")
    url, query = f"/v1/domains/{DOMAIN}/program/stream", {"wait": "30"}
    account = service.service.app.state.services.pace.account(f"whole programs of enforcement point {point.number}")

    def ask(whose: Point, path: str = "program") -> int:
        with service.http(whose.token) as http:
            return http.get(f"/v1/domains/{DOMAIN}/{path}", params={"wait": "0"}).status_code

    with service.http(point.token) as http, contextlib.ExitStack() as streams:
        for _ in range(3):
            answer = streams.enter_context(http.stream("GET", url, params=query))
            assert answer.status_code == 200
        for path in ("program", "program/stream", "spread/stream"):
            assert ask(point, path) == 429
        assert ask(other) == 200
        assert account.followed == 3
        with service.http() as administrator, contextlib.ExitStack() as more:
            for _ in range(5):
                answer = more.enter_context(administrator.stream("GET", url, params=query))
                assert answer.status_code == 200
    until(lambda: account.followed == 0)
    assert ask(point) == 200


def test_a_point_that_owes_time_waits_until_it_is_made_up_for() -> None:
    ticks = Ticks()
    account = Pace(ticks).account("reports of x")
    account.spend(SAVED_S + 1.0)
    assert account.rest_s() == pytest.approx(1.0 / SHARE)
    ticks.now += 0.5 / SHARE
    assert account.rest_s() == pytest.approx(0.5 / SHARE)
    ticks.now += 0.5 / SHARE
    assert account.rest_s() == 0.0
    ticks.now += 1e6
    assert account.rest_s() == 0.0
    assert account.left_s == SAVED_S, "no more is saved"


def test_whoever_would_wait_too_long_is_told_how_long() -> None:
    account = Pace(Ticks()).account("reports of x")
    account.spend(SAVED_S + 2 * LONGEST_REST_S * SHARE)

    async def wait() -> None:
        async with account.turn():
            raise AssertionError("it is not its turn")

    with pytest.raises(TooOften) as refused:
        asyncio.run(wait())
    assert refused.value.after_s == pytest.approx(2 * LONGEST_REST_S)


def test_accounts_that_are_full_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "MOST_ACCOUNTS", 3)
    pace = Pace(Ticks())
    owing, idle = pace.account("owing"), pace.account("idle")
    owing.spend(0.1)
    with pace.admit("busy") as busy:
        pace.account("new")
        assert pace.account("owing") is owing
        assert pace.account("busy") is busy
    assert pace.account("idle") is not idle


def test_a_report_is_as_large_as_its_senders_hosts_may_need(service: Served, point: Point, admin: Client) -> None:
    """What is larger is refused before it comes."""
    most = limits.SMALL_REPORT_BYTES + limits.OF_A_HOST_BYTES
    both = Point(service, admin)
    for sender, size, status in ((point, most, 400), (point, most + 1, 413), (both, most + 1, 400)):
        with service.http(sender.token) as http:
            assert http.post(sender.path, content=b"{".ljust(size)).status_code == status
    url = httpx.URL(service.url)
    said = f"POST {point.path} HTTP/1.1\r\nHost: x\r\nX-Auth-Token: {point.token}\r\nContent-Length: {most + 1}\r\n\r\n"
    with socket.create_connection((url.host, url.port or 0), timeout=PATIENCE_S) as line:
        line.sendall(said.encode())
        assert line.recv(100).startswith(b"HTTP/1.1 413 ")


def test_a_report_without_its_length_is_small(service: Served, point: Point) -> None:
    with service.http(point.token) as http:
        for size, status in ((limits.SMALL_REPORT_BYTES, 400), (limits.SMALL_REPORT_BYTES + 1, 413)):
            assert http.post(point.path, content=iter([b"{".ljust(size)])).status_code == status


def test_a_long_report_is_read_point_by_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """A parser of all of it would keep the interpreter from all others meanwhile."""
    read: list[object] = []
    validate = schemas.validate

    def noting(model: type[ReportBody], value: object, place: str = "") -> ReportBody:
        read.append(value)
        return validate(model, value, place)

    monkeypatch.setattr(schemas, "validate", noting)
    found = ReportBody.read(orjson.dumps({"sequence": 3, "points": [POINT, {**POINT, "host": "host2"}]}))
    assert [each.host for each in found.points] == ["host1", "host2"]
    assert found.sequence == 3
    assert read == [POINT, {**POINT, "host": "host2"}, {"sequence": 3, "points": []}]


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"points": [POINT, {**POINT, "generation": -1}]}, "points[1].generation"),
        ({"points": [POINT, 7]}, "points[1]"),
        ({"points": {}}, "points"),
        ({"points": [], "more": 1}, "more"),
        ([], None),
    ],
)
def test_a_report_that_is_wrong_names_the_place(body: object, place: str | None) -> None:
    with pytest.raises(BadInput) as refused:
        ReportBody.read(orjson.dumps(body))
    assert refused.value.place == place
