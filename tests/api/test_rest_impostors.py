"""Controllers report who connects as a switch that it is not: an event and a count come of it."""

from __future__ import annotations

import datetime as dt
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest
from served import Served

from orchestrator.client import Client, Host, PointReport
from orchestrator.errors import Forbidden
from orchestrator.wire.points import MOST_IMPOSTORS, Impostor

STRANGER = Impostor("host1", "192.0.2.9", "192.0.2.5")
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Site:
    """A domain with two hosts, and a controller of them."""

    domain: str
    enforcer: int
    client: Client
    http: httpx.Client
    admin: Client

    def report(self, *impostors: Impostor) -> None:
        self.client.points.report_impostors(self.domain, self.enforcer, impostors)

    def post(self, **body: object) -> int:
        path = f"/v1/domains/{self.domain}/enforcers/{self.enforcer}/report"
        return self.http.post(path, json=body).status_code

    def told(self) -> list[dict[str, object]]:
        """Details of the events about the domain's impostors, the oldest first."""
        return [
            dict(each.detail)
            for each in reversed(self.admin.events.read_newest().items)
            if (each.kind, each.subject) == ("host.impersonated", self.domain)
        ]


@pytest.fixture
def site(service: Served, admin: Client) -> Iterator[Site]:
    number = next(_numbers)
    domain = f"pop{number}"
    admin.domains.create(domain)
    for index in (1, 2):
        admin.domains.add_host(domain, Host(f"host{index}", number << 8 | index, "up0"))
    joined = admin.enrolment.enrol(admin.enrolment.invite(domain), name="c1", kind="openflow")
    with service.client(joined.token) as client, service.http(joined.token) as http:
        yield Site(domain, joined.enforcer, client, http, admin)


def counted(service: Served) -> float:
    with service.http() as http:
        found = re.search(r"(?m)^aclflow_impostors_total (\S+)$", http.get("/metrics").text)
    assert found is not None
    return float(found.group(1))


def test_an_impostor_is_an_event_that_says_as_whom_it_came_and_from_where(service: Served, site: Site) -> None:
    before = counted(service)
    site.report(STRANGER, Impostor("host2", "2001:db8::9", None, ("host1", "host3")), Impostor("gone", "192.0.2.9"))
    assert site.told() == [
        {"host": "host1", "address": "192.0.2.9", "holder": "192.0.2.5"},
        {"host": "host2", "address": "2001:db8::9", "certificate": ["host1", "host3"]},
    ]
    assert counted(service) == before + 2, "a host that the domain does not have is passed over"


def test_a_host_is_an_event_at_most_every_ten_minutes(service: Served, site: Site) -> None:
    """The count goes on meanwhile, so that the alert does."""
    before = counted(service)
    for _ in range(3):
        site.report(STRANGER)
    assert len(site.told()) == 1
    site.report(STRANGER, Impostor("host2", "192.0.2.9", "192.0.2.6"))
    assert [each["host"] for each in site.told()] == ["host1", "host2"]
    service.clock.ahead += dt.timedelta(minutes=11)
    site.report(STRANGER)
    assert [each["host"] for each in site.told()] == ["host1", "host2", "host1"]
    assert counted(service) == before + 6


def test_a_domain_has_few_such_events_at_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """More would push what else happened there out of the log."""
    monkeypatch.setattr("orchestrator.control.alarms._MOST", 1)
    site.report(STRANGER, Impostor("host2", "192.0.2.9", "192.0.2.6"))
    site.report(Impostor("host2", "192.0.2.9", "192.0.2.6"))
    assert [each["host"] for each in site.told()] == ["host1"]


def test_a_report_is_taken_without_any(site: Site) -> None:
    """Controllers of an older version tell none, and points are told as before."""
    points = [{"host": "host1", "generation": 1, "digest": "00" * 16, "state": "enforced"}]
    assert site.post(points=points, sequence=1) == 204
    site.report(STRANGER)
    site.client.points.report(
        site.domain, site.enforcer, points=[PointReport("host2", 1, bytes(16), "drifted")], sequence=2
    )
    state = site.admin.domains.read_generation(site.domain, 1)
    assert [(each.host, each.state) for each in state.laggards] == [("host2", "drifted")]
    assert len(site.told()) == 1


def test_a_controller_raises_no_alarm_about_hosts_of_others(service: Served, site: Site, admin: Client) -> None:
    token = admin.enrolment.invite(site.domain, name="c2", kind="openflow", hosts=("host2",))
    joined = admin.enrolment.enrol(token, name="c2", kind="openflow")
    with service.client(joined.token) as other, pytest.raises(Forbidden, match="does not speak for 'host1'"):
        other.points.report_impostors(site.domain, joined.enforcer, [Impostor("host2", "192.0.2.9"), STRANGER])
    assert site.told() == []


@pytest.mark.parametrize(
    "wrong",
    [
        [{"host": "host1"}],
        [{"host": "host1", "address": "192.0.2.9\n"}],
        [{"host": "host1", "address": "a" * 65}],
        [{"host": "host1", "address": "192.0.2.9", "certificate": ["host1"] * 17}],
        [{"host": "host1", "address": "192.0.2.9", "said": "more"}],
        [{"host": "host1", "address": "192.0.2.9"}] * (MOST_IMPOSTORS + 1),
    ],
)
def test_what_is_no_report_is_refused(site: Site, wrong: object) -> None:
    assert site.post(points=[], impostors=wrong) == 400
    assert site.told() == []
