"""Devices that are not there, that fail, and that lie: an error that says so, or the C classifier in their place."""

from __future__ import annotations

import re
import threading
from typing import Any

import numpy as np
import pytest
from models_world import SETUPS, many, nested, pocl, records
from plain_frames import unread

from orchestrator.classify.columns import columns
from orchestrator.classify.devices import choice, cuda, models, opencl
from orchestrator.classify.devices import devicesearch as searching
from orchestrator.classify.devices.cuda import compile_for, cuda_devices
from orchestrator.classify.devices.devicesearch import DeviceSearch, Setup, source
from orchestrator.classify.devices.guarded import GuardedSearch, Place
from orchestrator.classify.devices.models import Model, compile_rows
from orchestrator.classify.devices.opencl import OpenClDevice, OpenClLane, opencl_devices
from orchestrator.classify.devices.vectors import vectors_of
from orchestrator.classify.packets import PACKET, Unread
from orchestrator.errors import BadInput, Missing, Refused, TooLarge
from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Direction, Packet
from orchestrator.policy.protocols import TCP
from orchestrator.policy.rulelist import rule_rows
from orchestrator.policy.space import Box

SMALL = Setup(Model.BIT_VECTORS, items=16, room=48, lanes=2)
PACKETS = records([Packet(Family.IPV4, 10 << 24, 1, TCP, 9, port) for port in range(200)])


def boxes(count: int = 40) -> list[Box]:
    return [row.box for row in rule_rows(many(count), Direction.INGRESS)[Family.IPV4]]


def wanted(count: int = 40) -> list[int]:
    """Row r is about ports 2r to 4r + 1, so a port's first row is a quarter of it; the last row holds all."""
    return [min((port + 2) // 4, count) if port < 4 * count - 2 else count for port in range(200)]


@pytest.mark.parametrize("family", Family)
def test_the_models_compile_for_a_gpu(family: Family) -> None:
    code = compile_for(source(family), "sm_90")
    assert code.startswith(b"\x7fELF")
    for kernel in set(models.KERNELS.values()):
        assert kernel.encode() in code
    assert b"constant_rows" in code


def test_a_model_that_does_not_compile_for_a_gpu_is_refused_with_what_the_compiler_says() -> None:
    with pytest.raises(Refused, match=r"(?s)do not compile for sm_90.*expected a declaration"):
        compile_for("this is no program", "sm_90")


@pytest.mark.parametrize("setup", SETUPS, ids=lambda setup: setup.model.value)
def test_every_device_of_this_machine_names_the_right_rows(setup: Setup) -> None:
    """A GPU, where there is one, and PoCL, which is always there."""
    devices = {
        device.name: device for each in choice.list_devices() for device in each.devices if device.is_accelerator
    }
    for device in (*devices.values(), pocl()):
        assert DeviceSearch(device, Family.IPV4, boxes(), setup).first(PACKETS).tolist() == wanted(), device.name


def test_without_a_library_its_devices_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyopencl", None)
    with pytest.raises(Missing, match=r"aclflow\[opencl\]"):
        opencl_devices()
    monkeypatch.setitem(__import__("sys").modules, "cuda", None)
    cuda.cuda_library.cache_clear()
    with pytest.raises(Missing, match=r"aclflow\[cuda\]"):
        cuda_devices()


def test_names_of_devices() -> None:
    pocl()
    assert choice.choose_device("c") is None
    first = choice.choose_device("opencl:0")
    assert first is not None
    assert first.library == "opencl"
    for name in ("gpu", "opencl:", "opencl:x", "opencl:-1", "", "c:0", "auto:1"):
        with pytest.raises(BadInput, match="names no device"):
            choice.choose_device(name)
    with pytest.raises(Missing, match="numbered from 0"):
        choice.choose_device("opencl:99")


def test_auto_takes_no_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "LIBRARIES", {"opencl": lambda: (pocl(),)})
    assert choice.choose_device("auto") is None
    monkeypatch.setattr(pocl(), "is_accelerator", True)
    assert choice.choose_device("auto") is pocl()


def test_a_device_that_is_asked_for_and_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> tuple[()]:
        raise Missing("CUDA finds no device")

    monkeypatch.setattr(choice, "LIBRARIES", {"cuda": none})
    with pytest.raises(Missing, match="finds no device"):
        choice.choose_device("cuda")
    (listed,) = choice.list_devices()
    assert (listed.devices, listed.missing) == ((), "CUDA finds no device")
    assert choice.choose_device("auto") is None


@pytest.mark.parametrize(("items", "room"), [(0, 8), (48, 8), (2048, 8), (16, 0)])
def test_a_setup_that_cannot_be(items: int, room: int) -> None:
    with pytest.raises(BadInput):
        Setup(Model.HYBRID, items, room)
    with pytest.raises(BadInput, match="65,535 packets"):
        Setup(Model.FUNCTION_BATCHED, 16, 65_536)


def fall_back(search: GuardedSearch, reason: str) -> None:
    """Assert that C decides, and that it is said why."""
    assert search.first(PACKETS).tolist() == wanted()
    assert search.place.model is None
    assert re.search(reason, str(search.place.because), re.DOTALL)


def test_a_device_that_works_is_used() -> None:
    search = GuardedSearch(pocl(), Family.IPV4, boxes(), SMALL)
    assert search.first(PACKETS).tolist() == wanted()
    assert search.place == Place(Model.BIT_VECTORS)


def test_a_kernel_that_does_not_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "source", lambda f: source(f).replace("found[i] = first;", "found[i] = ;"))
    fall_back(GuardedSearch(pocl(), Family.IPV4, boxes(), SMALL), "does not compile the models.*expected expression")


def test_a_kernel_that_computes_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "source", lambda f: source(f).replace("found[i] = first;", "found[i] = first ^ 1;"))
    fall_back(GuardedSearch(pocl(), Family.IPV4, boxes(), SMALL), r"the device finds row 1 .* row 0 is the first")


def fresh() -> OpenClDevice:
    """The device of all tests, as nobody has used it yet."""
    return next(device for device in opencl_devices() if device.name == pocl().name)


def test_rows_larger_than_the_device() -> None:
    device = fresh()
    device.limits = device.limits.__class__(1 << 10, 1 << 10, 1 << 16, 4096, 2)
    fall_back(GuardedSearch(device, Family.IPV4, boxes(), SMALL), "bytes; 1,024 fit")
    with pytest.raises(TooLarge, match="1,024 bytes of constant memory"):
        DeviceSearch(device, Family.IPV4, boxes(), Setup(Model.DATA_CONSTANT, 16, 48))


def test_bit_vectors_that_are_too_large_give_way_to_tuples(monkeypatch: pytest.MonkeyPatch) -> None:
    made = columns(Family.IPV4, boxes())
    with pytest.raises(TooLarge, match="bit vectors of 41 rows"):
        vectors_of(made, most_words=100)
    monkeypatch.setattr(models, "vectors_of", lambda found: vectors_of(found, 100))
    search = GuardedSearch(pocl(), Family.IPV4, boxes())
    assert search.place.model is Model.MERGED_TUPLES
    assert "bit vectors of 41 rows" in str(search.place.because)
    assert search.first(PACKETS).tolist() == wanted()


def lie(patch: pytest.MonkeyPatch) -> None:
    """Have a driver that says that there is room, and has none."""

    def none(device: OpenClDevice, nbytes: int) -> Any:
        raise opencl.opencl_library().MemoryError("clCreateBuffer failed: MEM_OBJECT_ALLOCATION_FAILURE")

    patch.setattr(OpenClDevice, "_make_buffer", none)


def test_a_driver_that_lies_about_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    device = fresh()
    lie(monkeypatch)
    fall_back(GuardedSearch(device, Family.IPV4, boxes(), SMALL), "has no room for batches.*ALLOCATION_FAILURE")


def test_a_driver_that_gives_back_another_table(monkeypatch: pytest.MonkeyPatch) -> None:
    library = opencl.opencl_library()
    real = library.enqueue_copy

    def wrong(queue: Any, into: Any, out_of: Any, **more: Any) -> Any:
        done = real(queue, into, out_of, **more)
        if isinstance(into, np.ndarray) and not more:
            into.reshape(-1)[-1] ^= 1
        return done

    monkeypatch.setattr(library, "enqueue_copy", wrong)
    fall_back(GuardedSearch(pocl(), Family.IPV4, boxes(), SMALL), "gives back another table")


@pytest.mark.parametrize("verb", ["send", "launch", "fetch", "wait"])
def test_a_device_lost_in_the_middle_of_a_batch(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    search = GuardedSearch(pocl(), Family.IPV4, boxes(), SMALL)
    assert search.first(PACKETS[:100]).tolist() == wanted()[:100]
    real, calls = getattr(OpenClLane, verb), iter(range(1_000_000))

    def lost(lane: OpenClLane, *arguments: Any) -> None:
        if next(calls) == 2:
            raise Refused("the device is lost")
        real(lane, *arguments)

    monkeypatch.setattr(OpenClLane, verb, lost)
    fall_back(search, "the device is lost")


def test_the_device_is_tried_anew_with_other_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    search = GuardedSearch(pocl(), Family.IPV4, boxes(), SMALL)
    with monkeypatch.context() as patch:
        patch.setattr(OpenClLane, "launch", lambda *_: (_ for _ in ()).throw(Refused("the device is lost")))
        fall_back(search, "the device is lost")
        assert search.replace(boxes(30)).model is None
        assert search.first(PACKETS).tolist() == wanted(30)
    assert search.replace(boxes(20)) == Place(Model.BIT_VECTORS)
    assert search.first(PACKETS).tolist() == wanted(20)


def test_rows_that_do_not_fit_leave_the_old_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    search = DeviceSearch(pocl(), Family.IPV4, boxes(), SMALL)
    with monkeypatch.context() as patch:
        lie(patch)
        with pytest.raises(TooLarge):
            search.replace(boxes(30))
    assert search.first(PACKETS).tolist() == wanted()
    search.replace(boxes(30))
    assert search.first(PACKETS).tolist() == wanted(30)


def test_rows_change_while_packets_are_searched() -> None:
    """Every call is answered by one set of rows or the other, whole."""
    search = DeviceSearch(pocl(), Family.IPV4, boxes(40), SMALL)
    answers, failed, ended = (wanted(40), wanted(20)), [], threading.Event()

    def ask() -> None:
        while not ended.is_set():
            if search.first(PACKETS).tolist() not in answers:
                failed.append(1)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for turn in range(10):
        search.replace(boxes((20, 40)[turn % 2]))
    ended.set()
    for thread in threads:
        thread.join()
    assert not failed


def test_no_rows_and_no_packets() -> None:
    search = GuardedSearch(pocl(), Family.IPV6, [], SMALL)
    assert search.first(records([Packet(Family.IPV6, 1, 2, TCP)])).tolist() == [-1]
    search.replace([row.box for row in rule_rows(nested(), Direction.INGRESS)[Family.IPV6]])
    assert search.first(np.zeros(0, PACKET)).tolist() == []
    assert compile_rows(Model.HYBRID, Family.IPV4, []).nbytes == 0


@pytest.mark.parametrize("why", [Unread.BROKEN, Unread.CUT_OFF, Unread.NOT_IP])
def test_packets_that_were_not_read_are_refused(why: Unread) -> None:
    malformed = np.array([unread(why, 60)], PACKET)
    search = DeviceSearch(pocl(), Family.IPV4, boxes(), SMALL)
    with pytest.raises(BadInput, match="not of IPV4"):
        search.first(np.concatenate([PACKETS, malformed]))
    with pytest.raises(BadInput, match="not of IPV4"):
        search.first(records([Packet(Family.IPV6, 1, 2, TCP)]))


def test_a_library_that_finds_nothing_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    library = opencl.opencl_library()

    def fails() -> list[Any]:
        raise library.LogicError("clGetPlatformIDs failed: PLATFORM_NOT_FOUND_KHR")

    monkeypatch.setattr(library, "get_platforms", fails)
    with pytest.raises(Missing, match="PLATFORM_NOT_FOUND"):
        opencl_devices()
