"""Errors over HTTP, for both ends: a problem (RFC 9457) named after the class.

{"type": "urn:aclflow:problem:stale", "title": "Precondition Failed", "status": 412,
 "detail": "it is at version 4, not 3: read it again, then write", "place": "If-Match"}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import orjson

from orchestrator import errors
from orchestrator.errors import AclflowError

MEDIA_TYPE = "application/problem+json"
_TYPE = "urn:aclflow:problem:"

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
        503: errors.Busy,
    }
)
"""What an answer means that is no problem of ours: somebody else, such as a proxy, gave it."""


def problem_type(error: type[AclflowError]) -> str:
    """The `type` of a class of errors: ``urn:aclflow:problem:bad-input`` for BadInput."""
    words = "".join("-" + letter.lower() if letter.isupper() else letter for letter in error.__name__)
    return _TYPE + words.lstrip("-")


def error_of(status: int, body: bytes) -> AclflowError:
    """The error that an answer of 400 or above stands for."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        document = None
    problem: Mapping[str, Any] = document if isinstance(document, dict) else {}
    kind = _BY_TYPE.get(str(problem.get("type"))) or _BY_STATUS.get(status, errors.Unreachable)
    reason = problem.get("detail") or problem.get("title") or f"the service answered {status}"
    place = problem.get("place")
    return kind(str(reason), place=None if place is None else str(place))


def _whole_tree(root: type[AclflowError]) -> Iterator[type[AclflowError]]:
    yield root
    for child in root.__subclasses__():
        yield from _whole_tree(child)


_BY_TYPE = MappingProxyType({problem_type(kind): kind for kind in _whole_tree(AclflowError)})
