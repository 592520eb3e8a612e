"""The driver's own tests, which run where Neutron is: in the machine's Python, over a database in a file."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from allinone.programs import PYTHON
from realbench import PATIENCE_S

pytestmark = [pytest.mark.system, pytest.mark.openstack]

_DRIVER = Path(__file__).parents[2] / "networking-aclflow"


def test_the_worker_brings_the_service_to_what_neutron_says() -> None:
    done = subprocess.run(
        [PYTHON, "-W", "ignore", "-m", "unittest", "discover", "-s", "tests"],
        cwd=_DRIVER,
        env={**os.environ, "PYTHONPATH": f"{_DRIVER}:{_DRIVER / 'tests'}", "VIRTUAL_ENV": ""},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
