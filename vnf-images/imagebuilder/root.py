"""A root file system by diskimage-builder, as a tar archive.

Its own disk layouts need device-mapper, which not every kernel has, and write what no two builds have in common; so it
makes the tree only, and `disk.py` the disk.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.mirrors import Mirrors
from imagebuilder.recipes import ELEMENTS, Recipe
from imagebuilder.tools import follow
from imagebuilder.wheels import version_of

_STAGES = (
    (re.compile(r"Running hooks from \S+/(\S+)\.d"), "{}"),
    (re.compile(r"(?:I: Retrieving|Get:\d+ \S+ \S+ \S+ (?=\S+ amd64|\S+ all)) ?(\S+)"), "fetching {}"),
    (re.compile(r"(?:I: Extracting|Unpacking|Setting up) ([\w.+-]+)"), "installing {}"),
    (re.compile(r"update-initramfs: Generating (\S+)"), "making {}"),
)


@dataclass(frozen=True, slots=True)
class Ground:
    """With what roots are built."""

    wheel: Path
    wheels: Path
    work: Path
    """A folder for caches and whatever comes on the way."""
    epoch: int
    """The time that stands in for now, in seconds since 1970."""
    mirrors: Mirrors
    tool: Path = Path(sys.prefix).with_name(".venv-images") / "bin"
    """Where disk-image-create is."""


def build(recipe: Recipe, ground: Ground, told: Callable[[str], None]) -> Path:
    """Build a root; returns the archive. `told` hears what is being done. Raises Fault."""
    work = ground.work / recipe.name
    work.mkdir(parents=True, exist_ok=True)
    settings = {
        "PATH": f"{ground.tool}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "ELEMENTS_PATH": str(ELEMENTS),
        "SOURCE_DATE_EPOCH": str(ground.epoch),
        "ACLFLOW_WHEELS": str(ground.wheels),
        "ACLFLOW_VERSION": version_of(ground.wheel),
        "ACLFLOW_ROOT_UUID": str(recipe.root_uuid),
        "DIB_DISTRIBUTION_MIRROR": ground.mirrors.debian,
        "DIB_DEBIAN_SECURITY_MIRROR": ground.mirrors.security,
        "DIB_IMAGE_CACHE": str(ground.work / "cache"),
        "DIB_LOCKFILES": str(ground.work / "locks"),
        "DIB_NO_TMPFS": "1",
        "DIB_NO_TIMESTAMP": "1",
        "TMPDIR": str(work),
    }
    command: tuple[str | Path, ...] = (
        ground.tool / "disk-image-create",
        "-n",
        "-t",
        "tar",
        "-o",
        work / "root",
        *recipe.elements,
    )
    follow(*command, settings=settings, log=work / "build.log", told=lambda line: _say(line, told), folder=work)
    return work / "root.tar"


def _say(line: str, told: Callable[[str], None]) -> None:
    for pattern, words in _STAGES:
        if found := pattern.search(line):
            told(words.format(found[1]))
            return
