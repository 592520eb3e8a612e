"""Alerts come when something is wrong, and not before: Prometheus' own program plays each story against the rules."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from orchestrator.control.metrics import Metrics
from orchestrator.wire.points import PointState

ALERTS = Path(__file__).resolve().parents[2] / "packaging/prometheus/alerts.yml"
AT = "40m"
"""When it is looked at; a story's values are a minute apart, and its last one stays."""


@dataclass(frozen=True, slots=True)
class Story:
    """What the service's /metrics tells, and whether an alert comes of it."""

    alert: str
    fires: bool
    series: dict[str, str]
    """What a sample is called, with its labels, and its values as Prometheus' tests write them: `0x20 1x20`."""


def reports(**states: str) -> dict[str, str]:
    """The counters of reports by state; those that are not told stay at zero, as they begin."""
    every = dict.fromkeys(("enforced", "refused", "drifted", "disconnected"), "0x40") | states
    return {f'aclflow_reports_total{{state="{state}"}}': values for state, values in every.items()}


def requests(status: str, values: str) -> dict[str, str]:
    return {f'aclflow_request_seconds_count{{status="{status}", method="PUT", route="/v1"}}': values}


def compilations(fast: str, slow: str) -> dict[str, str]:
    """How many compilations took up to 1 s, and up to 10 s."""
    bucket = 'aclflow_compile_seconds_bucket{{le="{}"}}'.format
    return {bucket("1.0"): fast, bucket("5.0"): fast, bucket("10.0"): slow, bucket("+Inf"): slow}


def heard(values: str) -> dict[str, str]:
    """When one of two enforcers was heard, in seconds since the story began; the other lives."""
    series = 'aclflow_points_heard_timestamp_seconds{{domain="pop1", enforcer="{}"}}'.format
    return {series(7): values, series(8): "0+60x40"}


def fleet(wanted: int, serving: int, sick: int = 0) -> dict[str, str]:
    vnfs = 'aclflow_fleet_vnfs{{domain="pop1", state="{}"}}'.format
    return {
        'aclflow_fleet_wanted{domain="pop1"}': f"{wanted}x40",
        'aclflow_fleet_sick{domain="pop1"}': f"{sick}x40",
        vnfs("serving"): f"{serving}x40",
        vnfs("building"): "3x40",
    }


def kept(refused: str, started: str) -> dict[str, str]:
    """Refused kept programs of a process, which counts from its start."""
    return {"aclflow_kept_programs_refused_total": refused, "process_start_time_seconds": started}


def cluster(serves: str = "1x40", followers: str = "2x40", peers: str = "2x40", fenced: str = "0x40") -> dict[str, str]:
    """What a member of a cluster of firewalls tells of itself."""
    return {
        'aclflow_cluster_serves{member="1"}': serves,
        'aclflow_cluster_whole{member="1"}': serves,
        'aclflow_cluster_followers{member="1"}': followers,
        'aclflow_cluster_peers{member="1"}': peers,
        'aclflow_cluster_lag{member="1", followed="2"}': "0x40",
        'aclflow_cluster_events_total{member="1", event="fenced"}': fenced,
    }


FLOWS = {'aclflow_program_flows{domain="pop1"}': "12x40"}
WELL = (
    {"up": "1x40", "process_start_time_seconds": "7x40", "aclflow_disproved_total": "0x40"}
    | {"aclflow_kept_programs_refused_total": "0x40", "aclflow_impostors_total": "0x40"}
    | {"process_open_fds": "50x40", "process_max_fds": "1024x40"}
    | {'aclflow_edge_stale{domain="pop1"}': "10x40", 'aclflow_edge_chunks{domain="pop1"}': "100x40"}
    | reports(enforced="0+3x40")
    | heard("0+60x40")
    | {'aclflow_hosts_behind{domain="pop1"}': "0x40"}
    | requests("200", "0+600x40")
    | compilations("0+60x40", "0+60x40")
    | fleet(3, 3)
    | cluster()
    | FLOWS
)
STORIES = (
    Story("AclflowDown", True, {"up": "1x36 0x4"}),
    Story("AclflowDown", False, {"up": "1x20 0 1x20"}),
    Story("AclflowRestarts", True, {"process_start_time_seconds": "1x20 2 3 4 5x20"}),
    Story("AclflowRestarts", False, {"process_start_time_seconds": "1x20 2 3x20"}),
    Story("AclflowErrors", True, requests("200", "0+60x40") | requests("503", "0+1x40")),
    Story("AclflowErrors", False, requests("200", "0+60x40") | requests("404", "0+30x40")),
    Story("AclflowNotTheirPolicy", True, {"aclflow_disproved_total": "0x10 1x30"}),
    Story("AclflowKeptProgramRefused", True, {"aclflow_kept_programs_refused_total": "0x10 1x30"}),
    Story("AclflowKeptProgramRefused", True, kept("1x40", started="0x38 2280x2")),
    Story("AclflowKeptProgramRefused", False, kept("1x40", started="-7200x40")),
    Story("AclflowNobodyReports", True, reports(enforced="0+3x20 60x20") | FLOWS),
    Story("AclflowNobodyReports", True, FLOWS),
    Story("AclflowNobodyReports", False, reports(enforced="0x40")),
    Story("AclflowPointSilent", True, heard("0+60x30 1800x10")),
    Story("AclflowPointSilent", False, heard("0+60x37 2220 2340 2400")),
    Story("AclflowHostsBehind", True, {'aclflow_hosts_behind{domain="pop1"}': "0x30 1x10"}),
    Story("AclflowHostsBehind", False, {'aclflow_hosts_behind{domain="pop1"}': "0x30 1 0x10"}),
    Story("AclflowRefused", True, reports(refused="0x35 1x5")),
    Story("AclflowDrifted", True, reports(drifted="0x32 2 4 6x6")),
    Story("AclflowDrifted", False, reports(drifted="0x35 1x5")),
    Story("AclflowDisconnected", True, reports(disconnected="0x33 1x7")),
    Story("AclflowImpostor", True, {"aclflow_impostors_total": "0x37 1x3"}),
    Story("AclflowImpostor", True, {"aclflow_impostors_total": "0x10 1+1x30"}),
    Story("AclflowImpostor", False, {"aclflow_impostors_total": "0x20 1x20"}),
    Story(
        "AclflowHostFull", True, {'aclflow_counted_packets_total{domain="pop1", tier="host", by="no-room"}': "0x37 9x3"}
    ),
    Story("AclflowHostFull", False, {'aclflow_counted_packets_total{domain="pop1", tier="host", by="rule"}': "0+9x40"}),
    Story("AclflowSlowCompilation", True, compilations("0x40", "0+6x40")),
    Story("AclflowFileDescriptors", True, {"process_open_fds": "900x40", "process_max_fds": "1024x40"}),
    Story("AclflowFleetSick", True, fleet(3, 3, sick=1)),
    Story("AclflowFleetTooSmall", True, fleet(3, 2)),
    Story("AclflowFleetTooSmall", True, fleet(3, 0)),
    Story("AclflowFleetTooSmall", False, fleet(2, 3)),
    Story(
        "AclflowEdgeStale",
        True,
        {'aclflow_edge_stale{domain="pop1"}': "30x40", 'aclflow_edge_chunks{domain="pop1"}': "100x40"},
    ),
    Story("AclflowAuditUnanchored", True, {"aclflow_audit_unsent_anchors": "3x40"}),
    Story("AclflowAuditUnanchored", False, {"aclflow_audit_unsent_anchors": "0x40"}),
    Story("AclflowClusterDown", True, {"up": "1x30 0x10"} | cluster(serves="1x30 stale")),
    Story("AclflowClusterDown", False, {"up": "1x30 0 1x10"} | cluster()),
    Story("AclflowClusterDown", False, {"up": "0x40"}),
    Story("AclflowClusterUnfollowed", True, cluster(followers="2x30 1x10")),
    Story("AclflowClusterUnfollowed", False, cluster(followers="2x30 1 2x10")),
    Story("AclflowClusterUnfollowed", False, cluster(followers="2x30 1x10", peers="2x30 1x10")),
    Story("AclflowClusterFenced", True, cluster(fenced="0x36 1x4")),
    Story("AclflowClusterFenced", False, cluster(fenced="1x40")),
    Story("AclflowClusterNotServing", True, {'aclflow_cluster_serves{member="1"}': "1x30 0x10"}),
    Story("AclflowClusterNotServing", False, {'aclflow_cluster_serves{member="1"}': "1x30 0 1x10"}),
    Story("AclflowClusterNotWhole", True, {'aclflow_cluster_whole{member="1"}': "1x30 0x10"}),
    Story("AclflowClusterNotWhole", False, {'aclflow_cluster_whole{member="1"}': "1x40"}),
    Story("AclflowClusterLags", True, {'aclflow_cluster_lag{member="1", followed="2"}': "0x30 7x10"}),
    Story("AclflowClusterLags", False, {'aclflow_cluster_lag{member="1", followed="2"}': "0x38 7 0"}),
    Story("AclflowClusterFull", True, {'aclflow_cluster_events_total{member="1", event="store_full"}': "0x37 1x3"}),
    Story("AclflowClusterFull", False, {'aclflow_cluster_events_total{member="1", event="stale"}': "0+9x40"}),
)


def rules() -> Iterator[str]:
    for group in yaml.safe_load(ALERTS.read_text())["groups"]:
        for rule in group["rules"]:
            yield rule["alert"]


def played(number: int, told: Story) -> dict[str, object]:
    """A story as one of Prometheus' tests."""
    series = [{"series": _of_the_service(name), "values": values} for name, values in told.series.items()]
    firing = f'count by (alertname) (ALERTS{{alertname="{told.alert}", alertstate="firing"}})'
    there = [{"labels": f'{{alertname="{told.alert}"}}', "value": 1}] if told.fires else []
    question = {"expr": firing, "eval_time": AT, "exp_samples": there}
    return {"name": f"{number} {told.alert}", "interval": "1m", "input_series": series, "promql_expr_test": [question]}


def _of_the_service(name: str) -> str:
    """A sample with the labels that Prometheus adds."""
    added = 'job="aclflow", instance="service1"'
    return re.sub(r"\}$", f", {added}}}", name) if name.endswith("}") else f"{name}{{{added}}}"


def test_every_alert_comes_when_it_is_due_and_no_other_time(tmp_path: Path) -> None:
    if (promtool := shutil.which("promtool")) is None:
        pytest.skip("needs promtool, of Debian's package `prometheus`")
    quiet = [Story(alert, False, WELL) for alert in rules()]
    tests = [played(number, told) for number, told in enumerate((*STORIES, *quiet))]
    file = tmp_path / "stories.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}))
    done = subprocess.run([promtool, "test", "rules", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_first_report_of_a_kind_is_an_increase() -> None:
    """A counter that begins at one has not grown for Prometheus: all begin at zero."""
    text = Metrics().text().decode()
    for state in PointState:
        assert f'aclflow_reports_total{{state="{state.value}"}} 0.0' in text
    assert "aclflow_impostors_total 0.0" in text


def test_every_alert_has_a_story_in_which_it_comes() -> None:
    assert {told.alert for told in STORIES if told.fires} == set(rules())
