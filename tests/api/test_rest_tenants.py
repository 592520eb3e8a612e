"""Tenants, prefixes and paging over HTTP."""

from __future__ import annotations

import httpx
import pytest

from orchestrator.client import Client
from orchestrator.errors import BadInput, Conflict, NotFound, Stale
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.wire.tenants import TenantToCreate


def prefix(text: str) -> Prefix:
    return Prefix.parse(text)


@pytest.fixture(scope="module", autouse=True)
def _domain(admin: Client) -> None:
    admin.domains.create("pop")


def test_a_tenant_is_made_read_renamed_and_deleted(admin: Client, http: httpx.Client) -> None:
    made = admin.tenants.create("life", domain="pop", name="Life", prefixes=[prefix("10.1.0.0/16")])
    assert (made.id, made.name, made.domain, made.prefixes) == ("life", "Life", "pop", ("10.1.0.0/16",))
    answer = http.get("/v1/tenants/life")
    assert answer.headers["ETag"] == f'"{made.version}"'
    renamed = admin.tenants.rename("life", "Better life", etag=answer.headers["ETag"])
    assert renamed.name == "Better life"
    assert renamed.number == made.number
    with pytest.raises(Stale, match="read it again"):
        admin.tenants.delete("life", etag=answer.headers["ETag"])
    generation = admin.tenants.delete("life", etag=http.get("/v1/tenants/life").headers["ETag"])
    assert generation == admin.domains.read("pop").generation
    with pytest.raises(NotFound, match="there is no tenant 'life'"):
        admin.tenants.read("life")


def test_a_write_answer_says_which_generation_holds_it(admin: Client, http: httpx.Client) -> None:
    body = {"id": "written", "domain": "pop", "prefixes": ["10.2.0.0/16"]}
    answer = http.post("/v1/tenants", json=body)
    assert answer.status_code == 201
    assert answer.headers["Location"] == "/v1/tenants/written"
    assert (
        answer.json()["generation"]
        == int(answer.headers["X-Aclflow-Generation"])
        == admin.domains.read("pop").generation
    )


def test_prefixes_are_exclusive_and_nobody_is_told_whose_they_are(admin: Client, http: httpx.Client) -> None:
    admin.tenants.create("first", domain="pop", prefixes=[prefix("10.3.0.0/16"), prefix("2001:db8:3::/48")])
    admin.tenants.create("second", domain="pop")
    for taken in ("10.3.0.0/16", "10.3.4.0/24", "10.2.0.0/15", "2001:db8:3:1::/64"):
        answer = http.post("/v1/tenants/second/prefixes", json={"prefix": taken})
        assert answer.status_code == 409, taken
        assert "first" not in answer.text
    assert admin.tenants.read("second").prefixes == ()


def test_prefixes_are_added_set_and_removed(admin: Client, http: httpx.Client) -> None:
    admin.tenants.create("owner", domain="pop")
    first = admin.tenants.add_prefix("owner", prefix("10.4.0.0/24"))
    second = admin.tenants.add_prefix("owner", prefix("10.4.1.0/24"))
    assert second.generation > first.generation
    with pytest.raises(Stale):
        admin.tenants.set_prefixes("owner", [prefix("10.4.0.0/16")], etag=first.etag)
    admin.tenants.set_prefixes("owner", [prefix("10.4.0.0/16"), prefix("10.14.0.0/16")], etag=second.etag)
    assert http.get("/v1/tenants/owner/prefixes").json() == {"prefixes": ["10.4.0.0/16", "10.14.0.0/16"]}
    admin.tenants.remove_prefix("owner", prefix("10.14.0.0/16"))
    assert admin.tenants.read("owner").prefixes == ("10.4.0.0/16",)


def test_a_prefix_that_a_rule_names_cannot_go(admin: Client) -> None:
    admin.tenants.create("needs", domain="pop", prefixes=[prefix("10.5.0.0/16"), prefix("10.6.0.0/16")])
    rule = {"id": "r", "action": "permit", "destination": "10.5.1.0/24"}
    admin.acls.put("needs", acl_from_json({"rules": [rule]}))
    with pytest.raises(Conflict):
        admin.tenants.remove_prefix("needs", prefix("10.5.0.0/16"))
    admin.tenants.remove_prefix("needs", prefix("10.6.0.0/16"))


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"id": "bad", "domain": "pop", "prefixes": ["10.7.0.0/33"]}, "prefixes[0]"),
        ({"id": "bad", "domain": "pop", "prefixes": ["10.7.0.0/16", "10.8.0.1/16"]}, "prefixes[1]"),
        ({"id": "bad", "domain": "pop", "owner": "me"}, "owner"),
        ({"id": "../bad", "domain": "pop"}, "id"),
        ({"id": "bad"}, "domain"),
        ({"id": 7, "domain": "pop"}, "id"),
        ({"id": "bad", "domain": "pop", "prefixes": [4]}, "prefixes[0]"),
        ([], "body"),
    ],
)
def test_bad_bodies_name_the_place_and_change_nothing(http: httpx.Client, body: object, place: str) -> None:
    answer = http.post("/v1/tenants", json=body)
    assert answer.status_code == 400
    assert answer.headers["Content-Type"] == "application/problem+json"
    problem = answer.json()
    assert problem["place"] == place
    assert problem["type"] == "urn:aclflow:problem:bad-input"
    assert problem["status"] == 400
    assert http.get("/v1/tenants/bad").status_code == 404


@pytest.mark.parametrize("body", [b"", b"{", b'{"id": NaN}', b"[" * 5000, b'{"id": "\\ud800"}', b"\xff\xfe"])
def test_what_is_not_json_is_refused(http: httpx.Client, body: bytes) -> None:
    answer = http.post("/v1/tenants", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["place"] in ("body", "body[0]") or answer.json()["place"].startswith("body")


def test_an_unknown_field_that_no_json_can_carry_is_still_answered(http: httpx.Client) -> None:
    answer = http.post("/v1/tenants", content=b'{"\\udc00": 1}', headers={"Content-Type": "application/json"})
    assert answer.status_code == 400


def test_lists_come_in_pages(admin: Client, http: httpx.Client) -> None:
    names = [f"page-{number:02}" for number in range(7)]
    for name in names:
        admin.tenants.create(name, domain="pop")
    seen: list[str] = []
    marker: str | None = None
    while True:
        page = http.get("/v1/tenants", params={"limit": 3, **({"marker": marker} if marker else {})}).json()
        assert len(page["items"]) <= 3
        seen += [each["id"] for each in page["items"]]
        marker = page["next"]
        if marker is None:
            break
    assert seen == sorted(seen)
    assert set(names) < set(seen)
    assert [tenant.id for tenant in admin.tenants.read_all()] == seen


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "marker=../..", "limit=99999999999999999999"])
def test_a_bad_page_is_refused(http: httpx.Client, query: str) -> None:
    answer = http.get(f"/v1/tenants?{query}")
    assert answer.status_code == 400
    assert answer.json()["place"] == f"query.{query.split('=', maxsplit=1)[0]}"


def test_writes_of_what_exists_need_a_condition(http: httpx.Client, admin: Client) -> None:
    admin.tenants.create("careful", domain="pop")
    for method, path, body in (
        ("PATCH", "/v1/tenants/careful", {"name": "x"}),
        ("PUT", "/v1/tenants/careful/prefixes", {"prefixes": []}),
        ("DELETE", "/v1/tenants/careful", None),
        ("PATCH", "/v1/domains/pop", {"return_traffic": "explicit"}),
        ("DELETE", "/v1/domains/pop", None),
    ):
        answer = http.request(method, path, json=body)
        assert answer.status_code == 428, path
        assert answer.json()["place"] == "header.If-Match"
        weak = http.request(method, path, json=body, headers={"If-Match": 'W/"1"'})
        assert weak.status_code == 412, path
    assert admin.tenants.read("careful").name == ""


def test_what_the_caller_has_is_not_sent_again(http: httpx.Client, admin: Client) -> None:
    admin.tenants.create("known", domain="pop")
    tag = http.get("/v1/tenants/known/prefixes").headers["ETag"]
    again = http.get("/v1/tenants/known/prefixes", headers={"If-None-Match": tag})
    assert (again.status_code, again.content) == (304, b"")
    admin.tenants.rename("known", "other")
    assert http.get("/v1/tenants/known", headers={"If-None-Match": tag}).status_code == 200


def test_a_post_with_a_key_is_carried_out_once(http: httpx.Client, admin: Client) -> None:
    body = {"id": "once", "domain": "pop"}
    first = http.post("/v1/tenants", json=body, headers={"Idempotency-Key": "k-1"})
    generation = admin.domains.read("pop").generation
    again = http.post("/v1/tenants", json=body, headers={"Idempotency-Key": "k-1"})
    assert (again.status_code, again.json()) == (201, first.json())
    assert admin.domains.read("pop").generation == generation
    other = http.post("/v1/tenants", json={"id": "twice", "domain": "pop"}, headers={"Idempotency-Key": "k-1"})
    assert (other.status_code, other.json()["place"]) == (409, "Idempotency-Key")
    assert http.post("/v1/tenants", json=body).status_code == 409


def test_a_domain_with_tenants_stays(admin: Client) -> None:
    with pytest.raises(Conflict, match="still has tenants"):
        admin.domains.delete("pop")
    admin.domains.create("brief")
    admin.domains.delete("brief")
    with pytest.raises(NotFound):
        admin.domains.read("brief")
    with pytest.raises(BadInput):
        admin.domains.create("no spaces")


def test_many_tenants_are_made_in_one_change(admin: Client) -> None:
    admin.domains.create("many")
    before = admin.domains.read("many").generation
    made = admin.tenants.create_many(
        "many", [TenantToCreate(f"many-{n}", f"Number {n}", (f"10.90.{n}.0/24",)) for n in range(40)]
    )
    assert (made.domain, made.tenants, made.generation) == ("many", 40, before + 1)
    assert admin.tenants.read("many-7").prefixes == ("10.90.7.0/24",)
    assert [each.subject for each in admin.events.read(limit=1000).items if each.subject == "many-7"] == ["many-7"]


@pytest.mark.parametrize(
    ("spoilt", "place", "error"),
    [
        (TenantToCreate("few-0"), "tenants[2].id", Conflict),
        (TenantToCreate("few-9", prefixes=("10.91.0.0/25",)), "tenants[2].prefixes", Conflict),
        (TenantToCreate("few-9", prefixes=("10.91.0.0/33",)), "tenants[2].prefixes[0]", BadInput),
        (TenantToCreate("few 9"), "tenants[2].id", BadInput),
    ],
)
def test_of_many_tenants_one_that_is_wrong_is_named_and_none_is_made(
    admin: Client, spoilt: TenantToCreate, place: str, error: type[Exception]
) -> None:
    before = admin.domains.read("pop").generation
    with pytest.raises(error) as told:
        admin.tenants.create_many(
            "pop", [TenantToCreate("few-0", prefixes=("10.91.0.0/24",)), TenantToCreate("few-1"), spoilt]
        )
    assert place in str(told.value)
    assert admin.domains.read("pop").generation == before
    with pytest.raises(NotFound):
        admin.tenants.read("few-0")


def test_a_batch_has_a_length(admin: Client, http: httpx.Client) -> None:
    for tenants in ([], [{"id": f"long-{n}"} for n in range(1001)]):
        answer = http.post("/v1/tenants:batch", json={"domain": "pop", "tenants": tenants})
        assert answer.status_code in (400, 422)
        assert answer.json()["place"] == "tenants"
