"""The wheel, built from this tree and installed as an operator does."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from deployment.image import ROOT, run, wheel

pytestmark = pytest.mark.long

BESIDE = {
    "share/aclflow/aclflow.yaml",
    "share/aclflow/grafana/aclflow.json",
    "share/aclflow/prometheus/alerts.yml",
    "share/aclflow/requirements/ansible.txt",
    "share/aclflow/requirements/base.txt",
    "share/aclflow/requirements/console.txt",
    "share/aclflow/requirements/openstack.txt",
    "share/aclflow/sysusers.d/aclflow.conf",
    "share/aclflow/tmpfiles.d/aclflow.conf",
    "share/aclflow/systemd/aclflow-backup.timer",
    "share/bash-completion/completions/aclflow.bash",
    "share/fish/vendor_completions.d/aclflow.fish",
    "share/zsh/site-functions/_aclflow",
} | {f"share/aclflow/systemd/{unit.name}" for unit in (ROOT / "packaging/systemd").glob("*.service")}


def test_the_wheel_has_all_and_runs_by_itself(tmp_path: Path) -> None:
    built = wheel("0.0.7", tmp_path)
    with zipfile.ZipFile(built) as archive:
        names = {name.partition(".data/data/")[2] for name in archive.namelist() if ".data/data/" in name}
    assert names >= BESIDE
    run(sys.executable, "-m", "venv", str(tmp_path / "venv"))
    pip = (str(tmp_path / "venv/bin/pip"), "install", "--quiet", "--disable-pip-version-check")
    run(*pip, "--no-index", "--no-deps", str(built))
    run(*pip, "--require-hashes", "--requirement", str(tmp_path / "venv/share/aclflow/requirements/base.txt"))
    said = subprocess.run(
        [tmp_path / "venv/bin/aclflow", "--version"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == "aclflow 0.0.7"
    for name in BESIDE:
        assert (tmp_path / "venv" / name).is_file()
    upgraded = [tmp_path / "venv/bin/aclflow", "db", "upgrade"]  # the migrations are in it, too
    subprocess.run(upgraded, cwd=tmp_path, env={"ACLFLOW_STATE_DIR": str(tmp_path)}, check=True)
