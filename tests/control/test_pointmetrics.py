"""What Prometheus is told of hosts that are behind, and of enforcers that are silent."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import Any

from served import served

from orchestrator.client import Host, PointReport
from orchestrator.control.gauges import PointMetrics

HEARD = re.compile(r'^aclflow_points_heard_timestamp_seconds\{domain="pop",enforcer="(\d+)"\} (\S+)$', re.MULTILINE)


def test_hosts_are_behind_until_they_were_read_back_and_none_is_named(tmp_path: Path) -> None:
    with served(tmp_path) as here, here.client() as client, here.http() as http:
        client.domains.create("pop")
        assert "aclflow_hosts_behind{" not in http.get("/metrics").text
        client.domains.add_host("pop", Host("h1", 1, "up0"))
        client.domains.add_host("pop", Host("h2", 2, "up0"))
        text = http.get("/metrics").text
        assert 'aclflow_hosts_behind{domain="pop"} 2.0' in text
        assert HEARD.search(text) is None, "nobody spoke for them yet"
        spoke = []
        goal = client.domains.read("pop").generation
        for name, host in (("c1", "h1"), ("c2", "h2")):
            enrolled = client.enrolment.enrol(client.enrolment.invite("pop"), name=name, kind="openflow")
            spoke.append(str(enrolled.enforcer))
            with here.client(enrolled.token) as controller:
                points = [PointReport(host, goal, bytes(16), "enforced" if host == "h1" else "drifted")]
                controller.points.report("pop", enrolled.enforcer, points=points)
            if host == "h1":
                here.clock.ahead = dt.timedelta(minutes=5)
        text = http.get("/metrics").text
        found = dict(HEARD.findall(text))
    assert 'aclflow_hosts_behind{domain="pop"} 1.0' in text
    assert sorted(found) == sorted(spoke)
    silent, live = (float(found[each]) for each in spoke)
    assert dt.datetime.now(dt.UTC).timestamp() - silent < 120, "c1 is heard no more"
    assert live - silent > 290, "one that lives hides none that is silent"
    assert "h1" not in text


def test_an_enforcer_makes_no_series_by_naming_stages(tmp_path: Path) -> None:
    with served(tmp_path) as here, here.client() as client, here.http() as http:
        client.domains.create("pop")
        client.domains.add_host("pop", Host("h1", 1, "up0"))
        goal = client.domains.read("pop").generation
        enrolled = client.enrolment.enrol(client.enrolment.invite("pop"), name="c1", kind="openflow")
        with here.client(enrolled.token) as controller:
            for made_up in ("aaa", "bbb"):
                took = {"wire": 0.5, made_up: 0.25}
                points = [PointReport("h1", goal, bytes(16), "enforced", took=took, error=made_up)]
                controller.points.report("pop", enrolled.enforcer, points=points)
        text = http.get("/metrics").text
    stages = set(re.findall(r'aclflow_stage_seconds_count\{stage="(\w+)",work="enforce"\}', text))
    assert stages == {"wire", "other"}


class OneHost:
    """A host of a domain, which counts how often all of them are looked at."""

    looks = 0
    enforcer, heard, is_behind = 1, None, True

    def __init__(self, domain: str) -> None:
        self._domain = domain

    @property
    def domain(self) -> str:
        OneHost.looks += 1
        return self._domain


def test_a_scrape_looks_at_each_host_a_few_times_however_many_domains_there_are() -> None:
    hosts = [OneHost(f"d{number // 2}") for number in range(400)]

    class Units:
        def read(self, _work: object) -> Any:
            return tuple(hosts)

    behind, _ = PointMetrics(Units()).collect()  # type: ignore[arg-type]
    assert {(sample.labels["domain"], sample.value) for sample in behind.samples} == {
        (f"d{number}", 2.0) for number in range(200)
    }
    assert OneHost.looks < 5 * len(hosts)
