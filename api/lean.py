"""Routes whose parameters are looked up by a plan that is made once.

FastAPI finds out anew at every request what a function and its dependencies ask for, which takes as long as changing a
rule. A `Lean` route asks once, when it is made, and afterwards goes through the list:

    look ── every path, query and header parameter, each held to its own schema
     │          └── one is wrong, or not there ──▶ FastAPI, from the beginning: it says why
    call ── every dependency once, then the function

The parameters, their schemas and what OpenAPI tells of them are FastAPI's, and so are all answers to what is wrong. A
route with anything that the plan does not know (forms, cookies, bodies as models, dependencies with `yield`) stays as
FastAPI has it.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from fastapi.security import APIKeyHeader

Handler = Callable[[Request], Awaitable[Response]]


class Lean(APIRoute):
    """A route that answers by a plan, where that can be made."""

    def get_route_handler(self) -> Handler:  # type: ignore[override]
        handle = super().get_route_handler()
        plan = _plan(self.dependant) if _answers_itself(self.endpoint) else None
        if plan is None:
            return handle

        async def answered(request: Request) -> Response:
            values = _looked_up(plan, request)
            if values is None:
                return await handle(request)
            answer: Response = await _called(plan, values)
            return answer

        return answered


@dataclass(frozen=True, slots=True)
class _Asked:
    """A parameter of a call: under which name it comes, and what it must be."""

    name: str
    alias: str
    field: Any


@dataclass(frozen=True, slots=True)
class _Call:
    """A function with what it asks for; `made` are its dependencies, as places in the plan before it."""

    function: Callable[..., Any]
    is_async: bool
    path: tuple[_Asked, ...]
    query: tuple[_Asked, ...]
    headers: tuple[_Asked, ...]
    request: str | None
    made: tuple[tuple[str, int], ...]


_Plan = list[_Call]
"""Every dependency after those that it needs; the route's own function last."""


class _Unknown(Exception):
    """Something is asked for that a plan has no way for."""


def _answers_itself(endpoint: Callable[..., Any]) -> bool:
    """Whether a function gives an answer as it is to be sent, rather than what FastAPI would make one of."""
    answer = get_type_hints(endpoint).get("return")
    return isinstance(answer, type) and issubclass(answer, Response)


def _plan(dependant: Dependant) -> _Plan | None:
    plan: _Plan = []
    try:
        _add(plan, {}, dependant)
    except _Unknown:
        return None
    return plan


def _add(plan: _Plan, places: dict[object, int], dependant: Dependant) -> int:
    """Put a function behind what it needs; its place."""
    function = dependant.call
    if function is None or _is_unknown(dependant, function):
        raise _Unknown
    if function not in places:
        made = tuple((each.name or "", _add(plan, places, each)) for each in dependant.dependencies)
        path, query, headers = (tuple(map(_asked, fields)) for fields in _parameters(dependant))
        called = function if inspect.isroutine(function) else type(function).__call__
        is_async = inspect.iscoroutinefunction(called)
        request = dependant.request_param_name or dependant.http_connection_param_name
        plan.append(_Call(function, is_async, path, query, headers, request, made))
        places[function] = len(plan) - 1
    return places[function]


def _parameters(dependant: Dependant) -> tuple[list[Any], list[Any], list[Any]]:
    return dependant.path_params, dependant.query_params, dependant.header_params


def _is_unknown(dependant: Dependant, function: Callable[..., Any]) -> bool:
    others = (
        dependant.cookie_params,
        dependant.body_params,
        dependant.websocket_param_name,
        dependant.response_param_name,
        dependant.background_tasks_param_name,
        dependant.security_scopes_param_name,
        dependant.concurrency,
    )
    yields = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
    return any(others) or yields or not dependant.use_cache or not _is_callable_as_it_is(function)


def _is_callable_as_it_is(function: object) -> bool:
    return inspect.isroutine(function) or isinstance(function, APIKeyHeader)


def _asked(field: Any) -> _Asked:
    """Raises _Unknown for lists of values, and for names that FastAPI has a rule of its own for."""
    annotation = field.field_info.annotation
    is_plain = annotation in (str, int, float, bool, str | None, int | None, float | None) or _is_literal(annotation)
    if not is_plain or field.validation_alias not in (None, field.alias):
        raise _Unknown
    return _Asked(field.name, field.alias, field)


def _is_literal(annotation: object) -> bool:
    return str(annotation).startswith("typing.Literal")


def _looked_up(plan: _Plan, request: Request) -> list[dict[str, Any]] | None:
    """The parameters of every call; None if one is not there or not what it must be."""
    found = []
    for call in plan:
        values: dict[str, Any] = {}
        for asked, given in (
            (call.path, request.path_params),
            (call.query, request.query_params),
            (call.headers, request.headers),
        ):
            if asked and not _take(values, asked, given):
                return None
        if call.request is not None:
            values[call.request] = request
        found.append(values)
    return found


def _take(values: dict[str, Any], asked: tuple[_Asked, ...], given: Mapping[str, Any]) -> bool:
    for each in asked:
        value = given.get(each.alias)
        if value is None:
            if each.field.field_info.is_required():
                return False
            values[each.name] = each.field.default
            continue
        values[each.name], errors = each.field.validate(value, {})
        if errors:
            return False
    return True


async def _called(plan: _Plan, values: list[dict[str, Any]]) -> Any:
    """What the last function gives, called with what the others gave."""
    made: list[Any] = []
    for call, given in zip(plan, values, strict=True):
        for name, place in call.made:
            if name:
                given[name] = made[place]
        made.append(await (call.function(**given) if call.is_async else run_in_threadpool(call.function, **given)))
    return made[-1]
