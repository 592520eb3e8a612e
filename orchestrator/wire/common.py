"""How documents are declared, and what those of all areas share."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field
from typing import Any, Generic, Literal, TypeVar, cast, dataclass_transform

Item = TypeVar("Item")
Class = TypeVar("Class", bound=type)


def describe(text: str, *, default: Any = MISSING, **limits: Any) -> Any:
    """Declare a field with a description and limits for OpenAPI.

    `limits` are those that JSON schema knows (`ge`, `pattern`).
    """
    return field(default=default, metadata={"description": text, **limits})


@dataclass_transform(frozen_default=True, field_specifiers=(field, describe))
def document(*, kw_only: bool = False) -> Callable[[Class], Class]:
    """Make a class a document: a frozen dataclass with slots."""

    return cast("Callable[[Class], Class]", dataclass(frozen=True, slots=True, kw_only=kw_only))


@document()
class Page(Generic[Item]):
    """A page of a list.

    `next` is the `marker` of the page that follows, null at the end.
    """

    items: tuple[Item, ...]
    next: str | int | None


def author_in_words(author: str, name: str) -> str:
    """Return an author with what its token is described as: ``Ann (member 3)``."""
    role, _, token = author.partition(":")
    known = f"{role} {token}".strip()
    return f"{name} ({known})" if name else known


ProposalKind = Literal["list", "operator-rules", "approvals"]
ProposalState = Literal["open", "approved", "rejected", "withdrawn", "ended"]


@document(kw_only=True)
class Proposal:
    """A change that goes out when another person has approved it."""

    id: str
    kind: ProposalKind = describe("what is to change: a tenant's list, operator rules, or what asks for approval")
    domain: str
    tenant: str | None = describe("whose list is to change; null for what is the domain's")
    state: ProposalState = describe("`ended`: nobody decided in time")
    author: str
    person: str = describe("who bears the author's token: anybody else may approve")
    made_by: str | None = describe("another person that made the author's token", default=None)
    created: dt.datetime
    expires: dt.datetime = describe("until when it can be approved")
    base_version: int = describe("the version that it was made from")
    has_moved: bool = describe("whether there is a newer version than that: then it cannot be approved any more")
    comment: str = ""
    confirm_s: int | None = describe("seconds in which the change is to be confirmed once it is out", default=None)
    digest: str = describe("SHA-256 of what is to be so")
    decided_by: str | None = None
    decided_by_name: str = describe("how that one was called then: what the token was described as", default="")
    decided: dt.datetime | None = None
    reason: str = describe("why it was rejected", default="")

    def by(self) -> str:
        """Return its author in words: ``ann (member 3)``."""
        return author_in_words(self.author, "" if self.person == self.author else self.person)

    def decider(self) -> str:
        """Return in words who decided, ``Ann (admin 4)``; empty where nobody has."""
        return author_in_words(self.decided_by or "", self.decided_by_name)


@document(kw_only=True)
class Approvals:
    """The changes of a domain that go out only when another person has approved it."""

    operator_rules: bool = describe("its operator rules, and how replies get back in")
    tenants: tuple[str, ...] = describe("the tenants whose lists need approval, in the order of their ids")


@document(kw_only=True)
class Written:
    """Outcome of a write.

    `generation` is what the domain's enforcement points must reach to hold it.
    """

    version: int
    generation: int
    changed: bool = describe("false when all was so before")
    proposal: Proposal | None = describe(
        "where another person must approve it first: nothing has changed yet", default=None
    )


@document()
class Gone:
    """Outcome of a removal."""

    generation: int


@document()
class Health:
    """How the service is."""

    status: str
