"""Write the bill of materials of a wheel (CycloneDX 1.5, JSON), with the versions that it was tested with.

python packaging/sbom.py dist/aclflow-0.1.0-cp311-cp311-linux_x86_64.whl > dist/aclflow.cdx.json

What only extras need is optional. The wheel of Neutron's driver needs what Neutron brings, in the versions that
Neutron has: its bill names these packages without a version.
"""

from __future__ import annotations

import hashlib
import json
import sys
import zipfile
from email.parser import HeaderParser
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from packaging.requirements import Requirement

NAME = "aclflow"
EXTRAS = frozenset({"aerleon", "console", "cuda", "dask", "opencl", "openstack"})
"""What may be installed beside the program; those for developing and measuring are no part of a deployment."""


def needed(package: str, extras: frozenset[str] = frozenset()) -> dict[str, tuple[str, ...]]:
    """Return a package with its extras and all that these need here, each with the names that it needs itself."""
    found: dict[str, tuple[str, ...]] = {}
    open_: list[tuple[str, frozenset[str]]] = [(canonicalize_name(package), extras)]
    while open_:
        name, extras = open_.pop()
        requirements = [Requirement(text) for text in metadata.requires(name) or ()]
        wanted = [each for each in requirements if _applies(each, extras)]
        names = tuple(sorted({canonicalize_name(each.name) for each in wanted}))
        if name in found and set(names) <= set(found[name]):
            continue
        found[name] = tuple(sorted({*found.get(name, ()), *names}))
        open_ += [(canonicalize_name(each.name), frozenset(each.extras)) for each in wanted]
    return found


def bill(wheel: Path, package: str = NAME) -> dict[str, Any]:
    """Return the bill of materials of a wheel of aclflow."""
    packages, always = needed(package, EXTRAS), needed(package)
    return _document(
        {**_component(package), "type": "application", "hashes": [_digest(wheel)]},
        [
            {**_component(name), "scope": "required" if name in always else "optional"}
            for name in sorted(packages)
            if name != package
        ],
        {_purl(name): [*map(_purl, names)] for name, names in sorted(packages.items())},
    )


def driver_bill(wheel: Path) -> dict[str, Any]:
    """Return the bill of materials of a wheel of Neutron's driver, by what the wheel says of itself."""
    with zipfile.ZipFile(wheel) as archive:
        [place] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        said = HeaderParser().parsestr(archive.read(place).decode())
    names = sorted(canonicalize_name(Requirement(text).name) for text in said.get_all("Requires-Dist", ()))
    own, version = canonicalize_name(said["Name"]), said["Version"]
    main = {"bom-ref": f"pkg:pypi/{own}@{version}", "name": own, "version": version, "hashes": [_digest(wheel)]}
    refs = {name: f"pkg:pypi/{name}" for name in names}
    return _document(
        {**main, "type": "library", "purl": main["bom-ref"]},
        [{"type": "library", "bom-ref": ref, "name": name, "purl": ref} for name, ref in refs.items()],
        {str(main["bom-ref"]): [*refs.values()]},
    )


def _document(main: dict[str, Any], components: list[dict[str, Any]], needs: dict[str, list[str]]) -> dict[str, Any]:
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": main},
        "components": components,
        "dependencies": [{"ref": ref, "dependsOn": names} for ref, names in needs.items()],
    }


def _digest(wheel: Path) -> dict[str, str]:
    return {"alg": "SHA-256", "content": hashlib.sha256(wheel.read_bytes()).hexdigest()}


def _applies(requirement: Requirement, extras: frozenset[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras))


def _component(name: str) -> dict[str, Any]:
    purl = _purl(name)
    return {"type": "library", "bom-ref": purl, "name": name, "version": metadata.version(name), "purl": purl}


def _purl(name: str) -> str:
    return f"pkg:pypi/{name}@{metadata.version(name)}"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    json.dump((bill if path.name.startswith(f"{NAME}-") else driver_bill)(path), sys.stdout, indent=1)
