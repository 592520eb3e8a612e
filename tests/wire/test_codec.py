"""Documents are written and read back the same; bad ones are refused with the place."""

from __future__ import annotations

import datetime as dt
import enum
import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any, Literal

import orjson
import pytest

import orchestrator.wire
from orchestrator.errors import BadInput
from orchestrator.wire.codec import decode, encode, fill, reader
from orchestrator.wire.common import describe, document


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@document()
class Leaf:
    """A leaf."""

    name: str
    size: int | None
    share: float = 0.5


@document(kw_only=True)
class Tree:
    """A tree."""

    leaves: tuple[Leaf, ...]
    counts: Mapping[str, int]
    planted: dt.datetime
    colour: Colour
    state: Literal["up", "down"]
    marker: str | int | None = describe("the last one", default=None)
    alive: bool = True


TREE = Tree(
    leaves=(Leaf("a", 1), Leaf("b", None, 2.0)),
    counts={"x": 1},
    planted=dt.datetime(2026, 7, 1, 12, 30, tzinfo=dt.UTC),
    colour=Colour.BLUE,
    state="up",
    marker=7,
)


def parsed(value: object) -> Any:
    return orjson.loads(encode(value))


def test_documents_survive_the_wire() -> None:
    assert decode(Tree, parsed(TREE)) == TREE


def test_times_are_written_in_utc() -> None:
    assert parsed(TREE)["planted"] == "2026-07-01T12:30:00Z"


def test_what_is_left_out_has_its_default() -> None:
    body = parsed(TREE)
    del body["marker"], body["alive"], body["leaves"][0]["share"]
    assert decode(Tree, body) == fill(Tree, TREE, marker=None)


def test_fields_of_a_newer_service_are_passed_over() -> None:
    body = parsed(TREE)
    body["height"] = body["leaves"][1]["veins"] = [1]
    assert decode(Tree, body) == TREE


@pytest.mark.parametrize(
    ("path", "value", "place", "reason"),
    [
        (("leaves", 1, "name"), 5, "leaves[1].name", "is not text"),
        (("leaves", 0, "size"), True, "leaves[0].size", "is not a whole number"),
        (("leaves", 0, "size"), 1.0, "leaves[0].size", "is not a whole number"),
        (("leaves", 0, "share"), "1", "leaves[0].share", "is not a number"),
        (("leaves", 0), None, "leaves[0]", "is not an object"),
        (("leaves",), {}, "leaves", "is not a list"),
        (("counts", "x"), "1", "counts.x", "is not a whole number"),
        (("counts",), [], "counts", "is not an object"),
        (("planted",), "yesterday", "planted", "is not a time"),
        (("planted",), "2026-07-01T12:30:00", "planted", "is a time without its zone"),
        (("colour",), "green", "colour", "is none of red, blue"),
        (("state",), ["up"], "state", "is none of up, down"),
        (("marker",), 1.5, "marker", "is not a whole number"),
        (("alive",), 1, "alive", "is not true or false"),
    ],
)
def test_what_a_type_does_not_permit_is_refused(
    path: tuple[str | int, ...], value: object, place: str, reason: str
) -> None:
    body = parsed(TREE)
    part = body
    for step in path[:-1]:
        part = part[step]
    part[path[-1]] = value
    with pytest.raises(BadInput) as refused:
        decode(Tree, body)
    assert (refused.value.place, refused.value.reason) == (place, reason)


def test_what_is_missing_is_refused() -> None:
    body = parsed(TREE)
    del body["leaves"][1]["name"]
    with pytest.raises(BadInput) as refused:
        decode(Tree, body)
    assert (refused.value.place, refused.value.reason) == ("leaves[1].name", "is missing")


def test_a_document_is_not_a_list() -> None:
    with pytest.raises(BadInput, match="is not an object"):
        decode(Tree, [])


def test_every_document_can_be_read() -> None:
    modules = [
        importlib.import_module(f"orchestrator.wire.{each.name}")
        for each in pkgutil.iter_modules(orchestrator.wire.__path__)
    ]
    kinds = {
        each for module in modules for each in vars(module).values() if isinstance(each, type) and is_dataclass(each)
    }
    assert len(kinds) > 10
    for kind in kinds:
        if not getattr(kind, "__parameters__", ()):
            assert callable(reader(kind)), kind
