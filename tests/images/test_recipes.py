"""What can be said of images before one is built: elements that fit together, packages, what no root may have."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from deployment.image import ROOT
from imagebuilder import contents, disk, mirrors, tree, wheels
from imagebuilder.__main__ import main
from imagebuilder.recipes import ELEMENTS, FOLDER, Fault, recipes

OURS = sorted(path.name for path in ELEMENTS.iterdir())
HOOKS = sorted(path for path in ELEMENTS.glob("*/*.d/*") if not path.parent.name.startswith("environment"))
EPOCH = 1_700_000_000


def needed(element: str) -> set[str]:
    """An element of ours and all of ours that it stands on."""
    deps = (ELEMENTS / element / "element-deps").read_text().split()
    return {element}.union(*(needed(each) for each in deps if each in OURS))


def packages(name: str) -> set[str]:
    """The Debian packages that an image asks for by name."""
    [recipe] = recipes([name])
    found: set[str] = set()
    for element in set().union(*map(needed, recipe.elements)):
        found |= yaml.safe_load((ELEMENTS / element / "package-installs.yaml").read_text()).keys()
    return found


def test_every_image_that_the_templates_name_can_be_built() -> None:
    assert [recipe.name for recipe in recipes()] == ["firewall-vnf", "acl-switch", "edge-pop"]
    assert len({recipe.root_uuid for recipe in recipes()}) == 3
    assert {"nftables", "iptables", "cloud-init", "openssh-server"} <= packages("firewall-vnf")
    assert {"openvswitch-switch", "cloud-init", "bird2", "nftables"} <= packages("acl-switch")
    assert packages("edge-pop") == packages("firewall-vnf") | packages("acl-switch")


def test_no_image_asks_for_what_it_must_not_have() -> None:
    for recipe in recipes():
        asked = contents.Contents(dict.fromkeys(packages(recipe.name), "1"), {}, [_entry("etc/machine-id")])
        assert contents.faults(asked) == []


def test_elements_ask_for_those_that_do_what_they_bring() -> None:
    for element in OURS:
        deps = (ELEMENTS / element / "element-deps").read_text().split()
        brought = {path.name for path in (ELEMENTS / element).iterdir()}
        assert ("static" in brought) <= ("install-static" in deps), element
        assert ("package-installs.yaml" in brought) <= ("package-installs" in deps), element


@pytest.mark.parametrize("hook", HOOKS, ids=lambda path: f"{path.parts[-3]}-{path.name}")
def test_hooks_are_programs_that_a_shell_can_read_and_stop_at_a_fault(hook: Path) -> None:
    assert os.access(hook, os.X_OK)
    assert "set -eu" in hook.read_text()
    subprocess.run(["bash", "-n", str(hook)], check=True)


def test_settings_that_elements_bring_can_be_read() -> None:
    [cloud] = ELEMENTS.glob("*/static/etc/cloud/cloud.cfg.d/*.cfg")
    said = yaml.safe_load(cloud.read_text())
    assert said["ssh_pwauth"] is False
    assert said["system_info"]["default_user"]["lock_passwd"] is True
    assert "ConfigDrive" in said["datasource_list"]
    sysctls = [line for path in ELEMENTS.glob("*/static/etc/sysctl.d/*") for line in path.read_text().splitlines()]
    assert all(line.startswith("#") or line.count(" = ") == 1 for line in sysctls)
    assert "net.ipv4.ip_forward = 0" in sysctls


def test_units_that_are_put_into_images_are_those_that_the_wheel_brings() -> None:
    text = (ELEMENTS / "aclflow-machine/install.d/60-aclflow").read_text()
    [units] = re.findall(r"for unit in (.*); do\n.*/systemd/\$unit\.service", text)
    assert {"aclflow-agent", "aclflow-controller", "aclflow-switch", "aclflow-uplink"} == set(units.split())
    for unit in units.split():
        assert (ROOT / f"packaging/systemd/{unit}.service").is_file()


def _entry(path: str, mode: str = "-rw-r--r--", octets: int = 0) -> contents.Entry:
    return contents.Entry(path, mode, "0:0", octets, "")


CLEAN = contents.Contents({"nftables": "1"}, {}, [_entry("etc/machine-id")])


@pytest.mark.parametrize("name", ["gcc-12", "g++", "libc6-dev", "make", "python3-pip", "clang-14", "gnupg", "binutils"])
def test_packages_that_only_building_needs_are_found(name: str) -> None:
    assert contents.faults(replace(CLEAN, packages={name: "1"})) == [f"the package {name} is in it"]


@pytest.mark.parametrize("name", ["libgcc-s1", "gcc-12-base", "makedev", "device-tree", "gpgv", "libc6"])
def test_packages_that_are_called_like_them_are_not(name: str) -> None:
    assert contents.faults(replace(CLEAN, packages={name: "1"})) == []


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (_entry("etc/ssh/ssh_host_rsa_key"), "belongs to one machine"),
        (_entry("etc/openvswitch/system-id.conf"), "belongs to one machine"),
        (_entry("var/lib/cloud/instance"), "belongs to one machine"),
        (_entry("etc/open", "-rw-rw-rw-"), "written by everybody"),
        (_entry("srv", "drwxrwxrwx"), "written by everybody"),
    ],
)
def test_files_that_no_image_may_have_are_found(entry: contents.Entry, said: str) -> None:
    [fault] = contents.faults(replace(CLEAN, entries=[*CLEAN.entries, entry]))
    assert said in fault
    assert entry.path in fault


def test_files_that_only_look_so_are_not() -> None:
    harmless = [_entry("tmp", "drwxrwxrwt"), _entry("bin", "lrwxrwxrwx"), _entry("etc/ssh/sshd_config")]
    assert contents.faults(replace(CLEAN, entries=[*CLEAN.entries, *harmless])) == []
    used = [_entry("etc/machine-id", octets=33)]
    assert contents.faults(replace(CLEAN, entries=used)) == ["/etc/machine-id belongs to one machine"]


def _root(folder: Path, order: list[str]) -> Path:
    """A small root whose files were written in some order, just now."""
    status = folder / "var/lib/dpkg/status"
    status.parent.mkdir(parents=True)
    status.write_text(
        "Package: nftables\nStatus: install ok installed\nVersion: 1.0.6-2\n\n"
        "Package: gone\nStatus: deinstall ok config-files\nVersion: 1\n"
    )
    about = folder / "opt/aclflow-0.1.0/lib/python3.11/site-packages/aclflow-0.1.0.dist-info/METADATA"
    about.parent.mkdir(parents=True)
    about.write_text("Name: aclflow\nVersion: 0.1.0\n")
    for name in order:
        path = folder / "etc" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(name)
    (folder / "link").symlink_to("etc")
    return folder


def test_a_root_is_the_same_whoever_wrote_it_when(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("imagebuilder.recipes._LEAST_MIB", 0)
    found, disks = [], []
    recipe = replace(recipes(["firewall-vnf"])[0], disk_mib=16)
    for turn, order in enumerate((["machine-id", "b", "a"], ["a", "machine-id", "b"])):
        archive = tmp_path / f"{turn}.tar"
        with tarfile.open(archive, "w") as packed:
            packed.add(_root(tmp_path / f"made{turn}", order), arcname=".")
        root = tmp_path / f"root{turn}"
        tree.unpack(archive, root, EPOCH)
        assert max(int(path.lstat().st_mtime) for path in root.rglob("*")) == EPOCH
        found.append(contents.read(root))
        if Path("/usr/lib/grub/i386-pc/boot.img").exists():
            made = disk.make(recipe, root, tmp_path, EPOCH)
            disks.append(made.read_bytes())
    assert found[0] == found[1]
    assert dict(found[0].packages) == {"nftables": "1.0.6-2"}
    assert dict(found[0].python) == {"aclflow": "0.1.0"}
    assert len(set(disks)) <= 1


def test_another_octet_is_another_root(tmp_path: Path) -> None:
    first = contents.read(_root(tmp_path / "one", ["a"]))
    (tmp_path / "one/etc/a").write_text("b")
    assert contents.read(tmp_path / "one").digest != first.digest


def test_the_lists_say_what_is_there(tmp_path: Path) -> None:
    [recipe] = recipes(["firewall-vnf"])
    found = contents.read(_root(tmp_path / "root", ["a"]))
    document, bill, listing = contents.write(found, recipe, EPOCH, tmp_path)
    said = json.loads(document.read_text())
    assert said["packages"] == {"nftables": "1.0.6-2"}
    assert said["root_sha256"] == hashlib.sha256(gzip.decompress(listing.read_bytes())).hexdigest()
    assert any(path.endswith("METADATA") for path in said["aclflow_files"])
    components = json.loads(bill.read_text())["components"]
    assert [each["purl"] for each in components] == ["pkg:deb/debian/nftables@1.0.6-2", "pkg:pypi/aclflow@0.1.0"]


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("x: {what: a, elements: [nothing], disk_mib: 2048}", "no element 'nothing'"),
        ("x: {what: a, elements: [], disk_mib: 10}", "too little"),
        ("x: {what: a, disk_mib: 2048}", "elements"),
        ("x: {what: a, elements: [], disk_mib: much}", "much"),
    ],
)
def test_a_recipe_that_cannot_be_meant_is_refused(tmp_path: Path, said: str, reason: str) -> None:
    path = tmp_path / "images.yaml"
    path.write_text(said)
    with pytest.raises(Fault, match=reason):
        recipes(path=path)


APT = """
bookworm http://mirror.example/debian/
bookworm-updates http://mirror.example/debian/
bookworm-security http://mirror.example/debian-security/
bookworm http://other.example/debian/
nodistro https://deb.example/node_20.x/
"""


@pytest.mark.parametrize(
    ("targets", "debian", "security"),
    [
        (APT.strip(), "http://mirror.example/debian", "http://mirror.example/debian-security"),
        (APT.strip().replace("http:", "https:"), mirrors.Mirrors().debian, mirrors.Mirrors().security),
        ("bookworm file:/srv/debian/\nbookworm http://mirror.example/debian", "http://mirror.example/debian", None),
        ("trixie http://mirror.example/debian/", None, None),
        ("", None, None),
    ],
)
def test_packages_come_from_where_this_machine_has_its_own(
    targets: str, debian: str | None, security: str | None
) -> None:
    """A root that is being made believes no authority yet, so HTTPS is left alone; another release's is of no use."""
    found, usual = mirrors.read(targets), mirrors.Mirrors()
    assert (found.debian, found.security) == (debian or usual.debian, security or usual.security)


def test_a_mirror_that_is_named_is_taken_and_the_other_is_this_machines(tmp_path: Path) -> None:
    apt = tmp_path / "apt-get"
    apt.write_text(
        "#!/bin/sh\necho bookworm http://here.example/debian/\necho bookworm-security http://here.example/fixes/\n"
    )
    apt.chmod(0o755)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        assert mirrors.mirrors() == mirrors.Mirrors("http://here.example/debian", "http://here.example/fixes")
        assert mirrors.mirrors("http://day.example") == mirrors.Mirrors(
            "http://day.example", "http://here.example/fixes"
        )


def test_wrong_calls_are_told_what_to_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["router"]) == 1
    assert "'router' is no image; they are firewall-vnf, acl-switch, edge-pop" in capsys.readouterr().err
    with pytest.raises(Fault, match="make package"):
        wheels.version_of(tmp_path / "aclflow-0.1.0-cp311-cp311-linux_x86_64.whl")
    assert main(["--list"]) == 0
    assert capsys.readouterr().out.count("\n") == 3


def test_the_page_names_every_image_and_element() -> None:
    page = (ROOT / "docs/images.md").read_text()
    for name in (*OURS, *(recipe.name for recipe in recipes())):
        assert f"`{name}`" in page
    pinned = (FOLDER / "requirements.txt").read_text()
    assert "diskimage-builder==" in pinned
