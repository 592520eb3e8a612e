"""Access lists and rules over HTTP."""

from __future__ import annotations

import itertools

import httpx
import pytest

from orchestrator.client import Client
from orchestrator.client.spread import Carrier, Link
from orchestrator.control.ceilings import Ceilings
from orchestrator.control.control import Control
from orchestrator.errors import BadInput, BadPolicy, Conflict, NotFound, Stale, TooLarge
from orchestrator.policy.addresses import Family, Prefix, parse_address
from orchestrator.policy.formats.native import acl_from_json, rule_from_json
from orchestrator.policy.model import Acl, Packet, ReturnTraffic, Rule
from orchestrator.policy.protocols import TCP

WEB = {"id": "web", "action": "permit", "protocol": "tcp", "destination": "10.1.0.0/24", "destination_ports": [80, 443]}
SSH = {"id": "ssh", "action": "deny", "protocol": "tcp", "destination_ports": 22}
DNS = {"id": "dns", "action": "permit", "protocol": "udp", "destination_ports": 53}

_numbers = itertools.count(1)


@pytest.fixture(scope="module", autouse=True)
def _domain(admin: Client) -> None:
    admin.domains.create("pop")


@pytest.fixture
def tenant(admin: Client) -> str:
    """A fresh tenant with a /16 of its own."""
    number = next(_numbers)
    admin.tenants.create(f"t{number}", domain="pop", prefixes=[Prefix.parse(f"10.{number}.0.0/16")])
    return f"t{number}"


def rules(*documents: dict[str, object]) -> Acl:
    return acl_from_json({"rules": list(documents)})


def web_of(tenant: str, **changes: object) -> dict[str, object]:
    return {**WEB, "destination": f"10.{tenant[1:]}.0.0/24", **changes}


def rule(document: dict[str, object]) -> Rule:
    return rule_from_json(document)


# ---------------------------------------------------------------------------------------------------- the whole list


def refused(_: Ceilings, wide: Rule) -> None:
    raise TooLarge(f"'{wide.id}' is too wide")


def test_what_needs_too_many_flow_entries_is_refused_without_a_turn(
    admin: Client, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[object] = []
    carried_out = Control.carry_out
    monkeypatch.setattr(
        Control, "carry_out", lambda self, work, **how: turns.append(work) or carried_out(self, work, **how)
    )
    odd = [2 * each + 1 for each in range(31)]
    wide = [web_of(tenant, id=f"w{each}", source_ports=odd, destination_ports=odd) for each in range(420)]
    with pytest.raises(TooLarge, match=r"rules\[0\].*may need 403636 flow entries, and the ceiling is 400000"):
        admin.acls.put(tenant, rules(*wide), etag=admin.acls.read(tenant).etag)
    with monkeypatch.context() as patch:
        patch.setattr(Ceilings, "check_rule", refused)
        with pytest.raises(TooLarge, match="'w0' is too wide"):
            admin.acls.insert_rule(tenant, rule(wide[0]))
    assert not turns
    admin.acls.put(tenant, rules(SSH), etag=admin.acls.read(tenant).etag)
    assert len(turns) == 1


def test_a_list_comes_back_as_it_was_sent(admin: Client, tenant: str) -> None:
    acl = rules(web_of(tenant), SSH, DNS)
    empty = admin.acls.read(tenant)
    assert empty.acl == Acl()
    written = admin.acls.put(tenant, acl, etag=empty.etag)
    assert written.changed
    assert written.generation == admin.domains.read("pop").generation
    seen = admin.acls.read(tenant)
    assert (seen.acl, seen.etag) == (acl, written.etag)


def test_writing_the_same_list_again_changes_nothing(admin: Client, tenant: str) -> None:
    acl = rules(web_of(tenant))
    first = admin.acls.put(tenant, acl)
    second = admin.acls.put(tenant, acl)
    assert not second.changed
    assert (second.generation, second.etag) == (first.generation, first.etag)


def test_of_two_writers_the_second_is_told(admin: Client, tenant: str) -> None:
    etag = admin.acls.read(tenant).etag
    admin.acls.put(tenant, rules(SSH), etag=etag)
    with pytest.raises(Stale) as caught:
        admin.acls.put(tenant, rules(DNS), etag=etag)
    assert caught.value.place == "header.If-Match"
    assert admin.acls.read(tenant).acl == rules(SSH)


def test_history_is_kept(admin: Client, tenant: str) -> None:
    lists = [rules(SSH), rules(SSH, DNS), rules(DNS)]
    versions = [admin.acls.put(tenant, acl).version for acl in lists]
    assert [line.version for line in admin.acls.read_versions(tenant)] == [*reversed(versions), 0]
    for version, acl in zip(versions, lists, strict=True):
        assert admin.acls.read(tenant, version=version).acl == acl
    with pytest.raises(NotFound):
        admin.acls.read(tenant, version=99)


BAD_LISTS = [
    ({"rules": [web_of("t0"), {**SSH, "destination": "10.0.0.0/33"}]}, BadInput, "rules[1].destination"),
    ({"rules": [{**SSH, "destination_ports": 70000}]}, BadInput, "rules[0].destination_ports"),
    ({"rules": [{**SSH, "protocol": "tcpp"}]}, BadInput, "rules[0].protocol"),
    ({"rules": [SSH, DNS, SSH]}, BadPolicy, "rules[2].id"),
    ({"rules": [{**SSH, "colour": "red"}]}, BadInput, "rules[0]"),
    ({"rules": [{**SSH, "destination": "203.0.113.0/24"}]}, BadPolicy, "rules[0].destination"),
    ({"rules": [{**SSH, "direction": "egress", "source": "203.0.113.9"}]}, BadPolicy, "rules[0].source"),
    ({"rules": [{**SSH, "source": "@nobody"}]}, BadPolicy, "rules[0].source"),
    ({"rules": [{**SSH, "source": "2001:db8::/32", "destination": "10.1.0.0/24"}]}, BadPolicy, "rules[0].destination"),
    ({"rules": [{**SSH, "id": "_mine"}]}, BadPolicy, "rules[0].id"),
    ({"groups": {"g": {"prefixes": ["x"]}}, "rules": []}, BadInput, "groups.g.prefixes[0]"),
    ({"rule": []}, BadInput, None),
    ({}, BadInput, "rules"),
    ([], BadInput, None),
    ("rules", BadInput, None),
]


@pytest.mark.parametrize(("document", "error", "place"), BAD_LISTS)
def test_a_bad_list_names_the_place_and_changes_nothing(
    http: httpx.Client, admin: Client, tenant: str, document: object, error: type[Exception], place: str | None
) -> None:
    before = admin.acls.put(tenant, rules(DNS))
    answer = http.put(f"/v1/tenants/{tenant}/acl", json=document, headers={"If-Match": "*"})
    assert answer.status_code == (422 if error is BadPolicy else 400)
    assert answer.json().get("place") == place
    assert admin.acls.read(tenant).etag == before.etag
    assert admin.domains.read("pop").generation == before.generation


@pytest.mark.parametrize("body", [b"", b"{", b'{"rules": [1e999]}', b"[" * 100_000, b"\xff"])
def test_a_body_that_is_no_json_is_refused(http: httpx.Client, tenant: str, body: bytes) -> None:
    answer = http.put(f"/v1/tenants/{tenant}/acl", content=body, headers={"If-Match": "*"})
    assert answer.status_code == 400


def test_a_list_of_more_levels_than_priorities_is_refused_before_it_is_written(admin: Client, tenant: str) -> None:
    """Every rule overlaps every other, so each needs a priority of its own."""
    before = admin.acls.put(tenant, rules(DNS))
    deep = [{"id": f"r{index}", "action": "permit"} for index in range(29_701)]
    with pytest.raises(TooLarge, match="priorities") as caught:
        admin.acls.put(tenant, acl_from_json({"rules": deep}))
    assert caught.value.place is not None
    assert caught.value.place.startswith("rules[29")
    assert admin.acls.read(tenant).etag == before.etag
    assert admin.domains.read("pop").generation == before.generation


# ---------------------------------------------------------------------------------------------------- single rules


def test_rules_go_where_they_are_put(admin: Client, tenant: str) -> None:
    admin.acls.put(tenant, rules(web_of(tenant)))
    admin.acls.insert_rule(tenant, rule(SSH), position=0)
    admin.acls.insert_rule(tenant, rule(DNS), before="web")
    admin.acls.insert_rule(tenant, rule({**DNS, "id": "ntp", "destination_ports": 123}), after="ssh")
    last = admin.acls.insert_rule(tenant, rule({**DNS, "id": "last", "destination_ports": 9}))
    assert [each.id for each in admin.acls.read_rules(tenant)] == ["ssh", "ntp", "dns", "web", "last"]
    assert admin.acls.read_rule(tenant, "last").etag == last.etag
    admin.acls.delete_rule(tenant, "dns")
    assert [each.id for each in admin.acls.read(tenant).acl.rules] == ["ssh", "ntp", "web", "last"]


def test_rules_move_and_keep_their_numbers(admin: Client, http: httpx.Client, tenant: str) -> None:
    admin.acls.put(tenant, rules(SSH, DNS, web_of(tenant)))
    first = admin.acls.move_rule(tenant, "web", position=0)
    assert first.changed
    admin.acls.move_rule(tenant, "ssh", after="dns")
    assert [each.id for each in admin.acls.read_rules(tenant)] == ["web", "dns", "ssh"]
    admin.acls.move_rule(tenant, "web")
    admin.acls.move_rule(tenant, "ssh", before="dns")
    assert [each.id for each in admin.acls.read_rules(tenant)] == ["ssh", "dns", "web"]
    assert not admin.acls.move_rule(tenant, "ssh", position=0).changed
    path = f"/v1/tenants/{tenant}/acl/rules"
    anyhow = {"If-Match": "*"}
    assert http.put(f"{path}/ssh/place?position=3", headers=anyhow).status_code == 400
    assert http.put(f"{path}/ssh/place?before=ssh", headers=anyhow).json()["place"] == "query.before"
    assert http.put(f"{path}/nobody/place?position=0", headers=anyhow).status_code == 404
    assert http.put(f"{path}/ssh/place?position=0&before=dns", headers=anyhow).status_code == 400
    with pytest.raises(Stale):
        admin.acls.move_rule(tenant, "dns", position=0, etag=first.etag)


def test_rules_are_listed_by_how_their_ids_begin(admin: Client, http: httpx.Client, tenant: str) -> None:
    admin.acls.put(tenant, rules(SSH, DNS, web_of(tenant)))
    path = f"/v1/tenants/{tenant}/acl/rules"
    assert [each["id"] for each in http.get(path, params={"begins": "d"}).json()["items"]] == ["dns"]
    assert http.get(path, params={"begins": "x"}).json()["items"] == []
    assert len(http.get(path, params={"begins": ""}).json()["items"]) == 3


def test_bad_places_are_refused(admin: Client, http: httpx.Client, tenant: str) -> None:
    admin.acls.put(tenant, rules(DNS))
    path = f"/v1/tenants/{tenant}/acl/rules"
    assert http.post(f"{path}?position=2", json=SSH).status_code == 400
    assert http.post(f"{path}?position=-1", json=SSH).json()["place"] == "query.position"
    answer = http.post(f"{path}?before=nobody", json=SSH)
    assert (answer.status_code, answer.json()["place"]) == (404, "query.before")
    assert http.post(f"{path}?before=dns&after=dns", json=SSH).json()["place"] == "query"
    with pytest.raises(Conflict):
        admin.acls.insert_rule(tenant, rule(DNS))
    assert admin.acls.read(tenant).acl == rules(DNS)


def test_a_rule_is_changed_on_its_own_condition(admin: Client, http: httpx.Client, tenant: str) -> None:
    admin.acls.put(tenant, rules(SSH, DNS))
    seen = admin.acls.read_rule(tenant, "ssh")
    admin.acls.put_rule(tenant, rule({**DNS, "destination_ports": 5353}))  # another rule: does not get in the way
    written = admin.acls.put_rule(tenant, rule({**SSH, "action": "permit"}), etag=seen.etag)
    assert admin.acls.read_rule(tenant, "ssh").etag == written.etag
    with pytest.raises(Stale):
        admin.acls.put_rule(tenant, rule(SSH), etag=seen.etag)
    with pytest.raises(Stale):
        admin.acls.delete_rule(tenant, "ssh", etag=seen.etag)
    path = f"/v1/tenants/{tenant}/acl/rules/ssh"
    assert http.put(path, json=SSH).status_code == 428
    assert http.delete(path).status_code == 428
    same = admin.acls.put_rule(tenant, rule({**SSH, "action": "permit"}))
    assert (same.changed, same.etag) == (False, written.etag)


def test_a_rule_keeps_its_id(http: httpx.Client, admin: Client, tenant: str) -> None:
    admin.acls.put(tenant, rules(SSH))
    path = f"/v1/tenants/{tenant}/acl/rules/ssh"
    anything = {"If-Match": "*"}
    other = http.put(path, json=DNS, headers=anything)
    assert (other.status_code, other.json()["place"]) == (400, "id")
    unnamed = {key: value for key, value in SSH.items() if key != "id"}
    assert http.put(path, json={**unnamed, "action": "permit"}, headers=anything).status_code == 200
    assert http.put(path.replace("ssh", "nobody"), json=unnamed, headers=anything).status_code == 404
    assert http.put(path, json=[], headers=anything).status_code == 400


@pytest.mark.parametrize(
    ("changes", "status", "place"),
    [
        ({"destination": "10.0.0.0/33"}, 400, "destination"),
        ({"destination_ports": [22, 70000]}, 400, "destination_ports[1]"),
        ({"protocol": "tcpp"}, 400, "protocol"),
        ({"destination": "203.0.113.1"}, 422, "destination"),
        ({"id": "_x"}, 422, "id"),
    ],
)
def test_a_bad_rule_names_the_place(
    http: httpx.Client, tenant: str, changes: dict[str, object], status: int, place: str
) -> None:
    answer = http.post(f"/v1/tenants/{tenant}/acl/rules", json={**SSH, **changes})
    assert (answer.status_code, answer.json()["place"]) == (status, place)


def test_rules_come_in_pages(admin: Client, http: httpx.Client, tenant: str) -> None:
    admin.acls.put(tenant, rules(*({**DNS, "id": f"r{index}", "destination_ports": 1 + index} for index in range(5))))
    path = f"/v1/tenants/{tenant}/acl/rules"
    page = http.get(path, params={"limit": 2, "marker": "r1"}).json()
    assert ([each["id"] for each in page["items"]], page["next"]) == (["r2", "r3"], "r3")
    assert http.get(path, params={"limit": 2, "marker": "r3"}).json()["next"] is None
    gone = http.get(path, params={"marker": "r9"})
    assert (gone.status_code, gone.json()["place"]) == (400, "query.marker")


def test_an_inserted_rule_with_a_key_is_inserted_once(admin: Client, tenant: str) -> None:
    first = admin.acls.insert_rule(tenant, rule(SSH), key="again")
    assert admin.acls.insert_rule(tenant, rule(SSH), key="again") == first
    with pytest.raises(Conflict):
        admin.acls.insert_rule(tenant, rule(DNS), key="again")


# ---------------------------------------------------------------------------------------------------- looking


def packet(destination: str, port: int, source: str = "192.0.2.9") -> Packet:
    addresses = [parse_address(text)[1] for text in (source, destination)]
    return Packet(Family.IPV4, *addresses, TCP, 40000, port, tcp_flags=2)


def test_what_is_odd_about_a_list_is_looked_for_once_a_version(admin: Client, tenant: str) -> None:
    first = rules({**SSH, "id": "first"}, {**SSH, "id": "second"})
    version = admin.acls.put(tenant, first).version
    found, again = admin.acls.read_standing(tenant), admin.acls.read_standing(tenant)
    assert found == again
    dry = admin.acls.check(tenant, first)
    assert (found.version, found.counts, found.cost) == (version, dry.counts, dry.cost)
    assert sorted(map(str, found.findings)) == sorted(map(str, dry.findings))
    assert found.findings
    admin.acls.delete_rule(tenant, "second")
    assert admin.acls.read_standing(tenant).findings == ()


def test_a_trace_names_the_lists_and_the_rule(admin: Client, tenant: str) -> None:
    admin.acls.put(tenant, rules(web_of(tenant), SSH))
    own = f"10.{tenant[1:]}.0.7"
    trace = admin.acls.trace(tenant, packet(own, 80))
    assert (trace.action, [step.rule for step in trace.steps]) == ("permit", ["web"])
    assert trace.rule is not None
    assert trace.rule["id"] == "web"
    denied = admin.acls.trace(tenant, packet(own, 22))
    assert (denied.action, denied.steps[0].rule) == ("deny", "ssh")
    default = admin.acls.trace(tenant, packet(own, 23))
    assert (default.action, default.steps[0].rule, default.rule) == ("deny", None, None)


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"source": "300.1.1.1"}, "source"),
        ({"destination": "2001:db8::1"}, "destination"),
        ({"protocol": "tcpp"}, "protocol"),
        ({"destination_port": 70000}, "destination_port"),
        ({"colour": 1}, "colour"),
    ],
)
def test_a_bad_packet_names_the_place(http: httpx.Client, tenant: str, changes: dict[str, object], place: str) -> None:
    body = {"source": "192.0.2.1", "destination": "10.1.0.1", "protocol": "tcp", **changes}
    answer = http.post(f"/v1/tenants/{tenant}/acl/trace", json=body)
    assert answer.status_code == 400
    assert answer.json()["place"] == place


def test_a_dry_run_finds_costs_compares_and_changes_nothing(admin: Client, tenant: str) -> None:
    before = admin.acls.put(tenant, rules(web_of(tenant)))
    candidate = rules(web_of(tenant, destination_ports=80), web_of(tenant, id="again", destination_ports=80))
    review = admin.acls.check(tenant, candidate)
    assert ("duplicate", ("again", "web")) in [(each.kind, each.rules) for each in review.findings]
    assert review.cost.ingress.rules == 2
    assert review.cost.ingress.levels == 3  # two that overlap, and return traffic
    assert [(each["becomes"], each["before"], each["after"]) for each in review.difference] == [
        ("deny", ["web"], ["_default"])
    ]
    assert review.difference[0]["witness"]["destination_port"] == 443
    assert admin.acls.read(tenant).etag == before.etag
    with pytest.raises(BadPolicy, match="own prefixes"):
        admin.acls.check(tenant, rules({**SSH, "destination": "203.0.113.1"}))


def test_hits_start_at_zero_in_the_order_of_the_list(admin: Client, tenant: str) -> None:
    admin.acls.put(tenant, rules(SSH, web_of(tenant), DNS))
    hits = admin.hits.read(tenant).rules
    assert [each.rule for each in hits] == ["ssh", "web", "dns"]
    assert {(each.packets, each.bytes, each.last_hit) for each in hits} == {(0, 0, None)}


def test_a_key_that_stands_twice_is_refused_wherever_json_is_taken(
    admin: Client, tenant: str, http: httpx.Client
) -> None:
    """Readers would take one of the two as they like: a proxy that looks at bodies another one than the service."""
    before = admin.acls.read(tenant).acl
    deep = '{"a":' * 900 + '{"b":1,"b":2}' + "}" * 900
    rule = '"id": "web", "action": "deny", "action": "permit"'
    for method, path, body in (
        ("PUT", f"/v1/tenants/{tenant}/acl", f'{{"rules": [{{{rule}}}]}}'),
        ("PUT", f"/v1/tenants/{tenant}/acl", '{"rules": [], "rules": []}'),
        ("POST", f"/v1/tenants/{tenant}/acl/check", f'{{"rules": [{{{rule}}}]}}'),
        ("POST", f"/v1/tenants/{tenant}/acl/rules", f"{{{rule}}}"),
        ("PUT", f"/v1/tenants/{tenant}/acl/rules/web", f"{{{rule}}}"),
        ("PUT", f"/v1/tenants/{tenant}/acl/groups/g", '{"prefixes": ["10.0.0.1"], "prefixes": []}'),
        ("POST", f"/v1/tenants/{tenant}/acl/groups/g/members", '{"add": [], "remove": [], "add": []}'),
        ("POST", "/v1/domains", '{"id": "other", "id": "another"}'),
        ("POST", "/v1/tokens", '{"role": "reader", "role": "admin"}'),
        ("PUT", f"/v1/tenants/{tenant}/acl", deep),
    ):
        answer = http.request(method, path, content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == 400, (path, answer.text)
        assert "stands twice" in answer.text or "nested" in answer.text, (path, answer.text)
    assert admin.acls.read(tenant).acl == before


@pytest.mark.parametrize("rate", [0, 10_001, "7"])
def test_a_rate_of_messages_about_path_mtu_that_no_switch_keeps_is_refused(
    admin: Client, http: httpx.Client, rate: object
) -> None:
    admin.domains.create(f"rate-{rate}", path_mtu_rate=7)
    for body, place in (({"path_mtu_rate": rate}, "path_mtu_rate"), ({}, "body")):
        answer = http.patch(f"/v1/domains/rate-{rate}", json=body, headers={"If-Match": "*"})
        assert (answer.status_code, answer.json()["place"]) == (400, place), answer.text
    assert admin.domains.read(f"rate-{rate}").path_mtu_rate == 7


def test_a_stateless_rule_is_taken_where_hosts_track_and_refused_by_name_where_iptables_does(admin: Client) -> None:
    admin.domains.create("alone")
    admin.tenants.create("alone-shop", domain="alone", prefixes=[Prefix.parse("10.250.0.0/16")])
    marked = {**DNS, "stateless": True}
    admin.acls.put("alone-shop", rules(SSH, marked))
    assert [rule.stateless for rule in admin.acls.read("alone-shop").acl.rules] == [False, True]
    admin.domains.set_return_traffic("alone", ReturnTraffic.TRACKED)
    admin.firewalls.add("alone", "alone-nft", "nftables")
    admin.firewalls.add("alone", "alone-fw", "iptables")
    carriers = [Carrier("alone-fw", 1, Link("l1", "02:00:00:00:00:01"), Link("r1", "02:00:00:00:00:02"))]
    with pytest.raises(BadPolicy, match="rule 'dns' is `stateless`"):
        admin.spread.configure("alone", carriers, stateful=True)
    admin.acls.put_rule("alone-shop", rule_from_json(DNS))
    admin.spread.configure("alone", carriers, stateful=True)
    with pytest.raises(BadPolicy, match="rule 'dns' is `stateless`"):
        admin.acls.put_rule("alone-shop", rule_from_json(marked))
    assert not any(rule.stateless for rule in admin.acls.read("alone-shop").acl.rules)
    admin.firewalls.remove("alone", "alone-fw")
    admin.acls.put_rule("alone-shop", rule_from_json(marked))
    with pytest.raises(BadPolicy, match="rule 'dns' looks at fragments"):
        admin.acls.put_rule(
            "alone-shop", rule_from_json({"id": "dns", "action": "deny", "fragments": True, "stateless": True})
        )
    with pytest.raises(BadPolicy, match="rule 'dns' is `stateless`"):
        admin.firewalls.add("alone", "alone-fw", "iptables")


def test_a_fleet_that_spreads_stateful_takes_no_rule_that_its_vnfs_cannot_carry(admin: Client) -> None:
    """Neither by its settings, nor by a rule that comes before its traffic is spread."""
    admin.domains.create("tide")
    admin.tenants.create("tide-shop", domain="tide", prefixes=[Prefix.parse("10.251.0.0/16")])
    admin.domains.set_return_traffic("tide", ReturnTraffic.TRACKED)
    admin.firewalls.add("tide", "tide-fw", "iptables")
    marked = {**DNS, "stateless": True}
    admin.acls.put("tide-shop", rules(SSH, marked))
    with pytest.raises(BadPolicy, match="rule 'dns' is `stateless`"):
        admin.fleet.configure("tide", {"stateful": True, "plane": "iptables"})
    admin.acls.put_rule("tide-shop", rule_from_json(DNS))
    admin.fleet.configure("tide", {"stateful": True, "plane": "iptables"})
    with pytest.raises(BadPolicy, match="rule 'dns' is `stateless`"):
        admin.acls.put_rule("tide-shop", rule_from_json(marked))
    assert not any(rule.stateless for rule in admin.acls.read("tide-shop").acl.rules)
    admin.fleet.configure("tide", {"stateful": False})
    admin.acls.put_rule("tide-shop", rule_from_json(marked))


@pytest.mark.parametrize(
    ("method", "path", "named"),
    [
        ("GET", "/v1/tenants/shop/acl?version=1", "version"),
        ("GET", "/v1/tenants/shop/acl/rules?find=web&sort=id", "sort"),
        ("PUT", "/v1/tenants/shop/acl/rules/web?positon=3", "positon"),
        ("GET", "/v1/tenants?limt=1", "limt"),
        ("GET", "/v1/events?Limit=1", "Limit"),
    ],
)
def test_a_query_parameter_that_a_route_does_not_have_is_refused(
    http: httpx.Client, method: str, path: str, named: str
) -> None:
    """Left aside in silence, the answer would be to another question."""
    answer = http.request(method, path, json=SSH if method == "PUT" else None)
    assert (answer.status_code, answer.json()["place"]) == (400, f"query.{named}"), answer.text
    assert answer.json()["detail"].startswith("no such query parameter: there ")


def test_pages_of_monitors_take_any_query(http: httpx.Client) -> None:
    assert http.get("/healthz?probe=1").status_code == 200
    assert http.get("/metrics?collect=all").status_code == 200
