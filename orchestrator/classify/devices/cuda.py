"""CUDA devices through cuda-core: programs are compiled by NVRTC for the device that runs them.

NVRTC needs neither device nor driver, so `compile_for` works wherever its library is.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np

from orchestrator.classify.devices.device import Launch, Limits
from orchestrator.classify.devices.tables import U32
from orchestrator.errors import Missing, Refused, TooLarge
from orchestrator.extras import needs_extra

_CONSTANT = b"constant_rows"
"""The name of the rows in constant memory, which are the module's own."""


def cuda_devices() -> tuple[CudaDevice, ...]:
    """All CUDA devices of this machine.

    Raises Missing where the library or the driver is not there.
    """
    cuda = cuda_library()
    try:
        found = cuda.Device.get_all_devices()
    except (RuntimeError, cuda.Error) as error:
        raise Missing(f"CUDA finds no device: {str(error).splitlines()[0]}") from None
    return tuple(CudaDevice(device) for device in found)


def compile_for(source: str, architecture: str) -> bytes:
    """The models as code for an architecture (`sm_90`).

    Raises Missing and Refused with what the compiler said.
    """
    cuda = cuda_library()
    options = cuda.ProgramOptions(name="aclflow", arch=architecture, std="c++17")
    with _translate_errors(cuda, f"the models do not compile for {architecture}"):
        return bytes(cuda.Program(source, "c++", options).compile("cubin").code)


@functools.cache
def cuda_library() -> Any:
    """Import the used parts of cuda-core and of the driver's bindings."""
    with needs_extra("cuda", "a CUDA device"):
        from cuda import core  # noqa: PLC0415 -- optional
        from cuda.bindings import driver  # noqa: PLC0415 -- optional
        from cuda.core._utils.cuda_utils import CUDAError  # noqa: PLC0415 -- has no public name
    names = [
        "Device",
        "LaunchConfig",
        "LegacyPinnedMemoryResource",
        "ObjectCode",
        "Program",
        "ProgramOptions",
        "launch",
    ]
    return SimpleNamespace(driver=driver, Error=CUDAError, **{name: getattr(core, name) for name in names})


@functools.cache
def nvml_library() -> Any:
    """Load NVML, which comes with NVIDIA's driver; None where it is not there."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    return None if library.nvmlInit_v2() else library


class CudaDevice:
    """One GPU."""

    library = "cuda"
    is_accelerator = True

    def __init__(self, device: Any) -> None:
        self.cuda = cuda_library()
        self.device = device
        self._built: dict[str, CudaProgram] = {}
        with _translate_errors(self.cuda, "a device says nothing of itself"):
            device.set_current()
            self.name = str(device.name)
            memory = self.done(self.cuda.driver.cuDeviceTotalMem(device.device_id))
            says = device.properties
            self.limits = Limits(
                memory_bytes=int(memory),
                constant_bytes=says.total_constant_memory,
                local_bytes=says.max_shared_memory_per_block,
                group_items=says.max_threads_per_block,
                units=says.multiprocessor_count,
            )
            self._stream = device.create_stream()

    def read_joules(self) -> float | None:
        """See `Device.read_joules`: NVML's counter of the board's energy."""
        library, handle, millijoules = nvml_library(), ctypes.c_void_p(), ctypes.c_ulonglong()
        if library is None:
            return None
        place = str(self.device.pci_bus_id).encode()
        if library.nvmlDeviceGetHandleByPciBusId_v2(place, ctypes.byref(handle)):
            return None
        if library.nvmlDeviceGetTotalEnergyConsumption(handle, ctypes.byref(millijoules)):
            return None
        return millijoules.value / 1e3

    def build(self, source: str) -> CudaProgram:
        """See `Device.build`."""
        if source not in self._built:
            code = compile_for(source, f"sm_{self.device.arch}")
            with self.activate_device("does not load the models"):
                self._built[source] = CudaProgram(self, code)
        return self._built[source]

    def store(self, words: U32) -> CudaMemory:
        """See `Device.store`."""
        sent = np.ascontiguousarray(words)
        arrived = np.empty_like(sent)
        driver = self.cuda.driver
        with self.activate_device(f"does not keep a table of {words.nbytes:,} bytes"):
            memory = CudaMemory(self.allocate_memory(words.nbytes), words.nbytes)
            self.done(driver.cuMemcpyHtoD(memory.buffer.handle, sent.ctypes.data, sent.nbytes))
            self.done(driver.cuMemcpyDtoH(arrived.ctypes.data, memory.buffer.handle, sent.nbytes))
        if not np.array_equal(sent, arrived):
            raise Refused(f"{self.name} gives back another table than it was given")
        return memory

    def lane(self, words: int, answers: int) -> CudaLane:
        """See `Device.lane`."""
        with self.activate_device(f"has no room for batches of {4 * words:,} bytes"):
            return CudaLane(self, words, answers)

    def allocate_memory(self, nbytes: int) -> Any:
        """Memory of the device, there when this returns."""
        buffer = self.device.allocate(max(4, nbytes), stream=self._stream)
        self._stream.sync()
        return buffer

    def done(self, answer: tuple[Any, ...]) -> Any:
        """The result of a call of the driver. Raises TooLarge and Refused."""
        error, *results = answer
        if error != self.cuda.driver.CUresult.CUDA_SUCCESS:
            kind = TooLarge if error == self.cuda.driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY else Refused
            raise kind(f"{self.name}: {error.name}")
        return results[0] if results else None

    @contextmanager
    def activate_device(self, what: str) -> Iterator[None]:
        """Make the device this thread's current one during the block."""
        with _translate_errors(self.cuda, f"{self.name} {what}"):
            self.cuda.Device(self.device.device_id).set_current()  # a device object belongs to one thread
            yield


class CudaMemory:
    """A buffer of a device, or None for rows in constant memory."""

    def __init__(self, buffer: Any, nbytes: int) -> None:
        self.buffer, self.nbytes = buffer, nbytes


class CudaProgram:
    """The models, loaded.

    Rows in constant memory belong to a module, so each set of them gets one of its own.
    """

    def __init__(self, device: CudaDevice, code: bytes) -> None:
        self._device, self._code = device, code
        self._object = device.cuda.ObjectCode.from_cubin(code)
        self.kernel = functools.cache(self._object.get_kernel)

    def with_constant(self, words: U32) -> tuple[CudaProgram, CudaMemory]:
        """See `Program.with_constant`."""
        device, driver = self._device, self._device.cuda.driver
        with device.activate_device("does not keep rows in constant memory"):
            program = CudaProgram(device, self._code)
            program.kernel("data_parallel_constant")  # loads the module
            answer = driver.cuLibraryGetGlobal(program._object.handle, _CONSTANT)
            if answer[0] == driver.CUresult.CUDA_SUCCESS and answer[2] < words.nbytes:
                raise TooLarge(f"{device.name}: {answer[2]:,} bytes of constant memory, {words.nbytes:,} of rows")
            device.done(answer)
            sent = np.ascontiguousarray(words)
            device.done(driver.cuMemcpyHtoD(answer[1], sent.ctypes.data, sent.nbytes))
        return program, CudaMemory(None, words.nbytes)


class CudaLane:
    """A stream with page-locked memory."""

    def __init__(self, device: CudaDevice, words: int, answers: int) -> None:
        self._device = device
        self._stream = device.device.create_stream()
        pinned = device.cuda.LegacyPinnedMemoryResource()
        self._kept = [pinned.allocate(4 * words), pinned.allocate(4 * answers)]
        self.packets, self.found = (_words(int(each.handle), each.size) for each in self._kept)
        self._packets, self._found = device.allocate_memory(4 * words), device.allocate_memory(4 * answers)

    def send(self, words: int) -> None:
        """See `Lane.send`."""
        with self._device.activate_device("takes no packets"):
            driver, stream = self._device.cuda.driver, self._stream.handle
            data = self.packets.ctypes.data
            self._device.done(driver.cuMemcpyHtoDAsync(self._packets.handle, data, 4 * words, stream))

    def launch(self, program: CudaProgram, launch: Launch, room: int, count: int) -> None:
        """See `Lane.launch`."""
        more = [argument for argument in map(_pass_argument, launch.arguments) if argument is not None]
        own = (self._packets, np.uint32(room), np.uint32(count), self._found)
        with self._device.activate_device(f"does not run {launch.kernel}"):
            cuda = self._device.cuda
            config = cuda.LaunchConfig(grid=(launch.groups, launch.layers), block=launch.items)
            cuda.launch(self._stream, config, program.kernel(launch.kernel), *own, *more)

    def fetch(self, answers: int) -> None:
        """See `Lane.fetch`."""
        with self._device.activate_device("gives no answers"):
            driver, stream = self._device.cuda.driver, self._stream.handle
            data = self.found.ctypes.data
            self._device.done(driver.cuMemcpyDtoHAsync(data, self._found.handle, 4 * answers, stream))

    def wait(self) -> None:
        """See `Lane.wait`."""
        with self._device.activate_device("does not end its work"):
            self._stream.sync()


def _words(address: int, nbytes: int) -> U32:
    """Memory of this end as words; whoever has them keeps what allocated it."""
    return np.frombuffer(memoryview((ctypes.c_uint8 * nbytes).from_address(address)), np.uint32)


def _pass_argument(argument: CudaMemory | int) -> Any:
    return np.uint32(argument) if isinstance(argument, int) else argument.buffer


@contextmanager
def _translate_errors(cuda: Any, what: str) -> Iterator[None]:
    """Raises TooLarge or Refused for what the library raises."""
    try:
        yield
    except MemoryError:
        raise TooLarge(f"{what}: no memory") from None
    except (RuntimeError, cuda.Error) as error:
        said = str(error).strip("\0\n ")
        raise (TooLarge if "OUT_OF_MEMORY" in said else Refused)(f"{what}: {said}") from None
