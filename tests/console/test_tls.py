"""The console over TLS: with a certificate of the service's authority, as the playbook gives it one."""

from __future__ import annotations

import datetime as dt
import itertools
import os
import re
import ssl
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from patience import until
from served import Served, served

from api.console.guards import MOST_TRIES, TRIES_S
from api.console.server import LARGEST_BODY_BYTES
from orchestrator.identity.authority import CONSOLE_LASTS
from orchestrator.identity.files import AuthorityDir, encoded_key, write_file
from orchestrator.identity.names import Subject, Usage
from orchestrator.identity.requests import new_key
from orchestrator.identity.trust import client_context
from orchestrator.lab.processes import free_port


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


def sign_in(console: httpx.Client, token: str, **headers: str) -> httpx.Response:
    """Fill in the form of the sign-in page."""
    drawn = re.search(r'name="form" value="([^"]+)"', console.get("/login").text)
    assert drawn is not None
    return console.post("/session", data={"token": token, "form": drawn[1]}, headers=headers)


def test_every_answer_binds_the_browser_to_tls_and_to_this_console(console: httpx.Client) -> None:
    for path in ("/login", "/", "/console-static/console.css", "/nothing"):
        headers = console.get(path).headers
        assert headers["Strict-Transport-Security"] == "max-age=31536000"
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert "form-action 'self'" in headers["Content-Security-Policy"]
    page, entry = (console.get(path).headers["Content-Security-Policy"] for path in ("/nothing", "/login"))
    assert page.startswith("default-src 'self'; ")
    assert "connect-src 'self';" in page, "nor elsewhere by ws"
    assert entry.startswith("default-src 'none'; script-src 'self'; ")


def test_who_signs_in_gets_a_cookie_that_never_goes_in_clear(console: httpx.Client, service: Served) -> None:
    answer = sign_in(console, service.token)
    assert (answer.status_code, answer.headers["Location"]) == (303, "/")
    assert {"Secure", "HttpOnly"} <= {word.strip() for word in answer.headers["Set-Cookie"].split(";")}
    assert sign_in(console, "aclflow_wrong").status_code == 401


def test_nobody_signs_a_browser_in_with_a_form_of_his_own(console: httpx.Client, service: Served) -> None:
    """A page elsewhere that sends a browser here would sign it in as the page's author."""
    drawn = re.search(r'name="form" value="([^"]+)"', console.get("/login").text)
    assert drawn is not None
    true = {"token": service.token, "form": drawn[1]}
    for sent, origin in (
        (true | {"form": "made up"}, None),
        (true | {"form": ""}, None),
        (true, "https://evil.example"),
    ):
        answer = console.post("/session", data=sent, headers={"Origin": origin} if origin else {})
        assert answer.status_code == 403
        assert "aclflow-console=" not in answer.headers.get("Set-Cookie", "")
    own = str(console.base_url).rstrip("/")
    assert console.post("/session", data=true, headers={"Origin": own}).status_code == 303
    assert console.post("/session/end", headers={"Origin": "https://evil.example"}).status_code == 403
    console.cookies.clear()
    assert console.post("/session", data=true).status_code == 403, "the form is another browser's"


@pytest.mark.parametrize(
    ("method", "path", "asked"),
    [
        ("POST", "/session", {}),
        ("POST", "/session/end", {}),
        ("POST", "/_nicegui/client/00000000-0000-0000-0000-000000000000/upload/1", {}),
        ("POST", "/_nicegui_ws/socket.io/?EIO=4&transport=polling", {}),
        ("DELETE", "/nothing", {}),
        ("GET", "/_nicegui_ws/socket.io/?EIO=4&transport=websocket", {
            "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        }),
    ],
)  # fmt: skip
def test_what_a_page_elsewhere_sends_is_refused(
    console: httpx.Client, method: str, path: str, asked: dict[str, str]
) -> None:
    for origin in ("https://evil.example", "null", f"{console.base_url.scheme}://127.0.0.1:1"):
        assert console.request(method, path, headers=asked | {"Origin": origin}).status_code == 403, origin


@pytest.mark.parametrize("path", ["/", "/nothing", "/project/shop/acl?version=1", "/_nicegui/nothing"])
def test_no_page_is_made_for_a_browser_without_a_session(console: httpx.Client, service: Served, path: str) -> None:
    """The library keeps each for a minute, and what it makes for a connection without a page for some seconds."""
    console.cookies.clear()
    answer = console.get(path)
    wanted = {"/": "/login", "/_nicegui/nothing": None}.get(path, f"/login?next={quote(path)}")
    assert (answer.status_code, answer.headers.get("Location")) == (403 if wanted is None else 303, wanted)
    assert console.get("/_nicegui_ws/socket.io/?EIO=4&transport=polling").status_code == 403
    assert console.post("/_nicegui_ws/socket.io/?EIO=4&transport=polling").status_code == 403
    sign_in(console, service.token)
    assert console.get("/_nicegui_ws/socket.io/?EIO=4&transport=polling").status_code == 200
    assert console.get("/nothing").status_code == 404


FILE = b'--x\r\nContent-Disposition: form-data; name="f"; filename="f"\r\n\r\n'


@pytest.mark.parametrize(
    ("kind", "begins"), [("application/x-www-form-urlencoded", b"token="), ("multipart/form-data; boundary=x", FILE)]
)
def test_a_body_without_an_end_is_kept_neither_in_memory_nor_in_a_file(
    console: httpx.Client, service: Served, kind: str, begins: bytes
) -> None:
    sign_in(console, service.token)
    chunks = itertools.chain([begins], itertools.repeat(b"a" * 1000, 66))
    assert console.post("/session", content=chunks, headers={"Content-Type": kind}).status_code == 413
    uploading = "/_nicegui/client/00000000-0000-0000-0000-000000000000/upload/1"
    assert console.post(uploading, content=bytes(LARGEST_BODY_BYTES + 1)).status_code == 413


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


def test_wrong_tokens_have_to_wait(console: httpx.Client, service: Served) -> None:
    """The last test of this module: the address waits for a minute."""
    assert sign_in(console, "aclflow_first").status_code == 401
    with ThreadPoolExecutor(4 * MOST_TRIES) as pool:
        said = [{"X-Forwarded-For": f"192.0.2.{number}"} for number in range(4 * MOST_TRIES)]
        answers = list(pool.map(lambda headers: sign_in(console, "aclflow_wrong", **headers), said))
    refused = [each for each in answers if each.status_code == 429]
    assert len(refused) > 3 * MOST_TRIES, "no more of them are tried where they come at once"
    assert 0 < int(refused[-1].headers["Retry-After"]) <= TRIES_S
    assert sign_in(console, service.token).status_code == 429
