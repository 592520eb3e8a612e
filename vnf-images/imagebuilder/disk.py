"""A disk that boots: GRUB before the first partition, the root file system in it.

    sector 0        1 ..            2048 ..
    boot.img + MBR  core.img        ext4

GRUB is put there by writing: its first sector looks for the second at sector 1 by itself, and that one for the rest
behind it. No loop device, no mount, no installer that asks the machine it runs on.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

from imagebuilder.recipes import Fault, Recipe
from imagebuilder.tools import run

_SECTOR = 512
_FIRST = 2048
_LINUX, _ACTIVE = 0x83, 0x80
_CODE = 440
_NO_CYLINDERS = b"\xfe\xff\xff"
_GRUB = Path("/usr/lib/grub/i386-pc")
_MODULES = ("biosdisk", "part_msdos", "ext2", "search_fs_uuid", "linux", "configfile", "normal")
_FEATURES = "^metadata_csum_seed,^orphan_file"
"""What GRUB of Debian 12 cannot read is left out."""


def make(recipe: Recipe, root: Path, work: Path, epoch: int) -> Path:
    """Make a raw disk of a folder. Raises Fault."""
    disk = work / "disk.raw"
    disk.unlink(missing_ok=True)
    _file_system(recipe, root, disk, epoch)
    program = _boot_program(recipe, work).read_bytes()
    if len(program) > (_FIRST - 1) * _SECTOR:
        raise Fault(f"GRUB's {len(program)} octets do not fit before the first partition")
    code = (_GRUB / "boot.img").read_bytes()[:_CODE]
    number = struct.pack("<IH", recipe.root_uuid.int & 0xFFFFFFFF, 0)
    sectors = disk.stat().st_size // _SECTOR - _FIRST
    entry = struct.pack("<B3sB3sII", _ACTIVE, _NO_CYLINDERS, _LINUX, _NO_CYLINDERS, _FIRST, sectors)
    with disk.open("r+b") as out:
        out.write(code + number + entry.ljust(64, b"\0") + b"\x55\xaa" + program)
    return disk


def compressed(disk: Path, into: Path) -> None:
    """The disk as qcow2, one cluster after the other. An image that is there stays until this one is whole, and for
    whoever runs a machine from it. Raises Fault."""
    whole = into.with_name(f".{into.name}")
    run("qemu-img", "convert", "-c", "-m", "1", "-O", "qcow2", disk, whole)
    whole.replace(into)


def _file_system(recipe: Recipe, root: Path, disk: Path, epoch: int) -> None:
    """The root file system at its place in a new disk."""
    octets = _FIRST * _SECTOR
    with disk.open("wb") as out:
        out.truncate(recipe.disk_mib << 20)
    numbers = f"offset={octets},hash_seed={recipe.root_uuid},root_owner=0:0,lazy_itable_init=0,lazy_journal_init=0"
    size = f"{(recipe.disk_mib << 10) - octets // 1024}k"
    now = {"E2FSPROGS_FAKE_TIME": str(epoch)}
    words = ("-q", "-F", "-t", "ext4", "-L", "aclflow", "-U", recipe.root_uuid, "-O", _FEATURES, "-E", numbers)
    run("mke2fs", *map(str, words), "-d", root, disk, size, settings=now)
    run("debugfs", "-w", "-f", "-", f"{disk}?offset={octets}", settings=now, text="".join(_changed_then(root, epoch)))


def _changed_then(root: Path, epoch: int) -> Iterator[str]:
    """mke2fs takes over when a file was read and its inode changed last, whatever was set: both were at `epoch`."""
    inside = ["/"]
    for folder, folders, files in os.walk(root):
        inside += [f"/{os.path.relpath(os.path.join(folder, name), root)}" for name in (*folders, *files)]
    for path in inside:
        yield f'set_inode_field "{path}" ctime @{epoch}\nset_inode_field "{path}" atime @{epoch}\n'


def _boot_program(recipe: Recipe, work: Path) -> Path:
    """GRUB with all that it needs, and where to look for its configuration."""
    core, first = work / "core.img", work / "grub-first.cfg"
    first.write_text(
        f"search.fs_uuid {recipe.root_uuid} root\nset prefix=($root)/boot/grub\nconfigfile $prefix/grub.cfg\n",
        encoding="utf-8",
    )
    words = ("-O", "i386-pc", "-p", "/boot/grub", "-c", first, "-o", core)
    run("grub-mkimage", *words, *_MODULES)
    return core
