"""Writes that are answered when they are enforced, and where their time went."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import httpx
import pytest
from patience import PATIENCE_S
from served import Served

from orchestrator.client import Client, Held, Host, PointReport
from orchestrator.errors import Busy, NotFound, Unreachable
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.model import Acl, Action, Rule, RuleId
from orchestrator.program.delta import Delta, apply
from orchestrator.program.program import Program

RULE = Rule(RuleId("r1"), Action.PERMIT)


class Enforcer:
    """An enforcement point of one host: follows the program and reports each as read back, once it may."""

    def __init__(self, service: Served, admin: Client, domain: str) -> None:
        self.domain = domain
        self.may_report = threading.Event()
        self.may_report.set()
        self.received: list[Program] = []
        self.stopping = False
        enrolment = admin.enrolment.enrol(admin.enrolment.invite(domain), name="one", kind="openflow")
        self.id = enrolment.enforcer
        self.client = Client(service.url, enrolment.token)
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        while not self.stopping:
            held = Held(self.received[-1].digest, self.received[-1].generation) if self.received else None
            with suppress(Busy):  # the program is being compiled
                for answer in self.client.points.follow_program(self.domain, held, lasts_s=2.0):
                    if self.stopping:
                        return
                    if answer is not None:
                        self.take(answer)

    def take(self, answer: Program | Delta) -> None:
        program = answer if isinstance(answer, Program) else apply(self.received[-1], answer)
        self.received.append(program)
        assert self.may_report.wait(PATIENCE_S)
        point = PointReport("h1", program.generation, program.digest, "enforced", took={"copy": 0.5, "wire": 0.25})
        self.client.points.report(self.domain, self.id, points=[point])

    def stop(self) -> None:
        self.stopping = True
        self.may_report.set()
        self.thread.join(PATIENCE_S)
        self.client.close()


@pytest.fixture
def enforcer(service: Served, admin: Client) -> Iterator[Enforcer]:
    admin.domains.create("slow")
    admin.domains.add_host("slow", Host("h1", 1, "up"))
    admin.tenants.create("patient", domain="slow", prefixes=[Prefix.parse("10.77.0.0/16")])
    running = Enforcer(service, admin, "slow")
    yield running
    running.stop()
    admin.tenants.delete("patient")
    admin.domains.remove_host("slow", "h1")
    admin.domains.delete("slow")


def test_a_write_that_waits_is_answered_when_it_is_enforced(admin: Client, enforcer: Enforcer) -> None:
    enforcer.may_report.clear()
    answers: list[bool | None] = []
    waiting = threading.Thread(
        target=lambda: answers.append(admin.waiting(10).acls.insert_rule("patient", RULE).enforced)
    )
    waiting.start()
    waiting.join(0.3)
    assert waiting.is_alive()
    assert answers == []
    enforcer.may_report.set()
    waiting.join(PATIENCE_S)
    assert answers == [True]


def test_every_kind_of_change_of_a_list_can_wait(admin: Client, enforcer: Enforcer) -> None:
    patient = admin.waiting(10)
    changes = [
        patient.acls.put("patient", Acl((RULE,))),
        patient.acls.put_rule("patient", replace(RULE, action=Action.DENY)),
        patient.acls.put_rule("patient", replace(RULE, action=Action.DENY)),
        patient.acls.delete_rule("patient", "r1"),
    ]
    assert [change.enforced for change in changes] == [True] * 4
    assert [change.changed for change in changes] == [True, True, False, True]
    assert admin.domains.read_generation("slow", changes[-1].generation).done


def test_when_the_time_is_over_the_answer_says_so(admin: Client, enforcer: Enforcer) -> None:
    enforcer.may_report.clear()
    written = admin.waiting(1).acls.insert_rule("patient", RULE)
    assert written.enforced is False
    assert not admin.domains.read_generation("slow", written.generation).done


@pytest.mark.parametrize("error", [Unreachable("the database does not answer"), NotFound("the domain is gone")])
def test_a_write_whose_wait_fails_is_answered_as_what_it_is_done(
    service: Served, http: httpx.Client, enforcer: Enforcer, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """It is committed: who is told that it failed would do it again."""

    async def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(service.service.parts.enforcement, "wait", fails)
    rule = {"id": "r9", "action": "permit"}
    answer = http.post("/v1/tenants/patient/acl/rules", json=rule, headers={"Prefer": "wait=7"})
    assert answer.status_code == 201
    assert answer.headers["X-Aclflow-Enforced"] == "false"
    assert http.delete("/v1/tenants/patient/acl/rules/r9", headers={"If-Match": "*"}).status_code == 200


def test_the_answer_names_what_was_preferred_and_the_stages(
    http: httpx.Client, admin: Client, enforcer: Enforcer
) -> None:
    """Stages are known of a report that comes while it is waited for: the domain has had its first before."""
    assert admin.waiting(10).acls.insert_rule("patient", RULE).enforced
    rule = {"id": "r2", "action": "permit"}
    answer = http.post("/v1/tenants/patient/acl/rules", json=rule, headers={"Prefer": 'respond-async, wait="7"'})
    assert answer.status_code == 201
    assert answer.headers["Preference-Applied"] == "wait=7"
    assert answer.headers["X-Aclflow-Enforced"] == "true"
    stages = dict(entry.strip().split(";dur=") for entry in answer.headers["Server-Timing"].split(","))
    assert {"auth", "database", "compile", "commit", "publish", "enforce"} <= stages.keys()
    assert (float(stages["enforce.copy"]), float(stages["enforce.wire"])) == (500, 250)


@pytest.mark.parametrize("words", ["", "wait", "wait=soon", "wait=-1", "swait=3"])
def test_what_is_no_preference_is_passed_over(http: httpx.Client, enforcer: Enforcer, words: str) -> None:
    rule = {"id": "r3", "action": "permit"}
    answer = http.post("/v1/tenants/patient/acl/rules", json=rule, headers={"Prefer": words})
    assert answer.status_code == 201
    assert not {"Preference-Applied", "X-Aclflow-Enforced"} & {name.title() for name in answer.headers}


def test_a_refused_write_does_not_wait(http: httpx.Client, enforcer: Enforcer) -> None:
    enforcer.may_report.clear()
    answer = http.post("/v1/tenants/patient/acl/rules", json={"id": "_"}, headers={"Prefer": "wait=30"})
    assert answer.status_code == 400


def test_openapi_says_which_writes_heed_the_preference(http: httpx.Client) -> None:
    paths = http.get("/v1/openapi.json").json()["paths"]

    def heeds(path: str, method: str) -> bool:
        return "Prefer" in [parameter["name"] for parameter in paths[path][method].get("parameters", [])]

    assert heeds("/v1/tenants/{tenant}/acl", "put")
    assert heeds("/v1/tenants/{tenant}/acl/rules", "post")
    assert not heeds("/v1/tenants/{tenant}/acl", "get")
    assert not heeds("/v1/tokens", "post")


def test_a_followed_program_comes_as_a_whole_and_then_as_what_changed(admin: Client, enforcer: Enforcer) -> None:
    first = admin.waiting(10).acls.insert_rule("patient", RULE)
    second = admin.waiting(10).acls.delete_rule("patient", "r1")
    generations = [program.generation for program in enforcer.received]
    assert generations == sorted(set(generations))
    assert generations[-2:] == [first.generation, second.generation]
    whole = admin.points.watch_program("slow")
    assert isinstance(whole, Program)
    assert whole.blocks.digest(whole.ports) == enforcer.received[-1].blocks.digest(enforcer.received[-1].ports)


def test_a_stream_says_at_once_that_there_is_nothing_newer(admin: Client, enforcer: Enforcer) -> None:
    whole = admin.points.watch_program("slow")
    assert isinstance(whole, Program)
    assert next(admin.points.follow_program("slow", Held(whole.digest, whole.generation), lasts_s=0.1)) is None
