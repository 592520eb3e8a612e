"""Write the bill of materials of a wheel (CycloneDX 1.5, JSON), with the versions that it was tested with.

python packaging/sbom.py dist/aclflow-0.1.0-cp311-cp311-linux_x86_64.whl > dist/aclflow.cdx.json
"""

from __future__ import annotations

import hashlib
import json
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from packaging.requirements import Requirement

NAME = "aclflow"


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
    """Return the bill of materials of a wheel."""
    packages = needed(package)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    components = [_component(name) for name in sorted(packages) if name != package]
    main = {**_component(package), "type": "application", "hashes": [{"alg": "SHA-256", "content": digest}]}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": main},
        "components": components,
        "dependencies": [
            {"ref": _purl(name), "dependsOn": [*map(_purl, names)]} for name, names in sorted(packages.items())
        ],
    }


def _applies(requirement: Requirement, extras: frozenset[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras))


def _component(name: str) -> dict[str, Any]:
    purl = _purl(name)
    return {"type": "library", "bom-ref": purl, "name": name, "version": metadata.version(name), "purl": purl}


def _purl(name: str) -> str:
    return f"pkg:pypi/{name}@{metadata.version(name)}"


if __name__ == "__main__":
    json.dump(bill(Path(sys.argv[1])), sys.stdout, indent=1)
