"""Runs inside a client: lasting connections with lines that must be answered.

    python -m orchestrator.bench.elastic.talkers ADDRESS PORT CONNECTIONS SECONDS

Prints ``ready`` once all are open; at the end a JSON object: how many connections were cut (an error, or no answer for
`PATIENCE_S`), and how many lines were answered.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from dataclasses import dataclass

from orchestrator.bench.elastic.sender import say

EVERY_S = 0.25
PATIENCE_S = 10.0
"""TCP repairs a lost packet by itself within this time; a connection that stays silent for so long is cut."""


@dataclass(slots=True)
class _Talker:
    link: socket.socket
    said_at: float = 0.0
    waits: bool = False
    cut: bool = False
    answers: int = 0

    def say(self, now: float) -> None:
        """Send a line when due and the last was answered; give up after too long."""
        if self.waits and now - self.said_at > PATIENCE_S:
            self.cut = True
        elif not self.waits and now - self.said_at >= EVERY_S:
            self.link.sendall(b"still there?\n")
            self.said_at, self.waits = now, True

    def hear(self) -> None:
        """Read the answer that has come, or see that the connection is cut."""
        if self.link.recv(100):
            self.waits = False
            self.answers += 1
        else:
            self.cut = True


def talk(address: str, port: int, connections: int, seconds: float) -> dict[str, int]:
    """Open so many connections and keep them for so long."""
    talkers = [_Talker(socket.create_connection((address, port), PATIENCE_S)) for _ in range(connections)]
    say("ready")
    ends = time.monotonic() + seconds
    while (now := time.monotonic()) < ends or any(each.waits and not each.cut for each in talkers):
        alive = {each.link: each for each in talkers if not each.cut}
        for each in alive.values():
            _try_to_say(each, now, ends)
        for link in select.select(list(alive), [], [], 0.05)[0]:
            _try_to_hear(alive[link])
    return {"cut": sum(each.cut for each in talkers), "answers": sum(each.answers for each in talkers)}


def _try_to_say(talker: _Talker, now: float, ends: float) -> None:
    try:
        if now < ends or talker.waits:
            talker.say(now)
    except OSError:
        talker.cut = True


def _try_to_hear(talker: _Talker) -> None:
    try:
        talker.hear()
    except OSError:
        talker.cut = True


def main() -> None:
    """See the module."""
    address, port, connections, seconds = sys.argv[1:]
    say(json.dumps(talk(address, int(port), int(connections), float(seconds))))


if __name__ == "__main__":
    main()
