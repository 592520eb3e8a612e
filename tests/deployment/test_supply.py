"""What is installed is what was tested: versions within bounds, digests of every file, and bills that name all."""

from __future__ import annotations

import configparser
import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.utils import canonicalize_name

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
LOCKS = (
    "requirements.txt",
    "packaging/requirements/aerleon.txt",
    "packaging/requirements/ansible.txt",
    "packaging/requirements/base.txt",
    "packaging/requirements/console.txt",
    "packaging/requirements/cuda.txt",
    "packaging/requirements/dask.txt",
    "packaging/requirements/opencl.txt",
    "packaging/requirements/openstack.txt",
    "ansible/requirements.txt",
    "vnf-images/requirements.txt",
    "tests/ryu/build.txt",
    "tests/ryu/requirements.txt",
)
_PIN = re.compile(r"([A-Za-z0-9_.-]+)==(\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)\n")


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "packaging" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def sbom() -> ModuleType:
    return load("sbom")


@pytest.fixture(scope="module")
def advisories() -> ModuleType:
    return load("advisories")


def pins(lock: str = "requirements.txt") -> dict[str, tuple[str, str]]:
    """Each package of a lock: its version and the digests of its files."""
    text = (ROOT / lock).read_text()
    found = {canonicalize_name(match[1]): (match[2], match[3]) for match in _PIN.finditer(text)}
    assert "".join(match[0] for match in _PIN.finditer(text)) == text.partition("\n")[2], "a line that is no pin"
    return found


def test_every_requirement_has_bounds_and_its_pin_is_within_them(sbom: ModuleType) -> None:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    texts = [parser["options"]["install_requires"], *(parser["options.extras_require"][extra] for extra in sbom.EXTRAS)]
    lines = [line for text in texts for line in text.splitlines() if line.strip()]
    listed = [Requirement(line) for line in lines if not line.startswith("#")]
    assert len(listed) > 25
    assert {path.stem for path in (ROOT / "packaging/requirements").glob("*.txt")} == sbom.EXTRAS | {"base", "ansible"}
    for each in listed:
        operators = {specifier.operator for specifier in each.specifier}
        assert {">=", "<"} <= operators, f"{each.name} has no bounds"
        assert each.specifier.contains(pins()[canonicalize_name(each.name)][0]), each


@pytest.mark.parametrize("lock", LOCKS)
def test_every_lock_pins_each_package_with_digests(lock: str) -> None:
    assert pins(lock)


def test_every_lock_is_looked_at() -> None:
    folders = [each for each in ROOT.iterdir() if each.is_dir() and not each.name.startswith(".")]
    texts = [*ROOT.glob("*.txt"), *(text for folder in folders for text in folder.rglob("*.txt"))]
    found = {str(text.relative_to(ROOT)) for text in texts if "--hash=sha256:" in text.read_text(errors="replace")}
    assert found == set(LOCKS)


@pytest.mark.parametrize("name", ["base", "aerleon", "console", "cuda", "dask", "opencl", "openstack"])
def test_what_is_deployed_is_all_that_the_program_needs_as_tested(name: str, sbom: ModuleType) -> None:
    lock, tested = pins(f"packaging/requirements/{name}.txt"), pins()
    assert {package: tested[package] for package in lock} == lock
    assert set(lock) == set(sbom.needed("aclflow", frozenset({name} - {"base"}))) - {"aclflow"}


def test_every_installation_of_the_project_checks_digests() -> None:
    makefile = (ROOT / "Makefile").read_text()
    installs = [line for line in makefile.splitlines() if "pip install" in line and "--editable ." not in line]
    assert len(installs) == 5
    assert all("--require-hashes" in line for line in installs)
    role = (ROOT / "ansible/roles/package/tasks/main.yml").read_text()
    assert role.count("aclflow_pip + ") == 2
    assert "aclflow_pip + ['--no-index', '--no-deps'" in role
    assert "aclflow_pip + ['--require-hashes']" in role
    assert role.index("include_tasks: digest.yml") < role.index("aclflow_pip + ")
    driver = (ROOT / "ansible/roles/neutron_driver/tasks/main.yml").read_text()
    assert driver.index("tasks_from: digest") < driver.index("aclflow_neutron_pip + ")
    onboarding = (ROOT / "ansible/roles/service/tasks/onboarding.yml").read_text()
    assert onboarding.count("bin/pip'") == onboarding.count("['--require-hashes']") == 1
    images = (ROOT / "vnf-images/imagebuilder/wheels.py").read_text()
    assert images.count('"pip"') == 1
    assert '"--require-hashes", "--requirement", _PINS' in images


def test_every_installation_in_the_documents_checks_digests() -> None:
    texts = [ROOT / "README.md", *(text for folder in ROOT.glob("[!.]*/") for text in folder.rglob("*.md"))]
    lines = [line for text in texts for line in text.read_text().splitlines() if "pip install" in line]
    assert len(lines) > 4
    assert [line for line in lines if "--require-hashes" not in line and "--no-index" not in line] == []


def test_pip_refuses_a_file_with_another_digest(tmp_path: Path) -> None:
    wheel = tmp_path / "pkg_a-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("pkg_a-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: pkg-a\nVersion: 1\n")
        archive.writestr("pkg_a-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("pkg_a-1.dist-info/RECORD", "")
    lock = tmp_path / "lock.txt"
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-index", "--find-links", str(tmp_path)]
    for digest, taken in ((hashlib.sha256(wheel.read_bytes()).hexdigest(), True), ("0" * 64, False)):
        lock.write_text(f"pkg-a==1 \\\n    --hash=sha256:{digest}\n")
        words = ["--dest", str(tmp_path / "to"), "--require-hashes", "--requirement", str(lock)]
        done = subprocess.run([*pip, *words], capture_output=True, text=True, check=False)
        assert (done.returncode == 0) is taken, done.stderr


def test_the_lock_keeps_files_for_debian_and_sources_only_where_there_is_no_wheel() -> None:
    lock = load("lock")
    tagged = ["cp311-cp311-manylinux_2_17_x86_64", "cp38-abi3-manylinux_2_28_aarch64", "py3-none-any"]
    other = ["cp312-cp312-manylinux_2_17_x86_64", "cp311-cp311-win_amd64", "cp311-cp311-manylinux_2_99_x86_64"]
    names = [f"pkg-1-{tags}.whl" for tags in tagged + other]
    assert [name for name in names if lock.fits(name)] == names[: len(tagged)]

    def file(name: str, digest: str) -> dict[str, Any]:
        return {"url": f"https://example.org/{name}", "hashes": {"sha256": digest * 64}}

    package = {"name": "pkg", "version": "1", "sdist": file("pkg-1.tar.gz", "5")}
    both = {**package, "wheels": [file(names[0], "b"), file(names[-1], "c"), file(names[1], "a")]}
    lines = [f" \\\n    --hash=sha256:{digest * 64}" for digest in "ab"]
    assert lock.requirement_text(both) == f"pkg==1{''.join(lines)}\n"
    assert lock.requirement_text(package) == f"pkg==1 \\\n    --hash=sha256:{'5' * 64}\n"
    with pytest.raises(ValueError, match="pkg 1 has neither a wheel for Debian 12 nor sources"):
        lock.requirement_text({"name": "pkg", "version": "1", "wheels": [file(names[-1], "c")]})


def test_the_bill_of_materials_names_all_that_is_needed_with_its_version(sbom: ModuleType, tmp_path: Path) -> None:
    wheel = tmp_path / "aclflow.whl"
    wheel.write_bytes(b"a wheel")
    bill = sbom.bill(wheel)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    main = bill["metadata"]["component"]
    assert (main["name"], main["hashes"][0]["content"]) == ("aclflow", hashlib.sha256(b"a wheel").hexdigest())
    named = {each["name"]: each["version"] for each in bill["components"]}
    assert {"fastapi", "starlette", "cryptography", "cffi", "sqlalchemy", "psycopg-binary", "uvloop"} <= set(named)
    assert {name: pins()[name][0] for name in named} == named
    refs = {main["bom-ref"], *(each["bom-ref"] for each in bill["components"])}
    for dependency in bill["dependencies"]:
        assert {dependency["ref"], *dependency["dependsOn"]} <= refs


def test_what_extras_bring_is_on_the_bill_as_optional(sbom: ModuleType, tmp_path: Path) -> None:
    wheel = tmp_path / "aclflow.whl"
    wheel.write_bytes(b"a wheel")
    scopes = {each["name"]: each["scope"] for each in sbom.bill(wheel)["components"]}
    asked = {"nicegui", "openstacksdk", "aerleon", "distributed", "pyopencl", "cuda-core"}
    assert {scopes[name] for name in asked} == {"optional"}
    assert scopes["fastapi"] == scopes["cffi"] == "required"
    assert not {"pytest", "mypy", "matplotlib"} & set(scopes), "what developers and measurements need is not deployed"


def test_the_bill_of_neutrons_driver_leaves_versions_to_neutron(sbom: ModuleType, tmp_path: Path) -> None:
    wheel = tmp_path / "networking_aclflow-0.1.0-py3-none-any.whl"
    said = "Name: networking-aclflow\nVersion: 0.1.0\nRequires-Dist: neutron-lib\nRequires-Dist: oslo.log>=1\n"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("networking_aclflow-0.1.0.dist-info/METADATA", f"{said}\nNeeds nothing.\n")
    bill = sbom.driver_bill(wheel)
    main = bill["metadata"]["component"]
    assert (main["name"], main["version"]) == ("networking-aclflow", "0.1.0")
    assert main["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(wheel.read_bytes()).hexdigest()}]
    assert [(each["purl"], "version" in each) for each in bill["components"]] == [
        ("pkg:pypi/neutron-lib", False),
        ("pkg:pypi/oslo-log", False),
    ]
    assert bill["dependencies"] == [
        {"ref": main["bom-ref"], "dependsOn": ["pkg:pypi/neutron-lib", "pkg:pypi/oslo-log"]}
    ]


# From OSV's entries for these advisories, cut to what is read.
JINJA = {
    "id": "GHSA-h5c8-rqwp-cp95",
    "summary": "Jinja vulnerable to HTML attribute injection when passing user input as keys to xmlattr filter",
    "affected": [
        {
            "package": {"ecosystem": "PyPI", "name": "jinja2"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "3.1.3"}]}],
        }
    ],
}
UNMENDED = {
    "id": "EXAMPLE-1",
    "details": "Two series are affected.\nMore.",
    "affected": [
        {
            "package": {"ecosystem": "PyPI", "name": "Some.Package"},
            "ranges": [
                {
                    "type": "ECOSYSTEM",
                    "events": [{"introduced": "1.0"}, {"last_affected": "1.4"}, {"introduced": "2.0"}],
                }
            ],
            "versions": ["0.9rc1"],
        },
        {
            "package": {"ecosystem": "npm", "name": "some-package"},
            "ranges": [{"type": "SEMVER", "events": [{"introduced": "0"}]}],
        },
    ],
}


@pytest.mark.parametrize(
    ("package", "version", "advisory"),
    [
        ("Jinja2", "3.1.2", JINJA["id"]),
        ("jinja2", "3.1.3", None),
        ("some_package", "1.4", "EXAMPLE-1"),
        ("some-package", "1.4.1", None),
        ("some-package", "2.0.post1", "EXAMPLE-1"),
        ("some-package", "0.9rc1", "EXAMPLE-1"),
        ("some-package", "0.9", None),
        ("another", "1.2", None),
    ],
)
def test_an_advisory_names_the_versions_that_it_says(
    package: str, version: str, advisory: str | None, advisories: ModuleType
) -> None:
    found = advisories.find_affected([(package, version)], [JINJA, UNMENDED])
    assert [each.advisory for each in found] == ([advisory] if advisory else [])


def test_each_version_of_a_package_is_looked_at(advisories: ModuleType) -> None:
    """Locks pin some packages in several versions; the last one read must not stand for the others."""
    for pins in ([("jinja2", "3.1.2"), ("Jinja2", "3.1.3")], [("jinja2", "3.1.3"), ("Jinja2", "3.1.2")]):
        (found,) = advisories.find_affected(pins, [JINJA])
        assert (found.package, found.version) == ("jinja2", "3.1.2")


def test_a_withdrawn_advisory_says_nothing(advisories: ModuleType) -> None:
    withdrawn = {**JINJA, "withdrawn": "2024-02-01T00:00:00Z"}
    assert advisories.find_affected([("jinja2", "3.1.2")], [withdrawn]) == []


@pytest.fixture
def export(tmp_path: Path) -> Callable[..., Path]:
    def write(*contents: object) -> Path:
        path = tmp_path / "PyPI.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for number, content in enumerate(contents):
                archive.writestr(f"{number}.json", content if isinstance(content, str) else json.dumps(content))
        return path

    return write


def test_a_lock_and_a_bill_are_looked_through(
    export: Callable[..., Path], advisories: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(export(JINJA, UNMENDED))
    lock, bill = tmp_path / "requirements.txt", tmp_path / "image.cdx.json"
    lock.write_text("jinja2==3.1.2 \\\n    --hash=sha256:0\n")
    bill.write_text(json.dumps({"components": [{"purl": "pkg:pypi/some-package@1.2"}, {"purl": "pkg:deb/debian/a@1"}]}))
    assert advisories.main([path, str(lock), str(bill)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"jinja2 3.1.2: {JINJA['id']} {JINJA['summary']}; mended in 3.1.3",
        "some-package 1.2: EXAMPLE-1 Two series are affected.; no version mends it yet",
        "2 packages, 2 advisories, 2 that apply",
    ]


@pytest.mark.parametrize(
    ("contents", "reason"),
    [
        (["{"], r"0\.json: no JSON"),
        (["[3]"], r"0\.json: no advisory of OSV"),
        ([{"summary": "no id"}], r"0\.json: no advisory of OSV"),
        ([{**JINJA, "affected": [{**JINJA["affected"][0], "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "x y"}]}]}]}], "'x y'"),  # type: ignore[index]  # noqa: E501
    ],
)  # fmt: skip
def test_a_list_that_cannot_be_read_is_no_clean_bill(
    contents: list[object],
    reason: str,
    export: Callable[..., Path],
    advisories: ModuleType,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lock = tmp_path / "requirements.txt"
    lock.write_text("jinja2==3.1.2\n")
    assert advisories.main([str(export(*contents)), str(lock)]) == 2
    assert re.search(reason, capsys.readouterr().err)
    lock.write_text("# nothing\n")
    assert advisories.main([str(export(JINJA)), str(lock)]) == 2
    assert "no package is pinned" in capsys.readouterr().err


OF_RYU = {"tests/ryu/build.txt", "tests/ryu/requirements.txt"}
"""Ryu's last release needs versions of setuptools, dnspython and eventlet with known weaknesses. Nothing of these locks
is deployed, nor in the environment that people develop in."""
INSTALLED = [str(ROOT / lock) for lock in LOCKS if lock not in OF_RYU]


def test_what_is_kept_of_advisories_names_nothing_that_is_installed(
    advisories: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a network and a file from elsewhere."""
    assert advisories.main([str(advisories.KEPT), *INSTALLED]) == 0, capsys.readouterr().out
    kept = [*advisories.read_advisories(advisories.KEPT)]
    assert len(kept) > 100
    assert advisories.find_affected([("cryptography", "41.0.0"), ("jinja2", "2.4")], kept), "it names what it should"


def test_what_is_kept_of_an_export_is_what_can_apply(
    export: Callable[..., Path], advisories: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept, lock = tmp_path / "kept.json", tmp_path / "requirements.txt"
    lock.write_text("jinja2==3.1.3\n")
    withdrawn = {**JINJA, "id": "EXAMPLE-2", "withdrawn": "2024-02-01T00:00:00Z"}
    path = export({**JINJA, "references": ["much"]}, withdrawn, UNMENDED)
    assert advisories.main(["--keep", str(kept), str(path), str(lock)]) == 0
    assert [*advisories.read_advisories(kept)] == [JINJA]
    capsys.readouterr()
    lock.write_text("jinja2==3.1.2\n")
    assert advisories.main([str(kept), str(lock)]) == 1


@pytest.mark.long
def test_no_known_vulnerability_is_in_what_is_installed(
    advisories: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    path = os.environ.get("ACLFLOW_OSV", "/var/cache/osv/PyPI.zip")
    if not Path(path).exists():
        pytest.skip(
            f"{path} is not there: OSV's export of PyPI, or what ACLFLOW_OSV names; the kept list was looked at"
        )
    assert advisories.main([path, *INSTALLED]) == 0, capsys.readouterr().out
