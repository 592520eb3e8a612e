"""Write the OpenAPI document as text that a reviewer can read. `make docs` runs it."""

from __future__ import annotations

import json
from pathlib import Path

from api.app import openapi_document

GOLDEN = Path(__file__).parent / "api" / "openapi.json"
_WIDTH = 120


def openapi_text() -> str:
    """Return the document as JSON with sorted keys, each part on one line where it fits."""
    return _written(json.loads(json.dumps(openapi_document(), sort_keys=True)), "", 0) + "\n"


def _written(value: object, indent: str, used: int) -> str:
    """Return `value` as JSON; `used` characters stand before it and behind it on its first line."""
    flat = json.dumps(value, ensure_ascii=False)
    if len(indent) + used + len(flat) <= _WIDTH or not isinstance(value, dict | list) or not value:
        return flat
    inner = indent + " "
    if isinstance(value, list):
        return "[\n" + ",\n".join(inner + _written(each, inner, 1) for each in value) + f"\n{indent}]"
    names = ((f"{json.dumps(name)}: ", each) for name, each in value.items())
    lines = (inner + name + _written(each, inner, len(name) + 1) for name, each in names)
    return "{\n" + ",\n".join(lines) + f"\n{indent}}}"


if __name__ == "__main__":
    GOLDEN.write_text(openapi_text())
