"""A real image: what is in it is what its list says, nothing that helps whoever breaks in, and it boots until its agent
enrols and enforces, told by nothing but what Heat gives it."""

from __future__ import annotations

import hashlib
import json
import re
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from deployment.image import run
from imagebuilder import contents
from images.built import entered, folder_of, mounted
from images.guest import HERE, booted, config_drive, user_data
from images.guest import MACS as GUEST_MACS
from served import served

from orchestrator.cloud.base import Vnf, VnfOrder, VnfState

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

IMAGE, INSTANCE, NAME = "firewall-vnf", "9a2c1f6e-6d0c-4a57-9b64-0d5b9b1c4f11", "pop1-0"


@pytest.fixture(scope="module")
def folder() -> Path:
    return folder_of(IMAGE)


@pytest.fixture(scope="module")
def root(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with mounted(folder / f"{IMAGE}.qcow2", tmp_path_factory.mktemp("mounted")) as found:
        yield found


@pytest.fixture(scope="module")
def inside(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with entered(root, tmp_path_factory.mktemp("entered")) as found:
        yield found


def test_what_is_in_it_is_what_its_list_says(folder: Path, root: Path) -> None:
    document = json.loads((folder / f"{IMAGE}.contents.json").read_text())
    found = contents.read(root)
    assert found.digest == document["root_sha256"]
    assert dict(found.packages) == document["packages"]
    assert contents.faults(found) == []
    assert {"nftables", "iptables", "cloud-init", "openssh-server", "libbpf1"} <= found.packages.keys()
    assert {"aclflow", "numpy", "cryptography"} <= found.python.keys()
    sums = dict(line.split()[::-1] for line in (folder / "SHA256SUMS").read_text().splitlines())
    for name in (f"{IMAGE}.qcow2", f"{IMAGE}.contents.json", f"{IMAGE}.files.gz"):
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == sums[name]


def test_it_has_what_the_units_ask_for_and_runs_it(root: Path, inside: Path) -> None:
    assert run("chroot", str(inside), "/opt/aclflow/bin/aclflow", "--version").startswith("aclflow ")
    for unit in ("aclflow-agent", "aclflow-controller"):
        assert (root / f"etc/systemd/system/{unit}.service").is_file()
        assert not list((root / "etc/systemd/system").glob(f"*.wants/{unit}.service"))
    kernels = [*root.glob("opt/aclflow-*/lib/python3.11/site-packages/orchestrator/enforce/drivers/bpf/*.bpf.o")]
    assert {path.name for path in kernels} == {"flowcache.bpf.o", "classifier.bpf.o"}
    assert "aclflow:x:" in (root / "etc/passwd").read_text()


def test_nobody_logs_in_by_a_password_and_nothing_is_forwarded(root: Path, inside: Path) -> None:
    shadow = [line.split(":") for line in (root / "etc/shadow").read_text().splitlines()]
    assert all(re.match(r"[*!]", secret) for _, secret, *_ in shadow), shadow
    run("chroot", str(inside), "ssh-keygen", "-A")
    (inside / "run/sshd").mkdir(parents=True, exist_ok=True)
    effective = run("chroot", str(inside), "/usr/sbin/sshd", "-T").lower()
    assert "passwordauthentication no" in effective
    assert "kbdinteractiveauthentication no" in effective
    assert "permitrootlogin without-password" in effective
    assert "net.ipv4.ip_forward = 0" in (root / "etc/sysctl.d/60-aclflow.conf").read_text()


class Sky:
    """A cloud that has the machine in the group `fleet`."""

    kind = "test"

    def list(self, fleet: str | None = None) -> tuple[Vnf, ...]:
        there = Vnf("fleet", NAME, VnfState.RUNNING, instance_id=INSTANCE, addresses=("127.0.0.1",))
        return (there,) if fleet in (None, there.fleet) else ()

    def create(self, orders: Sequence[VnfOrder]) -> None:
        raise NotImplementedError

    def delete(self, fleet: str, names: Sequence[str]) -> None:
        """Nobody is deleted."""

    def close(self) -> None:
        """Nothing is open."""


def test_it_boots_enrols_and_enforces_with_nothing_but_what_heat_gives_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.bootstrap.open_cloud", lambda _: Sky())
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key"))
    state = tmp_path / "service"
    state.mkdir()
    with served(state, tls=True, tls_names=HERE, cloud=tmp_path / "cloud.yaml") as here, here.client() as admin:
        admin.create_domain("pop1")
        wanted = admin.add_firewall("pop1", NAME, "nftables")
        said = {
            "enrol_token": admin.invite_group("pop1", "fleet", kind="nftables").token,
            "service_url": here.url.replace("127.0.0.1", HERE),
            "plane": "nftables",
            "report_every": "1",
            "left_port": GUEST_MACS["left"],
            "right_port": GUEST_MACS["right"],
        }
        key = (tmp_path / "key.pub").read_text().strip()
        user = user_data("firewall-vnf.yaml", said)
        drive = config_drive(tmp_path, instance=INSTANCE, name=NAME, user=user, key=key)
        image = folder / f"{IMAGE}.qcow2"
        with booted(image, drive, tmp_path, ssh_port=_free_port(), key=tmp_path / "key") as guest:
            guest.until(lambda: any(each.name == NAME for each in admin.enforcers("pop1")), "that its agent enrols")
            guest.until(lambda: admin.wait_enforced("pop1", wanted).done, "that it was read back")
            assert guest.ssh("sudo", "nft", "list", "tables").stdout.count("aclflow") >= 1
            assert guest.ssh("cat", "/proc/sys/net/ipv4/ip_forward").stdout.strip() == "1"
            names = guest.ssh("ls", "/sys/class/net").stdout.split()
            assert {"left", "right"} <= set(names)
            refused = guest.ssh(
                "true", options=("-o", "PubkeyAuthentication=no", "-o", "PreferredAuthentications=password")
            )
            assert "Permission denied (publickey)" in refused.stderr
            failed = guest.ssh("systemctl", "--failed", "--no-legend", "--plain").stdout
            assert failed.strip() == ""


def _free_port() -> int:
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        return int(asked.getsockname()[1])
