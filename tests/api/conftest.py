"""One service a module; tests in it keep to tenants and domains of their own names."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from served import Served, served

from orchestrator.client import Client


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("service")) as running:
        yield running


@pytest.fixture(scope="module")
def http(service: Served) -> Iterator[httpx.Client]:
    """Bare HTTP, as an administrator."""
    with service.http() as client:
        yield client


@pytest.fixture(scope="module")
def admin(service: Served) -> Iterator[Client]:
    """The client of ours, as an administrator."""
    with service.client() as client:
        yield client
