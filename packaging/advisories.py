"""Look for known vulnerabilities in pinned packages: advisories come from a file, so that no network is asked.

python packaging/advisories.py [--keep FILE] PyPI.zip [requirements.txt | NAME.cdx.json ...]

The file is OSV's export of PyPI (https://osv-vulnerabilities.storage.googleapis.com/PyPI/all.zip), or one advisory or a
list of advisories as JSON (OSV schema 1.6). Without further names the locks of what is deployed are
looked at. The exit status is 1 if a pinned version is affected, 2 if a file cannot be read.

`--keep` also writes the advisories about these packages, of whatever version, cut to what is read here. So
`advisories.json` was made, from the database of the Python Packaging Authority (https://github.com/pypa/advisory-database,
CC BY 4.0) of 10 October 2024: it is what can be looked at where no export was brought.
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "packaging/advisories.json"
INSTALLED = sorted((ROOT / "packaging/requirements").glob("*.txt"))
_PIN = re.compile(r"([A-Za-z0-9_.-]+)==([^\s;\\]+)")
_PURL = re.compile(r"pkg:pypi/([^@]+)@([^?]+)")


@dataclass(frozen=True, slots=True, order=True)
class Affected:
    """A pinned package that an advisory names."""

    package: str
    version: str
    advisory: str
    summary: str
    fixed: str
    """The versions that mend it, or empty."""

    def __str__(self) -> str:
        mended = f"; mended in {self.fixed}" if self.fixed else "; no version mends it yet"
        return f"{self.package} {self.version}: {self.advisory} {self.summary}{mended}"


def find_affected(pins: Iterable[tuple[str, str]], advisories: Iterable[dict[str, Any]]) -> list[Affected]:
    """Return the pins that advisories name, by package and version."""
    pinned: defaultdict[str, set[str]] = defaultdict(set)
    for name, version in pins:
        pinned[canonicalize_name(name)].add(version)
    found = []
    for advisory in advisories:
        if advisory.get("withdrawn"):
            continue
        for affected in advisory.get("affected", ()):
            name = _package(affected)
            if name in pinned:
                summary = advisory.get("summary") or advisory.get("details", "").partition("\n")[0]
                fixed = ", ".join(sorted(_events(affected, "fixed")))
                versions = (version for version in pinned[name] if is_affected(version, affected))
                found += [Affected(name, version, advisory["id"], summary, fixed) for version in versions]
    return sorted(set(found))


def is_affected(version: str, affected: dict[str, Any]) -> bool:
    """Tell whether a version is one that OSV's `affected` lists, or lies in one of its ranges."""
    if version in affected.get("versions", ()):
        return True
    ranges = [each["events"] for each in affected.get("ranges", ()) if _is_ordered(each)]
    return any(_is_within(Version(version), events) for events in ranges)


def cut_advisories(names: Container[str], advisories: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what is read of the advisories that name one of these packages, by their ids."""
    found = []
    for advisory in advisories:
        named = [each for each in advisory.get("affected", ()) if _package(each) in names]
        if named and not advisory.get("withdrawn"):
            summary = advisory.get("summary") or advisory.get("details", "").partition("\n")[0][:120]
            found.append({"id": advisory["id"], "summary": summary, "affected": [*map(_cut_affected, named)]})
    return sorted(found, key=lambda each: str(each["id"]))


def _cut_affected(affected: dict[str, Any]) -> dict[str, Any]:
    """Return a package and its versions; those that are listed one by one only where there is no range of them."""
    package = {name: affected["package"][name] for name in ("ecosystem", "name")}
    ranges = [
        {"type": each["type"], "events": each["events"]} for each in affected.get("ranges", ()) if _is_ordered(each)
    ]
    return {"package": package, "ranges": ranges} if ranges else {"package": package, "versions": affected["versions"]}


def read_advisories(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the advisories of an export or of a JSON file. Raises ValueError that names what cannot be read."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                yield from _advisories(archive.read(name), f"{path}: {name}")
    else:
        yield from _advisories(path.read_bytes(), str(path))


def read_pins(path: Path) -> list[tuple[str, str]]:
    """Return names and versions of a requirements file or a CycloneDX bill. Raises ValueError if it has none."""
    text = path.read_text()
    if path.suffix == ".json":
        matches = [_PURL.fullmatch(each.get("purl", "")) for each in json.loads(text).get("components", ())]
    else:
        matches = [_PIN.match(line) for line in text.splitlines()]
    pins = [(match[1], match[2]) for match in matches if match]
    if not pins:
        raise ValueError(f"{path}: no package is pinned in it")
    return pins


def main(arguments: Sequence[str]) -> int:
    """Print what is affected; returns the exit status."""
    kept = None
    if arguments[:1] == ["--keep"]:
        kept, arguments = Path(arguments[1]), arguments[2:]
    if not arguments:
        print("\n".join((__doc__ or "").splitlines()[:4]), file=sys.stderr)  # noqa: T201
        return 2
    try:
        pins = [pin for path in map(Path, arguments[1:] or INSTALLED) for pin in read_pins(path)]
        advisories = list(read_advisories(Path(arguments[0])))
        affected = find_affected(pins, advisories)
        if kept is not None:
            found = cut_advisories({canonicalize_name(name) for name, _ in pins}, advisories)
            kept.write_text("[\n" + ",\n".join(map(json.dumps, found)) + "\n]\n")
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2
    for each in affected:
        print(each)  # noqa: T201
    print(f"{len(set(pins))} packages, {len(advisories)} advisories, {len(affected)} that apply")  # noqa: T201
    return 1 if affected else 0


def _advisories(content: bytes, place: str) -> Iterator[dict[str, Any]]:
    try:
        read = json.loads(content)
    except ValueError as error:
        raise ValueError(f"{place}: no JSON ({error})") from error
    for each in read if isinstance(read, list) else [read]:
        if not isinstance(each, dict) or "id" not in each:
            raise ValueError(f"{place}: no advisory of OSV, which has an id")
        yield each


def _package(affected: dict[str, Any]) -> str:
    """Return the name of a package of PyPI; of others, an empty one."""
    package = affected.get("package", {})
    return canonicalize_name(package.get("name", "")) if package.get("ecosystem") == "PyPI" else ""


def _is_ordered(each: dict[str, Any]) -> bool:
    """Tell whether a range is one of versions, and not of commits."""
    return each.get("type") in {"ECOSYSTEM", "SEMVER"}


def _is_within(version: Version, events: Sequence[dict[str, str]]) -> bool:
    """Walk the events of a range in order of their versions, as OSV's schema says."""
    inside = False
    for at, event in sorted(((_order(each), each) for each in events), key=lambda pair: pair[0]):
        if "introduced" in event and version >= at:
            inside = True
        elif ("fixed" in event and version >= at) or ("last_affected" in event and version > at):
            inside = False
    return inside


def _order(event: dict[str, str]) -> Version:
    [text] = event.values()
    try:
        return Version(text)
    except InvalidVersion as error:
        raise ValueError(f"a range begins or ends at {text!r}, which is no version of a Python package") from error


def _events(affected: dict[str, Any], kind: str) -> set[str]:
    return {event[kind] for each in affected.get("ranges", ()) for event in each.get("events", ()) if kind in event}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
