"""Parts that all bodies share."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.errors import AclflowError
from orchestrator.policy.addresses import Prefix

BIGGEST = 2**53 - 1
"""The biggest number that every JSON reader takes as it is written."""

NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,63}$"
Name = Annotated[str, Field(pattern=NAME)]
Line = Annotated[str, Field(max_length=1024, description="one line of text")]
PrefixText = Annotated[str, Field(max_length=49, examples=["198.51.100.0/24", "2001:db8::/32"])]


class Incoming(BaseModel):
    """A body that comes in: what it does not know is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Outgoing(BaseModel):
    """A body that goes out."""

    model_config = ConfigDict(frozen=True)


class Problem(Outgoing):
    """The fault of a request, and its place (RFC 9457)."""

    type: str = Field(examples=["urn:aclflow:problem:bad-input"])
    title: str
    status: int
    detail: str
    place: str | None = Field(default=None, examples=["rules[3].destination"])


def read_prefixes(texts: list[str]) -> tuple[Prefix, ...]:
    """Prefixes from a body's `prefixes`. Raises BadInput with the place."""
    return tuple(read_prefix(text, f"prefixes[{index}]") for index, text in enumerate(texts))


def read_prefix(text: str, place: str) -> Prefix:
    """One prefix from a body. Raises BadInput with the place."""
    try:
        return Prefix.parse(text)
    except AclflowError as error:
        raise error.within(place) from None


def problem_responses() -> dict[int | str, dict[str, Any]]:
    """OpenAPI's description of every route's errors."""
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {
        "4XX": {"description": "the request cannot be granted", "model": Problem, "content": content},
        "5XX": {"description": "try again, or ask the operator", "model": Problem, "content": content},
    }
