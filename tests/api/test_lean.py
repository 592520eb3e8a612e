"""A lean route answers as FastAPI's own does, whatever is asked, and has a plan for every route that is asked often."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import httpx
import pytest
from fastapi import APIRouter, Depends, FastAPI, Form, Header, Path, Query, Request, Response
from fastapi.routing import APIRoute
from hypothesis import given
from hypothesis import strategies as st

from api import lean
from api.lean import Lean, Strict
from api.routes import enforcers, rules
from orchestrator.errors import BadInput

Bounded = Annotated[int, Path(ge=0, le=9)]


async def early(request: Request) -> str:
    return request.headers.get("x-early", "-")


def late(early: Annotated[str, Depends(early)], x_late: Annotated[int | None, Header(ge=1)] = None) -> str:
    return f"{early}{x_late}"


async def refuses(x_refuse: Annotated[str, Header()] = "") -> None:
    if x_refuse:
        raise LookupError(x_refuse)


async def yields() -> Any:
    yield 1


def told(*words: object) -> Response:
    return Response(repr(words))


def application(route_class: type[APIRoute]) -> FastAPI:
    router = APIRouter(route_class=route_class)

    @router.get("/in-a-thread/{number}", dependencies=[Depends(refuses)])
    def in_a_thread(
        number: Bounded,
        late: Annotated[str, Depends(late)],
        early: Annotated[str, Depends(early)],
        flag: bool = False,
        word: Annotated[str | None, Query(max_length=3)] = None,
        must: Annotated[str, Query()] = "default",
    ) -> Response:
        return told(number, late, early, flag, word, must)

    @router.post("/in-the-loop/{number}")
    async def in_the_loop(number: Bounded, request: Request, must: str) -> Response:
        return told(number, must, await request.body())

    app = FastAPI()
    app.include_router(router)

    @app.exception_handler(BadInput)
    @app.exception_handler(LookupError)
    async def missing(_: Request, error: Exception) -> Response:
        return Response(str(error), 404)

    return app


THEIRS, OURS = application(Strict), application(Lean)
words = st.sampled_from(["", "a", "abcd", "1", "0", "-1", "10", "true", "maybe", "\u00e9", "1.5"])
queries = st.lists(st.tuples(st.sampled_from(["flag", "word", "must", "other"]), words), max_size=4)
headers = st.lists(
    st.tuples(st.sampled_from(["X-Late", "X-Early", "X-Refuse", "X_Late"]), words.filter(str.isascii)), max_size=3
)


def asked(app: FastAPI, method: str, path: str, **how: Any) -> tuple[int, bytes]:
    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://service") as client:
            return await client.request(method, path, **how)

    answer = asyncio.run(ask())
    return answer.status_code, answer.content


@given(words, queries, headers)
def test_what_it_answers_is_what_fastapi_answers(number: str, query: list[tuple[str, str]], sent: Any) -> None:
    for method, path in (("GET", f"/in-a-thread/{number}"), ("POST", f"/in-the-loop/{number}")):
        how = {"params": query, "headers": sent} | ({"content": b"body"} if method == "POST" else {})
        assert asked(OURS, method, path, **how) == asked(THEIRS, method, path, **how)


def test_what_is_right_is_answered_without_fastapi_and_else_it_says_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unneeded(*_: object, **__: object) -> None:
        raise AssertionError("the plan should do")

    monkeypatch.setattr("fastapi.routing.solve_dependencies", unneeded)
    assert asked(OURS, "GET", "/in-a-thread/3?flag=1", headers={"X-Late": "2"}) == (
        200,
        b"(3, '-2', '-', True, None, 'default')",
    )
    with pytest.raises(AssertionError, match="the plan should do"):
        asked(OURS, "GET", "/in-a-thread/30")


def test_a_route_with_what_no_plan_knows_stays_as_it_is() -> None:
    def form(field: Annotated[str, Form()]) -> Response:
        return told(field)

    def several(word: Annotated[list[str], Query()]) -> Response:
        return told(word)

    def model() -> dict[str, int]:
        return {"a": 1}

    def yielded(one: Annotated[int, Depends(yields)]) -> Response:
        return told(one)

    app = FastAPI()
    app.router.route_class = Lean
    for endpoint in (form, several, model, yielded):
        app.add_api_route(f"/{endpoint.__name__}", endpoint, methods=["POST"])
        route = app.routes[-1]
        assert isinstance(route, Lean)
        assert lean.plan_of(route.dependant) is None or not lean.answers_itself(endpoint)
    assert asked(app, "POST", "/model") == (200, b'{"a":1}')
    assert asked(app, "POST", "/several?word=a&word=b") == (200, b"(['a', 'b'],)")
    assert asked(app, "POST", "/yielded") == (200, b"(1,)")


@pytest.mark.parametrize("router", [rules.router, enforcers.reports])
def test_the_routes_of_one_changed_rule_have_plans(router: APIRouter) -> None:
    for route in router.routes:
        assert isinstance(route, Lean)
        assert lean.answers_itself(route.endpoint)
        plan = lean.plan_of(route.dependant)
        assert plan is not None, route.path
        assert [call.function for call in plan if not call.is_async] in ([], [route.endpoint]), "one thread, once"


def test_what_a_function_raises_comes_back_from_its_thread_whatever_it_is() -> None:
    def runs_out() -> Response:
        return next(iter(()))

    app = FastAPI()
    app.router.route_class = Lean
    app.add_api_route("/", runs_out)
    with pytest.raises(RuntimeError, match="StopIteration"):
        asked(app, "GET", "/")
