"""Cores that poll a switch's uplink by AF_XDP: refusals, and commands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from orchestrator.errors import BadInput

POLLERS = "pmd-cpu-mask"
"""The switch's setting: the cores that poll ports, a bit each, in hexadecimal digits."""
AF_XDP = "afxdp"
"""The type of an interface of the machine that a core polls."""
_POLLABLE = ("", "system", AF_XDP, "afxdp-nonpmd")
"""Types of an interface that the kernel has, too."""
_MOST_CORES = 1024
"""A thread of the daemon can be bound to no core behind these (`cpu_set_t`)."""
_MOST_QUEUES = 16
"""Open vSwitch reads so many receive queues of an AF_XDP interface (`MAX_XSKQ`)."""
_LARGEST_MTU = 3_500
"""AF_XDP holds a frame in one page, beside what kernel and switch put before it."""


@dataclass(frozen=True, slots=True)
class Device:
    """An interface of the machine."""

    receive_queues: int
    mtu: int
    addresses: tuple[str, ...] = ()
    """Addresses by which others reach the machine there."""


@dataclass(frozen=True, slots=True)
class Uplink:
    """An uplink as the switch has it, and the machine's interface where there is one."""

    name: str
    type: str
    options: Mapping[str, str]
    device: Device | None


def check_cores(cores: Sequence[int]) -> None:
    """Raise BadInput where a number is no core's, or named twice."""
    for index, core in enumerate(cores):
        if not 0 <= core < _MOST_CORES:
            raise BadInput(f"core {core} is not in 0..{_MOST_CORES - 1}", place=f"polling_cores[{index}]")
        if core in cores[:index]:
            raise BadInput(f"core {core} is named twice", place=f"polling_cores[{index}]")


def refuse_polling(cores: Sequence[int], uplink: Uplink, interface_types: Set[str], online: Set[int]) -> str | None:
    """Return why these cores cannot poll an uplink and what to do, or None.

    `interface_types` are those that the switch can open, `online` the machine's cores.
    """
    lacking = sorted(set(cores) - online)
    if AF_XDP not in interface_types:
        return (
            "polling_cores: this Open vSwitch was built without AF_XDP (ovs-vsctl get Open_vSwitch . iface_types): "
            "install one that has it, as Debian 12's, or name no cores"
        )
    if lacking:
        return (
            f"polling_cores: the machine has no core {lacking[0]} that is online; it has "
            f"{', '.join(map(str, sorted(online)))}"
        )
    if uplink.type not in _POLLABLE:
        return (
            f"polling_cores: the uplink {uplink.name} has the type '{uplink.type}' in the switch, which AF_XDP would "
            "replace: name no cores, or clear its type first"
        )
    return _refuse_device(uplink.device, uplink.name) if uplink.device is not None else None


def _refuse_device(device: Device, uplink: str) -> str | None:
    """Return why AF_XDP would lose packets of an interface, or None."""
    if device.addresses:
        return (
            f"polling_cores: the uplink {uplink} has the machine's address {device.addresses[0]}, which nobody would "
            "reach any more, for AF_XDP keeps packets from the kernel: give the address to another interface, or name "
            "no cores"
        )
    if device.mtu > _LARGEST_MTU:
        return (
            f"polling_cores: the uplink {uplink} has an MTU of {device.mtu}, and AF_XDP loses frames over "
            f"{_LARGEST_MTU} bytes: give it a smaller one (ip link set {uplink} mtu 1500), or name no cores"
        )
    if device.receive_queues > _MOST_QUEUES:
        return (
            f"polling_cores: the uplink {uplink} has {device.receive_queues} receive queues, and Open vSwitch reads "
            f"{_MOST_QUEUES} at most: ethtool -L {uplink} combined 1 leaves one"
        )
    return None


def poll_uplink(cores: Sequence[int], uplink: Uplink, other_config: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """Yield the commands by which cores poll the uplink; nothing where they do so already.

    A receive queue that the switch does not read loses its packets to the kernel, so it reads all.
    """
    mask = sum(1 << core for core in cores)
    if _read_mask(other_config.get(POLLERS, "")) != mask:
        yield ("set", "Open_vSwitch", ".", f"other_config:{POLLERS}={mask:#x}")
    queues = str(uplink.device.receive_queues if uplink.device is not None else 1)
    changes = [f"type={AF_XDP}"] if uplink.type != AF_XDP else []
    if uplink.options.get("n_rxq") != queues:
        changes.append(f"options:n_rxq={queues}")
    if changes:
        yield ("set", "interface", uplink.name, *changes)


def _read_mask(text: str) -> int | None:
    """Return the cores of a mask, a bit each; None where it is not one."""
    try:
        return int(text, 16)
    except ValueError:
        return None
