"""A table of texts, given to a statement as one parameter, in either database."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BindParameter, Text
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.sql.selectable import TableValuedAlias


class _Texts(FunctionElement[str]):
    type = Text()
    inherit_cache = True


def table_of_texts(parameter: BindParameter[str]) -> TableValuedAlias:
    """Return a table of a JSON list of texts, with the column `value`."""
    return _Texts(parameter).table_valued("value")


@compiles(_Texts, "sqlite")
def _for_sqlite(texts: _Texts, compiler: SQLCompiler, **options: Any) -> str:
    return f"json_each({compiler.process(texts.clauses, **options)})"


@compiles(_Texts, "postgresql")
def _for_postgresql(texts: _Texts, compiler: SQLCompiler, **options: Any) -> str:
    return f"json_array_elements_text(CAST({compiler.process(texts.clauses, **options)} AS JSON))"
