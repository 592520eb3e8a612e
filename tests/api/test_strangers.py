"""Strangers that are refused again and again wait, and nobody else does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from patience import PATIENCE_S, until
from served import Served, served

from api.app import openapi_document
from api.middleware import OPEN_PATHS
from api.rates import Shown, Strangers
from orchestrator.control.control import Control
from orchestrator.errors import TooOften
from orchestrator.store.records import Principal, Role

A_MINUTE = 60
SELDOM = 12
"""Of the service: a stranger is judged every five seconds then, which is seldom also on a loaded machine."""
HERE, ELSEWHERE = Shown("192.0.2.7"), Shown("192.0.2.8")


class Ticks:
    """A clock that a test pushes on."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def is_admitted(strangers: Strangers, shown: Shown) -> bool:
    try:
        strangers.admit(shown)
    except TooOften:
        return False
    return True


def exhaust(strangers: Strangers, shown: Shown) -> None:
    for _ in range(A_MINUTE):
        strangers.admit(shown)
        strangers.refuse(shown, is_wrong=True)


# ---------------------------------------------------------------------------------------------------- the buckets


def test_refusals_of_an_address_make_its_strangers_wait_and_no_others() -> None:
    ticks = Ticks()
    strangers = Strangers(A_MINUTE, ticks=ticks)
    exhaust(strangers, HERE)
    with pytest.raises(TooOften) as refused:
        strangers.admit(HERE)
    assert refused.value.after_s == 1
    assert is_admitted(strangers, ELSEWHERE)
    ticks.now += 1.0
    assert is_admitted(strangers, HERE)
    strangers.refuse(HERE, is_wrong=True)
    assert not is_admitted(strangers, HERE)


def test_who_was_known_before_is_judged_until_it_is_known_no_more() -> None:
    strangers = Strangers(A_MINUTE, ticks=Ticks())
    known = Shown(HERE.address, b"good")
    strangers.remember(known)
    exhaust(strangers, HERE)
    assert is_admitted(strangers, known)
    strangers.refuse(known, is_wrong=False)  # a path that is not there, say
    assert is_admitted(strangers, known)
    strangers.refuse(known, is_wrong=True)  # it was revoked
    assert not is_admitted(strangers, known)
    assert not is_admitted(strangers, Shown(HERE.address, b"other"))


def test_a_site_of_ipv6_is_one_address_and_a_certificate_has_a_bucket_of_its_own() -> None:
    strangers = Strangers(A_MINUTE, ticks=Ticks())
    exhaust(strangers, Shown("2001:db8::1"))
    assert not is_admitted(strangers, Shown("2001:db8::2"))
    assert is_admitted(strangers, Shown("2001:db8:0:1::1"))
    machine = Shown("2001:db8::3", b"fingerprint", is_certified=True)
    assert is_admitted(strangers, machine)
    exhaust(strangers, machine)
    assert not is_admitted(strangers, machine)
    assert is_admitted(strangers, Shown("2001:db8::3", b"another", is_certified=True))


# ---------------------------------------------------------------------------------------------------- the service


@pytest.fixture(scope="module")
def paced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("paced"), stranger_refusals_a_minute=SELDOM) as running:
        yield running


def ask(running: Served, token: str, path: str = "/v1/tenants", local: str = "127.0.0.1") -> httpx.Response:
    transport = httpx.HTTPTransport(local_address=local, verify=False)
    headers = {"X-Auth-Token": token} if token else {}
    with httpx.Client(base_url=running.url, transport=transport, timeout=PATIENCE_S) as http:
        return http.get(path, headers=headers)


def exhaust_service(running: Served) -> httpx.Response:
    """Guess tokens until that is paced; return the answer that says so."""
    answers = (ask(running, f"guess-{number}") for number in range(4 * SELDOM))
    return next(answer for answer in answers if answer.status_code != 401)


def test_who_guesses_tokens_is_told_to_wait_and_others_are_not(paced: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    member, newcomer = (paced.make_token(Role.ADMIN) for _ in range(2))
    assert ask(paced, member).status_code == 200
    refused = exhaust_service(paced)
    assert (refused.status_code, refused.headers["Connection"]) == (429, "close")
    assert 1 <= int(refused.headers["Retry-After"]) <= 60 / SELDOM
    assert refused.json()["type"].rpartition(":")[2] == "too-often"

    looked_up: list[str] = []
    judge = Control.bearer

    def noting(control: Control, secret: str) -> Principal:
        looked_up.append(secret)
        return judge(control, secret)

    monkeypatch.setattr(Control, "bearer", noting)
    answers = [ask(paced, token, path) for token in ("", "guess") for path in ("/v1/tenants", "/v1/nothing")]
    assert {answer.status_code for answer in answers} <= {429, 401, 404}
    assert sum(answer.status_code == 429 for answer in answers) >= len(answers) - 1, "one may be judged"
    assert len(looked_up) <= 1

    assert ask(paced, member).status_code == 200
    assert ask(paced, member, "/v1/nothing").status_code == 404
    assert ask(paced, "", "/healthz").status_code == 200
    assert ask(paced, "guess", local="127.0.0.2").status_code == 401
    until(lambda: ask(paced, newcomer).status_code == 200)


def test_a_token_that_was_revoked_is_a_strangers(paced: Served) -> None:
    token = paced.make_token(Role.ADMIN)
    until(lambda: ask(paced, token).status_code == 200)
    with paced.service.parts.store.write() as unit:
        unit.tokens.revoke(unit.tokens.check(token).token_id)
    assert ask(paced, token).status_code == 401
    exhaust_service(paced)
    assert 429 in {ask(paced, token).status_code for _ in range(3)}


def test_a_refused_body_is_not_read_and_its_connection_ends(paced: Served) -> None:
    exhaust_service(paced)
    with httpx.Client(base_url=paced.url, timeout=PATIENCE_S) as http:
        answers = [http.put("/v1/tenants/t/acl", content=b"x" * 60_000) for _ in range(3)]
    assert 429 in {answer.status_code for answer in answers}


def test_what_anybody_may_ask_is_never_paced() -> None:
    """A path that needs no token in the description of the interface is one that is left out, and no other."""
    paths = openapi_document()["paths"]
    needs_none = {path for path, methods in paths.items() if any("security" not in each for each in methods.values())}
    assert needs_none | {"/v1/openapi.json"} == OPEN_PATHS


def test_a_setting_says_how_often(tmp_path: Path) -> None:
    with served(tmp_path, stranger_refusals_a_minute=1) as running:
        assert [ask(running, "guess").status_code for _ in range(2)] == [401, 429]
