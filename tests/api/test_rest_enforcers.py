"""Enforcement points over HTTP: enrolment, watching, reports, waiting for a generation."""

from __future__ import annotations

import datetime as dt
import itertools
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest
from patience import PATIENCE_S
from served import Served, served

from orchestrator.client import Client, Held, Host, PointReport
from orchestrator.client.points import PointCalls
from orchestrator.enforce.identity import TokenRenewal
from orchestrator.enforce.state import Credentials, StateDir
from orchestrator.enforce.switchservice import EdgeService, HostService
from orchestrator.errors import Busy, Conflict, Forbidden, NotFound, Unauthenticated
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.model import Endpoint, ReturnTraffic, TenantId
from orchestrator.program.delta import Delta, apply
from orchestrator.program.program import Program, Tier
from orchestrator.program.wire import DELTA_MEDIA_TYPE, decode_delta
from orchestrator.wire.points import Leading

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Site:
    """A domain with two hosts, a tenant, and an enforcer's client."""

    domain: str
    tenant: str
    enforcer: Client
    id: int

    def report(self, generation: int, *hosts: str, state: str = "enforced", **more: object) -> None:
        points = [PointReport(host, generation, bytes(16), state) for host in hosts]
        self.enforcer.points.report(self.domain, self.id, points=points, **more)  # type: ignore[arg-type]


@pytest.fixture
def site(service: Served, admin: Client) -> Iterator[Site]:
    number = next(_numbers)
    domain, tenant = f"pop{number}", f"t{number}"
    admin.domains.create(domain)
    admin.tenants.create(tenant, domain=domain, prefixes=[Prefix.parse(f"10.{number}.0.0/16")])
    for index in (1, 2):
        admin.domains.add_host(domain, Host(f"host{index}", number << 8 | index, "up0"))
    with service.client("") as anybody:
        enrolment = anybody.enrolment.enrol(admin.enrolment.invite(domain), name="controller-1", kind="openflow")
    assert (enrolment.domain, enrolment.epoch > 0) == (domain, True)
    with service.client(enrolment.token) as enforcer:
        yield Site(domain, tenant, enforcer, enrolment.enforcer)


def ports(*numbers: int) -> list[dict[str, object]]:
    return [{"id": f"p{each}", "action": "permit", "protocol": "tcp", "destination_ports": each} for each in numbers]


def put_ports(admin: Client, site: Site, *numbers: int) -> int:
    return admin.acls.put(site.tenant, acl_from_json({"rules": ports(*numbers)})).generation


def held_of(program: Program) -> Held:
    return Held(program.digest, program.generation)


def whole(site: Site) -> Program:
    program = site.enforcer.points.watch_program(site.domain)
    assert isinstance(program, Program)
    return program


# ---------------------------------------------------------------------------------------------------- enrolment


def test_an_enrolment_token_works_once(service: Served, admin: Client, site: Site) -> None:
    token = admin.enrolment.invite(site.domain)
    with service.client("") as anybody:
        first = anybody.enrolment.enrol(token, name="second", kind="openflow")
        with pytest.raises(Unauthenticated, match="used up"):
            anybody.enrolment.enrol(token, name="third", kind="openflow")
        with pytest.raises(Unauthenticated):
            anybody.enrolment.enrol("aclflow_nonsense", name="third", kind="openflow")
    assert [each.name for each in admin.points.read_all(site.domain)] == ["controller-1", "second"]
    assert first.epoch > next(each.epoch for each in admin.points.read_all(site.domain) if each.id == site.id)


def test_an_enrolment_token_expires(service: Served, admin: Client, site: Site) -> None:
    token = admin.enrolment.invite(site.domain, lasts_s=60)
    service.clock.ahead += dt.timedelta(seconds=61)
    with service.client("") as anybody, pytest.raises(Unauthenticated):
        anybody.enrolment.enrol(token, name="late", kind="openflow")


def test_enrolling_again_replaces_the_old_one(service: Served, admin: Client, site: Site) -> None:
    with service.client("") as anybody:
        anybody.enrolment.enrol(admin.enrolment.invite(site.domain), name="controller-1", kind="openflow")
    with pytest.raises(Unauthenticated):
        site.enforcer.domains.read_hosts(site.domain)


def test_a_removed_enforcer_is_out_at_once(admin: Client, site: Site) -> None:
    admin.points.remove(site.domain, site.id)
    with pytest.raises(Unauthenticated):
        site.enforcer.points.watch_program(site.domain)


def test_an_enforcer_takes_over_with_a_new_epoch(service: Served, admin: Client, site: Site) -> None:
    with service.client("") as anybody:
        other = anybody.enrolment.enrol(admin.enrolment.invite(site.domain), name="controller-2", kind="openflow")
    assert site.enforcer.points.begin_epoch(site.domain, site.id) > other.epoch
    with service.client(other.token) as second, pytest.raises(NotFound):
        second.points.begin_epoch(site.domain, site.id)
    with pytest.raises(Forbidden):
        admin.points.begin_epoch(site.domain, site.id)


def test_controllers_that_share_switches_learn_who_leads(service: Served, admin: Client, site: Site) -> None:
    with service.client("") as anybody:
        other = anybody.enrolment.enrol(admin.enrolment.invite(site.domain), name="controller-2", kind="openflow")
    with service.client(other.token) as second:
        ours, theirs = HostService(site.enforcer), HostService(second)
        assert theirs.read_leading(site.domain, other.enforcer, silence_s=2.5) == Leading((), ("host1", "host2"))
        ours.begin_epoch(site.domain, site.id)
        ours.report(site.domain, site.id, points=[PointReport("host1", 0, bytes(16), "enforced")])
        assert theirs.read_leading(site.domain, other.enforcer, silence_s=2.5) == Leading((site.id,), ("host2",))
        begins = theirs.read_leading(site.domain, other.enforcer, silence_s=2.5, begins=True)
        assert begins == Leading((site.id,), ("host2",), ("host1",))
        assert EdgeService(second).read_leading(site.domain, other.enforcer, silence_s=2.5) == Leading((), ())
        service.clock.ahead += dt.timedelta(seconds=3)
        assert theirs.read_leading(site.domain, other.enforcer, silence_s=2.5) == Leading((), ("host1", "host2"))
        with pytest.raises(NotFound):
            second.points.read_leading(site.domain, site.id, Tier.HOST, silence_s=2.5, begins=False)
        with pytest.raises(Forbidden):
            admin.points.read_leading(site.domain, site.id, Tier.HOST, silence_s=2.5, begins=False)


def test_what_was_said_under_the_epoch_before_is_to_be_said_again(site: Site) -> None:
    """A controller takes further switches while a report of others is on its way."""
    controller = HostService(site.enforcer)
    controller.begin_epoch(site.domain, site.id)
    points = [PointReport("host1", 0, bytes(16), "enforced")]

    def overtaken(*_: object, **__: object) -> None:
        controller.begin_epoch(site.domain, site.id)
        raise Conflict("another process has taken over")

    def replaced(*_: object, **__: object) -> None:
        raise Conflict("another process has taken over")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PointCalls, "report", overtaken)
        with pytest.raises(Busy):
            controller.report(site.domain, site.id, points=points)
    controller.report(site.domain, site.id, points=points)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PointCalls, "report", replaced)
        with pytest.raises(Conflict):
            controller.report(site.domain, site.id, points=points)


def test_hosts_are_what_was_onboarded(site: Site, admin: Client) -> None:
    assert [(host.name, host.uplink) for host in site.enforcer.domains.read_hosts(site.domain)] == [
        ("host1", "up0"),
        ("host2", "up0"),
    ]
    assert site.enforcer.domains.read_hosts(site.domain) == admin.domains.read_hosts(site.domain)
    with pytest.raises(Forbidden):
        site.enforcer.domains.add_host(site.domain, Host("host3", 77, "up0"))


# ---------------------------------------------------------------------------------------------------- watching


def test_who_has_nothing_gets_the_whole_program(site: Site, admin: Client) -> None:
    generation = put_ports(admin, site, 80)
    program = whole(site)
    assert (program.domain, program.tier, program.generation) == (site.domain, Tier.HOST, generation)
    assert len(program.flows) > 40


def test_who_has_a_recent_program_gets_the_delta(site: Site, admin: Client) -> None:
    put_ports(admin, site, 80)
    old = whole(site)
    generation = put_ports(admin, site, 80, 443)
    delta = site.enforcer.points.watch_program(site.domain, held_of(old), wait_s=0)
    assert isinstance(delta, Delta)
    assert (len(delta.removed), len(delta.added), delta.generation) == (0, 2, generation)  # one in each IP version
    new = apply(old, delta)
    assert (new.digest, new.generation) == (whole(site).digest, generation)


def test_who_is_far_behind_gets_the_whole_program(site: Site, admin: Client) -> None:
    put_ports(admin, site, 1)
    old = whole(site)
    for port in range(2, 22):
        put_ports(admin, site, port)
    assert isinstance(site.enforcer.points.watch_program(site.domain, held_of(old), wait_s=0), Program)
    assert isinstance(site.enforcer.points.watch_program(site.domain, Held(b"x" * 16, 1), wait_s=0), Program)


def test_nothing_newer_is_no_answer(site: Site, admin: Client) -> None:
    put_ports(admin, site, 80)
    started = time.monotonic()
    assert site.enforcer.points.watch_program(site.domain, held_of(whole(site)), wait_s=0.2) is None
    assert time.monotonic() - started >= 0.2


def test_when_only_the_generation_moves_the_delta_has_no_rows(site: Site, admin: Client) -> None:
    put_ports(admin, site, 80)
    old = whole(site)
    described = [{**each, "description": "the web"} for each in ports(80)]
    generation = admin.acls.put(site.tenant, acl_from_json({"rules": described})).generation
    delta = site.enforcer.points.watch_program(site.domain, held_of(old), wait_s=0)
    assert isinstance(delta, Delta)
    assert (delta.is_empty, delta.base, delta.target) == (True, old.digest, old.digest)
    assert delta.generation == generation
    assert site.enforcer.points.watch_program(site.domain, Held(old.digest, generation), wait_s=0) is None


def test_a_watch_is_answered_when_the_change_comes(site: Site, admin: Client) -> None:
    put_ports(admin, site, 80)
    old = whole(site)
    answers: list[object] = []

    def watch() -> None:
        answers.append(site.enforcer.points.watch_program(site.domain, held_of(old), wait_s=PATIENCE_S))

    watchers = [threading.Thread(target=watch) for _ in range(4)]
    for watcher in watchers:
        watcher.start()
    time.sleep(0.2)
    generation = put_ports(admin, site, 443)
    for watcher in watchers:
        watcher.join(timeout=PATIENCE_S / 2)
    assert len(answers) == 4
    for answer in answers:
        assert isinstance(answer, Delta)
        assert apply(old, answer).generation == generation


def test_a_watch_that_does_not_say_its_generation_hears_of_the_next(service: Served, site: Site, admin: Client) -> None:
    put_ports(admin, site, 80)
    query = {"have": whole(site).digest.hex()}
    path = f"/v1/domains/{site.domain}/program"
    with service.http() as http:
        assert http.get(path, params={**query, "wait": 0}).status_code == 204
        described = [{**each, "description": "the web"} for each in ports(80)]
        timer = threading.Timer(0.2, lambda: admin.acls.put(site.tenant, acl_from_json({"rules": described})))
        timer.start()
        answer = http.get(path, params={**query, "wait": 10})
        timer.join()
    assert answer.headers["Content-Type"] == DELTA_MEDIA_TYPE
    assert decode_delta(answer.content).is_empty
    assert int(answer.headers["X-Aclflow-Generation"]) == admin.domains.read(site.domain).generation


@pytest.mark.parametrize("query", ["have=zz", "have=" + "0" * 31, "tier=moon", "wait=-1", "generation=-1", "wait=nan"])
def test_a_bad_watch_is_refused(http: httpx.Client, site: Site, query: str) -> None:
    answer = http.get(f"/v1/domains/{site.domain}/program?{query}")
    assert answer.status_code == 400
    assert answer.json()["place"] == f"query.{query.split('=', maxsplit=1)[0]}"


def test_changes_of_the_domain_reach_the_program(site: Site, admin: Client) -> None:
    before = whole(site)
    admin.domains.set_return_traffic(site.domain, ReturnTraffic.EXPLICIT)
    delta = site.enforcer.points.watch_program(site.domain, held_of(before), wait_s=0)
    assert isinstance(delta, Delta)
    assert len(delta.removed) > 0
    operator = acl_from_json(
        {"rules": [{"id": "ntp", "action": "permit", "protocol": "udp", "destination_ports": 123}]}
    )
    written = admin.domains.set_operator_rules(site.domain, operator.rules)
    assert admin.domains.read_operator_rules(site.domain) == operator.rules
    assert whole(site).generation == written.generation


# ---------------------------------------------------------------------------------------------------- enforced


def test_a_generation_is_enforced_when_every_host_was_read_back(site: Site, admin: Client) -> None:
    generation = put_ports(admin, site, 80)
    before = admin.domains.read_generation(site.domain, generation)
    assert (before.done, [each.host for each in before.laggards]) == (False, ["host1", "host2"])
    site.report(generation, "host1")
    site.report(generation - 1, "host2")
    halfway = admin.domains.read_generation(site.domain, generation)
    assert [(each.host, each.generation, each.state) for each in halfway.laggards] == [
        ("host2", generation - 1, "enforced")
    ]
    site.report(generation, "host2", state="drifted")
    assert not admin.domains.read_generation(site.domain, generation).done
    site.report(generation, "host2")
    assert admin.domains.read_generation(site.domain, generation).done
    assert admin.domains.read_generation(site.domain, generation - 1).done


def test_a_wait_ends_with_the_last_report(site: Site, admin: Client) -> None:
    generation = put_ports(admin, site, 80)
    site.report(generation, "host1")
    timer = threading.Timer(0.3, lambda: site.report(generation, "host2"))
    timer.start()
    state = admin.domains.wait_until_enforced(site.domain, generation, timeout_s=PATIENCE_S)
    assert state.done
    timer.join()


def test_a_wait_that_runs_out_says_who_lags(site: Site, admin: Client) -> None:
    generation = put_ports(admin, site, 80)
    site.report(generation, "host1")
    state = admin.domains.wait_until_enforced(site.domain, generation, timeout_s=0.2)
    assert (state.done, [each.host for each in state.laggards]) == (False, ["host2"])


def test_a_host_that_is_taken_out_is_not_waited_for(site: Site, admin: Client) -> None:
    generation = put_ports(admin, site, 80)
    site.report(generation, "host1")
    timer = threading.Timer(0.2, lambda: admin.domains.remove_host(site.domain, "host2"))
    timer.start()
    started = time.monotonic()
    assert admin.domains.wait_until_enforced(site.domain, generation, timeout_s=PATIENCE_S).done
    assert time.monotonic() - started < PATIENCE_S / 2
    timer.join()


def test_a_generation_to_come_is_not_there(site: Site, admin: Client) -> None:
    latest = admin.domains.read(site.domain).generation
    with pytest.raises(NotFound, match=f"at generation {latest}"):
        admin.domains.wait_until_enforced(site.domain, latest + 1, timeout_s=5)


def test_a_late_report_is_passed_over(site: Site, admin: Client) -> None:
    generation = put_ports(admin, site, 80)
    site.report(generation, "host1", "host2", sequence=2)
    site.report(generation - 1, "host1", "host2", sequence=1)
    assert admin.domains.read_generation(site.domain, generation).done


def test_only_the_enforcer_itself_reports(service: Served, admin: Client, site: Site) -> None:
    with pytest.raises(Forbidden):
        admin.points.report(site.domain, site.id)
    with service.client("") as anybody:
        other = anybody.enrolment.enrol(admin.enrolment.invite(site.domain), name="other", kind="openflow")
    with service.client(other.token) as second, pytest.raises(NotFound):
        second.points.report(site.domain, site.id)


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"points": [{"host": "host1", "generation": 1, "digest": "00", "state": "enforced"}]}, "points[0].digest"),
        ({"points": [{"host": "host1", "generation": 1, "digest": "00" * 16, "state": "fine"}]}, "points[0].state"),
        (
            {"points": [{"host": "host1", "generation": -1, "digest": "00" * 16, "state": "enforced"}]},
            "points[0].generation",
        ),
        ({"sequence": "x"}, "sequence"),
    ],
)
def test_a_bad_report_is_refused(
    service: Served, admin: Client, site: Site, body: dict[str, object], place: str | None
) -> None:
    with service.client("") as anybody:
        other = anybody.enrolment.enrol(admin.enrolment.invite(site.domain), name="other", kind="openflow")
    with service.http(other.token) as enforcer:
        answer = enforcer.post(f"/v1/domains/{site.domain}/enforcers/{other.enforcer}/report", json=body)
    assert (answer.status_code, answer.json().get("place")) == (400, place)


def test_what_is_said_of_unknown_hosts_is_passed_over(site: Site, admin: Client) -> None:
    """The host was taken out while the report was on its way: the rest of the report counts."""
    generation = put_ports(admin, site, 80)
    site.report(generation, "gone", "host1", "host2")
    assert admin.domains.read_generation(site.domain, generation).done


def test_an_endpoint_is_in_force_where_its_interface_is_and_its_rows_were_read_back(site: Site, admin: Client) -> None:
    prefix = admin.tenants.read(site.tenant).prefixes[0]
    address = Prefix.parse(prefix.replace("0.0/16", "0.7/32"))
    web = Endpoint("web", TenantId(site.tenant), "tap1", 0x0A0000000001, (address,))

    def told(generation: int, ports: tuple[str, ...] | None, state: str = "enforced") -> tuple[str, ...]:
        report = PointReport("host1", generation, generation.to_bytes(16), state, ports=ports)
        site.enforcer.points.report(site.domain, site.id, points=[report])
        return admin.domains.read_endpoints_in_force(site.domain, "host1").endpoints

    first = admin.domains.put_endpoint(site.domain, web).generation
    assert admin.domains.read_endpoints_in_force(site.domain, "host1").state is None
    assert told(first, ()) == ()
    assert told(first - 1, ("tap1", "up0")) == ()
    assert told(first, None) == ("web",)
    assert admin.domains.read_endpoints_in_force(site.domain, "host2").endpoints == ()
    second = admin.domains.put_endpoint(site.domain, replace(web, mac=2), etag="*").generation
    assert told(first, None) == ()
    assert told(second, None, "drifted") == ()
    assert told(second, None) == ("web",)
    assert told(second, ()) == ()
    with pytest.raises(NotFound, match="host9"):
        admin.domains.read_endpoints_in_force(site.domain, "host9")
    with pytest.raises(NotFound, match="no such thing"):
        site.enforcer.domains.read_endpoints_in_force(site.domain, "host1")


# ---------------------------------------------------------------------------------------------------- its token


def test_an_enforcement_point_renews_its_token_long_before_its_end(tmp_path: Path) -> None:
    """As an agent does it, with the clock of a service that is pushed on."""
    with served(tmp_path / "service") as running, running.client() as admin:
        admin.domains.create("pop")
        with running.client("") as anybody:
            enrolled = anybody.enrolment.enrol(admin.enrolment.invite("pop"), name="fw1", kind="nftables")
        assert enrolled.expires is not None
        assert enrolled.expires - running.clock() > dt.timedelta(days=364)
        state = StateDir(tmp_path / "state")
        state.keep_credentials(Credentials("pop", enrolled.enforcer, enrolled.token, enrolled.epoch, "fw1"))
        with running.client(enrolled.token) as client, running.client(enrolled.token) as before:
            renewal = TokenRenewal(state, kept(state), client.points, laid_down_after_s=0.0)
            renewal.look()
            assert state.credentials() == kept(state), "it is not due"
            running.clock.ahead += dt.timedelta(days=21)
            renewal.look()
            credentials = state.credentials()
            assert credentials is not None
            assert credentials.token != enrolled.token
            assert not client.points.read_token("pop", enrolled.enforcer).due
            assert before.points.read_token("pop", enrolled.enforcer).due, "the old one holds meanwhile"
            renewal.look()
            with pytest.raises(Unauthenticated):
                before.points.begin_epoch("pop", enrolled.enforcer)
            client.points.begin_epoch("pop", enrolled.enforcer)
            assert [each.kind for each in admin.events.read().items].count("enforcer.renewed") == 1
            running.clock.ahead += dt.timedelta(days=364)
            renewal.look()
            again = state.credentials()
            assert again is not None
            assert again.token != credentials.token, "it was away for long, and still in time"
            running.clock.ahead += dt.timedelta(days=366)
            with pytest.raises(Unauthenticated, match="aclflow domain invite"):
                renewal.look()


def kept(state: StateDir) -> Credentials:
    found = state.credentials()
    assert found is not None
    return found


def test_nobody_else_renews_the_token_of_an_enforcement_point(service: Served, admin: Client, site: Site) -> None:
    with service.client("") as anybody:
        other = anybody.enrolment.enrol(admin.enrolment.invite(site.domain), name="c2", kind="openflow")
    with service.client(other.token) as stranger, pytest.raises(NotFound):
        stranger.points.renew_token(site.domain, site.id)
    with pytest.raises(Forbidden):
        admin.points.renew_token(site.domain, site.id)
