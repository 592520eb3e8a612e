"""Many packets from outside at a steady rate: `python -m orchestrator.bench.pop.flood SECONDS PER_S ADDRESSES`.

The file ADDRESSES holds destinations of IPv4, four bytes each, which are sent to in turn, over and over. When it
begins to send it says so in a line. It ends by itself after SECONDS, and prints how many packets it sent and how long
it took.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from orchestrator.bench.pop.links import OUTSIDE, Links
from orchestrator.bench.pop.shots import datagram, raw_socket
from orchestrator.bench.pop.world import IPV4
from orchestrator.errors import Refused
from orchestrator.lab.layout import MARK

PAYLOAD_OCTETS = 180
AS_FAST_AS_IT_GOES = 0
_DESTINATION, _CHECKSUM, _UDP_CHECKSUM = 30, 24, 40
_ROUND_S = 0.002
_BURST = 256
_GRACE_S = 30.0
_BEGUN = "sending\n"


@dataclass(frozen=True, slots=True)
class Flood:
    """The number of packets sent, and the seconds."""

    sent: int
    seconds: float


class Flooding:
    """A flood under way in a process of its own; made by `begin`."""

    def __init__(self, process: subprocess.Popen[str], patience_s: float) -> None:
        self._process = process
        self._patience_s = patience_s

    def end(self) -> Flood:
        """Wait until it has ended by itself. Raises Refused if it failed."""
        text, complaint = self._process.communicate(timeout=self._patience_s)
        if self._process.returncode:
            raise Refused(f"the flood failed: {complaint.strip()[-500:]}")
        found = json.loads(text)
        return Flood(int(found["sent"]), float(found["seconds"]))


def begin(links: Links, addresses: Sequence[int], *, seconds: float, per_s: int) -> Flooding:
    """Start sending to addresses in turn.

    `per_s` may be `AS_FAST_AS_IT_GOES`.

    Raises Refused where it does not begin.
    """
    path = links.layout.run_dir / f"{links.name}-flood"
    path.write_bytes(np.array(addresses, ">u4").tobytes())
    command = [sys.executable, "-m", "orchestrator.bench.pop.flood", str(seconds), str(per_s), str(path)]
    started = partial(
        subprocess.Popen,
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=_marked_environment(links),
    )
    process = links.inside(OUTSIDE, started)
    assert process.stdout is not None
    flooding = Flooding(process, seconds + _GRACE_S)
    if process.stdout.readline() != _BEGUN:
        flooding.end()
        raise Refused("the flood did not begin")
    return flooding


def frames_to(addresses: npt.NDArray[np.uint32]) -> list[bytes]:
    """Return a frame to each address, copied from one.

    UDP's checksum is left out, as IPv4 allows.
    """
    first = bytearray(datagram(IPV4, 0, size=PAYLOAD_OCTETS))
    first[_UDP_CHECKSUM : _UDP_CHECKSUM + 2] = bytes(2)
    made = np.tile(np.frombuffer(bytes(first), np.uint8), (len(addresses), 1))
    made[:, _DESTINATION : _DESTINATION + 4] = addresses.astype(">u4").view(np.uint8).reshape(-1, 4)
    bare = int.from_bytes(first[_CHECKSUM : _CHECKSUM + 2], "big") ^ 0xFFFF
    total = bare + (addresses >> 16).astype(np.uint64) + (addresses & 0xFFFF).astype(np.uint64)
    total = (total & 0xFFFF) + (total >> 16)
    folded = (((total & 0xFFFF) + (total >> 16)) ^ 0xFFFF).astype(">u2")
    made[:, _CHECKSUM : _CHECKSUM + 2] = folded.view(np.uint8).reshape(-1, 2)
    return [row.tobytes() for row in made]


def send(frames: Sequence[bytes], seconds: float, per_s: int) -> Flood:
    """Send frames in turn from the calling thread's namespace, until the time is over."""
    sent, began = 0, time.monotonic()
    with raw_socket() as out:
        while (now := time.monotonic() - began) < seconds:
            due = int(now * per_s) - sent if per_s else _BURST
            for index in range(sent, sent + due):
                out.send(frames[index % len(frames)])
            sent += due
            if per_s:
                time.sleep(_ROUND_S)
    return Flood(sent, time.monotonic() - began)


def _marked_environment(links: Links) -> dict[str, str]:
    """Return the environment that marks the site's programs, without the caller's settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ACLFLOW_")}
    return {**kept, MARK: str(links.layout.run_dir)}


if __name__ == "__main__":
    wanted = frames_to(np.frombuffer(Path(sys.argv[3]).read_bytes(), ">u4").astype(np.uint32))
    sys.stdout.write(_BEGUN)
    sys.stdout.flush()
    done = send(wanted, float(sys.argv[1]), int(sys.argv[2]))
    sys.stdout.write(json.dumps({"sent": done.sent, "seconds": done.seconds}))
