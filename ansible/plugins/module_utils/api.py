"""The REST interface of aclflow, for modules: requests, problems as failures, and the way of every module.

look ──▶ what is there ──┐
                         ├──▶ equal: nothing; else a diff, and unless in check mode the change
parameters ──▶ wanted ───┘
"""

from __future__ import annotations

import ipaddress
import json
import time
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit

from ansible.module_utils.urls import open_url

ARGUMENTS = {
    "url": {"type": "str", "required": True},
    "token": {"type": "str", "required": True, "no_log": True},
    "authority": {"type": "path"},
    "plain_http": {"type": "bool", "default": False},
    "timeout": {"type": "int", "default": 30},
}


APPROVAL = {
    "approval": {"type": "str", "choices": ["report", "wait", "fail"], "default": "report"},
    "approval_s": {"type": "int", "default": 600},
}
"""What modules take whose change another person may have to approve."""

_LOOK_S = 2
"""How often to look whether one member of a domain holds a generation, or whether a proposal was decided."""


class Problem(Exception):
    """An answer that is not a yes: its status (0: there was none) and what the service says."""

    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


def path(*parts):
    """A path of the interface; every part may hold any character."""
    return "/v1/" + "/".join(quote(str(part), safe="") for part in parts)


def refusal_in_clear(url, plain_http):
    """Why a token is not sent to an address; None where it may be: TLS, this machine, or told to."""
    parts = urlsplit(url)
    if plain_http or parts.scheme != "http" or parts.hostname == "localhost":
        return None
    try:
        if ipaddress.ip_address(parts.hostname or "").is_loopback:
            return None
    except ValueError:
        pass
    return (
        f"at '{url}' the token could be read on the way: give an address with https://, or, where nobody else can, say "
        "plain_http"
    )


class Api:
    """One service, asked as one caller."""

    def __init__(self, module):
        self._module = module
        parameters = module.params
        refusal = refusal_in_clear(parameters["url"], parameters["plain_http"])
        if refusal is not None:
            raise Problem(0, refusal)
        self._url = parameters["url"].rstrip("/")
        self._headers = {"X-Auth-Token": parameters["token"], "Accept": "application/json"}
        self._authority = parameters["authority"] or None
        self._timeout = parameters["timeout"]

    def ask(self, method, where, body=None, headers=None, timeout=None):
        """What the service answers: the document and the ETag. Raises Problem."""
        data = None if body is None else json.dumps(body).encode()
        try:
            answer = open_url(
                self._url + where,
                method=method,
                data=data,
                headers=dict(self._headers, **{"Content-Type": "application/json"}, **(headers or {})),
                ca_path=self._authority,
                timeout=timeout or self._timeout,
            )
            raw = answer.read()
            return (json.loads(raw) if raw else None), answer.headers.get("ETag")
        except HTTPError as error:
            raise Problem(error.code, _words(error.read(), error)) from None
        except (URLError, OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise Problem(
                0, f"{self._url} does not answer as aclflow does: {reason}. Check url, authority and the way there"
            ) from None

    def find(self, where):
        """The document and ETag at a path; None and None where there is nothing."""
        try:
            return self.ask("GET", where)
        except Problem as problem:
            if problem.status == 404:
                return None, None
            raise

    def write(self, method, where, body=None, etag=None):
        """A change under the ETag that was read."""
        return self.ask(method, where, body, {"If-Match": etag} if etag else None)

    def every(self, where):
        """All items of a list that comes in pages."""
        found, marker = [], None
        while True:
            page, _tag = self.ask("GET", where + (f"?marker={quote(marker, safe='')}" if marker else ""))
            if isinstance(page, list):
                return page
            found += page["items"]
            marker = page.get("next")
            if marker is None:
                return found

    def waiting(self, about, is_same):
        """The open proposal that would make so what is asked for, if there is one already.

        `about` is the path of the tenant or domain, `is_same` tells it by the proposal.
        """
        for seen in self.every(path(*about, "proposals")):
            if seen["state"] == "open" and not seen["has_moved"] and is_same(seen):
                return seen
        return None

    def settle(self, seen, about, changed=True):
        """Report a proposal as a result, or wait for its decision, as the module's parameters say.

        Fails where it is not approved in time, or where it must not be a proposal at all.
        """
        what, seconds = self._module.params["approval"], self._module.params["approval_s"]
        if what == "wait":
            seen = self._decided(seen, about, seconds)
        if seen["state"] == "approved":
            return {"proposal": seen, "msg": f"approved by {_decider(seen)}", "changed": True}
        waits = (
            f"nothing has changed yet: another person must approve proposal {seen['id'][:8]} until {seen['expires']}"
        )
        if seen["state"] != "open":
            why = f": {seen['reason']}" if seen["reason"] else ""
            self._module.fail_json(
                msg=f"the change was proposed, and is {seen['state']} by {_decider(seen)}{why}",
                proposal=seen,
            )
        elif what != "report":
            late = f"; it was not decided within {seconds} s" if what == "wait" else ""
            self._module.fail_json(msg=waits + late, proposal=seen)
        return {"proposal": seen, "msg": waits, "changed": changed}

    def _decided(self, seen, about, seconds):
        """The proposal once it was decided, or as it is after so many seconds."""
        until = time.monotonic() + seconds
        while seen["state"] == "open" and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, _LOOK_S))
            seen, _tag = self.ask("GET", path(*about, "proposals", seen["id"]))
        return seen

    def wait_enforced(self, domain, generation, seconds, member=None):
        """Wait until every host holds a generation, or `member` alone. Fails, naming who is behind and why."""
        where = path("domains", domain, "generations", generation)
        until = time.monotonic() + seconds
        laggards = None
        while laggards != [] and (left := until - time.monotonic()) > 0:
            held_s = left if member is None else min(left, _LOOK_S)
            state, _tag = self.ask("GET", f"{where}?wait=enforced&timeout={held_s}", timeout=held_s + self._timeout)
            lagging = [] if state["state"] == "enforced" else state["laggards"]
            laggards = [each for each in lagging if member in (None, each["host"])]
        if laggards != []:
            lagging = ", ".join(map(_lagging, laggards or ()))
            self._module.fail_json(msg=f"generation {generation} is not in force after {seconds} s: {lagging}")


def _decider(seen):
    """Who decided about a proposal, in words: `Ann (admin 4)`."""
    role, _colon, token = (seen["decided_by"] or "nobody").partition(":")
    known = f"{role} {token}".strip()
    return f"{seen['decided_by_name']} ({known})" if seen.get("decided_by_name") else known


def _lagging(each):
    """Who does not hold a generation, and why."""
    words = {None: "never reported", "enforced": "behind", "applying": "behind"}
    why = ": ".join(filter(None, (words.get(each["state"], each["state"]), each["error"])))
    return f"{each['host'] or 'a host'} ({why})"


def plain(rule):
    """A rule with nothing said that is said anyway, and one spelling for what has several: for telling rules apart."""
    said = {key: value for key, value in rule.items() if value not in (None, "", False) and value != "any"}
    said.setdefault("direction", "ingress")
    for key in ("source_ports", "destination_ports"):
        if key in said:
            ports = said[key] if isinstance(said[key], list) else str(said[key]).split(",")
            said[key] = sorted(str(port).strip() for port in ports)
    for key in ("source", "destination"):
        if key in said:
            named = said[key] if isinstance(said[key], list) else [said[key]]
            said[key] = (
                sorted(_network(each) for each in named) if all(isinstance(each, str) for each in named) else named
            )
    return said


def _network(text):
    try:
        return str(ipaddress.ip_network(text))
    except ValueError:
        return text


def canonical_prefix(module, text):
    """A prefix in one spelling, an address as one of a single address. Fails where it is neither."""
    try:
        return str(ipaddress.ip_network(text))
    except ValueError as error:
        module.fail_json(msg=f"prefixes: {error}")


def finish(module, before, after, change, **facts):
    """End a module: `change()` is called where the two differ, unless in check mode; what it returns is reported."""
    differ = before != after
    result = {"changed": differ, "diff": {"before": before or {}, "after": after or {}}}
    result.update(facts)
    if differ and not module.check_mode:
        result.update(change() or {})
    module.exit_json(**result)


def run(module, work):
    """Do the work of a module, its problems as failures."""
    try:
        work(Api(module))
    except Problem as problem:
        module.fail_json(msg=str(problem), status=problem.status)


def _words(raw, error):
    try:
        said = json.loads(raw)
        place = f"{said['place']}: " if said.get("place") else ""
        return f"{place}{said.get('detail') or said.get('title') or error}"
    except (ValueError, TypeError):
        return str(error)
