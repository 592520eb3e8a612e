"""An image to look at: the one in ACLFLOW_IMAGES if that is set (what `make images` left), else one that is built."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deployment.image import ROOT, run, wheel

KEPT = Path("/var/tmp/aclflow-images")
FIRST_PARTITION = 2048 * 512


def to_look_at() -> tuple[str, ...]:
    """The images in ACLFLOW_IMAGES, else one of each kind; what has both elements has nothing that these have not."""
    if given := os.environ.get("ACLFLOW_IMAGES"):
        return tuple(sorted(path.stem for path in Path(given).glob("*.qcow2")))
    return ("acl-switch", "firewall-vnf")


@functools.cache
def folder_of(name: str) -> Path:
    """The folder in which the image NAME and its lists are."""
    if given := os.environ.get("ACLFLOW_IMAGES"):
        return Path(given)
    out = KEPT / "tested"
    out.mkdir(parents=True, exist_ok=True)
    words = ["--wheel", str(wheel("0.0.0", out)), "--out", str(out), "--work", str(KEPT)]
    command = [sys.executable, "-m", "imagebuilder", name, *words]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(ROOT / "vnf-images")}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return out


@contextmanager
def mounted(image: Path, folder: Path) -> Iterator[Path]:
    """The root of an image, to be read."""
    raw, root = folder / "disk.raw", folder / "root"
    run("qemu-img", "convert", "-O", "raw", str(image), str(raw))
    root.mkdir()
    run("mount", "-o", f"ro,noload,loop,offset={FIRST_PARTITION}", str(raw), str(root))
    try:
        yield root
    finally:
        run("umount", str(root))
        raw.unlink()


@contextmanager
def entered(root: Path, folder: Path) -> Iterator[Path]:
    """A root that may be written to, with devices, for programs that are run in it; the image stays as it is."""
    for name in ("upper", "work", "entered"):
        (folder / name).mkdir()
    top = folder / "entered"
    layers = f"lowerdir={root},upperdir={folder / 'upper'},workdir={folder / 'work'}"
    run("mount", "-t", "overlay", "overlay", "-o", layers, str(top))
    try:
        run("mount", "--bind", "/dev", str(top / "dev"))
        try:
            yield top
        finally:
            run("umount", str(top / "dev"))
    finally:
        run("umount", str(top))
