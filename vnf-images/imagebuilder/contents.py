"""What is in an image: packages and versions, Python's distributions, the files of aclflow, and every file's digest."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path
from urllib.parse import quote

from imagebuilder.recipes import Recipe

_OURS = ("opt/", "etc/systemd/system/aclflow", "usr/lib/sysusers.d/aclflow", "usr/lib/tmpfiles.d/aclflow")
_UNWANTED = re.compile(
    r"(gcc|g\+\+|cpp|clang|llvm|tcc|rustc|golang|make|cmake|binutils|bison|flex|git|gdb|strace|telnet|gnupg2?)(-[\d.]+)?"
    r"|.*-dev|build-essential|python3-(pip|venv)|netcat-.*|tcpdump"
)
"""Packages that help whoever breaks in, or that only building needs."""
_LOST = "lost+found"


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, folder or link of the root: its path, how it may be used, whose it is, and what is in it."""

    path: str
    mode: str
    owner: str
    octets: int
    digest: str
    """SHA-256 of a file, where a link leads to, or empty."""

    def __str__(self) -> str:
        return f"{self.mode} {self.owner} {self.octets} {self.digest or '-'} /{self.path}"


@dataclass(frozen=True, slots=True)
class Contents:
    """Everything in a root."""

    packages: Mapping[str, str]
    """Debian's, by name: the version."""
    python: Mapping[str, str]
    """Python's in /opt/aclflow, by name: the version."""
    entries: Sequence[Entry]

    @property
    def digest(self) -> str:
        """SHA-256 over the list of all files with their digests: equal where the roots are."""
        return hashlib.sha256(self.listing().encode()).hexdigest()

    def listing(self) -> str:
        """One line a file, by path."""
        return "".join(f"{entry}\n" for entry in self.entries)

    def document(self, recipe: Recipe, epoch: int) -> dict[str, object]:
        """Its form in NAME.contents.json."""
        ours = {f"/{each.path}": each.digest for each in self.entries if each.path.startswith(_OURS)}
        return {
            "image": recipe.name,
            "what": recipe.what,
            "elements": list(recipe.elements),
            "disk_mib": recipe.disk_mib,
            "source_date_epoch": epoch,
            "root_sha256": self.digest,
            "packages": dict(self.packages),
            "python": dict(self.python),
            "aclflow_files": ours,
        }

    def bill_of_materials(self, recipe: Recipe) -> dict[str, object]:
        """Return its packages as CycloneDX 1.5 names them, for tools that look for known vulnerabilities."""
        debian = [_component(name, version, "deb/debian") for name, version in self.packages.items()]
        python = [_component(name, version, "pypi") for name, version in self.python.items()]
        digest = {"name": "root_sha256", "value": self.digest}
        image = {"type": "operating-system", "bom-ref": recipe.name, "name": recipe.name, "properties": [digest]}
        return {
            "bomFormat": "CycloneDX",
            "specVersion": "1.5",
            "version": 1,
            "metadata": {"component": image},
            "components": [*debian, *python],
        }


def read(root: Path) -> Contents:
    """Look through an unpacked root."""
    status = (root / "var/lib/dpkg/status").read_text(encoding="utf-8")
    described = [HeaderParser().parsestr(each) for each in status.split("\n\n") if each.strip()]
    packages = {each["Package"]: each["Version"] for each in described if each["Status"].endswith(" installed")}
    metadata = (root / "opt").glob("aclflow-*/lib/python3*/site-packages/*.dist-info/METADATA")
    distributions = [HeaderParser().parsestr(each.read_text(encoding="utf-8")) for each in metadata]
    python = {each["Name"]: each["Version"] for each in distributions}
    return Contents(_sorted(packages), _sorted(python), sorted(_entries(root), key=lambda entry: entry.path))


def faults(contents: Contents) -> list[str]:
    """What must not be so in an image, in words; empty for a good one."""
    found = [f"the package {name} is in it" for name in contents.packages if _UNWANTED.fullmatch(name)]
    paths = {entry.path: entry for entry in contents.entries}
    found += [
        f"/{path} belongs to one machine"
        for path in paths
        if re.fullmatch(r"etc/ssh/ssh_host_\w+|etc/openvswitch/(conf\.db|system-id\.conf)|var/lib/cloud/.+", path)
    ]
    if paths["etc/machine-id"].octets:
        found.append("/etc/machine-id belongs to one machine")
    found += [
        f"/{entry.path} may be written by everybody"
        for entry in contents.entries
        if entry.mode[0] != "l" and entry.mode[-2] == "w" and entry.mode[-1] != "t" and entry.mode[0] != "c"
    ]
    return found


def write(contents: Contents, recipe: Recipe, epoch: int, folder: Path) -> list[Path]:
    """Write the list of contents, the bill of materials and the list of all files; returns their paths."""
    document, bill = folder / f"{recipe.name}.contents.json", folder / f"{recipe.name}.cdx.json"
    document.write_text(json.dumps(contents.document(recipe, epoch), indent=1) + "\n", encoding="utf-8")
    bill.write_text(json.dumps(contents.bill_of_materials(recipe), indent=1) + "\n", encoding="utf-8")
    listing = folder / f"{recipe.name}.files.gz"
    listing.write_bytes(gzip.compress(contents.listing().encode(), mtime=0))
    return [document, bill, listing]


def _component(name: str, version: str, kind: str) -> dict[str, str]:
    known = name.lower().replace("_", "-") if kind == "pypi" else name
    purl = f"pkg:{kind}/{quote(known, safe='-._~')}@{quote(version, safe='-._~')}"
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def _sorted(mapping: Mapping[str, str]) -> dict[str, str]:
    return dict(sorted(mapping.items()))


def _entries(root: Path) -> Iterator[Entry]:
    """Everything below a root, but what a file system keeps for itself there."""
    for folder, folders, files in os.walk(root):
        if folder == str(root) and _LOST in folders:
            folders.remove(_LOST)
        for name in (*folders, *files):
            yield _entry(Path(folder, name), root)


def _entry(path: Path, root: Path) -> Entry:
    about = path.lstat()
    digest, octets = "", 0
    if stat.S_ISREG(about.st_mode):
        with path.open("rb") as file:
            digest, octets = hashlib.file_digest(file, "sha256").hexdigest(), about.st_size
    elif stat.S_ISLNK(about.st_mode):
        digest = str(path.readlink())
    owner = f"{about.st_uid}:{about.st_gid}"
    return Entry(str(path.relative_to(root)), stat.filemode(about.st_mode), owner, octets, digest)
