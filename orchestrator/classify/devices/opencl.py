"""OpenCL devices through pyopencl: GPUs, and processors through PoCL."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from orchestrator.classify.devices.device import Launch, Limits
from orchestrator.classify.devices.tables import U32
from orchestrator.errors import Missing, Refused, TooLarge
from orchestrator.extras import needs_extra

PACKAGE_ENERGY = Path("/sys/class/powercap/intel-rapl:0/energy_uj")
"""Microjoules that the processor's first package used; few virtual machines have it."""

_NO_ROOM = ("MEM_OBJECT_ALLOCATION_FAILURE", "OUT_OF_RESOURCES", "OUT_OF_HOST_MEMORY", "INVALID_BUFFER_SIZE")


def opencl_devices() -> tuple[OpenClDevice, ...]:
    """All OpenCL devices of this machine.

    Raises Missing where the library is not there, or finds no platform.
    """
    cl = opencl_library()
    try:
        found = [device for platform in cl.get_platforms() for device in platform.get_devices()]
    except cl.Error as error:
        raise Missing(f"OpenCL finds no device: {error}") from None
    return tuple(OpenClDevice(device) for device in found)


def opencl_library() -> Any:
    """Return pyopencl. Raises Missing where it cannot be imported."""
    with needs_extra("opencl", "an OpenCL device"):
        import pyopencl  # noqa: PLC0415 -- optional
    return pyopencl


class OpenClDevice:
    """One device of a platform."""

    library = "opencl"

    def __init__(self, device: Any) -> None:
        self._cl = opencl_library()
        self._device = device
        self._built: dict[str, OpenClProgram] = {}
        self.name = f"{device.name.strip()} ({device.platform.name.strip()})"
        self.is_accelerator = not device.type & self._cl.device_type.CPU
        self.limits = Limits(
            memory_bytes=min(device.global_mem_size, device.max_mem_alloc_size),
            constant_bytes=device.max_constant_buffer_size,
            local_bytes=device.local_mem_size,
            group_items=device.max_work_group_size,
            units=device.max_compute_units,
        )

    @functools.cached_property
    def _context(self) -> Any:
        with _translate_errors(self._cl, f"{self.name} gives no context"):
            return self._cl.Context([self._device])

    @functools.cached_property
    def queue(self) -> Any:
        """For tables; lanes have queues of their own."""
        with _translate_errors(self._cl, f"{self.name} gives no queue"):
            return self._cl.CommandQueue(self._context)

    def read_joules(self) -> float | None:
        """See `Device.read_joules`: that of the processor's package, by Linux's powercap."""
        with suppress(OSError, ValueError):
            return None if self.is_accelerator else int(PACKAGE_ENERGY.read_text()) / 1e6
        return None

    def build(self, source: str) -> OpenClProgram:
        """See `Device.build`."""
        if source not in self._built:
            with _translate_errors(self._cl, f"{self.name} does not compile the models"):
                program = self._cl.Program(self._context, source).build(options=["-cl-std=CL1.2"])
                self._built[source] = OpenClProgram(self, program)
        return self._built[source]

    def store(self, words: U32) -> OpenClMemory:
        """See `Device.store`."""
        if words.nbytes > self.limits.memory_bytes:
            raise TooLarge(f"{self.name}: a table of {words.nbytes:,} bytes; {self.limits.memory_bytes:,} fit")
        cl = self._cl
        with _translate_errors(cl, f"{self.name} does not keep a table of {words.nbytes:,} bytes"):
            memory = OpenClMemory(self._make_buffer(words.nbytes), words.nbytes)
            cl.enqueue_copy(self.queue, memory.buffer, np.ascontiguousarray(words))
            arrived = np.empty_like(words, order="C")
            cl.enqueue_copy(self.queue, arrived, memory.buffer)
        if not np.array_equal(words, arrived):
            raise Refused(f"{self.name} gives back another table than it was given")
        return memory

    def lane(self, words: int, answers: int) -> OpenClLane:
        """See `Device.lane`."""
        with _translate_errors(self._cl, f"{self.name} has no room for batches of {4 * words:,} bytes"):
            return OpenClLane(self._cl, self._context, self._make_buffer, words, answers)

    def _make_buffer(self, nbytes: int) -> Any:
        return self._cl.Buffer(self._context, self._cl.mem_flags.READ_WRITE, max(4, nbytes))


class OpenClMemory:
    """A buffer of a device."""

    def __init__(self, buffer: Any, nbytes: int) -> None:
        self.buffer, self.nbytes = buffer, nbytes


class OpenClProgram:
    """The models, compiled for a device."""

    def __init__(self, device: OpenClDevice, program: Any) -> None:
        self._cl = opencl_library()
        self._device, self._program = device, program

    def kernel(self, name: str) -> Any:
        """A kernel with arguments of its own: kernels keep theirs, so lanes share none."""
        return self._cl.Kernel(self._program, name)

    def with_constant(self, words: U32) -> tuple[OpenClProgram, OpenClMemory]:
        """See `Program.with_constant`."""
        limit = self._device.limits.constant_bytes
        if words.nbytes > limit:
            raise TooLarge(f"{self._device.name}: {limit:,} bytes of constant memory, {words.nbytes:,} of rows")
        return self, self._device.store(words)


class OpenClLane:
    """A queue with pinned memory, which is mapped for as long as the lane lives."""

    def __init__(self, cl: Any, context: Any, buffer: Callable[[int], Any], words: int, answers: int) -> None:
        self._cl = cl
        self.queue = cl.CommandQueue(context)
        self._packets, self._found = buffer(4 * words), buffer(4 * answers)
        self.packets, self.found = self._pin_memory(context, words), self._pin_memory(context, answers)
        self._kernels: dict[tuple[int, str], tuple[OpenClProgram, Any]] = {}

    def _pin_memory(self, context: Any, words: int) -> U32:
        cl = self._cl
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR
        host = cl.Buffer(context, flags, 4 * words)
        access = cl.map_flags.READ | cl.map_flags.WRITE
        mapped, _ = cl.enqueue_map_buffer(self.queue, host, access, 0, (words,), np.uint32)
        return np.asarray(mapped)

    def send(self, words: int) -> None:
        """See `Lane.send`."""
        with _translate_errors(self._cl, "the device takes no packets"):
            self._cl.enqueue_copy(self.queue, self._packets, self.packets[:words], is_blocking=False)

    def launch(self, program: OpenClProgram, launch: Launch, room: int, count: int) -> None:
        """See `Lane.launch`."""
        own = (self._packets, np.uint32(room), np.uint32(count), self._found)
        sizes = (launch.groups * launch.items, launch.layers), (launch.items, 1)
        with _translate_errors(self._cl, f"the device does not run {launch.kernel}"):
            kernel = self._find_kernel(program, launch.kernel)
            kernel.set_args(*own, *map(_pass_argument, launch.arguments))
            self._cl.enqueue_nd_range_kernel(self.queue, kernel, *sizes)

    def _find_kernel(self, program: OpenClProgram, name: str) -> Any:
        key = (id(program), name)
        if key not in self._kernels:
            self._kernels[key] = program, program.kernel(name)
        return self._kernels[key][1]

    def fetch(self, answers: int) -> None:
        """See `Lane.fetch`."""
        with _translate_errors(self._cl, "the device gives no answers"):
            self._cl.enqueue_copy(self.queue, self.found[:answers], self._found, is_blocking=False)
            self.queue.flush()

    def wait(self) -> None:
        """See `Lane.wait`."""
        with _translate_errors(self._cl, "the device does not end its work"):
            self.queue.finish()


def _pass_argument(argument: OpenClMemory | int) -> Any:
    return np.uint32(argument) if isinstance(argument, int) else argument.buffer


@contextmanager
def _translate_errors(cl: Any, what: str) -> Iterator[None]:
    """Raises TooLarge or Refused for what the library raises."""
    try:
        yield
    except MemoryError:
        raise TooLarge(f"{what}: no memory") from None
    except cl.Error as error:
        if any(word in str(error) for word in _NO_ROOM):
            raise TooLarge(f"{what}: {error}") from None
        raise Refused(f"{what}: {error}") from None
