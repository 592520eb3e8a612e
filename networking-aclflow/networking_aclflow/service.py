"""The part of aclflow's REST interface that the driver needs.

Every change names the version that it is made upon (If-Match), so one made upon old knowledge is refused.
"""

from __future__ import annotations

import ipaddress
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import requests
from oslo_log import log

LOG = log.getLogger(__name__)

ABSENT = ""
"""The version of what is not there."""


class ServiceError(Exception):
    """The service did not do what was asked."""


class Unreachable(ServiceError):
    """There is no answer, or none that says anything: ask again later."""


class Refused(ServiceError):
    """The service says why it does not take this."""


class Changed(ServiceError):
    """It was changed by somebody else meanwhile: read it again."""


@dataclass(frozen=True)
class Endpoint:
    """A port as the service knows it. `prefixes` are sorted texts."""

    name: str
    tenant: str
    port: str
    mac: str
    prefixes: tuple[str, ...]


class Service:
    """A caller of the service. Not for several threads at a time."""

    def __init__(
        self, url: str, token_file: str, authority: str | None, timeout_s: float, *, plain_http: bool = False
    ) -> None:
        if not (plain_http or is_private(url)):
            raise ValueError(
                f"at '{url}' the token could be read on the way: give url with https://, or, where nobody else can, "
                "set plain_http in the section aclflow"
            )
        self._url = url.rstrip("/")
        self._token_file = Path(token_file)
        self._timeout_s = timeout_s
        self._session = requests.Session()
        self._session.verify = authority or True
        self._session.trust_env = False  # a proxy would see the token

    # -------------------------------------------------------------------------------------------------- endpoints

    def endpoint(self, domain: str, name: str) -> tuple[Endpoint | None, str]:
        """Return an endpoint and its version."""
        answer = self._ask("GET", f"/v1/domains/{quote(domain)}/endpoints/{quote(name)}")
        return (None, ABSENT) if answer is None else (_endpoint(answer.json()), answer.headers.get("ETag", "*"))

    def endpoints(self, domain: str) -> dict[str, Endpoint]:
        """Return all endpoints of a domain by name."""
        found: dict[str, Endpoint] = {}
        marker: str | None = None
        while True:
            query = {"limit": 1000} | ({} if marker is None else {"marker": marker})
            page = self._page(f"/v1/domains/{quote(domain)}/endpoints", query)
            found.update({each["name"]: _endpoint(each) for each in page["items"]})
            marker = page["next"]
            if marker is None:
                return found

    def put_endpoint(self, domain: str, wanted: Endpoint, version: str) -> None:
        """Make an endpoint, or change the one of a version."""
        body = {"tenant": wanted.tenant, "port": wanted.port, "mac": wanted.mac, "prefixes": list(wanted.prefixes)}
        path = f"/v1/domains/{quote(domain)}/endpoints/{quote(wanted.name)}"
        if self._ask("PUT", path, body=body, version=version) is None:
            raise Refused(f"the service has no domain '{domain}'")

    def remove_endpoint(self, domain: str, name: str, version: str) -> None:
        """Take out an endpoint of a version; one that is not there stays so."""
        self._ask("DELETE", f"/v1/domains/{quote(domain)}/endpoints/{quote(name)}", version=version)

    def in_force(self, domain: str, host: str) -> frozenset[str]:
        """Return the endpoints with an interface on a host whose rows were read back there."""
        answer = self._ask("GET", f"/v1/domains/{quote(domain)}/hosts/{quote(host)}/endpoints")
        return frozenset() if answer is None else frozenset(answer.json()["endpoints"])

    def hosts(self, domain: str) -> frozenset[str]:
        """Return the names of a domain's hosts."""
        answer = self._ask("GET", f"/v1/domains/{quote(domain)}/hosts")
        return frozenset() if answer is None else frozenset(each["name"] for each in answer.json())

    # ---------------------------------------------------------------------------------------------------- tenants

    def tenants(self, domain: str) -> dict[str, frozenset[str]]:
        """Return what each tenant of a domain owns."""
        found: dict[str, frozenset[str]] = {}
        marker: str | None = None
        while True:
            query = {"limit": 1000} | ({} if marker is None else {"marker": marker})
            page = self._page("/v1/tenants", query)
            mine = (each for each in page["items"] if each["domain"] == domain)
            found.update({each["id"]: frozenset(each["prefixes"]) for each in mine})
            marker = page["next"]
            if marker is None:
                return found

    def prefixes(self, tenant: str) -> tuple[frozenset[str], str] | None:
        """Return what a tenant owns, and the version of that; None where there is no such tenant."""
        answer = self._ask("GET", f"/v1/tenants/{quote(tenant)}/prefixes")
        return None if answer is None else (frozenset(answer.json()["prefixes"]), answer.headers.get("ETag", "*"))

    def create_tenant(self, domain: str, tenant: str, prefixes: frozenset[str]) -> None:
        """Make a tenant."""
        body = {"id": tenant, "name": tenant, "domain": domain, "prefixes": sorted(prefixes)}
        if self._ask("POST", "/v1/tenants", body=body) is None:
            raise Refused(f"the service has no domain '{domain}'")

    def set_prefixes(self, tenant: str, prefixes: frozenset[str], version: str) -> None:
        """Make these what a tenant owns."""
        body = {"prefixes": sorted(prefixes)}
        if self._ask("PUT", f"/v1/tenants/{quote(tenant)}/prefixes", body=body, version=version) is None:
            raise Changed(f"tenant '{tenant}' has gone")

    # ------------------------------------------------------------------------------------------------------- steps

    def _page(self, path: str, query: Any) -> Any:
        answer = self._ask("GET", path, query=query)
        if answer is None:
            raise Unreachable(f"GET {path}: there is no such thing, or the token is not an administrator's")
        return answer.json()

    def _ask(
        self, method: str, path: str, *, query: Any = None, body: Any = None, version: str = ABSENT
    ) -> requests.Response | None:
        """Return the answer, None where there is no such thing."""
        try:
            headers = {"X-Auth-Token": self._token_file.read_text().strip()}
        except OSError as error:
            raise Unreachable(f"the token cannot be read: {error}") from error
        if version != ABSENT:
            headers["If-Match"] = version
        try:
            answer = self._session.request(
                method,
                self._url + path,
                params=query,
                json=body,
                headers=headers,
                timeout=self._timeout_s,
                allow_redirects=False,
            )
        except requests.RequestException as error:
            raise Unreachable(f"{method} {path}: {error}") from error
        if answer.status_code == 404:
            return None
        if answer.status_code in (412, 428):
            raise Changed(f"{method} {path}: {_said(answer)}")
        if answer.status_code in (401, 403, 429) or 300 <= answer.status_code < 400 or answer.status_code >= 500:
            raise Unreachable(f"{method} {path}: {answer.status_code} {_said(answer)}")
        if answer.status_code >= 400:
            raise Refused(f"{method} {path}: {_said(answer)}")
        return answer


def is_private(url: str) -> bool:
    """Whether nobody reads what is sent to an address: TLS, or this machine itself."""
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.hostname == "localhost":
        return True
    try:
        return ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return False


class KnownHosts:
    """The hosts of a domain, asked for now and then; those known last while the service does not answer."""

    def __init__(self, service: Service, domain: str, lasts_s: float = 10.0) -> None:
        self._service = service
        self._domain = domain
        self._lasts_s = lasts_s
        self._asked_at = float("-inf")
        self._names: frozenset[str] | None = None

    def refuse(self, host: str) -> str | None:
        """Say why ports cannot be bound to a host; None where they can, or where nobody can tell."""
        if time.monotonic() - self._asked_at > self._lasts_s:
            self._asked_at = time.monotonic()
            try:
                self._names = self._service.hosts(self._domain)
            except ServiceError:
                LOG.warning("aclflow does not say which hosts it has")
        if self._names is None or host in self._names:
            return None  # the port waits until its rows were read back, so nothing is lost by binding it
        return f"'{host}' is no host of aclflow's domain '{self._domain}'"


def _endpoint(body: Any) -> Endpoint:
    return Endpoint(body["name"], body["tenant"], body["port"], body["mac"].lower(), tuple(sorted(body["prefixes"])))


def _said(answer: requests.Response) -> str:
    try:
        body = answer.json()
        place = body.get("place")
        return f"{place}: {body['detail']}" if place else str(body["detail"])
    except (ValueError, KeyError, AttributeError, TypeError):
        return answer.text[:200]
