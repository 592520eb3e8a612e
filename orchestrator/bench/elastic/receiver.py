"""Run inside an endpoint: takes numbered datagrams, and answers every line of every connection.

    python -m orchestrator.bench.elastic.receiver PORT

Prints ``ready``; at SIGTERM a JSON object: how many different datagrams came, how many in each second since ready, and
which did not come (flow, number) though later ones of their flow did.
"""

from __future__ import annotations

import json
import signal
import socket
import socketserver
import sys
import threading
import time
from collections import Counter
from collections.abc import Collection

from orchestrator.bench.elastic.sender import NUMBER, say

_BUFFER = 8 << 20


class _Lines(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        """Send every line back."""
        for line in self.rfile:
            self.wfile.write(line)


class _Echo(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128


def missing(seen: Collection[bytes]) -> list[tuple[int, int]]:
    """Return flow and number of missing datagrams, up to each flow's last one."""
    came: dict[int, set[int]] = {}
    for datagram in seen:
        flow, number = NUMBER.unpack(datagram)
        came.setdefault(flow, set()).add(number)
    return [(flow, number) for flow, numbers in came.items() for number in range(max(numbers)) if number not in numbers]


def main() -> None:
    """See the module."""
    port = int(sys.argv[1])
    echo = _Echo(("", port), _Lines)
    threading.Thread(target=echo.serve_forever, daemon=True).start()
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.setsockopt(socket.SOL_SOCKET, 33, _BUFFER)  # SO_RCVBUFFORCE
    datagrams.bind(("", port))
    seen: set[bytes] = set()
    arrived: Counter[int] = Counter()

    def end_on_signal(_number: int, _frame: object) -> None:
        say(json.dumps({"different": len(seen), "arrived": dict(arrived), "missing": missing(seen)}))
        sys.exit()

    signal.signal(signal.SIGTERM, end_on_signal)
    say("ready")
    began = time.monotonic()
    while True:
        datagram = datagrams.recv(2048)
        seen.add(datagram[: NUMBER.size])
        arrived[int(time.monotonic() - began)] += 1


if __name__ == "__main__":
    main()
