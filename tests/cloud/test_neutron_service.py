"""The driver of Neutron sends no token in clear to another machine, unless it is told to."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

SOURCE = Path(__file__).parents[2] / "networking-aclflow/networking_aclflow/service.py"
ELSEWHERE = (
    "http://192.0.2.10:8420",
    "http://[2001:db8::10]:8420",
    "http://control1.example.org:8420",
    "http://127.0.0.1.example.org:8420",
    "http://localhost.example.org:8420",
    "http://127.0.0.1@192.0.2.10:8420",
    "HTTP://192.0.2.10:8420",
)
PRIVATE = (
    "https://192.0.2.10:8420",
    "https://control1.example.org:8420",
    "http://localhost:8420",
    "http://127.0.0.1:8420",
    "http://127.3.2.1:8420",
    "http://[::1]:8420",
)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The driver's module, without Neutron: of its libraries it needs a logger."""
    log = SimpleNamespace(getLogger=lambda _: None)
    monkeypatch.setitem(sys.modules, "oslo_log", SimpleNamespace(log=log))
    spec = importlib.util.spec_from_file_location("networking_aclflow_service", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("url", ELSEWHERE)
def test_a_token_is_not_sent_in_clear_off_this_machine(service: ModuleType, url: str) -> None:
    with pytest.raises(ValueError, match="the token could be read on the way"):
        service.Service(url, "/nowhere", None, 1.0)


@pytest.mark.parametrize("url", PRIVATE)
def test_it_is_sent_over_tls_or_on_this_machine(service: ModuleType, url: str) -> None:
    service.Service(url, "/nowhere", None, 1.0)


def test_it_is_sent_in_clear_where_plain_http_says_so(service: ModuleType) -> None:
    service.Service(ELSEWHERE[0], "/nowhere", None, 1.0, plain_http=True)
