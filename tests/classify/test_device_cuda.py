"""The CUDA back end over a driver that is PoCL's: what it copies, launches and frees, without a GPU.

The driver below keeps memory by its address, as CUDA's does, and runs a kernel by giving PoCL the same arguments. So
the order of arguments, the shape of grids, rows in constant memory and errors are tried where no GPU is. Whether CUDA C
computes the same as OpenCL C is tried where there is one (`test_device_faults.py`).
"""

# ruff: noqa: N802 -- names of the driver's functions

from __future__ import annotations

import ctypes
import enum
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from models_world import SETUPS, disagreements, many, pocl, tricky

from orchestrator.classify.devices import cuda
from orchestrator.classify.devices.cuda import CudaDevice, cuda_devices
from orchestrator.classify.devices.devicesearch import DeviceSearch, Setup
from orchestrator.classify.devices.models import Model
from orchestrator.errors import Missing, Refused, TooLarge
from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Direction
from orchestrator.policy.rulelist import rule_rows

CUresult = enum.Enum("CUresult", ["CUDA_SUCCESS", "CUDA_ERROR_OUT_OF_MEMORY", "CUDA_ERROR_INVALID_VALUE"])
DONE = CUresult.CUDA_SUCCESS
CONSTANT_BYTES = 65_536


class CudaError(Exception):
    """What cuda-core raises."""


class Buffer:
    """Memory with an address."""

    def __init__(self, size: int) -> None:
        self.kept = np.zeros(-(-size // 4), np.uint32)
        self.handle, self.size = self.kept.ctypes.data, size


class Driver:
    """Copies by address."""

    CUresult = CUresult

    def __init__(self) -> None:
        self.failing: dict[str, CUresult] = {}
        self.lost_bit = False

    def _copy(self, name: str, into: int, out_of: int, size: int) -> tuple[CUresult]:
        if name in self.failing:
            return (self.failing[name],)
        ctypes.memmove(into, out_of, size)
        return (DONE,)

    def cuMemcpyHtoD(self, into: int, out_of: int, size: int) -> tuple[CUresult]:
        return self._copy("HtoD", into, out_of, size)

    def cuMemcpyDtoH(self, into: int, out_of: int, size: int) -> tuple[CUresult]:
        done = self._copy("DtoH", into, out_of, size)
        if self.lost_bit:
            ctypes.c_uint8.from_address(into).value ^= 1
        return done

    def cuMemcpyHtoDAsync(self, into: int, out_of: int, size: int, stream: str) -> tuple[CUresult]:
        assert stream == "stream"
        return self._copy("HtoDAsync", into, out_of, size)

    def cuMemcpyDtoHAsync(self, into: int, out_of: int, size: int, stream: str) -> tuple[CUresult]:
        assert stream == "stream"
        return self._copy("DtoHAsync", into, out_of, size)

    def cuDeviceTotalMem(self, number: int) -> tuple[CUresult, int]:
        assert number == 0
        return DONE, 1 << 30

    def cuLibraryGetGlobal(self, library: ObjectCode, name: bytes) -> tuple[CUresult, int, int]:
        assert name == b"constant_rows"
        return DONE, library.constant.handle, library.constant.size


class ObjectCode:
    """A loaded program: its source for PoCL, and its own constant memory."""

    def __init__(self, code: bytes) -> None:
        self.program = pocl().build(code.decode())
        self.constant = Buffer(CONSTANT_BYTES)
        self.handle = self

    @classmethod
    def from_cubin(cls, code: bytes) -> ObjectCode:
        return cls(code)

    def get_kernel(self, name: str) -> tuple[ObjectCode, str]:
        return self, name


def launch(stream: Any, config: Any, kernel: tuple[ObjectCode, str], *given: Any) -> None:
    """Run a kernel of PoCL with copies of the buffers that it is given, and copy them back."""
    cl: Any = __import__("pyopencl")
    (code, name), queue = kernel, pocl().queue  # type: ignore[attr-defined]
    arguments = list(given)
    if name == "data_parallel_constant":  # CUDA has these rows under a name, OpenCL is given them
        arguments.insert(4, code.constant)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    copies = {
        place: cl.Buffer(queue.context, flags, hostbuf=each.kept)
        for place, each in enumerate(arguments) if isinstance(each, Buffer)
    }  # fmt: skip
    sizes = (config.grid[0] * config.block, config.grid[1]), (config.block, 1)
    made = code.program.kernel(name)
    made.set_args(*(copies.get(place, each) for place, each in enumerate(arguments)))
    cl.enqueue_nd_range_kernel(queue, made, *sizes)
    for place, copy in copies.items():
        cl.enqueue_copy(queue, arguments[place].kept, copy)


class Stream:
    handle = "stream"

    def sync(self) -> None:
        """Everything is done when it is asked."""


class Device:
    """One GPU, current in a thread that said so."""

    name, arch, device_id, pci_bus_id = "a GPU of the tests", "90", 0, "0000:1B:00.0"
    properties = SimpleNamespace(
        total_constant_memory=CONSTANT_BYTES, max_shared_memory_per_block=49_152, max_threads_per_block=1024,
        multiprocessor_count=132,
    )  # fmt: skip
    full = False

    def __init__(self, number: int = 0) -> None:
        assert number == 0

    @classmethod
    def get_all_devices(cls) -> tuple[Device, ...]:
        return (cls(0),)

    def set_current(self) -> None:
        """Nothing to be done."""

    def create_stream(self) -> Stream:
        return Stream()

    def allocate(self, size: int, *, stream: Stream) -> Buffer:
        if Device.full:
            raise CudaError("CUDA_ERROR_OUT_OF_MEMORY: The API call failed")
        return Buffer(size)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    """A machine with one GPU, which is PoCL."""
    pocl()
    driver = Driver()
    library = SimpleNamespace(
        driver=driver, Error=CudaError, Device=Device, ObjectCode=ObjectCode, launch=launch,
        LaunchConfig=lambda *, grid, block: SimpleNamespace(grid=grid, block=block),
        LegacyPinnedMemoryResource=lambda: SimpleNamespace(allocate=Buffer),
    )  # fmt: skip
    monkeypatch.setattr(cuda, "cuda_library", lambda: library)
    monkeypatch.setattr(cuda, "compile_for", lambda source, architecture: source.encode())
    monkeypatch.setattr(Device, "full", False)
    return driver


def device() -> CudaDevice:
    (found,) = cuda_devices()
    return found


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("setup", SETUPS, ids=lambda setup: setup.model.value)
def test_a_model_names_the_row_of_the_oracle(setup: Setup) -> None:
    assert disagreements(device(), tricky(), setup) == []


@pytest.mark.usefixtures("driver")
def test_rows_in_constant_memory_are_those_of_their_own_search() -> None:
    gpu, setup = device(), Setup(Model.DATA_CONSTANT, items=16, room=48, lanes=2)
    assert disagreements(gpu, many(150), setup, [Family.IPV4]) == []
    rows = [[row.box for row in rule_rows(many(count), Direction.INGRESS)[Family.IPV4]] for count in (20, 40)]
    first, second = (DeviceSearch(gpu, Family.IPV4, boxes, setup) for boxes in rows)
    assert first.loaded is not None
    assert second.loaded is not None
    assert first.loaded.program is not second.loaded.program


@pytest.mark.usefixtures("driver")
def test_more_rows_than_constant_memory_holds() -> None:
    boxes = [row.box for row in rule_rows(many(2400), Direction.INGRESS)[Family.IPV4]]
    with pytest.raises(TooLarge, match=r"65,536 bytes of constant memory, 67,228 of rows"):
        DeviceSearch(device(), Family.IPV4, boxes, Setup(Model.DATA_CONSTANT, items=16, room=48))


def test_what_a_gpu_refuses(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, words = device(), np.arange(4, dtype=np.uint32)
    driver.lost_bit = True
    with pytest.raises(Refused, match="gives back another table"):
        gpu.store(words)
    driver.lost_bit, driver.failing["HtoD"] = False, CUresult.CUDA_ERROR_INVALID_VALUE
    with pytest.raises(Refused, match="CUDA_ERROR_INVALID_VALUE"):
        gpu.store(words)
    lane = gpu.lane(16, 16)
    for name, verb in (("HtoDAsync", lane.send), ("DtoHAsync", lane.fetch)):
        driver.failing = {name: CUresult.CUDA_ERROR_OUT_OF_MEMORY}
        with pytest.raises(TooLarge, match="OUT_OF_MEMORY"):
            verb(4)
    monkeypatch.setattr(Device, "full", True)
    for asked in (lambda: gpu.store(words), lambda: gpu.lane(16, 16)):
        with pytest.raises(TooLarge, match="OUT_OF_MEMORY"):
            asked()


class Nvml:
    """NVIDIA's management library, which counts in millijoules."""

    failing = ""

    def nvmlDeviceGetHandleByPciBusId_v2(self, place: bytes, handle: Any) -> int:
        assert place == b"0000:1B:00.0"
        ctypes.cast(handle, ctypes.POINTER(ctypes.c_void_p))[0] = 7
        return int(self.failing == "handle")

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: ctypes.c_void_p, told: Any) -> int:
        assert handle.value == 7
        ctypes.cast(told, ctypes.POINTER(ctypes.c_ulonglong))[0] = 2_500
        return int(self.failing == "energy")


@pytest.mark.usefixtures("driver")
def test_a_gpu_tells_its_energy_where_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = Nvml()
    monkeypatch.setattr(cuda, "nvml_library", lambda: nvml)
    assert device().read_joules() == 2.5
    for nvml.failing in ("handle", "energy"):
        assert device().read_joules() is None
    monkeypatch.setattr(cuda, "nvml_library", lambda: None)
    assert device().read_joules() is None


def test_a_driver_that_finds_no_gpu(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> tuple[Device, ...]:
        raise CudaError("CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected")

    monkeypatch.setattr(Device, "get_all_devices", fails)
    with pytest.raises(Missing, match="NO_DEVICE"):
        cuda_devices()
