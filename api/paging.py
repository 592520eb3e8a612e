"""Pages of what is in memory as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from orchestrator.errors import BadInput
from orchestrator.wire.common import Page

Key = TypeVar("Key", bound=str)
Item = TypeVar("Item")


def page_after(names: Sequence[Key], limit: int, marker: str | None) -> tuple[Sequence[Key], Key | None]:
    """Return a page of names after `marker`, and the next page's marker.

    It has at most `limit` names. Raises BadInput when the marker is none of the names: it was removed meanwhile, so its
    place is not known any more.
    """
    start = 0
    if marker is not None:
        try:
            start = names.index(marker) + 1
        except ValueError:
            raise BadInput(f"'{marker}' is not there any more: begin anew", place="query.marker") from None
    end = start + limit
    return names[start:end], names[end - 1] if end < len(names) else None


def page_of(found: Mapping[str, Item], limit: int, marker: str | None) -> Page[Item]:
    """Return a page of items by name, or by another key, in their order.

    Raises BadInput as `page_after`.
    """
    names, following = page_after(list(found), limit, marker)
    return Page(tuple(found[name] for name in names), following)
