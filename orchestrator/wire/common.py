"""How documents are declared, and what those of all areas share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field
from typing import Any, Generic, TypeVar, cast, dataclass_transform

Item = TypeVar("Item")
Class = TypeVar("Class", bound=type)


def described(text: str, *, default: Any = MISSING, **limits: Any) -> Any:
    """Declare a field whose description OpenAPI shows; `limits` are those that JSON schema knows (`ge`, `pattern`)."""
    return field(default=default, metadata={"description": text, **limits})


@dataclass_transform(frozen_default=True, field_specifiers=(field, described))
def document(*, kw_only: bool = False) -> Callable[[Class], Class]:
    """Make a class a document: a frozen dataclass with slots."""

    return cast("Callable[[Class], Class]", dataclass(frozen=True, slots=True, kw_only=kw_only))


@document()
class Page(Generic[Item]):
    """Some of a list. `next` is the `marker` of the page that follows, null at the end."""

    items: tuple[Item, ...]
    next: str | int | None


@document(kw_only=True)
class Written:
    """Outcome of a write. `generation` is what the domain's enforcement points must reach to hold it."""

    version: int
    generation: int
    changed: bool = described("false when all was so before")


@document()
class Gone:
    """Outcome of a removal."""

    generation: int


@document()
class Health:
    """How the service is."""

    status: str
