"""Real images: what is in one is what its list says, and nothing that helps whoever breaks in."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from deployment.image import run
from imagebuilder import contents
from images.built import entered, folder_of, mounted, to_look_at

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

SWITCH, FILTERS = {"openvswitch-switch"}, {"nftables", "iptables"}
BROUGHT = {"firewall-vnf": FILTERS, "acl-switch": SWITCH | {"nftables"}, "edge-pop": SWITCH | FILTERS}
"""What an image has, and the others have not."""


@pytest.fixture(scope="module", params=to_look_at())
def image(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def folder(image: str) -> Path:
    return folder_of(image)


@pytest.fixture(scope="module")
def root(image: str, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with mounted(folder / f"{image}.qcow2", tmp_path_factory.mktemp("mounted")) as found:
        yield found


@pytest.fixture(scope="module")
def inside(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with entered(root, tmp_path_factory.mktemp("entered")) as found:
        yield found


def test_what_is_in_it_is_what_its_list_says(image: str, folder: Path, root: Path) -> None:
    document = json.loads((folder / f"{image}.contents.json").read_text())
    found = contents.read(root)
    assert found.digest == document["root_sha256"]
    assert dict(found.packages) == document["packages"]
    assert contents.faults(found) == []
    assert {"cloud-init", "openssh-server", "libbpf1"} <= found.packages.keys()
    assert found.packages.keys() & (SWITCH | FILTERS) == BROUGHT[image]
    assert {"aclflow", "numpy", "cryptography"} <= found.python.keys()
    sums = dict(line.split()[::-1] for line in (folder / "SHA256SUMS").read_text().splitlines())
    for name in (f"{image}.qcow2", f"{image}.contents.json", f"{image}.cdx.json", f"{image}.files.gz"):
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == sums[name]


def test_it_has_what_the_units_ask_for_and_runs_it(root: Path, inside: Path) -> None:
    assert run("chroot", str(inside), "/opt/aclflow/bin/aclflow", "--version").startswith("aclflow ")
    for unit in ("aclflow-agent", "aclflow-controller", "aclflow-switch"):
        assert (root / f"etc/systemd/system/{unit}.service").is_file()
        assert not list((root / "etc/systemd/system").glob(f"*.wants/{unit}.service"))
    kernels = [*root.glob("opt/aclflow-*/lib/python3.11/site-packages/orchestrator/enforce/drivers/bpf/*.bpf.o")]
    assert {path.name for path in kernels} == {"flowcache.bpf.o", "classifier.bpf.o"}
    assert "aclflow:x:" in (root / "etc/passwd").read_text()


def test_nobody_logs_in_by_a_password_and_nothing_is_forwarded(image: str, root: Path, inside: Path) -> None:
    shadow = [line.split(":") for line in (root / "etc/shadow").read_text().splitlines()]
    assert all(re.match(r"[*!]", secret) for _, secret, *_ in shadow), shadow
    run("chroot", str(inside), "ssh-keygen", "-A")
    (inside / "run/sshd").mkdir(parents=True, exist_ok=True)
    effective = run("chroot", str(inside), "/usr/sbin/sshd", "-T").lower()
    assert "passwordauthentication no" in effective
    assert "kbdinteractiveauthentication no" in effective
    assert "permitrootlogin without-password" in effective
    off = root / "etc/sysctl.d/60-aclflow.conf"
    assert off.exists() == (BROUGHT[image] >= FILTERS)
    assert not off.exists() or "net.ipv4.ip_forward = 0" in off.read_text()


def test_nothing_that_compiles_is_left(root: Path, inside: Path) -> None:
    names = ("cc", "gcc", "c++", "clang", "tcc", "ld", "as", "make", "pip", "pip3", "python3-config", "gdb", "strace")
    places = ("bin", "usr/bin", "usr/local/bin", "opt/aclflow/bin")
    assert [f"{place}/{name}" for place in places for name in names if (inside / place / name).exists()] == []
    assert not (root / "usr/include/stdio.h").exists()
    looked = run(
        "chroot", str(inside), "/opt/aclflow/bin/python", "-c", "import importlib.util as u; print(u.find_spec('pip'))"
    )
    assert looked.strip() == "None"


def test_a_switch_starts_with_the_machine_and_has_no_bridge_yet(image: str, root: Path) -> None:
    """`aclflow host configure` makes the bridge, default off, as the Ansible role has it do."""
    wanted = root / "etc/systemd/system/multi-user.target.wants/openvswitch-switch.service"
    assert wanted.is_symlink() == (BROUGHT[image] >= SWITCH)
    assert not (root / "etc/openvswitch/conf.db").exists()
    assert not (root / "etc/openvswitch/system-id.conf").exists()
    assert list(root.glob("usr/lib/modules/*/kernel/net/openvswitch/openvswitch.ko")) != []
