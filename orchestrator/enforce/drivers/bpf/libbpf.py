"""libbpf by ctypes: load programs and maps, attach them with tc, run them.

Only what our programs need, each call once. Refusals of the kernel are `Refused` with the call's name; a library or
right that is missing is `Missing`. File descriptors are the caller's to close.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Mapping
from ctypes import POINTER, Structure, byref, c_char_p, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from orchestrator.errors import Missing, Refused

_LIBRARY = "libbpf.so.1"
_MAP_ARRAY = 2
_OF_ANY_LENGTH = 0x1000
_INGRESS, _EGRESS = 1, 2
_REPLACE = 1
_INFO_BYTES = 256
_MOST_MAPS = 16
_NR_MAP_IDS, _MAP_IDS = 52, 56
"""Where the kernel's description of a program says how many maps it uses, and where their ids are to go."""
_SKB_BYTES = 192
_SKB_MARK, _SKB_IIF, _SKB_IFINDEX, _SKB_GSO_SIZE = 8, 36, 40, 176
"""Where a packet's mark, the interface that it came in by, and its device stand in the context of a tc program."""

_NOT_ALLOWED = (errno.EPERM, errno.EACCES)
_NONE_THERE = (errno.ENOENT, errno.EINVAL, errno.ENODEV, errno.EOPNOTSUPP)
"""No such program, no queueing discipline for it, no interface any more, or a kernel without such programs."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A program in the kernel and its maps by name, as descriptors."""

    program: int
    maps: Mapping[str, int]

    def close(self) -> None:
        """Let go of the descriptors; what is attached stays."""
        for descriptor in (self.program, *self.maps.values()):
            os.close(descriptor)


class _Hook(Structure):
    """struct bpf_tc_hook."""

    _fields_ = (("sz", c_size_t), ("ifindex", c_int), ("attach_point", c_int), ("parent", c_uint32))


class _Options(Structure):
    """struct bpf_tc_opts."""

    _fields_ = (
        ("sz", c_size_t), ("prog_fd", c_int), ("flags", c_uint32), ("prog_id", c_uint32), ("handle", c_uint32),
        ("priority", c_uint32),
    )  # fmt: skip


class _MapOptions(Structure):
    """struct bpf_map_create_opts."""

    _fields_ = (
        ("sz", c_size_t), ("btf_fd", c_uint32), ("btf_key_type_id", c_uint32), ("btf_value_type_id", c_uint32),
        ("btf_vmlinux_value_type_id", c_uint32), ("inner_map_fd", c_uint32), ("map_flags", c_uint32),
        ("map_extra", c_uint64), ("numa_node", c_uint32), ("map_ifindex", c_uint32),
    )  # fmt: skip


class _TestRun(Structure):
    """struct bpf_test_run_opts."""

    _fields_ = (
        ("sz", c_size_t), ("data_in", c_void_p), ("data_out", c_void_p), ("data_size_in", c_uint32),
        ("data_size_out", c_uint32), ("ctx_in", c_void_p), ("ctx_out", c_void_p), ("ctx_size_in", c_uint32),
        ("ctx_size_out", c_uint32), ("retval", c_uint32), ("repeat", c_int), ("duration", c_uint32),
        ("flags", c_uint32), ("cpu", c_uint32), ("batch_size", c_uint32),
    )  # fmt: skip


_Print = ctypes.CFUNCTYPE(c_int, c_int, c_char_p, c_void_p)
_SILENT: Final = _Print(lambda _level, _form, _values: 0)

_SIGNATURES: Mapping[str, tuple[Any, tuple[Any, ...]]] = {
    "bpf_object__open_file": (c_void_p, (c_char_p, c_void_p)),
    "bpf_object__load": (c_int, (c_void_p,)),
    "bpf_object__close": (None, (c_void_p,)),
    "bpf_object__next_program": (c_void_p, (c_void_p, c_void_p)),
    "bpf_program__name": (c_char_p, (c_void_p,)),
    "bpf_object__find_map_by_name": (c_void_p, (c_void_p, c_char_p)),
    "bpf_object__next_map": (c_void_p, (c_void_p, c_void_p)),
    "bpf_map__name": (c_char_p, (c_void_p,)),
    "bpf_map__fd": (c_int, (c_void_p,)),
    "bpf_map__reuse_fd": (c_int, (c_void_p, c_int)),
    "bpf_program__fd": (c_int, (c_void_p,)),
    "bpf_map_create": (c_int, (c_int, c_char_p, c_uint32, c_uint32, c_uint32, c_void_p)),
    "bpf_map_update_elem": (c_int, (c_int, c_void_p, c_void_p, c_uint64)),
    "bpf_map_lookup_elem": (c_int, (c_int, c_void_p, c_void_p)),
    "bpf_map_delete_elem": (c_int, (c_int, c_void_p)),
    "bpf_map_lookup_batch": (c_int, (c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p)),
    "bpf_map_update_batch": (c_int, (c_int, c_void_p, c_void_p, c_void_p, c_void_p)),
    "bpf_prog_get_fd_by_id": (c_int, (c_uint32,)),
    "bpf_map_get_fd_by_id": (c_int, (c_uint32,)),
    "bpf_obj_get_info_by_fd": (c_int, (c_int, c_void_p, POINTER(c_uint32))),
    "bpf_prog_bind_map": (c_int, (c_int, c_int, c_void_p)),
    "bpf_prog_test_run_opts": (c_int, (c_int, c_void_p)),
    "bpf_tc_hook_create": (c_int, (c_void_p,)),
    "bpf_tc_attach": (c_int, (c_void_p, c_void_p)),
    "bpf_tc_detach": (c_int, (c_void_p, c_void_p)),
    "bpf_tc_query": (c_int, (c_void_p, c_void_p)),
    "libbpf_num_possible_cpus": (c_int, ()),
    "libbpf_set_print": (c_void_p, (_Print,)),
}
"""Result and arguments of every call. A result below zero, or a null pointer, is an error."""


@cache
def _load_library() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(_LIBRARY, use_errno=True)
    except OSError:
        raise Missing(f"the flow cache needs {_LIBRARY}: install the package libbpf1") from None
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    library.libbpf_set_print(_SILENT)
    return library


def _call(name: str, *arguments: Any, fine: tuple[int, ...] = ()) -> Any:
    """Call it; None for an error number that is `fine`."""
    result = getattr(_load_library(), name)(*arguments)
    pointer = _SIGNATURES[name][0] is c_void_p
    if (pointer and result) or (not pointer and (result is None or result >= 0)):
        return result
    number = ctypes.get_errno() if pointer else -result
    if number in fine:
        return None
    if number in _NOT_ALLOWED:
        raise Missing(f"{name}: the flow cache needs the rights CAP_BPF and CAP_NET_ADMIN")
    raise Refused(f"{name}: {os.strerror(number)}")


# ------------------------------------------------------------------------------------------------------------ programs


@dataclass(frozen=True, slots=True)
class LoadedPrograms:
    """The programs of one object file and their shared maps, as descriptors by name."""

    programs: Mapping[str, int]
    maps: Mapping[str, int]

    def close(self) -> None:
        """Let go of the descriptors; what is attached stays."""
        for descriptor in (*self.programs.values(), *self.maps.values()):
            os.close(descriptor)


def load_programs(path: Path) -> LoadedPrograms:
    """Load an object file with several programs.

    Each holds all maps, those too that it does not use itself.
    """
    opened = _call("bpf_object__open_file", os.fsencode(path), None)
    try:
        _call("bpf_object__load", opened)
        programs, maps, program, found = {}, {}, None, None
        while found := _load_library().bpf_object__next_map(opened, found):
            maps[_load_library().bpf_map__name(found).decode()] = os.dup(_call("bpf_map__fd", found))
        while program := _load_library().bpf_object__next_program(opened, program):
            descriptor = os.dup(_call("bpf_program__fd", program))
            programs[_load_library().bpf_program__name(program).decode()] = descriptor
            for each in maps.values():
                _call("bpf_prog_bind_map", descriptor, each, None)
        return LoadedPrograms(programs, maps)
    finally:
        _call("bpf_object__close", opened)


def load(path: Path, kept: Mapping[str, int]) -> Loaded:
    """Load an object file with one program, which keeps all of its maps alive.

    Those too that it does not use itself.

    Maps named in `kept` are those descriptors' maps instead of new ones.
    """
    opened = _call("bpf_object__open_file", os.fsencode(path), None)
    try:
        for name, descriptor in kept.items():
            _call("bpf_map__reuse_fd", _call("bpf_object__find_map_by_name", opened, name.encode()), descriptor)
        _call("bpf_object__load", opened)
        program = os.dup(_call("bpf_program__fd", _call("bpf_object__next_program", opened, None)))
        maps, found = {}, None
        while found := _load_library().bpf_object__next_map(opened, found):
            maps[_load_library().bpf_map__name(found).decode()] = os.dup(_call("bpf_map__fd", found))
        for descriptor in maps.values():
            _call("bpf_prog_bind_map", program, descriptor, None)
        return Loaded(program, maps)
    finally:
        _call("bpf_object__close", opened)


def loaded_as(number: int) -> Loaded | None:
    """Open a loaded program by its id; None if it is gone."""
    program = _call("bpf_prog_get_fd_by_id", number, fine=(errno.ENOENT,))
    if program is None:
        return None
    ids = (c_uint32 * _MOST_MAPS)()
    info = bytearray(_INFO_BYTES)
    struct.pack_into("=I", info, _NR_MAP_IDS, _MOST_MAPS)
    struct.pack_into("=Q", info, _MAP_IDS, ctypes.addressof(ids))
    count = struct.unpack_from("=I", _info(program, info), _NR_MAP_IDS)[0]
    maps = [_call("bpf_map_get_fd_by_id", each) for each in ids[:count]]
    return Loaded(program, {map_name(each): each for each in maps})


def _info(descriptor: int, asked: bytes | bytearray = bytes(_INFO_BYTES)) -> bytes:
    """Return the kernel's information on a program or a map."""
    info = ctypes.create_string_buffer(bytes(asked), len(asked))
    _call("bpf_obj_get_info_by_fd", descriptor, info, byref(c_uint32(len(asked))))
    return info.raw


def identity(descriptor: int) -> int:
    """Return the id of a program or a map, unique until the machine restarts."""
    return int(struct.unpack_from("=I", _info(descriptor), 4)[0])


def tag(program: int) -> bytes:
    """The digest of a program's instructions."""
    return _info(program)[8:16]


def map_name(descriptor: int) -> str:
    """A map's name, as its program calls it."""
    return _info(descriptor)[24:40].partition(b"\0")[0].decode()


# ---------------------------------------------------------------------------------------------------------------- maps


def new_array(name: str, size: int) -> int:
    """An array map with one value of `size` bytes."""
    return int(_call("bpf_map_create", _MAP_ARRAY, name.encode(), 4, size, 1, None))


def new_long_array(name: str, size: int, values: bytes) -> int:
    """Make an array map with as many values of `size` bytes as are given.

    A map of maps may hold such maps of any length.
    """
    count = len(values) // size
    options = _MapOptions(ctypes.sizeof(_MapOptions), map_flags=_OF_ANY_LENGTH)
    made = int(_call("bpf_map_create", _MAP_ARRAY, name.encode(), 4, size, count, byref(options)))
    keys, written = (c_uint32 * count)(*range(count)), c_uint32(count)
    _call("bpf_map_update_batch", made, keys, values, byref(written), None)
    return made


def put(descriptor: int, place: int, value: bytes) -> None:
    """Write the value at a place of an array."""
    _call("bpf_map_update_elem", descriptor, byref(c_uint32(place)), value, 0)


def stand(descriptor: int, made: Mapping[int, int]) -> None:
    """Put maps, as descriptors, at places of a map of maps.

    Returns once no program runs that saw the old ones.
    """
    places, inside = (c_uint32 * len(made))(*made), (c_uint32 * len(made))(*made.values())
    _call("bpf_map_update_batch", descriptor, places, inside, byref(c_uint32(len(made))), None)


def take_out(descriptor: int, place: int) -> None:
    """Remove what a place of a map of maps holds.

    Returns once no program runs that may have seen the old map.
    """
    _call("bpf_map_delete_elem", descriptor, byref(c_uint32(place)), fine=(errno.ENOENT,))


def inner(descriptor: int, place: int) -> int | None:
    """The map at a place of a map of maps; None for an empty place."""
    number = c_uint32()
    found = _call("bpf_map_lookup_elem", descriptor, byref(c_uint32(place)), byref(number), fine=(errno.ENOENT,))
    return None if found is None else _call("bpf_map_get_fd_by_id", number, fine=(errno.ENOENT,))


def value(descriptor: int, place: int, size: int) -> bytes:
    """The value at a place of an array."""
    found = ctypes.create_string_buffer(size)
    _call("bpf_map_lookup_elem", descriptor, byref(c_uint32(place)), found)
    return found.raw


def element(descriptor: int, key: bytes, size: int) -> bytes | None:
    """Return the value of `size` bytes under a key of a hash map, or None."""
    found = ctypes.create_string_buffer(size)
    missing = _call("bpf_map_lookup_elem", descriptor, key, found, fine=(errno.ENOENT,)) is None
    return None if missing else found.raw


def put_element(descriptor: int, key: bytes, value: bytes) -> None:
    """Write the value under a key of a hash map.

    Raises Refused where the map is full.
    """
    _call("bpf_map_update_elem", descriptor, key, value, 0)


def drop_element(descriptor: int, key: bytes) -> None:
    """Take a key out of a hash map; one that is not there is fine."""
    _call("bpf_map_delete_elem", descriptor, key, fine=(errno.ENOENT,))


def elements(descriptor: int, key_size: int, value_size: int, at_once: int = 4096) -> tuple[bytes, bytes]:
    """Return all keys and all values of a hash map, each concatenated.

    Entries that come or go meanwhile may be missing.
    """
    keys, values = ctypes.create_string_buffer(key_size * at_once), ctypes.create_string_buffer(value_size * at_once)
    token, before, end = ctypes.create_string_buffer(max(key_size, 8)), None, (errno.ENOENT,)
    every_key, every_value = bytearray(), bytearray()
    done = False
    while not done:
        taken = c_uint32(at_once)
        arguments = (descriptor, before, token, keys, values, byref(taken), None)
        done = _call("bpf_map_lookup_batch", *arguments, fine=end) is None
        every_key += keys.raw[: taken.value * key_size]
        every_value += values.raw[: taken.value * value_size]
        before = token
    return bytes(every_key), bytes(every_value)


def first_values(descriptor: int, count: int, size: int) -> bytes:
    """Return the first `count` values of an array, each of `size` bytes.

    Of a per-CPU array: of all CPUs together.
    """
    if not count:
        return b""
    keys, values, token = (c_uint32 * count)(), ctypes.create_string_buffer(count * size), c_uint64()
    taken = c_uint32(count)
    everything = (errno.ENOENT,)  # said when the end of the map was reached
    _call("bpf_map_lookup_batch", descriptor, None, byref(token), keys, values, byref(taken), None, fine=everything)
    return values.raw[: taken.value * size]


def processors() -> int:
    """How many values a per-CPU map keeps for each place."""
    return int(_call("libbpf_num_possible_cpus"))


# ------------------------------------------------------------------------------------------------------------------ tc


def attach(interface: int, program: int, priority: int, *, egress: bool = False) -> None:
    """Attach a program to an interface's ingress (or egress), replacing one of this priority."""
    hook, options = _make_hook(interface, priority, egress)
    _call("bpf_tc_hook_create", byref(hook), fine=(errno.EEXIST,))
    options.prog_fd, options.flags = program, _REPLACE
    _call("bpf_tc_attach", byref(hook), byref(options))


def detach(interface: int, priority: int, *, egress: bool = False) -> None:
    """Take away what has this priority at an interface; nothing there is fine."""
    hook, options = _make_hook(interface, priority, egress)
    _call("bpf_tc_detach", byref(hook), byref(options), fine=_NONE_THERE)


def attached_program(interface: int, priority: int, *, egress: bool = False) -> int | None:
    """The id of the program with this priority at an interface."""
    hook, options = _make_hook(interface, priority, egress)
    found = _call("bpf_tc_query", byref(hook), byref(options), fine=_NONE_THERE)
    return None if found is None else int(options.prog_id)


def _make_hook(interface: int, priority: int, egress: bool = False) -> tuple[_Hook, _Options]:
    hook = _Hook(ctypes.sizeof(_Hook), interface, _EGRESS if egress else _INGRESS)
    return hook, _Options(ctypes.sizeof(_Options), handle=1, priority=priority)


# --------------------------------------------------------------------------------------------------------------- trying


def run_repeatedly(program: int, frame: bytes, times: int) -> int:
    """Run a tc program on a frame repeatedly; return mean nanoseconds by the kernel's clock."""
    given = ctypes.create_string_buffer(frame, len(frame))
    test = _TestRun(
        ctypes.sizeof(_TestRun), ctypes.addressof(given), None, len(frame), 0, None, None, 0, 0, repeat=times
    )
    _call("bpf_prog_test_run_opts", program, byref(test))
    return int(test.duration)


def put_all(descriptor: int, keys: bytes, values: bytes, count: int) -> None:
    """Write many values of a map at once, in the order of their keys."""
    _call("bpf_map_update_batch", descriptor, keys, values, byref(c_uint32(count)), None)


def run(program: int, frame: bytes, interface: int, mark: int = 0, segment_bytes: int = 0) -> tuple[int, bytes]:
    """Run a tc program on a frame from an interface; return verdict and frame.

    `segment_bytes`: the kernel is to divide the frame later, into segments of so many bytes.
    """
    context = ctypes.create_string_buffer(_SKB_BYTES)
    struct.pack_into("=I", context, _SKB_MARK, mark)
    struct.pack_into("=I", context, _SKB_GSO_SIZE, segment_bytes)
    struct.pack_into("=II", context, _SKB_IIF, interface, interface)
    after = ctypes.create_string_buffer(len(frame) + 256)
    given = ctypes.create_string_buffer(frame, len(frame))
    test = _TestRun(
        ctypes.sizeof(_TestRun), ctypes.addressof(given), ctypes.addressof(after), len(frame), len(after),
        ctypes.addressof(context), None, len(context), 0,
    )  # fmt: skip
    _call("bpf_prog_test_run_opts", program, byref(test))
    return ctypes.c_int32(test.retval).value, after.raw[: test.data_size_out]
