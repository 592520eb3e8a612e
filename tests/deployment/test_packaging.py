"""What is installed beside the code says what the code does: the sample, completion, alerts and the dashboard."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from served import served

from orchestrator.cli.branches.shape import Branch, Leaf
from orchestrator.cli.tree import TREE
from orchestrator.client import Host, PointReport
from orchestrator.settings import Settings, load

ROOT = Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"
ALERTS = PACKAGING / "prometheus/alerts.yml"
DASHBOARD = PACKAGING / "grafana/aclflow.json"

_SUFFIXES = {"histogram": ("_bucket", "_count", "_sum"), "counter": ("_total",)}
_FUNCTIONS = frozenset(
    [
        "and",
        "by",
        "changes",
        "histogram_quantile",
        "increase",
        "last_over_time",
        "le",
        "min",
        "on",
        "or",
        "rate",
        "sum",
        "time",
        "topk",
        "vector",
        "instance",
        "job",
        "domain",
        "status",
        "work",
        "stage",
        "route",
        "state",
    ]
)


def test_what_is_generated_is_what_the_code_says() -> None:
    """`make docs` writes these anew."""
    generated = runpy.run_path(str(PACKAGING / "generate.py"))["generated"]()
    assert {path.name for path in generated} == {"aclflow.yaml", "aclflow.bash", "_aclflow", "aclflow.fish"}
    for path, content in generated.items():
        assert path.read_text() == content, f"{path} is behind the code: make docs"


def test_the_sample_holds_every_default(tmp_path: Path) -> None:
    taken_in = re.sub(r"(?m)^#(?=\w)", "", (PACKAGING / "aclflow.yaml").read_text())
    assert sorted(yaml.safe_load(taken_in)) == sorted(Settings.__dataclass_fields__)
    file = tmp_path / "aclflow.yaml"
    for text in (taken_in, (PACKAGING / "aclflow.yaml").read_text()):
        file.write_text(text)
        assert load({"ACLFLOW_CONFIG": str(file)}) == Settings()


@pytest.mark.parametrize(("shell", "name"), [("bash", "aclflow.bash"), ("zsh", "_aclflow"), ("fish", "aclflow.fish")])
def test_completion_is_a_script(shell: str, name: str) -> None:
    text = (PACKAGING / "completions" / name).read_text()
    assert "_ACLFLOW_COMPLETE=" in text
    if shell == "bash":
        assert subprocess.run(["bash", "-n"], input=text.encode(), check=False).returncode == 0


def test_units_run_commands_that_there_are() -> None:
    units = [*(PACKAGING / "systemd").glob("*.service")]
    commands = [line for unit in units for line in unit.read_text().splitlines() if line.startswith("ExecStart=")]
    assert len(commands) == len(units) > 0
    for line in commands:
        found = re.search(r"/opt/aclflow/bin/aclflow ((?:[a-z]+ ?)+)", line)
        assert found is not None, line
        node: Branch | Leaf = TREE
        for word in found.group(1).split():
            if isinstance(node, Leaf):
                break
            node = next(each for each in node.children if each.name == word)
        assert isinstance(node, Leaf), line


def test_systemd_never_gives_a_unit_up() -> None:
    """One that ends at once while its database is away is started every second, and comes back when that does."""
    units = {unit.name: unit.read_text() for unit in (PACKAGING / "systemd").glob("*.service")}
    again = {name: text for name, text in units.items() if "\nRestart=" in text}
    assert units.keys() - again.keys() == {"aclflow-backup.service", "aclflow-legs.service"}
    for name, text in again.items():
        assert "StartLimitIntervalSec=0" in text.partition("[Service]")[0].splitlines(), name


def test_systemd_makes_the_user_and_the_directories(tmp_path: Path) -> None:
    if os.geteuid() != 0 or shutil.which("systemd-sysusers") is None or shutil.which("systemd-tmpfiles") is None:
        pytest.skip("needs root, and systemd's programs")
    (tmp_path / "etc").mkdir()
    for program, folder in (("systemd-sysusers", "sysusers.d"), ("systemd-tmpfiles", "tmpfiles.d")):
        made = [program, f"--root={tmp_path}", *(["--create"] if program == "systemd-tmpfiles" else [])]
        subprocess.run([*made, str(PACKAGING / folder / "aclflow.conf")], check=True, capture_output=True)
    assert "/var/lib/aclflow:/usr/sbin/nologin" in (tmp_path / "etc/passwd").read_text()
    modes = {path: oct((tmp_path / path).stat().st_mode)[-3:] for path in ("etc/aclflow/tls", "var/backups/aclflow")}
    assert modes == {"etc/aclflow/tls": "750", "var/backups/aclflow": "700"}


# ------------------------------------------------------------------------------------------------------ metrics


_OF_MEMBERS = {
    "aclflow_cluster_serves": {"member"},
    "aclflow_cluster_whole": {"member"},
    "aclflow_cluster_followers": {"member"},
    "aclflow_cluster_peers": {"member"},
    "aclflow_cluster_lag": {"member", "followed"},
    "aclflow_cluster_events_total": {"member", "event"},
}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """What the service's /metrics offers: the names of samples, with the labels that were seen on each.

    Members of a firewall cluster offer theirs themselves: `system/test_statesync_cluster.py` holds them.
    """
    with served(tmp_path_factory.mktemp("service")) as here, here.client() as admin:
        admin.domains.create("pop1")
        admin.domains.add_host("pop1", Host("host1", 1, "up0"))
        enrolled = admin.enrolment.enrol(admin.enrolment.invite("pop1"), name="c1", kind="openflow")
        with here.client(enrolled.token) as enforcer:
            enforcer.points.report("pop1", enrolled.enforcer, points=[PointReport("host1", 1, bytes(16), "enforced")])
        text = here.http().get("/metrics").text
    found: dict[str, set[str]] = {"up": set(), **_OF_MEMBERS}
    for family in text_string_to_metric_families(text):
        for suffix in _SUFFIXES.get(family.type, ("",)):
            found[family.name + suffix] = set()
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def asked(expression: str) -> Iterator[tuple[str, set[str]]]:
    """The metrics that an expression asks for, with the labels that it picks by (`job` is Prometheus' own)."""
    picked = re.compile(r"([a-zA-Z_:][\w:]*)\{([^}]*)\}")
    for name, braces in picked.findall(expression):
        yield name, set(re.findall(r"(\w+)\s*[=!]", braces)) - {"job", "instance"}
    for name in re.findall(r"[a-zA-Z_][\w:]*", re.sub(r"\[[^]]*\]|\"[^\"]*\"", "", picked.sub("", expression))):
        if name not in _FUNCTIONS:
            yield name, set()


def expressions() -> Iterator[str]:
    for group in yaml.safe_load(ALERTS.read_text())["groups"]:
        for rule in group["rules"]:
            yield rule["expr"]
    dashboard = json.loads(DASHBOARD.read_text())
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield target["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield re.sub(r"label_values\((.*), \w+\)", r"\1", variable["query"])


def test_alerts_and_dashboard_ask_for_metrics_that_there_are(told: dict[str, set[str]]) -> None:
    seen = 0
    for expression in expressions():
        for name, labels in asked(expression):
            seen += 1
            assert name in told, f"{expression}: there is no metric {name}"
            assert not told[name] or labels <= told[name], f"{expression}: {name} has no label {labels - told[name]}"
    assert seen > 40


def test_prometheus_takes_them(tmp_path: Path) -> None:
    """Its own program reads every alert, and every expression of the dashboard."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("needs promtool, of Debian's package `prometheus`")
    panels = [{"record": f"panel:{number}", "expr": said} for number, said in enumerate(map(_plain, expressions()))]
    shown = tmp_path / "dashboard.yml"
    shown.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": panels}]}))
    for file in (ALERTS, shown):
        done = subprocess.run([promtool, "check", "rules", str(file)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def _plain(expression: str) -> str:
    """An expression of Grafana's as Prometheus is asked it."""
    return re.sub(r"\$__\w+", "5m", expression).replace("$", "")


def test_every_alert_is_explained() -> None:
    """Each has words of its own, and a line in the table of the operator's page."""
    rules = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    page = (ROOT / "docs/operate.md").read_text()
    explained = re.findall(r"(?m)^\| `(Aclflow\w+)` \|", page)
    assert sorted(explained) == sorted(rule["alert"] for rule in rules)
    for rule in rules:
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert set(rule["annotations"]) == {"summary", "description"}


def test_the_dashboard_has_no_two_panels_at_one_place() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in panels}) == len(panels)
