"""Routes whose parameters are looked up by a plan that is made once.

FastAPI finds out anew at every request what a function and its dependencies ask for, which takes as long as changing a
rule. A `Lean` route asks once, when it is made, and afterwards goes through the list:

    look ── every path, query and header parameter, each held to its own schema
     │          └── one is wrong, or not there ──▶ FastAPI, from the beginning: it says why
    call ── every dependency once, then the function

A function that is no coroutine is called on a thread of its caller's share (`threads.py`), with a plan or without one.

The parameters, their schemas and what OpenAPI tells of them are FastAPI's, and so are all answers to what is wrong. A
route with anything that the plan does not know (forms, cookies, bodies as models, dependencies with `yield`) stays as
FastAPI has it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, get_type_hints

from fastapi import Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from fastapi.security import APIKeyHeader
from starlette.types import Receive, Scope, Send

from api.threads import choose_threads, in_thread, on_thread
from orchestrator.errors import BadInput
from orchestrator.policy.formats.assemble import shown


class Strict(APIRoute):
    """A route that refuses query parameters that it does not have."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **described: Any) -> None:
        super().__init__(path, endpoint, **described)
        self._query = frozenset(_query_names(self.dependant))

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request as FastAPI does."""
        self._refuse_unknown(scope)
        await self.answer(scope, receive, send)

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request whose query parameters are known."""
        await super().handle(scope, receive, send)

    def _refuse_unknown(self, scope: Scope) -> None:
        """Raise BadInput for a query parameter that the route does not have.

        Were it left aside, the answer would be to another question.
        """
        if not scope["query_string"] or scope["method"] not in (self.methods or ()):
            return
        unknown = next((name for name in Request(scope).query_params if name not in self._query), None)
        if unknown is not None:
            known = f"there are {', '.join(sorted(self._query))}" if self._query else "there are none here"
            raise BadInput(f"no such query parameter: {known}", place=f"query.{shown(unknown)}")


class Lean(Strict):
    """A route that answers by a plan, where that can be made."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **described: Any) -> None:
        if not inspect.iscoroutinefunction(endpoint):
            endpoint = on_thread(endpoint, reads={*(described.get("methods") or ("GET",))} == {"GET"})
        super().__init__(path, endpoint, **described)
        self._plan = plan_of(self.dependant) if answers_itself(endpoint) else None

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request as FastAPI does, on its service's threads.

        The application's handlers answer exceptions.
        """
        threads = getattr(scope["app"].state, "threads", None)
        if threads is not None:
            choose_threads(threads)
        if self._plan is not None and scope["method"] in (self.methods or ()):
            values = _looked_up(self._plan, Request(scope, receive, send))
            if values is not None:
                answer: Response = await _call_plan(self._plan, values)
                await answer(scope, receive, send)
                return
        await super().answer(scope, receive, send)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A parameter of a call: its place and name in a request, and its checks."""

    name: str
    alias: str
    given: Callable[[Request], Mapping[str, Any]]
    field: Any
    is_required: bool
    default: Any


@dataclass(frozen=True, slots=True)
class _Call:
    """A function with its parameters and dependencies.

    `made` are its dependencies, as places in the plan before it.
    """

    function: Callable[..., Any]
    is_async: bool
    asked: tuple[_Asked, ...]
    request: str | None
    made: tuple[tuple[str, int], ...]


_Plan = list[_Call]
"""Every dependency after those that it needs; the route's own function last."""


class _Unknown(Exception):
    """Something is asked for that a plan has no way for."""


def _query_names(dependant: Dependant) -> Iterator[str]:
    """Yield the query parameters of a route and of its dependencies."""
    yield from (field.alias for field in dependant.query_params)
    for each in dependant.dependencies:
        yield from _query_names(each)


def answers_itself(endpoint: Callable[..., Any]) -> bool:
    """Return whether a function returns a complete response.

    FastAPI would otherwise make one of its result.
    """
    answer = get_type_hints(endpoint).get("return")
    return isinstance(answer, type) and issubclass(answer, Response)


def plan_of(dependant: Dependant) -> _Plan | None:
    """Return the calls that answer a route; None where its parameters ask for more."""
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
        made = [(each.name, _add(plan, places, each)) for each in dependant.dependencies]
        called = function if inspect.isroutine(function) else type(function).__call__
        is_async = inspect.iscoroutinefunction(called)
        request = dependant.request_param_name or dependant.http_connection_param_name
        named = tuple((name, place) for name, place in made if name)
        plan.append(_Call(function, is_async, tuple(_plan_parameters(dependant)), request, named))
        places[function] = len(plan) - 1
    return places[function]


def _plan_parameters(dependant: Dependant) -> Iterator[_Asked]:
    for fields, part in (
        (dependant.path_params, "path_params"),
        (dependant.query_params, "query_params"),
        (dependant.header_params, "headers"),
    ):
        yield from (_plan_field(field, attrgetter(part)) for field in fields)


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
    return any(others) or yields or not dependant.use_cache or not _is_called_directly(function)


def _is_called_directly(function: object) -> bool:
    return inspect.isroutine(function) or isinstance(function, APIKeyHeader)


def _plan_field(field: Any, given: Callable[[Request], Mapping[str, Any]]) -> _Asked:
    """Plan how a parameter is read. Raises _Unknown for unusual ones.

    Those are lists of values, defaults that are made, and names that FastAPI has a rule for.
    """
    info = field.field_info
    is_plain = info.annotation in (str, int, float, bool, str | None, int | None, float | None)
    if not (is_plain or _is_literal(info.annotation)) or info.default_factory is not None:
        raise _Unknown
    if field.validation_alias not in (None, field.alias):
        raise _Unknown
    is_required = info.is_required()
    return _Asked(field.name, field.alias, given, field, is_required, None if is_required else field.default)


def _is_literal(annotation: object) -> bool:
    return str(annotation).startswith("typing.Literal")


def _looked_up(plan: _Plan, request: Request) -> list[dict[str, Any]] | None:
    """Return the parameters of every call; None if one is missing or not valid."""
    found = []
    for call in plan:
        values: dict[str, Any] = {} if call.request is None else {call.request: request}
        for each in call.asked:
            value = each.given(request).get(each.alias)
            if value is not None:
                values[each.name], errors = each.field.validate(value, {})
                if errors:
                    return None
            elif each.is_required:
                return None
            else:
                values[each.name] = each.default
        found.append(values)
    return found


async def _call_plan(plan: _Plan, values: list[dict[str, Any]]) -> Any:
    """Return the result of the last function, called with the results of the others."""
    made: list[Any] = []
    for call, given in zip(plan, values, strict=True):
        for name, place in call.made:
            given[name] = made[place]
        made.append(await (call.function(**given) if call.is_async else in_thread(call.function, **given)))
    return made[-1]
