"""Who sees and may do what: tried on every route that there is."""

from __future__ import annotations

import datetime as dt
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from patience import PATIENCE_S
from served import Served

from orchestrator.client import Client, Host
from orchestrator.client.proposals import ProposedAbout
from orchestrator.control.control import Control
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.store.records import Role

OPEN = {"/healthz", "/readyz", "/metrics", "/v1/authority"}
"""What asks for no token."""
BY_TOKEN = ("/v1/enrol", "/v1/enrol/switch")
"""What is asked with a one-time token in its body."""

PACKET = {"source": "192.0.2.9", "destination": "10.2.0.1", "protocol": "tcp"}
RULE = {"id": "r", "action": "permit"}
OWN_TOKEN = "/v1/tokens/mine"
BODIES: dict[tuple[str, str], object] = {
    ("POST", "/v1/tenants"): {"id": "new", "domain": "pop"},
    ("PATCH", "/v1/tenants/{tenant}"): {"name": "x"},
    ("POST", "/v1/tenants:batch"): {"domain": "pop", "tenants": [{"id": "of-many"}]},
    ("PUT", "/v1/tenants/{tenant}/prefixes"): {"prefixes": []},
    ("POST", "/v1/tenants/{tenant}/prefixes"): {"prefix": "10.99.0.0/16"},
    ("PUT", "/v1/tenants/{tenant}/acl"): {"rules": []},
    ("PUT", "/v1/tenants/{tenant}/acl/expectations"): {"text": "everybody reaches 10.2.0.1:80"},
    ("POST", "/v1/tenants/{tenant}/acl/test"): {"expectations": "everybody reaches 10.2.0.1:80"},
    ("POST", "/v1/tenants/{tenant}/acl/drafts"): {"acl": {"rules": []}, "base_version": 1},
    ("POST", "/v1/tenants/{tenant}/acl/check"): {"rules": []},
    ("POST", "/v1/tenants/{tenant}/acl/traffic"): {"rules": []},
    ("POST", "/v1/tenants/{tenant}/acl/trace"): PACKET,
    ("POST", "/v1/tenants/{tenant}/acl/blame"): PACKET,
    ("POST", "/v1/tenants/{tenant}/acl/bisect"): PACKET,
    ("POST", "/v1/tenants/{tenant}/acl/rules"): {**RULE, "id": "other"},
    ("PUT", "/v1/tenants/{tenant}/acl/rules/{rule}"): RULE,
    ("PUT", "/v1/tenants/{tenant}/acl/groups/{group}"): {"prefixes": ["192.0.2.0/24"]},
    ("POST", "/v1/tenants/{tenant}/acl/groups/{group}/members"): {"add": ["192.0.2.9"]},
    ("POST", "/v1/tenants/{tenant}/acl/waivers"): {
        "kind": "wide", "rules": ["r"], "reason": "tried", "ends": "2101-01-01T00:00:00Z"
    },
    ("POST", "/v1/tenants/{tenant}/proposals/{proposal}/rejection"): {"reason": "tried"},
    ("POST", "/v1/domains/{domain}/proposals/{proposal}/rejection"): {"reason": "tried"},
    ("PUT", "/v1/domains/{domain}/approvals"): {"operator_rules": False, "tenants": []},
    ("PUT", "/v1/tenants/{tenant}/quota"): {"rules": 10, "flows": None},
    ("POST", "/v1/domains"): {"id": "new"},
    ("PATCH", "/v1/domains/{domain}"): {"return_traffic": "explicit"},
    ("POST", "/v1/domains/{domain}/hosts"): {"name": "h9", "datapath_id": "00000000000000ff", "uplink": "up0"},
    ("PUT", "/v1/domains/{domain}/endpoints/{endpoint}"): {
        "tenant": "red", "port": "tap1", "mac": "0a:00:00:00:00:01", "prefixes": ["10.2.0.1/32"]
    },
    ("PUT", "/v1/domains/{domain}/operator-rules"): {"rules": []},
    ("POST", "/v1/domains/{domain}/enrolment-tokens"): {},
    ("POST", "/v1/domains/{domain}/enrolment-groups"): {"group": "fleet", "kind": "nftables"},
    ("POST", "/v1/domains/{domain}/enforcers/{enforcer}/certificate"): {"csr": ""},
    ("POST", "/v1/domains/{domain}/hosts/{host}/certificate"): {"csr": ""},
    ("POST", "/v1/domains/{domain}/enforcers/{enforcer}/report"): {},
    ("POST", "/v1/domains/{domain}/enforcers/{enforcer}/counts"): {},
    ("POST", "/v1/domains/{domain}/enforcers/{enforcer}/log"): {"number": 1, "seen": []},
    ("PUT", "/v1/domains/{domain}/enforcers/{enforcer}/load"): {},
    ("PUT", "/v1/domains/{domain}/spread"): {"firewalls": []},
    ("PUT", "/v1/domains/{domain}/enforcers/{enforcer}/spread"): {"generation": 1},
    ("PUT", "/v1/domains/{domain}/enforcers/{enforcer}/spread/links"): {"down": []},
    ("POST", "/v1/domains/{domain}/firewalls"): {"name": "fw9", "plane": "nftables"},
    ("PATCH", "/v1/domains/{domain}/fleet"): {"size": 1},
    ("PUT", "/v1/domains/{domain}/enforcers/{enforcer}/trial"): {"generation": 1, "came": [], "held": 1},
    ("POST", "/v1/capacities"): {
        "plane": "nftables", "source": "a bench", "measured": [{"rules": 1, "octets": 64, "pps": 1e5}]
    },
    ("PUT", "/v1/domains/{domain}/log/limit"): {"rate": 1, "burst": 1},
    ("PUT", "/v1/domains/{domain}/placement"): {},
    ("POST", "/v1/domains/{domain}/placement/try"): {},
    ("PUT", "/v1/domains/{domain}/placement/rules/{tenant}/{rule}"): {"wish": "pinned"},
    ("POST", "/v1/pops"): {"name": "p9", "domain": "pop", "outside": ["up0"]},
    ("PUT", "/v1/pops/{pop}"): {"outside": ["up0"]},
    ("POST", "/v1/pops/{pop}/edges"): {"name": "e9", "datapath_id": "00000000000000fe", "uplink": "up0"},
    ("POST", "/v1/pops/{pop}/servers"): {"name": "fs9", "port": "to-fs9", "mac": "0a:00:00:00:00:01"},
    ("PUT", "/v1/pops/{pop}/servers/{server}"): {"state": "lost"},
    ("PATCH", "/v1/pops/{pop}/places"): {"places": {}},
    ("POST", "/v1/tokens"): {"role": "admin"},
    ("POST", "/v1/tokens/{token}/rotation"): {},
}  # fmt: skip


SEEN_BY_POINTS = {
    f"/v1/domains/{{domain}}{path}"
    for path in (
        "", "/edges", "/enforcers", "/enforcers/{enforcer}", "/firewalls", "/firewalls/{firewall}", "/fleet",
        "/fleet/decisions", "/fleet/members/{member}", "/fleet/samples", "/generations/{generation}", "/hosts",
        "/hosts/{host}", "/program", "/program/stream", "/revoked-switches", "/spread", "/spread/stream",
    )
}  # fmt: skip
"""What an enforcement point may read of its own domain."""

DRAFTS: list[str] = []
"""The id of a draft that red shares, once there is one."""
PROPOSALS: list[str] = []
"""The id of a proposal about red's list, once there is one."""


@dataclass(frozen=True)
class Route:
    method: str
    pattern: str

    def path(self, tenant: str, domain: str) -> str:
        names = {"tenant": tenant, "domain": domain, "rule": "r", "version": "1", "host": "host1", "endpoint": "tap1"}
        names |= {"enforcer": "1", "generation": "1", "token": "1", "prefix": "10.2.0.0/16"}
        names |= {"group": "7" if "enrolment-groups" in self.pattern else "office", "member": "192.0.2.1"}
        names |= {"draft": DRAFTS[-1], "proposal": PROPOSALS[-1]}
        names |= {"firewall": "fw1", "serial": "0" * 40, "pop": "p1", "edge": "e1", "server": "fs1", "waiver": "1"}
        names |= {"entry": "1"}
        return self.pattern.format(**names)

    @property
    def body(self) -> object:
        return BODIES.get((self.method, self.pattern))


@dataclass(frozen=True)
class Town:
    """Tenants red and blue in one domain, a third domain, and a client for each role of red.

    `point` is an enforcement point of their domain, `enforcer` one of the third domain.
    """

    served: Served
    admin: httpx.Client
    member: httpx.Client
    reader: httpx.Client
    enforcer: httpx.Client
    point: httpx.Client


@pytest.fixture(scope="module")
def town(service: Served, admin: Client) -> Iterator[Town]:
    admin.domains.create("pop")
    admin.domains.create("elsewhere")
    admin.domains.add_host("pop", Host("host1", 1, "up0"))
    for tenant, prefix in (("blue", "10.1.0.0/16"), ("red", "10.2.0.0/16")):
        admin.tenants.create(tenant, domain="pop", prefixes=[Prefix.parse(prefix)])
        admin.acls.put(tenant, acl_from_json({"groups": {"office": {"prefixes": ["192.0.2.1"]}}, "rules": [RULE]}))
    PROPOSALS.append(_proposed(service, admin, "pop", "red"))
    DRAFTS.append(admin.drafts.share("red", acl_from_json({"rules": [RULE]}), base=1).id)
    admin.waivers.add(
        "red", "wide", ["r"], reason="for the routes about it", ends=dt.datetime(2101, 1, 1, tzinfo=dt.UTC)
    )
    with service.client("") as anybody:
        enrolment = anybody.enrolment.enrol(admin.enrolment.invite("elsewhere"), name="c", kind="openflow")
        point_enrolment = anybody.enrolment.enrol(admin.enrolment.invite("pop"), name="d", kind="openflow")
    with (
        service.http() as boss,
        service.http(service.make_token(Role.MEMBER, "red")) as member,
        service.http(service.make_token(Role.READER, "red")) as reader,
        service.http(enrolment.token) as enforcer,
        service.http(point_enrolment.token) as point,
    ):
        yield Town(service, boss, member, reader, enforcer, point)


def _proposed(service: Served, admin: Client, domain: str, tenant: str) -> str:
    """Propose a change of a tenant's list, which then needs no approval any more."""
    admin.proposals.set_approvals(domain, operator_rules=False, tenants=[tenant])
    made = admin.acls.put(tenant, acl_from_json({"rules": []})).proposal
    unmarked = admin.proposals.set_approvals(domain, operator_rules=False, tenants=[]).proposal
    assert made is not None
    assert unmarked is not None
    with service.client(service.make_token(Role.ADMIN)) as other:
        other.proposals.approve(ProposedAbout(domain=domain), unmarked.id)
    return made.id


def routes(http: httpx.Client) -> list[Route]:
    """Every route, as the OpenAPI document lists them."""
    document = http.get("/v1/openapi.json").json()
    found = [Route(method.upper(), path) for path, item in document["paths"].items() for method in item]
    assert len(found) > 45
    return [route for route in found if route.pattern not in (*OPEN, *BY_TOKEN)]


def ask(http: httpx.Client, route: Route, tenant: str = "blue", domain: str = "pop") -> httpx.Response:
    query = {"wait": "0"} if route.pattern.endswith(("/program", "/stream")) else {}
    return http.request(
        route.method, route.path(tenant, domain), json=route.body, params=query, headers={"If-Match": '"nothing"'}
    )


def test_every_route_that_takes_a_body_is_tried_with_a_good_one(town: Town) -> None:
    document = town.admin.get("/v1/openapi.json").json()
    with_body = {
        (method.upper(), path)
        for path, item in document["paths"].items()
        for method, operation in item.items()
        if "requestBody" in operation
    }
    assert with_body - {("POST", pattern) for pattern in BY_TOKEN} == set(BODIES)


@pytest.mark.parametrize(("number", "token"), [*enumerate(["", "aclflow_nonsense", "x" * 5000, "\u00e9"], 2)])
def test_no_route_is_open_to_strangers(town: Town, number: int, token: str) -> None:
    headers = {"X-Auth-Token": token.encode()} if token else {}
    own = httpx.HTTPTransport(local_address=f"127.0.0.{number}")  # so many refusals of one address are paced
    with httpx.Client(base_url=town.served.url, headers=headers, transport=own) as stranger:
        for route in routes(town.admin):
            answer = ask(stranger, route)
            assert answer.status_code == 401, route
            assert answer.json()["place" if not token else "type"]
            assert "WWW-Authenticate" in answer.headers


@pytest.mark.parametrize("role", ["member", "reader"])
def test_a_tenant_sees_nothing_of_others(town: Town, role: str) -> None:
    """404 on every route that is about somebody else, in the words that a missing thing gets."""
    http: httpx.Client = getattr(town, role)
    for route in routes(town.admin):
        if route.pattern in {"/v1/tenants", "/v1/tenants:batch", "/v1/events", "/v1/audit", OWN_TOKEN}:
            continue  # they show what is the caller's own, or are refused as such
        if "/generations/" in route.pattern:
            assert ask(http, route, domain="elsewhere").status_code == 404
            continue
        answer = ask(http, route)
        assert answer.status_code == 404, (route, answer.text)
        if "{tenant}" in route.pattern:
            missing = ask(http, route, tenant="nobody")
            assert answer.text.replace("blue", "nobody") == missing.text


def test_an_enforcer_sees_nothing_but_its_domain_and_who_it_is(town: Town) -> None:
    for route in routes(town.admin):
        answer = ask(town.enforcer, route)
        if route.pattern == OWN_TOKEN:
            assert (answer.json()["role"], answer.json()["domain"]) == ("enforcer", "elsewhere")
            continue
        assert answer.status_code == 404, (route, answer.text)


def test_an_enforcer_reads_what_it_needs_of_its_domain_and_changes_nothing(town: Town) -> None:
    """What it says of itself and its devices is in `test_rest_speaking.py`."""
    left = set(SEEN_BY_POINTS)
    for route in routes(town.admin):
        if route.pattern == OWN_TOKEN or "/enforcers/{enforcer}/" in route.pattern:
            continue
        answer = ask(town.point, route)
        if route.method == "GET" and route.pattern in SEEN_BY_POINTS:
            left.remove(route.pattern)
            assert answer.status_code in (200, 204) or ask(town.admin, route).status_code == 404, route
        else:
            assert answer.status_code in (403, 404), (route, answer.text)
    assert not left


def test_a_tenant_sees_itself_in_the_list(town: Town) -> None:
    assert [each["id"] for each in town.member.get("/v1/tenants").json()["items"]] == ["red"]
    assert town.member.get("/v1/tenants", params={"marker": "red"}).json()["items"] == []
    assert town.member.post("/v1/tenants", json={"id": "new", "domain": "pop"}).status_code == 403
    assert ask(town.member, Route("POST", "/v1/tenants:batch")).status_code == 403


def test_a_tenant_sees_events_about_itself_only(town: Town) -> None:
    kinds = {event["kind"] for event in town.admin.get("/v1/events", params={"limit": 1000}).json()["items"]}
    assert {"tenant.created", "acl.replaced", "host.added", "generation.published"} <= kinds
    for http in (town.member, town.reader):
        events = http.get("/v1/events", params={"limit": 1000}).json()["items"]
        assert {event["subject"] for event in events} == {"red"}
        assert {"tenant.created", "acl.replaced"} <= {event["kind"] for event in events}
        assert http.get("/v1/events", params={"tenant": "red", "limit": 1000}).json()["items"] == events
        refused, missing = (http.get("/v1/events", params={"tenant": name}) for name in ("blue", "nobody"))
        assert refused.status_code == missing.status_code == 404
        assert refused.text.replace("blue", "nobody") == missing.text


def test_a_reader_reads_and_a_member_writes_lists_only(town: Town) -> None:
    for route in routes(town.admin):
        if "{tenant}" not in route.pattern or "{domain}" in route.pattern:
            continue
        looks = route.method == "GET" or route.pattern.endswith(
            ("/check", "/traffic", "/test", "/trace", "/blame", "/bisect")
        )
        if route.method == "POST" and "/proposals/" in route.pattern:  # members decide: `test_rest_two_persons.py`
            assert ask(town.reader, route, tenant="red").status_code == 403, route
            continue
        of_list = "/acl" in route.pattern
        reader, member = ask(town.reader, route, tenant="red"), ask(town.member, route, tenant="red")
        if looks:
            assert reader.status_code == member.status_code == 200, route
        elif of_list:
            assert reader.status_code == 403, route
            assert member.status_code == 412, route  # it got as far as the condition, which does not hold
        else:
            assert reader.status_code == member.status_code == 403, route


def test_a_tenant_learns_whether_but_not_where_it_is_enforced(town: Town) -> None:
    answer = town.member.get("/v1/domains/pop/generations/2")
    assert answer.status_code == 200
    assert answer.json()["state"] == "pending"
    assert answer.json()["laggards"] == [{"host": None, "generation": None, "state": None, "error": None}]
    assert "host1" not in answer.text


def test_a_trace_does_not_show_other_tenants_lists(town: Town) -> None:
    packet = {**PACKET, "source": "10.1.0.1"}
    domain = town.admin.post("/v1/tenants/red/acl/trace", json=packet).json()
    mine = town.member.post("/v1/tenants/red/acl/trace", json=packet).json()
    assert [step["tenant"] for step in domain["steps"]] == ["blue", "red"]
    assert [step["tenant"] for step in mine["steps"]] == ["red"]
    assert (domain["scope"], mine["scope"]) == ("domain", "tenant")
    both_foreign = {**PACKET, "source": "10.1.0.1", "destination": "10.1.0.2"}
    assert town.member.post("/v1/tenants/red/acl/trace", json=both_foreign).json()["steps"] == []


def test_an_expired_or_revoked_token_is_out_at_once(town: Town, admin: Client) -> None:
    soon = dt.datetime.now(dt.UTC) + town.served.clock.ahead + dt.timedelta(seconds=30)
    record, secret = admin.tokens.create("member", tenant="red", expires=soon)
    revoked, revoked_secret = admin.tokens.create("reader", tenant="red", description="for the console")
    with town.served.http(secret) as short, town.served.http(revoked_secret) as other:
        assert short.get("/v1/tenants/red").status_code == other.get("/v1/tenants/red").status_code == 200
        admin.tokens.revoke(revoked.id)
        assert other.get("/v1/tenants/red").status_code == 401
        town.served.clock.ahead += dt.timedelta(seconds=31)  # less than a jump, of which an event would tell
        assert short.get("/v1/tenants/red").status_code == 401
    assert record.tenant == "red"


def test_what_waits_for_its_turn_is_not_done_for_a_token_that_was_revoked_meanwhile(
    town: Town, admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    carry_out, waits, revoked = Control.carry_out, threading.Event(), threading.Event()

    def held_up(control: Control, work: object, **how: object) -> object:
        if not revoked.is_set() and threading.current_thread().name.startswith("request"):
            waits.set()
            assert revoked.wait(PATIENCE_S)
        return carry_out(control, work, **how)  # type: ignore[arg-type]

    monkeypatch.setattr("api.context.CHECKED_S", 0.0)
    rule = {"id": "late", "action": "permit"}
    record, secret = admin.tokens.create("member", tenant="red")
    monkeypatch.setattr(Control, "carry_out", held_up)
    with town.served.http(secret) as http, ThreadPoolExecutor(1) as pool:
        write = pool.submit(http.post, "/v1/tenants/red/acl/rules", json=rule)
        assert waits.wait(PATIENCE_S)
        with town.served.service.parts.store.write() as unit:
            unit.tokens.revoke(record.id)
        revoked.set()
        assert write.result(PATIENCE_S).status_code == 401
    assert "late" not in {rule.id for rule in admin.acls.read("red").acl.rules}


def test_tokens_are_stored_hashed_and_listed_without_secrets(town: Town, admin: Client) -> None:
    _, secret = admin.tokens.create("admin", description="second")
    listed = town.admin.get("/v1/tokens").text
    assert secret not in listed
    assert "second" in listed
    for path in filter(Path.is_file, town.served.settings.state_dir.rglob("*")):
        assert secret.encode() not in path.read_bytes(), path


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"role": "member"}, "tenant"),
        ({"role": "admin", "tenant": "red"}, "tenant"),
        ({"role": "king"}, "role"),
        ({"role": "admin", "expires": "2020-01-01T00:00:00Z"}, "expires"),
        ({"role": "admin", "expires": "2040-01-01T00:00:00"}, "expires"),
        ({"role": "admin", "description": "two\nlines"}, "description"),
    ],
)
def test_a_bad_token_is_not_made(town: Town, body: dict[str, object], place: str) -> None:
    answer = town.admin.post("/v1/tokens", json=body)
    assert (answer.status_code, answer.json()["place"]) == (400, place)


def test_events_tell_who_did_what(town: Town, admin: Client) -> None:
    before = admin.events.read(limit=1000).items[-1].id
    admin.acls.put("red", acl_from_json({"rules": [RULE, {**RULE, "id": "s"}]}))
    page = admin.events.read(since=before)
    assert [(event.kind, event.subject, event.detail.get("by")) for event in page.items] == [
        ("acl.replaced", "red", "admin:1"),
        ("generation.published", "pop", None),
    ]
    token, secret = admin.tokens.create("member", tenant="red", description="Ann of red")
    with Client(town.served.url, secret) as member:
        member.acls.put("red", acl_from_json({"rules": [RULE]}))
    replaced = [event for event in admin.events.read(since=before).items if event.kind == "acl.replaced"][-1]
    assert replaced.by() == next(iter(admin.acls.read_versions("red"))).by() == f"Ann of red (member {token.id})"


def test_health_and_metrics_are_open_and_name_no_tenant(town: Town) -> None:
    with httpx.Client(base_url=town.served.url) as stranger:
        assert stranger.get("/healthz").json() == {"status": "ok"}
        assert stranger.get("/readyz").json() == {"status": "ok"}
        assert stranger.get("/readyz", params={"domain": "pop"}).json() == {"status": "ok"}
        assert stranger.get("/readyz", params={"domain": "nowhere"}).status_code == 404
        text = stranger.get("/metrics").text
    assert 'aclflow_generation{domain="pop"}' in text
    assert 'route="/v1/tenants/{tenant}/acl"' in text
    assert re.search(r"\bred\b", text) is None


def test_documents_come_from_nowhere_else(town: Town) -> None:
    assert town.admin.get("/v1/docs").status_code == 404
    assert town.admin.get("/docs").status_code == 404
    answer = town.admin.get("/v1/nothing")
    assert (answer.status_code, answer.headers["Content-Type"]) == (404, "application/problem+json")
    wrong = town.admin.post("/healthz")
    assert (wrong.status_code, wrong.headers["Content-Type"]) == (405, "application/problem+json")
    assert wrong.headers["Allow"] == "GET"
