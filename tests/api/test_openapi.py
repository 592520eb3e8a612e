"""The OpenAPI document changes on purpose only: it is frozen in `openapi.json`, which `make docs` writes anew."""

from __future__ import annotations

import json

import httpx
import pytest
from openapi_text import GOLDEN, openapi_text

from api import app


def test_document_is_the_frozen_one() -> None:
    assert openapi_text() == GOLDEN.read_text(), "if this change is meant, run `make docs` and commit openapi.json"


def test_service_answers_with_the_frozen_document(http: httpx.Client) -> None:
    assert http.get("/v1/openapi.json").json() == json.loads(GOLDEN.read_text())


def test_it_is_written_once(http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    first = http.get("/v1/openapi.json").content
    monkeypatch.setattr(app, "dump_json", lambda _: b"{}")
    assert http.get("/v1/openapi.json").content == first
