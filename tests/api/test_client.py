"""The client: errors come through as what they were, and whatever answers in the service's place is found out."""

from __future__ import annotations

import pytest
from served import Served

from api.problems import STATUS, Unconditional, problem, status_of
from orchestrator import errors
from orchestrator.client import Client
from orchestrator.client.connections import Answer, Connections
from orchestrator.client.problems import LONGEST_WAIT_S, error_of
from orchestrator.errors import (
    AclflowError,
    BadInput,
    Busy,
    Full,
    NotFound,
    Stale,
    TooOften,
    Unauthenticated,
    Unreachable,
)


def whole_tree(root: type[AclflowError]) -> list[type[AclflowError]]:
    return [root, *(kind for child in root.__subclasses__() for kind in whole_tree(child))]


KINDS = [kind for kind in whole_tree(AclflowError) if kind.__module__ == errors.__name__]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", [None, "rules[3].destination"])
def test_an_error_comes_out_as_it_went_in(kind: type[AclflowError], place: str | None) -> None:
    answer = problem(kind("it cannot be", place=place))
    error = error_of(answer.status_code, bytes(answer.body))
    assert (type(error), error.reason, error.place) == (kind, "it cannot be", place)


def test_every_status_is_an_error_and_the_table_has_no_dead_line() -> None:
    assert {status_of(kind("")) for kind in (*KINDS, Unconditional)} == set(STATUS.values())
    assert all(int(status) >= 400 for status in STATUS.values())


def test_a_write_without_a_condition_is_stale_to_the_client() -> None:
    answer = problem(Unconditional("say If-Match"))
    assert answer.status_code == 428
    assert type(error_of(428, bytes(answer.body))) is Stale


class Somebody(Connections):
    """Answers everything alike."""

    def __init__(self, answer: Answer) -> None:
        super().__init__("http://service", plain_http=True)
        self.answer = answer

    def ask(self, *_: object, **__: object) -> Answer:
        return self.answer


class Refusing(Connections):
    """Answers requests with refusals, one after the other, and then with the tenants."""

    def __init__(self, *refusals: Answer) -> None:
        super().__init__("http://service", plain_http=True)
        self.refusals = list(refusals)
        self.asked = 0

    def ask(self, *_: object, **__: object) -> Answer:
        self.asked += 1
        return self.refusals.pop(0) if self.refusals else Answer(200, b'{"items": [], "next": null}')


def refusal(error: AclflowError) -> Answer:
    answer = problem(error)
    return Answer(answer.status_code, bytes(answer.body), {name.title(): said for name, said in answer.headers.items()})


def test_a_patient_client_sends_again_what_the_service_refused_for_now() -> None:
    service = Refusing(refusal(Busy("a list is written", after_s=0)), refusal(TooOften("too fast", after_s=0)))
    with Client("http://service", connections=service, patience_s=30.0) as client:
        assert not list(client.tenants.read_all())
    assert service.asked == 3


@pytest.mark.parametrize(
    "refused",
    [
        refusal(Busy("a list is written", after_s=60)),
        refusal(Full("no room", after_s=0)),
        refusal(Stale("read again")),
        Answer(503, b"<html>no backend</html>", {"Retry-After": "0"}),
    ],
    ids=["longer than patience", "the disk is full", "a stale write", "a proxy's own words"],
)
def test_other_refusals_reach_a_patient_caller_at_once(refused: Answer) -> None:
    service = Refusing(refused)
    with Client("http://service", connections=service, patience_s=1.0) as client, pytest.raises(AclflowError):
        list(client.tenants.read_all())
    assert service.asked == 1


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        ("0", 0.0),
        ("99999999999", LONGEST_WAIT_S),
        ("Fri, 31 Dec 1999 23:59:59 GMT", 0.0),
        ("Fri, 31 Dec 2199 23:59:59 GMT", LONGEST_WAIT_S),
        ("-1", None),
        ("soon", None),
        ("", None),
        ("\u0663", None),
    ],
)
def test_how_long_to_wait_is_read_from_an_answer(header: str, seconds: float | None) -> None:
    error = error_of(503, b"", header)
    assert isinstance(error, Busy)
    assert error.after_s == seconds


def test_how_long_to_wait_comes_out_as_it_went_in() -> None:
    for said, told in ((None, 1.0), (0.2, 1.0), (17, 17.0)):
        answer = problem(Busy("x", after_s=said))
        error = error_of(answer.status_code, bytes(answer.body), answer.headers["Retry-After"])
        assert isinstance(error, Busy)
        assert error.after_s == told


def fake(status: int, body: bytes, content_type: str = "application/json") -> Client:
    return Client("http://service", "t", connections=Somebody(Answer(status, body, {"Content-Type": content_type})))


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (401, b"<html>who are you?</html>", Unauthenticated),
        (404, b"", NotFound),
        (502, b"bad gateway", Unreachable),
        (503, b"{}", Busy),
        (418, b'{"detail": "teapot"}', Unreachable),
        (400, b'[{"type": "urn:aclflow:problem:stale"}]', BadInput),
        (409, b'{"type": "urn:aclflow:problem:no-such-error", "detail": "x"}', errors.Conflict),
        (200, b"<html>hello</html>", Unreachable),
    ],
)
def test_what_others_answer_is_an_error_of_ours(status: int, body: bytes, kind: type[AclflowError]) -> None:
    with fake(status, body) as client, pytest.raises(kind) as caught:
        client.tenants.read("x")
    assert type(caught.value) is kind


def test_a_program_that_is_none_is_found_out() -> None:
    with fake(200, b"{}") as client, pytest.raises(Unreachable, match="no program"):
        client.points.watch_program("pop")
    with fake(200, b"garbage", "application/vnd.aclflow.program") as client, pytest.raises(BadInput):
        client.points.watch_program("pop")


def test_nobody_there_is_unreachable() -> None:
    with Client("http://127.0.0.1:9", timeout_s=1) as client:
        with pytest.raises(Unreachable, match="does not answer"):
            client.domains.read("pop")
        assert not client.is_ready()


@pytest.mark.parametrize("url", ["http://[", "ftp://x", "nonsense", ""])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises((BadInput, Unreachable)), Client(url) as client:
        client.domains.read("pop")


def test_names_cannot_leave_their_place_in_the_path(service: Served, admin: Client) -> None:
    for name in ("../domains", "a/b", "%2e%2e", "x?y=1", "x#y"):
        with pytest.raises((BadInput, NotFound)):
            admin.tenants.read(name)
