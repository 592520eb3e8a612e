"""Lifted rules over HTTP and on the command line: what is said of them, what may be asked, who may ask."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from command_line import Ended, aclflow
from served import Served

from orchestrator.client import Client
from orchestrator.errors import BadInput, NotFound, Stale
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.model import Endpoint, TenantId
from orchestrator.store.records import Role

WEB = "198.51.100.2/32"
RULES = [
    {"id": "lab", "action": "deny", "protocol": "tcp", "source": "10.9.0.0/16", "destination": WEB},
    {"id": "web", "action": "permit", "protocol": "tcp", "destination": WEB, "destination_ports": 80},
    {"id": "never", "action": "permit", "protocol": "tcp", "source": "10.9.1.0/24", "destination": WEB},
]
PLACEMENT = "/v1/domains/lifts/placement"


@pytest.fixture(scope="module", autouse=True)
def _shop(admin: Client) -> None:
    admin.domains.create("lifts")
    admin.tenants.create("shop", domain="lifts", prefixes=[Prefix.parse("198.51.100.0/24")])
    admin.domains.put_endpoint(
        "lifts", Endpoint("web0", TenantId("shop"), "web0", 0x020000000001, (Prefix.parse(WEB),))
    )
    admin.acls.put("shop", acl_from_json({"rules": RULES}))


@pytest.fixture(autouse=True)
def _released(admin: Client) -> Iterator[None]:
    yield
    for each in admin.placement.read("lifts").rules:
        if each.wish:
            admin.placement.leave_to_chooser("lifts", each.tenant, each.rule)


def test_a_domain_chooses_by_savings_unless_it_is_told_otherwise(admin: Client) -> None:
    seen = admin.placement.read("lifts")
    assert dict(seen.settings) == {
        "algorithm": "savings", "interval_s": 300.0, "upper": 2000, "lower": 500, "most_lifted": 16,
        "hysteresis": 0.25, "as_printed": False,
    }  # fmt: skip
    assert seen.rules == ()


def test_settings_are_written_under_their_etag(admin: Client) -> None:
    seen = admin.placement.read("lifts")
    admin.placement.configure("lifts", {**seen.settings, "interval_s": 60.0, "algorithm": "paper"}, etag=seen.etag)
    with pytest.raises(Stale):
        admin.placement.configure("lifts", {**seen.settings}, etag=seen.etag)
    again = admin.placement.read("lifts")
    assert (again.settings["interval_s"], again.settings["algorithm"]) == (60.0, "paper")
    admin.placement.configure("lifts", seen.settings)


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ({"interval_s": 0}, "interval_s"),
        ({"interval_s": 7.4}, "interval_s"),
        ({"upper": 10, "lower": 10}, "upper"),
        ({"lower": -1}, "lower"),
        ({"most_lifted": -1}, "most_lifted"),
        ({"hysteresis": -1}, "hysteresis"),
        ({"algorithm": "best"}, "algorithm"),
        ({"budget": 3}, "budget"),
    ],
)
def test_settings_that_cannot_be_are_refused_with_their_place(
    admin: Client, http: httpx.Client, wrong: dict[str, object], place: str
) -> None:
    for method, path in (("PUT", PLACEMENT), ("POST", f"{PLACEMENT}/try")):
        answer = http.request(method, path, json=wrong, headers={"If-Match": "*"})
        assert answer.status_code in (400, 422), answer.text
        assert place in answer.json()["place"]
    assert admin.placement.read("lifts").settings["upper"] == 2000


def test_a_rule_is_pinned_and_released(admin: Client) -> None:
    placed = admin.placement.set_wish("lifts", "shop", "web", "pinned")
    assert (placed.form, placed.replies) == ("together", True)
    (seen,) = admin.placement.read("lifts").rules
    assert (seen.rule, seen.wish, seen.because) == ("web", "pinned", "pinned by the operator")
    assert seen.lifted is not None
    assert seen.parts >= 2
    assert [(each.rule, each.lifted) for each in admin.hits.read_domain("lifts", contains="we").items] == [
        ("web", True)
    ]
    kinds = {event.kind for event in admin.events.read(limit=1000).items}
    assert kinds >= {"placement.wished", "placement.lifted"}
    admin.placement.leave_to_chooser("lifts", "shop", "web")
    assert admin.placement.read("lifts").rules == ()


def test_a_pinned_rule_without_a_form_says_why(admin: Client) -> None:
    admin.placement.set_wish("lifts", "shop", "never", "pinned")
    (seen,) = admin.placement.read("lifts").rules
    assert (seen.lifted, seen.form) == (None, None)
    assert seen.because == "the rules before it decide all its packets"


def test_a_dry_run_changes_nothing(admin: Client) -> None:
    before = admin.domains.read("lifts").generation
    assert admin.placement.try_settings("lifts") == ()
    assert admin.placement.try_settings("lifts", {"algorithm": "paper", "upper": 10, "lower": 1}) == ()
    assert admin.domains.read("lifts").generation == before


def test_what_is_not_there(admin: Client) -> None:
    with pytest.raises(NotFound):
        admin.placement.read("nowhere")
    with pytest.raises(NotFound, match="no rule 'nothing'"):
        admin.placement.set_wish("lifts", "shop", "nothing", "pinned")
    with pytest.raises(NotFound, match="no tenant 'nobody'"):
        admin.placement.set_wish("lifts", "nobody", "web", "pinned")
    with pytest.raises(NotFound, match="nothing was wished"):
        admin.placement.leave_to_chooser("lifts", "shop", "web")
    with pytest.raises(BadInput):
        admin.placement.set_wish("lifts", "shop", "web", "loved")


def test_placement_is_the_operators(service: Served) -> None:
    with service.client(service.make_token(Role.MEMBER, "shop")) as member, pytest.raises(NotFound):
        member.placement.read("lifts")


def test_the_command_line(service: Served) -> None:
    def run(*arguments: str) -> Ended:
        environment = {"ACLFLOW_URL": service.url, "ACLFLOW_TOKEN": service.token}
        return aclflow("domain", "placement", *arguments, environment=environment)

    assert "is pinned, lifted" in run("pin", "lifts", "shop", "web").out
    assert run("show", "lifts", "--json").json()["rules"][0]["rule"] == "web"
    assert "pinned by the operator" in run("show", "lifts").out
    assert "there is no form" in run("pin", "lifts", "shop", "never").out
    assert "stays in its list" in run("forbid", "lifts", "shop", "web").out
    assert "left to the chooser" in run("release", "lifts", "shop", "web").out
    assert run("set", "lifts", "--interval", "60", "--most", "4").code == 0
    shown = run("show", "lifts", "--json").json()["settings"]
    assert (shown["interval_s"], shown["most_lifted"], shown["upper"]) == (60.0, 4, 2000)
    assert run("set", "lifts", "--as-printed").code == 0
    assert run("show", "lifts", "--json").json()["settings"]["as_printed"] is True
    assert run("set", "lifts", "--repaired").code == 0
    assert run("show", "lifts", "--json").json()["settings"]["as_printed"] is False
    assert run("try", "lifts", "--json").json() == []
    assert "a round would lift none" in run("try", "lifts").out
    short = run("set", "lifts", "--interval", "5")
    assert short.code == 2
    assert "5 s is less than 7.5 s: counts come every 5 s" in short.err
    wrong = run("set", "lifts", "--interval", "0")
    assert wrong.code != 0
    assert "interval_s" in wrong.err
