"""When firewall servers get their programs: changes are gathered for a while, so that many cost what one does.

    noted     x                x x xx x x                          x
    due       x                x        x                          x
              │                │◀ window ▶│                        │ nothing for longer than a window: at once

A server whose last program is older than a window gets the next at once; others wait for the end of theirs. So a change
waits for a window at most, and no server gets programs more often than once in it. Times are seconds of one clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field

NEVER = float("inf")


@dataclass(slots=True)
class Windows:
    """Servers with something new for them, by when they are due."""

    window_s: float
    _due: dict[str, float] = field(default_factory=dict)
    _served: dict[str, float] = field(default_factory=dict)

    def note(self, server: str, now: float) -> None:
        """There is something new for a server."""
        if server not in self._due:
            self._due[server] = max(now, self._served.get(server, -NEVER) + self.window_s)

    def take(self, now: float) -> list[str]:
        """The servers that are due, longest due first; what is noted from now on is for the next time."""
        due = sorted((at, server) for server, at in self._due.items() if at <= now)
        for _, server in due:
            del self._due[server]
            self._served[server] = now
        return [server for _, server in due]

    @property
    def next_at(self) -> float:
        """When somebody is due next."""
        return min(self._due.values(), default=NEVER)
