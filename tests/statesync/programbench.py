"""The replicator's program without a network: frames are given to it by hand."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.enforce.drivers.bpf import libbpf
from orchestrator.statesync import kernel
from orchestrator.statesync.kernel import Replicator
from orchestrator.statesync.layout import Settings, shift_seen
from orchestrator.statesync.oracle import Kind
from orchestrator.statesync.states import Level

PASS, DROP, REDIRECT = 0, 2, 7
LOOPBACK = 1
SECRET = bytes(range(16))
ALONE = Settings(1, "10.9.0.1", SECRET, level=Level.NONE)
OPENED = ((Kind.SYN, False, 0.0), (Kind.SYN_ACK, True, 0.0), (Kind.ACK, False, 0.0))


class Bench:
    """A replicator that is attached nowhere; frames are given to it by hand."""

    def __init__(self, file: Path = kernel.FILE) -> None:
        self.kernel = Replicator.new(file)
        self.kernel.configure(ALONE)

    def watch(self, frame: bytes, interface: int = LOOPBACK, segment_bytes: int = 0) -> int:
        return libbpf.run(self.kernel.program("watch"), frame, interface, segment_bytes=segment_bytes)[0]

    def hear(self, frame: bytes) -> tuple[int, bytes]:
        return libbpf.run(self.kernel.program("hear"), frame, LOOPBACK)

    def let_time_pass(self, seconds: float) -> None:
        for name in ("opened", "brief"):
            for key, value in list(self.kernel.entries(name)):
                self.kernel.put_entry(name, key, shift_seen(value, int(seconds * 1e9)))

    def counted(self, before: dict[str, int] | None = None) -> dict[str, int]:
        found = self.kernel.counters()
        return {
            name: count - (before or {}).get(name, 0)
            for name, count in found.items()
            if count != (before or {}).get(name, 0)
        }


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.kernel.close()


def built(folder: Path, old: str, new: str) -> Path:
    """The program with some text of its source replaced."""
    source = Path(kernel.__file__).parent / "_native"
    for file in source.iterdir():
        shutil.copy(file, folder)
    program = folder / "statesync.bpf.c"
    texts = {file: file.read_text() for file in folder.glob("*.[ch]")}
    assert sum(text.count(old) for text in texts.values()) == 1, old
    for file, text in texts.items():
        file.write_text(text.replace(old, new))
    made = folder / "statesync.bpf.o"
    headers = f"-I/usr/include/{sysconfig.get_config_var('MULTIARCH')}"
    subprocess.run(["clang", "-O2", "-g", "-target", "bpf", "-mcpu=v3", headers, "-c", program, "-o", made], check=True)
    return made
