"""Completion of arguments: names from the service, where it answers at once.

A shell that completes must not wait, and must not be talked to: so the service is asked with the standard library
alone, for a fraction of a second, and every failure is no names.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from orchestrator.cli.contextfile import Contexts, with_context
from orchestrator.errors import AclflowError
from orchestrator.eventkinds import KINDS
from orchestrator.settings import Settings, load

PATIENCE_S = 0.1
"""How long each step of asking the service may take."""
MOST = 1000


def tenants(incomplete: str) -> list[str]:
    """Tenants that the caller may see."""
    return _keep_beginning(incomplete, (each["id"] for each in _ask_items("/v1/tenants")))


def tenant_lists(incomplete: str) -> list[str]:
    """Complete the name of a tenant, and behind TENANT@ the versions of its list."""
    tenant, at_version, _ = incomplete.partition("@")
    if not at_version:
        return tenants(incomplete)
    found = _ask_items(f"/v1/tenants/{quote(tenant, safe='')}/acl/versions")
    return _keep_beginning(incomplete, (f"{tenant}@{each['version']}" for each in found))


def lists(incomplete: str) -> list[str]:
    """Tenants with a list, versions behind TENANT@, and files."""
    folder, _, beginning = incomplete.rpartition("/")
    try:
        entries = sorted(os.scandir(folder + "/" if folder or "/" in incomplete else "."), key=lambda each: each.name)
    except (OSError, ValueError):
        entries = []
    files = [
        incomplete.removesuffix(beginning) + each.name + ("/" if each.is_dir() else "")
        for each in entries
        if each.name.startswith(beginning) and (beginning or not each.name.startswith("."))
    ]
    named = [] if "/" in incomplete else tenant_lists(incomplete)
    return [*named, *(file for file in files if file not in named)]


def contexts(incomplete: str) -> list[str]:
    """Contexts of the user."""
    try:
        return _keep_beginning(incomplete, iter(Contexts.load().named))
    except AclflowError:
        return []


def domains(incomplete: str) -> list[str]:
    """Security domains."""
    return _keep_beginning(incomplete, (each["id"] for each in _ask_items("/v1/domains")))


def hosts(ctx: Any, incomplete: str) -> list[str]:
    """Hosts of the domain that is named before."""
    found = (
        _ask_service(f"/v1/domains/{_typed_parameter(ctx, 'domain')}/hosts") if _typed_parameter(ctx, "domain") else []
    )
    return _keep_beginning(incomplete, (each["name"] for each in found))


def groups(ctx: Any, incomplete: str) -> list[str]:
    """Address groups of the tenant that is named before."""
    return _keep_beginning(incomplete, (each["name"] for each in _ask_about_tenant(ctx, "acl/groups")))


def rules(ctx: Any, incomplete: str) -> list[str]:
    """Complete the id of a rule of the tenant that is named before."""
    found = _ask_about_tenant(ctx, "acl/rules", begins=incomplete)
    return _keep_beginning(incomplete, (each["id"] for each in found))


def operator_rules(ctx: Any, incomplete: str) -> list[str]:
    """Operator rules of the domain that is named before."""
    domain = _typed_parameter(ctx, "domain")
    found = _ask_service(f"/v1/domains/{domain}/operator-rules") if domain else []
    return _keep_beginning(incomplete, (each["id"] for each in found["rules"])) if isinstance(found, dict) else []


def places(ctx: Any, incomplete: str) -> list[str]:
    """Complete the endpoints of the tenant that is named before.

    The tenant may be named by its list. Packets come from endpoints and go to them.
    """
    tenant = _typed_parameter(ctx, "tenant") or _tenant_of_list(ctx)
    found = _ask_items(f"/v1/tenants/{tenant}/endpoints") if tenant else []
    return _keep_beginning(incomplete, (each["name"] for each in found))


def prefixes(ctx: Any, incomplete: str) -> list[str]:
    """Prefixes of the tenant that is named before."""
    tenant = _typed_parameter(ctx, "tenant")
    found = _ask_service(f"/v1/tenants/{tenant}") if tenant else []
    return _keep_beginning(incomplete, iter(found["prefixes"])) if isinstance(found, dict) else []


def endpoints(ctx: Any, incomplete: str) -> list[str]:
    """Endpoints of the domain that is named before."""
    return _keep_beginning(incomplete, (each["name"] for each in _ask_about_domain(ctx, "endpoints")))


def waivers(ctx: Any, incomplete: str) -> list[str]:
    """Waivers of the tenant that is named before."""
    return _keep_beginning(incomplete, (str(each["id"]) for each in _ask_about_tenant(ctx, "acl/waivers")))


def proposed_about(incomplete: str) -> list[str]:
    """Tenants, and domains as ``domain/NAME``."""
    return _keep_beginning(incomplete, iter([*tenants(""), *(f"domain/{name}" for name in domains(""))]))


def proposals(ctx: Any, incomplete: str) -> list[str]:
    """Open proposals about the tenant or the domain that is named before."""
    about = _typed_parameter(ctx, "about") or ""
    path = f"domains/{about[7:]}" if about.startswith("domain/") else f"tenants/{about}"
    found = _ask_items(f"/v1/{path}/proposals") if about else []
    return _keep_beginning(incomplete, (each["id"] for each in found if each["state"] == "open"))


def versions(ctx: Any, incomplete: str) -> list[str]:
    """Versions of the list of the tenant that is named before."""
    return _keep_beginning(incomplete, (str(each["version"]) for each in _ask_about_tenant(ctx, "acl/versions")))


def drafts(ctx: Any, incomplete: str) -> list[str]:
    """Drafts that are shared of the tenant that is named before."""
    return _keep_beginning(incomplete, (each["id"] for each in _ask_about_tenant(ctx, "acl/drafts")))


def members(ctx: Any, incomplete: str) -> list[str]:
    """Members of the address group that is named before."""
    group = _typed_parameter(ctx, "group")
    found = _ask_about_tenant(ctx, f"acl/groups/{group}/members") if group else []
    return _keep_beginning(incomplete, (each if isinstance(each, str) else each["prefix"] for each in found))


def firewalls(ctx: Any, incomplete: str) -> list[str]:
    """Firewalls of the domain that is named before."""
    return _keep_beginning(incomplete, (each["name"] for each in _ask_about_domain(ctx, "firewalls")))


def vnfs(ctx: Any, incomplete: str) -> list[str]:
    """VNFs of the fleet of the domain that is named before."""
    domain = _typed_parameter(ctx, "domain")
    found = _ask_service(f"/v1/domains/{domain}/fleet") if domain else []
    return _keep_beginning(incomplete, (each["name"] for each in found["members"])) if isinstance(found, dict) else []


def group_tokens(ctx: Any, incomplete: str) -> list[str]:
    """Tokens of groups of the domain that is named before, by their numbers."""
    return _keep_beginning(incomplete, (str(each["id"]) for each in _ask_about_domain(ctx, "enrolment-groups")))


def pops(incomplete: str) -> list[str]:
    """Points of presence."""
    return _keep_beginning(incomplete, (each["name"] for each in _ask_items("/v1/pops")))


def edges(ctx: Any, incomplete: str) -> list[str]:
    """Edge switches of the PoP that is named before."""
    return _ask_about_pop(ctx, "edges", incomplete)


def servers(ctx: Any, incomplete: str) -> list[str]:
    """Firewall servers of the PoP that is named before."""
    return _ask_about_pop(ctx, "servers", incomplete)


def certificates(incomplete: str) -> list[str]:
    """Certificates that are valid, by their serial numbers."""
    return _keep_beginning(incomplete, (each["serial"] for each in _ask_items("/v1/certificates") if each["valid"]))


def tokens(incomplete: str) -> list[str]:
    """Tokens, by their numbers."""
    return _keep_beginning(incomplete, (str(each["id"]) for each in _ask_items("/v1/tokens")))


def kinds(incomplete: str) -> list[str]:
    """Kinds of events."""
    return _keep_beginning(incomplete, iter(KINDS))


def formats(incomplete: str) -> list[str]:
    """Formats of access lists."""
    from orchestrator.policy.formats.registry import FORMATS  # noqa: PLC0415 - it loads every reader

    return _keep_beginning(incomplete, iter(FORMATS))


def one_of(choices: Sequence[str]) -> Callable[[str], list[str]]:
    """Completion for a parameter of a few words."""

    def list_choices(incomplete: str) -> list[str]:
        return _keep_beginning(incomplete, iter(choices))

    return list_choices


EVERY = (
    *(tenants, lists, contexts, domains, hosts, endpoints, groups, members, rules, operator_rules, places, prefixes),
    *(versions, waivers, drafts, tokens, group_tokens, kinds, formats, certificates),
    *(firewalls, vnfs, pops, edges, servers, proposals, proposed_about, tenant_lists),
)


def _keep_beginning(incomplete: str, names: Iterator[str]) -> list[str]:
    try:
        return [name for name in names if name.startswith(incomplete)]
    except (AttributeError, KeyError, TypeError):  # whoever answered is not the service
        return []


def _ask_about_tenant(ctx: Any, what: str, **asked: str) -> list[Any]:
    tenant = _typed_parameter(ctx, "tenant")
    return _ask_items(f"/v1/tenants/{tenant}/{what}", **asked) if tenant else []


def _ask_about_domain(ctx: Any, what: str) -> list[Any]:
    domain = _typed_parameter(ctx, "domain")
    return _ask_items(f"/v1/domains/{domain}/{what}") if domain else []


def _ask_about_pop(ctx: Any, what: str, incomplete: str) -> list[str]:
    pop = _typed_parameter(ctx, "pop")
    found = _ask_service(f"/v1/pops/{pop}") if pop else []
    return _keep_beginning(incomplete, (each["name"] for each in found[what])) if isinstance(found, dict) else []


def _tenant_of_list(ctx: Any) -> str:
    """The tenant of the first list that was typed; nothing for a file."""
    names = ctx.params.get("names") or (ctx.params.get("name") or _typed_argument(ctx, "names"),)
    name, at_service, _ = str(names[0]).partition("@")
    return "" if not at_service and ("." in name or "/" in name) else quote(name, safe="")


def _typed_parameter(ctx: Any, parameter: str) -> str:
    """A parameter that was typed before, as a part of a path."""
    return quote(str(ctx.params.get(parameter) or _typed_argument(ctx, parameter)), safe="")


def _typed_argument(ctx: Any, parameter: str) -> str:
    """An argument that was typed before an option without its value.

    Then the arguments are not told apart yet.
    """
    names = [each.name for each in ctx.command.params if each.param_type_name == "argument"]
    place = names.index(parameter) if parameter in names else len(ctx.args)
    return str(ctx.args[place]) if place < len(ctx.args) else ""


def _ask_items(path: str, **asked: str) -> list[Any]:
    found = _ask_service(f"{path}?{urlencode({'limit': MOST, **asked})}")
    return found.get("items", []) if isinstance(found, dict) else []


def _ask_service(path: str) -> Any:
    """Ask the service; an empty list where it does not answer."""
    try:
        settings = with_context(load(), None)
        with closing(_open_connection(settings)) as connection:
            connection.request("GET", path, headers={"X-Auth-Token": settings.token, "Accept": "application/json"})
            answer = connection.getresponse()
            return json.loads(answer.read()) if answer.status == http.client.OK else []
    except (AclflowError, OSError, ValueError, http.client.HTTPException):
        return []


def _open_connection(settings: Settings) -> http.client.HTTPConnection:
    url = urlsplit(settings.url)
    if url.scheme != "https":
        return http.client.HTTPConnection(url.hostname or "", url.port, timeout=PATIENCE_S)
    trust = ssl.create_default_context(cafile=str(settings.authority) if settings.authority else None)
    return http.client.HTTPSConnection(url.hostname or "", url.port, timeout=PATIENCE_S, context=trust)
