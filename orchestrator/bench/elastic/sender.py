"""Runs inside a client: sends numbered datagrams in many flows at a varying rate.

    python -m orchestrator.bench.elastic.sender ADDRESS PORT OCTETS FLOWS RATES

RATES is a JSON list of datagrams a second, one for each tenth of a second. Prints a JSON list of what was sent in each
second, and the sum.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import time

STEP_S = 0.1
NUMBER = struct.Struct("!IQ")
"""A datagram begins with the number of its flow and its own number in the flow, from 0."""


def send(address: str, port: int, size: int, flows: int, rates: list[float]) -> list[int]:
    """Send all of it; how many in each second."""
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(flows)]
    padding, began = bytes(size - NUMBER.size), time.monotonic()
    sent, total, due = [0] * (int(len(rates) * STEP_S) + 1), 0, 0.0
    for step, rate in enumerate(rates):
        due += rate * STEP_S
        while total < due:
            flow, number = total % flows, total // flows
            sockets[flow].sendto(NUMBER.pack(flow, number) + padding, (address, port))
            total += 1
            sent[int(step * STEP_S)] += 1
            _sleep_until(began + (step + 1 - (due - total) / max(rate * STEP_S, 1.0)) * STEP_S)
        _sleep_until(began + (step + 1) * STEP_S)
    return sent


def say(line: str) -> None:
    """Tell whoever started the program."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _sleep_until(until: float) -> None:
    left = until - time.monotonic()
    if left > 0:
        time.sleep(left)


def main() -> None:
    """See the module."""
    address, port, size, flows, rates = sys.argv[1:]
    sent = send(address, int(port), int(size), int(flows), json.loads(rates))
    say(json.dumps({"sent": sent, "total": sum(sent)}))


if __name__ == "__main__":
    main()
