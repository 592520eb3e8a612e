"""Sends UDP datagrams back to whoever sent them: `python -m orchestrator.bench.traffic.echo ADDRESS PORT...`"""

from __future__ import annotations

import selectors
import socket
import sys
from collections.abc import Sequence


def serve(address: str, ports: Sequence[int]) -> None:
    """Echo on some ports of an address until the process is ended."""
    with selectors.DefaultSelector() as selector:
        for port in ports:
            listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            listener.bind((address, port))
            selector.register(listener, selectors.EVENT_READ, listener)
        while True:
            for key, _ in selector.select():
                message, sender = key.data.recvfrom(2048)
                key.data.sendto(message, sender)


if __name__ == "__main__":
    serve(sys.argv[1], [int(text) for text in sys.argv[2:]])
