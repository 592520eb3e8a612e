"""Shared by the tests that call commands against a service of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cli.tenantlists import Run, tenant  # noqa: F401  # tenant is a fixture
from command_line import Ended, aclflow
from served import Served, served


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("service")) as here:
        yield here


@pytest.fixture
def run(service: Served) -> Run:
    """Call a command with the service's address, and the administrator's token unless another is given."""

    def call(*arguments: str, stdin: bytes | str = "", token: str = service.token) -> Ended:
        return aclflow(*arguments, stdin=stdin, environment={"ACLFLOW_URL": service.url, "ACLFLOW_TOKEN": token})

    return call
