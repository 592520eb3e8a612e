"""Errors over HTTP, for both ends: a problem (RFC 9457) named after the class.

{"type": "urn:aclflow:problem:stale", "title": "Precondition Failed", "status": 412,
 "detail": "it is at version 4, not 3: read it again, then write", "place": "If-Match"}
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from types import MappingProxyType
from typing import Any

import orjson

from orchestrator import errors
from orchestrator.errors import AclflowError

MEDIA_TYPE = "application/problem+json"
_TYPE = "urn:aclflow:problem:"

LONGEST_WAIT_S = 300.0
"""The longest that a caller waits because an answer says so: a proxy must not hold enforcement up for a day."""
_AGAIN = frozenset({429, 503})

_BY_STATUS: Mapping[int, type[AclflowError]] = MappingProxyType(
    {
        400: errors.BadInput,
        401: errors.Unauthenticated,
        403: errors.Forbidden,
        404: errors.NotFound,
        409: errors.Conflict,
        412: errors.Stale,
        413: errors.TooLarge,
        422: errors.BadPolicy,
        428: errors.Stale,
        429: errors.TooOften,
        503: errors.Busy,
    }
)
"""The meaning of answers that are no problem document of ours: somebody else, such as a proxy, gave them."""


def problem_type(error: type[AclflowError]) -> str:
    """The `type` of a class of errors: ``urn:aclflow:problem:bad-input`` for BadInput."""
    words = "".join("-" + letter.lower() if letter.isupper() else letter for letter in error.__name__)
    return _TYPE + words.lstrip("-")


def error_of(status: int, body: bytes, retry_after: str | None = None) -> AclflowError:
    """The error that an answer of 400 or above stands for.

    `retry_after` is its header of this name: seconds or a date (RFC 9110); anything else is passed over.
    """
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        document = None
    problem: Mapping[str, Any] = document if isinstance(document, dict) else {}
    kind = _BY_TYPE.get(str(problem.get("type"))) or _BY_STATUS.get(status, errors.Unreachable)
    reason = problem.get("detail") or problem.get("title") or f"the service answered {status}"
    place = problem.get("place")
    error = kind(str(reason), place=None if place is None else str(place))
    if isinstance(error, errors.TryAgain) and retry_after is not None:
        error.after_s = _seconds(retry_after)
    return error


def has_changed_nothing(status: int, body: bytes) -> bool:
    """Return whether the service refused a request and allows it to be sent again.

    It is known to be the service's own refusal.
    """
    return (
        status in _AGAIN and type(error_of(status, body)) in (errors.Busy, errors.TooOften) and _TYPE.encode() in body
    )


def _seconds(retry_after: str) -> float | None:
    """Return the seconds of a Retry-After header; None where it cannot be read."""
    if retry_after.isascii() and retry_after.isdigit():
        return min(float(retry_after), LONGEST_WAIT_S)
    try:
        until = parsedate_to_datetime(retry_after)
    except ValueError:
        return None
    if until.tzinfo is None:  # RFC 9110 knows no other zone
        until = until.replace(tzinfo=dt.UTC)
    return min(max(0.0, (until - dt.datetime.now(dt.UTC)).total_seconds()), LONGEST_WAIT_S)


def _whole_tree(root: type[AclflowError]) -> Iterator[type[AclflowError]]:
    yield root
    for child in root.__subclasses__():
        yield from _whole_tree(child)


_BY_TYPE = MappingProxyType({problem_type(kind): kind for kind in _whole_tree(AclflowError)})
