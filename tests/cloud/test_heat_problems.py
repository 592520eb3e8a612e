"""What Heat answers, and whether it answers, as errors of ours: over HTTP, from a server that says what it is told."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

pytest.importorskip("openstack", reason="the extra `openstack` is not installed")
pytest.importorskip("heatclient", reason="the extra `openstack` is not installed")

from orchestrator.cloud.heat import open_cloud
from orchestrator.cloud.heat.api import Action, Stack, Standing, Status
from orchestrator.cloud.heat.openstack import OpenStackClient
from orchestrator.cloud.heat.settings import HeatSettings
from orchestrator.errors import (
    AclflowError,
    BadInput,
    Busy,
    Forbidden,
    Refused,
    TooLarge,
    TryAgain,
    Unauthenticated,
    Unreachable,
)

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")  # of openstacksdk, about its own options

STACK = Stack("1", "aclflow-fleet-pop1", Standing(Action.CREATE, Status.COMPLETE))
SILENT = 0


@dataclass
class Service:
    """Keystone, and a Heat that gives the next answers: a status and a message; SILENT gives none in time."""

    url: str
    answers: list[tuple[int, str]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    signed_in: int = 0


def _handler(service: Service) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"] or 0))
            if self.path.endswith("/auth/tokens"):
                service.signed_in += 1
                self._say(201, _token(service.url))
            else:
                self._answer()

        def do_GET(self) -> None:
            if "/heat" in self.path:
                self._answer()
            else:
                links = [{"rel": "self", "href": f"{service.url}/v3/"}]
                version = {"id": "v3.14", "status": "stable", "links": links, "media-types": []}
                self._say(300, {"versions": {"values": [version]}} if self.path == "/" else {"version": version})

        do_PATCH = do_POST  # noqa: N815
        do_DELETE = do_POST  # noqa: N815

        def _answer(self) -> None:
            service.asked.append(f"{self.command} {self.path}")
            status, message = service.answers.pop(0)
            if status == SILENT:
                time.sleep(2.0)
                return
            self._say(status, {"code": status, "error": {"message": message, "type": "Any"}, "title": "any"})

        def _say(self, status: int, body: object) -> None:
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("X-Subject-Token", "token")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


def _token(url: str) -> object:
    endpoint = {"id": "e", "interface": "public", "region": "one", "region_id": "one", "url": f"{url}/heat/v1/p"}
    catalog = [{"id": "c", "type": "orchestration", "name": "heat", "endpoints": [endpoint]}]
    domain = {"id": "default", "name": "Default"}
    user, project = ({"id": each, "name": each, "domain": domain} for each in ("u", "p"))
    times = {"issued_at": "2026-01-01T00:00:00.000000Z", "expires_at": "2096-01-01T00:00:00.000000Z"}
    return {"token": {**times, "methods": ["password"], "user": user, "project": project, "catalog": catalog}}


@pytest.fixture
def service() -> Iterator[Service]:
    found = Service("")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(found)) as server:
        found.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield found
        server.shutdown()
        thread.join()


@pytest.fixture
def client(service: Service, tmp_path: Path) -> Iterator[OpenStackClient]:
    made = OpenStackClient(_settings(service.url, tmp_path))
    yield made
    made.close()


def _settings(url: str, folder: Path) -> HeatSettings:
    auth = {"auth_url": f"{url}/v3", "username": "u", "password": "p", "project_name": "p"}
    domains = {"user_domain_name": "Default", "project_domain_name": "Default"}
    cloud = {"auth": auth | domains, "region_name": "one", "identity_api_version": "3"}
    (folder / "clouds.yaml").write_text(yaml.safe_dump({"clouds": {"here": cloud}}))
    (folder / "environment.yaml").write_text("parameters: {flavor: f}\n")
    return HeatSettings(
        folder / "environment.yaml", folder, cloud="here", clouds_file=folder / "clouds.yaml", request_s=0.5
    )


@pytest.mark.parametrize(
    ("status", "message", "error"),
    [
        (500, "Internal", Unreachable),
        (502, "Bad gateway", Unreachable),
        (503, "Unavailable", Unreachable),
        (504, "Timed out waiting for a reply", Unreachable),
        (SILENT, "", Unreachable),
        (409, "The Stack (x) already has an action (UPDATE) in progress.", Busy),
        (429, "Slow down", Busy),
        (400, "Parameter 'image' is invalid: Error validating value 'x': No images matching", Refused),
        (400, "You have reached the maximum resources per stack, 1000. Please delete some", TooLarge),
        (403, "You have reached the maximum stacks per tenant, 512. Please delete some stacks.", TooLarge),
        (403, "You are not authorized to use stacks:update.", Forbidden),
        (413, "Request limit exceeded", TooLarge),
    ],
)
def test_an_answer_becomes_an_error_that_says_what_to_do(
    service: Service, client: OpenStackClient, status: int, message: str, error: type[AclflowError]
) -> None:
    service.answers = [(status, message)]
    with pytest.raises(error, match="Heat to change the stack aclflow-fleet-pop1") as caught:
        client.update_stack(STACK, {"count": 2})
    assert type(caught.value) is error
    assert len(service.asked) == 1


def test_what_may_work_later_is_told_from_what_will_not() -> None:
    assert issubclass(Unreachable, TryAgain)
    assert issubclass(Busy, TryAgain)
    assert not issubclass(Refused, TryAgain)
    assert not issubclass(TooLarge, TryAgain)


def test_404_for_a_stack_is_none_and_for_deleting_it_done(service: Service, client: OpenStackClient) -> None:
    service.answers = [(404, "The Stack (x) could not be found.")] * 3
    assert client.stack("x") is None
    client.delete_stack(STACK)
    assert client.members(STACK) == ()


def test_a_token_that_is_refused_is_made_anew_once(service: Service, client: OpenStackClient) -> None:
    service.answers = [(401, "expired"), (404, "gone")]
    assert client.stack("x") is None
    assert service.signed_in == 2
    service.answers = [(401, "expired"), (401, "still")]
    with pytest.raises(Unauthenticated):
        client.stack("x")
    assert service.signed_in == 3


def test_nobody_there_is_no_answer(tmp_path: Path) -> None:
    client = OpenStackClient(_settings("http://127.0.0.1:9", tmp_path))
    with pytest.raises(Unreachable):
        client.stack("x")


def test_a_service_that_the_cloud_lacks_is_said(service: Service, client: OpenStackClient) -> None:
    with pytest.raises(Refused, match="no such service"):
        client.servers("x")


def test_a_cloud_that_is_not_in_the_file_is_said(service: Service, tmp_path: Path) -> None:
    _settings(service.url, tmp_path)
    files = {"environment": str(tmp_path / "environment.yaml"), "group_tokens": str(tmp_path)}
    cloud = open_cloud({"kind": "heat", "cloud": "there", "clouds_file": str(tmp_path / "clouds.yaml"), **files})
    with pytest.raises(BadInput, match="there") as caught:
        cloud.list()
    assert caught.value.place == "cloud"
