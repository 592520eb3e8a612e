"""List devices, and choose one by name.

`auto`, `c`, `opencl`, `opencl:1`, `cuda` or `cuda:0`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from orchestrator.classify.devices.cuda import cuda_devices
from orchestrator.classify.devices.device import Device
from orchestrator.classify.devices.opencl import opencl_devices
from orchestrator.errors import BadInput, Missing, Refused

AUTO, C = "auto", "c"

LIBRARIES: Mapping[str, Callable[[], Sequence[Device]]] = MappingProxyType(
    {"cuda": cuda_devices, "opencl": opencl_devices}
)
"""In the order in which `auto` asks."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A library's devices, or why there are none."""

    library: str
    devices: tuple[Device, ...]
    missing: str | None


def list_devices() -> tuple[Listed, ...]:
    """The devices of each library."""
    found = []
    for library, devices in LIBRARIES.items():
        try:
            found.append(Listed(library, tuple(devices()), None))
        except (Missing, Refused) as error:
            found.append(Listed(library, (), str(error)))
    return tuple(found)


def choose_device(name: str, *, place: str = "--device") -> Device | None:
    """The device of a name; None means the C classifier.

    Raises BadInput for what is no name, Missing for what is not there. `auto` is the first CUDA device, else the
    first OpenCL device that is no processor, else C.
    """
    if name == C:
        return None
    if name == AUTO:
        return next((device for each in list_devices() for device in each.devices if device.is_accelerator), None)
    library, _, number = name.partition(":")
    if library not in LIBRARIES or (number and not number.isdecimal()) or name.endswith(":"):
        names = f"{AUTO}, {C}, opencl, cuda, or one of several as opencl:1"
        raise BadInput(f"'{name}' names no device; names are {names}", place=place)
    devices = LIBRARIES[library]()
    if int(number or 0) >= len(devices):
        raise Missing(f"{library} has {len(devices)} devices here, numbered from 0", place=place)
    return devices[int(number or 0)]
