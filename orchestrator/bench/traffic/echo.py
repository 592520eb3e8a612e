"""Sends UDP datagrams back to whoever sent them: `python -m orchestrator.bench.traffic.echo ADDRESS,... PORT...`"""

from __future__ import annotations

import itertools
import selectors
import socket
import sys
from collections.abc import Sequence


def serve(addresses: Sequence[str], ports: Sequence[int]) -> None:
    """Echo on some ports of some addresses until the process is ended."""
    with selectors.DefaultSelector() as selector:
        for end in itertools.product(addresses, ports):
            listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            listener.bind(end)
            selector.register(listener, selectors.EVENT_READ, listener)
        while True:
            for key, _ in selector.select():
                message, sender = key.data.recvfrom(2048)
                key.data.sendto(message, sender)


if __name__ == "__main__":
    serve(sys.argv[1].split(","), [int(text) for text in sys.argv[2:]])
