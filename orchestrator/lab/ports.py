"""Ports of this machine, for processes that are told where to listen."""

from __future__ import annotations

import secrets
import socket
from pathlib import Path

from orchestrator.errors import Missing

_TAKEN_BY_CHANCE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST, _TRIES = 10_000, 200


def free_port() -> int:
    """Return a free TCP port that no connection takes before a listener does.

    It lies below those that the kernel gives to connections of its own accord: one of them would be anybody's between
    now and the time at which it is listened on. Raises Missing where none is found.
    """
    beyond = int(_TAKEN_BY_CHANCE.read_text().split()[0])
    if beyond <= _LOWEST:
        return _listen_on(0)
    for _ in range(_TRIES):
        try:
            return _listen_on(_LOWEST + secrets.randbelow(beyond - _LOWEST))
        except OSError:
            continue
    raise Missing(f"no TCP port from {_LOWEST} to {beyond - 1} is free on this machine")


def _listen_on(port: int) -> int:
    with socket.create_server(("", port)) as server:
        return int(server.getsockname()[1])
