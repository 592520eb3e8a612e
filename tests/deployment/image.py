"""What test machines are made of: a minimal Debian, with what they may install lying beside (they have no way out).

    debootstrap ──▶ systemd, sshd, Python; .deb files in apt's cache; wheels in /srv/wheels

It is made once and kept, for it takes a minute; a machine is an overlay over it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
KEPT = Path(os.environ.get("ACLFLOW_MACHINES", "/var/tmp/aclflow-machines"))
SUITE = "bookworm"
HAS = (
    "ca-certificates", "dbus", "iproute2", "iputils-ping", "kmod", "netcat-openbsd", "openssh-server", "openssl",
    "procps", "python3", "python3-apt", "sudo", "systemd", "systemd-sysv",
)  # fmt: skip
MAY_INSTALL = ("conntrackd", "libjemalloc2", "nftables", "openvswitch-switch", "postgresql", "python3-venv")
LOCKS = tuple(ROOT / "packaging/requirements" / f"{name}.txt" for name in ("base", "console", "ansible"))
"""What the wheel and the role `service` install, with digests."""
SOURCES = ("api", "orchestrator", "packaging", "LICENSE", "README.md", "pyproject.toml", "setup.cfg", "setup.py")
MASKED = (
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "getty@.service",
    "serial-getty@.service",
    "systemd-udevd.service",
)


@cache
def base() -> Path:
    """The folder that machines are overlays of, made where it is not there yet."""
    parts = (HAS, MAY_INSTALL, SUITE, *(lock.read_text() for lock in LOCKS))
    known = hashlib.sha256(repr(parts).encode())
    made = KEPT / known.hexdigest()[:16]
    KEPT.mkdir(parents=True, exist_ok=True)
    with _alone(KEPT / "lock"):
        if not (made / "whole").exists():
            shutil.rmtree(made, ignore_errors=True)
            _make(made / "root")
            (made / "whole").touch()
    return made / "root"


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _make(root: Path) -> None:
    root.parent.mkdir(parents=True)
    run("debootstrap", "--variant=minbase", f"--include={','.join(HAS)}", SUITE, str(root))
    run("chroot", str(root), "apt-get", "-q", "update")
    install = ["apt-get", "-qy", "--no-install-recommends", "--download-only", "install", *MAY_INSTALL]
    run("chroot", str(root), *install)
    for unit in MASKED:
        (root / "etc/systemd/system" / unit).symlink_to("/dev/null")
    wheels = root / "srv/wheels"
    wheels.mkdir(parents=True)
    for lock in LOCKS:
        words = ["--quiet", "download", "--dest", str(wheels), "--require-hashes", "--requirement", str(lock)]
        run(sys.executable, "-m", "pip", *words)


def wheel(version: str, folder: Path) -> Path:
    """This tree as a wheel that says it is of a version."""
    tree = folder / f"tree-{version}"
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir(parents=True)
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.bpf.o"))
        else:
            shutil.copy(ROOT / name, tree / name)
    settings = (tree / "setup.cfg").read_text()
    line = next(line for line in settings.splitlines() if line.startswith("version = "))
    (tree / "setup.cfg").write_text(settings.replace(line, f"version = {version}", 1))
    words = ["--quiet", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    run(sys.executable, "-m", "pip", *words, str(tree))
    shutil.rmtree(tree)
    return next(folder.glob(f"aclflow-{version}-*.whl"))


def run(*command: str, text: str | None = None) -> str:
    """What a program prints. Raises AssertionError with all it said."""
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout
