"""An archive as a folder that is the same whoever unpacks it, whenever."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path


def unpack(archive: Path, into: Path, epoch: int) -> None:
    """Unpack as root into a new folder, in the order of names; nothing is younger than `epoch`."""
    into.mkdir(parents=True)
    with tarfile.open(archive) as packed:
        packed.errorlevel = 2
        for member in sorted(packed.getmembers(), key=lambda each: each.name):
            packed.extract(member, into, numeric_owner=True)
    for name in ("proc", "sys"):
        (into / name).mkdir(mode=0o555, exist_ok=True)
    clamp(into, epoch)


def clamp(root: Path, epoch: int) -> None:
    """Give whatever is younger than a time that time, and everything that time of reading."""
    for folder, folders, files in os.walk(root, topdown=False):
        for name in (*files, *folders):
            _clamp(os.path.join(folder, name), epoch)
    _clamp(str(root), epoch)


def _clamp(path: str, epoch: int) -> None:
    os.utime(path, (epoch, min(int(os.lstat(path).st_mtime), epoch)), follow_symlinks=False)
