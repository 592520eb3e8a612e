"""Write documents as JSON, and read them again.

A document is a frozen dataclass whose fields are JSON scalars, times, enums, words (`Literal`), tuples, mappings from
words, and other documents. Times are in UTC. `decode` refuses what a document's types do not permit, and passes over
fields that it does not know: a newer service may say more.
"""

from __future__ import annotations

import datetime as dt
import enum
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import orjson

from orchestrator.errors import BadInput

Document = TypeVar("Document")
Reader = Callable[[Any], Any]
"""Returns a value from its JSON. Raises BadInput with the place within it."""


def encode(document: object) -> bytes:
    """Return a document, or a structure of documents, as JSON.

    Raises orjson.JSONEncodeError for halves of surrogate pairs.
    """
    return orjson.dumps(document, option=orjson.OPT_UTC_Z)


def decode(kind: type[Document], body: object) -> Document:
    """Return the document of a class from parsed JSON. Raises BadInput with the place."""
    read: Callable[[object], Document] = reader(kind)  # type: ignore[arg-type]
    return read(body)


def fill(kind: type[Document], source: object, **stated: Any) -> Document:
    """Make a document from the fields of `source` with the same names.

    Fields that are given as `stated` are taken from there.
    """
    names = _list_names(kind)  # type: ignore[arg-type]
    return kind(**{name: getattr(source, name) for name in names if name not in stated}, **stated)


@cache
def _list_names(kind: Any) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind))


@cache
def reader(hint: Any) -> Reader:
    """Return a function that reads JSON values of a type.

    Raises TypeError for a type that no document may have.
    """
    if hint in _PLAIN:
        return _PLAIN[hint]
    if get_origin(hint) in _READERS:
        return _READERS[get_origin(hint)](get_args(hint))
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _make_enum_reader(hint)
    if is_dataclass(hint):
        return _make_document_reader(hint)
    raise TypeError(f"{hint} cannot be read from JSON")


def _make_exact_reader(kind: type, words: str) -> Reader:
    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise BadInput(f"is not {words}")
        return value

    return read


def _read_number(value: Any) -> float:
    if type(value) is not float and type(value) is not int:
        raise BadInput("is not a number")
    return float(value)


def _read_time(value: Any) -> dt.datetime:
    try:
        time = dt.datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise BadInput("is not a time") from None
    if time.tzinfo is None:
        raise BadInput("is a time without its zone")
    return time


def _read_null(value: Any) -> None:
    if value is not None:
        raise BadInput("is not null")


_PLAIN: dict[Any, Reader] = {
    str: _make_exact_reader(str, "text"),
    int: _make_exact_reader(int, "a whole number"),
    bool: _make_exact_reader(bool, "true or false"),
    float: _read_number,
    dt.datetime: _read_time,
    types.NoneType: _read_null,
    object: lambda value: value,
    Any: lambda value: value,
}


def _make_word_reader(words: tuple[Any, ...]) -> Reader:
    def read(value: Any) -> Any:
        if value not in words:
            raise BadInput(f"is none of {', '.join(map(str, words))}")
        return value

    return read


def _make_enum_reader(kind: type[enum.Enum]) -> Reader:
    def read(value: Any) -> enum.Enum:
        try:
            return kind(value)
        except ValueError:
            raise BadInput(f"is none of {', '.join(str(each.value) for each in kind)}") from None

    return read


def _make_union_reader(hints: tuple[Any, ...]) -> Reader:
    choices = [reader(each) for each in hints if each is not types.NoneType]
    is_optional = types.NoneType in hints

    def read(value: Any) -> Any:
        if value is None and is_optional:
            return None
        for choice in choices[:-1]:
            try:
                return choice(value)
            except BadInput:
                continue
        return choices[-1](value)

    return read


def _make_tuple_reader(hints: tuple[Any, ...]) -> Reader:
    item = reader(hints[0])

    def read(value: Any) -> tuple[Any, ...]:
        if type(value) is not list:
            raise BadInput("is not a list")
        found = []
        try:
            for each in value:
                found.append(item(each))  # noqa: PERF401 - how many were read is the place of the error
        except BadInput as error:
            raise error.within(f"[{len(found)}]") from None
        return tuple(found)

    return read


def _make_mapping_reader(hints: tuple[Any, ...]) -> Reader:
    item = reader(hints[1])

    def read(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise BadInput("is not an object")
        found = {}
        for name, each in value.items():
            try:
                found[name] = item(each)
            except BadInput as error:
                raise error.within(name) from None
        return found

    return read


def _make_document_reader(kind: Any) -> Reader:
    hints = get_type_hints(kind)
    parts = [
        (each.name, hints[each.name], reader(hints[each.name]), each.default is each.default_factory is MISSING)
        for each in fields(kind)
    ]

    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise BadInput("is not an object")
        found, name = {}, ""
        try:
            for name, hint, part, is_required in parts:
                each = value.get(name, MISSING)
                if type(each) is hint:  # a scalar of the very type: most are, and no call is needed for them
                    found[name] = each
                elif each is not MISSING:
                    found[name] = part(each)
                elif is_required:
                    raise BadInput("is missing")  # noqa: TRY301 - it is given its place below, as all are
        except BadInput as error:
            raise error.within(name) from None
        return kind(**found)

    return read


_READERS: dict[Any, Callable[[tuple[Any, ...]], Reader]] = {
    Literal: _make_word_reader,
    Union: _make_union_reader,
    types.UnionType: _make_union_reader,
    tuple: _make_tuple_reader,
    Mapping: _make_mapping_reader,
}
"""Makers of readers of types with parameters, by the type's origin."""
