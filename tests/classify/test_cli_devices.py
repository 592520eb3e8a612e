"""`aclflow devices` and `aclflow replay --device`: what there is, what is missing, and the same answer everywhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from classify.recorded import V4, V6, ethernet, icmp, ipv4, ipv6, pcap, tcp, udp, web
from command_line import aclflow
from models_world import pocl

from orchestrator.classify.devices import choice
from orchestrator.classify.devices.opencl import OpenClLane
from orchestrator.errors import Missing, Refused

FRAMES = [
    web(), web(port=22), web(port=25), ethernet(0x0806, bytes(28)), ethernet(V4, ipv4(17, udp())),
    ethernet(V6, ipv6(6, tcp(destination=443))), ethernet(V4, ipv4(1, icmp())),
]  # fmt: skip


@pytest.fixture
def replay(tmp_path: Path) -> list[str]:
    rules = [
        {"id": "web", "action": "permit", "protocol": "tcp", "destination_ports": ["80", "443-444"]},
        {"id": "ping", "action": "permit", "protocol": "icmp"},
    ]
    (tmp_path / "new.json").write_text(json.dumps({"rules": rules}))
    (tmp_path / "day.pcap").write_bytes(pcap(FRAMES))
    return ["replay", str(tmp_path / "day.pcap"), "--acl", str(tmp_path / "new.json")]


@pytest.fixture
def _pocl_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> tuple[()]:
        raise Missing("CUDA finds no device")

    device = pocl()
    monkeypatch.setattr(choice, "LIBRARIES", {"cuda": none, "opencl": lambda: (device,)})


@pytest.mark.usefixtures("_pocl_alone")
def test_lists_devices_and_what_is_missing() -> None:
    ended = aclflow("devices")
    name, limits = pocl().name, pocl().limits
    assert ended.out.splitlines() == [
        "device\tname\tunits\tmemory MiB",
        "c\tthis machine's processor\t\t",
        f"opencl:0\t{name}\t{limits.units}\t{limits.memory_bytes >> 20}",
    ]
    assert "cuda: CUDA finds no device" in ended.err
    document = json.loads(aclflow("devices", "--json").out)
    assert document["missing"] == {"cuda": "CUDA finds no device"}
    assert [each["device"] for each in document["devices"]] == ["opencl:0"]


@pytest.mark.usefixtures("_pocl_alone")
def test_a_replay_on_a_device_says_what_one_in_c_says(replay: list[str]) -> None:
    in_c = aclflow(*replay)
    for device in ("opencl", "opencl:0", "auto"):
        on_device = aclflow(*replay, "--device", device)
        assert (on_device.code, on_device.out, on_device.err) == (0, in_c.out, in_c.err)


@pytest.mark.usefixtures("_pocl_alone")
def test_a_replay_on_a_device_that_fails_says_so_and_ends_in_c(
    replay: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(lane: OpenClLane, *_: object) -> None:
        raise Refused("the device is lost")

    monkeypatch.setattr(OpenClLane, "wait", lost)
    ended = aclflow(*replay, "--device", "opencl")
    assert ended.out == aclflow(*replay).out
    assert "opencl: the device is lost" in ended.err


@pytest.mark.usefixtures("_pocl_alone")
def test_devices_that_are_not_there(replay: list[str]) -> None:
    for name, code, said in (
        ("gpu", 2, "names no device"),
        ("cuda", 3, "finds no device"),
        ("opencl:7", 3, "numbered"),
    ):
        ended = aclflow(*replay, "--device", name)
        assert ended.code == code
        assert said in ended.err
