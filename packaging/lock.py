"""Pin every package that is installed, with the SHA-256 of each file that a Debian 12 machine takes.

python packaging/lock.py [--upgrade]

uv resolves and asks the index for digests; a pin stays as long as it fits, unless --upgrade. Files for other systems
and other Pythons are left out, and an archive of sources where there is a wheel: no build runs at an installation.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

ROOT = Path(__file__).parents[1]
PYTHON = (3, 11)
GLIBC_MINOR = 36
MACHINES = ("x86_64", "aarch64")
HEADER = "# Every package with the SHA-256 of its files, for pip's --require-hashes. Made by `make lock` from {}.\n"


@dataclass(frozen=True, slots=True)
class Lock:
    """A file of pins, and what it is resolved from."""

    path: str
    source: str
    options: tuple[str, ...] = ()
    within: str = ""
    """Another lock, whose versions this one takes."""


LOCKS = (
    Lock("requirements.txt", "setup.cfg", ("--all-extras",)),
    Lock("packaging/requirements/aerleon.txt", "setup.cfg", ("--extra", "aerleon"), "requirements.txt"),
    Lock("packaging/requirements/base.txt", "setup.cfg", within="requirements.txt"),
    Lock("packaging/requirements/console.txt", "setup.cfg", ("--extra", "console"), "requirements.txt"),
    Lock("packaging/requirements/cuda.txt", "setup.cfg", ("--extra", "cuda"), "requirements.txt"),
    Lock("packaging/requirements/dask.txt", "setup.cfg", ("--extra", "dask"), "requirements.txt"),
    Lock("packaging/requirements/opencl.txt", "setup.cfg", ("--extra", "opencl"), "requirements.txt"),
    Lock("packaging/requirements/openstack.txt", "setup.cfg", ("--extra", "openstack"), "requirements.txt"),
    Lock("ansible/requirements.txt", "ansible/requirements.in"),
    Lock("packaging/requirements/ansible.txt", "packaging/requirements/ansible.in", within="ansible/requirements.txt"),
    Lock("vnf-images/requirements.txt", "vnf-images/requirements.in"),
    Lock("tests/ryu/build.txt", "tests/ryu/build.in"),
    Lock("tests/ryu/requirements.txt", "tests/ryu/requirements.in", ("--no-deps",)),
)


def write_lock(lock: Lock, *, upgrade: bool) -> None:
    """Resolve one lock anew and write it. Raises CalledProcessError with what uv said."""
    path = ROOT / lock.path
    with tempfile.TemporaryDirectory() as folder:
        resolved = Path(folder, "pylock.toml")
        kept = ROOT / (lock.within or lock.path)
        constraints = ("--constraint", str(kept)) if kept.exists() and (lock.within or not upgrade) else ()
        words = ("--quiet", "--format", "pylock.toml", "--generate-hashes", "--python-version", "3.11")
        uv = Path(sys.executable).parent / "uv"
        command = (uv, "pip", "compile", *words, *lock.options, *constraints, lock.source, "--output-file", resolved)
        subprocess.run(command, cwd=ROOT, check=True)
        packages = tomllib.loads(resolved.read_text())["packages"]
    path.write_text(HEADER.format(lock.source) + "".join(map(requirement_text, packages)))


def requirement_text(package: dict[str, Any]) -> str:
    """Return a package of a pylock.toml (PEP 751) as lines of a requirements file.

    Raises ValueError if no file of it can be installed.
    """
    wheels = [each for each in package.get("wheels", ()) if fits(each["url"].rpartition("/")[2])]
    files = wheels or [package["sdist"]] if "sdist" in package else wheels
    if not files:
        raise ValueError(f"{package['name']} {package['version']} has neither a wheel for Debian 12 nor sources")
    digests = sorted(each["hashes"]["sha256"] for each in files)
    lines = [f"{package['name']}=={package['version']}", *(f"--hash=sha256:{each}" for each in digests)]
    return " \\\n    ".join(lines) + "\n"


def fits(wheel: str) -> bool:
    """Tell whether a wheel, by its name, is for Debian 12's Python on a machine of ours."""
    return not parse_wheel_filename(wheel)[3].isdisjoint(supported_tags())


@cache
def supported_tags() -> frozenset[Tag]:
    """Return the tags of wheels that Debian 12's Python takes on the machines of ours."""
    platforms = tuple(_platforms())
    return frozenset(_tags(platforms))


def _tags(platforms: Iterable[str]) -> Iterator[Tag]:
    yield from cpython_tags(PYTHON, platforms=platforms)
    yield from compatible_tags(PYTHON, "cp311", platforms)


def _platforms() -> Iterator[str]:
    for machine in MACHINES:
        yield f"linux_{machine}"
        yield from (f"manylinux_2_{minor}_{machine}" for minor in range(5, GLIBC_MINOR + 1))
        yield from (f"{old}_{machine}" for old in ("manylinux2014", "manylinux2010", "manylinux1"))


if __name__ == "__main__":
    for each in LOCKS:
        print(each.path, file=sys.stderr)  # noqa: T201
        write_lock(each, upgrade="--upgrade" in sys.argv[1:])
