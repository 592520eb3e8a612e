"""What instances boot: a Debian kernel for clouds and a first disk that holds BusyBox, as Glance's image.

Both packages are fetched and unpacked, not installed: a second BusyBox or a kernel would change this machine.
"""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess
from pathlib import Path

from openstack.connection import Connection

IMAGE = "guest"
_HERE = Path(__file__).parent
_MODULES = (
    "virtio", "virtio_ring", "virtio_pci_modern_dev", "virtio_pci_legacy_dev", "virtio_pci", "failover",
    "net_failover", "virtio_net", "scsi_common", "scsi_mod", "libata",
    "ata_piix", "cdrom", "sr_mod", "isofs",
)  # fmt: skip

_PROGRAMS = ("/sbin/dhclient", "/usr/bin/perl")
"""Of this machine: BusyBox has no client of DHCPv6, and sends no frames of one's own making."""
_OWN = {"init": "init", "address": "etc/address", "address6": "etc/address6", "frame": "bin/frame"}
"""What stands in `guest`, and where it goes."""


def make(folder: Path) -> tuple[Path, Path]:
    """Make kernel and first disk in a folder, unless they are there; return their paths."""
    kernel, disk = folder / "vmlinuz", folder / "initrd.gz"
    if not disk.exists():
        work = folder / "work"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        _unpack(work, _kernel_package(), work / "kernel")
        _unpack(work, "busybox-static", work / "busybox")
        shutil.copy(next((work / "kernel/boot").glob("vmlinuz-*")), kernel)
        _fill(work)
        names = "\n".join(str(each.relative_to(work / "root")) for each in sorted((work / "root").rglob("*")))
        packed = subprocess.run(
            (str(work / "busybox/bin/busybox"), "cpio", "-o", "-H", "newc"),
            input=names.encode(), cwd=work / "root", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True,
        )  # fmt: skip
        disk.write_bytes(gzip.compress(packed.stdout, mtime=0))
        shutil.rmtree(work)
    return kernel, disk


def _fill(work: Path) -> None:
    """Put into `root` what the first disk holds."""
    root = work / "root"
    for name in ("bin", "proc", "sys", "dev", "etc", "modules", "www", "config"):
        (root / name).mkdir(parents=True)
    shutil.copy(work / "busybox/bin/busybox", root / "bin/busybox")
    for program in _PROGRAMS:
        for file in (Path(program), *_libraries(program)):
            target = root / file.relative_to("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)
    for module in _MODULES:
        for found in (work / "kernel").rglob(f"{module}.ko"):
            shutil.copy(found, root / "modules")
    for name, target in _OWN.items():
        shutil.copy(_HERE / "guest" / name, root / target)
        (root / target).chmod(0o755)


def _libraries(program: str) -> list[Path]:
    """What a program of this machine is linked with."""
    said = subprocess.run(("ldd", program), capture_output=True, text=True, check=True).stdout
    return [Path(found) for found in re.findall(r"(/\S+) \(0x", said)]


def _kernel_package() -> str:
    """The package that holds the kernel for clouds."""
    said = subprocess.run(
        ("apt-cache", "depends", "linux-image-cloud-amd64"), capture_output=True, text=True, check=True
    )
    found = re.search(r"Depends: (linux-image-\S+)", said.stdout)
    assert found, said.stdout
    return found[1]


def _unpack(work: Path, package: str, target: Path) -> None:
    fetched = work / package
    fetched.mkdir()
    command = ("apt-get", "download", "-qq", package)
    if subprocess.run(command, cwd=fetched, capture_output=True, check=False).returncode:
        subprocess.run(("apt-get", "update", "-qq"), check=True)
        subprocess.run(command, cwd=fetched, check=True)
    subprocess.run(("dpkg-deb", "-x", str(next(fetched.glob("*.deb"))), str(target)), check=True)


def upload(cloud: Connection, kernel: Path, disk: Path) -> None:
    """Give Glance the image that instances boot from."""
    made = {
        name: cloud.image.create_image(
            name, container_format="bare", disk_format="raw", visibility="public", data=path.read_bytes(),
            validate_checksum=False,
        ).id
        for name, path in (("guest-kernel", kernel), ("guest-disk", disk))
    }  # fmt: skip
    image = cloud.image.create_image(
        IMAGE, container_format="bare", disk_format="raw", visibility="public", data=b"\0" * (1 << 20),
        kernel_id=made["guest-kernel"], ramdisk_id=made["guest-disk"],
        os_command_line="console=ttyS0 quiet panic=-1",
        validate_checksum=False,
    )  # fmt: skip
    cloud.image.wait_for_status(image, "active")
