"""Dry runs in parts, what of them a change brings, and lists that are looked at before somebody asks."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import NoReturn

import pytest
from patience import PATIENCE_S, until
from served import Served

from api import lookout
from api.questions import MOST_WAITING
from api.routes import acl as routes
from orchestrator.bench.rulesets import synthetic
from orchestrator.client import Client
from orchestrator.errors import TooLarge
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.model import Acl

TENANT = "reviewed"


@pytest.fixture(scope="module", autouse=True)
def _tenant(admin: Client) -> None:
    admin.create_domain("reviews")
    admin.create_tenant(TENANT, domain="reviews", prefixes=[Prefix.parse("0.0.0.0/0")])


def acl(*names: str) -> Acl:
    """Rules that all say the same."""
    same = {"action": "permit", "protocol": "tcp", "destination": "198.51.100.7/32", "destination_ports": 80}
    return acl_from_json({"rules": [{"id": name, **same} for name in names]})


def put(admin: Client, wanted: Acl) -> None:
    admin.put_acl(TENANT, wanted, etag=admin.acl(TENANT).etag)


def test_a_part_is_told_alone_and_all_together_say_the_same(admin: Client) -> None:
    put(admin, acl("one"))
    tried = acl("one", "two")
    whole = admin.check_acl(TENANT, tried)
    findings = admin.check_acl(TENANT, tried, ("findings",))
    assert (findings.findings, findings.counts, findings.brought) == (whole.findings, whole.counts, whole.brought)
    assert (findings.cost, findings.difference) == (None, None)
    difference = admin.check_acl(TENANT, tried, ("difference",))
    assert (difference.difference, difference.findings, difference.counts) == (whole.difference, (), {})
    quick = admin.check_acl(TENANT, tried, ("cost",)).cost
    assert quick.firewall is None
    assert replace(quick, firewall=whole.cost.firewall) == whole.cost
    assert admin.standing(TENANT, ("findings",)).cost is None
    assert admin.standing(TENANT, ("cost",)).counts == {}


def test_a_dry_run_says_which_findings_are_new(admin: Client) -> None:
    put(admin, acl("one", "two"))
    tried = admin.check_acl(TENANT, acl("one", "two", "three"))
    assert tried.counts == {"duplicate": 2}
    assert [(each.kind, each.rules[0]) for each in tried.brought] == [("duplicate", "three")]
    assert tried.brought_counts == {"duplicate": 1}
    assert admin.check_acl(TENANT, acl("one", "two")).brought == ()


def test_a_long_list_is_looked_at_before_somebody_asks(
    admin: Client, service: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = threading.Event()
    of: list[str] = []

    def look(_: object, tenant: str, parts: object) -> None:
        of.append(tenant)
        looked.set()

    monkeypatch.setattr(lookout, "standing", look)
    put(admin, acl("short"))
    put(admin, synthetic(lookout.LONG))
    assert looked.wait(PATIENCE_S)
    assert set(of) == {TENANT}


def test_questions_about_lists_hold_up_nobody(admin: Client, service: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of a tenant at a time, a few wait, the rest are answered 429; other tenants and changes go on."""
    may_end = threading.Event()
    under_way: list[str] = []

    def looks(_services: object, tenant: str, *_: object, **__: object) -> NoReturn:
        under_way.append(tenant)
        assert may_end.wait(PATIENCE_S)
        raise TooLarge("it takes too long")

    admin.create_tenant("asking", domain="reviews", prefixes=[])
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
