"""A replay takes no more memory for a longer capture."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from orchestrator.classify.captures import PIECE

_MEASURED = """
import resource, sys
from orchestrator.classify.captures import open_capture
from orchestrator.classify.listdecider import Deciding
from orchestrator.classify.replay import replay
from orchestrator.policy.model import Acl
with open_capture("-") as capture:
    found = replay([capture], Deciding(Acl(())), Deciding(Acl(())), threads=2)
print(found.all.packets, len(found.denied_flows), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)
"""
_RUN = 1 << 16
"""Packets that are written at once."""


def peak_mib(packets: int) -> int:
    """The most memory of a process that replays so many packets, each of a flow of its own."""
    process = subprocess.Popen(
        [sys.executable, "-c", _MEASURED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=False,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 101))
    head = struct.pack("<IIII", 0, 0, 28, 28) + struct.pack(">BBHHHBBH", 0x45, 0, 28, 0, 0, 64, 17, 0)
    one = head + bytes(8) + struct.pack(">HHHH", 53, 53, 8, 0)
    records = np.frombuffer(one * _RUN, np.uint8).reshape(_RUN, len(one)).copy()
    sources = records[:, len(head) : len(head) + 4]
    for begin in range(0, packets, _RUN):
        count = min(_RUN, packets - begin)
        sources[:count] = np.arange(begin, begin + count, dtype=">u4").view(np.uint8).reshape(count, 4)
        process.stdin.write(records[:count].tobytes())
    process.stdin.close()
    told = process.stdout.read().split()
    assert process.wait() == 0
    assert int(told[0]) == packets
    assert int(told[1]) >= 500_000
    return int(told[2])


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_longer_capture_takes_no_more_memory() -> None:
    """Flows are forgotten from a million on, so captures of some millions already take all that there is to take."""
    short, long = peak_mib(4_000_000), peak_mib(100_000_000)
    assert long < 1024
    assert long < short + 16 * (PIECE >> 20)
