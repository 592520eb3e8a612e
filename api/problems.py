"""Errors as problems (RFC 9457): one table from the error tree to HTTP.

It also says how errors are worded for the caller.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from math import ceil
from types import MappingProxyType
from typing import Any, TypeVar

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from api.answers import dump_json
from api.bodies import PRINCIPAL
from api.schemas.common import NAME
from orchestrator import errors
from orchestrator.client.problems import MEDIA_TYPE, problem_type
from orchestrator.errors import AclflowError
from orchestrator.policy.model.givennames import name_refusal
from orchestrator.store.records import Principal

log = structlog.get_logger()

Body = TypeVar("Body", bound=BaseModel)

MOST_FAULTS = 100
"""So many faults of a document are looked at."""


class Unconditional(errors.Stale):
    """A write of something that exists, without If-Match: read it, then write with its ETag."""


STATUS: Mapping[type[AclflowError], HTTPStatus] = MappingProxyType(
    {
        errors.BadInput: HTTPStatus.BAD_REQUEST,
        errors.BadPolicy: HTTPStatus.UNPROCESSABLE_ENTITY,
        errors.NotExpressible: HTTPStatus.UNPROCESSABLE_ENTITY,
        errors.TooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        errors.Conflict: HTTPStatus.CONFLICT,
        Unconditional: HTTPStatus.PRECONDITION_REQUIRED,
        errors.Stale: HTTPStatus.PRECONDITION_FAILED,
        errors.Unauthenticated: HTTPStatus.UNAUTHORIZED,
        errors.Forbidden: HTTPStatus.FORBIDDEN,
        errors.NotFound: HTTPStatus.NOT_FOUND,
        errors.TooOften: HTTPStatus.TOO_MANY_REQUESTS,
        errors.TryAgain: HTTPStatus.SERVICE_UNAVAILABLE,
        errors.DeviceError: HTTPStatus.BAD_GATEWAY,
        AclflowError: HTTPStatus.INTERNAL_SERVER_ERROR,
    }
)
"""An error has the status of the nearest class above it that is listed."""

_OF_FRAMEWORK: Mapping[int, tuple[type[AclflowError], str]] = MappingProxyType(
    {
        400: (errors.BadInput, ""),
        404: (errors.NotFound, "there is no such path"),
        405: (errors.BadInput, "this path does not take this method"),
        413: (errors.TooLarge, ""),
        429: (errors.TooOften, ""),
        503: (errors.Busy, ""),
    }
)
"""The framework's own answers, and the words for them where its own are not shown."""
_LIST_OF = re.compile(r"tenants\[([^\]]+)\]")
"""The place of an error that is about the list of a tenant."""
_HEADERS: Mapping[HTTPStatus, Mapping[str, str]] = MappingProxyType(
    {
        HTTPStatus.UNAUTHORIZED: {"WWW-Authenticate": "X-Auth-Token"},
        HTTPStatus.SERVICE_UNAVAILABLE: {"Retry-After": "1"},
        HTTPStatus.TOO_MANY_REQUESTS: {"Retry-After": "60"},
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE: {"Connection": "close"},
    }
)


def status_of(error: AclflowError) -> HTTPStatus:
    """The status that an error is answered with."""
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


def problem(error: AclflowError, status: int | None = None, headers: Mapping[str, str] | None = None) -> Response:
    """The answer that an error is."""
    answered = HTTPStatus(status) if status is not None else status_of(error)
    body = {
        "type": problem_type(type(error)),
        "title": answered.phrase,
        "status": int(answered),
        "detail": error.reason,
        **({"place": error.place} if error.place else {}),
    }
    sent = {**_HEADERS.get(answered, {}), **_retry_after(error), **(headers or {})}
    return Response(dump_json(body), int(answered), sent, MEDIA_TYPE)


def _retry_after(error: AclflowError) -> Mapping[str, str]:
    """Return the header that says how long to wait, where an error knows that.

    It then knows better than its status does.
    """
    if isinstance(error, errors.TryAgain) and error.after_s is not None:
        return {"Retry-After": str(ceil(error.after_s))}
    return {"Retry-After": "30"} if isinstance(error, errors.Full) else {}


def install(app: FastAPI) -> None:
    """Answer every error of an application with a problem."""
    app.add_exception_handler(AclflowError, _answer_error)
    app.add_exception_handler(RequestValidationError, _answer_invalid_body)
    app.add_exception_handler(HTTPException, _answer_framework_error)
    app.add_exception_handler(ClientDisconnect, _answer_gone_caller)
    app.add_exception_handler(Exception, _answer_defect)


async def _answer_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, AclflowError)
    if status_of(error) >= HTTPStatus.INTERNAL_SERVER_ERROR:
        is_usual = isinstance(error, errors.TryAgain) and not isinstance(error, errors.Full)
        say = log.info if is_usual else log.error
        say("cannot answer", path=request.url.path, error=str(error), kind=type(error).__name__)
    return problem(_hide_neighbours(error, request.scope.get(PRINCIPAL)))


def _hide_neighbours(error: AclflowError, principal: Principal | None) -> AclflowError:
    """Return an error as a tenant's caller may see it.

    An error about another tenant's list says nothing of that.
    """
    named = _LIST_OF.match(error.place or "")
    if named is None or principal is None or principal.tenant in (None, named[1]):
        return error
    return type(error)("the domain cannot take this change beside the lists of others: ask its operator")


async def _answer_invalid_body(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return problem(bad_input(error.errors()))


async def _answer_framework_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    kind, reason = _OF_FRAMEWORK.get(error.status_code, (AclflowError, ""))
    return problem(kind(reason or str(error.detail)), error.status_code, error.headers)


async def _answer_gone_caller(_: Request, error: Exception) -> Response:
    """Answer a caller that is gone in the middle of its request.

    That is no defect, and fills no log.
    """
    assert isinstance(error, ClientDisconnect)
    return Response(status_code=HTTPStatus.BAD_REQUEST)


async def _answer_defect(request: Request, error: Exception) -> Response:
    log.error("defect", path=request.url.path, method=request.method, exc_info=error)
    return problem(AclflowError("the service failed at this; its log says how"))


def faults_of(error: ValidationError) -> errors.BadInput:
    """Pydantic's faults as one error of ours, which names the place of the first.

    Each fault costs a thousand bytes to be looked at: of very many it is told how many there are.
    """
    if error.error_count() > MOST_FAULTS:
        return errors.BadInput(f"{error.error_count()} fields in it are unknown or not what they must be")
    return bad_input(error.errors())


def validate(model: type[Body], value: object, place: str = "") -> Body:
    """Return a parsed value as what it must be. Raises BadInput."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        found = faults_of(error)
        raise (found.within(place) if place else found) from None


def bad_input(faults: Sequence[Mapping[str, Any]]) -> errors.BadInput:
    """Pydantic's faults as one error of ours, which names the place of the first."""
    first = faults[0]
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return errors.BadInput(f"{_describe_fault(first)}{more}", place=_place(first.get("loc", ())) or None)


def _describe_fault(fault: Mapping[str, Any]) -> str:
    match fault["type"]:
        case "extra_forbidden":
            return "there is no such field"
        case "missing":
            return "this is needed"
        case "json_invalid":
            return f"not JSON: {fault.get('ctx', {}).get('error', 'cannot be read')}"
        case "string_pattern_mismatch" if fault.get("ctx", {}).get("pattern") == NAME:
            return name_refusal(str(fault.get("input", "")), "a name")
        case "string_too_long":
            return f"longer than {fault['ctx']['max_length']} characters"
        case _:
            message = str(fault["msg"]).removeprefix("Value error, ")
            return message[:1].lower() + message[1:]


def _place(location: Sequence[str | int]) -> str:
    """Where in the request: ``prefixes[2]`` in the body, ``query.limit``, ``path.tenant``, ``header.If-Match``."""
    steps = list(location)
    if steps[:1] == ["body"] and len(steps) > 1 and isinstance(steps[1], str):
        steps = steps[1:]
    place = ""
    for step in steps:
        place += f"[{step}]" if isinstance(step, int) else f".{step}" if place else step
    return place
