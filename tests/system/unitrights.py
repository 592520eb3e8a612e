"""Commands run with the rights of their unit: as another user, with its capabilities and no others."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

from deployment.test_units import settings_of

UNITS = Path(__file__).resolve().parents[2] / "packaging/systemd"
USER = "64731"
"""A user that nobody else is: of its unit's, which tests have no need to make."""


@cache
def is_readable_by_others() -> bool:
    """Whether a user without rights can run this checkout; where none can, commands run as root."""
    words = ["setpriv", "--reuid", USER, "--regid", USER, "--clear-groups", sys.executable, "-c", "import orchestrator"]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def with_rights_of(name: str) -> list[str]:
    """The words before a command that give it the rights of a unit, which runs as a user without rights."""
    said = settings_of(UNITS / f"{name}.service")
    assert said.get("User", ["root"]) != ["root"]
    rights = [f"+{each.lower().removeprefix('cap_')}" for each in said["AmbientCapabilities"][0].split()]
    listed = ",".join(["-all", *rights])
    return [
        "setpriv", "--reuid", USER, "--regid", USER, "--clear-groups", "--no-new-privs", "--bounding-set", listed,
        "--inh-caps", listed, "--ambient-caps", listed,
    ]  # fmt: skip
