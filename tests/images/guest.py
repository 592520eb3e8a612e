"""A machine under QEMU that boots an image, and the drive on which a cloud tells it who it is.

Its three networks are QEMU's own (user mode), so nothing of this machine's network is touched. What calls out from the
management network to 10.0.2.2 comes to this machine's loopback, from 127.0.0.1.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

HEAT = Path(__file__).parents[2] / "heat-templates"
HERE = "10.0.2.2"
"""What the guest calls this machine."""
MACS = {"management": "0a:00:00:00:05:01", "left": "0a:00:00:00:05:02", "right": "0a:00:00:00:05:03"}
_NETWORKS = {"management": "10.0.2.0/24", "left": "10.0.3.0/24", "right": "10.0.4.0/24"}
ACCELERATOR = os.environ.get("ACLFLOW_QEMU_ACCELERATOR", "tcg,thread=multi")
"""Software emulation works wherever QEMU does; `kvm` is faster where that works."""


def user_data(template: str, said: Mapping[str, str], resource: str = "server") -> str:
    """What a Heat template gives a server, with `said` in place of what Heat would look up, by parameter or port."""
    body = yaml.safe_load((HEAT / template).read_text(encoding="utf-8"))
    replacing = body["resources"][resource]["properties"]["user_data"]["str_replace"]
    text = _value(replacing["template"], said)
    for sign, looked_up in replacing["params"].items():
        text = text.replace(sign, _value(looked_up, said))
    assert re.search(r"@\w+@", text) is None, text
    return text


def _value(expression: Any, said: Mapping[str, str]) -> str:
    """What Heat makes of an expression of a template."""
    if isinstance(expression, str):
        return expression
    [(function, argument)] = expression.items()
    match function:
        case "get_param":
            name, *index = [argument] if isinstance(argument, str) else argument
            return said[name].split(",")[int(_value(index[0], said))] if index else said[name]
        case "get_attr":
            return said[argument[0]]
        case "get_file":
            return (HEAT / argument).read_text(encoding="utf-8")
        case "list_join":
            separator, parts = argument
            each = said[parts["get_param"]].split(",") if isinstance(parts, dict) else parts
            return str(separator).join(_value(one, said) for one in each)
        case "str_split":
            separator, text, index = argument
            return _value(text, said).split(separator)[index]
        case "if":
            condition, yes, no = argument
            kinds = {"kernel": ("routed", "segment"), "segment": ("segment",)}[condition]
            return _value(yes if said.get("uplink_kind") in kinds else no, said)
    raise AssertionError(expression)


def together(*texts: str) -> str:
    """Several machines' user data for one machine: all their files, then all their commands."""
    documents = [yaml.safe_load(text) for text in texts]
    merged = {key: [each for document in documents for each in document[key]] for key in ("write_files", "runcmd")}
    return "#cloud-config\n" + yaml.safe_dump(merged, sort_keys=False)


def config_drive(folder: Path, *, instance: str, name: str, user: str, key: str) -> Path:
    """The drive that Nova attaches with `config_drive: true`, as an ISO image."""
    latest = folder / "drive/openstack/latest"
    latest.mkdir(parents=True)
    links = [{"id": each, "type": "phy", "ethernet_mac_address": mac, "mtu": 1500} for each, mac in MACS.items()]
    networks = [{"id": each, "link": each, "type": "ipv4_dhcp", "network_id": each} for each in MACS]
    about: dict[str, Any] = {"uuid": instance, "name": name, "hostname": name, "public_keys": {"key": key}}
    for file, document in (
        ("meta_data.json", about),
        ("network_data.json", {"links": links, "networks": networks, "services": []}),
    ):
        (latest / file).write_text(json.dumps(document))
    (latest / "user_data").write_text(user)
    drive = folder / "drive.iso"
    command = [
        "xorriso",
        "-as",
        "mkisofs",
        "-quiet",
        "-V",
        "config-2",
        "-R",
        "-J",
        "-o",
        str(drive),
        str(folder / "drive"),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return drive


@dataclass(frozen=True)
class Guest:
    """A machine that runs."""

    folder: Path
    process: subprocess.Popen[bytes]
    ssh_port: int
    key: Path

    @property
    def console(self) -> str:
        """What it wrote to its serial line."""
        return (self.folder / "console.log").read_text(errors="replace")

    def until(self, done: Callable[[], bool], what: str, patience_s: float = 3000.0) -> None:
        """Wait for something, as long as the machine runs."""
        until = time.monotonic() + patience_s
        while not done():
            assert self.process.poll() is None, f"the machine ended: {self.console[-3000:]}"
            assert time.monotonic() < until, f"{what} did not come about: {self.console[-3000:]}"
            time.sleep(1.0)

    def ssh(self, *words: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        """A command inside, as the operator, whom it lets in by key."""
        known = ("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR")
        whom = (
            "-i",
            str(self.key),
            "-o",
            "BatchMode=yes",
            *known,
            *options,
            "-p",
            str(self.ssh_port),
            "debian@127.0.0.1",
        )
        return subprocess.run(["ssh", *whom, *words], capture_output=True, text=True, check=False, timeout=300)

    def reboot(self) -> None:
        """Begin anew; returns when the operator can log in again."""
        before = self._read_boot()
        self.ssh("sudo", "systemctl", "reboot")
        self.until(lambda: self._read_boot() not in ("", before), "that it boots again")

    def _read_boot(self) -> str:
        """What tells this boot from others; empty while nobody answers."""
        try:
            return self.ssh(
                "cat", "/proc/sys/kernel/random/boot_id", options=("-o", "ConnectTimeout=20")
            ).stdout.strip()
        except subprocess.TimeoutExpired:
            return ""


@contextmanager
def booted(image: Path, drive: Path, folder: Path, *, ssh_port: int, key: Path) -> Iterator[Guest]:
    """A machine from an image that stays as it is, for as long as the block runs."""
    networks = [
        word
        for name, mac in MACS.items()
        for word in ("-netdev", _network(name, ssh_port), "-device", f"virtio-net-pci,romfile=,netdev={name},mac={mac}")
    ]
    disks = [f"file={image},if=virtio,snapshot=on", f"file={drive},if=virtio,format=raw,readonly=on"]
    command = ["qemu-system-x86_64", "-accel", ACCELERATOR, "-cpu", "max", "-m", "1024", "-smp", "2"]
    command += [word for disk in disks for word in ("-drive", disk)]
    command += ["-display", "none", "-monitor", "none", "-serial", f"file:{folder}/console.log", *networks]
    with (folder / "qemu.log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield Guest(folder, process, ssh_port, key)
    finally:
        process.kill()
        process.wait(30)


def _network(name: str, ssh_port: int) -> str:
    more = f",hostfwd=tcp:127.0.0.1:{ssh_port}-:22" if name == "management" else ",restrict=on"
    return f"user,id={name},net={_NETWORKS[name]}{more}"
