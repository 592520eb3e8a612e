"""The console over TLS: with a certificate of the service's authority, as the playbook gives it one."""

from __future__ import annotations

import datetime as dt
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from patience import until
from served import Served, served

from orchestrator.identity.authority import CONSOLE_LASTS
from orchestrator.identity.files import AuthorityDir, encoded_key, write_file
from orchestrator.identity.names import Subject, Usage
from orchestrator.identity.requests import new_key
from orchestrator.identity.trust import client_context
from orchestrator.lab.ports import free_port


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("service"), tls=True) as here:
        yield here


@pytest.fixture(scope="module")
def console(service: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """What believes the service's authority, and asks the console."""
    file, port = tmp_path_factory.mktemp("console") / "console.pem", free_port()
    authority, key = AuthorityDir(service.settings.authority_dir).load(), new_key()
    subject, now = Subject(Usage.CONSOLE, "service", "c1"), dt.datetime.now(dt.UTC)
    made = authority.issue(subject, key.public_key(), now, CONSOLE_LASTS, hosts=["127.0.0.1"])
    write_file(file, encoded_key(key) + made.pem.encode(), 0o600)
    shown = ["--tls-certificate", str(file), "--tls-key", str(file)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ACLFLOW_", "PYTEST_"))}
    environment["ACLFLOW_AUTHORITY"] = str(service.authority)
    command = [sys.executable, "-m", "orchestrator.cli", "console", "--url", service.url, "--port", str(port), *shown]
    process = subprocess.Popen(command, env=environment)
    here = f"https://127.0.0.1:{port}"
    try:
        with httpx.Client(base_url=here, verify=client_context(authority.pem), trust_env=False, timeout=60) as client:
            until(lambda: process.poll() is None and _answers(client))
            yield client
    finally:
        process.terminate()
        process.wait(60)


def _answers(client: httpx.Client) -> bool:
    try:
        return client.get("/login").status_code == 200
    except httpx.TransportError:
        return False


def test_who_signs_in_gets_a_cookie_that_never_goes_in_clear(console: httpx.Client, service: Served) -> None:
    answer = console.post("/session", data={"token": service.token})
    assert (answer.status_code, answer.headers["Location"]) == (303, "/")
    assert {"Secure", "HttpOnly"} <= {word.strip() for word in answer.headers["Set-Cookie"].split(";")}
    assert console.post("/session", data={"token": "aclflow_wrong"}).status_code == 401


def test_it_is_believed_by_the_services_authority_alone(console: httpx.Client) -> None:
    with httpx.Client(verify=ssl.create_default_context(), trust_env=False) as stranger:
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            stranger.get(console.base_url)
        with pytest.raises(httpx.TransportError):
            stranger.get(str(console.base_url).replace("https", "http"))


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    words = ("console", "--tls-certificate", str(tmp_path / "none"), "--tls-key", str(tmp_path / "none"))
    ended = subprocess.run(
        [sys.executable, "-m", "orchestrator.cli", *words], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, str(tmp_path / "none") in ended.stderr) == (3, True)
