"""What is installed is what was tested: pins within the bounds of setup.cfg, and a bill of materials that names all."""

from __future__ import annotations

import configparser
import hashlib
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
_PIN = re.compile(r"([A-Za-z0-9_.-]+)==([0-9][^\s;]*)")


@pytest.fixture(scope="module")
def sbom() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sbom", ROOT / "packaging" / "sbom.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pins() -> dict[str, str]:
    found = map(_PIN.match, (ROOT / "requirements.txt").read_text().splitlines())
    return {re.sub(r"[-_.]+", "-", pin[1]).lower(): pin[2] for pin in found if pin}


def test_every_requirement_has_bounds_and_its_pin_is_within_them() -> None:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    listed = [Requirement(line) for line in parser["options"]["install_requires"].splitlines() if line.strip()]
    assert len(listed) > 15
    for each in listed:
        operators = {specifier.operator for specifier in each.specifier}
        assert {">=", "<"} <= operators, f"{each.name} has no bounds"
        assert each.specifier.contains(pins()[re.sub(r"[-_.]+", "-", each.name).lower()]), each


def test_the_bill_of_materials_names_all_that_is_needed_with_its_version(sbom: ModuleType, tmp_path: Path) -> None:
    wheel = tmp_path / "aclflow.whl"
    wheel.write_bytes(b"a wheel")
    bill = sbom.bill(wheel)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    main = bill["metadata"]["component"]
    assert (main["name"], main["hashes"][0]["content"]) == ("aclflow", hashlib.sha256(b"a wheel").hexdigest())
    named = {each["name"]: each["version"] for each in bill["components"]}
    assert {"fastapi", "starlette", "cryptography", "cffi", "sqlalchemy", "psycopg-binary", "uvloop"} <= set(named)
    assert {name: pins()[name] for name in named} == named
    refs = {main["bom-ref"], *(each["bom-ref"] for each in bill["components"])}
    for dependency in bill["dependencies"]:
        assert {dependency["ref"], *dependency["dependsOn"]} <= refs
