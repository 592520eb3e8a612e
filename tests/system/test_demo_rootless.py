"""The demonstration in a user namespace: what it needs, and that real packets go as the policy says."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

pytestmark = pytest.mark.system

NOBODY = (
    "setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups",
    "env", "HOME=/tmp", "PATH=/usr/local/bin:/usr/bin:/bin",
)  # fmt: skip
"""A user as Debian makes one, who searches no folder of root's programs."""
DEMO = (sys.executable, "-m", "orchestrator.cli", "demo", "--once", "--prefix", "evr-")
TUN = "/dev/net/tun"


def as_nobody(*command: str, tun: Path, timeout_s: float = 240.0) -> subprocess.CompletedProcess[str]:
    """Run a command as a user without rights, for whom a file of ours is /dev/net/tun."""
    line = ["unshare", "--mount", "sh", "-c", f'mount --bind {tun} {TUN} && exec "$@"', "sh", *NOBODY, *command]
    return subprocess.run(line, capture_output=True, text=True, timeout=timeout_s, check=False)


@pytest.fixture
def tun() -> Iterator[Path]:
    """The tunnel device, which everybody may open, as on most machines; files in memory may be no devices."""
    with TemporaryDirectory(dir="/var/tmp") as folder:
        path = Path(folder, "tun")
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(10, 200))
        path.chmod(0o666)
        if as_nobody(sys.executable, "-c", "import orchestrator", tun=path).returncode != 0:
            pytest.skip("this checkout cannot be read by other users")
        yield path


def test_the_demo_runs_without_root(tun: Path) -> None:
    ended = as_nobody(*DEMO, tun=tun)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "It takes about 20 seconds" in " ".join(ended.stdout.split())
    assert "without root there is no BPF" in ended.stdout
    assert "30 of 30 trials went as the policy says." in ended.stdout
    assert not Path("/run/aclflow-labs/evr").exists()


def test_the_demo_says_what_it_needs_without_root(tun: Path) -> None:
    tun.chmod(0o600)
    ended = as_nobody(*DEMO, tun=tun)
    assert (ended.returncode, f"must open {TUN}" in ended.stderr) == (3, True), ended
    tun.chmod(0o666)
    forbidden = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    check = ("-c", "from orchestrator.lab.rootless import check_possible; check_possible()")
    line = ["unshare", "--mount", "sh", "-c", f'mount --bind {tun} {TUN} && exec "$@"', "sh"]
    line += ["unshare", "--user", "--map-root-user", "sh", "-c", forbidden, "sh", sys.executable, *check]
    ended = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert "no user namespace can be made" in ended.stderr
    assert "user.max_user_namespaces is 0" in ended.stderr
