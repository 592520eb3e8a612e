"""Dry runs in parts, what of them a change brings, and lists that are looked at before somebody asks."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import NoReturn

import httpx
import pytest
from patience import PATIENCE_S, until
from served import Served

from api import inspection
from api.questions import MOST_WAITING, Seconds
from api.routes import acl as routes
from orchestrator.bench.rulesets import synthetic
from orchestrator.client import Client
from orchestrator.errors import TooLarge, TooOften
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.model import Acl
from orchestrator.wire.tenants import Limits

TENANT = "reviewed"


@pytest.fixture(scope="module", autouse=True)
def _tenant(admin: Client) -> None:
    admin.domains.create("reviews")
    admin.tenants.create(TENANT, domain="reviews", prefixes=[Prefix.parse("0.0.0.0/0")])


def acl(*names: str) -> Acl:
    """Rules that all say the same."""
    same = {"action": "permit", "protocol": "tcp", "destination": "198.51.100.7/32", "destination_ports": 80}
    return acl_from_json({"rules": [{"id": name, **same} for name in names]})


def put(admin: Client, wanted: Acl) -> None:
    admin.acls.put(TENANT, wanted, etag=admin.acls.read(TENANT).etag)


def test_a_part_is_told_alone_and_all_together_say_the_same(admin: Client) -> None:
    put(admin, acl("one"))
    tried = acl("one", "two")
    whole = admin.acls.check(TENANT, tried)
    findings = admin.acls.check(TENANT, tried, ("findings",))
    assert (findings.findings, findings.counts, findings.brought) == (whole.findings, whole.counts, whole.brought)
    assert (findings.cost, findings.difference) == (None, None)
    difference = admin.acls.check(TENANT, tried, ("difference",))
    assert (difference.difference, difference.findings, difference.counts) == (whole.difference, (), {})
    quick = admin.acls.check(TENANT, tried, ("cost",)).cost
    assert quick.firewall is None
    assert replace(quick, firewall=whole.cost.firewall) == whole.cost
    assert admin.acls.read_standing(TENANT, ("findings",)).cost is None
    assert admin.acls.read_standing(TENANT, ("cost",)).counts == {}


def test_a_dry_run_says_which_findings_are_new(admin: Client) -> None:
    put(admin, acl("one", "two"))
    tried = admin.acls.check(TENANT, acl("one", "two", "three"))
    assert tried.counts == {"duplicate": 2}
    assert [(each.kind, each.rules[0]) for each in tried.brought] == [("duplicate", "three")]
    assert tried.brought_counts == {"duplicate": 1}
    assert admin.acls.check(TENANT, acl("one", "two")).brought == ()


def test_a_long_list_is_looked_at_before_somebody_asks(
    admin: Client, service: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = threading.Event()
    of: list[str] = []

    def look(_: object, tenant: str, parts: object) -> None:
        of.append(tenant)
        looked.set()

    monkeypatch.setattr(inspection, "standing", look)
    put(admin, acl("short"))
    put(admin, synthetic(inspection.LONG))
    assert looked.wait(PATIENCE_S)
    assert set(of) == {TENANT}


def test_a_quota_says_how_long_a_list_is_looked_at(admin: Client, service: Served) -> None:
    admin.tenants.create("curious", domain="reviews", prefixes=[])
    admin.tenants.create("other", domain="reviews", prefixes=[])
    with service.http() as http, ThreadPoolExecutor(8) as many:

        def ask(tenant: str) -> httpx.Response:
            return http.post(f"/v1/tenants/{tenant}/acl/check", json={"rules": []}, timeout=PATIENCE_S)

        assert ask("curious").status_code == 200
        used = admin.tenants.read_quota("curious").used.analysis_seconds
        assert used is not None
        assert used > 0
        assert admin.tenants.read_quota("other").used.analysis_seconds == 0
        admin.tenants.set_quota("curious", Limits(rules=None, flows=None, analysis_seconds=0))
        answers = [*many.map(ask, ["curious"] * 8)]
        assert {each.status_code for each in answers} == {429}
        assert all(0 < int(each.headers["Retry-After"]) <= 60 for each in answers)
        assert "0 seconds of a minute" in answers[0].json()["detail"]
        assert ask("other").status_code == 200
        admin.tenants.set_quota("curious", Limits(rules=None, flows=None, analysis_seconds=1_000))
        assert ask("curious").status_code == 200


def test_seconds_count_for_a_minute() -> None:
    now = 100.0
    seconds = Seconds(lambda: now)
    for at, spent in ((100.0, 4.0), (130.0, 3.0), (140.0, 2.0)):
        now = at
        seconds.add("red", spent)
    seconds.hold("red", 10)
    with pytest.raises(TooOften) as caught:
        seconds.hold("red", 9)
    assert caught.value.after_s == 20.0, "the four seconds of 100 are a minute old by then"
    with pytest.raises(TooOften) as caught:
        seconds.hold("red", 5)
    assert caught.value.after_s == 50.0
    with pytest.raises(TooOften) as caught:
        seconds.hold("red", 2)
    assert caught.value.after_s == 60.0
    seconds.hold("blue", 1)
    now = 160.0
    assert seconds.of("red") == 5.0
    now = 200.0
    assert seconds.of("red") == 0.0
    seconds.hold("red", 1)


def test_questions_about_lists_hold_up_nobody(admin: Client, service: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of a tenant at a time, a few wait, the rest are answered 429; other tenants and changes go on."""
    may_end = threading.Event()
    under_way: list[str] = []

    def looks(_services: object, tenant: str, *_: object, **__: object) -> NoReturn:
        under_way.append(tenant)
        assert may_end.wait(PATIENCE_S)
        raise TooLarge("it takes too long")

    admin.tenants.create("asking", domain="reviews", prefixes=[])
    monkeypatch.setattr(routes, "review", looks)
    put(admin, acl("one"))
    with service.http() as asking, service.http() as changing, ThreadPoolExecutor(30) as many:
        path = f"/v1/tenants/{TENANT}/acl"
        answers = [many.submit(asking.post, f"{path}/check", json={"rules": []}) for _ in range(24)]
        try:
            until(lambda: sum(each.done() for each in answers) == 24 - 1 - MOST_WAITING)
            answers.append(many.submit(asking.post, "/v1/tenants/asking/acl/check", json={"rules": []}))
            until(lambda: under_way == [TENANT, "asking"])
            changed = changing.put(path, json={"rules": []}, headers={"If-Match": "*"}, timeout=PATIENCE_S / 4)
            assert changed.status_code == 200
            assert under_way == [TENANT, "asking"]
        finally:
            may_end.set()
        codes = sorted(each.result().status_code for each in answers)
    assert codes == [413] * (2 + MOST_WAITING) + [429] * (23 - MOST_WAITING)
    assert under_way.count(TENANT) == 1 + MOST_WAITING, "a question that waits is asked in its turn"
