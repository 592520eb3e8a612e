"""`make images`: builds images, and says what is in them."""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from imagebuilder import contents, disk, root, tree, wheels
from imagebuilder.mirrors import mirrors
from imagebuilder.recipes import FOLDER, Fault, Recipe, recipes
from imagebuilder.root import Ground

_OUT = FOLDER.parent / "dist"
_WORK = Path("/var/tmp/aclflow-images")  # noqa: S108 -- made by root, for root


def main(words: Sequence[str] | None = None) -> int:
    """Build what is asked for; returns the exit status."""
    asked = _asked(words)
    try:
        wanted = recipes(asked.image)
        if asked.list:
            sys.stdout.writelines(f"{each.name:14}{each.what}\n" for each in wanted)
            return 0
        _build_all(wanted, asked)
    except Fault as fault:
        _tell(f"images: {fault}")
        return 1
    return 0


def _asked(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make images", description="Build the images that a cloud boots.")
    parser.add_argument("image", nargs="*", help="which; all by default")
    parser.add_argument("--list", action="store_true", help="say which there are")
    parser.add_argument("--wheel", type=Path, help="of aclflow; by default the one in dist/")
    parser.add_argument("--out", type=Path, default=_OUT / "images", help="where they are put")
    parser.add_argument("--work", type=Path, default=_WORK, help="caches, logs; 6 GB")
    parser.add_argument("--epoch", type=int, help="the time that stands in for now; by default the last commit's")
    parser.add_argument(
        "--mirror", help="of Debian; by default this machine's; one of a given day gives the same packages again"
    )
    parser.add_argument("--security-mirror", help="of Debian's security fixes; by default this machine's")
    parser.add_argument("--twice", action="store_true", help="build each a second time and compare")
    return parser.parse_args(words)


def _build_all(wanted: Sequence[Recipe], asked: argparse.Namespace) -> None:
    if os.geteuid() != 0:
        raise Fault("building needs root: it makes file systems with files of everybody's")
    epoch = _epoch(asked.epoch)
    wheel = asked.wheel or _newest_wheel()
    asked.out.mkdir(parents=True, exist_ok=True)
    asked.work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=asked.work) as folder:
        sources = mirrors(asked.mirror, asked.security_mirror)
        ground = Ground(wheel, Path(folder, "wheels"), asked.work, epoch, sources)
        _tell(f"packages come from {sources.debian} and {sources.security}")
        _tell("gathering wheels")
        wheels.gather(wheel.resolve(), ground.wheels)
        for recipe in wanted:
            first = _build(recipe, ground, asked.out)
            if asked.twice:
                _same(first, _build(recipe, ground, Path(folder, "again")))
            _checksums(asked.out)
    _tell(f"checksums in {asked.out / 'SHA256SUMS'}")


def _build(recipe: Recipe, ground: Ground, out: Path) -> Sequence[Path]:
    """Build one image; what belongs to it, in `out`."""
    began = time.monotonic()

    def tell(text: str) -> None:
        _tell(f"{recipe.name} {time.monotonic() - began:4.0f} s: {text}")

    tell("building the root")
    archive = root.build(recipe, ground, _changes(tell))
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ground.work) as folder:
        tell("unpacking it")
        unpacked = Path(folder, "root")
        tree.unpack(archive, unpacked, ground.epoch)
        archive.unlink()
        found = contents.read(unpacked)
        if wrong := contents.faults(found):
            raise Fault("\n".join([f"{recipe.name} is not fit to be used:", *wrong]))
        written = contents.write(found, recipe, ground.epoch, out)
        tell("making the disk")
        image = out / f"{recipe.name}.qcow2"
        disk.compressed(disk.make(recipe, unpacked, Path(folder), ground.epoch), image)
    tell(f"{image}, {image.stat().st_size >> 20} MiB, {len(found.packages)} packages, root {found.digest[:16]}")
    return [image, *written]


def _changes(tell: Callable[[str], None]) -> Callable[[str], None]:
    """Tells what is not what was told last."""
    last = ""

    def told(text: str) -> None:
        nonlocal last
        if text != last:
            last = text
            tell(text)

    return told


def _same(first: Sequence[Path], second: Sequence[Path]) -> None:
    """Raises Fault where two builds differ in what is in them; says whether the disks do."""
    for one, other in zip(first, second, strict=True):
        equal = one.read_bytes() == other.read_bytes()
        _tell(f"{one.name}: {'the same twice' if equal else 'not the same twice'}")
        if not equal and one.suffix != ".qcow2":
            kept = one.with_name(f"{one.name}.again")
            shutil.copy(other, kept)
            raise Fault(f"two builds differ: compare {one} with {kept}")


def _checksums(out: Path) -> None:
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(out.iterdir())
        if path.suffix in {".qcow2", ".json", ".gz"}
    ]
    (out / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")


def _epoch(given: int | None) -> int:
    text = str(given) if given is not None else os.environ.get("SOURCE_DATE_EPOCH", "")
    if not text:
        command = ["git", "-C", str(FOLDER), "log", "-1", "--format=%ct"]
        text = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    if not text.isdecimal():
        raise Fault("there is no commit whose time could stand in for now: say --epoch, or SOURCE_DATE_EPOCH")
    return int(text)


def _newest_wheel() -> Path:
    found = sorted(_OUT.glob("aclflow-*.whl"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise Fault(f"there is no wheel of aclflow in {_OUT}: `make package` makes one")
    return found[-1]


def _tell(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
